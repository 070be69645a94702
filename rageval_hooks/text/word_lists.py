"""The words that the rules of this package know, from ``word_lists.toml``, which says what each list is for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

WORD_LISTS: Final[Mapping[str, Any]] = tomllib.loads(
    files(__package__).joinpath("word_lists.toml").read_text(encoding="utf-8")
)


def word_set(name: str) -> frozenset[str]:
    """Return the words of a list."""
    return frozenset(WORD_LISTS[name].split())


def by_word(name: str) -> dict[str, int]:
    """Return the numbers of a table of words by number, by word."""
    return {word: int(number) for number, words in WORD_LISTS[name].items() for word in words.split()}
