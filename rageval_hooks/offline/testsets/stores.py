"""Chunks from a vector store or an index of a framework, or from anything that holds documents or nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.integrations.capture.passages import passage_of
from rageval_hooks.integrations.offline_support import StoredItem, installed_support
from rageval_hooks.offline.loading import import_named, is_factory
from rageval_hooks.offline.testsets.chunks import Chunk, chunk_id
from rageval_hooks.offline.testsets.documents import first_given
from rageval_hooks.runtime.narrowing import first_text
from rageval_hooks.text.wording import with_article

# Names in LangChain's documents, LlamaIndex's nodes and common databases, the most specific first.
_METADATA_IDS = ("chunk_id", "id", "_id")
_SOURCE_KEYS = ("source", "document", "file_name", "file_path", "filename", "title", "url", "ref_doc_id")
_CHROMA = ("Chroma", "Collection")
"""Classes of chromadb and of its wrappers, whose ``get()`` returns columns with everything."""
_CHROMA_COLUMNS = ("documents", "metadatas")


def chunks_of_store(name: str) -> list[Chunk]:
    """Return the chunks of a store that is named as ``package.module:object``.

    The object is a vector store or index, a list of documents, nodes, passages or texts, or a function without
    arguments that returns one of these.

    Raises:
        ConfigurationError: there is no such object, it fails, it is something else, or it is empty.
    """
    store = import_named(name, "source")
    # A function that opens a database only when it is called.
    if is_factory(store):
        try:
            store = store()
        except (Exception, SystemExit) as error:
            raise ConfigurationError(f"{name}() failed: {type(error).__name__}: {error}") from error
    kind = type(store).__name__
    try:
        items = _items(store)
        # A database is read while its items are.
        chunks = None if items is None else list(_chunks(items))
    except Exception as error:
        raise ConfigurationError(f"the chunks of {kind} cannot be listed: {type(error).__name__}: {error}") from error
    if chunks is None:
        raise ConfigurationError(
            f"{name} is {with_article(kind)}, whose chunks cannot be listed: name a list of documents or nodes, "
            "or a function without arguments that returns one"
        )
    if not chunks:
        raise ConfigurationError(f"{name} ({kind}) has no chunks with a text")
    return chunks


def _items(store: Any) -> Iterable[StoredItem] | None:
    """Return the items of a store; None if they cannot be listed."""
    # Plain data comes first: it needs no framework, and importing one takes seconds.
    if not isinstance(store, (list, tuple)):
        if type(store).__name__ in _CHROMA:
            found = store.get()
            # Collections without texts or metadata have None in place of the column.
            columns = (found["ids"], *(found.get(name) or [None] * len(found["ids"]) for name in _CHROMA_COLUMNS))
            names = ("id", "text", "metadata")
            return [(None, dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
        for support in installed_support():
            if (items := support.stored_items(store)) is not None:
                return items
    # A text can be iterated over too, but its letters are no items.
    if isinstance(store, Iterable) and not isinstance(store, (str, bytes, Mapping)):
        return [(None, item) for item in store]
    return None


def _chunks(items: Iterable[StoredItem]) -> Iterator[Chunk]:
    """Yield documents, nodes and texts as chunks, without those that have no text."""
    for key, stored in items:
        passage = passage_of(stored)
        if passage is None or not passage.text.strip():
            continue
        item = getattr(stored, "node", stored)
        own = (getattr(item, "ref_doc_id", None), getattr(item, "document", None))
        name = first_given(passage.metadata, _SOURCE_KEYS) or first_text(own)
        # The item's id comes before one in its metadata, and that before the key in the store.
        found = passage.id or first_given(passage.metadata, _METADATA_IDS) or key
        # The hash of a text is the same in every run.
        identifier = chunk_id(name or "", passage.text) if found is None else found
        yield Chunk(id=identifier, text=passage.text, document=name or identifier)
