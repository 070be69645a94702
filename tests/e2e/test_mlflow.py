"""The demo against a real MLflow: what the person who opens the list of traces sees."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rageval_hooks import Evaluation, Score, Turn
from rageval_hooks.exporters.mlflow import MlflowExporter
from rageval_hooks.turn import SpanReference
from tests.e2e.mlflow_server import mlflow_command, serve_mlflow

WRONG = "How long is the new pier on Hallay and what did it cost?"


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real server, with the demo in it."""
    command = mlflow_command()
    if command is None:
        pytest.skip("no MLflow server: make e2e installs it, or set MLFLOW_COMMAND")
    with serve_mlflow(command, tmp_path_factory.mktemp("mlflow")) as url:
        printed = demo("--to", "mlflow", MLFLOW_TRACKING_URI=url)
        assert f"Open {url}/#/experiments/" in printed
        yield url


def demo(*options: str, **variables: str) -> str:
    """Run the demo and return what it prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MLFLOW_"))}
    script = "import sys; from rageval_hooks.cli import main; sys.argv[0] = 'rageval-hooks'; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "demo", *options, "--models", "lexical"],
        capture_output=True,
        text=True,
        timeout=170,
        # On a busy machine MLflow takes longer than the ten seconds that OTLP's exporter gives it.
        env={**clean, **variables, "HF_HUB_OFFLINE": "1", "OTEL_EXPORTER_OTLP_TIMEOUT": "60"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def search(url: str, text: str = "", experiment: str = "rageval-demo") -> list[dict[str, Any]]:
    """Return the traces of an experiment that a filter finds."""
    name = {"experiment_name": experiment}
    found = httpx.get(f"{url}/api/2.0/mlflow/experiments/get-by-name", params=name, timeout=60).raise_for_status()
    place = {"experiment_id": found.json()["experiment"]["experiment_id"]}
    body = {"locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": place}], "filter": text}
    response = httpx.post(f"{url}/api/3.0/mlflow/traces/search", json=body, timeout=60)
    traces: list[dict[str, Any]] = response.raise_for_status().json().get("traces", [])
    return traces


def test_scores_are_assessments_of_every_trace(mlflow: str) -> None:
    """The verdict first, and two more, each once."""
    traces = search(mlflow)

    assert len(traces) == 6
    for trace in traces:
        names = [item["assessment_name"] for item in trace["assessments"]]
        assert len(names) == len(set(names))
        assert {"verdict"} <= set(names) <= {"verdict", "faithfulness", "unsupported_facts"}
        newest = max(trace["assessments"], key=lambda item: item["create_time"])
        assert newest["assessment_name"] == "verdict"


def test_scores_come_by_themselves_where_spans_carry_mlflows_header(mlflow: str) -> None:
    """With the default exporters."""
    demo("--otlp", mlflow, OTEL_EXPORTER_OTLP_TRACES_HEADERS="x-mlflow-experiment-id=0")

    traces = search(mlflow, experiment="Default")
    assert len(traces) == 6
    assert all(trace["assessments"] for trace in traces)


@pytest.mark.parametrize("text", ["feedback.verdict = 'fail'", "feedback.unsupported_facts > 0"])
def test_the_filters_of_the_documentation_find_the_wrong_answer(mlflow: str, text: str) -> None:
    """By verdict and by number."""
    assert text in (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
    [trace] = search(mlflow, text)

    assert WRONG in trace["request_preview"]
    [score] = [item for item in trace["assessments"] if item["assessment_name"] == "unsupported_facts"]
    assert "41.2 million" in score["rationale"]


def test_the_pages_show_the_scores_the_documents_and_the_conversation(mlflow: str, browser: Any, out: Path) -> None:
    """In a browser: columns in the list, and a trace with its steps."""
    [trace] = search(mlflow, "feedback.unsupported_facts > 0")
    experiment = trace["trace_location"]["mlflow_experiment"]["experiment_id"]
    traces = f"{mlflow}/#/experiments/{experiment}/traces"
    page = browser.new_page(viewport={"width": 1600, "height": 560})
    # Nothing from other hosts: no fonts, no news.
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith(mlflow) else route.abort())
    page.set_default_timeout(90_000)
    try:
        page.goto(traces, wait_until="commit")
        page.get_by_text("Got it").click()
        page.locator("[aria-label='Close']").first.click()  # the assistant
        page.get_by_text("verdict").first.scroll_into_view_if_needed()
        page.get_by_text("Fail", exact=True).first.wait_for()
        listed = page.inner_text("body")
        page.screenshot(path=str(out / "mlflow-list.png"))

        page.set_viewport_size({"width": 1600, "height": 900})
        page.goto(f"{traces}?selectedEvaluationId={trace['trace_id']}", wait_until="commit")
        page.get_by_role("button", name="Assess").first.click()
        page.get_by_text("41.2 million").last.wait_for()
        assessed = page.inner_text("body")
        page.screenshot(path=str(out / "mlflow.png"))
        page.get_by_text("retrieval HandbookRetriever").first.click()
        page.get_by_text("score: 0.4").first.wait_for()
        retrieval = page.inner_text("body")
        page.get_by_text("chat extractive-demo").first.click()
        page.get_by_text("Assistant", exact=True).first.wait_for()
        chat = page.inner_text("body")
    finally:
        page.close()

    assert "Fail" in listed
    assert "unsupported_facts" in assessed
    assert "The old pier is now used by fishing boats" in retrieval
    assert "You answer passengers of a ferry company" in chat


def test_the_judges_verdict_overrides_the_local_one(mlflow: str) -> None:
    """The trace then has one valid verdict."""
    [trace] = search(mlflow, "feedback.verdict = 'fail'")
    found = trace["trace_id"].removeprefix("tr-")
    verdict = Score(name="verdict", value=1.0, label="good", annotator="LLM", model="judge", metric="trace")
    [local] = [item for item in trace["assessments"] if item["assessment_name"] == "verdict"]
    span = SpanReference(trace_id=found, span_id=local["span_id"])
    exporter = MlflowExporter(mlflow)
    exporter.export(Evaluation(turn=Turn(span=span), results=(verdict,), stage="background"))
    assert exporter.flush(60)
    exporter.shutdown(5)

    [after] = [one for one in search(mlflow) if one["trace_id"] == trace["trace_id"]]
    valid = [item for item in after["assessments"] if item["assessment_name"] == "verdict" and item["valid"]]
    assert [(item["source"]["source_type"], item["feedback"]["value"]) for item in valid] == [("LLM_JUDGE", "pass")]
