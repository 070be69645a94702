"""Every regular expression of the package takes linear time, whatever text it searches.

A quadratic pattern holds the interpreter's lock for seconds on a long text, and with it the whole application.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import rageval_hooks

SIZE = 800
GROWTH = 4
MOST = 8.5
"""Times the time of a text four times as long: 4 for a linear pattern, 16 for a quadratic one."""

MEASURABLE = 0.002
"""Seconds. What takes less on the longer text is fast enough, and noise would decide."""

UNITS = (
    "a", "A", "1", "0", " ", "\n", "\t", " \n", "é", "中", "\u0301", "²", "½", "a ", "A ", "1 ", "a\n",
    "a-", "a.", "A.", "1.", "1,", "1-", "1:", "1/", "a'", ". . ", "...", "!?", "A. B. ", "1 000 ",
    "(", "[", "[^", "[1, ", "[a](", "{", "()", "<", "<a", ">", "|", "\\", "/", "//", "://", "\\\"",
    '"', "'", "`", "```", "`a", "`[1]", "~~~", "*", "#", "_", "-", "=", ":", "@", "a@", "$", "$1", "%", "&",
    "www.", "http://", "key: ", "a=", "Bearer ", "sk-", "Source 1, ", "March ", "one hundred ", "and ", "not ",
    "i cannot ", "the ", "[1]: http://", "[^1]:\n  a",
)  # fmt: skip


# Not `workers`: its import makes a Celery application from the environment.
PACKAGES = sorted(module.name for module in pkgutil.iter_modules(rageval_hooks.__path__) if module.name != "workers")


def patterns_in(value: object, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict):
        yield from (pattern for item in value.values() for pattern in patterns_in(item, depth - 1))
    elif depth and isinstance(value, (tuple, list, set, frozenset)):
        yield from (pattern for item in value for pattern in patterns_in(item, depth - 1))


def modules_of(package: str) -> Iterator[ModuleType]:
    """Import a module and those in it; what needs an extra that is not installed is left."""
    try:
        module = importlib.import_module(f"rageval_hooks.{package}")
    except ImportError:
        return
    yield module
    for inner in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if inner.name != "__main__":
            yield from modules_of(f"{package}.{inner.name}")


def patterns_of(package: str) -> dict[re.Pattern[Any], str]:
    """Return the compiled patterns in the modules of a package, with their names."""
    return {
        pattern: f"{module.__name__}.{name}"
        for module in modules_of(package)
        for name, value in vars(module).items()
        for pattern in patterns_in(value)
    }


def seconds(pattern: re.Pattern[Any], text: str | bytes, times: int) -> float:
    best = float("inf")
    for _ in range(times):
        begin = time.thread_time()
        for _ in pattern.finditer(text):
            pass
        best = min(best, time.thread_time() - begin)
    return best


def growth(pattern: re.Pattern[Any], unit: str) -> float:
    """Return how many times as long a text of four times the length takes; 1 if that is too fast to measure."""
    # The end keeps patterns that must reach it from matching.
    short, long = (unit * (size // len(unit)) + "!\n" for size in (SIZE, GROWTH * SIZE))
    texts = (short.encode(), long.encode()) if isinstance(pattern.pattern, bytes) else (short, long)
    if seconds(pattern, texts[1], 1) < MEASURABLE:
        return 1.0
    return seconds(pattern, texts[1], 3) / max(seconds(pattern, texts[0], 3), 1e-6)


def test_patterns_are_found_where_they_are() -> None:
    """A module's own patterns are measured, and those in its tuples."""
    found = set(patterns_of("text").values())

    assert {"rageval_hooks.text.sentences._STOP", "rageval_hooks.text.dates._NOTATIONS"} <= found
    assert len(found) > 40


@pytest.mark.timeout(300)
@pytest.mark.parametrize("package", PACKAGES)
def test_patterns_take_linear_time(package: str) -> None:
    """No hostile text takes much more than four times as long when it is four times as long."""
    slow = {
        (name, unit)
        for pattern, name in patterns_of(package).items()
        for unit in UNITS
        # A busy machine can spoil one measurement, hardly three.
        if all(growth(pattern, unit) > MOST for _ in range(3))
    }

    assert not slow
