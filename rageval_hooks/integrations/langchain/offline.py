"""LangChain for the offline commands: asking runnables, capturing them, and listing vector stores.

Found by the name of this file. Imported only by commands that capture or read a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable
from langchain_core.tracers.context import register_configure_hook

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.integrations.langchain.handler import TurnHandler
from rageval_hooks.integrations.offline_support import OfflineSupport, StoredItem
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.narrowing import mapping_or_empty

_handler: ContextVar[BaseCallbackHandler | None] = ContextVar("rageval_hooks_run", default=None)
register_configure_hook(_handler, inheritable=True)

_INPUT_KEYS = ("question", "query", "input", "user_input", "messages")
"""Keys that hold the question if a runnable takes several, the preferred one first."""


class LangChainSupport(OfflineSupport):
    """Runnables and vector stores of LangChain, and graphs of LangGraph."""

    app_kind = "a runnable of LangChain"

    @contextmanager
    def capturing(self, pipeline: Pipeline) -> Iterator[Callable[[], object]]:
        """Capture every chain of the contexts that call the yielded function."""
        # Like every handler that is passed to a chain, this one comes before that of ``instrument()``. LangChain calls
        # handlers of a context last, so that the turn belongs to this one.
        handler = TurnHandler()
        handler.pipeline = pipeline
        yield lambda: _handler.set(handler)

    def question_function(self, app: Any, input_key: str | None) -> Callable[[str], Any] | None:
        """Return a function that invokes a runnable with the question in the place that its input has for it."""
        if not isinstance(app, Runnable):
            return None
        key = _key_of(app) if input_key is None else input_key

        def ask(question: str) -> Any:
            # Agents and chat graphs take a list of messages, to which they append theirs.
            value: Any = [("user", question)] if key == "messages" else question
            return app.invoke(value if key is None else {key: value})

        return ask

    def stored_items(self, store: Any) -> Iterable[StoredItem] | None:
        """Return the documents of FAISS and of InMemoryVectorStore, which keep them in memory."""
        # FAISS: `store.docstore._dict` is {id: Document}.
        documents = getattr(getattr(store, "docstore", None), "_dict", None)
        if isinstance(documents, Mapping) and documents:
            return [(str(key), document) for key, document in documents.items()]
        # InMemoryVectorStore: `store.store` is {id: {"id": ..., "text": ..., "metadata": ...}}.
        entries = getattr(store, "store", None)
        if isinstance(entries, Mapping):
            return [(None, entry) for entry in entries.values()]
        return None


def _key_of(runnable: Runnable[Any, Any]) -> str | None:
    """Return the key of the question in a runnable's input; None if the question itself is the input.

    Raises:
        ConfigurationError: it takes more than a question.
    """
    # A graph needs no key of its state at its start. Its JSON schema says that it needs all. The state is a TypedDict,
    # a dataclass or a pydantic model, for example {"question": …, "documents": …, "answer": …}.
    state = getattr(getattr(runnable, "builder", None), "input_schema", None)
    keys = list(getattr(state, "__annotations__", None) or getattr(state, "model_fields", None) or ())
    required: list[str] = []
    if not keys:
        try:
            schema = runnable.get_input_jsonschema()
        except Exception:  # some inputs have no JSON schema
            return None
        keys = list(mapping_or_empty(schema.get("properties")))
        required = [key for key in schema.get("required") or () if key in keys]
    if not keys:
        return None
    if len(required) == 1 or (not required and len(keys) == 1):
        return (required or keys)[0]
    usual = [name for name in _INPUT_KEYS if name in keys]
    if not required and usual:
        return usual[0]
    raise ConfigurationError(
        f"--app takes more than a question ({', '.join(required or keys)}): name a function of the question that "
        "calls it, or the key of the question with --input-key"
    )


support = LangChainSupport()
