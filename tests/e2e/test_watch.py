"""``rageval-hooks watch`` with the real Phoenix and the real MLflow, killed at random moments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import rageval_hooks
from tests.command import invoke
from tests.e2e.mlflow_server import mlflow_command, serve_mlflow
from tests.e2e.phoenix_server import Phoenix

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "watch_kills.py"


def kill(backend: str, url: str) -> dict[str, object]:
    """Run the benchmark with few turns and kills."""
    command = [sys.executable, "-W", "ignore", str(BENCHMARK), backend, url, "--traces", "30", "--kills", "2"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PHOENIX_", "MLFLOW_"))}
    environment = {**clean, "PYTHONPATH": str(BENCHMARK.parents[1]), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def cases(backend: str, url: str, folder: Path) -> str:
    """Collect the bad answers, and return what the command says."""
    output = folder / "cases.jsonl"
    done = invoke("collect", backend, url=url, project="watched", since="2h", models="lexical", output=output)
    return str(done.stdout).partition(":")[0]


def verdicts(backend: str, url: str) -> dict[str, int]:
    """Return how many answers have each verdict in a report on the backend."""
    done = invoke("report", backend, url=url, project="watched", since="2h", format="json")
    [file] = json.loads(done.stdout)["files"]
    return {label: count for label, count in file["verdicts"].items() if count}


def conversations(backend: str, url: str, project: str, sessions: list[str]) -> dict[str, tuple[int, int]]:
    """Return how many turns and how many good answers the one verdict of each session counts."""
    if backend == "phoenix":
        place = f"{url}/v1/projects/{project}/session_annotations"
        rows = httpx.get(place, params={"session_ids": sessions, "limit": 1000}).raise_for_status().json()["data"]
        found = [(row["session_id"], row["metadata"]) for row in rows if row["name"] == "good_answers"]
    else:
        about = httpx.get(f"{url}/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": project}).json()
        place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": about["experiment"]}
        answer = httpx.post(f"{url}/api/3.0/mlflow/traces/search", json={"locations": [place], "max_results": 500})
        rows = [row for trace in answer.raise_for_status().json()["traces"] for row in trace.get("assessments", ())]
        valid = [row["metadata"] for row in rows if row["assessment_name"] == "good_answers" and row.get("valid", True)]
        found = [(metadata["mlflow.trace.session"], metadata) for metadata in valid]
    assert len(found) == len({session for session, _ in found})
    return {session: (int(metadata["turns"]), int(metadata["good"])) for session, metadata in found}


SESSIONS = [f"session-{number}" for number in range(5)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
class TestKills:
    def test_phoenix(self, phoenix: Phoenix, tmp_path: Path) -> None:
        """Each turn has one verdict, those that arrive late as well. The bad ones make a test set."""
        figures = kill("phoenix", phoenix.url)

        assert (figures["turns"], figures["missed"], figures["doubled"]) == (30, 0, 0)
        assert cases("phoenix", phoenix.url, tmp_path) == "collected 10 cases of 30 turns"
        assert verdicts("phoenix", phoenix.url) == {"good": 20, "bad": 10}
        assert conversations("phoenix", phoenix.url, "watched", SESSIONS) == dict.fromkeys(SESSIONS, (6, 4))

    def test_mlflow(self, tmp_path: Path) -> None:
        """MLflow would store a verdict that comes twice as two."""
        command = mlflow_command()
        if command is None:
            pytest.skip("no MLflow server: make e2e installs it, or set MLFLOW_COMMAND")
        with serve_mlflow(command, tmp_path) as url:
            figures = kill("mlflow", url)
            collected = cases("mlflow", url, tmp_path)
            talks = conversations("mlflow", url, "watched", SESSIONS)
            shares = verdicts("mlflow", url)

        assert (figures["turns"], figures["missed"], figures["doubled"]) == (30, 0, 0)
        assert collected == "collected 10 cases of 30 turns"
        assert talks == dict.fromkeys(SESSIONS, (6, 4))
        assert shares == {"good": 20, "bad": 10}


def test_conversations_of_an_application_that_scores_its_turns(
    phoenix: Phoenix, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``watch`` scores no turn of it again, and writes the verdicts of its sessions."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", phoenix.url)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "openinference.project.name=talks")
    questions = [("When was the pier opened?", "2019"), ("Which year, please?", "1931"), ("How long is it?", "")]
    with rageval_hooks.instrument(models="lexical", exporters=["otel", "phoenix"]) as handle:
        for question, year in questions:
            with rageval_hooks.start_turn(question, session_id="ann") as turn:
                turn.add_passages(["The new pier was opened in September 2019 and is 96 metres long."])
                turn.respond(f"The pier was opened in September {year}." if year else "I don't know.")
        assert handle.flush(120)
    options = {"models": "lexical", "once": True, "settle": "0s", "checkpoint": tmp_path / "watch.db"}
    done = invoke("watch", "phoenix", url=phoenix.url, project="talks", **options)

    assert "scored 0 turns" in done.stdout
    assert conversations("phoenix", phoenix.url, "talks", ["ann"]) == {"ann": (3, 1)}
