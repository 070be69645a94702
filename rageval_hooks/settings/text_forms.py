"""The types of settings, and settings that are written as text: ``"a=1, b=2"``, ``"one, two"`` or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag

EVERY = "*"
"""Given as a score's name in ``thresholds``: every score that is not named there."""

# Field descriptions: error messages quote them to say what is valid.
NAMES = "a list of names, or names with commas between them"
YES_OR_NO = "true or false"


def not_a_boolean(value: Any) -> Any:
    """Return a value unchanged; pydantic would read true as 1.

    Raises:
        ValueError: it is a boolean.
    """
    if isinstance(value, bool):
        raise ValueError("must be a number, not a boolean")
    return value


Number = Annotated[float, BeforeValidator(not_a_boolean)]
Rate = Annotated[float, Field(ge=0, le=1)]
_ONE, _MANY = "one rate", "rates by name"
RATE_TAGS = (_ONE, _MANY)
"""The tags of the forms of :data:`Rates`. pydantic names them in the place of an error; no user knows them."""

Rates = Annotated[
    Annotated[Rate, Tag(_ONE)] | Annotated[dict[str, Rate], Tag(_MANY)],
    Discriminator(lambda value: _MANY if isinstance(value, Mapping) else _ONE),
]


def parsed(value: Any, parse: Callable[[str], Any]) -> Any:
    """Return a setting that may be written as text.

    Args:
        value: the setting; returned unchanged if it is not text.
        parse: reads a text that is not JSON.

    Raises:
        ValueError: the text begins like JSON and is not, or ``parse`` does not accept it.
    """
    if not isinstance(value, str):
        return value
    # Names of metrics and options begin with a letter, so a bracket means JSON.
    if value.lstrip()[:1] not in ("[", "{"):
        return parse(value)
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None


def parse_names(text: str) -> list[str]:
    """Read ``"one, two"``."""
    return list(filter(None, map(str.strip, text.split(","))))


def parse_pairs(text: str) -> dict[str, str]:
    """Read ``"a=1, b=2"``.

    Raises:
        ValueError: a part has no equals sign.
    """
    pairs = {}
    for place, part in enumerate(parse_names(text), 1):
        name, equals, number = part.partition("=")
        if not equals:  # the part may be a key, so the message gives its position only
            raise ValueError(f"part {place} is not of the form name=value")
        pairs[name.strip()] = number.strip()
    return pairs


def parse_bounds(text: str) -> dict[str, str]:
    """Read ``"groundedness=0.7, coherence=none"``; ``"none"`` alone is for every score."""
    parts = (f"{EVERY}={part}" if is_none(part) else part for part in text.split(","))
    return parse_pairs(",".join(parts))


def is_none(value: Any) -> bool:
    """Return True for the text ``none``."""
    return isinstance(value, str) and value.strip().lower() == "none"
