"""What ``instrument()`` attaches to LangChain: one handler for every chain, and the searches of vector stores."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType, FunctionType
from typing import Any, cast
from uuid import uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.capture.recent_searches import RecentSearch, forget_searches, note_search
from rageval_hooks.integrations.capture.recorder import Recording, Run, shared_recorder
from rageval_hooks.integrations.capture.values import collection_name
from rageval_hooks.integrations.langchain.handler import FRAMEWORK, TurnHandler, ambient_run
from rageval_hooks.integrations.langchain.other_tracers import unwatch, watch
from rageval_hooks.integrations.langchain.payloads import copied, passages_in
from rageval_hooks.integrations.langchain.runs import LangChainRun
from rageval_hooks.integrations.langchain.wrapped_methods import WrappedMethods
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.interrupts import raise_interrupt
from rageval_hooks.runtime.narrowing import text_or_empty
from rageval_hooks.runtime.suppression import is_suppressed

# --------------------------------------------------------------------------- searches of vector stores

# Public methods that return documents, for example "search", "asimilarity_search_with_score" or
# "max_marginal_relevance_search_by_vector"; not "create_search_index".
_SEARCH_METHOD = re.compile(r"a?(search|similarity_search\w*|max_marginal_relevance_search\w*|hybrid_search\w*)")

_SEARCHES = frozenset({"retriever", "reranker", "ingestion"})
"""Kinds of runs that search for themselves, and whose results are captured."""

_searching: ContextVar[bool] = ContextVar("rageval_hooks_searching", default=False)
"""True inside a search: search methods call each other, and only the outermost call is recorded."""

_recorder = shared_recorder()


def _recording(method: FunctionType) -> Callable[..., Any]:
    """Return a search method that records its searches: LangChain reports runs of retrievers, not of vector stores."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def asearch(store: Any, /, *args: Any, **kwargs: Any) -> Any:
            with _search(store, args, kwargs) as results:
                results.append(await method(store, *args, **kwargs))
                return results[0]

        return asearch

    @functools.wraps(method)
    def search(store: Any, /, *args: Any, **kwargs: Any) -> Any:
        with _search(store, args, kwargs) as results:
            results.append(method(store, *args, **kwargs))
            return results[0]

    return search


@contextmanager
def _search(store: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[list[Any]]:
    """Record the search in the block, which appends its result to the list."""
    results: list[Any] = []
    if _searching.get() or is_suppressed() or _handler.pipeline is None:
        yield results
        return
    # The run that the search is in, of any framework; None if it is in no turn.
    around = _recorder.get(ambient_run())
    if around is None and (foreign := _recorder.surrounding(FRAMEWORK)) is not None:
        around = foreign[1]
    recording = None if around is None else _recorder.recording(around.id)
    token, started_at = _searching.set(True), _recorder.clock()
    error: BaseException | None = None
    try:
        yield results
    except BaseException as raised:
        error = raised
        raise
    finally:
        # The garbage collector destroys an abandoned coroutine, perhaps inside ContextVar.set: see deferred.
        if not isinstance(error, GeneratorExit):
            _searching.reset(token)
        try:
            query = text_or_empty(args[0] if args else kwargs.get("query"))
            found = copied(results[0]) if results else None
            if around is not None and recording is not None:
                run = _run_of_search(recording, around, type(store).__name__, query, found, error, started_at)
                if isinstance(run, LangChainRun):  # the first search of a retriever counts
                    run.collection = run.collection or collection_name(store)
                    if run.top_k is None and type(kwargs.get("k")) is int:
                        run.top_k = kwargs["k"]
            elif results:  # the model that is called next may get what was found
                note_search(RecentSearch(query, passages_in(found)))
        except Exception as failure:
            raise_interrupt(failure)
            owner = _handler.pipeline if recording is None else recording.owner
            if owner is not None:
                owner.failed("a search in a vector store could not be recorded", failure)


def _run_of_search(
    recording: Recording,
    around: Run,
    name: str,
    query: str,
    found: Any,
    error: BaseException | None,
    started_at: int,
) -> Run | None:
    """Return the run of a search that has ended: that of the retriever that searches, else one of its own."""
    inside = next((run for run in (around, *around.ancestors()) if run.kind in _SEARCHES), None)
    if inside is not None:
        return inside
    key = str(uuid4())
    run = _recorder.start(
        recording.owner, key, around.id, framework=FRAMEWORK, kind="retriever", name=name, input=query
    )
    if run is not None:
        run.started_at = started_at + recording.clock_offset
        _recorder.end(key, found, error)
    return run


VECTOR_STORES = WrappedMethods("langchain_core.vectorstores.base", "VectorStore", _SEARCH_METHOD, _recording)
"""The search methods of all vector store classes."""


# --------------------------------------------------------------------------- the handler of every chain


_handler = TurnHandler()
"""The one handler that all chains of the process get from ``instrument()``."""
_handler.explicit = False

_PASSED_PACKAGES = frozenset({"rageval_hooks", "langchain_core"})
"""Packages that the call of the hook passes through on its way from the code that needs a manager."""


class _Hook:
    """Takes the place of a context variable: langchain-core calls ``get`` whenever it configures a callback manager.

    Args:
        inherited: True for the hook whose handler is passed on to child managers.
    """

    def __init__(self, inherited: bool) -> None:
        self._inherited = inherited

    def get(self) -> BaseCallbackHandler | None:
        """Return the handler for the manager; None if there is nothing to capture."""
        if _handler.ignores:
            return None
        return _handler if _is_asked_by_langgraph() is self._inherited else None


def _is_asked_by_langgraph() -> bool:
    """Return True if LangGraph configures the manager.

    LangGraph uses the child managers of its runs as they are, so they must inherit the handler. langchain-core
    configures every child manager, and so asks the hook for each run. There an inherited handler would only show up in
    managers that the application or other tools create, merge and compare. Nothing but the calling module tells the
    two apart.
    """
    if "langgraph" not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _package_of(frame) in _PASSED_PACKAGES:
        frame = frame.f_back
    return frame is not None and _package_of(frame) == "langgraph"


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


_registered = False


def attach(pipeline: Pipeline) -> None:
    """Send the turns of every chain in the process to a pipeline, in place of the one that was attached before."""
    global _registered
    if not _registered:
        _registered = True
        for inherited in (False, True):
            hook = cast("ContextVar[BaseCallbackHandler | None]", _Hook(inherited))
            # With a class, langchain-core adds the handler only to managers that have no handler of this class.
            register_configure_hook(hook, inheritable=inherited, handle_class=TurnHandler)
    VECTOR_STORES.install()
    watch()
    forget_searches()
    deferred.prepare()
    _handler.pipeline = pipeline


def detach() -> None:
    """Capture no more turns, and drop those in progress. langchain-core keeps the hooks, which then do nothing."""
    VECTOR_STORES.remove()
    unwatch()
    _handler.detach()
