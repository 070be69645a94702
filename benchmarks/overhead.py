"""What a turn costs the application when a tool watches it: bare, with ours, with those of others.

    .venv/bin/python benchmarks/overhead.py [--rounds 9] [--turns 96] [--only langchain]
    .venv/bin/python benchmarks/overhead.py --turns 512 --cases sync-1,stream-1    # longer than what a tool puts off

The application is a RAG chain of LangChain (LCEL: retriever of five passages of 800 characters, prompt, chat model that
answers at once, parser) or a query engine of LlamaIndex. Each tool has a process in an environment of its own. In each
round every process runs two short series of turns, one with the tool switched on and one without, in turn about which
comes first; what is reported is the median, over the rounds, of the difference. (Two processes would differ by a tenth
of a millisecond even if they did the same.) Every tool's exporter drops what it gets. Prints one table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _environments import HERE, describe_machine, environment, table

TOOLS = {
    "langchain": {
        "no-op handler": None,
        "rageval-hooks, sampled out": None,
        "rageval-hooks": None,
        "DeepEval": "deepeval",
        "Langfuse": "langfuse",
        "OpenInference": "openinference-langchain",
    },
    "llama_index": {
        "rageval-hooks, sampled out": None,
        "rageval-hooks": None,
        "OpenInference": "openinference-llama-index",
    },
}
CASES = [(mode, threads) for threads in (1, 32) for mode in ("sync", "async", "stream")]
OURS = ("rageval-hooks", "rageval-hooks, sampled out")
NOT_PEERS = (*OURS, "no-op handler")


class Process:
    """A process with an application and a tool, that does what it is told."""

    def __init__(self, python: Path, application: str, tool: str) -> None:
        command = [python, HERE / "_overhead_worker.py", application, tool]
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.versions: dict[str, str] = self._answer()["versions"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a process has ended before it answered: {self._process.args}")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, **order: Any) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.communicate()


Found = dict[str, dict[str, float]]


def measure(
    application: str, cases: Sequence[tuple[str, int]], rounds: int, turns: int
) -> tuple[dict[tuple[str, int], Found], dict[str, str]]:
    """Return, by case and tool, what a turn costs more than a bare one; and the versions."""
    processes = {}
    versions: dict[str, str] = {}
    for tool, name in TOOLS[application].items():
        python = Path(sys.executable) if name is None else environment(name)
        processes[tool] = Process(python, application, tool)
        versions |= processes[tool].versions
    results = {}
    for mode, threads in cases:
        order = {"mode": mode, "threads": threads, "turns": turns}
        raw: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {tool: [] for tool in processes}
        for number in range(rounds):
            for tool, process in processes.items():
                found = {on: process.ask(on=on, **order) for on in ((True, False) if number % 2 else (False, True))}
                raw[tool].append((found[False], found[True]))
        results[mode, threads] = {tool: _summary(rounds_) for tool, rounds_ in raw.items()}
        print(f"{application} {mode} {threads} done", file=sys.stderr)
        if threads == 1:
            for tool, process in processes.items():
                bare, attached = (process.ask(on=on, mode=mode, memory=True) for on in (False, True))
                results[mode, threads][tool] |= {name: attached[name] - bare[name] for name in ("peak", "kept")}
    for process in processes.values():
        process.close()
    return results, versions


def _summary(rounds: list[tuple[dict[str, float], dict[str, float]]]) -> dict[str, float]:
    found = {
        name: statistics.median(attached[name] - bare[name] for bare, attached in rounds)
        for name in ("p50", "p99", "cpu")
    }
    differences = sorted(attached["p50"] - bare["p50"] for bare, attached in rounds)
    found["low"], found["high"] = differences[len(rounds) // 4], differences[-1 - len(rounds) // 4]
    found["bare"] = statistics.median(bare["p50"] for bare, _ in rounds)
    return found


def rows(application: str, results: dict[tuple[str, int], Found]) -> list[list[str]]:
    lines = []
    for (mode, threads), found in results.items():
        leanest = min(values["p50"] for tool, values in found.items() if tool not in NOT_PEERS)
        for tool, values in found.items():
            memory = f"{values['peak']:+.0f} / {values['kept']:+.0f}" if "peak" in values else ""
            lines.append(
                [
                    f"{application.replace('_', '-')} {mode}, {threads}",
                    tool,
                    f"{values['bare']:.2f}",
                    f"{values['p50']:+.3f} ({values['low']:+.3f} … {values['high']:+.3f})",
                    f"{values['p99']:+.2f}",
                    f"{values['cpu']:+.3f}",
                    memory,
                    f"{values['p50'] / leanest:.2f}",
                ]
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="of which the median is taken")
    parser.add_argument("--turns", type=int, default=96, help="in a round, of each process; divisible by 32")
    every = ",".join(f"{mode}-{threads}" for mode, threads in CASES)
    parser.add_argument("--cases", default=every, help="mode and threads, separated by commas")
    parser.add_argument("--only", choices=TOOLS, help="this framework alone")
    given = parser.parse_args()
    cases = [(mode, threads) for mode, threads in CASES if f"{mode}-{threads}" in given.cases.split(",")]
    if not cases:
        parser.error(f"--cases is some of {every}")
    if given.turns < 32 or given.turns % 32:
        parser.error("--turns must be divisible by 32: so many threads share them")
    lines = []
    versions: dict[str, str] = {}
    for application in [given.only] if given.only else TOOLS:
        results, found = measure(application, cases, given.rounds, given.turns)
        lines += rows(application, results)
        versions |= found
    print(f"{describe_machine()}; {given.rounds} rounds of {given.turns} turns")
    print(", ".join(f"{name} {number}" for name, number in versions.items()), end="\n\n")
    header = ["application, threads", "tool", "bare ms", "more ms (quartiles)", "more p99 ms", "more CPU ms"]
    print(table([*header, "more KiB, peak / kept", "of the leanest peer"], lines))


if __name__ == "__main__":
    main()
