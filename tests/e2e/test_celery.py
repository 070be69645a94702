"""Celery's prefork workers: a worker process that shuts down finishes what its turns have left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APP = """
import asyncio
from celery import Celery
import rageval_hooks
from rageval_hooks.testing import FakeJudge
from tests.integrations.langchain.fakes import lcel
from tests.online.test_judge_stage import LABELS

app = Celery("worker_app", broker="filesystem://")
app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control"}

async def slow(call):
    await asyncio.sleep(1.5)
    return LABELS

rageval_hooks.instrument(judge=FakeJudge(slow), metrics="trace", models="lexical")

@app.task
def ask(question):
    return lcel().invoke(question)
"""


def questions(path: Path, stage: str) -> list[str]:
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted(item["turn"]["query"] for item in map(json.loads, lines) if item["stage"] == stage)


def test_a_worker_that_shuts_down_delivers_late_scores(tmp_path: Path) -> None:
    """Its processes end without exit handlers, and the judge takes longer than Celery waits."""
    pytest.importorskip("celery", reason="pip install celery")
    (tmp_path / "worker_app.py").write_text(APP)
    for folder in ("queue", "control"):
        (tmp_path / folder).mkdir()
    out = tmp_path / "out.jsonl"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "RAGEVAL_EXPORTERS": "jsonl",
        "RAGEVAL_JSONL_PATH": str(out),
    }
    send = "from worker_app import ask\nfor number in range(6):\n    ask.delay(f'question {number}')"
    subprocess.run([sys.executable, "-c", send], cwd=tmp_path, env=environment, check=True, timeout=120)
    command = [sys.executable, "-m", "celery", "-A", "worker_app", "worker", "-P", "prefork", "-c", "2"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True) as worker:
        deadline = time.monotonic() + 120
        while len(questions(out, "inline")) < 6 and time.monotonic() < deadline:
            time.sleep(0.1)
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)

    expected = [f"question {number}" for number in range(6)]
    assert questions(out, "inline") == questions(out, "background") == expected
