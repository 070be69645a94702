"""The overhead of a tool per turn of an application: with ours, and with other tools, relative to no tool.

    .venv/bin/python benchmarks/overhead.py [--rounds 60] [--turns 32] [--only langchain]
    .venv/bin/python benchmarks/overhead.py --rounds 9 --turns 512 --cases sync-1    # longer than what a tool puts off
    .venv/bin/python benchmarks/overhead.py --setups all --rounds 15                 # ten tracing set-ups, one table

The application is a RAG chain of LangChain (LCEL: retriever of five passages of 800 characters, prompt, chat model that
answers at once, parser) or a query engine of LlamaIndex. Each tool has a separate process and environment. In each
round every process runs two short series of turns, one with the tool switched on and one without, in turn about which
comes first. What is reported is the median, over the rounds, of what a turn costs more than a bare one of the same
round, as a share of the bare one, for the machine's speed changes from second to second and process to process; and how
these shares compare with the leanest peer's. Every tool's exporter drops what it gets. Prints one table.

With ``--setups``, ours is compared with OpenInference where spans go elsewhere: to servers over HTTP and gRPC, to a
console, to memory, to Phoenix's and Langfuse's own exporters, to nothing; with local metrics; and sampled out. What
counts there is the CPU time of the process, with its background threads and the final flush.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _environments import HERE, describe_machine, environment, table
from _peer_tools import SETUPS

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
    """A process with an application and a tool, which runs the series that it is sent."""

    def __init__(self, python: Path, application: str, tool: str, setup: str = "custom") -> None:
        command = [python, HERE / "_overhead_worker.py", application, tool, setup]
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

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self._process.communicate()


Pair = tuple[dict[str, Any], dict[str, Any]]
"""What was measured of bare turns and of watched ones, in one round."""


class Measured:
    """The overhead of a tool in one case.

    Args:
        pairs: by round.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.bare = statistics.median(bare["turn"] for bare, _ in pairs)
        self.shares = [watched["turn"] / bare["turn"] - 1 for bare, watched in pairs]
        self.more = statistics.median(watched["turn"] - bare["turn"] for bare, watched in pairs)
        self.cpu = statistics.median(watched["cpu"] - bare["cpu"] for bare, watched in pairs)
        slowest_bare, slowest_watched = (
            statistics.quantiles((time for pair in pairs for time in pair[on]["times"]), n=100)[-1] / 1e6
            for on in (False, True)
        )
        self.p99 = slowest_watched - slowest_bare
        self.memory = ""

    @property
    def share(self) -> float:
        """Of a bare turn."""
        return statistics.median(self.shares)

    def interval(self, of: Measured | None = None) -> tuple[float, float]:
        """Return the 95 % interval of 1,000 bootstrap samples of the share, or of its ratio to another tool's."""
        generator = random.Random(0)

        def drawn(shares: Sequence[float]) -> float:
            return statistics.median(generator.choices(shares, k=len(shares)))

        found = sorted(drawn(self.shares) / (1.0 if of is None else drawn(of.shares)) for _ in range(1000))
        return found[25], found[-26]


def measure(
    application: str, tools: dict[str, str | None], cases: Sequence[tuple[str, int]], rounds: int, turns: int
) -> tuple[dict[tuple[str, int], dict[str, Measured]], dict[str, str]]:
    """Return the overhead per turn by case and tool; and the versions."""
    processes = {}
    versions: dict[str, str] = {}
    for tool, name in tools.items():
        python = Path(sys.executable) if name is None else environment(name)
        processes[tool] = Process(python, application, tool)
        versions |= processes[tool].versions
    results = {}
    for mode, threads in cases:
        order = {"mode": mode, "threads": threads, "turns": max(turns, 2 * threads)}
        pairs: dict[str, list[Pair]] = {tool: [] for tool in processes}
        for number in range(rounds):
            for tool, process in processes.items():
                found = {on: process.ask(on=on, **order) for on in ((True, False) if number % 2 else (False, True))}
                pairs[tool].append((found[False], found[True]))
        results[mode, threads] = {tool: Measured(measured) for tool, measured in pairs.items()}
        print(f"{application} {mode} {threads} done", file=sys.stderr)
        if threads == 1:
            for tool, process in processes.items():
                bare, watched = (process.ask(on=on, mode=mode, memory=True) for on in (False, True))
                results[mode, threads][tool].memory = " / ".join(
                    f"{watched[name] - bare[name]:+.0f}" for name in ("peak", "kept")
                )
    for process in processes.values():
        process.close()
    return results, versions


def rows(application: str, results: dict[tuple[str, int], dict[str, Measured]]) -> list[list[str]]:
    lines = []
    for (mode, threads), found in results.items():
        leanest = min((values for tool, values in found.items() if tool not in NOT_PEERS), key=lambda peer: peer.share)
        for tool, values in found.items():
            low, high = values.interval()
            ratio = f"{values.share / leanest.share:.2f}"
            if values is not leanest:
                ratio += " ({:.2f} … {:.2f})".format(*values.interval(leanest))
            lines.append(
                [
                    f"{application.replace('_', '-')} {mode}, {threads}",
                    tool,
                    f"{values.bare:.2f}",
                    f"{values.more:+.3f}",
                    f"{values.share:+.0%} ({low:+.0%} … {high:+.0%})",
                    ratio,
                    f"{values.p99:+.2f}",
                    f"{values.cpu:+.3f}",
                    values.memory,
                ]
            )
    return lines


