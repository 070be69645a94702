"""Which exceptions are interrupts: those of signal handlers and of other threads."""

from __future__ import annotations

import ctypes
import functools
import signal
import threading
from collections.abc import Callable

import pytest

from rageval_hooks.runtime.interrupts import is_interrupt, raise_interrupt


class Deadline(Exception):
    """A deadline of the application."""


def plain(signum: int, frame: object) -> None:
    raise Deadline


def with_any_arguments(*_: object) -> None:
    raise TimeoutError("too late")


def resets_itself(signum: int, frame: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise Deadline


class Handler:
    """A handler as a method, which calls another function."""

    def handle(self, signum: int, frame: object) -> None:
        self.end()

    def end(self) -> None:
        raise ValueError("too late")


HANDLERS: list[Callable[..., None]] = [plain, with_any_arguments, resets_itself, Handler().handle]
HANDLERS.append(functools.partial(plain))


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_signal_handler_raises(handler: Callable[..., None]) -> None:
    """Whatever kind of function it is."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises((Deadline, TimeoutError, ValueError)) as caught:
            _in_some_code(lambda: signal.raise_signal(signal.SIGALRM))
    finally:
        signal.signal(signal.SIGALRM, before)

    assert is_interrupt(caught.value)


@pytest.mark.parametrize("kind", [Deadline, TimeoutError])
def test_what_another_thread_raises(kind: type[Exception]) -> None:
    """In a loop, and between calls."""
    raise_here = ctypes.pythonapi.PyThreadState_SetAsyncExc
    identity = ctypes.c_ulong(threading.get_ident())
    for code in (lambda: [*map(str, range(10))], lambda: raise_here(identity, None)):
        with pytest.raises(kind) as caught:  # noqa: PT012 - it may be raised at any instruction
            raise_here(identity, ctypes.py_object(kind))
            _in_some_code(code)

        assert is_interrupt(caught.value)


class Lazy:
    """A value of the application that raises when it is looked at."""

    def __getattr__(self, name: str) -> object:
        raise Deadline


@pytest.mark.parametrize(
    "code",
    [
        lambda: Lazy().answer,
        lambda: {}["answer"],
        lambda: next(iter(())),
        lambda: getattr(3, "answer"),  # noqa: B009
        lambda: threading.Event().wait("long"),
        lambda: int("one"),
    ],
)
def test_what_code_raises_itself(code: Callable[[], object]) -> None:
    """Also an exception of the application, without a message."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each is of another kind
        _in_some_code(code)

    assert not is_interrupt(caught.value)
    raise_interrupt(caught.value)


def test_exceptions_that_end_a_thread_always_go_on() -> None:
    """Ctrl-C, and the end of the process."""
    for kind in (KeyboardInterrupt, SystemExit):
        with pytest.raises(kind):
            raise_interrupt(kind())


def _in_some_code(code: Callable[[], object]) -> None:
    for _ in range(1000):
        code()
