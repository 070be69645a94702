"""Methods that are wrapped while ``instrument()`` is in effect, above all the searches of vector stores.

Frameworks report runs of retrievers, but not of vector stores. A wrapped method returns and raises what the original
does.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from types import FunctionType
from typing import Any
from uuid import uuid4

from rageval_hooks.integrations.capture.recorder import Framework, shared_recorder
from rageval_hooks.runtime.import_hooks import call_after_import, cancel_after_import
from rageval_hooks.runtime.suppression import is_suppressed

_MARK = "_rageval_hooks_wrapper"


class WrappedMethods:
    """The methods with certain names of a class and of its subclasses, also of those that are defined later.

    Args:
        module: the module of the class. The methods are wrapped when the application imports it.
        name: the name of the class. A version of the module without it is left alone.
        methods: matches the names of the methods.
        wrap: returns a function that does what the method does, and records it.
        below: for private methods, a distribution and the major version from which on nothing is wrapped.

    Attributes:
        installed: True while the methods are wrapped.
    """

    def __init__(
        self,
        module: str,
        name: str,
        methods: re.Pattern[str],
        wrap: Callable[[FunctionType], Callable[..., Any]],
        *,
        below: tuple[str, int] | None = None,
    ) -> None:
        self.installed = False
        self._module = module
        self._name = name
        self._methods = methods
        self._wrap = wrap
        self._below = below
        self._lock = threading.Lock()
        self._originals: dict[tuple[type, str], FunctionType] = {}
        self._init_subclass: Any = None

    def install(self) -> None:
        """Wrap the methods of all classes, now or after the import of the module."""
        call_after_import(self._module, self._install)

    def _install(self) -> None:
        base: Any = getattr(sys.modules[self._module], self._name, None)
        if base is None or (
            self._below is not None and int(version(self._below[0]).partition(".")[0]) >= self._below[1]
        ):
            return

        def init_subclass(cls: Any, /, **kwargs: Any) -> None:
            super(base, cls).__init_subclass__(**kwargs)
            with self._lock:
                self._wrap_class(cls)

        with self._lock:
            for owner in _with_subclasses(base):
                self._wrap_class(owner)
            if "__init_subclass__" not in vars(base):
                self._init_subclass = classmethod(init_subclass)
                base.__init_subclass__ = self._init_subclass
            self.installed = bool(self._originals)

    def remove(self) -> None:
        """Restore the original methods."""
        cancel_after_import(self._module, self._install)
        base: Any = getattr(sys.modules.get(self._module), self._name, None)
        with self._lock:
            if base is not None and vars(base).get("__init_subclass__") is self._init_subclass is not None:
                del base.__init_subclass__
            for (owner, name), original in self._originals.items():
                # Another tool may have wrapped the method after us: then ours stays below, where it does nothing.
                if getattr(vars(owner).get(name), _MARK, False):
                    setattr(owner, name, original)
            self._originals.clear()
            self.installed = False

    def _wrap_class(self, owner: type) -> None:
        """Wrap the methods that a class defines itself."""
        for name, method in list(vars(owner).items()):
            if not self._methods.fullmatch(name) or not isinstance(method, FunctionType):
                continue
            # An abstract method has nothing to record, and a wrapper is never wrapped again.
            if getattr(method, "__isabstractmethod__", False) or getattr(method, _MARK, False):
                continue
            wrapper = self._wrap(method)
            setattr(wrapper, _MARK, True)
            try:
                setattr(owner, name, wrapper)
            except (AttributeError, TypeError):
                continue  # a class that cannot be changed, for example a compiled one
            self._originals[owner, name] = method


def _with_subclasses(owner: type) -> Iterator[type]:
    yield owner
    subclasses: list[type] = type.__subclasses__(owner)
    for subclass in subclasses:
        yield from _with_subclasses(subclass)


_SEARCHES = frozenset({"retriever", "reranker", "ingestion"})
"""Kinds of runs that search for themselves, and whose results are captured."""

_searching: ContextVar[bool] = ContextVar("rageval_hooks_searching", default=False)
"""True inside a search: search methods call each other, and only the outermost call is recorded."""


class VectorStoreSearches(WrappedMethods, ABC):
    """The searches of a framework's vector stores become runs of retrievers.

    Args:
        module: the module with the base class of the vector stores.
        name: the name of the base class.
        methods: matches the names of the search methods.
        framework: the framework.
    """

    def __init__(self, module: str, name: str, methods: re.Pattern[str], framework: Framework) -> None:
        super().__init__(module, name, methods, self._recording)
        self._framework = framework
        self._recorder = shared_recorder()

    @abstractmethod
    def query(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the input of the run from the arguments of the call."""

    @abstractmethod
    def describe(self, store: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the details of the run. A search by a retriever adds those that the retriever's run lacks."""

    @abstractmethod
    def read(self, result: Any, details: dict[str, Any]) -> Any:
        """Return the output of the run from what the method returned, and add to the details; None for nothing."""

    def _recording(self, method: FunctionType) -> Callable[..., Any]:
        """Return a method that records its searches."""
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def asearch(store: Any, /, *args: Any, **kwargs: Any) -> Any:
                with self._search(store, args, kwargs) as results:
                    results.append(await method(store, *args, **kwargs))
                    return results[0]

            return asearch

        @functools.wraps(method)
        def search(store: Any, /, *args: Any, **kwargs: Any) -> Any:
            with self._search(store, args, kwargs) as results:
                results.append(method(store, *args, **kwargs))
                return results[0]

        return search

    @contextmanager
    def _search(self, store: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[list[Any]]:
        """Record the search in the block, which appends its result to the list."""
        results: list[Any] = []
        recorder, around = self._recorder, None
        if not _searching.get() and not is_suppressed():
            # The run that the search is in, of any framework; None if it is in no turn.
            around = recorder.get(self._framework.ambient())
            if around is None and (foreign := recorder.surrounding(self._framework)) is not None:
                around = foreign[1]
        recording = None if around is None else recorder.recording(around.id)
        if around is None or recording is None:
            yield results
            return
        token, started_at = _searching.set(True), recorder.clock() + recording.clock_offset
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
                details = self.describe(store, kwargs)
                searches = [run for run in (around, *around.ancestors()) if run.kind in _SEARCHES]
                # A search by a retriever adds to the retriever's run.
                for run in searches[:1]:
                    run.details = {**details, **run.details}
                output = self.read(results[0], details) if results and not searches else None
                if not searches and (output is not None or error is not None):
                    key, query = str(uuid4()), self.query(args, kwargs)
                    about = (around.id, "retriever", type(store).__name__, query, self._framework)
                    found = recorder.start(recording.owner, key, *about, details=details)
                    if found is not None:
                        found.started_at = started_at
                        recorder.end(key, output, error)
            except Exception as failure:
                recording.owner.failed("a search in a vector store could not be recorded", failure)
