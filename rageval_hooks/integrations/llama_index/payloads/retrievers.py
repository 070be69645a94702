"""Reading what a retriever asks its store for, from the fields of its object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rageval_hooks.integrations.capture.host_values import first_string, or_else

__all__ = ["collection_of", "top_k_of"]

_TOP_K = ("_similarity_top_k", "similarity_top_k", "top_n", "_top_k")
_STORES = ("_vector_store", "vector_store", "_store")
_COLLECTIONS = ("collection_name", "index_name", "table_name", "_collection_name", "_index_name", "_table_name")


@or_else(None)
def top_k_of(retriever: Any) -> int | None:
    """Return how many passages a retriever or reranker is to return; None if it has no such field."""
    for fields in _all_fields(retriever):
        for name in _TOP_K:
            # Not isinstance: a boolean is an int too.
            if type(fields.get(name)) is int:
                found: int = fields[name]
                return found
    return None


@or_else(None)
def collection_of(retriever: Any) -> str | None:
    """Return the collection that a retriever searches, else the class of its store; None without a store."""
    for fields in _all_fields(retriever):
        for name in _STORES:
            store = fields.get(name)
            # The class at least tells a Chroma from a test's store in memory.
            if store is not None:
                return _collection_name(store) or type(store).__name__
    return None


def _collection_name(store: Any) -> str | None:
    return next((name for fields in _all_fields(store) if (name := first_string(fields, _COLLECTIONS))), None)


def _all_fields(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of an object, then its private ones: a pydantic object keeps these elsewhere.

    Only fields: a property may ask the store's server.
    """
    yield getattr(value, "__dict__", None) or {}
    yield getattr(value, "__pydantic_private__", None) or {}
