"""The exit handler and the tracer providers that it must come before."""

from __future__ import annotations

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
"""


def test_a_provider_needs_no_hash() -> None:
    """Providers are told apart by identity; the drain comes before the handlers of both."""
    assert run_script(SCRIPT).split("\n")[0] == "drained"
