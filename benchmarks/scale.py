"""More than one machine, measured on this one: ratios of one run.

    python benchmarks/scale.py celery [--turns 300] [--rounds 3]   # what a broker adds; needs redis-server
    python benchmarks/scale.py workers [--turns 600]               # two Celery workers against one, local metrics
    python benchmarks/scale.py ray [--rows 200000] [--rounds 1]    # --engine ray against --workers 2
    python benchmarks/scale.py memory [--rows 1000000] [--metrics NAME,NAME]  # for 10,000 and these rows

``celery``: one application asks questions that a judge of this script scores. With ``thread`` it asks the judge itself,
with ``celery`` a worker does. Both are run in turn. Prints the time that a turn adds to the application's thread, the
CPU per turn of application, worker and broker, and the bytes that the broker receives.

``workers``: the jobs wait at the broker; then one worker, and after that two, compute all local metrics (lexical).

``ray``, ``memory``: files of 10,000 rows in Parquet, lexical tier, two workers or actors. The memory is that of all
processes of the command (PSS, Ray's own included), sampled every two seconds: with Ray's thirteen processes a sample
takes 35 ms of CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from _common import ROOT

sys.path.insert(0, str(ROOT))

from tests.e2e.test_workers import free_port
from tests.judges.server import JudgeServer, answer
from tests.online.test_judge_stage import LABELS

FILE_ROWS = 10_000
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


def cpu_of(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children."""
    return sum(sum(one.cpu_times()[:2]) for one in (process, *process.children(recursive=True)))


@contextmanager
def broker(folder: str) -> Iterator[tuple[psutil.Process, int]]:
    port = free_port()
    command = [str(shutil.which("redis-server")), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder)
    try:
        time.sleep(1)
        yield psutil.Process(server.pid), port
    finally:
        server.terminate()
        server.wait(10)


@contextmanager
def worker(environment: dict[str, str], *options: str) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "celery", "-A", "rageval_hooks.workers", "worker", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def settings(folder: str, port: int, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "NO_PROXY": "*",
        "OPENAI_API_KEY": "sk-test",
        "PYTHONPATH": str(ROOT),
        "RAGEVAL_BROKER": f"redis://127.0.0.1:{port}/0",
        "RAGEVAL_DISPATCH": "celery",
        "RAGEVAL_EXPORTERS": "jsonl",
        "RAGEVAL_JSONL_PATH": f"{folder}/scores.jsonl",
        "RAGEVAL_MODELS": "lexical",
        **more,
    }


