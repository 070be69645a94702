"""The words and facts of passages, kept across turns: a knowledge base has few passages that are retrieved often."""

from __future__ import annotations

import sys

from rageval_hooks.models.cache import MemoryCache
from rageval_hooks.text.passages import PassageIndex, index_passage
from rageval_hooks.text.sequence import WordSequence, word_sequence

__all__ = ["cached_index", "cached_sequence"]

_indexes: MemoryCache[PassageIndex] = MemoryCache(32 * 2**20)
_sequences: MemoryCache[WordSequence] = MemoryCache(32 * 2**20)


def cached_index(text: str) -> PassageIndex:
    """Return the words and facts of a passage; from the process's cache if an earlier turn had the passage."""
    found = _indexes.get(text)
    if found is None:
        found = index_passage(text)
        _indexes.put(text, found, found.size + sys.getsizeof(text))
    return found


def cached_sequence(text: str) -> WordSequence:
    """Return the words of a passage in order; from the process's cache if an earlier turn had the passage."""
    found = _sequences.get(text)
    if found is None:
        found = word_sequence(text)
        _sequences.put(text, found, found.size + sys.getsizeof(text))
    return found
