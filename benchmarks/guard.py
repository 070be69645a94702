"""What does a guard block, and what does it cost? Shares of answers blocked per threshold, refusals, and added time.

    python benchmarks/guard.py DIR                         # every faithfulness set in DIR, MiniLM and lexical tier
    python benchmarks/guard.py DIR --cache /tmp/cache      # an interrupted run goes on; shared with validity.py
    python benchmarks/guard.py DIR --limit 100 --tiers lexical

The sets are those of validity.py, and are used where they are. Sets named ``*_dev`` choose the default threshold of
``faithfulness``: the largest one with which the guard, together with ``unsupported_facts``, blocks at most 15 % of the
supported answers, as the mean over the dev sets.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
from validity import Cache, Row, compute, read_set, tier_models

from rageval_hooks import GroundingGuard, metric
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.settings import LEXICAL, ModelSettings

THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(17))
MOST_SUPPORTED_BLOCKED = 0.15
REFUSALS = Path(__file__).parent.parent / "tests" / "guard" / "refusals.json"


@dataclass(frozen=True)
class Scored:
    """The scores of one set: label, faithfulness and unsupported facts of each row that has both scores."""

    name: str
    labels: np.ndarray
    faithfulness: np.ndarray
    facts: np.ndarray

    @property
    def is_dev(self) -> bool:
        return self.name.endswith("_dev")

    def blocked(self, threshold: float, with_facts: bool) -> tuple[float, float]:
        """Return the shares of supported and of unsupported answers that a guard blocks."""
        blocked = self.faithfulness < threshold
        if with_facts:
            blocked |= self.facts > 0
        supported = self.labels == 1
        return float(blocked[supported].mean()), float(blocked[~supported].mean())


def score(rows: Sequence[Row], name: str, tier: str, models: ModelSettings, cache: Path | None) -> Scored:
    metrics = [REGISTRY.create("faithfulness"), REGISTRY.create("unsupported_facts")]
    table = compute(rows, metrics, models, Cache(cache, f"{name}.{tier}"), f"{name}, {tier}")
    found = [
        (row.label, values["faithfulness"][0], values["unsupported_facts"][0])
        for row, values in zip(rows, table, strict=True)
        if all(isinstance(values[metric.name], list) for metric in metrics)
    ]
    labels, faithfulness, facts = (np.array(column) for column in zip(*found, strict=True))
    return Scored(name, labels, faithfulness, facts)


def mean_supported(sets: Sequence[Scored], threshold: float) -> float:
    return float(np.mean([scored.blocked(threshold, True)[0] for scored in sets]))


def chosen(sets: Sequence[Scored]) -> float | None:
    """Return the default threshold that the dev sets choose; None without dev sets."""
    dev = [scored for scored in sets if scored.is_dev]
    fitting = [t for t in THRESHOLDS if dev and mean_supported(dev, t) <= MOST_SUPPORTED_BLOCKED]
    return max(fitting, default=None)


def table_lines(sets: Sequence[Scored], with_facts: bool) -> Iterator[str]:
    """The shares of supported / unsupported answers blocked, in percent."""
    yield f"| faithfulness below | {' | '.join(scored.name for scored in sets)} |"
    yield "|---|" + "---|" * len(sets)
    for threshold in THRESHOLDS:
        cells = [scored.blocked(threshold, with_facts) for scored in sets]
        shares = " | ".join(f"{100 * supported:.0f} / {100 * unsupported:.0f}" for supported, unsupported in cells)
        yield f"| {threshold:.2f} | {shares} |"


# --------------------------------------------------------------------------- refusals and time


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


# --------------------------------------------------------------------------- output


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dir", type=Path, help="folder with labelled sets, *.jsonl")
    parser.add_argument("--limit", type=int, help="only the first rows of each set")
    parser.add_argument("--tiers", default=f"minilm,{LEXICAL}", help="minilm, lexical, or both (default)")
    parser.add_argument("--cache", type=Path, help="folder that keeps scores, so that an interrupted run goes on")
    parser.add_argument("--times", type=int, default=100, help="checks to time (100)")
    parser.add_argument("--no-shares", action="store_true", help="only refusals and times")
    args = parser.parse_args(arguments)
    if not list(args.dir.glob("*.jsonl")):
        parser.error(f"{args.dir} has no *.jsonl")
    return args


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    sets = [(path.stem, read_set(path, args.limit)) for path in sorted(args.dir.glob("*.jsonl"))]
    sets = [(name, rows) for name, rows in sets if rows[0].task == "faithfulness"]
    if not sets:
        sys.exit(f"{args.dir} has no set of task faithfulness")
    for tier in args.tiers.split(","):
        models = tier_models(tier)
        print(f"\n## {tier}\n")
        if not args.no_shares:
            scored = [score(rows, name, tier, models, args.cache) for name, rows in sets]
            for with_facts in (True, False):
                title = "faithfulness and unsupported_facts (the default)" if with_facts else "faithfulness alone"
                print(f"Supported / unsupported answers blocked, in %, by {title}:\n")
                print(*table_lines(scored, with_facts), "", sep="\n")
            print(f"chosen on the dev sets: {chosen(scored)}")
        guard = GroundingGuard(models=models.model_dump(), on_fail="replace", on_error="closed", timeout_ms=60_000)
        print(f"default thresholds: {guard.thresholds}")
        print(f"refusals blocked, of 40 per language: {blocked_refusals(guard, sets[0][1])}\n")
        for line in time_lines(models.model_dump(), sets[0][1], args.times):
            print(f"- {line}")


if __name__ == "__main__":
    main()
