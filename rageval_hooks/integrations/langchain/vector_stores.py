"""Captures searches in vector stores that are called directly, without a retriever around them.

LangChain reports runs of retrievers, but not of vector stores. So while ``instrument()`` is in effect, the public
search methods of all vector store classes are wrapped. A wrapped method returns and raises what the original does.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any
from uuid import uuid4

from langchain_core.vectorstores import VectorStore

from rageval_hooks.integrations.capture.host_values import first_string, or_else
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.run_facts import details_of
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.capture.wrapped_methods import WrappedMethods
from rageval_hooks.integrations.langchain.copies import snapshot_documents
from rageval_hooks.integrations.langchain.framework import (
    FRAMEWORK,
    enter_retriever,
    new_retriever_slot,
    running_retriever,
    surrounding_run,
)
from rageval_hooks.runtime.narrowing import text_or_empty
from rageval_hooks.runtime.suppression import is_suppressed

__all__ = ["unwrap_vector_stores", "wrap_vector_stores"]

_recorder = shared_recorder()

# Public methods that return documents, for example "search", "asimilarity_search_with_score" or
# "max_marginal_relevance_search_by_vector"; not "create_search_index".
_SEARCH_METHOD = re.compile(r"a?(search|similarity_search\w*|max_marginal_relevance_search\w*|hybrid_search\w*)")


class _Search:
    """Records a call of a search method: a context manager around it.

    Args:
        store: the vector store.
        args: the positional arguments of the call.
        kwargs: the other arguments.
    """

    def __init__(self, store: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.result: Any = None
        self._call = store, args, kwargs

    def __enter__(self) -> _Search:
        """Start a run, unless the search is part of another one or in no turn."""
        self._key = _start(*self._call)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """End the run."""
        if self._key is not None:
            _recorder.end(self._key, snapshot_documents(self.result), error)


def _wrapped(method: FunctionType) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def asearch(self: Any, *args: Any, **kwargs: Any) -> Any:
            with _Search(self, args, kwargs) as search:
                search.result = await method(self, *args, **kwargs)
                return search.result

        return asearch

    @functools.wraps(method)
    def search(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _Search(self, args, kwargs) as search:
            search.result = method(self, *args, **kwargs)
            return search.result

    return search


_COLLECTION_FIELDS = ("collection_name", "_collection_name", "index_name", "_index_name", "table_name", "_table_name")
"""Where vector stores keep the name of what they search."""

_methods = WrappedMethods(VectorStore, _SEARCH_METHOD, _wrapped)


def wrap_vector_stores() -> None:
    """Wrap the search methods of all vector store classes, also of those that are defined later."""
    _methods.install()


def unwrap_vector_stores() -> None:
    """Restore the original methods."""
    _methods.remove()


# --------------------------------------------------------------------------- recording


def _start(store: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
    """Return the key of a new run; None if the search is part of a retriever's or of another search, or in no turn."""
    if is_suppressed():
        return None
    retriever = running_retriever()
    if retriever is not None:
        _note_request(retriever, store, kwargs)
        return None
    around = surrounding_run()
    recording = None if around is None else _recorder.recording(around)
    if recording is None:
        # A block of start_turn, or a run of another framework.
        outer = _recorder.surrounding(FRAMEWORK)
        if outer is None or outer[1] is None:
            return None
        recording = outer[0]
    try:
        query = args[0] if args else kwargs.get("query", "")
        key = uuid4().int
        run = _recorder.start(
            recording.owner,
            key,
            around,
            "retriever",
            type(store).__name__,
            text_or_empty(query),
            framework=FRAMEWORK,
        )
        if run is None:
            return None
        _note_request(run, store, kwargs)
        # Searches call each other: the inner ones see that a retriever is running. The slot is this call's own.
        new_retriever_slot()
        enter_retriever(key)
        return key
    except Exception as error:
        recording.owner.failed("a search in a vector store could not be recorded", error)
        return None


@or_else(None)
def _note_request(run: Run, store: Any, kwargs: dict[str, Any]) -> None:
    """Note how many passages are asked for, and of which collection. The first search of a retriever says so."""
    details = details_of(run)
    if type(kwargs.get("k")) is int:
        details.setdefault("top_k", kwargs["k"])
    # A cheap look only: a property of a class may ask the server.
    fields = vars(store)
    details.setdefault("collection", first_string(fields, _COLLECTION_FIELDS) or type(store).__name__)
