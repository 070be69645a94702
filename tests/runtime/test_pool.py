"""The pool: what comes first, what never takes the last thread, and how it ends."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.runtime.pool import DaemonPool, Priority, Steps, give_way, running_pass, stop_passes
from rageval_hooks.runtime.threads import wait_until
from tests.interpreter import run_script


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def waiting(gate: threading.Event, begun: threading.Event) -> Steps[None]:
    begun.set()
    gate.wait(30)
    yield from ()


def noting(order: list[str], *names: str, then: Priority = Priority.MODELS) -> Steps[str]:
    for name in names:
        order.append(name)
        yield then
    return "".join(names)


def held(pool: DaemonPool, gate: threading.Event) -> None:
    """Keep a thread of a pool busy until the gate opens."""
    begun = threading.Event()
    pool.run(waiting(gate, begun), Priority.ENDED)
    assert begun.wait(30)


def test_the_most_urgent_step_comes_next(gate: threading.Event) -> None:
    """First the rules of turns that have ended, then their models, then preparation, then late work."""
    pool, order = DaemonPool(1, "test-pool"), list[str]()
    held(pool, gate)
    futures = [
        pool.run(noting(order, "late"), Priority.LATE),
        pool.run(noting(order, "prepared"), Priority.PREPARE),
        pool.run(noting(order, "rules of A", "models of A"), Priority.ENDED),
        pool.run(noting(order, "rules of B", "models of B"), Priority.ENDED),
    ]
    gate.set()
    results = [future.result(30) for future in futures]
    pool.shutdown()

    assert order == ["rules of A", "rules of B", "models of A", "models of B", "prepared", "late"]
    assert results[2] == "rules of Amodels of A"


def test_the_newest_turn_is_prepared_first(gate: threading.Event) -> None:
    """Under load there is no time for all turns, and the newest has the most time left."""
    pool, order = DaemonPool(1, "test-pool"), list[str]()
    held(pool, gate)
    turns = [
        pool.run(noting(order, f"{name} 1", f"{name} 2", then=Priority.PREPARE), Priority.PREPARE)
        for name in ("old", "newer", "newest")
    ]
    gate.set()
    for turn in turns:
        turn.result(30)
    pool.shutdown()

    assert order == ["newest 1", "newest 2", "newer 1", "newer 2", "old 1", "old 2"]


def test_late_work_leaves_a_thread_free(gate: threading.Event) -> None:
    """Turns that end do not wait for the models of turns that are late anyway."""
    pool = DaemonPool(2, "test-pool")
    begun = [threading.Event() for _ in range(2)]
    late = [pool.run(waiting(gate, event), Priority.LATE) for event in begun]
    assert wait_until(lambda: any(event.is_set() for event in begun), 30)

    assert pool.submit(lambda: "ended").result(30) == "ended"
    assert [event.is_set() for event in begun].count(True) == 1
    gate.set()
    for future in late:
        future.result(30)
    pool.shutdown()
    assert all(event.is_set() for event in begun)


def test_results_exceptions_and_cancelled_work(gate: threading.Event) -> None:
    """As with the standard pool."""
    pool = DaemonPool(1, "test-pool")
    assert pool.submit(lambda x, y: x + y, 1, y=2).result(10) == 3
    failed = pool.submit(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failed.result(10)
    held(pool, gate)
    cancelled = pool.submit(lambda: 1 / 0)
    assert cancelled.cancel()
    gate.set()
    assert pool.submit(lambda: "next").result(10) == "next"
    pool.shutdown()


def test_the_threads_end_with_the_pool() -> None:
    """They start when they are needed, and again after a shutdown."""
    pool = DaemonPool(2, "test-ending")
    for _ in range(2):
        assert [pool.submit(str, number).result(10) for number in range(5)] == ["0", "1", "2", "3", "4"]
        pool.shutdown()
        assert wait_until(lambda: not any("test-ending" in thread.name for thread in threading.enumerate()), 10)


def test_an_event_loop_takes_it() -> None:
    """Host names are resolved on it."""
    pool = DaemonPool(1, "test-pool")

    async def main() -> str:
        asyncio.get_running_loop().set_default_executor(pool)
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    assert asyncio.run(main()) == "test-pool-0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    """Also if its parent's threads were at work, held the pool's lock, and had a queue."""
    output = run_script(
        """
import os, threading
from rageval_hooks.runtime.pool import local_pool

pool, begun, go_on = local_pool(), threading.Semaphore(0), threading.Event()
def work():
    begun.release()
    go_on.wait()
for _ in range(5):
    pool.submit(work)
for _ in range(2):
    begun.acquire()
pool._lock.acquire()
child = os.fork()
if child == 0:
    os._exit(7 if pool.submit(str, 7).result(30) == "7" else 1)
pool._lock.release()
go_on.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )

    assert output.split() == ["7"]


def test_work_gives_way_to_threads_of_the_application() -> None:
    """Between two pieces of work, also where Python would let the pool's thread keep the interpreter's lock."""
    pool, begun, heard = DaemonPool(1, "test-pool"), threading.Event(), threading.Event()

    def work() -> Steps[bool]:
        begun.set()
        end = time.monotonic() + 10
        while not heard.is_set() and time.monotonic() < end:
            give_way()
        return heard.is_set()
        yield

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        future = pool.run(work(), Priority.ENDED)
        assert begun.wait(30)
        heard.set()
        assert future.result(30)
    finally:
        sys.setswitchinterval(interval)
        pool.shutdown()


def test_where_no_thread_can_be_started_the_caller_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the interpreter's exit, from Python 3.12 on."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("rageval_hooks.runtime.pool.start_daemon_thread", refuse)

    assert DaemonPool(1, "test-pool").run(noting(order := list[str](), "a", "b"), Priority.ENDED).result(0) == "ab"
    assert order == ["a", "b"]


def test_work_for_a_pool_that_is_being_shut_down_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread shuts it down after the work was taken, and the last thread has ended."""
    pool = DaemonPool(1, "test-pool")
    pool.start()
    put = pool._put

    def put_late(job: Any) -> None:
        pool.shutdown()
        assert wait_until(lambda: not [one for one in threading.enumerate() if one.name == "test-pool-0"], 30)
        put(job)

    monkeypatch.setattr(pool, "_put", put_late)
    future = pool.submit(str, 1)
    monkeypatch.undo()

    assert future.result(30) == "1"
    pool.shutdown()


def test_a_model_does_not_begin_a_pass_while_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be aborted in native code."""
    ending = threading.Event()
    ending.set()
    monkeypatch.setattr("rageval_hooks.runtime.pool._passes_end", ending)

    with pytest.raises(ModelUnavailableError, match="the process is ending"), running_pass():
        pytest.fail("the pass has begun")
    assert stop_passes(0)
