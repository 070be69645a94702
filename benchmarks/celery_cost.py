"""What does ``dispatch="celery"`` cost, compared with ``dispatch="thread"``?

    python benchmarks/celery_cost.py --turns 500

One application asks questions that a judge of this script scores; with ``thread`` it asks the judge itself, with
``celery`` a worker does. Both are run in turn, so that the machine's speed is the same for both. Prints the time that a
turn adds to the application's thread, and the CPU per turn of all processes: application, worker and broker (Redis).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.judges.server import JudgeServer, answer
from tests.online.test_judge_stage import LABELS

ROOT = Path(__file__).resolve().parent.parent
APPLICATION = """
import json, sys, time
import rageval_hooks

handle = rageval_hooks.instrument()
text = "The pier was opened in 2018, and it is a hundred and twenty metres long. " * 15

def ask(number):
    begun = time.perf_counter()
    with rageval_hooks.start_turn(f"question {number}") as turn:
        turn.add_passages([f"{number} {n} {text}" for n in range(5)])
        turn.respond("It was opened in 2018.")
    return time.perf_counter() - begun

for number in range(20):
    ask(-number)
handle.flush(60)
cpu = time.process_time()
times = []
for number in range(int(sys.argv[1])):
    times.append(ask(number))
    time.sleep(0.01)
handle.flush(120)
print(json.dumps({"times": times, "cpu": time.process_time() - cpu}))
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def cpu_of(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children."""
    return sum(sum(one.cpu_times()[:2]) for one in (process, *process.children(recursive=True)))


def run(
    dispatch: str, turns: int, environment: dict[str, str], others: list[psutil.Process], judged: Any
) -> dict[str, Any]:
    """Run the application once. Returns its times, and the CPU seconds of all processes for the measured turns."""
    before = sum(map(cpu_of, others))
    first = len(judged)
    done = subprocess.run(
        [sys.executable, "-c", APPLICATION, str(turns)],
        env={**environment, "RAGEVAL_DISPATCH": dispatch},
        capture_output=True,
        text=True,
        check=True,
    )
    while len(judged) - first < turns + 20:
        time.sleep(0.1)
    time.sleep(1)
    figures = json.loads(done.stdout)
    share = turns / (turns + 20)  # the others had the warm-up, too
    return {"times": figures["times"], "cpu": figures["cpu"] + (sum(map(cpu_of, others)) - before) * share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, JudgeServer() as judge:
        judge.otherwise(answer(LABELS))
        environment = {
            **os.environ,
            "NO_PROXY": "*",
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": judge.url,
            "PYTHONPATH": str(ROOT),
            "RAGEVAL_BROKER": f"redis://127.0.0.1:{port}/0",
            "RAGEVAL_EXPORTERS": "jsonl",
            "RAGEVAL_JSONL_PATH": f"{folder}/scores.jsonl",
            "RAGEVAL_JUDGE": "openai:judge-model",
            "RAGEVAL_METRICS": "latency,trace",
            "RAGEVAL_MODELS": "lexical",
        }
        redis = [str(shutil.which("redis-server")), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
        broker = subprocess.Popen(redis, stdout=subprocess.DEVNULL, cwd=folder)
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "rageval_hooks.workers",
            "worker",
            "--pool",
            "threads",
            "-c",
            "8",
        ]
        worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            others = [psutil.Process(broker.pid), psutil.Process(worker.pid)]
            time.sleep(5)
            runs: dict[str, list[dict[str, Any]]] = {"thread": [], "celery": []}
            for _ in range(options.rounds):
                for dispatch, figures in runs.items():
                    figures.append(run(dispatch, options.turns, environment, others, judge.requests))
        finally:
            worker.terminate()
            worker.wait(30)
            broker.terminate()
            broker.wait(10)
    p50 = {name: statistics.median(t for run in found for t in run["times"]) * 1e3 for name, found in runs.items()}
    cpu = {name: min(run["cpu"] for run in found) / options.turns * 1e3 for name, found in runs.items()}
    print("dispatch   time of a turn, median (ms)   CPU per turn, all processes (ms)")
    for name in runs:
        print(f"{name:8}   {p50[name]:27.2f}   {cpu[name]:32.2f}")
    print(f"added      {p50['celery'] - p50['thread']:27.2f}   {cpu['celery'] - cpu['thread']:32.2f}")


if __name__ == "__main__":
    main()
