"""Callbacks that sync and async callback managers can both call directly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import MethodType
from typing import Any, TypeVar, cast

from rageval_hooks.online.inline import DONE

__all__ = ["callback"]

F = TypeVar("F", bound=Callable[..., Any])


async def _coroutine_function() -> None:
    """Do nothing; see :class:`_Callback`."""


class _Callback(partial[Any]):
    """A method that does its work when it is called, and may also be awaited.

    Async managers await coroutine functions, and run everything else on a thread pool, unless the handler is marked
    ``run_inline``. That mark is not an option: ``AsyncCallbackManager.on_llm_start`` calls either the handlers that
    have it or all the others. So the callback has to pass for a coroutine function. It is a partial of one, because
    ``inspect.iscoroutinefunction`` looks through partials.

    Args:
        method: the plain function to call. It returns what an async manager awaits, or None. Not a
            coroutine: a sync manager would run that on another thread and wait for it, which blocks an event loop.
    """

    method: Callable[..., Awaitable[Any] | None]

    def __new__(cls, method: Callable[..., Any]) -> _Callback:
        """Make a partial of the coroutine function, which is never called."""
        callback = super().__new__(cls, _coroutine_function)
        callback.method = method
        callback.__doc__ = method.__doc__
        return callback

    def __get__(self, handler: object, owner: type | None = None) -> Any:
        """Bind the method to a handler."""
        return self if handler is None else MethodType(self, handler)

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call the method."""
        return self.method(*args, **kwargs) or DONE


def callback(method: F) -> F:
    """Let both kinds of managers call a method of a handler directly, on the thread of the run."""
    return cast("F", _Callback(method))
