"""Fork at random moments, and count the children that hang, and the forks that wait.

    python benchmarks/forks.py --forks 200

Each run is a fresh process. It calls ``instrument()`` with the console exporter and a judge
(the client of ``openai``, on a server of this script), asks questions on two threads, and forks five times at random
moments of its first second: while models load, while the judge's client is created, while the console prints, and while
turns are evaluated. Each child asks one question and flushes. Exits with 1 if a child does not end, if its flush takes
longer than it was told, if its turn has neither scores nor a reason for their absence, or if a fork took long.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from _common import ROOT

sys.path.insert(0, str(ROOT))

FORKS_OF_A_RUN = 5
MOMENTS = 1.0
"""Seconds after ``instrument()`` in which a run forks."""

FLUSH_SECONDS = 20.0
CHILD_SECONDS = 40.0
MAX_WAIT = 0.2
"""Seconds that a fork may wait for us: 100 ms, and what a busy machine adds."""

STATS = ("turns", "evaluated", "in_progress", "dropped", "scored", "skipped", "failed", "undone", "models")


def run(url: str, folder: Path, tier: str, seed: int) -> None:
    """Be an application that forks. Writes a line for each fork to a file of the folder."""
    # The application.
    from tests.integrations.langchain.fakes import lcel

    # Functions that run before a fork run in reverse order: ours is between these two.
    times: dict[str, float] = {}
    os.register_at_fork(before=lambda: times.update(end=time.monotonic()))
    import rageval_hooks.runtime.fork

    os.register_at_fork(before=lambda: times.update(begin=time.monotonic()))
    from rageval_hooks.judges.openai import OpenAIJudge

    chance = random.Random(seed)
    sys.stderr = open(folder / f"{os.getpid()}.err", "w")  # noqa: SIM115 - for the console exporter, until the exit
    judge = OpenAIJudge("judge-model", base_url=url, api_key="sk-test")
    chain, over = lcel(), threading.Event()
    chain.invoke("warm up")  # LangChain imports some of its modules in the first call
    models = "lexical" if tier == "lexical" else {"cross_encoder": "lexical", "nlp": "lexical"}
    moments = sorted(chance.uniform(0, MOMENTS) for _ in range(FORKS_OF_A_RUN))
    handle = rageval_hooks.instrument(judge=judge, exporters=["console"], models=models, inline_budget_ms=500)
    begin = time.monotonic()

    def ask(name: str) -> None:
        for number in range(1000):
            if over.is_set():
                return
            chain.invoke(f"{name} {number}")
            over.wait(chance.uniform(0, 0.1))

    askers = [threading.Thread(target=ask, args=(name,), daemon=True) for name in ("first", "second")]
    for asker in askers:
        asker.start()
    children: dict[int, dict[str, Any]] = {}
    for moment in moments:
        time.sleep(max(0.0, begin + moment - time.monotonic()))
        pid = os.fork()
        if pid == 0:
            _be_a_child(handle, chain, folder)
        children[pid] = {"moment": moment, "waited": times["end"] - times["begin"]}
    over.set()
    for asker in askers:
        asker.join()
    for pid, facts in children.items():
        facts["end"] = _end_of(pid)
        found = folder / f"{pid}.json"
        facts |= json.loads(found.read_text()) if found.exists() else {}
        with open(folder / "forks.jsonl", "a") as file:
            file.write(json.dumps(facts) + "\n")
    handle.shutdown(5)


def _be_a_child(handle: Any, chain: Any, folder: Path) -> NoReturn:
    """Ask one question, flush, and write what became of it."""
    try:
        with open(folder / f"{os.getpid()}.stack", "w") as file:
            faulthandler.dump_traceback_later(CHILD_SECONDS - 5, exit=True, file=file)
            chain.invoke("child")
            began = time.monotonic()
            handle.flush(FLUSH_SECONDS)
            flushed = time.monotonic() - began
            if flushed > FLUSH_SECONDS / 2:
                faulthandler.dump_traceback(file)
            stats = handle.stats()
            found = {name: stats[name] for name in STATS} | {"flush": flushed, "answered": stats["judge"]["answered"]}
            (folder / f"{os.getpid()}.json").write_text(json.dumps(found))
            faulthandler.cancel_dump_traceback_later()
    finally:
        os._exit(0)


def _end_of(pid: int) -> int | None:
    """Return the exit status of a child; None if it had to be killed."""
    end = time.monotonic() + CHILD_SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def problem_of(facts: dict[str, Any]) -> str | None:
    """Return what went wrong with a child; None if nothing did."""
    if facts["end"] != 0 or "turns" not in facts:
        return "hung"
    if facts["flush"] > FLUSH_SECONDS + 1:
        return "flush was late"
    if facts["turns"] != 1 or facts["evaluated"] + facts["dropped"] != 1:
        return "a turn was lost"
    if facts["evaluated"] and not facts["scored"]:
        return "no scores"
    if facts["evaluated"] and not (facts["answered"] or facts["failed"] or facts["undone"]):
        return "not judged"
    return "the fork waited" if facts["waited"] > MAX_WAIT else None


def main() -> int:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=200)
    parser.add_argument("--tier", choices=["default", "lexical"], default="default")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--run", nargs=2, metavar=("URL", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run(given.run[0], Path(given.run[1]), given.tier, given.seed)
        return 0
    from tests.judges.server import JudgeServer, answer
    from tests.online.test_judge_stage import LABELS

    with tempfile.TemporaryDirectory() as name, JudgeServer() as server, contextlib.suppress(KeyboardInterrupt):
        server.otherwise(answer(LABELS))
        folder = Path(name)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "NO_PROXY": "*"}
        for number in range(-(-given.forks // FORKS_OF_A_RUN)):
            command = [
                sys.executable,
                "-W",
                "ignore",
                __file__,
                "--tier",
                given.tier,
                "--seed",
                str(given.seed + number),
            ]
            subprocess.run([*command, "--run", server.url, name], env=environment, timeout=300, check=True)
        found = [json.loads(line) for line in (folder / "forks.jsonl").read_text().splitlines()]
        problems = Counter(problem for facts in found if (problem := problem_of(facts)))
        for facts in found if problems else ():
            print(problem_of(facts), json.dumps(facts), file=sys.stderr)
        for stack in folder.glob("*.stack"):
            if stack.stat().st_size:
                print(stack.read_text(), file=sys.stderr)
    figures = {
        "forks": len(found),
        "seed": given.seed,
        "problems": dict(problems),
        "evaluated": sum(facts.get("evaluated", 0) for facts in found),
        "judged": sum(facts.get("answered", 0) for facts in found),
        "longest_wait_ms": round(1000 * max(facts["waited"] for facts in found), 1),
        "longest_flush_s": max(facts.get("flush", 0.0) for facts in found),
        "models": dict(Counter(str(facts.get("models")) for facts in found)),
    }
    print(json.dumps(figures))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
