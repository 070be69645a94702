"""Captures searches in vector stores that are called directly, without a retriever around them.

LangChain reports runs of retrievers, but not of vector stores. So while ``instrument()`` is in effect, the public
search methods of all vector store classes are wrapped. A wrapped method returns and raises what the original does.
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Hashable, Iterator
from types import FunctionType
from typing import Any, cast
from uuid import uuid4

from langchain_core.vectorstores import VectorStore

from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.langchain.framework import (
    FRAMEWORK,
    enter_retriever,
    new_retriever_slot,
    running_retriever,
    surrounding_run,
)
from rageval_hooks.integrations.langchain.snapshots import snapshot_documents
from rageval_hooks.runtime.suppression import is_suppressed

__all__ = ["unwrap_vector_stores", "wrap_vector_stores"]

_recorder = shared_recorder()
_lock = threading.Lock()
_originals: dict[tuple[type, str], FunctionType] = {}
"""The methods that are wrapped now, by class and name."""

_MARK = "_rageval_hooks_wrapper"

# Public methods that return documents, for example "search", "asimilarity_search_with_score" or
# "max_marginal_relevance_search_by_vector"; not "create_search_index".
_SEARCH_METHOD = re.compile(r"a?(search|similarity_search\w*|max_marginal_relevance_search\w*|hybrid_search\w*)")


def wrap_vector_stores() -> None:
    """Wrap the search methods of all vector store classes, also of those that are defined later."""
    with _lock:
        for owner in _with_subclasses(VectorStore):
            _wrap_class(owner)
        if "__init_subclass__" not in vars(VectorStore):
            VectorStore.__init_subclass__ = classmethod(_init_subclass)  # type: ignore[arg-type,assignment,method-assign]


def unwrap_vector_stores() -> None:
    """Restore the original methods."""
    with _lock:
        if _is_ours(vars(VectorStore).get("__init_subclass__")):
            del VectorStore.__init_subclass__
        for (owner, name), original in _originals.items():
            # Another tool may have wrapped the method after us: then ours stays below, where it does nothing.
            if getattr(vars(owner).get(name), _MARK, False):
                setattr(owner, name, original)
        _originals.clear()


def _init_subclass(cls: Any, **kwargs: Any) -> None:
    super(VectorStore, cls).__init_subclass__(**kwargs)
    with _lock:
        _wrap_class(cls)


def _is_ours(method: Any) -> bool:
    return getattr(method, "__func__", None) is _init_subclass


def _with_subclasses(owner: type) -> Iterator[type]:
    yield owner
    subclasses: list[type] = type.__subclasses__(owner)
    for subclass in subclasses:
        yield from _with_subclasses(subclass)


def _wrap_class(owner: type) -> None:
    """Wrap the search methods that a class defines itself, for example ``similarity_search`` or ``asearch``."""
    for name, method in list(vars(owner).items()):
        if not _SEARCH_METHOD.fullmatch(name) or not isinstance(method, FunctionType):
            continue
        # An abstract method has nothing to record, and a wrapper is never wrapped again.
        if getattr(method, "__isabstractmethod__", False) or getattr(method, _MARK, False):
            continue
        try:
            setattr(owner, name, _wrapped(method))
        except (AttributeError, TypeError):
            continue  # a class that cannot be changed, for example a compiled one
        _originals[owner, name] = method


def _wrapped(method: FunctionType) -> Callable[..., Any]:
    wrapper: Any
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def asearch(self: Any, *args: Any, **kwargs: Any) -> Any:
            key = _start(self, args, kwargs)
            try:
                result = await method(self, *args, **kwargs)
            except BaseException as error:
                _end(key, None, error)
                raise
            _end(key, result, None)
            return result

        wrapper = asearch
    else:

        @functools.wraps(method)
        def search(self: Any, *args: Any, **kwargs: Any) -> Any:
            key = _start(self, args, kwargs)
            try:
                result = method(self, *args, **kwargs)
            except BaseException as error:
                _end(key, None, error)
                raise
            _end(key, result, None)
            return result

        wrapper = search
    setattr(wrapper, _MARK, True)
    return cast("Callable[..., Any]", wrapper)


# --------------------------------------------------------------------------- recording


def _start(store: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable | None:
    """Return the key of a new run; None if the search is part of a retriever's or of another search, or in no turn."""
    if is_suppressed() or running_retriever() is not None:
        return None
    around = surrounding_run()
    recording = None if around is None else _recorder.recording(around)
    if recording is None:
        return None
    try:
        query = args[0] if args else kwargs.get("query", "")
        key = uuid4().int
        run = _recorder.start(
            recording.owner,
            key,
            around,
            "retriever",
            type(store).__name__,
            query if isinstance(query, str) else "",
            framework=FRAMEWORK,
        )
        if run is None:
            return None
        # Searches call each other: the inner ones see that a retriever is running. The slot is this call's own.
        new_retriever_slot()
        enter_retriever(key)
        return key
    except Exception as error:
        recording.owner.failed("a search in a vector store could not be recorded", error)
        return None


def _end(key: Hashable | None, result: Any, error: BaseException | None) -> None:
    if key is not None:
        _recorder.end(key, snapshot_documents(result), error)
