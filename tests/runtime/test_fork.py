"""Forks: a child never waits for what only a thread of its parent could finish."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rageval_hooks.runtime import fork
from rageval_hooks.runtime.threads import current_thread_id
from tests.interpreter import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")

_LOADING = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from rageval_hooks.runtime.lazy import BackgroundValue

def load():
    import slow
    return slow

value = BackgroundValue("model", load, 30)
value.start()
while "slow" not in sys.modules:
    time.sleep(0.001)
start = time.monotonic()
child = os.fork()
"""


@pytest.fixture
def slow_module(tmp_path: Path) -> Path:
    """A folder with a module ``slow``, whose import takes so long that the process forks meanwhile."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(2)\nready = True\n")
    return tmp_path


def test_a_child_can_import_what_the_parent_was_importing(slow_module: Path) -> None:
    """An application's child that imports PyTorch would wait forever for the lock of the module; the fork waits not."""
    output = run_script(
        _LOADING
        + """
if child == 0:
    import slow
    os._exit(0 if slow.ready else 1)
print(time.monotonic() - start < 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        slow_module,
    )

    assert output.split() == ["True", "0"]


def test_a_model_whose_import_a_fork_has_cut_says_what_to_do(slow_module: Path) -> None:
    """Its package may be one that breaks when half of it is imported again."""
    output = run_script(
        _LOADING
        + """
if child == 0:
    try:
        value.get(wait=True)
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
""",
        slow_module,
    )

    assert "was forked while its parent imported the model's packages: fork before the first turn" in output


def test_a_load_that_a_fork_has_cut_begins_again() -> None:
    """Where nothing was being imported."""
    output = run_script(
        """
import os, threading
from rageval_hooks.runtime.lazy import BackgroundValue

begun, go_on = threading.Event(), threading.Event()
def load():
    begun.set()
    if os.getpid() == parent:
        go_on.wait()
    return "loaded"

parent = os.getpid()
value = BackgroundValue("model", load, 30)
value.start()
begun.wait()
child = os.fork()
if child == 0:
    print(value.get(wait=True), flush=True)
    os._exit(0)
os.waitpid(child, 0)
go_on.set()
"""
    )

    assert output.split() == ["loaded"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_fork_waits_for_short_work_only(ends: bool) -> None:
    """Such as a file of SQLite that is open: for at most a tenth of a second, which is longer here if the work ends."""
    output = run_script(
        """
import os, sys, threading
from rageval_hooks.runtime import fork
from rageval_hooks.runtime.threads import wait_until

ends = sys.argv[1] == "True"
if ends:
    fork._MAX_DELAY = 60  # a busy machine may take a tenth of a second to end the work
begun, never = threading.Event(), threading.Event()
def work():
    with fork.delay_forks():
        begun.set()
        wait_until(fork.is_fork_waiting, 60) if ends else never.wait()
        os.environ["FINISHED"] = "1"
threading.Thread(target=work, daemon=True).start()
begun.wait()
child = os.fork()
if child == 0:
    os._exit("FINISHED" in os.environ)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1)
""",
        ends,
    )

    assert output.split() == [str(ends)]


def test_a_thread_that_forks_during_such_work_does_not_wait_for_itself() -> None:
    """As an application whose callback forks."""
    output = run_script(
        """
import os
from rageval_hooks.runtime.fork import delay_forks
with delay_forks():
    child = os.fork()
    if child == 0:
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""
    )

    assert output.split() == ["0"]


def test_functions_for_a_child_do_not_depend_on_each_other() -> None:
    """If one raises, the others still run."""
    output = run_script(
        """
import os
from rageval_hooks.runtime.fork import run_in_child
run_in_child(lambda: 1 / 0, lambda: print("second", flush=True))
child = os.fork()
if child == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )

    assert output.split() == ["second", "0"]


def test_a_lock_is_free_in_a_child() -> None:
    """The thread that held it exists in the parent only."""
    output = run_script(
        """
import os, threading
from rageval_hooks.runtime.fork import ForkSafeLock

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
"""
    )

    assert output.split() == ["7"]


def test_a_child_does_not_count_what_its_parent_has_begun() -> None:
    """Of two coroutines of the parent, the second still waits for a thread. The child has nothing to wait for."""
    found = run_script(
        """
import gc, os, sys, threading
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.runtime.queues import BoundedQueue
from rageval_hooks.runtime.worker import Worker

worker, queue, go_on = Worker(), BoundedQueue("x", 10), threading.Event()
async def work():
    await worker.in_order(go_on.wait)
async def nothing():
    pass
for _ in range(2):
    worker.submit(queue, work)
wait_until(lambda: len(queue.tasks) == 2, 30)
worker.call(nothing).result()
child = os.fork()
if child == 0:
    gc.collect()
    os._exit(0 if worker.flush(1) and not queue.pending else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
go_on.set()
print(worker.flush(30), queue.pending)
"""
    )

    assert found.split() == ["0", "True", "0"]


_FIRST_DUMP = """
import builtins, os, threading, time
from rageval_hooks.runtime.jsonable import Data

find = builtins.__import__

def slow_import(name, *arguments, **more):
    if threading.current_thread() is not threading.main_thread():
        time.sleep(0.5)
    return find(name, *arguments, **more)

builtins.__import__ = slow_import
parent = threading.Thread(target=Data().model_dump_json)
parent.start()
time.sleep(0.1)
child = os.fork()
if child == 0:
    builtins.__import__ = find
    dumped = []
    thread = threading.Thread(target=lambda: dumped.append(Data().model_dump_json()), daemon=True)
    thread.start()
    thread.join(10)
    os._exit(0 if dumped == ["{}"] else 1)
parent.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_writes_json_while_its_parent_writes_its_first() -> None:
    """For the first dump pydantic imports modules under a lock, which such a child would wait for."""
    assert run_script(_FIRST_DUMP).split() == ["0"]


def test_a_block_inside_another_one_does_not_end_it() -> None:
    """A fork still waits for the outer one."""
    with fork.delay_forks():
        with fork.delay_forks():
            pass
        assert current_thread_id() in fork._busy
    assert current_thread_id() not in fork._busy
