"""One implementation for functions and coroutines: the guard's work is a generator of steps, driven by either.

A step is something to wait for. :func:`drive` waits for it on this thread, and :func:`adrive` awaits it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class GuardStep:
    """Something to wait for, in the two ways in which that is possible.

    Attributes:
        call: does it, and returns the result.
        acall: does it without blocking the event loop.
    """

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]]


GuardSteps = Generator[GuardStep, Any, T]
"""Work that yields each step, gets its result, and returns a ``T``. A step that raises closes it."""


def drive(steps: GuardSteps[T]) -> T:
    """Do the work on this thread."""
    result = None
    with closing(steps):
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            result = step.call()


async def adrive(steps: GuardSteps[T]) -> T:
    """Do the work in an event loop."""
    result = None
    with closing(steps):
        while True:
            try:
                step = steps.send(result)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            result = await step.acall()
