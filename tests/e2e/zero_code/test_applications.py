"""Applications without a line of ours, started by ``opentelemetry-instrument`` and by ``rageval-hooks launch``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exporters.collector import Collector, http_collector
from tests.zero_code.starting import ANSWER, APPLICATION, each_way, evaluations, start


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as collector:
        yield collector


@each_way
def test_the_scores_arrive(way: str, collector: Collector) -> None:
    """In the trace of the request, by the standard variables and ours; the output is the application's alone."""
    metrics = "unsupported_facts,latency"
    done = start(way, APPLICATION, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, RAGEVAL_METRICS=metrics)

    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWER, "")
    [found] = evaluations(collector)
    assert found["rageval.label.unsupported_facts"] == "fail"
    assert not any("groundedness" in name for name in found)
    assert len({span.trace_id for span in collector.spans}) == 1


@each_way
def test_a_wrong_setting_is_one_line(way: str, collector: Collector) -> None:
    """The application runs as if the package were not there."""
    done = start(way, APPLICATION, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, RAGEVAL_SAMPLE_RATE="often")

    assert (done.returncode, done.stdout) == (0, ANSWER)
    [line] = done.stderr.splitlines()
    assert line.startswith("rageval-hooks: answers are not evaluated: ")
    assert "sample_rate" in line
    assert not evaluations(collector)


def test_it_can_be_switched_off(collector: Collector) -> None:
    """By the variable that switches everything off."""
    done = start("launch", APPLICATION, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, RAGEVAL_ENABLED="false")

    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWER, "")
    assert not collector.spans


@pytest.mark.parametrize("disabled", ["rageval_hooks", "*"])
def test_opentelemetry_can_be_told_to_leave_us_out(disabled: str, collector: Collector) -> None:
    """By its own variable."""
    variables = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": disabled}
    if disabled != "*":
        variables["OTEL_TRACES_EXPORTER"] = "none"  # whatever else is installed here may trace
    done = start(
        "opentelemetry-instrument",
        "-c",
        f"import runpy, sys; runpy.run_path({str(APPLICATION)!r}, run_name='__main__')\n"
        "assert 'rageval_hooks' not in sys.modules",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        **variables,
    )

    assert done.returncode == 0, done.stderr
    assert not evaluations(collector)


def test_the_applications_own_call_counts(collector: Collector) -> None:
    """An application that calls ``instrument()`` has its own settings, whatever the environment says."""
    done = start(
        "launch",
        "-c",
        f"""
import runpy
import rageval_hooks
rageval_hooks.instrument(metrics=["latency"])
runpy.run_path({str(APPLICATION)!r}, run_name="__main__")
""",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        RAGEVAL_METRICS="groundedness",
    )

    assert (done.returncode, done.stdout) == (0, ANSWER), done.stderr
    assert [span.name for span in collector.spans if span.name.startswith("evaluate")] == ["evaluate latency"]


@each_way
def test_a_program_without_a_framework_pays_nothing(way: str) -> None:
    """No framework is imported for it, and no thread is started."""
    done = start(
        way,
        "-c",
        "import sys, threading\n"
        "assert not {'langchain_core', 'llama_index', 'torch'} & set(sys.modules), 'imported'\n"
        "assert not [thread for thread in threading.enumerate() if 'rageval' in thread.name], 'started'",
        OTEL_TRACES_EXPORTER="none",
    )

    assert (done.returncode, done.stderr) == (0, "")


FORKING = f"""
import os, runpy, sys
chain = runpy.run_path({str(APPLICATION)!r})["chain"]
chain.invoke("Asked in the parent")
for number in range(2):
    if os.fork() == 0:
        chain.invoke(f"Asked in child {{number}}")
        sys.exit(0)
for number in range(2):
    assert os.wait()[1] == 0
"""

SPAWNING = f"""
import multiprocessing, runpy

def answer(question):
    return runpy.run_path({str(APPLICATION)!r})["chain"].invoke(question)

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(answer, ["Asked in a child"])
        pool.close()
        pool.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@each_way
def test_children_of_a_pre_fork_server_are_evaluated(way: str, collector: Collector) -> None:
    """The chain is built in the parent; each process that answers delivers its scores."""
    done = start(way, "-c", FORKING, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(evaluations(collector)) == 3


def test_processes_that_the_application_starts_are_evaluated(collector: Collector, tmp_path: Path) -> None:
    """They inherit the environment."""
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNING)
    done = start("launch", script, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(evaluations(collector)) == 1


def test_another_sitecustomize_runs_too(tmp_path: Path) -> None:
    """For example that of a Linux distribution, or of another tool."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.customized = __name__, __file__\n")
    done = start(
        "launch",
        "-c",
        "import sys; print(*sys.customized, 'rageval_hooks.zero_code' in sys.modules)",
        PYTHONPATH=os.pathsep.join((str(tmp_path), os.getcwd())),
    )

    assert done.stdout.split() == ["sitecustomize", str(tmp_path / "sitecustomize.py"), "True"], done.stderr


def test_a_python_without_the_package_says_so(tmp_path: Path) -> None:
    """In the process that was started. The application runs all the same."""
    (tmp_path / "rageval_hooks").mkdir()
    (tmp_path / "rageval_hooks" / "__init__.py").write_text("raise ImportError('No module named rageval_hooks')")
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)']); print(2)"
    launched = f"""
import os, sys
from rageval_hooks.zero_code.launch import environment_with_startup
environment = environment_with_startup(os.environ)
paths = environment["PYTHONPATH"].split(os.pathsep)
environment["PYTHONPATH"] = os.pathsep.join([paths[0], {str(tmp_path)!r}, *paths[1:]])
os.execve(sys.executable, [sys.executable, "-c", {child!r}], environment)
"""
    done = subprocess.run([sys.executable, "-c", launched], capture_output=True, text=True, timeout=240, check=False)
    assert sorted(done.stdout.split()) == ["1", "2"]
    [line] = done.stderr.splitlines()
    assert line.startswith("rageval-hooks: answers are not evaluated: No module named rageval_hooks, in ")
