"""Which edits does ``faithfulness`` see? Per kind of edit, and per set that the edited answers are of.

    python benchmarks/edit_kinds.py DIR [DIR …] --cache /tmp/fit > benchmarks/edits.json

The folders and the cache are those of fit_faithfulness.py, and so are the edits. *seen* is the share of edits whose
score is lower than that of their own original. The AUROC compares each edit with the originals of all edits of its
group, so that it also depends on how differently the originals score, which people all call supported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from _edits import KINDS
from agreement import Labelled, auroc
from fit_faithfulness import EDITED, Groundedness, Library, measure
from validity import Row

from rageval_hooks.metrics.support.faithfulness import faithfulness_formula

SET: Final = "edits_test"
CLOSE: Final = 0.8
"""Originals with at least this groundedness say what the passages say in nearly the same words."""


@dataclass(frozen=True)
class Edit:
    """An edited answer next to its original."""

    kind: str
    source: str
    original: str
    score: float
    original_score: float
    original_groundedness: float


@dataclass(frozen=True)
class Seen:
    """How well a group of edits is seen."""

    by: str
    name: str
    edits: int
    seen: float
    auroc: float


def edits(library: Library, groundedness: Groundedness) -> Iterator[Edit]:
    """Yield the edits of the set."""
    rows = [row for row in library.rows(SET) or [] if groundedness.of(row) is not None]
    formula = faithfulness_formula()
    sources = {row.id: name for name in EDITED[SET] for row in library.rows(name) or []}
    evidence = measure(SET, rows, groundedness).evidence
    scores = {row.id: (formula.value(found), found.groundedness) for row, found in zip(rows, evidence, strict=True)}
    for row in rows:
        name, kind = _parts(row)
        original = scores.get(f"{name}-original")
        if kind in KINDS and original is not None:
            yield Edit(kind, sources[name], name, scores[row.id][0], *original)


def _parts(row: Row) -> tuple[str, str]:
    """Return the id of the answer and the kind of the edit: ``("ab-12", "role")`` for ``ab-12-role``."""
    name, _, kind = row.id.rpartition("-")
    return name, kind


def seen(by: str, name: str, group: Sequence[Edit]) -> Seen:
    """Measure a group of edits."""
    originals: Mapping[str, float] = {edit.original: edit.original_score for edit in group}
    values = [*originals.values(), *(edit.score for edit in group)]
    labels = [True] * len(originals) + [False] * len(group)
    data = Labelled(np.array(values), np.array(labels), tuple(map(str, range(len(values)))))
    lower = np.mean([edit.score < edit.original_score - 1e-9 for edit in group])
    return Seen(by, name, len(group), round(float(lower), 3), round(auroc(data), 3))


def groups(found: Sequence[Edit]) -> Iterator[Seen]:
    """Measure all edits by kind and by set, and those of close originals by kind."""
    close = [edit for edit in found if edit.original_groundedness >= CLOSE]
    for by, part in (("kind", found), ("kind, close originals", close)):
        for kind in KINDS:
            yield seen(by, kind, [edit for edit in part if edit.kind == kind])
        yield seen(by, "all", part)
    for source in EDITED[SET]:
        yield seen("set", source, [edit for edit in found if edit.source == source])


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dirs", type=Path, nargs="+", help="folders with labelled sets, *.jsonl")
    parser.add_argument("--cache", type=Path, help="folder that keeps groundedness")
    args = parser.parse_args()
    found = list(edits(Library(args.dirs), Groundedness(args.cache, "lexical")))
    print(json.dumps([asdict(part) for part in groups(found)], indent=0))


if __name__ == "__main__":
    main()
