"""Messages about wrong settings: which one, why, and what is valid."""

from __future__ import annotations

from difflib import get_close_matches

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings

from rageval_hooks.errors import UnknownNameError
from rageval_hooks.settings.local_models import ModelSettings
from rageval_hooks.settings.text_forms import RATE_TAGS

_MAY_HOLD_SECRETS = ("judge_options", "judge_budget_store", "phoenix_endpoint", "id_salt", "sampling_salt")


def explain(error: ValidationError, settings: type[BaseSettings]) -> str:
    """Return what is wrong with some settings, and what would be valid."""
    lines = []
    for item in error.errors():
        # The tags of a union are pydantic's, and no names that a user knows.
        field = ".".join(str(part) for part in item["loc"] if part not in RATE_TAGS) or "settings"
        if item["type"] == "extra_forbidden":
            valid = list(ModelSettings.model_fields if item["loc"][0] == "models" else settings.model_fields)
            close = get_close_matches(str(item["loc"][-1]), valid, n=1)
            meant = f"Did you mean {close[0]!r}?" if close else f"Valid: {', '.join(valid)}"
            lines.append(f"{field}: there is no such setting. {meant}")
            continue
        message = f"{field}: {item['msg'].removeprefix('Value error, ').rstrip('.')}{_given(item)}"
        if not isinstance(item.get("ctx", {}).get("error"), UnknownNameError):  # its message lists what is valid
            message += f". Valid: {_valid(item['loc'], settings)}"
        lines.append(message)
    return "; ".join(lines)


def _given(item: ErrorDetails) -> str:
    """Return the given value, for a message; nothing for settings that may hold a key or a password."""
    if item["loc"][0] in _MAY_HOLD_SECRETS:
        return ""
    given = repr(item.get("input"))
    return f" (given {given if len(given) <= 80 else given[:77] + '...'})"


def _valid(place: tuple[int | str, ...], settings: type[BaseSettings]) -> str | None:
    name, *inner = map(str, place)
    if name == "models" and inner:
        return ModelSettings.model_fields[inner[0]].description
    return settings.model_fields[name].description
