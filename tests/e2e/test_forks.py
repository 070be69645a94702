"""Forks at random moments: no child hangs, every turn has scores or a reason, and no fork waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "forks.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_twenty_forks_at_work() -> None:
    """The benchmark with four processes that fork five times each."""
    command = [sys.executable, str(BENCHMARK), "--forks", "20", "--tier", "lexical"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert figures["evaluated"] == figures["judged"] == 20
