"""A cached property without a lock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

__all__ = ["cached_property"]

T = TypeVar("T")

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(Generic[T]):  # noqa: N801 - replaces the class of the same name
        """Computes an attribute once per instance.

        Up to Python 3.11, ``functools.cached_property`` holds one lock for all instances of a class while it computes.
        An evaluation that waits for a model would stop all others, also those with a deadline.
        """

        def __init__(self, compute: Callable[[Any], T]) -> None:
            self._compute = compute
            self._name = compute.__name__
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        @overload
        def __get__(self, instance: None, owner: type) -> cached_property[T]: ...

        @overload
        def __get__(self, instance: object, owner: type) -> T: ...

        def __get__(self, instance: object, owner: type) -> Any:
            if instance is None:
                return self
            # The instance's own attribute hides this descriptor from now on.
            value = instance.__dict__[self._name] = self._compute(instance)
            return value
