"""Objects with threads and queues, such as handlers and guards: a copy is the object itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self
from uuid import uuid4
from weakref import WeakValueDictionary


class CopiedAsItself:
    """A base of objects that applications copy together with a chain or a configuration.

    A copy, a deep copy and an unpickled object are the object itself. In another process the first unpickled one is
    made with the same arguments, which then have to be picklable.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the arguments."""
        made = super().__new__(cls)
        made._arguments = args, kwargs
        return made

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]
    _key: str | None = None

    def __copy__(self) -> Self:
        """Return the object."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return the object."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what finds the object in this process, and makes it in another one."""
        self._key = self._key or uuid4().hex
        _pickled[self._key] = self
        return _unpickle, (self._key, *self._origin())

    def _origin(self) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
        """Return a function with its arguments that makes the object in another process."""
        return type(self), *self._arguments


_pickled: WeakValueDictionary[str, CopiedAsItself] = WeakValueDictionary()


def _unpickle(key: str, make: Callable[..., CopiedAsItself], args: Any, kwargs: Any) -> CopiedAsItself:
    found = _pickled.get(key)
    if found is None:
        found = _pickled[key] = make(*args, **kwargs)
        found._key = key
    return found
