"""How long does a turn of a hostile size take, and how long does it stop the other threads of the process?

    .venv/bin/python benchmarks/hostile_sizes.py [--case digits --case prose ...]

Evaluates single turns with the lexical models, each in a new process: a response of 1 MB of digits, 10,000 passages, a
response of 10 MB of prose, words that are repeated thousands of times, and responses just below the limits of
rageval_hooks/text/limits.py. The table has the CPU time of evaluate() and the longest pause of another thread that does
nothing but look at the clock: once in all, and once without the time of Python's garbage collector, whose full runs
take as long as the process has objects. Python switches threads after 5 ms, so a pause of 25 ms means that one call
held the interpreter's lock for 20. On a busy machine the pauses are longer, whatever runs; the line "nothing" is the
control.

The last columns are of a LangChain chain that returns the same turn: how long the call takes without and with the
handler (the longest of four calls), and the longest pause during the calls with it.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
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
CALLS = 4


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
    """Looks at the clock again and again, and keeps when the garbage collector ran."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self._looks: list[float] = []
        self._collections: list[tuple[float, float]] = []
        self._began = 0.0

    def run(self) -> None:
        gc.callbacks.append(self._on_collection)
        while not self.stopped.wait(TICK):
            self._looks.append(time.perf_counter())

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._collections.append((self._began, time.perf_counter()))

    def end(self) -> None:
        self.stopped.set()
        self.join()

    def pauses(self) -> Iterator[tuple[float, float]]:
        """Yield the times between two looks in seconds, whole and without the time of the garbage collector."""
        for last, now in pairwise(self._looks):
            collecting = sum(max(0.0, min(now, end) - max(last, start)) for start, end in self._collections)
            yield now - last - TICK, now - last - TICK - collecting


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
    result["pause"], result["call"] = map(max, zip(*ticker.pauses(), strict=True))
    result["scores"] = len({score.name for score in found.scores}) if found else 0
    result["skipped"] = len(found.skipped) if found else 0
    result["failed"] = len(found.failed) if found else 0
    return result


def measure_chain(case: str) -> dict[str, float]:
    """Call a chain without and with the handler and return the times."""
    from langchain_core.documents import Document
    from langchain_core.language_models import FakeListChatModel
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnableLambda, RunnablePassthrough

    from rageval_hooks.integrations.langchain import CallbackHandler
    from rageval_hooks.testing import InMemoryExporter

    def chain_of(given: Turn) -> Callable[..., object]:
        documents = [Document(page_content=passage.text) for passage in given.passages]
        prompt = ChatPromptTemplate.from_template("{context}\n{question}")
        context: Any = {
            "context": RunnableLambda(lambda _: documents, name="retriever"),
            "question": RunnablePassthrough(),
        }
        return (context | prompt | FakeListChatModel(responses=[given.response])).invoke

    def longest(handlers: list[CallbackHandler]) -> float:
        times = []
        for _ in range(CALLS):
            begin = time.perf_counter()
            invoke("When was the pier opened?", {"callbacks": handlers})
            times.append(time.perf_counter() - begin)
            for handler in handlers:
                handler.flush(timeout=120)
        return max(times)

    handler = CallbackHandler(models="lexical", exporters=[InMemoryExporter()])
    # Imports, and the language detector.
    invoke = chain_of(turn("The pier was opened in 2019.", many_passages(2)))
    longest([handler])
    time.sleep(1)
    invoke = chain_of(CASES[case]())
    result = {"without": longest([])}
    ticker = Ticker()
    ticker.start()
    result["with"] = longest([handler])
    ticker.end()
    result["chain_call"] = max(without for _, without in ticker.pauses())
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", help="part of a case's name; all cases if not given")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--chain", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        found = measure_chain(given.measure) if given.chain else measure(given.measure)
        print(json.dumps(found))
        return
    columns = "case | CPU s | wall s | longest pause ms | without garbage collection ms | scores | skipped | failed"
    print(f"| {columns} | chain ms | with the handler ms | longest pause without garbage collection ms |")
    print(f"|{'---|' * 11}")
    for case in ["nothing", *CASES]:
        if given.case and not any(part in case for part in given.case):
            continue
        row = in_new_process(case)
        pauses = f"{row['pause'] * 1000:.0f} | {row['call'] * 1000:.0f}"
        counts = f"{row['scores']} | {row['skipped']} | {row['failed']}"
        print(f"| {case} | {row['cpu']:.2f} | {row['wall']:.2f} | {pauses} | {counts}", end=" | ", flush=True)
        chain = in_new_process(case, "--chain") if case in CASES else {}
        print(" | ".join(f"{chain[key] * 1000:.0f}" for key in chain) or "- | - | -", "|", flush=True)


def in_new_process(case: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", case, *options]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
