"""Captures searches in vector stores that are called directly, without a retriever around them.

Frameworks report runs of retrievers, but not of vector stores. So while ``instrument()`` is in effect, the search
methods of all vector store classes are wrapped. A wrapped method returns and raises what the original does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import FunctionType
from typing import Any
from uuid import uuid4

from rageval_hooks.integrations.capture.recorder import Recorder
from rageval_hooks.integrations.capture.runs import Framework, Run
from rageval_hooks.runtime.suppression import is_suppressed

_SEARCHES = frozenset({"retriever", "reranker", "ingestion"})
"""Kinds of runs that search for themselves, and whose results are captured."""

_searching: ContextVar[bool] = ContextVar("rageval_hooks_searching", default=False)
"""True inside a search: search methods call each other, and only the outermost call is recorded."""


@dataclass(frozen=True, kw_only=True)
class DirectSearches:
    """How the searches of a framework's vector stores become runs of retrievers.

    Attributes:
        recorder: gets the runs.
        framework: the framework.
        query: returns the input of the run from the arguments of the call.
        describe: returns the details of the run. A search by a retriever adds those that the retriever's run lacks.
        read: returns the output of the run from what the method returned, and may add to the details; None if there is
            nothing to record.
    """

    recorder: Recorder
    framework: Framework
    query: Callable[[tuple[Any, ...], Mapping[str, Any]], Any]
    describe: Callable[[Any, Mapping[str, Any]], dict[str, Any]]
    read: Callable[[Any, dict[str, Any]], Any]

    def wrap(self, method: FunctionType) -> Callable[..., Any]:
        """Return a method that records its searches."""
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def asearch(store: Any, /, *args: Any, **kwargs: Any) -> Any:
                with _Search(self, store, args, kwargs) as search:
                    search.result = await method(store, *args, **kwargs)
                    return search.result

            return asearch

        @functools.wraps(method)
        def search(store: Any, /, *args: Any, **kwargs: Any) -> Any:
            with _Search(self, store, args, kwargs) as search:
                search.result = method(store, *args, **kwargs)
                return search.result

        return search


class _Search:
    """A call of a search method: a context manager around it."""

    def __init__(self, searches: DirectSearches, store: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.result: Any = None
        self._searches = searches
        self._store = store
        self._args = args
        self._kwargs = kwargs
        self._around: Run | None = None
        self._token: Token[bool] | None = None

    def __enter__(self) -> _Search:
        if not _searching.get() and not is_suppressed():
            self._around = self._enclosing_run()
        if self._around is not None:
            self._token = _searching.set(True)
            self._started_at = self._searches.recorder.clock()
        return self

    def _enclosing_run(self) -> Run | None:
        """Return the run that the search is in, of any framework; None if it is in no turn."""
        recorder, framework = self._searches.recorder, self._searches.framework
        run = recorder.get(framework.ambient())
        if run is None:
            foreign = recorder.surrounding(framework)
            run = None if foreign is None else foreign[1]
        return run

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._around is None:
            return
        # The garbage collector destroys an abandoned coroutine, perhaps inside ContextVar.set: see deferred.
        if self._token is not None and not isinstance(error, GeneratorExit):
            _searching.reset(self._token)
        recording = self._searches.recorder.recording(self._around.id)
        if recording is None:
            return
        try:
            self._record(recording.owner, recording.clock_offset, self._around, error)
        except Exception as failure:
            recording.owner.failed("a search in a vector store could not be recorded", failure)

    def _record(self, owner: Any, clock_offset: int, around: Run, error: BaseException | None) -> None:
        details = self._searches.describe(self._store, self._kwargs)
        for run in (around, *around.ancestors()):
            if run.kind in _SEARCHES:
                run.details = {**details, **run.details}
                return
        output = self._searches.read(self.result, details)
        if output is None and error is None:
            return
        key, name = str(uuid4()), type(self._store).__name__
        query = self._searches.query(self._args, self._kwargs)
        recorder, framework = self._searches.recorder, self._searches.framework
        found = recorder.start(owner, key, around.id, "retriever", name, query, framework, details=details)
        if found is not None:
            found.started_at = self._started_at + clock_offset
            recorder.end(key, output, error)
