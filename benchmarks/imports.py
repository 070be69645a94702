"""Time and memory to import a tool, to attach it to an application of LangChain, and to run the first turn.

    .venv/bin/python benchmarks/imports.py [--rounds 7]

Each tool in its own environment and, each time, a new process; the tools take turns. The application's own imports
(langchain-core and the chain) come between the tool's import and its attachment and are not counted for the tool,
except for what the tool has imported of them before. The first turn is what it takes more than without a tool, whose
first turn imports something too. Prints one table of medians; in brackets, times relative to ours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from _environments import HERE, describe_machine, environment, table

TOOLS = {
    "rageval-hooks": (None, "rageval-hooks"),
    "OpenInference": ("openinference-langchain", "openinference-instrumentation-langchain"),
    "Langfuse": ("langfuse", "langfuse"),
    "DeepEval": ("deepeval", "deepeval"),
    "TruLens": ("trulens", "trulens"),
}
STAGES = ("import", "attach", "first turn")


def run(tool: str | None, python: Path) -> dict[str, Any]:
    """Start a process that does all steps, and return its report."""
    done = subprocess.run(
        [python, "-W", "ignore", HERE / "_import_worker.py", tool or "nothing"],
        capture_output=True,
        text=True,
        cwd=HERE,
    )
    if done.returncode or not done.stdout:
        raise SystemExit(f"{tool}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def version_of(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="of which the median is taken")
    given = parser.parse_args()
    pythons = {tool: environment(name) if name else Path(sys.executable) for tool, (name, _) in TOOLS.items()}
    versions = {package: version_of(pythons[tool], package) for tool, (_, package) in TOOLS.items()}
    for tool, python in pythons.items():
        run(tool, python)  # the files come into the page cache, bytecode is written
        run(None, python)
    raw: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {tool: [] for tool in TOOLS}
    for _ in range(given.rounds):
        for tool, python in pythons.items():
            raw[tool].append((run(tool, python), run(None, python)))
    found = {tool: _summary(pairs) for tool, pairs in raw.items()}
    own = found["rageval-hooks"]
    rows = []
    for tool, numbers in found.items():
        row = [tool]
        for name, (milliseconds, size) in numbers.items():
            ratio = "" if name == "first turn" else f" ({milliseconds / own[name][0]:.1f})"  # next to nothing, or less
            row.append(f"{milliseconds:.0f} ms{ratio}, {size:+.1f} MiB")
        rows.append(row)
    print(f"{describe_machine()}; median of {given.rounds} processes")
    print(", ".join(f"{name} {number}" for name, number in versions.items()), end="\n\n")
    print(table(["tool", "import", "attach", "first turn, more than bare", "all in all, more than bare"], rows))


def _summary(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, tuple[float, float]]:
    """Return milliseconds and MiB by stage; the whole includes what the application's own imports took more or less."""
    found = {}
    for stage in STAGES:
        lost = [[one["laps"][stage][i] - other["laps"][stage][i] for one, other in pairs] for i in (0, 1)]
        found[stage] = (statistics.median(lost[0]) * 1e3, statistics.median(lost[1]))
    names = ("import", "application", "attach", "first turn")
    whole = [sum(one["laps"][name][0] - other["laps"][name][0] for name in names) for one, other in pairs]
    size = [one["memory"] - other["memory"] for one, other in pairs]
    found["all"] = (statistics.median(whole) * 1e3, statistics.median(size))
    return found


if __name__ == "__main__":
    main()
