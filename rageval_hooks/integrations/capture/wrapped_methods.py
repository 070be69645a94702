"""Wraps methods of a class and its subclasses while ``instrument()`` is in effect."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

__all__ = ["WrappedMethods"]

_MARK = "_rageval_hooks_wrapper"


class WrappedMethods:
    """The methods with certain names of a class and of its subclasses, also of those that are defined later.

    Args:
        base: the class.
        names: matches the names of the methods.
        wrap: returns a function that does what the method does, and records it.
    """

    def __init__(self, base: type, names: re.Pattern[str], wrap: Callable[[FunctionType], Callable[..., Any]]) -> None:
        self._base: Any = base
        self._names = names
        self._wrap = wrap
        self._lock = threading.Lock()
        self._originals: dict[tuple[type, str], FunctionType] = {}
        self._init_subclass: Any = self._hook()

    def install(self) -> None:
        """Wrap the methods of all classes."""
        with self._lock:
            for owner in _with_subclasses(self._base):
                self._wrap_class(owner)
            if "__init_subclass__" not in vars(self._base):
                self._base.__init_subclass__ = self._init_subclass

    def remove(self) -> None:
        """Restore the original methods."""
        with self._lock:
            if vars(self._base).get("__init_subclass__") is self._init_subclass:
                del self._base.__init_subclass__
            for (owner, name), original in self._originals.items():
                # Another tool may have wrapped the method after us: then ours stays below, where it does nothing.
                if getattr(vars(owner).get(name), _MARK, False):
                    setattr(owner, name, original)
            self._originals.clear()

    def _hook(self) -> Any:
        def init_subclass(cls: Any, /, **kwargs: Any) -> None:
            super(self._base, cls).__init_subclass__(**kwargs)
            with self._lock:
                self._wrap_class(cls)

        return classmethod(init_subclass)

    def _wrap_class(self, owner: type) -> None:
        """Wrap the methods that a class defines itself."""
        for name, method in list(vars(owner).items()):
            if not self._names.fullmatch(name) or not isinstance(method, FunctionType):
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
