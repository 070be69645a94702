"""The background thread: order, bounds, failures, waiting."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial

import pytest

from rageval_hooks.runtime import threads
from rageval_hooks.runtime.queues import BoundedQueue
from rageval_hooks.runtime.threads import sleep, wait_until
from rageval_hooks.runtime.worker import Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("test-worker")
    yield worker
    assert worker.flush(10)


def test_jobs_run_in_their_order_on_one_thread(worker: Worker) -> None:
    """First in, first out."""
    queue, seen = BoundedQueue("x", 1000), []
    for number in range(500):
        worker.submit(queue, lambda number=number: seen.append((number, threading.current_thread().name)))  # type: ignore[misc]
    assert worker.flush(10)

    assert [number for number, _ in seen] == list(range(500))
    assert {name for _, name in seen} == {"test-worker"}


def test_a_full_queue_drops_the_newest_and_counts(worker: Worker) -> None:
    """What is queued stays; another queue has its own bound."""
    gate = threading.Event()
    small, other, seen = BoundedQueue("small", 3), BoundedQueue("other", 3), []
    worker.submit(other, lambda: gate.wait(10) and None)
    accepted = [worker.submit(small, lambda number=number: seen.append(number)) for number in range(5)]  # type: ignore[misc]
    gate.set()
    worker.flush(10)

    assert accepted == [True, True, True, False, False]
    assert seen == [0, 1, 2]
    assert small.stats() == {
        "pending": 0,
        "pending_bytes": 0,
        "accepted": 3,
        "dropped": 2,
        "dropped_by_size": 0,
        "failed": 0,
    }
    assert other.stats()["dropped"] == 0


def test_work_that_no_thread_can_do_is_refused_and_counted(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the interpreter's exit no thread can be started."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("rageval_hooks.runtime.worker.start_daemon_thread", refuse)
    queue = BoundedQueue("x", 10)

    assert not worker.submit(queue, lambda: None)
    assert queue.stats()["dropped"] == 1


def test_a_worker_that_was_stopped_starts_again() -> None:
    """The thread ends once there is no work."""
    worker, queue, seen = Worker("test-stopped"), BoundedQueue("x", 10), []
    for number in range(3):
        worker.submit(queue, lambda number=number: seen.append(number))  # type: ignore[misc]
        assert worker.flush(10)
        assert worker.call(partial(asyncio.sleep, 0, number)).result(10) == number
        worker.stop()
        assert wait_until(lambda: "test-stopped" not in {thread.name for thread in threading.enumerate()}, 10)

    assert seen == [0, 1, 2]


def test_a_call_that_comes_while_the_thread_ends(worker: Worker) -> None:
    """It has its result: from the thread that ends, or from a new one."""

    async def number() -> int:
        return 7

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(2000):
            assert worker.call(number).result(10) == 7
            worker.stop()
    finally:
        sys.setswitchinterval(interval)


def test_coroutines_run_side_by_side(worker: Worker) -> None:
    """A job that waits does not hold up the next."""
    queue, order = BoundedQueue("x", 10), []

    async def first() -> None:
        while "second" not in order:
            await asyncio.sleep(0)
        order.append("first")

    async def second() -> None:
        order.append("second")

    worker.submit(queue, first)
    worker.submit(queue, second)
    assert worker.flush(10)

    assert order == ["second", "first"]


def test_blocking_work_does_not_hold_up_the_loop(worker: Worker) -> None:
    """It runs on another thread."""
    queue, gate, order = BoundedQueue("x", 10), threading.Event(), []

    async def blocking() -> None:
        await worker.in_thread(lambda: gate.wait(10))
        order.append("blocking")

    def release() -> None:
        order.append("other")
        gate.set()

    worker.submit(queue, blocking)
    worker.submit(queue, release)
    assert worker.flush(10)

    assert order == ["other", "blocking"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_job_that_fails_is_logged_and_counted(
    worker: Worker, caplog: pytest.LogCaptureFixture, asynchronous: bool
) -> None:
    """And the next one runs."""
    queue, seen = BoundedQueue("x", 10), []

    def fail() -> None:
        raise ZeroDivisionError("our own mistake")

    async def afail() -> None:
        fail()

    worker.submit(queue, afail if asynchronous else fail)
    worker.submit(queue, lambda: seen.append("next"))
    assert worker.flush(10)

    assert seen == ["next"]
    assert (queue.accepted, queue.dropped, queue.failed, queue.pending) == (2, 0, 1, 0)
    assert "a background job (x) failed" in caplog.text


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), GeneratorExit()])
def test_a_job_may_raise_any_base_exception(worker: Worker, error: BaseException) -> None:
    """Extensions in Rust raise exceptions that do not derive from Exception; the next jobs run."""
    queue, done = BoundedQueue("test", 10), []

    def fail() -> None:
        raise error

    worker.submit(queue, fail)
    for number in range(3):
        worker.submit(queue, lambda number=number: done.append(number))  # type: ignore[misc]

    assert worker.flush(10)
    worker.submit(queue, lambda: done.append(3))
    assert worker.flush(10)
    assert done == [0, 1, 2, 3]
    assert (queue.accepted, queue.dropped, queue.failed, queue.pending) == (5, 0, 1, 0)


def test_jobs_do_not_run_in_a_requests_context(worker: Worker) -> None:
    """Which would live on, and in whose trace everything would stand that exporters do."""
    variable: ContextVar[str | None] = ContextVar("variable", default=None)
    variable.set("a request's")
    queue, seen = BoundedQueue("test", 10), []
    for _ in range(2):
        worker.submit(queue, lambda: seen.append(variable.get()))
        assert worker.flush(10)

    assert seen == [None, None]


def test_flush_returns_false_after_its_timeout(worker: Worker) -> None:
    """A job that does not end does not block the caller."""
    queue, gate = BoundedQueue("x", 10), threading.Event()
    worker.submit(queue, lambda: gate.wait(10) and None)

    assert not worker.flush(0.01)
    gate.set()
    assert worker.flush(10)


def test_flush_on_the_background_thread_does_not_wait_for_itself(worker: Worker) -> None:
    """A callback may call it."""
    queue, answers = BoundedQueue("x", 10), []
    worker.submit(queue, lambda: answers.append(worker.flush(10)))
    assert worker.flush(10)

    assert answers == [False]


def test_many_threads_submit(worker: Worker) -> None:
    """Nothing is lost and nothing runs twice."""
    queue, seen = BoundedQueue("x", 100_000), []

    def submit(start: int) -> None:
        for number in range(start, start + 1000):
            worker.submit(queue, lambda number=number: seen.append(number))  # type: ignore[misc]

    threads = [threading.Thread(target=submit, args=(1000 * index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worker.flush(10)

    assert sorted(seen) == list(range(8000))


def test_an_idle_worker_has_no_thread() -> None:
    """Nothing starts before there is work."""
    Worker("never-started")

    assert "never-started" not in {thread.name for thread in threading.enumerate()}


def test_pauses_are_not_seen_by_an_application_that_replaces_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """LangGraph's tests replace ``time.sleep`` and count its calls."""
    calls: list[float] = []
    monkeypatch.setattr("time.sleep", calls.append)
    sleep(0.001)

    assert calls == []


