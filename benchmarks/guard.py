"""What does a guard block, and what does it cost? Shares of answers blocked per rule, refusals, and added time.

    python benchmarks/guard.py DIR                         # every faithfulness set in DIR, MiniLM and lexical tier
    python benchmarks/guard.py DIR --cache /tmp/cache      # an interrupted run goes on; shared with validity.py
    python benchmarks/guard.py DIR --limit 100 --tiers lexical

The sets are those of validity.py, and are used where they are. The default blocks an answer whose verdict is bad. Next
to it are a stricter rule and one threshold of ``faithfulness``: the largest one with which the guard, together with
``unsupported_facts``, blocks at most 10 % of the supported answers, as the mean over the sets. The documents of each
set are split into two halves: that threshold is chosen on the first one, and every share is of the second one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from validity import Cache, Row, compute, read_set, tier_models

from rageval_hooks import GroundingGuard, metric
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.settings import LEXICAL, ModelSettings

METRICS = ("verdict", "faithfulness", "unsupported_facts")
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(17))
MAX_SUPPORTED_BLOCKED = 0.10
REFUSALS = Path(__file__).parent.parent / "tests" / "guard" / "refusals.json"

Blocks = Callable[[np.ndarray], np.ndarray]
"""A rule: from the columns of METRICS to which answers are blocked."""


def by_threshold(threshold: float) -> Blocks:
    return lambda columns: (columns[1] < threshold) | (columns[2] > 0)


RULES: Mapping[str, Blocks] = {
    "**verdict bad**": lambda columns: columns[0] == 0,
    "verdict bad or doubtful": lambda columns: columns[0] < 1,
}


class Half:
    """The labels and the scores of one half of a set; only rows that have all scores."""

    def __init__(self, rows: Sequence[Row], table: Sequence[Mapping[str, Any]], half: int) -> None:
        found = [
            (row.label, *(values[name][0] for name in METRICS))
            for row, values in zip(rows, table, strict=True)
            if all(isinstance(values[name], list) for name in METRICS) and zlib.crc32(row.group.encode()) % 2 == half
        ]
        self.labels, *columns = (np.array(column) for column in zip(*found, strict=True))
        self.columns = np.array(columns)

    def shares(self, blocks: Blocks) -> tuple[float, float]:
        """Return the shares of supported and of unsupported answers that a rule blocks."""
        blocked, supported = blocks(self.columns), self.labels == 1
        return float(blocked[supported].mean()), float(blocked[~supported].mean())


def scored_halves(rows: Sequence[Row], name: str, tier: str, models: ModelSettings, cache: Path | None) -> list[Half]:
    metrics = [REGISTRY.create(name) for name in METRICS]
    table = compute(rows, metrics, models, Cache(cache, f"{name}.{tier}"), f"{name}, {tier}")
    return [Half(rows, table, half) for half in (0, 1)]


def table_lines(sets: Mapping[str, list[Half]]) -> Iterator[str]:
    """The shares of supported / unsupported answers blocked in the second halves, in percent."""
    fitting = [
        threshold
        for threshold in THRESHOLDS
        if np.mean([first.shares(by_threshold(threshold))[0] for first, _ in sets.values()]) <= MAX_SUPPORTED_BLOCKED
    ]
    best = max(fitting, default=0.0)
    rules = {**RULES, f"faithfulness below {best:g}, or facts": by_threshold(best)}
    yield f"| blocked if | {' | '.join(sets)} | mean |"
    yield "|---|" + "---|" * (len(sets) + 1)
    for name, blocks in rules.items():
        shares = np.array([second.shares(blocks) for _, second in sets.values()])
        cells = [f"{100 * good:.0f} / {100 * bad:.0f}" for good, bad in [*shares, shares.mean(axis=0)]]
        yield f"| {name} | {' | '.join(cells)} |"


def blocked_refusals(guard: GroundingGuard, rows: Sequence[Row]) -> dict[str, int]:
    """Return, per language, how many refusals the guard blocks, each with the passages of another row."""
    by_language = json.loads(REFUSALS.read_text(encoding="utf-8"))
    passages = [[passage.text for passage in row.turn.passages] for row in rows]
    return {
        language: sum(guard.check(text, passages[i % len(passages)]).blocked for i, text in enumerate(texts))
        for language, texts in by_language.items()
    }


def milliseconds(check: Callable[[int], object], times: int) -> list[float]:
    found = []
    for number in range(times):
        started = time.perf_counter()
        check(number)
        found.append(1000 * (time.perf_counter() - started))
    return found


def shown(times: Sequence[float], timeout_ms: float) -> str:
    p50, p95 = np.percentile(times, (50, 95))
    within = "within" if p95 <= timeout_ms else "NOT within"
    return f"p50 {p50:.1f} ms, p95 {p95:.1f} ms ({within} timeout_ms={timeout_ms:g}), worst {max(times):.1f} ms"


def time_lines(models: Mapping[str, Any], rows: Sequence[Row], times: int) -> Iterator[str]:
    """The time that a check adds to an answer."""
    guard = GroundingGuard(models=models, on_fail="replace", on_error="closed", timeout_ms=1000)
    guard.warm_up()
    turns = [row.turn for row in rows[:times]]
    calls: Callable[[int], Any] = lambda i: guard.check(turns[i].response, turns[i].passages)  # noqa: E731
    guard.check("Warm up the threads.", ["Some words."])
    yield f"passages seen for the first time: {shown(milliseconds(calls, len(turns)), 1000)}"
    yield f"passages seen before: {shown(milliseconds(calls, len(turns)), 1000)}"
    for timeout in (50, 200):
        hang = Event()

        @metric(name="hanging", requires=("response",))
        def hanging(turn: Any, hang: Event = hang) -> float:  # noqa: ARG001
            hang.wait()
            return 1.0

        slow = GroundingGuard([hanging], 0.5, models=LEXICAL, on_error="closed", timeout_ms=timeout)
        # Two at a time: with more, the guard knows that its threads hang and does not wait.
        late = []
        for _ in range(10):
            late += milliseconds(lambda _: slow.check("An answer.", ["A passage."]), 2)  # noqa: B023
            hang.set()
            time.sleep(0.05)
            hang.clear()
        yield f"a model that hangs: {shown(late, timeout)}"
        hang.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path, help="folder with labelled sets, *.jsonl")
    parser.add_argument("--limit", type=int, help="only the first rows of each set")
    parser.add_argument("--tiers", default=f"minilm,{LEXICAL}", help="minilm, lexical, or both (default)")
    parser.add_argument("--cache", type=Path, help="folder that keeps scores, so that an interrupted run goes on")
    parser.add_argument("--times", type=int, default=100, help="checks to time (100)")
    args = parser.parse_args()
    sets = [(path.stem, read_set(path, args.limit)) for path in sorted(args.dir.glob("*.jsonl"))]
    sets = [(name, rows) for name, rows in sets if rows[0].task == "faithfulness"]
    if not sets:
        sys.exit(f"{args.dir} has no set of task faithfulness")
    for tier in args.tiers.split(","):
        models = tier_models(tier)
        print(f"\n## {tier}\n")
        halves = {name: scored_halves(rows, name, tier, models, args.cache) for name, rows in sets}
        print("Supported / unsupported answers blocked, in %, in the half of each set that chose nothing:\n")
        print(*table_lines(halves), "", sep="\n")
        guard = GroundingGuard(models=models.model_dump(), on_fail="replace", on_error="closed", timeout_ms=60_000)
        print(f"refusals blocked, of 40 per language: {blocked_refusals(guard, sets[0][1])}\n")
        for line in time_lines(models.model_dump(), sets[0][1], args.times):
            print(f"- {line}")


if __name__ == "__main__":
    main()
