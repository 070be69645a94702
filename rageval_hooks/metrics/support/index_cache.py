"""What passages say, kept across turns: a knowledge base has few passages that are retrieved often."""

from __future__ import annotations

import sys

from rageval_hooks.models.cache import MemoryCache
from rageval_hooks.text.fact_index import PassageIndex, index_passage
from rageval_hooks.text.negation import Statements, statements_of

_indexes: MemoryCache[PassageIndex] = MemoryCache(32 * 2**20)
_statements: MemoryCache[Statements] = MemoryCache(32 * 2**20)


def cached_index(text: str) -> PassageIndex:
    """Return the words and facts of a passage; from the process's cache if an earlier turn had the passage."""
    found = _indexes.get(text)
    if found is None:
        found = index_passage(text)
        _indexes.put(text, found, found.size + sys.getsizeof(text))
    return found


def cached_statements(text: str) -> Statements:
    """Return the statements of a passage; from the process's cache if an earlier turn had the passage."""
    found = _statements.get(text)
    if found is None:
        found = statements_of(text)
        _statements.put(text, found, found.size + sys.getsizeof(text))
    return found
