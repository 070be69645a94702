"""Reading LlamaIndex's nodes: snapshots of them, passages from them, and nodes inside of other values.

By attribute names: the classes are not imported, because importing llama-index-core takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any

from rageval_hooks.integrations.capture.host_values import attribute_text, finite, first_string, or_else
from rageval_hooks.integrations.llama_index.values import fields_of
from rageval_hooks.runtime.narrowing import text_or_empty
from rageval_hooks.turn import Passage

NodeState = tuple[Any, Any, str]
"""A node with its score and text at one moment: (node, score, text)."""

Snapshot = tuple[NodeState, ...]
"""Nodes at one moment. Rerankers and postprocessors change nodes in place."""

Made = dict[tuple[int, float | None, str], Passage]
"""Passages by the identity of their node, their score and their text."""

_DEPTH = 5
"""Values within values that are searched: a workflow's event, its field, a response, its list."""

_MOST_VALUES = 2_000
"""Values that one search looks into."""

_NOTHING_INSIDE = (str, bytes, int, float, type(None))
"""Classes of values that hold no nodes. Most values of an event are of these, so they are told apart first."""

_DATA_CLASSES = frozenset({"Event", "DictLikeModel", "ToolOutput", "ToolCallResult"})
"""Classes of LlamaIndex whose fields are data."""


def snapshot(nodes: Any) -> Snapshot:
    """Return the current state of nodes; other values in the list are skipped. Formats nothing."""
    if not isinstance(nodes, (list, tuple)):
        return ()
    # [NodeWithScore(node=TextNode(text="…"), score=0.83), …]
    return tuple(_state(item) for item in nodes if getattr(item, "node", None) is not None)


def _state(scored: Any) -> NodeState:
    return scored.node, getattr(scored, "score", None), _text_of(scored.node)


def _text_of(node: Any) -> str:
    text = attribute_text(node, "text")
    if text is not None:
        return text
    # A Node with several resources has no attribute for its text.
    return text_or_empty(node.get_content()) if hasattr(node, "get_content") else ""


def node_ids(nodes: Iterable[NodeState]) -> frozenset[str]:
    """Return the ids of nodes."""
    return frozenset(str(getattr(node, "node_id", id(node))) for node, _, _ in nodes)


def passages_of(nodes: Iterable[NodeState], made: Made | None = None) -> list[Passage]:
    """Return nodes as passages, with ids, metadata and scores.

    Args:
        nodes: the nodes.
        made: passages that were made for the same turn. Several stages see the same nodes.
    """
    known: Made = {} if made is None else made
    found = []
    for node, score, text in nodes:
        number = finite(score)
        key = (id(node), number, text)
        if key not in known:
            node_id = first_string({"id": getattr(node, "node_id", None)}, ("id",))
            metadata = getattr(node, "metadata", None) or {}
            known[key] = Passage(text=text, id=node_id, score=number, metadata=metadata)
        found.append(known[key])
    return found


# --------------------------------------------------------------------------- nodes inside of other values


@or_else(())
def nodes_in(value: Any) -> Snapshot:
    """Return the nodes inside of a value: in lists, mappings, events, responses, and results of vector stores."""
    left = _MOST_VALUES  # an application may pass anything through its steps

    def search(value: Any, depth: int) -> Iterator[NodeState]:
        nonlocal left
        left -= 1
        if left < 0 or depth > _DEPTH or isinstance(value, _NOTHING_INSIDE):
            return
        if _is_node(value):
            yield value, None, _text_of(value)
        elif _is_node(getattr(value, "node", None)):
            yield _state(value)
        elif hasattr(value, "similarities") and isinstance(getattr(value, "nodes", None), (list, tuple)):
            # VectorStoreQueryResult(nodes=[node, …], similarities=[0.83, …]), with fewer similarities in some stores.
            for node, score in zip(value.nodes, chain(value.similarities or (), repeat(None)), strict=False):
                yield node, score, _text_of(node)
        else:
            for part in _parts_of(value):
                yield from search(part, depth + 1)

    return tuple(search(value, 0))


def _is_node(value: Any) -> bool:
    # A class has the attributes of its instances.
    if isinstance(value, type) or attribute_text(value, "node_id") is None:
        return False
    return hasattr(value, "get_content")


def _parts_of(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    if hasattr(value, "source_nodes"):
        return ()  # a response of an engine, whose retrievers are known
    # Only data is searched, that is dataclasses, events of workflows and outputs of tools: components (engines, models,
    # contexts) hold whole indexes.
    names = {base.__name__ for base in type(value).__mro__}
    is_data = hasattr(value, "__dataclass_fields__") or not names.isdisjoint(_DATA_CLASSES)
    return fields_of(value).values() if is_data else ()


# --------------------------------------------------------------------------- what a retriever asks its store for


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
