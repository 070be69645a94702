"""How often do the intervals of the corrected share of bad answers hold the truth? By simulation.

A share of the answers is bad, the local verdict finds them as it finds unsupported answers of labelled sets, or is
noise, and a judge that is always right sees a sample: the same share of all answers, or few of those that look good.
"""

from __future__ import annotations

import argparse

import numpy as np

from rageval_hooks.offline.report.corrected import JudgedSample
from rageval_hooks.offline.report.statistics import Resampling

# Share of unsupported and of supported answers that the local verdict calls bad.
LOCAL = {"HAGRID": (0.54, 0.04), "RAGTruth QA": (0.55, 0.066), "nearly right": (0.95, 0.01), "noise": (0.1, 0.1)}
SAMPLING = {"even": (1.0, 1.0), "few that look good": (1.0, 0.04)}


def main() -> None:
    """Print a table of coverage, and of how many judged answers the local verdicts save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=3000)
    parser.add_argument("--times", type=int, default=400, help="simulated weeks per row")
    parser.add_argument("--judged", default="50,100,400")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    print("| local verdict | sampling | bad | judged | coverage | mean width | labels without / with |")
    print("|---|---|---|---|---|---|---|")
    for name, (found, false) in LOCAL.items():
        for sampling, rates in SAMPLING.items():
            for share in (0.03, 0.07, 0.15, 0.4):
                for most in map(int, options.judged.split(",")):
                    held, widths, saved = 0, [], []
                    for time in range(options.times):
                        bad = random.random(options.answers) < share
                        local = random.random(options.answers) < np.where(bad, found, false)
                        chance = np.where(local, *rates)
                        chance = np.minimum(1 - 1e-9, chance * most / chance.sum())
                        seen = random.random(options.answers) < chance
                        sample = JudgedSample()
                        for at in range(options.answers):
                            judged = bool(bad[at]) if seen[at] else None
                            sample.add("bad" if local[at] else "good", judged, judge=float(chance[at]))
                        result = sample.share(Resampling(seed=time))
                        if result is None or result.interval is None or result.plain is None:
                            continue  # fewer than 50 by chance
                        held += result.interval.low <= share <= result.interval.high
                        widths.append(result.interval.high - result.interval.low)
                        saved.append(result.plain / result.judged)
                    row = f"{held / len(widths):.3f} | {np.mean(widths):.3f} | {np.mean(saved):.2f}"
                    print(f"| {name} | {sampling} | {share:.0%} | {most} | {row} |", flush=True)


if __name__ == "__main__":
    main()
