"""Captures queries of vector stores that are called directly, without a retriever around them.

LlamaIndex reports retrievers, but not vector stores. So while ``instrument()`` is in effect, ``query`` and ``aquery``
of all vector store classes are wrapped. A wrapped method returns and raises what the original does.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast
from uuid import uuid4

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.integrations.capture.wrapped_methods import WrappedMethods
from rageval_hooks.integrations.llama_index.framework import FRAMEWORK
from rageval_hooks.integrations.llama_index.nodes import nodes_in
from rageval_hooks.runtime.suppression import is_suppressed

__all__ = ["VECTOR_STORES"]

_MODULE = "llama_index.core.vector_stores.types"
_QUERY_METHOD = re.compile(r"a?query")  # "query" and "aquery"
_SEARCHES = frozenset({"retriever", "reranker", "ingestion"})
"""Kinds of runs that call vector stores for themselves, and whose results are captured."""

_recorder = shared_recorder()


class _VectorStores:
    """The wrapped methods, once LlamaIndex is loaded. It is not imported here, because that takes seconds.

    Attributes:
        waiting: True while the methods are to be wrapped as soon as LlamaIndex is loaded.
    """

    def __init__(self) -> None:
        self.waiting = False
        self._methods: WrappedMethods | None = None

    def wrap(self) -> None:
        """Wrap the methods now, or when :meth:`look_again` finds that LlamaIndex is loaded."""
        self.waiting = True
        self.look_again()

    def look_again(self) -> None:
        """Wrap the methods if LlamaIndex is loaded by now."""
        base = getattr(sys.modules.get(_MODULE), "BasePydanticVectorStore", None)
        if base is None:
            return
        self.waiting = False
        if self._methods is None:
            self._methods = WrappedMethods(base, _QUERY_METHOD, _wrapped)
        self._methods.install()

    def unwrap(self) -> None:
        """Restore the original methods."""
        self.waiting = False
        if self._methods is not None:
            self._methods.remove()


VECTOR_STORES = _VectorStores()


def _wrapped(method: FunctionType) -> Callable[..., Any]:
    wrapper: Any
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def aquery(self: Any, *args: Any, **kwargs: Any) -> Any:
            started_at = _recorder.clock()
            result = await method(self, *args, **kwargs)
            _record(self, args[0] if args else kwargs.get("query"), result, started_at)
            return result

        wrapper = aquery
    else:

        @functools.wraps(method)
        def query(self: Any, *args: Any, **kwargs: Any) -> Any:
            started_at = _recorder.clock()
            result = method(self, *args, **kwargs)
            _record(self, args[0] if args else kwargs.get("query"), result, started_at)
            return result

        wrapper = query
    return cast("Callable[..., Any]", wrapper)


# --------------------------------------------------------------------------- recording


def _record(store: Any, query: Any, result: Any, started_at: int) -> None:
    """Record a query that found nodes as the run of a retriever.

    A store that keeps no texts, such as ``SimpleVectorStore``, finds ids only.
    """
    if is_suppressed() or not getattr(result, "nodes", None):
        return
    recording = _surrounding()
    if recording is None or _is_recorded(recording, result):
        return
    try:
        run = _recorder.start(
            recording.owner,
            f"{type(store).__name__}.query-{uuid4()}",
            active_span_id.get(),
            "retriever",
            type(store).__name__,
            {"query_str": getattr(query, "query_str", None) or ""},
            framework=FRAMEWORK,
        )
        if run is None:
            return
        run.started_at = started_at + recording.clock_offset
        run.details = {"instance": store, "nodes_after": nodes_in(result)}
        _recorder.end(run.id, result)
    except Exception as error:
        recording.owner.failed("a query of a vector store could not be recorded", error)


def _surrounding() -> Recording | None:
    """Return the recording that the calling code is in; None if it is in no turn, or in a search that is captured."""
    run = _recorder.get(active_span_id.get())
    if run is None:
        foreign = _recorder.surrounding(FRAMEWORK)
        run = None if foreign is None else foreign[1]
    if run is None or any(one.kind in _SEARCHES for one in (run, *run.ancestors())):
        return None
    return _recorder.recording(run.id)


def _is_recorded(recording: Recording, result: Any) -> bool:
    """Return True if a query inside this one returned the same result: ``aquery`` of many stores calls ``query``."""
    return any(run.output is result for run in reversed(recording.runs) if run.kind == "retriever")
