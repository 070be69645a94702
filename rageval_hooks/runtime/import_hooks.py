"""Calls a function when a module has been imported, so that the module need not be imported for it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
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
    functions = _finder.waiting.setdefault(name, [])
    if function not in functions:
        functions.append(function)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def cancel_after_import(name: str, function: Callback) -> None:
    """Do not call a function after a module's import. Nothing happens if it was called already."""
    functions = _finder.waiting.get(name, [])
    if function in functions:
        functions.remove(function)
    if not functions:
        _finder.take(name)


def _call(name: str, function: Callback) -> None:
    try:
        function()
    except Exception:
        _logger.warning(
            "rageval-hooks: what should happen after the import of %s failed [RAGEVAL-116]", name, exc_info=True
        )


class _Finder(MetaPathFinder):
    """Finds nothing itself: it asks the other finders, and lets the loader report that it has executed the module."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}
        # The module that this thread asks the other finders for: they are asked through this one again.
        self._asking = threading.local()

    def take(self, name: str) -> list[Callback]:
        """Stop waiting for a module, and leave the list of finders if it was the last one."""
        functions = self.waiting.pop(name, [])
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        return functions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that is waited for; None for any other."""
        if fullname not in self.waiting or getattr(self._asking, "name", None) == fullname:
            return None
        self._asking.name = fullname
        try:
            spec = find_spec(fullname)
        finally:
            self._asking.name = None
        # A namespace package executes nothing. The loader stays the same object: tools read sources through it.
        loader = None if spec is None else spec.loader
        execute = getattr(loader, "exec_module", None)
        if loader is not None and execute is not None:

            def execute_and_report(module: ModuleType) -> None:
                del loader.exec_module  # the loader is as it was before
                execute(module)
                for function in self.take(fullname):
                    _call(fullname, function)

            loader.exec_module = execute_and_report  # type: ignore[method-assign]
        return spec


_finder = _Finder()
