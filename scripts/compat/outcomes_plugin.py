"""A pytest plugin for the unit tests of a framework: writes which tests failed, and attaches the hook if asked to.

Environment:
    HOST_SUITE_RESULT: the JSON file to write.
    HOST_SUITE_HOOK: ``1`` to call ``rageval_hooks.instrument()`` before the tests are collected.
"""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import Any

FLUSH_SECONDS = 30.0

handle: Any = None
failed: set[str] = set()

if os.environ.get("HOST_SUITE_HOOK") == "1":
    from opentelemetry.sdk.trace import TracerProvider

    import rageval_hooks
    from rageval_hooks.integrations.capture.recorder import shared_recorder

    handle = rageval_hooks.instrument(tracer_provider=TracerProvider(), models="lexical")


def pytest_runtest_logreport(report: Any) -> None:
    """Collect the tests whose setup, call or teardown failed."""
    if report.failed:
        failed.add(report.nodeid)


def pytest_collectreport(report: Any) -> None:
    """Collect the files that could not be imported."""
    if report.failed:
        failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the outcomes."""
    stats: dict[str, int] = {}
    left: list[str] = []
    if handle is not None:
        gc.collect()  # a stream that a test has abandoned ends when it is collected
        handle.flush(FLUSH_SECONDS)
        stats = {name: value for name, value in handle.stats().items() if isinstance(value, int)}
        left = [repr(recording.root.name) for recording in shared_recorder()._open.values()]
    result = {"failed": sorted(failed), "stats": stats, "left": left}
    Path(os.environ["HOST_SUITE_RESULT"]).write_text(json.dumps(result, indent=2))
