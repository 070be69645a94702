"""Loads that are in progress when the process exits."""

from __future__ import annotations

from tests.interpreter import run_script

SCRIPT = """
import importlib, threading
from rageval_hooks.runtime.loading import LoadAbandonedError, abandon_loads, loading

begun, may_go_on = threading.Event(), threading.Event()

def load():
    try:
        with loading():
            begun.set()
            may_go_on.wait(30)
            importlib.import_module("this_module_is_missing")
    except BaseException as error:
        print(type(error).__name__)

thread = threading.Thread(target=load)
thread.start()
begun.wait(30)
print(abandon_loads(0.01))
try:
    importlib.import_module("this_module_is_missing")
except ModuleNotFoundError:
    print("others import as before")
may_go_on.set()
thread.join(30)
print(abandon_loads(30))
try:
    with loading():
        print("begun")
except LoadAbandonedError:
    print("none begins any more")
"""


def test_a_load_ends_at_its_next_import() -> None:
    """Other threads import as before, and no load begins any more."""
    assert run_script(SCRIPT).splitlines() == [
        "False",
        "others import as before",
        "LoadAbandonedError",
        "True",
        "none begins any more",
    ]
