"""Methods that are wrapped while ``instrument()`` is in effect: searches of vector stores, and two of other tracers.

A wrapped method returns and raises what the original does.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from types import FunctionType
from typing import Any

from rageval_hooks.runtime.import_hooks import call_after_import, cancel_after_import

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
