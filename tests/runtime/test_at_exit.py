"""The end of the process: what the exit handler comes before, and which loads the exit waits for."""

from __future__ import annotations

import sys
import threading

import pytest

from rageval_hooks.runtime.at_exit import ExitDrain
from tests.interpreter import run_script

SCRIPT = """
import atexit
from dataclasses import dataclass
from rageval_hooks.runtime.at_exit import EXIT_DRAIN

@dataclass
class Provider:  # like Logfire's: it has a comparison, and so no hash
    name: str

first, second = Provider("first"), Provider("first")
EXIT_DRAIN.add(lambda timeout: print("drained"), "export")
for provider in (first, second):
    atexit.register(print, "a provider shuts down")
    for _ in range(3):
        EXIT_DRAIN.run_before(provider)
slots = atexit._ncallbacks()
for _ in range(100):  # each turn does so
    EXIT_DRAIN.run_before(second)
atexit.register(print, "more slots:", atexit._ncallbacks() - slots)
"""


def test_a_provider_needs_no_hash() -> None:
    """Providers are told apart by identity; the drain comes before the handlers of both, and turns add no handlers."""
    assert run_script(SCRIPT).split("\n")[:2] == ["more slots: 0", "drained"]


LOAD = """
import atexit, threading, time
from concurrent.futures import ThreadPoolExecutor
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.lazy import BackgroundValue

def load():
    time.sleep({seconds})
    with ThreadPoolExecutor(1) as pool:  # as transformers, and as downloads from the hub
        return pool.submit(str, "loaded").result()

def show():
    try:
        print(value.get(wait={pending}))
    except Exception as error:
        print(error)

atexit.register(show)  # runs after the exit drain, which is registered after it
value = BackgroundValue("model", load, 60)
value.start()
EXIT_DRAIN.register()
EXIT_DRAIN.add(lambda timeout: None, "evaluate", lambda: {pending})
EXIT_DRAIN.allow(value, {timeout})
"""

IN_TIME = "the process ended before it was loaded" if (3, 12) <= sys.version_info < (3, 12, 3) else "loaded"
"""Python 3.12.0 to 3.12.2 start no thread once the main thread has ended: the load fails, and says what to do."""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, IN_TIME),
        ({"timeout": 0.1}, "the process ended before it was loaded"),
        # Nothing needs the model.
        ({"pending": False, "seconds": 50}, "model is still loading"),
    ],
    ids=["pending", "too slow", "nothing pending"],
)
def test_a_load_that_pending_work_waits_for(options: dict[str, object], expected: str) -> None:
    """Thread pools work until then, as loads need them; no other load holds up the exit."""
    script = LOAD.format(**{"seconds": 1, "pending": True, "timeout": 20} | options)
    assert expected in run_script(script, timeout=30)


def test_steps_that_hang_or_fail_do_not_keep_the_others_from_running(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is named in the log."""
    monkeypatch.setattr("rageval_hooks.runtime.at_exit._GRACE", 0.0)
    drain, done, gate = ExitDrain(), list[float](), threading.Event()

    def hang(timeout: float) -> None:
        gate.wait(60)

    def fail(timeout: float) -> None:
        raise RuntimeError("our own mistake")

    drain.allow(gate, 0.2)
    for step in (hang, fail, done.append):
        drain.add(step, "export")
    drain.run()
    gate.set()

    assert len(done) == 1
    assert f"the exit does not wait for {hang.__qualname__} any longer [RAGEVAL-607]" in caplog.text
    assert "a step of the shutdown at exit failed [RAGEVAL-608]" in caplog.text
    assert "our own mistake" in caplog.text
