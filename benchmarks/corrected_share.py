"""How often do the intervals of the corrected share of bad answers hold the truth? By simulation.

    python benchmarks/corrected_share.py                             # verdicts that find bad answers at given rates
    python benchmarks/corrected_share.py --sets DIR                  # verdicts and labels of labelled sets
    python benchmarks/corrected_share.py --sets DIR --method ppi     # the interval of ppi-python instead

A share of the answers is bad, the local verdict finds them as it finds unsupported answers of labelled sets, or is
noise, and a judge that is always right sees a sample: the same share of all answers, or few of those that look good.
For a set, weeks are drawn from its answers with replacement, and the labels that give the share of bad answers within
3 points are printed, too.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from calibration import scored_sets
from numpy.typing import NDArray

from rageval_hooks.offline.agreement import measure
from rageval_hooks.offline.report.corrected import JudgedSample
from rageval_hooks.offline.report.statistics import Resampling
from rageval_hooks.score import VERDICT, label_of

# Share of unsupported and of supported answers that the local verdict calls bad.
LOCAL = {"HAGRID": (0.54, 0.04), "RAGTruth QA": (0.55, 0.066), "nearly right": (0.95, 0.01), "noise": (0.1, 0.1)}
SAMPLING = {"even": (1.0, 1.0), "few that look good": (1.0, 0.04)}

Week = tuple[NDArray[np.bool_], NDArray[np.str_]]
"""Which answers are bad, and their local verdicts."""
Found = tuple[float, float, float]
"""Bounds of the interval, and how many labels without verdicts one judged answer stands for."""


def by_rates(name: str, share: float, answers: int) -> Callable[[np.random.Generator], Week]:
    """Return what draws a week whose local verdicts find a share of the bad answers."""

    def draw(random: np.random.Generator) -> Week:
        bad = random.random(answers) < share
        local = random.random(answers) < np.where(bad, *LOCAL[name])
        return bad, np.where(local, "bad", "good")

    return draw


def by_set(bad: NDArray[np.bool_], local: NDArray[np.str_], answers: int) -> Callable[[np.random.Generator], Week]:
    """Return what draws a week of the answers of a set."""

    def draw(random: np.random.Generator) -> Week:
        chosen = random.integers(0, len(bad), answers)
        return bad[chosen], local[chosen]

    return draw


def sources(options: argparse.Namespace) -> Iterator[tuple[str, float, Callable[[np.random.Generator], Week]]]:
    """Yield the row of the table, the share of bad answers, and what draws a week. All sets are in the same rows."""
    if options.sets is None:
        for name in LOCAL:
            for share in (0.03, 0.07, 0.15, 0.4):
                yield f"{name} | {share:.0%}", share, by_rates(name, share, options.answers)
        return
    for name, rows in scored_sets(options.sets, None, options.tier):
        [verdict] = [one for one in measure(rows, resamples=100) if one.score == VERDICT]
        print(f"{name}: labels for ±3 points {verdict.labels_needed_plain:,} → {verdict.labels_needed:,}", flush=True)
        found = [(row, label_of(result)) for row in rows for result in row.record.results if result.name == VERDICT]
        kept = [(not row.label, label) for row, label in found if label in ("good", "doubtful", "bad")]
        bad, local = np.array([one for one, _ in kept]), np.array([label for _, label in kept])
        yield "of the sets | as labelled", float(bad.mean()), by_set(bad, local, options.answers)
        noise = np.random.default_rng(0).permutation(local)
        yield "noise | as labelled", float(bad.mean()), by_set(bad, noise, options.answers)


def ours(week: Week, seen: NDArray[np.bool_], chance: NDArray[np.float64], seed: int) -> Found | None:
    """Return the interval of ``report``; None with fewer than 50 judged answers, by chance."""
    sample = JudgedSample()
    for bad, local, was_seen, probability in zip(*week, seen, chance, strict=True):
        sample.add(str(local), bool(bad) if was_seen else None, judge=float(probability))
    result = sample.share(Resampling(seed=seed))
    if result is None or result.interval is None or result.plain is None:
        return None
    return result.interval.low, result.interval.high, result.plain / result.judged


def ppi(week: Week, seen: NDArray[np.bool_], chance: NDArray[np.float64], _: int) -> Found | None:
    """Return the interval of ppi-python, which weights the judged answers by their probabilities."""
    from ppi_py import ppi_mean_ci

    bad, guess = week[0].astype(float), (week[1] == "bad").astype(float)
    weights = 1 / chance[seen]
    low, high = ppi_mean_ci(bad[seen], guess[seen], guess, alpha=0.05, w=weights / weights.mean())
    return float(low[0]), float(high[0]), float("nan")


METHODS = {"ours": ours, "ppi": ppi}


def main() -> None:
    """Print a table of coverage, and of how many judged answers the local verdicts save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=3000)
    parser.add_argument("--times", type=int, default=400, help="simulated weeks per row")
    parser.add_argument("--judged", default="50,100,400")
    parser.add_argument("--sets", type=Path, metavar="DIR", help="labelled sets, as for validity.py")
    parser.add_argument("--tier", default="lexical", choices=("lexical", "default"))
    parser.add_argument("--method", default="ours", choices=tuple(METHODS))
    options = parser.parse_args()
    random, rows = np.random.default_rng(0), defaultdict[str, list[tuple[bool, float, float]]](list)
    for name, share, draw in sources(options):
        for sampling, rates in SAMPLING.items():
            for most in map(int, options.judged.split(",")):
                for time in range(options.times):
                    week = draw(random)
                    chance = np.where(week[1] == "good", rates[1], rates[0])
                    chance = np.minimum(1 - 1e-9, chance * most / chance.sum())
                    seen = random.random(options.answers) < chance
                    if (found := METHODS[options.method](week, seen, chance, time)) is not None:
                        low, high, saved = found
                        rows[f"{name} | {sampling} | {most}"].append((low <= share <= high, high - low, saved))
    print("| local verdict | bad | sampling | judged | coverage | mean width | labels without / with | weeks |")
    print("|---|---|---|---|---|---|---|---|")
    for name, weeks in rows.items():
        held, width, saved = np.mean(weeks, axis=0)
        print(f"| {name} | {held:.3f} | {width:.3f} | {saved:.2f} | {len(weeks)} |")


if __name__ == "__main__":
    main()
