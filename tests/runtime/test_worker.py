"""The background thread: order, bounds, failures, waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from rageval_hooks.runtime.executors import DaemonExecutor
from rageval_hooks.runtime.threads import sleep
from rageval_hooks.runtime.worker import Lane, Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("test-worker")
    yield worker
    assert worker.flush(10)


def test_jobs_run_in_their_order_on_one_thread(worker: Worker) -> None:
    """First in, first out."""
    lane, seen = Lane("x", 1000), []
    for number in range(500):
        worker.submit(lane, lambda number=number: seen.append((number, threading.current_thread().name)))  # type: ignore[misc]
    assert worker.flush(10)

    assert [number for number, _ in seen] == list(range(500))
    assert {name for _, name in seen} == {"test-worker"}


def test_a_full_lane_drops_the_newest_and_counts(worker: Worker) -> None:
    """What is queued stays; another lane has its own bound."""
    gate = threading.Event()
    small, other, seen = Lane("small", 3), Lane("other", 3), []
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


def test_without_threads_work_and_what_it_submits_is_done(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the interpreter's exit no thread can be started: the thread that submits does the work."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("rageval_hooks.runtime.worker.start_daemon_thread", refuse)
    lane, seen = Lane("x", 10), []

    async def last() -> None:
        await asyncio.sleep(0)
        seen.append("coroutine")

    def first() -> None:
        worker.submit(lane, lambda: seen.append("submitted by work"))
        worker.submit(lane, last)
        seen.append("work")

    worker.submit(lane, first)
    worker.submit(lane, lambda: seen.append("later"))

    assert seen == ["work", "submitted by work", "coroutine", "later"]
    assert caplog.messages == []


def test_coroutines_run_side_by_side(worker: Worker) -> None:
    """A job that waits does not hold up the next."""
    lane, order = Lane("x", 10), []

    async def first() -> None:
        while "second" not in order:
            await asyncio.sleep(0)
        order.append("first")

    async def second() -> None:
        order.append("second")

    worker.submit(lane, first)
    worker.submit(lane, second)
    assert worker.flush(10)

    assert order == ["second", "first"]


def test_blocking_work_does_not_hold_up_the_loop(worker: Worker) -> None:
    """It runs on another thread."""
    lane, gate, order = Lane("x", 10), threading.Event(), []

    async def blocking() -> None:
        await worker.in_thread(lambda: gate.wait(10))
        order.append("blocking")

    def release() -> None:
        order.append("other")
        gate.set()

    worker.submit(lane, blocking)
    worker.submit(lane, release)
    assert worker.flush(10)

    assert order == ["other", "blocking"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_job_that_fails_is_logged_and_counted(
    worker: Worker, caplog: pytest.LogCaptureFixture, asynchronous: bool
) -> None:
    """And the next one runs."""
    lane, seen = Lane("x", 10), []

    def fail() -> None:
        raise ZeroDivisionError("our own mistake")

    async def afail() -> None:
        fail()

    worker.submit(lane, afail if asynchronous else fail)
    worker.submit(lane, lambda: seen.append("next"))
    assert worker.flush(10)

    assert seen == ["next"]
    assert (lane.accepted, lane.dropped, lane.failed, lane.pending) == (2, 0, 1, 0)
    assert "a background job (x) failed" in caplog.text


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), GeneratorExit()])
def test_a_job_may_raise_any_base_exception(worker: Worker, error: BaseException) -> None:
    """Extensions in Rust raise exceptions that do not derive from Exception; the next jobs run."""
    lane, done = Lane("test", 10), []

    def fail() -> None:
        raise error

    worker.submit(lane, fail)
    for number in range(3):
        worker.submit(lane, lambda number=number: done.append(number))  # type: ignore[misc]

    assert worker.flush(10)
    worker.submit(lane, lambda: done.append(3))
    assert worker.flush(10)
    assert done == [0, 1, 2, 3]
    assert (lane.accepted, lane.dropped, lane.failed, lane.pending) == (5, 0, 1, 0)


def test_jobs_do_not_run_in_a_requests_context(worker: Worker) -> None:
    """Which would live on, and in whose trace everything would stand that exporters do."""
    variable: ContextVar[str | None] = ContextVar("variable", default=None)
    variable.set("a request's")
    lane, seen = Lane("test", 10), []
    for _ in range(2):
        worker.submit(lane, lambda: seen.append(variable.get()))
        assert worker.flush(10)

    assert seen == [None, None]


def test_flush_returns_false_after_its_timeout(worker: Worker) -> None:
    """A job that does not end does not block the caller."""
    lane, gate = Lane("x", 10), threading.Event()
    worker.submit(lane, lambda: gate.wait(10) and None)

    assert not worker.flush(0.01)
    gate.set()
    assert worker.flush(10)


def test_flush_on_the_background_thread_does_not_wait_for_itself(worker: Worker) -> None:
    """A callback may call it."""
    lane, answers = Lane("x", 10), []
    worker.submit(lane, lambda: answers.append(worker.flush(10)))
    assert worker.flush(10)

    assert answers == [False]


def test_many_threads_submit(worker: Worker) -> None:
    """Nothing is lost and nothing runs twice."""
    lane, seen = Lane("x", 100_000), []

    def submit(start: int) -> None:
        for number in range(start, start + 1000):
            worker.submit(lane, lambda number=number: seen.append(number))  # type: ignore[misc]

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


class TestDaemonExecutor:
    def test_results_and_exceptions(self) -> None:
        """As with the standard pool."""
        executor = DaemonExecutor(2, "test-pool")
        assert executor.submit(lambda x, y: x + y, 1, y=2).result(10) == 3
        failed = executor.submit(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failed.result(10)
        executor.shutdown()

    def test_an_event_loop_takes_it(self) -> None:
        """Host names are resolved on it."""
        executor = DaemonExecutor(1, "test-pool")

        async def main() -> str:
            loop = asyncio.get_running_loop()
            loop.set_default_executor(executor)
            return await asyncio.to_thread(lambda: threading.current_thread().name)

        assert asyncio.run(main()) == "test-pool-0"


def test_pauses_are_not_seen_by_an_application_that_replaces_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """LangGraph's tests replace ``time.sleep`` and count its calls."""
    calls: list[float] = []
    monkeypatch.setattr("time.sleep", calls.append)
    sleep(0.001)

    assert calls == []
