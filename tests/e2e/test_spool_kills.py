"""SIGKILL at random moments: no stored job is lost, and none is judged twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "spool_kills.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_ten_kills_under_load() -> None:
    """The benchmark with ten processes; it kills each after a random time of up to a second."""
    command = [sys.executable, str(BENCHMARK), "--runs", "10"]
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARK.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["stored"] > 0
    assert figures["lost"] == figures["doubled"] == 0
