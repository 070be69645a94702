"""Forks while another thread loads something."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.interpreter import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")

_BEGINNING = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from rageval_hooks.runtime.fork import delay_forks
from rageval_hooks.runtime.lazy import BackgroundValue

def load():
    import slow
    return slow
"""


@pytest.fixture
def slow_module(tmp_path: Path) -> Path:
    """A folder with a module ``slow``, whose import takes so long that the process forks meanwhile."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(0.5)\nready = True\n")
    return tmp_path


def test_a_child_can_import_what_the_parent_was_importing(slow_module: Path) -> None:
    """Without the delay the child waits forever for the lock of the module."""
    output = run_script(
        _BEGINNING
        + """
value = BackgroundValue("model", load, 30)
value.start()
while "slow" not in sys.modules:
    time.sleep(0.001)
child = os.fork()
if child == 0:
    import slow
    os._exit(0 if slow.ready else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
        slow_module,
    )

    assert output.split() == ["0"]


def test_a_thread_that_forks_while_it_loads_does_not_wait_for_itself(slow_module: Path) -> None:
    output = run_script(
        _BEGINNING
        + """
start = time.monotonic()
with delay_forks():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
print(time.monotonic() - start < 20)
""",
        slow_module,
    )

    assert output.split() == ["True"]


def test_functions_for_a_child_do_not_depend_on_each_other() -> None:
    """If one raises, the others still run."""
    output = run_script(
        """
import os, sys
from rageval_hooks.runtime.fork import run_in_child
run_in_child(lambda: 1 / 0, lambda: print("second", flush=True))
child = os.fork()
if child == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )

    assert output.split() == ["second", "0"]
