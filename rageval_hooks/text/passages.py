"""The lexical index of a passage: the words of each chunk, and the facts that the passage states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rageval_hooks.text.fact_index import FactIndex, index_facts
from rageval_hooks.text.words import words_of

CHUNK_WORDS: Final = 100
"""Words per chunk. A window is two neighbouring chunks, so that windows overlap by half."""

MAX_CHUNKS: Final = 200
"""Maximum number of chunks. A passage of more than 20,000 words gets longer chunks, so that the work stays linear."""


@dataclass(frozen=True, slots=True)
class PassageIndex:
    """The lexical index of a passage. It depends on the text only, so it can be cached."""

    chunk_starts: tuple[int, ...]
    chunks: tuple[frozenset[str], ...]
    facts: FactIndex

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        entries = sum(map(len, (*self.chunks, *self.facts.sets)))
        return 2000 + 130 * entries


def has_words(text: str) -> bool:
    """Return True if a text has a letter or a digit; a passage without any has no score."""
    return any(map(str.isalnum, text))


def index_passage(text: str) -> PassageIndex:
    """Split a passage into chunks and collect the keys of each."""
    found = words_of(text)
    size = max(CHUNK_WORDS, -(-len(found) // MAX_CHUNKS))
    cuts = range(0, len(found), size)
    return PassageIndex(
        chunk_starts=tuple(found.starts[i] for i in cuts),
        chunks=tuple(frozenset(found.keys[i : i + size]) for i in cuts),
        facts=index_facts(text),
    )
