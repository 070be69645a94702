"""Kill processes at random moments under load, and count the jobs of the spool that are lost or judged twice.

    python benchmarks/spool_kills.py --runs 200

Each run starts a process that evaluates turns with ``dispatch="spool"`` and kills it with SIGKILL after a random time
of up to a second. Two such processes share the spool; the second is killed in a later run. The judge gives random
values, so that a turn that was judged twice is seen. A trigger in the spool's file notes every job that was stored. At
the end one process evaluates the remaining jobs. Exits with 1 if a stored job has no result, or two.

Counted too: turns that were exported and whose job was not in the file yet when their process was killed, or the other
way round; and results that were delivered more than once, with the same id and value.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel

from rageval_hooks import Passage, Turn
from rageval_hooks.exporters.jsonl import JsonlExporter
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.metrics import JudgeMetric, ScoreDefinition
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.spool_file import SpoolFile
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.settings import Settings
from rageval_hooks.turn import SpanReference

LEASE = 1.0
PAUSE = 0.004
DRAIN_SECONDS = 120.0


class Grade(BaseModel):
    value: float


class Dice(JudgeMetric):
    """A judge metric whose value differs each time."""

    name = "dice"
    version = "1"
    scores = (ScoreDefinition(name="dice", description="a random number"),)
    requires = ("response",)

    async def evaluate(self, case: Any) -> Any:
        judgement = await case.judge.complete([("user", "roll the dice")], Grade)
        return self.judged(judgement.value.value, judgement)


async def roll(_: Any) -> dict[str, float]:
    await asyncio.sleep(random.uniform(0, 0.05))
    return {"value": random.random()}


def make_turn() -> Turn:
    passages = (Passage(text="word " * random.randrange(1, 400)),)
    span = SpanReference(trace_id=os.urandom(16).hex(), span_id=os.urandom(8).hex())
    return Turn(id=os.urandom(8).hex(), query="a question", response="an answer", passages=passages, span=span)


def pipeline(folder: Path) -> Pipeline:
    return Pipeline.build(
        metrics=[Dice()],
        exporters=[JsonlExporter(folder / "scores.jsonl")],
        judge=FakeJudge(roll),
        dispatch="spool",
        spool_path=str(folder / "spool.db"),
        spool_lease=LEASE,
        inline_budget_ms=0,
    )


def produce(folder: Path) -> NoReturn:
    """Submit turns until this process is killed."""
    random.seed()
    working = pipeline(folder)
    while True:
        working.submit(EndedTurn.of(make_turn()))
        time.sleep(random.uniform(0, 2 * PAUSE))


def drain(folder: Path) -> int:
    """Evaluate all jobs of the spool; return the exit status."""
    random.seed()
    working = pipeline(folder)
    end = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < end and jobs_left(folder):
        time.sleep(0.1)
    done = working.shutdown(10)
    return 0 if done and not jobs_left(folder) else 1


def jobs_left(folder: Path) -> int:
    with sqlite3.connect(folder / "spool.db", timeout=10) as database:
        return int(database.execute("SELECT COUNT(*) FROM jobs").fetchone()[0])


def start(target: Any, *arguments: Any) -> int:
    """Run a function in a forked process: this process has no threads, and a fork takes milliseconds."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        status = target(*arguments)
    finally:
        os._exit(status)


def prepare(folder: Path) -> None:
    """Create the spool's file, with a trigger that notes each stored job together with the job."""
    file = SpoolFile(Settings.build(spool_path=str(folder / "spool.db")))
    with file.transaction():
        pass
    with sqlite3.connect(folder / "spool.db") as database:
        database.execute("CREATE TABLE seen (turn TEXT NOT NULL)")
        database.execute(
            "CREATE TRIGGER note AFTER INSERT ON texts BEGIN "
            "INSERT INTO seen VALUES (json_extract(NEW.job, '$.turn.id')); END"
        )


def kill_at_random(folder: Path, runs: int) -> None:
    """Start a process for each run; kill it, or the one before it, after a random time."""
    alive: list[int] = []
    for _ in range(runs):
        alive.append(start(produce, folder))
        time.sleep(random.uniform(0.02, 1.0))
        if len(alive) > 1:
            kill(alive.pop(random.randrange(2)))
    for pid in alive:
        kill(pid)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def report(folder: Path, runs: int) -> int:
    """Print the figures; return the exit status."""
    with sqlite3.connect(folder / "spool.db") as database:
        stored = {turn for (turn,) in database.execute("SELECT turn FROM seen")}
    inline: set[str] = set()
    values: dict[str, set[tuple[str, float]]] = defaultdict(set)
    deliveries = torn = 0
    for line in (folder / "scores.jsonl").read_bytes().splitlines():
        try:
            evaluation = json.loads(line)
        except ValueError:  # a process was killed while it wrote
            torn += 1
            continue
        turn = evaluation["turn"]["id"]
        if evaluation["stage"] == "inline":
            inline.add(turn)
            continue
        for result in evaluation["results"]:
            deliveries += 1
            values[turn].add((evaluation["id"], result["value"]))
    figures = {
        "runs": runs,
        "stored": len(stored),
        "lost": len(stored - values.keys()),
        "doubled": sum(len(found) > 1 for found in values.values()),
        "delivered_again": deliveries - len(values),
        "not_stored_when_killed": len(inline - stored),
        "not_exported_when_killed": len(stored - inline),
        "torn_lines": torn,
    }
    print(json.dumps(figures))
    return 1 if figures["lost"] or figures["doubled"] or not stored else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        kill_at_random(folder, given.runs)
        drained = os.waitstatus_to_exitcode(os.waitpid(start(drain, folder), 0)[1])
        return report(folder, given.runs) or drained


if __name__ == "__main__":
    sys.exit(main())
