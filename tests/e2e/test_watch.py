"""``rageval-hooks watch`` with the real Phoenix and the real MLflow, killed at random moments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
class TestKills:
    def test_phoenix(self, phoenix: Phoenix, tmp_path: Path) -> None:
        """Each turn has one verdict, those that arrive late as well. The bad ones make a test set."""
        figures = kill("phoenix", phoenix.url)

        assert (figures["turns"], figures["missed"], figures["doubled"]) == (30, 0, 0)
        assert cases("phoenix", phoenix.url, tmp_path) == "collected 10 cases of 30 turns"

    def test_mlflow(self, tmp_path: Path) -> None:
        """MLflow would store a verdict that comes twice as two."""
        command = mlflow_command()
        if command is None:
            pytest.skip("no MLflow server: make e2e installs it, or set MLFLOW_COMMAND")
        with serve_mlflow(command, tmp_path) as url:
            figures = kill("mlflow", url)
            collected = cases("mlflow", url, tmp_path)

        assert (figures["turns"], figures["missed"], figures["doubled"]) == (30, 0, 0)
        assert collected == "collected 10 cases of 30 turns"
