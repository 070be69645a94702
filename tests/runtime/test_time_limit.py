"""Functions that may hang."""

from __future__ import annotations

import math
import threading
import time

import pytest

from rageval_hooks.runtime.time_limit import remaining, within


def test_a_result_in_time() -> None:
    """It comes from another thread, and an exception too."""
    assert within(threading.get_ident, 30) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        within(lambda: 1 / 0, 30)


def test_a_function_that_hangs_is_left_behind() -> None:
    gate = threading.Event()
    with pytest.raises(TimeoutError, match=r"no result within 0\.1 seconds"):
        within(lambda: gate.wait(30), 0.1)
    gate.set()


def test_where_no_thread_can_be_started_the_pool_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the interpreter exits, from Python 3.12 on."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("rageval_hooks.runtime.time_limit.start_daemon_thread", refuse)

    assert within(lambda: "done", 30) == "done"


def test_the_time_that_remains() -> None:
    """Never less than none."""
    assert remaining(time.monotonic() - 5) == 0
    assert 0 < remaining(time.monotonic() + 60) <= 60
    assert remaining(math.inf) == math.inf
