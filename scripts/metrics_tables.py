"""Write the tables of metrics in docs/metrics.md, from the metrics' own definitions.

Usage: python scripts/metrics_tables.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rageval_hooks.cli.metrics import cells_of, find_metrics, thresholds_of
from rageval_hooks.metrics import Metric

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics:begin -->", "<!-- metrics:end -->"

_RANK = re.compile(r"(@|first )\d+")
HEAD = ("Score", "Meaning", "Range if not 0 to 1; ↓ lower is better")
METRICS_HEAD = ("Metric", "Needs", "Models, or calls of the judge", "Source", "Version")
THRESHOLDS_HEAD = ("Score", "Passes", "Of", "Model", "Balanced accuracy", "Measured on")
ABOUT_THRESHOLDS = (
    "The bound at which a score gets the label pass, unless you set another. Balanced accuracy is against human "
    "labels: 0.5 is chance, 1 is perfect. A starting point: measure it on your own texts."
)


def tables(found: Iterable[Metric]) -> str:
    """Return tables in Markdown: the scores of each family, what metrics need, and the default thresholds."""
    found, needs = tuple(found), []
    families: dict[str, list[Metric]] = {}
    for metric in found:
        families.setdefault(metric.family, []).append(metric)
    blocks = []
    for family, members in families.items():
        rows = []
        for metric in members:
            for cells in cells_of(metric):
                limits = "" if cells["range"] == "0 to 1" else cells["range"]
                direction = "↓" if cells["better"] == "lower" else ""
                # precision@1, precision@3 … are one row.
                name, meaning = (_RANK.sub(r"\1k", cells[what]) for what in ("score", "meaning"))
                if (row := [f"`{name}`", meaning, f"{limits} {direction}"]) not in rows:
                    rows.append(row)
            # A judge metric's version is part of the documentation: its prompts change with it.
            uses = metric.calls if metric.asks_judge else cells["models"]
            about = [cells["needs"], uses, metric.source, metric.version]
            needs.append([f"`{metric.name}`", *about])
        blocks += [f"### {family.capitalize()}", table(HEAD, rows)]
    thresholds = [[f"`{name}`", *cells] for metric in found for name, *cells in thresholds_of(metric)]
    blocks += ["### What they need", table(METRICS_HEAD, needs)]
    return "\n\n".join([*blocks, "### Default thresholds", ABOUT_THRESHOLDS, table(THRESHOLDS_HEAD, thresholds)])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    # A bar or a line break in a cell would end it.
    lines = [
        " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row)
        for row in (head, ["---"] * len(head), *rows)
    ]
    return "\n".join(f"| {line} |" for line in lines)


def main() -> None:
    """Write the tables into the page, or with ``--check`` exit with 1 if they are out of date."""
    old = PAGE.read_text(encoding="utf-8")
    head, tail = old.split(BEGIN)[0], old.split(END)[1]
    new = f"{head}{BEGIN}\n\n{tables(find_metrics())}\n\n{END}{tail}"
    if "--check" in sys.argv:
        sys.exit(new != old)
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