# --------------------------------------------------------------------------- tracing set-ups

AGAINST = "OpenInference"
MOST = {"rageval-hooks": 0.35, "rageval-hooks, sampled out": 0.12}
"""What ours may add, as a share of what OpenInference adds."""

SETUP_ROWS = [
    *((setup, "rageval-hooks") for setup in SETUPS),
    ("custom", "rageval-hooks, with metrics"),
    ("custom", "rageval-hooks, sampled out"),
]


def compare_setups(application: str, setups: Sequence[str], rounds: int, turns: int) -> list[list[str]]:
    """Return a line for each set-up: what OpenInference adds to a turn, what ours adds, and the ratio."""
    lines = []
    with subprocess.Popen(
        [sys.executable, HERE / "_span_sink.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as sink:
        assert sink.stdout is not None
        assert sink.stdin is not None
        os.environ["SINK"] = sink.stdout.readline().strip()
        for setup in setups:
            tools = [AGAINST, *(tool for where, tool in SETUP_ROWS if where == setup)]
            processes = {tool: Process(Path(sys.executable), application, tool, setup) for tool in tools}
            pairs: dict[str, list[Pair]] = {tool: [] for tool in tools}
            for number in range(rounds):
                for tool, process in processes.items():
                    order = {"mode": "sync", "threads": 1, "turns": turns}
                    found = {on: process.ask(on=on, **order) for on in ((True, False) if number % 2 else (False, True))}
                    pairs[tool].append((found[False], found[True]))
            for process in processes.values():
                process.close()
            measured = {tool: Measured(found) for tool, found in pairs.items()}
            peer = measured.pop(AGAINST)
            for tool, ours in measured.items():
                most = MOST.get(tool)
                lines.append(
                    [
                        setup,
                        tool,
                        f"{peer.more:+.3f}",
                        f"{ours.more:+.3f}",
                        f"{ours.more / peer.more:.2f}",
                        f"{peer.cpu:+.3f}",
                        f"{ours.cpu:+.3f}",
                        f"{ours.cpu / peer.cpu:.2f}",
                        "" if most is None else f"≤ {most:.2f}",
                    ]
                )
            print(f"{setup} done", file=sys.stderr)
        sink.stdin.close()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="of which the median is taken")
    parser.add_argument("--turns", type=int, default=32, help="in a series; with 32 threads 64, if it is less")
    every = ",".join(f"{mode}-{threads}" for mode, threads in CASES)
    parser.add_argument("--cases", default=every, help="mode and threads, separated by commas")
    parser.add_argument("--only", choices=TOOLS, help="this framework alone")
    parser.add_argument("--without", nargs="+", default=[], metavar="TOOL", help="leave these out")
    parser.add_argument("--setups", help=f"compare tracing set-ups instead: all, or some of {', '.join(SETUPS)}")
    given = parser.parse_args()
    if given.setups:
        setups = SETUPS if given.setups == "all" else given.setups.split(",")
        lines = compare_setups(given.only or "langchain", setups, given.rounds, given.turns)
        print(f"{describe_machine()}; {given.rounds} rounds of {given.turns} turns", end="\n\n")
        times = ["OpenInference more ms", "ours more ms", "ratio", "OpenInference CPU ms", "ours CPU ms", "CPU ratio"]
        print(table(["set-up", "tool", *times, "aim"], lines))
        return
    cases = [(mode, threads) for mode, threads in CASES if f"{mode}-{threads}" in given.cases.split(",")]
    if not cases:
        parser.error(f"--cases is some of {every}")
    if given.turns < 32 or given.turns % 32:
        parser.error("--turns must be divisible by 32: so many threads share them")
    if given.rounds < 2:
        parser.error("--rounds must be two or more: their median is taken")
    lines = []
    versions: dict[str, str] = {}
    for application in [given.only] if given.only else TOOLS:
        tools = {tool: name for tool, name in TOOLS[application].items() if tool not in given.without}
        if set(tools) <= set(NOT_PEERS):
            parser.error(f"--without leaves no peer of {application} to compare with")
        results, found = measure(application, tools, cases, given.rounds, given.turns)
        lines += rows(application, results)
        versions |= found
    print(f"{describe_machine()}; {given.rounds} rounds of {given.turns} turns")
    print(", ".join(f"{name} {number}" for name, number in versions.items()), end="\n\n")
    header = [
        "application, threads",
        "tool",
        "bare ms",
        "more ms",
        "more, of bare (95 %)",
        "of the leanest peer (95 %)",
    ]
    print(table([*header, "more p99 ms", "more CPU ms", "more KiB, peak / kept"], lines))


if __name__ == "__main__":
    main()
