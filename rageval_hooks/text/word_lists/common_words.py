"""English words that are no names: at the beginning of a sentence, a capital alone does not tell."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["is_common", "read_list"]


def read_list(name: str) -> list[str]:
    """Return the lines of a word list of the package, without its comments."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


@cache
def _common_words() -> frozenset[str]:
    # About 5 ms and 3 MB, for processes that check facts.
    return frozenset(read_list("common_words.txt"))


def is_common(key: str) -> bool:
    """Return True for the key of an English word that is no name, or is one besides ("rose", "mark")."""
    return key in _common_words()
