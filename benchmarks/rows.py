"""Rows per CPU second of the lexical tier, next to another checkout of this package.

    .venv/bin/python benchmarks/rows.py FILE.jsonl --against CHECKOUT [--rounds 3] [--details none --workers 1 …]

Other options are those of ``score``. FILE is any file that it reads. Measures what a user runs, with each
checkout by turns, so that the load of the machine changes both alike. Counts user and system time, also that of worker
processes. The start of the command is measured with a file of one row. Says how many lines of the output differ.

A checkout of an older commit: git worktree add ../old COMMIT.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import ROOT

_PROGRAM = "from rageval_hooks.cli import main; main()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--against", type=Path, required=True, help="a checkout of another commit")
    parser.add_argument("--rounds", type=int, default=3)
    given, options = parser.parse_known_args()
    rows = [line for line in given.file.read_text("utf-8").splitlines() if line.strip()]
    starts: list[list[float]] = [[], []]
    wholes: list[list[float]] = [[], []]
    outputs: list[list[str]] = [[], []]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one_row = folder / "one.jsonl"
        one_row.write_text(rows[0] + "\n", "utf-8")
        for _ in range(given.rounds):
            for column, checkout in enumerate((given.against.resolve(), ROOT)):
                starts[column].append(_command_seconds(checkout, one_row, folder, options))
                wholes[column].append(_command_seconds(checkout, given.file.resolve(), folder, options))
                outputs[column] = (folder / "scores.jsonl").read_text("utf-8").splitlines()
    old_start, new_start = map(statistics.median, starts)
    old, new = map(statistics.median, wholes)
    print(f"CPU seconds of the command for {len(rows)} rows: {old:.2f} before, {new:.2f} now; times {old / new:.2f}")
    print(f"CPU seconds of its start: {old_start:.2f} before, {new_start:.2f} now")
    times = (old - old_start) / (new - new_start)
    per_second = len(rows) / (old - old_start), len(rows) / (new - new_start)
    print(f"rows per CPU second after it: {per_second[0]:.0f} before, {per_second[1]:.0f} now; times {times:.2f}")
    differing = sum(one != other for one, other in zip(*outputs, strict=True))
    print(f"lines of the output that differ: {differing} of {len(outputs[1])}")


def _command_seconds(checkout: Path, file: Path, folder: Path, options: list[str]) -> float:
    """Return the CPU time of the command and its worker processes."""
    command = [sys.executable, "-c", _PROGRAM, "score", str(file), "-o", str(folder / "scores.jsonl")]
    command += ["--models", "lexical", "--restart", *options]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
