"""Locks that survive a fork, and the thread on which models compute."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rageval_hooks.runtime.executors import DaemonExecutor, ForkSafeLock, low_priority, model_executor
from tests.interpreter import run_script


def test_a_lock_keeps_others_out() -> None:
    """One thread at a time."""
    lock = ForkSafeLock()
    total = 0

    def add() -> None:
        nonlocal total
        for _ in range(1_000):
            with lock:
                seen = total
                total = seen + 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert total == 4_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_lock_is_free_in_a_forked_child() -> None:
    """The thread that held it exists in the parent only."""
    output = run_script(
        """
import os, threading
from rageval_hooks.runtime.executors import ForkSafeLock

lock, held, done = ForkSafeLock(), threading.Event(), threading.Event()

def hold():
    with lock:
        held.set()
        done.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    with lock:
        os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        timeout=240,
    )

    assert output.split() == ["7"]


def test_models_compute_on_one_core_and_leave_the_applications_alone() -> None:
    """PyTorch's threads spin while they wait: with one per core of a busy server, everything stands still."""
    torch = pytest.importorskip("torch")
    with ThreadPoolExecutor(1) as before:
        usual = torch.get_num_threads(), before.submit(torch.get_num_threads).result()

    model = model_executor().submit(torch.get_num_threads).result()

    assert model == 1
    with ThreadPoolExecutor(1) as after:
        assert (torch.get_num_threads(), after.submit(torch.get_num_threads).result()) == usual


def test_a_preparation_that_fails_does_not_lose_work() -> None:
    """The thread works all the same."""

    def fail() -> None:
        raise RuntimeError("no")

    executor = DaemonExecutor(1, "test-prepared", fail)

    assert executor.submit(lambda: 7).result(timeout=30) == 7
    executor.shutdown()


def test_early_work_comes_before_late_work_and_after_all_other() -> None:
    """What a turn in progress will need comes before the scores of turns that have ended."""
    executor = DaemonExecutor(1, "test-priorities")
    gate = threading.Event()
    order: list[str] = []
    executor.submit(gate.wait, 30)
    with low_priority("late"):
        executor.submit(order.append, "late")
    with low_priority("early"):
        executor.submit(order.append, "early")
    last = executor.submit(order.append, "normal")
    gate.set()
    last.result(30)
    with low_priority("late"):
        executor.submit(order.append, "end").result(30)

    assert order == ["normal", "early", "late", "end"]


def test_late_work_does_not_interrupt_an_early_series() -> None:
    """A series submits one job after the other: between two of them nothing is queued."""
    executor = DaemonExecutor(1, "test-series")
    order: list[str] = []
    with executor.series("early"):
        executor.submit(order.append, "early 1").result(30)
        with low_priority("late"):
            late = executor.submit(order.append, "late")
        with low_priority("early"):
            executor.submit(order.append, "early 2").result(30)
    late.result(30)

    assert order == ["early 1", "early 2", "late"]


def test_an_executor_says_whether_it_is_free_soon() -> None:
    """Low-priority work that waits does not count: it gives way."""
    executor = DaemonExecutor(1, "test-free")
    assert executor.is_free_within(30)
    gate = threading.Event()
    executor.submit(gate.wait, 30)
    assert not executor.is_free_within(0.01)
    gate.set()
    assert executor.is_free_within(30)


def test_late_work_goes_on_after_an_early_series() -> None:
    executor = DaemonExecutor(2, "test")
    with executor.series("early"), low_priority("late"):
        futures = [executor.submit(int, index) for index in range(4)]
    assert [future.result(30) for future in futures] == [0, 1, 2, 3]


def test_low_priority_work_can_leave_a_thread_free() -> None:
    """Late work waits for other late work, and goes on at once when it may have all threads again."""
    reserved = [True]
    executor = DaemonExecutor(2, "test", keeps_one_free=lambda: reserved[0])
    blocked = threading.Event()
    with low_priority("late"):
        first = executor.submit(blocked.wait, 30)
        second = executor.submit(int, 2)
    assert executor.submit(int, 1).result(30) == 1
    assert not second.done()
    reserved[0] = False
    executor.wake()
    assert second.result(30) == 2
    blocked.set()
    assert first.result(30)


def test_a_series_without_a_low_priority_finds_a_thread_free() -> None:
    """A caller waits for it: early work of other turns takes the other threads only, and all of them afterwards."""
    executor = DaemonExecutor(2, "test-urgent")
    gate = threading.Event()
    with executor.series():
        with low_priority("early"):
            early = [executor.submit(gate.wait, 30) for _ in range(2)]
        assert [executor.submit(int, index).result(30) for index in range(3)] == [0, 1, 2]
        assert not early[1].running()
    gate.set()
    assert all(future.result(30) for future in early)


def test_a_pool_that_stops_ends_what_runs_and_begins_nothing() -> None:
    """It says whether something still runs."""
    pool = DaemonExecutor(1, "test-stop")
    begun, may_end = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        may_end.wait(30)
        return "done"

    running = pool.submit(work)
    queued = pool.submit(str)
    begun.wait(30)
    assert not pool.stop(0.01)
    may_end.set()
    assert pool.stop(30)
    assert running.result(30) == "done"
    assert pool.stop(30)
    assert not queued.done()
