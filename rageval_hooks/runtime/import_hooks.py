"""Calls a function when a module has been imported, so that the module need not be imported for it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_logger = logging.getLogger(__name__)

Callback = Callable[[], object]


def call_after_import(name: str, function: Callback) -> None:
    """Call a function once: now if the module is imported already, else right after its import.

    An exception of the function is logged and does not reach the code that imports the module.

    Args:
        name: the module's full name.
        function: runs on the thread that imports the module, before the ``import`` statement returns. The same
            function is called once.
    """
    if name in sys.modules:
        _call(name, function)
        return
    _finder.wait_for(name, function)


def cancel_after_import(name: str, function: Callback) -> None:
    """Do not call a function after a module's import. Nothing happens if it was called already."""
    _finder.stop_waiting(name, function)


def _call(name: str, function: Callback) -> None:
    try:
        function()
    except Exception:
        _logger.warning(
            "rageval-hooks: what should happen after the import of %s failed [RAGEVAL-116]", name, exc_info=True
        )


class _Finder(MetaPathFinder):
    """Finds nothing itself: it asks the other finders, and extends the loader that they return."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callback]] = {}
        # The module that this thread asks the other finders for: some of them ask all finders again.
        self._asking = threading.local()

    def wait_for(self, name: str, function: Callback) -> None:
        """Call a function after a module's import."""
        functions = self._waiting.setdefault(name, [])
        if function not in functions:
            functions.append(function)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop_waiting(self, name: str, function: Callback) -> None:
        """Do not call a function after a module's import."""
        functions = self._waiting.get(name, [])
        if function in functions:
            functions.remove(function)
        if not functions:
            self._forget(name)

    def _forget(self, name: str) -> list[Callback]:
        """Stop waiting for a module, and leave the list of finders if it was the last one."""
        functions = self._waiting.pop(name, [])
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        return functions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is waited for; None for any other."""
        if fullname not in self._waiting or getattr(self._asking, "name", None) == fullname:
            return None
        self._asking.name = fullname
        try:
            spec = self._ask_others(fullname, path, target)
        finally:
            self._asking.name = None
        if spec is not None:
            self._extend(spec)
        return spec

    def _ask_others(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None

    def _extend(self, spec: ModuleSpec) -> None:
        """Let the loader report that it has executed the module.

        The loader stays the same object: tools read sources and resources through it.
        """
        loader = spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return  # a namespace package executes nothing
        execute = loader.exec_module

        def execute_and_report(module: ModuleType) -> None:
            del loader.exec_module  # the loader is as it was before
            execute(module)
            self._report(spec.name)

        loader.exec_module = execute_and_report  # type: ignore[method-assign]

    def _report(self, name: str) -> None:
        for function in self._forget(name):
            _call(name, function)


_finder = _Finder()
