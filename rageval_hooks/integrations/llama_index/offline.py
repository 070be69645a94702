"""LlamaIndex for the offline commands: asking query engines, capturing them, and listing indexes.

Found by the name of this file. Imported only by commands that capture or read a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.integrations.llama_index import attach, detach
from rageval_hooks.integrations.offline_support import OfflineSupport, StoredItem
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.text.wording import with_article


class LlamaIndexSupport(OfflineSupport):
    """Query engines, indexes and document stores of LlamaIndex."""

    app_kind = "a query engine of LlamaIndex"

    @contextmanager
    def capturing(self, pipeline: Pipeline) -> Iterator[Callable[[], object]]:
        """Capture everything while the block runs. What ``instrument()`` attached is detached."""
        attach(pipeline)
        try:
            # LlamaIndex's handlers see every context, so that there is nothing to do for each question.
            yield lambda: None
        finally:
            detach()

    def question_function(self, app: Any, input_key: str | None) -> Callable[[str], Any] | None:
        """Return a function that queries a query engine."""
        if isinstance(app, type):
            return None
        kind = with_article(type(app).__name__)
        if _has_method(app, "query"):
            if input_key is not None:
                raise ConfigurationError(f"--input-key is for applications that take an object, and the app is {kind}")
            query: Callable[[str], Any] = app.query
            return query
        if _has_method(app, "chat"):
            raise ConfigurationError(
                f"--app: {kind} remembers the conversation, so that questions would affect each other: name a "
                "function of the question that makes a new one and asks it"
            )
        if _has_method(app, "as_query_engine"):
            raise ConfigurationError(f"--app: {kind} does not answer questions: name index.as_query_engine()")
        return None

    def read_stream(self, result: Any) -> Any:
        """Return the whole response of a StreamingResponse."""
        if _has_method(result, "get_response") and hasattr(result, "response_gen"):
            return result.get_response()
        return result

    def stored_items(self, store: Any) -> Iterable[StoredItem] | None:
        """Return the nodes of a document store or of an index; else those of a vector store that keeps texts."""
        nodes = _nodes_by_id(store)
        if nodes is not None:
            return [(str(key), node) for key, node in nodes.items()]
        owners: tuple[Any, ...] = (store, getattr(store, "vector_store", None))
        for owner in owners:
            if getattr(owner, "stores_text", False) and _has_method(owner, "get_nodes"):
                return [(None, node) for node in owner.get_nodes()]
        return None


def _nodes_by_id(store: Any) -> Mapping[Any, Any] | None:
    """Return the nodes of a document store, or of the document store of an index: {id: node}."""
    docstore = getattr(store, "docstore", None)
    nodes = getattr(store if docstore is None else docstore, "docs", None)
    if not isinstance(nodes, Mapping):
        return None
    # The document store of an index is empty if its vector store keeps the texts.
    is_elsewhere = docstore is not None and not nodes
    return None if is_elsewhere else nodes


def _has_method(value: Any, name: str) -> bool:
    return callable(getattr(value, name, None))


support = LlamaIndexSupport()
