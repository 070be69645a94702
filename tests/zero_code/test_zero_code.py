"""Applications without a line of ours: their scores arrive, and their output and exit status are their own.

More set-ups, which start an application each, are in tests/e2e/zero_code.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.exporters.collector import Collector, http_collector
from tests.warm import run_command
from tests.zero_code.starting import ANSWER, APPLICATION, evaluations, start


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as collector:
        yield collector


def test_the_scores_arrive(collector: Collector) -> None:
    """In the trace of the request, by the standard variables and ours; the output is the application's alone."""
    metrics = "unsupported_facts,latency"
    done = start("launch", APPLICATION, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, RAGEVAL_METRICS=metrics)

    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWER, "")
    [found] = evaluations(collector)
    assert found["rageval.label.unsupported_facts"] == "fail"
    assert not any("groundedness" in name for name in found)
    assert len({span.trace_id for span in collector.spans}) == 1


def test_the_exit_status_and_the_arguments_are_the_applications() -> None:
    """Options too, even those that the command has itself."""
    done = start("launch", "-c", "import sys; print(sys.argv[1:]); sys.exit(7)", "--help", "-x", "--", "y")

    assert (done.returncode, done.stdout) == (7, "['--help', '-x', '--', 'y']\n")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("no-such-program", "there is no program 'no-such-program'"),
        ("app.py", "run it with Python, as in `python app.py`"),
    ],
)
def test_a_program_that_is_not_there(program: str, message: str) -> None:
    """One line says so."""
    done = run_command("launch", program, status=2)

    [line] = done.stderr.splitlines()
    assert message in line
