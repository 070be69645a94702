"""How long does a turn of a hostile size take, and how long does it stop the other threads of the process?

    .venv/bin/python benchmarks/hostile_sizes.py [--case digits --case prose ...]

Evaluates single turns with the lexical models, each in a new process: a response of 1 MB of digits, 10,000 passages, a
response of 10 MB of prose, words that are repeated thousands of times, and responses just below the limits of
rageval_hooks/text/limits.py. The table has the CPU time of evaluate() and the longest pause of another thread that does
nothing but look at the clock. Python switches threads every 5 ms, so a pause far above that is one call that held the
interpreter's lock. On a busy machine the pauses are longer, whatever runs (the line "nothing" is the control), so the
table also has the most CPU time that the process used between two looks: no call held the lock for longer than that.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parent))

if TYPE_CHECKING:
    from rageval_hooks import Turn

PROSE = "The pier was opened in September 2019 by Mayor Jane Smith [1]. It has 7 lamps and cost $1,200.50. "
PASSAGE = "The pier {number} was opened in {year} by Mayor Smith{number}. It has {number} lamps."
TICK = 0.001


def turn(response: str, passages: list[str]) -> Turn:
    from rageval_hooks import Passage, Turn

    return Turn(
        query="When was the pier opened?", response=response, passages=[Passage(text=text) for text in passages]
    )


def prose(length: int) -> str:
    return (PROSE * (length // len(PROSE) + 1))[:length]


def many_passages(count: int) -> list[str]:
    return [PASSAGE.format(number=number, year=1900 + number % 100) for number in range(count)]


def repeated(part: str) -> Turn:
    """A response that repeats its passage, which repeats the same words."""
    text = part * (300_000 // len(part))
    return turn(text, [text])


CASES: dict[str, Callable[[], Turn]] = {
    "1 MB of digits": lambda: turn("7" * 1_000_000, many_passages(3)),
    "10,000 passages": lambda: turn(PROSE * 3, many_passages(10_000)),
    "10 MB of prose": lambda: turn(prose(10_000_000), many_passages(3)),
    "300 kB of digits": lambda: turn("7" * 300_000, many_passages(3)),
    "300 kB of prose": lambda: turn(prose(300_000), many_passages(3)),
    "300 kB of letters": lambda: turn("a" * 300_000, many_passages(3)),
    "300 kB of spaces": lambda: turn("a" + " " * 299_998 + "b", many_passages(3)),
    "300 kB of brackets": lambda: turn("[(" * 150_000, many_passages(3)),
    "300 kB of lines": lambda: turn("- a\n" * 75_000, many_passages(3)),
    "300 kB of one name": lambda: repeated("Aa bb "),
    "300 kB of names": lambda: repeated("Anna met Bert and Carl Dorn saw Emil. "),
    "300 kB of numbers": lambda: repeated("had 12 of 15 and "),
    "1,000 passages": lambda: turn(PROSE * 3, many_passages(1_000)),
    "a passage of 1 MB": lambda: turn(PROSE * 3, [prose(1_000_000)]),
    "a passage of digits": lambda: turn(PROSE * 3, ["7" * 1_000_000]),
}


class Ticker(threading.Thread):
    """Looks at the clock again and again, and keeps the longest time between two looks."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self.longest_cpu = 0.0
        self.stopped = threading.Event()

    def run(self) -> None:
        last, last_cpu = time.perf_counter(), time.process_time()
        while not self.stopped.wait(TICK):
            now, cpu = time.perf_counter(), time.process_time()
            self.longest = max(self.longest, now - last - TICK)
            self.longest_cpu = max(self.longest_cpu, cpu - last_cpu)
            last, last_cpu = now, cpu

    def end(self) -> None:
        self.stopped.set()
        self.join()


def measure(case: str) -> dict[str, Any]:
    """Evaluate one turn and return its times."""
    from rageval_hooks import evaluate

    # Imports and the tokenizer's ranks are loaded once per process, not per turn.
    evaluate(turn("The pier was opened in 2019.", many_passages(1)), models="lexical")
    given = CASES[case]() if case in CASES else None
    ticker = Ticker()
    ticker.start()
    cpu, wall = time.process_time(), time.perf_counter()
    found = evaluate(given, models="lexical") if given else time.sleep(0.5)
    result: dict[str, Any] = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    ticker.end()
    result["pause"], result["pause_cpu"] = ticker.longest, ticker.longest_cpu
    result["scores"] = len({score.name for score in found.scores}) if found else 0
    result["skipped"] = len(found.skipped) if found else 0
    result["failed"] = len(found.failed) if found else 0
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", help="part of a case's name; all cases if not given")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure)))
        return
    print("| case | CPU s | wall s | longest pause ms | most CPU in a pause ms | scores | skipped | failed |")
    print("|---|---|---|---|---|---|---|---|")
    for case in ["nothing", *CASES]:
        if given.case and not any(part in case for part in given.case):
            continue
        run = subprocess.run(
            [sys.executable, __file__, "--measure", case], capture_output=True, text=True, check=True, timeout=600
        )
        row = json.loads(run.stdout.splitlines()[-1])
        shown = f"{row['cpu']:.2f} | {row['wall']:.2f} | {row['pause'] * 1000:.0f} | {row['pause_cpu'] * 1000:.0f}"
        print(f"| {case} | {shown} | {row['scores']} | {row['skipped']} | {row['failed']} |", flush=True)


if __name__ == "__main__":
    main()