def ask(environment: dict[str, str], turns: int) -> dict[str, Any]:
    command = [sys.executable, "-c", APPLICATION, str(turns)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def redis_bytes(port: int) -> int:
    import redis

    return int(redis.Redis(port=port).info("stats")["total_net_input_bytes"])


def celery_cost(turns: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, JudgeServer() as judge, broker(folder) as (server, port):
        judge.otherwise(answer(LABELS))
        judging_by = {"OPENAI_BASE_URL": judge.url, "RAGEVAL_JUDGE": "openai:judge-model"}
        environment = settings(folder, port, **judging_by, RAGEVAL_METRICS="latency,trace")
        runs: dict[str, list[dict[str, float]]] = {"thread": [], "celery": []}
        with worker(environment, "--pool", "threads", "-c", "8") as judging:
            time.sleep(5)
            for _ in range(rounds):
                for dispatch, figures in runs.items():
                    first, received = len(judge.requests), redis_bytes(port)
                    before = cpu_of(judging), cpu_of(server)
                    found = ask({**environment, "RAGEVAL_DISPATCH": dispatch}, turns)
                    while len(judge.requests) - first < turns + 20:
                        time.sleep(0.1)
                    time.sleep(1)
                    asked = turns + 20  # the others had the warm-up, too
                    figures.append(
                        {
                            "time": statistics.median(found["times"]) * 1e3,
                            "application": found["cpu"] / turns * 1e3,
                            "worker": (cpu_of(judging) - before[0]) / asked * 1e3,
                            "broker": (cpu_of(server) - before[1]) / asked * 1e3,
                            "bytes": (redis_bytes(port) - received) / asked,
                        }
                    )
            memory = sum(one.memory_info().rss for one in (judging, *judging.children(recursive=True))) / 2**20
    print("milliseconds per turn, the least of the rounds; bytes to the broker per turn")
    least = {name: {key: min(run[key] for run in found) for key in found[0]} for name, found in runs.items()}
    for name, figures in least.items():
        print(f"{name:8}", "   ".join(f"{key} {value:,.2f}" for key, value in figures.items()))
    cpu = {name: figures["application"] + figures["worker"] + figures["broker"] for name, figures in least.items()}
    print(f"added: {least['celery']['time'] - least['thread']['time']:.2f} ms in the application's thread,", end=" ")
    print(f"{cpu['celery'] - cpu['thread']:.2f} ms of CPU in all processes; the worker has {memory:.0f} MiB")


def celery_workers(turns: int) -> None:
    rates = {}
    for number in (1, 2):
        with tempfile.TemporaryDirectory() as folder, broker(folder) as (_, port):
            scores = Path(folder) / "worker.jsonl"
            environment = settings(folder, port, RAGEVAL_INLINE_BUDGET_MS="0")
            ask(environment, turns)

            def done(scores: Path = scores) -> int:
                return scores.read_bytes().count(b"\n") if scores.exists() else 0

            environment |= {"RAGEVAL_JSONL_PATH": str(scores)}
            with worker(environment, "-c", str(number), "--without-gossip", "--without-mingle") as computing:
                # From the tenth part on: both workers have started by then.
                while done() < turns // 10:
                    time.sleep(0.02)
                first, begun, before = done(), time.perf_counter(), cpu_of(computing)
                while done() < turns:
                    time.sleep(0.02)
                jobs = done() - first
                rates[number] = jobs / (time.perf_counter() - begun)
                cpu = (cpu_of(computing) - before) / jobs * 1e3
            print(f"{number} worker(s): {rates[number]:.0f} jobs/s, {cpu:.1f} ms of CPU per job")
    print(f"two against one: {rates[2] / rates[1]:.2f}")


def write_rows(folder: Path, rows: int) -> None:
    """Write rows of about 2.5 kB, which differ: two sentences, four passages."""
    import pandas

    words = (ROOT / "examples" / "handbook" / "passages.md").read_text().split()
    draw = random.Random(1)

    def text(count: int) -> str:
        at = draw.randrange(len(words) - count)
        return " ".join(words[at : at + count])

    folder.mkdir()
    for start in range(0, rows, FILE_ROWS):
        made = [
            {
                "question": f"{text(9)} {number}?",
                "answer": f"{text(14)}. In {1900 + number % 120}, {text(12)}.",
                "contexts": [text(90) for _ in range(4)],
            }
            for number in range(start, min(start + FILE_ROWS, rows))
        ]
        pandas.DataFrame(made).to_parquet(folder / f"{start // FILE_ROWS:04}.parquet")


def score(arguments: list[str]) -> tuple[float, float]:
    """Run ``rageval-hooks score``; return its seconds, and the most memory of all its processes in MiB."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", "from rageval_hooks.cli import main; main()", "score", *arguments]
    begun, most = time.perf_counter(), 0.0
    running = subprocess.Popen(
        [*command, "--models", "lexical", "--workers", "2"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while running.poll() is None:
        total = 0
        # Processes end while they are counted.
        with suppress(psutil.Error):
            for process in (found := psutil.Process(running.pid), *found.children(recursive=True)):
                with suppress(psutil.Error):
                    total += process.memory_full_info().pss
        most = max(most, total / 2**20)
        with suppress(subprocess.TimeoutExpired):
            running.wait(2)
    if running.returncode:
        raise SystemExit(f"{' '.join(arguments)}: exit status {running.returncode}")
    return time.perf_counter() - begun, most


def ray_speed(rows: int, rounds: int) -> None:
    """Print the time per row beyond the start, which is that of ten rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "few", 10)
        write_rows(folder / "in", rows)
        files = sorted(map(str, (folder / "in").iterdir()))
        for _ in range(rounds):
            start, _ = score([str(folder / "few"), "-o", str(folder / "first"), "--engine", "ray", "--restart"])
            ray, _ = score([str(folder / "in"), "-o", str(folder / "out"), "--engine", "ray", "--restart"])
            print(f"ray: {ray:.1f} s, of which {start:.1f} s are its start; {rows / ray:.0f} rows/s")
            # The local engine takes one file: the same rows, as JSON Lines.
            import pandas

            joined = folder / "in.jsonl"
            pandas.concat(map(pandas.read_parquet, files)).to_json(joined, orient="records", lines=True)
            local, _ = score([str(joined), "-o", str(folder / "local.jsonl"), "--restart"])
            print(f"--workers 2: {local:.1f} s, {rows / local:.0f} rows/s")
            print(
                f"ray against --workers 2: {ray / local:.2f} of the time, without its start {(ray - start) / local:.2f}"
            )


def ray_memory(rows: int, metrics: str) -> None:
    for number in (FILE_ROWS, rows):
        with tempfile.TemporaryDirectory() as name:
            write_rows(Path(name) / "in", number)
            command = [f"{name}/in", "-o", f"{name}/out", "--engine", "ray"]
            command += ["--metrics", metrics] if metrics else []
            seconds, memory = score(command)
            print(f"{number:,} rows: {seconds:.0f} s, {memory:.0f} MiB in all processes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["celery", "workers", "ray", "memory"])
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--metrics", default="")
    given = parser.parse_args()
    parts = {
        "celery": lambda: celery_cost(given.turns, given.rounds),
        "workers": lambda: celery_workers(given.turns),
        "ray": lambda: ray_speed(given.rows, given.rounds),
        "memory": lambda: ray_memory(given.rows, given.metrics),
    }
    parts[given.part]()


if __name__ == "__main__":
    main()
