"""Rows per CPU second of the lexical tier, next to another checkout of this package.

    .venv/bin/python benchmarks/rows.py FILE.jsonl --against CHECKOUT [--rows 1200] [--block 50] [--details none]
        [--metrics groundedness,unsupported_facts]
    .venv/bin/python benchmarks/rows.py FILE.jsonl --against CHECKOUT --command [--rounds 3] [--workers 1] ...

FILE is any file that ``rageval-hooks score`` reads. Two processes, one per checkout, score the same block of rows by
turns, so that the load of the machine changes both alike. Each counts its own CPU time, from the parsed row to the line
of JSON, in one thread. Says whether the lines are the same. Also prints the CPU time of one turn as
benchmarks/request_path.py makes them: five passages of about 1,100 characters that are new each time, one sentence.

``--command`` measures what a user runs: ``rageval-hooks score FILE``, with each checkout by turns. It counts user and
system time, also that of worker processes. The start of the command is measured with a file of one row.

A checkout of an older commit: git worktree add ../old COMMIT.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from _environments import ROOT

_WARM = 20
_TURNS = 60


class Child:
    """A process that scores with one checkout."""

    def __init__(self, checkout: Path, given: argparse.Namespace) -> None:
        command = [sys.executable, __file__, str(given.file), "--child", str(checkout.resolve())]
        command += ["--rows", str(given.rows), "--details", given.details]
        command += ["--metrics", given.metrics] if given.metrics else []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, first: int, last: int) -> tuple[float, Any]:
        """Return the CPU seconds for some rows, and their results; negative positions stand for new turns."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process has no pipes")
        self._process.stdin.write(json.dumps([first, last]) + "\n")
        self._process.stdin.flush()
        seconds, lines = json.loads(self._process.stdout.readline())
        return seconds, lines

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def _serve(given: argparse.Namespace) -> None:
    """Score rows with the checkout that ``--child`` names, as the parent asks for them."""
    sys.path.insert(0, given.child)
    records, score = _load(given)
    for record in records[:_WARM]:
        score(record)
    turns = _new_turns()
    for line in sys.stdin:
        first, last = json.loads(line)
        work = [next(turns) for _ in range(_TURNS)] if first < 0 else records[first:last]
        started = time.process_time()
        lines = [score(record) for record in work]
        print(json.dumps([time.process_time() - started, [] if first < 0 else lines]), flush=True)


def _load(given: argparse.Namespace) -> tuple[list[Any], Callable[[Any], str]]:
    """Return the records of the file and the function that scores one, by the checkout that comes first in the path."""
    from rageval_hooks.offline.records import read_records

    return list(read_records(given.file))[: given.rows], _scorer(given.metrics, given.details)


def _scorer(metrics: str | None, details: Any) -> Callable[[Any], str]:
    from rageval_hooks.offline.scoring.score_file import build_pipeline
    from rageval_hooks.offline.scoring.workers import with_details

    engine = build_pipeline(metrics=metrics, models="lexical", concurrency=1).engine

    def score(record: Any) -> str:
        analysis = engine.analyze(record.turn).patient()
        evaluation, _ = engine.evaluate_local(engine.job(record.turn), analysis)
        results = tuple(with_details(result, details) for result in evaluation.results)
        line: str = record.model_copy(update={"results": results}).to_json()
        return line

    return score


def _new_turns() -> Iterator[Any]:
    """Yield turns of the size of benchmarks/request_path.py, whose passages were never seen before."""
    from rageval_hooks import Passage, Turn
    from rageval_hooks.offline.records.record import Record

    sys.path.insert(0, str(ROOT / "benchmarks"))
    from request_path import passage

    random.seed(3)
    while True:
        texts = [passage().page_content for _ in range(5)]
        turn = Turn(
            query="When was the pier opened?",
            response=texts[0].split(". ")[0] + ".",
            passages=tuple(Passage(text=text) for text in texts),
        )
        yield Record(id="turn", turn=turn)