def test_a_signal_among_greenlets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blocking wait would stop all of them: it is polled."""
    monkeypatch.setattr(threads, "patched_by", lambda: "gevent")
    monkeypatch.setattr(threads, "original", lambda module, name: getattr(__import__(module), name))
    signal = threads.Signal()

    assert not signal.wait(0)
    signal.set()
    assert signal.wait(0)


def test_no_thread_is_started_while_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 would wait forever for its first step."""
    monkeypatch.setattr("sys.is_finalizing", lambda: True)

    with pytest.raises(RuntimeError, match="the interpreter is exiting"):
        threads.start_daemon_thread(lambda: None, "test-late")


def test_a_thread_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller must not wait for a result that never comes."""
    monkeypatch.setattr("rageval_hooks.runtime.worker.start_daemon_thread", lambda *_: None)
    monkeypatch.setattr("rageval_hooks.runtime.worker._START_SECONDS", 0.0)

    with pytest.raises(RuntimeError, match="the background thread has not started"):
        Worker("test-slow").call(partial(asyncio.sleep, 0))


def test_the_exit_says_how_many_jobs_are_undone(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    """One runs and one waits."""
    queue, gate = BoundedQueue("x", 10), threading.Event()
    for _ in range(2):
        worker.submit(queue, lambda: gate.wait(10) and None)
    worker.drain(0.01)
    gate.set()

    assert "the interpreter exits with 2 background jobs undone after 0.0 seconds [RAGEVAL-601]" in caplog.text
    assert worker.flush(10)
    caplog.clear()
    worker.drain(10)
    assert caplog.text == ""


def test_cancelled_jobs_are_no_failures(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    """By a shutdown: they end, and nothing is logged."""
    queue, begun, ended = BoundedQueue("x", 10), threading.Event(), list[str]()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    worker.submit(queue, wait)
    assert begun.wait(10)
    worker.cancel(queue, 10)

    assert ended == ["cancelled"]
    assert (queue.failed, queue.pending, caplog.text) == (0, 0, "")


def test_a_job_that_does_not_let_itself_be_cancelled_is_named(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The shutdown goes on without it."""
    monkeypatch.setattr("rageval_hooks.runtime.worker._CANCEL_SECONDS", 0.01)
    queue, begun, go_on = BoundedQueue("x", 10), threading.Event(), threading.Event()

    async def insist() -> None:
        begun.set()
        while not go_on.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)

    worker.submit(queue, insist)
    assert begun.wait(10)
    worker.cancel(queue, 0)
    go_on.set()

    assert "background jobs did not end when they were cancelled [RAGEVAL-604]" in caplog.text


def test_a_coroutine_that_ends_the_process_ends_only_itself(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    """A judge of the application may call ``sys.exit``: its caller gets that, and the thread goes on."""

    async def leave() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        worker.call(leave).result(10)

    assert worker.call(partial(asyncio.sleep, 0, "still here")).result(10) == "still here"
    assert "the background thread goes on after an exception [RAGEVAL-222]" in caplog.text
