"""Are limits of the verdict that are fitted to a team's labels better than the shipped ones? On labelled sets.

    python benchmarks/calibration.py DIR --sets wice_test,faithdial_gold,expertqa_test
    python benchmarks/calibration.py DIR --tier default

A set is a file of JSON Lines as for validity.py. Printed: Cohen's kappa of ``bad`` with people, with the shipped limits
and with fitted ones, each answer by limits that were fitted without its fold, and the interval of the difference.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from _common import table
from validity import read_set

from rageval_hooks.cli.agreement import with_scores
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.agreement import LabelledRow
from rageval_hooks.offline.calibration import NEEDED, calibrate
from rageval_hooks.offline.records.record import Record


def scored_sets(folder: Path, names: str | None, tier: str) -> Iterator[tuple[str, list[LabelledRow]]]:
    """Yield the sets about the support of answers with their verdicts."""
    for path in sorted(folder.glob("*.jsonl")):
        rows = read_set(path, None)
        if rows[0].task == "faithfulness" and (names is None or path.stem in names.split(",")):
            found = [
                LabelledRow(Record(id=row.id, turn=row.turn), bool(row.label), row.group, (1 - row.label, row.label))
                for row in rows
            ]
            yield path.stem, with_scores(found, ",".join(NEEDED), tier, [])


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path, help="folder with labelled sets, *.jsonl")
    parser.add_argument("--sets", help="names of sets, with commas between them; all by default")
    parser.add_argument("--tier", default="lexical", choices=("lexical", "default"))
    options = parser.parse_args()
    lines = []
    for name, rows in scored_sets(options.dir, options.sets, options.tier):
        try:
            found = calibrate(rows)
        except ConfigurationError as error:
            lines.append([name, str(len(rows)), "", "", "", str(error)])
            continue
        gain = found.fitted.kappa - found.shipped.kappa
        difference = f"{gain:+.2f} ({found.low:+.2f} to {found.high:+.2f})"
        limits = ", ".join(f"{limit.removeprefix('verdict.')} {bound:g}" for limit, bound in found.limits.items())
        kappas = [f"{found.shipped.kappa:.2f}", f"{found.fitted.kappa:.2f}"]
        lines.append([name, str(found.rows), *kappas, difference, limits if found.is_better else "the shipped ones"])
    print(table(["set", "answers", "shipped", "fitted", "difference", "limits"], lines))


if __name__ == "__main__":
    main()