def _measure_command(given: argparse.Namespace) -> None:
    """Print the rows per CPU second of the whole command with both checkouts."""
    rows = [line for line in given.file.read_text("utf-8").splitlines() if line.strip()]
    starts: list[list[float]] = [[], []]
    wholes: list[list[float]] = [[], []]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one_row = folder / "one.jsonl"
        one_row.write_text(rows[0] + "\n", "utf-8")
        for _ in range(given.rounds):
            for column, checkout in enumerate((given.against.resolve(), ROOT)):
                starts[column].append(_command_seconds(checkout, one_row, folder, given))
                wholes[column].append(_command_seconds(checkout, given.file.resolve(), folder, given))
    old_start, new_start = map(statistics.median, starts)
    old, new = map(statistics.median, wholes)
    print(f"CPU seconds of the command for {len(rows)} rows: {old:.2f} before, {new:.2f} now; times {old / new:.2f}")
    print(f"CPU seconds of its start: {old_start:.2f} before, {new_start:.2f} now")
    times = (old - old_start) / (new - new_start)
    per_second = len(rows) / (old - old_start), len(rows) / (new - new_start)
    print(f"rows per CPU second after it: {per_second[0]:.0f} before, {per_second[1]:.0f} now; times {times:.2f}")


def _command_seconds(checkout: Path, file: Path, folder: Path, given: argparse.Namespace) -> float:
    """Return the CPU time of the command and its worker processes."""
    program, output = "from rageval_hooks.cli import main; main()", folder / "scores.jsonl"
    command = [sys.executable, "-c", program, "score", str(file), "-o", str(output), "--models", "lexical", "--restart"]
    command += ["--details", given.details, "--workers", str(given.workers)]
    if given.metrics:
        command += ["--metrics", given.metrics]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _ratios(old: Sequence[float], new: Sequence[float]) -> str:
    ratios = [before / after for before, after in zip(old, new, strict=True)]
    return f"{sum(old) / sum(new):.2f} (median of blocks {statistics.median(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--against", type=Path, help="a checkout of another commit")
    parser.add_argument("--rows", type=int, default=1_200)
    parser.add_argument("--block", type=int, default=50)
    parser.add_argument("--details", choices=("none", "failed", "all"), default="all")
    parser.add_argument("--metrics", help="names separated by commas")
    parser.add_argument("--command", action="store_true", help="measure the whole command, with all rows of the file")
    parser.add_argument("--rounds", type=int, default=3, help="of --command")
    parser.add_argument("--workers", type=int, default=1, help="of --command")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        _serve(given)
        return
    if given.against is None:
        parser.error("--against is required")
    if given.command:
        _measure_command(given)
        return
    children = [Child(given.against, given), Child(ROOT, given)]
    took: list[list[float]] = [[], []]
    differing = rows = 0
    for first in range(_WARM, given.rows, given.block):
        found = [child.ask(first, first + given.block) for child in children]
        for column, (seconds, _) in zip(took, found, strict=True):
            column.append(seconds)
        rows += len(found[0][1])
        differing += sum(one != other for one, other in zip(found[0][1], found[1][1], strict=True))
    turns = [[child.ask(-1, -1)[0] for _ in range(5)] for child in children]
    for child in children:
        child.close()
    old, new = (sum(column) for column in took)
    each = f"{old / rows * 1e3:.2f} before, {new / rows * 1e3:.2f} now"
    print(f"ms of CPU per row ({rows} rows, details {given.details}): {each}")
    print(f"rows per CPU second: {rows / old:.0f} before, {rows / new:.0f} now; times {_ratios(*took)}")
    print(f"rows whose lines differ: {differing}")
    before, now = (statistics.median(column) / _TURNS * 1e3 for column in turns)
    print(f"one turn with five new passages: {before:.2f} ms of CPU before, {now:.2f} now; times {before / now:.2f}")


if __name__ == "__main__":
    main()
