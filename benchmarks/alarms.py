"""How often are the alarms of examples/dashboards/alerts.yaml false, and how soon do they find a rise? By simulation.

Prometheus evaluates the rules on the counters of simulated days (``promtool test rules``): quiet ones, and ones on
which more of the answers are bad from noon on, by one of the causes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import yaml

RULES = Path(__file__).resolve().parents[1] / "examples" / "dashboards" / "alerts.yaml"
STEPS = 288
"""Five minutes each: a day."""
RISE = STEPS + STEPS // 2
QUIET = {
    ("bad", "unsupported"): 0.6,
    ("bad", "off_topic"): 0.2,
    ("bad", "not_retrieved"): 0.2,
}
"""How the bad answers share the causes on a quiet day. From a rise on, all that are more have the first one."""
OTHERS = {("doubtful", "off_topic"): 0.08, ("doubtful", "unsupported"): 0.07, ("declined", "nothing_found"): 0.05}
FIRED = 'count(count by (job) (max_over_time(ALERTS{{alertname=~"{names}", alertstate="firing"}}[{window}])))'
NAMES = "RagBadAnswers|RagCauseRose"


def simulated(
    random: np.random.Generator, days: int, *, per_day: int, bad: float, risen: float, shape: str
) -> dict[tuple[str, str], np.ndarray]:
    """Return counts by verdict and cause, two days long: the second is the one that counts."""
    clock = np.arange(2 * STEPS) / STEPS
    wave = {"flat": np.ones(2 * STEPS), "day and night": 1 + 0.9 * np.sin(2 * np.pi * (clock - 0.25))}[shape]
    turns = random.poisson(per_day / STEPS * wave, (days, 2 * STEPS))
    share = np.where(np.arange(2 * STEPS) < RISE, bad, risen)
    shares = {key: bad * part + (share - bad) * (key == ("bad", "unsupported")) for key, part in QUIET.items()}
    shares |= {key: np.full(2 * STEPS, part) for key, part in OTHERS.items()}
    left, left_share = turns, np.ones(2 * STEPS)
    counts = {}
    for key, wanted in shares.items():
        counts[key] = random.binomial(left, wanted / left_share)
        left, left_share = left - counts[key], left_share - wanted
    return {**counts, ("good", ""): left}


def fired(counts: dict[tuple[str, str], np.ndarray], *, hours: int, window: str, names: str = NAMES) -> int:
    """Return on how many of the days Prometheus fires one of the rules.

    Args:
        counts: by verdict and cause, for each day.
        hours: when it is asked, from the beginning.
        window: how far back it looks from there.
        names: of the rules.
    """
    series = []
    for (verdict, cause), values in counts.items():
        of_cause = f', rageval_cause="{cause}"' if cause else ""
        for day, steps in enumerate(values):
            labels = f'job="{day}", rageval_annotator="CODE", rageval_verdict="{verdict}"{of_cause}'
            text = " ".join(map(str, np.concatenate([[0], np.cumsum(steps)])))
            series.append({"series": f"rageval_verdicts_total{{{labels}}}", "values": text})
    # promtool says what it got where it expected another number.
    expected = [{"labels": "{}", "value": -1}]
    asked = {"expr": FIRED.format(names=names, window=window), "eval_time": f"{hours}h", "exp_samples": expected}
    tests = [{"interval": "5m", "input_series": series, "promql_expr_test": [asked]}]
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    rules = [rule for rule in rules if "record" in rule or rule["alert"] in names.split("|")]
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": "5m", "tests": tests}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "days_test.yaml"
        path.with_name("rules.yaml").write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))
        path.write_text(json.dumps(content))
        done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True)
    said = done.stdout + done.stderr
    if re.search(r"got:\s*nil", said):
        return 0
    found = re.search(r"got:.*?(\d+(?:\.\d+)?(?:E[+-]\d+)?)\s*$", said, re.MULTILINE)
    if found is None:
        raise RuntimeError(said[-2000:])
    return int(float(found[1]))


def main() -> None:
    """Print a table of false and of right alarms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=300)
    parser.add_argument("--per-day", default="300,1000,5000", help="turns")
    parser.add_argument("--traffic", default="flat,day and night")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    print("| turns a day | traffic | false alarms in 30 quiet days | 15% found within 4 hours |")
    print("|---|---|---|---|")
    for per_day in map(int, options.per_day.split(",")):
        for shape in options.traffic.split(","):
            quiet = simulated(random, options.days, per_day=per_day, bad=0.05, risen=0.05, shape=shape)
            risen = simulated(random, options.days, per_day=per_day, bad=0.05, risen=0.15, shape=shape)
            false = fired(quiet, hours=48, window="1d") / options.days * 30
            right = fired(risen, hours=40, window="4h") / options.days
            print(f"| {per_day:,} | {shape} | {false:.2f} | {right:.0%} |", flush=True)


if __name__ == "__main__":
    main()
