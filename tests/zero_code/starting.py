"""Starts applications that know nothing of the package, in both ways."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.exporters.collector import Collector, values
from tests.exporters.test_providers import clean_environment

__all__ = ["ANSWER", "APPLICATION", "WAYS", "each_way", "evaluations", "other_instrumentations", "start"]

APPLICATION = Path(__file__).resolve().parents[2] / "examples" / "no_code.py"
ANSWER = "The pier was opened in September 2018. It is 96 metres long.\n"
"""What the application prints."""

LAUNCH = (sys.executable, "-c", "from rageval_hooks.cli import main; main()", "launch")
OPENTELEMETRY = (str(Path(sys.executable).with_name("opentelemetry-instrument")),)
WAYS = {"launch": LAUNCH, "opentelemetry-instrument": OPENTELEMETRY}
each_way = pytest.mark.parametrize("way", WAYS)


def evaluations(collector: Collector) -> list[dict[str, object]]:
    """Return the attributes of the evaluation spans that arrived."""
    return [values(span) for span in collector.spans if span.name.startswith("evaluate")]


def other_instrumentations() -> str:
    """Return the names of all instrumentors but ours, for ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS``."""
    names = {entry.name for entry in entry_points(group="opentelemetry_instrumentor")}
    return ",".join(sorted(names - {"rageval_hooks"}))


def start(way: str, *application: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run an application with this Python.

    Args:
        way: a key of ``WAYS``.
        application: the arguments of Python, for example a file.
        environment: further variables.
    """
    variables = {
        **clean_environment(),
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": other_instrumentations(),
        "RAGEVAL_MODELS": "lexical",
        "RAGEVAL_EXPORTERS": "otel",
        "RAGEVAL_INLINE_BUDGET_MS": "20000",
        "PYTHONPATH": os.pathsep.join(filter(None, (os.getcwd(), os.environ.get("PYTHONPATH")))),
        **environment,
    }
    return subprocess.run(
        [*WAYS[way], sys.executable, "-W", "ignore", *map(str, application)],
        capture_output=True,
        text=True,
        timeout=240,
        env=variables,
        check=False,
    )
