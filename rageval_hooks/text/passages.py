"""The lexical side of a passage: which words stand where in it, and the facts that it states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rageval_hooks.text.facts import FactIndex, index_facts
from rageval_hooks.text.words import words

__all__ = ["CHUNK_WORDS", "MAX_CHUNKS", "PassageIndex", "has_words", "index_passage"]

CHUNK_WORDS: Final = 100
"""A passage is cut into chunks of so many words; a window is two neighbouring chunks, so windows overlap by half."""

MAX_CHUNKS: Final = 200
"""A passage longer than 20,000 words gets longer chunks, not more of them: the work stays linear."""


@dataclass(frozen=True, slots=True)
class PassageIndex:
    """The lexical side of a passage. Depends on its text alone: cache it."""

    chunk_starts: tuple[int, ...]
    chunks: tuple[frozenset[str], ...]
    facts: FactIndex

    @property
    def size(self) -> int:
        """Bytes, about: an entry of a set and its string."""
        entries = sum(map(len, (*self.chunks, *self.facts.sets)))
        return 2000 + 130 * entries


def has_words(text: str) -> bool:
    """Return True if a text has a letter or a digit; a passage without any has no score."""
    return any(map(str.isalnum, text))


def index_passage(text: str) -> PassageIndex:
    """Chunk a passage and collect each chunk's keys."""
    found = list(words(text))
    size = max(CHUNK_WORDS, -(-len(found) // MAX_CHUNKS))
    cuts = range(0, len(found), size)
    return PassageIndex(
        chunk_starts=tuple(found[i].start for i in cuts),
        chunks=tuple(frozenset(word.key for word in found[i : i + size]) for i in cuts),
        facts=index_facts(text),
    )
