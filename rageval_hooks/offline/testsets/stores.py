"""Chunks from a vector store of LangChain or LlamaIndex, or from anything that holds documents or nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.testsets.chunks import Chunk, chunk_id
from rageval_hooks.runtime.import_object import import_named, is_factory
from rageval_hooks.text.wording import with_article

__all__ = ["chunks_of_store"]

_TEXT_KEYS = ("page_content", "text", "content")
_ID_KEYS = ("id", "node_id", "id_")
_METADATA_IDS = ("chunk_id", "id", "_id")
_SOURCE_KEYS = ("source", "document", "file_name", "file_path", "filename", "title", "url", "ref_doc_id")


def chunks_of_store(name: str) -> list[Chunk]:
    """Return the chunks of a store that is named as ``package.module:object``.

    The object is a vector store or index, a list of documents, nodes, passages or texts, or a function without
    arguments that returns one of these.

    Raises:
        ConfigurationError: there is no such object, it is something else, or it is empty.
    """
    store = import_named(name, "source")
    kind = type(store).__name__
    if is_factory(store):
        try:
            store = store()
        except (Exception, SystemExit) as error:
            raise ConfigurationError(f"{name}() failed: {type(error).__name__}: {error}") from error
        kind = type(store).__name__
    items = _items(store)
    if items is None:
        raise ConfigurationError(
            f"{name} is {with_article(kind)}, whose chunks cannot be listed: name a list of documents or nodes, "
            "or a function without arguments that returns one"
        )
    chunks = [chunk for item in items if (chunk := _chunk(item)) is not None]
    if not chunks:
        raise ConfigurationError(f"{name} ({kind}) has no chunks with a text")
    return chunks


def _items(store: Any) -> Iterable[Any] | None:
    """Return the items of a store; None if they cannot be listed."""
    for look in (_chroma, _docstore, _in_memory, _nodes):
        try:
            found = look(store)
        except Exception as error:
            raise ConfigurationError(
                f"the chunks of {type(store).__name__} cannot be listed: {type(error).__name__}: {error}"
            ) from error
        if found is not None:
            return found
    if isinstance(store, Mapping):
        return [{"id": key, "text": value} if isinstance(value, str) else value for key, value in store.items()]
    return store if isinstance(store, Iterable) and not isinstance(store, (str, bytes)) else None


def _chroma(store: Any) -> list[Any] | None:
    """Return the items of Chroma, LangChain's or its own: ``get()`` returns columns."""
    get = getattr(store, "get", None)
    if not callable(get) or isinstance(store, Mapping) or type(store).__name__ not in ("Chroma", "Collection"):
        return None
    found = get()
    if not isinstance(found, Mapping) or found.get("documents") is None:
        return None
    metadatas = found.get("metadatas") or [None] * len(found["ids"])
    columns = zip(found["ids"], found["documents"], metadatas, strict=True)
    return [{"id": key, "text": text, "metadata": metadata or {}} for key, text, metadata in columns]


def _docstore(store: Any) -> list[Any] | None:
    """Return the items of LangChain's FAISS or a LlamaIndex index, which have a document store."""
    docstore = getattr(store, "docstore", None)
    found = getattr(docstore if docstore is not None else store, "docs", None)
    if found is None:
        found = getattr(docstore, "_dict", None)
    if not isinstance(found, Mapping) or (docstore is not None and not found):
        return None
    return [_Named(str(key), value) for key, value in found.items()]


def _in_memory(store: Any) -> list[Any] | None:
    """Return the items of LangChain's InMemoryVectorStore."""
    found = getattr(store, "store", None)
    return list(found.values()) if isinstance(found, Mapping) else None


def _nodes(store: Any) -> list[Any] | None:
    """Return the nodes of a LlamaIndex vector store that stores texts, also within an index."""
    for owner in (store, getattr(store, "vector_store", None)):
        get: Callable[..., Any] | None = getattr(owner, "get_nodes", None)
        if callable(get) and getattr(owner, "stores_text", False):
            return list(get())
    return None


class _Named:
    """An item and its key in the store."""

    def __init__(self, key: str, item: Any) -> None:
        self.key = key
        self.item = item


def _chunk(item: Any) -> Chunk | None:
    """Return a document, node or text as a chunk; None if it has no text."""
    key = None
    if isinstance(item, _Named):
        key, item = item.key, item.item
    item = getattr(item, "node", item)  # a node with its score
    text = _text(item)
    if not text:
        return None
    metadata = _field(item, "metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    document = _first(metadata, _SOURCE_KEYS) or _first(item, ("ref_doc_id", "document"))
    name = "" if document is None else str(document)
    # An id of the item's own comes before one in its metadata, and that before the key in the store.
    found = _first(item, _ID_KEYS) or _first(metadata, _METADATA_IDS) or key
    identifier = chunk_id(name, text) if found is None else str(found)
    return Chunk(id=identifier, text=text, document=name or identifier)


def _text(item: Any) -> str:
    """Return the text of an item; empty if it has none."""
    text = item if isinstance(item, str) else _first(item, _TEXT_KEYS)
    if text is None and hasattr(item, "get_content"):
        text = item.get_content()
    return text if isinstance(text, str) and text.strip() else ""


def _first(item: Any, names: Iterable[str]) -> Any:
    return next((found for name in names if (found := _field(item, name)) not in (None, "")), None)


def _field(item: Any, name: str) -> Any:
    if isinstance(item, Mapping):
        return item.get(name)
    return getattr(item, name, None)
