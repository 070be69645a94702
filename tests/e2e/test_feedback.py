"""Somebody clicks a thumb in a browser, and the real Phoenix has the annotation of a person."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import rageval_hooks
from rageval_hooks import Turn
from rageval_hooks.exporters.mlflow import MlflowExporter
from rageval_hooks.offline.records import read_records
from rageval_hooks.runtime.threads import wait_until
from tests.command import invoke
from tests.e2e.mlflow_server import mlflow_command, serve_mlflow
from tests.e2e.phoenix_server import Phoenix

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "thumbs"

APPLICATION = """
def answer(question):
    passage = "The new pier was opened in September 2019 and is 96 metres long."
    return {{"answer": "The pier was opened in September {year}.", "contexts": [passage]}}
"""


@contextmanager
def chat(phoenix: Phoenix) -> Iterator[str]:
    """Serve the example while the block runs; it delivers what is pending when it ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_", "PHOENIX_"))
    }
    environment = {
        **clean,
        "OTEL_EXPORTER_OTLP_ENDPOINT": phoenix.url,
        "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={PROJECT}",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "uvicorn", "examples.fastapi_feedback:app", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, cwd=ROOT)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(url).is_success
        except httpx.TransportError:
            return False

    try:
        assert wait_until(answers, 60)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def annotations(phoenix: Phoenix, kind: str, ids: list[str]) -> list[dict[str, Any]]:
    """Return the annotations of spans or traces."""
    path = f"{phoenix.url}/v1/projects/{PROJECT}/{kind}_annotations"
    found: list[dict[str, Any]] = httpx.get(path, params={f"{kind}_ids": ids}).raise_for_status().json()["data"]
    return found


def collected(backend: str, url: str, folder: Path, **options: Any) -> Turn:
    """Collect the one bad answer."""
    output = folder / "cases.jsonl"
    invoke("collect", backend, url=url, since="1h", models="lexical", output=output, **options)
    [record] = read_records(output)
    return record.turn


def check(year: int, folder: Path) -> int:
    """Ask an application that names a year the collected questions, and return the exit status of the gate."""
    (folder / f"pier_{year}.py").write_text(APPLICATION.format(year=year))
    answers, scores = f"answers_{year}.jsonl", f"scores_{year}.jsonl"

    def run(*arguments: str) -> int:
        # In a process of its own: while Playwright runs, this thread has an event loop.
        command = [sys.executable, "-m", "rageval_hooks", *arguments]
        return subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode

    assert run("run", "cases.jsonl", "--app", f"pier_{year}:answer", "-o", answers) == 0
    assert run("score", answers, "--models", "lexical", "--metrics", "verdict", "-o", scores) == 0
    return run("report", scores, "--fail-under", "verdict.bad=0")


def test_a_thumb_becomes_an_annotation(phoenix: Phoenix, browser: Any, tmp_path: Path) -> None:
    """The last word of the person counts. It is next to the verdict on the same trace, and comes back as a label.

    The case is the regression test: it fails until the application is repaired.
    """
    with chat(phoenix) as url:
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.on("dialog", lambda dialog: dialog.accept("It was 2019."))
        page.goto(url)
        page.get_by_placeholder("Your question").fill("When was the pier opened?")
        page.get_by_role("button", name="Ask").click()
        page.get_by_role("button", name="good answer").click()
        page.get_by_text("Thank you.").wait_for()
        page.get_by_role("button", name="bad answer").click()
        page.get_by_text("Thank you. Thank you.").wait_for()
        text = page.inner_text("body")
        page.close()

    spans = httpx.get(f"{phoenix.url}/v1/projects/{PROJECT}/spans").raise_for_status().json()["data"]
    [trace_id] = {span["context"]["trace_id"] for span in spans}
    found = annotations(phoenix, "trace", [trace_id])
    [thumb] = [item for item in found if item["annotator_kind"] == "HUMAN"]
    [verdict] = [item for item in found if item["name"] == "verdict"]
    assert "The pier was opened in September 2018." in text
    assert thumb["result"] == {"label": "down", "score": 0.0, "explanation": "It was 2019."}
    assert verdict["result"]["label"] == "bad"
    turn = collected("phoenix", phoenix.url, tmp_path, project=PROJECT)
    assert (turn.query, turn.metadata["label"]) == ("When was the pier opened?", "down")
    assert httpx.get(turn.metadata["trace_url"], follow_redirects=True).is_success
    assert check(2018, tmp_path) == 1
    assert check(2019, tmp_path) == 0


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the list of traces there is one feedback of each person: the last one."""
    command = mlflow_command()
    if command is None:
        pytest.skip("no MLflow server: make e2e installs it, or set MLFLOW_COMMAND")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-mlflow-experiment-id=0")
    with serve_mlflow(command, tmp_path) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        with rageval_hooks.instrument(models="lexical", exporters=["otel", MlflowExporter(url)]) as handle:
            with rageval_hooks.start_turn("When was the pier opened?") as turn:
                turn.add_passages(["The new pier was opened in September 2019."])
                turn.respond("The pier was opened in September 2018.")
            handle.feedback(turn.trace_id, True, annotator="ada")
            assert handle.flush(120)
            handle.feedback(turn.trace_id, False, annotator="ada", comment="It was 2019.")
            handle.feedback(turn.trace_id, False, annotator="bob")
            assert handle.flush(120)
        answer = httpx.get(f"{url}/api/3.0/mlflow/traces/tr-{turn.trace_id}", timeout=60).raise_for_status().json()
        case = collected("mlflow", url, tmp_path)

    found = answer["trace"]["trace_info"]["assessments"]
    people = [item for item in found if item["source"]["source_type"] == "HUMAN" and item.get("valid", True)]
    assert {(item["source"]["source_id"], item["feedback"]["value"]) for item in people} == {
        ("ada", False),
        ("bob", False),
    }
    assert {item.get("rationale") for item in people} == {"It was 2019.", None}
    assert case.metadata["label"] == {"ada": "down", "bob": "down"}
    assert (check(2018, tmp_path), check(2019, tmp_path)) == (1, 0)
