"""Kill Celery workers with SIGKILL at random times, and count the scores that a backend lacks or has twice.

    python benchmarks/worker_kills.py phoenix [--jobs 500] [--kills 50]   # ten minutes; needs rabbitmq-server
    python benchmarks/worker_kills.py mlflow

An application publishes the jobs, a real RabbitMQ keeps them, and two workers judge them, with a judge that takes half
a second. One worker at a time is killed after up to eight seconds, often before it is ready. The last two finish the
rest. Then the database of the server is read: each turn must have each score of its judge metric once. Exits with 1
otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _common import ROOT

sys.path.insert(0, str(ROOT))

from tests.e2e.mlflow_server import mlflow_command, serve_mlflow
from tests.e2e.phoenix_server import serve_phoenix
from tests.e2e.test_workers import Team, free_port, rabbitmq
from tests.judges.server import Gate, JudgeServer, Reply, answer, held
from tests.online.test_judge_stage import LABELS

JUDGE_SECONDS = 0.5
SCORE = "trace.adherence"
QUERIES = {
    "phoenix": (
        "phoenix.db",
        "SELECT spans.span_id FROM span_annotations a JOIN spans ON spans.id = a.span_rowid WHERE a.name = ?",
    ),
    "mlflow": ("mlflow.db", "SELECT trace_id FROM assessments WHERE name = ? AND valid"),
}


def slow(_: Any) -> Reply:
    gate = Gate()
    threading.Timer(JUDGE_SECONDS, gate.set).start()
    return held(answer(LABELS), gate)


def stored(backend: str, folder: Path) -> Counter[str]:
    """Return how often each turn has the score."""
    name, query = QUERIES[backend]
    with sqlite3.connect(f"file:{folder / name}?mode=ro", uri=True, timeout=30) as database:
        return Counter(found for (found,) in database.execute(query, (SCORE,)))


def run(backend: str, folder: Path, url: str, jobs: int, kills: int, judge: JudgeServer) -> int:
    port = free_port()
    (folder / "rabbitmq").mkdir()
    with rabbitmq(folder / "rabbitmq", port):
        team = Team(folder, f"amqp://127.0.0.1:{port}//", judge)
        team.environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-mlflow-experiment-id=0",
            "RAGEVAL_EXPORTERS": f"otel,{backend}",
            "MLFLOW_TRACKING_URI": url,
            "PHOENIX_COLLECTOR_ENDPOINT": url,
        }
        try:
            # In groups: MLflow takes some seconds for a hundred traces, and the SDK gives up after ten.
            for start in range(0, jobs, 50):
                team.ask(min(50, jobs - start), f"question {start}")
            alive = [team.start_worker(), team.start_worker()]
            early = 0
            for _ in range(kills):
                time.sleep(random.uniform(0, 8))
                victim = alive.pop(random.randrange(2))
                os.killpg(victim.pid, signal.SIGKILL)
                victim.wait()
                early += sum(stored(backend, folder).values()) < jobs
                alive.append(team.start_worker())
            at_last_kill, end = sum(stored(backend, folder).values()), time.monotonic() + 300
            while len(stored(backend, folder)) < jobs and time.monotonic() < end:
                time.sleep(1)
            time.sleep(10)  # what comes twice may come late
        finally:
            team.stop()
        shown = team.jobs().stdout.split("\n")
    counts = stored(backend, folder)
    figures = {
        "jobs": jobs,
        "kills": kills,
        "kills with jobs left": early,
        "scored at the last kill": at_last_kill,
        "requests to the judge": len(judge.requests),
        "lost": jobs - len(counts),
        "doubled": sum(count > 1 for count in counts.values()),
        "broker": shown,
    }
    print(json.dumps(figures))
    return 1 if figures["lost"] or figures["doubled"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=list(QUERIES))
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--kills", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, JudgeServer() as judge:
        judge.otherwise(slow)
        folder = Path(name)
        if given.backend == "phoenix":
            with serve_phoenix(folder) as server:
                return run("phoenix", folder, server.url, given.jobs, given.kills, judge)
        with serve_mlflow(str(mlflow_command()), folder) as url:
            return run("mlflow", folder, url, given.jobs, given.kills, judge)


if __name__ == "__main__":
    sys.exit(main())
