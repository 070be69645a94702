"""Fit the weights of ``faithfulness`` to labelled sets, and report them on rows that no choice used.

    python benchmarks/fit_faithfulness.py DIR [DIR …] --cache /tmp/fit            # prints; writes nothing
    python benchmarks/fit_faithfulness.py DIR [DIR …] --cache /tmp/fit --write    # into the package

The sets are those of validity.py, and the names in ``FITTED`` and ``REPORTED`` below are searched in the folders. A
missing set is skipped, with a note. ``NAME/A`` and ``NAME/B`` are the two halves of a set that has no
development part, divided by group: the rows of one document are in one half.

What is fitted is the order of answers within each set: pairs of a supported and an unsupported row of one set, by the
logistic loss. So it does not matter how many rows of a set are supported. No weight is negative. The weights of
replaced words are fitted after the others, which are held. Then the intercept and the scale are fitted so that the
score is a probability, over the human labels of the same rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from _edits import Source, edited
from agreement import (
    Labelled,
    auroc,
    auroc_interval,
    balanced_accuracy,
    best_threshold,
    calibration_error,
    difference_interval,
)
from numpy.typing import NDArray
from scipy.optimize import minimize
from validity import Row, read_set, tier_models

from rageval_hooks.metrics.support.fact_support import fact_support
from rageval_hooks.metrics.support.faithfulness import Evidence, Formula, faithfulness_formula, features
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.turn import Turn

Floats = NDArray[np.float64]

FITTED: Final[Mapping[str, float]] = {
    # Dialogue.
    "begin_cmu_dev": 1.0,
    "begin_tc_dev": 1.0,
    "begin_wow_dev": 0.5,  # 53 rows
    "faithdial_gold/A": 1.0,
    # Claims with long sources, and experts' long answers.
    "wice_dev": 1.0,
    "expertqa_dev": 1.0,
    # Summaries that people or models have edited.
    "bump_dev": 1.0,
    "summedits/A": 2.0,
    # Edits by rules. Copied sentences count less, since their edits are easier than any that people make.
    "edits_dev": 1.0,
    "copies_dev": 0.5,
}
"""The sets that are fitted, with their weights."""

REPORTED: Final = (
    "begin_wow_test",
    "faithdial_gold/B",
    "wice_test",
    "expertqa_test",
    "summedits/B",
    "bump_test",
    "edits_test",
    "copies_test",
)
"""Sets that no choice used."""

EDITED: Final = {
    "edits_dev": ("wice_dev", "expertqa_dev", "begin_cmu_dev", "begin_tc_dev", "begin_wow_dev"),
    "edits_test": ("wice_test", "expertqa_test", "begin_wow_test", "faithdial_gold/B"),
    "copies_dev": ("clapnq_dev", "expertqa_dev", "wice_dev"),
    "copies_test": ("expertqa_test", "faithdial_gold/B", "wice_test"),
}
"""Sets that are made here: supported answers of these sets, or sentences of their passages, and edits of them."""

LICENCES: Final = {
    "begin": "google/BEGIN-dataset, CC BY 4.0",
    "faithdial": "McGill-NLP/FaithDial, MIT",
    "wice": "ryokamoi/wice, ODC-BY; text CC BY-SA and Common Crawl terms",
    "expertqa": "chaitanyamalaviya/ExpertQA, MIT",
    "bump": "dataminr-ai/BUMP, MIT",
    "summedits": "salesforce/factualNLG, Apache-2.0",
    "clapnq": "primeqa/clapnq, Apache-2.0",
    "edits": "made from wice, expertqa and begin",
    "copies": "made from clapnq, expertqa and wice",
}

MOST_EDITED: Final = 150
"""Answers of one set, or passages, that are edited."""

PAIRS: Final = 20_000
PENALTY: Final = 0.01

SECOND: Final = "replaced_"
"""Features with this prefix are fitted in a second step, with all other weights held. They are 0 for nearly all rows
that people labelled. Fitted in one step, the other weights change for the sake of edits, and other sets lose."""

SECOND_WEIGHTS: Final[Mapping[str, float]] = {"edits_dev": 3.0}
"""Weights of sets in the second step, where they differ from ``FITTED``."""


@dataclass(frozen=True)
class Measured:
    """A set, with the evidence of its rows."""

    name: str
    evidence: tuple[Evidence, ...]
    labels: NDArray[np.bool_]
    groups: tuple[str, ...]

    def of(self, values: Sequence[float]) -> Labelled:
        """Return values of a score for these rows."""
        return Labelled(np.array(values, dtype=float), self.labels, self.groups)

    @property
    def groundedness(self) -> Labelled:
        """Groundedness alone, which the new score is compared with."""
        return self.of([evidence.groundedness for evidence in self.evidence])

    def scored(self, formula: Formula) -> Labelled:
        """The score of each row."""
        return self.of([formula.value(evidence) for evidence in self.evidence])


# --------------------------------------------------------------------------- rows


class Library:
    """The rows of sets, read or made when they are needed.

    Args:
        folders: where the sets are.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def rows(self, name: str) -> list[Row] | None:
        """Return the rows of a set or of one half of it; None if it is in no folder."""
        if name in EDITED:
            return self._edited(name)
        base, _, half = name.partition("/")
        for folder in self._folders:
            path = folder / f"{base}.jsonl"
            if path.exists():
                return [row for row in read_set(path, None) if not half or _half(row.group) == half]
        return None

    def _edited(self, name: str) -> list[Row] | None:
        dice = random.Random(0)
        sources: list[Row] = []
        for source in EDITED[name]:
            rows = self.rows(source) or []
            if name.startswith("edits"):
                rows = [row for row in rows if row.label == 1 and row.turn.response]
            dice.shuffle(rows)
            sources += rows[:MOST_EDITED]
        return list(_edits(sources, name.startswith("copies"), dice)) or None


def _half(group: str) -> str:
    return "AB"[int(hashlib.sha256(group.encode()).hexdigest(), 16) % 2]


def _edits(sources: Sequence[Row], copied: bool, dice: random.Random) -> Iterator[Row]:
    for row in sources:
        passages = [passage.text for passage in row.turn.passages]
        response = _sentence(passages, dice) if copied else row.turn.response
        others = [passage.text for _ in range(3) for passage in dice.choice(sources).turn.passages]
        found = list(edited(response, Source(passages, others, dice))) if response else []
        for kind, text in [("original", response), *found] if found else []:
            turn = Turn(query=row.turn.query, passages=row.turn.passages, response=text)
            yield Row(f"{row.id}-{kind}", turn, int(kind == "original"), "faithfulness", row.group)


def _sentence(passages: Sequence[str], dice: random.Random) -> str:
    """Return a sentence of the passages that can stand alone; an empty text if there is none."""
    sentences = [text[start:end] for text in passages for start, end in sentence_spans(text)]
    whole = [text for text in sentences if 40 <= len(text) <= 300 and text[0].isupper() and text[-1] == "."]
    return dice.choice(whole) if whole else ""


# --------------------------------------------------------------------------- evidence


class Groundedness:
    """The groundedness of rows, which takes nearly all the time, kept in a file.

    Args:
        folder: where the file is; None to keep nothing.
        tier: ``minilm`` or ``lexical``.
    """

    def __init__(self, folder: Path | None, tier: str) -> None:
        self._tier = tier
        self._models = Models(tier_models(tier))
        self._known: dict[str, float | None] = {}
        self._file = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"groundedness.{tier}.jsonl"
            for line in path.read_text().splitlines() if path.exists() else ():
                self._known.update([json.loads(line)])
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def analysis(self, row: Row) -> TurnAnalysis:
        """Return an analysis of a row."""
        return TurnAnalysis(row.turn, self._models).patient()

    def of(self, row: Row) -> float | None:
        """Return the groundedness of a row; None if it has none."""
        key = row_key(row)
        if key not in self._known:
            self._known[key] = self.analysis(row).grounding.value
            if self._file is not None:
                print(json.dumps([key, self._known[key]]), file=self._file, flush=True)
        return self._known[key]


def row_key(row: Row) -> str:
    """Return the name of a row's texts in the cache."""
    text = json.dumps([row.turn.response, *(passage.text for passage in row.turn.passages)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def measure(name: str, rows: Sequence[Row], groundedness: Groundedness) -> Measured:
    """Return the evidence of a set's rows; rows without words are skipped."""
    usable = [row for row in rows if row.task == "faithfulness" and groundedness.of(row) is not None]
    found = [(row, _evidence(groundedness.analysis(row), groundedness.of(row) or 0.0)) for row in usable]
    return Measured(
        name,
        tuple(evidence for _, evidence in found),
        np.array([row.label == 1 for row, _ in found]),
        tuple(row.group for row, _ in found),
    )


def _evidence(analysis: TurnAnalysis, value: float) -> Evidence:
    missing = fact_support(analysis).missing
    names = sum(fact.kind == "name" for fact in missing)
    return Evidence(groundedness=value, names=names, facts=len(missing) - names, differences=analysis.differences)


# --------------------------------------------------------------------------- fit


def fit(sets: Sequence[Measured], weights: Mapping[str, float]) -> Formula:
    """Return the formula that orders the rows within sets best, calibrated on the sets with human labels."""
    chance = np.random.default_rng(0)
    tables = [_table(data) for data in sets]
    names = list(features(sets[0].evidence[0]))
    pairs = [_pairs(table, data.labels, chance) for table, data in zip(tables, sets, strict=True)]
    first = np.array([not name.startswith(SECOND) for name in names])
    slopes = np.zeros(len(names))
    for free, importance in ((first, weights), (~first, {**weights, **SECOND_WEIGHTS})):
        slopes = _slopes(pairs, [importance[data.name] for data in sets], slopes, free)
    slopes = np.round(slopes, 3)
    human = [(table @ slopes, data) for table, data in zip(tables, sets, strict=True) if data.name not in EDITED]
    scale, intercept = _calibrated(human)
    kept = {name: round(float(scale * slope), 3) for name, slope in zip(names, slopes, strict=True) if slope}
    return Formula(round(intercept, 3), kept)


def _slopes(pairs: Sequence[Floats], importance: Sequence[float], held: Floats, free: NDArray[np.bool_]) -> Floats:
    """Fit some of the weights.

    Args:
        pairs: per set, the differences of features.
        importance: the weights of the sets.
        held: the weights of all features.
        free: which of them are fitted; the others are kept.
    """
    margins = [table @ np.where(free, 0, held) for table in pairs]
    tables = [table[:, free] for table in pairs]

    def loss(slopes: Floats) -> tuple[float, Floats]:
        value, gradient = PENALTY * float(slopes @ slopes), 2 * PENALTY * slopes
        for table, known, weight in zip(tables, margins, importance, strict=True):
            margin = table @ slopes + known
            value += weight * float(np.mean(np.logaddexp(0, -margin)))
            gradient = gradient - weight * (table / (1 + np.exp(margin))[:, None]).mean(0)
        return value, gradient

    count = int(free.sum())
    found = minimize(loss, np.full(count, 0.5), jac=True, bounds=[(0, None)] * count, method="L-BFGS-B")
    slopes = held.copy()
    slopes[free] = found.x
    return slopes


def _table(data: Measured) -> Floats:
    return np.array([list(features(evidence).values()) for evidence in data.evidence])


def _pairs(table: Floats, labels: NDArray[np.bool_], chance: np.random.Generator) -> Floats:
    """Return differences between the features of supported and unsupported rows."""
    supported = chance.choice(np.flatnonzero(labels), PAIRS)
    unsupported = chance.choice(np.flatnonzero(~labels), PAIRS)
    return np.asarray(table[supported] - table[unsupported])


def _calibrated(human: Sequence[tuple[Floats, Measured]]) -> tuple[float, float]:
    """Return the scale and the intercept of the logit; each set counts the same, and so does each label in it."""
    values = np.concatenate([value for value, _ in human])
    labels = np.concatenate([data.labels for _, data in human])
    weights = np.concatenate([_balanced(data.labels) for _, data in human])

    def loss(parameters: Floats) -> float:
        logits = parameters[0] * values + parameters[1]
        return float(weights @ np.logaddexp(0, np.where(labels, -logits, logits)))

    scale, intercept = minimize(loss, np.array([1.0, -2.0]), method="Nelder-Mead").x
    return float(scale), float(intercept)


def _balanced(labels: NDArray[np.bool_]) -> Floats:
    return np.where(labels, 0.5 / labels.sum(), 0.5 / (~labels).sum())


# --------------------------------------------------------------------------- report


def lines(sets: Sequence[Measured], formula: Formula, held_out: Mapping[str, Formula], seed: int) -> Iterator[str]:
    """The table in Markdown: AUROC with its interval, and the paired difference to groundedness alone."""
    columns = "set,used for,rows,groundedness,faithfulness,95 %,difference,95 %,held out,calibration error,at 0.5"
    yield f"| {columns.replace(',', ' | ')} |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for data in sets:
        new, old = data.scored(formula), data.groundedness
        low, high = auroc_interval(new, seed, 500)
        change, least, most = difference_interval(new, old, seed, 500)
        other = f"{auroc(data.scored(held_out[data.name])):.3f}" if data.name in held_out else ""
        yield (
            f"| {data.name} | {'fit' if data.name in FITTED else 'report'} | {len(data.labels)} | {auroc(old):.3f} "
            f"| {auroc(new):.3f} | {low:.3f}–{high:.3f} | {change:+.3f} | {least:+.3f} to {most:+.3f} | {other} "
            f"| {calibration_error(new):.3f} | {balanced_accuracy(new, 0.5):.3f} |"
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dirs", type=Path, nargs="+", help="folders with labelled sets, *.jsonl")
    parser.add_argument("--cache", type=Path, help="folder that keeps groundedness, so that an interrupted run goes on")
    parser.add_argument("--tier", choices=("minilm", "lexical"), default="lexical", help="whose groundedness is used")
    parser.add_argument("--only", help="names of sets, with commas between them")
    parser.add_argument("--refit", action="store_true", help="fit, and not only report the weights of the package")
    parser.add_argument("--write", action="store_true", help="fit, and write the weights into the package")
    return parser.parse_args()


def main() -> None:
    args = parse()
    library, groundedness = Library(args.dirs), Groundedness(args.cache, args.tier)
    sets = []
    for name in args.only.split(",") if args.only else [*FITTED, *REPORTED]:
        rows = library.rows(name)
        if rows is None:
            print(f"{name} is in no folder", file=sys.stderr)
            continue
        sets.append(measure(name, rows, groundedness))
        print(f"{name}: {len(sets[-1].labels)} rows", file=sys.stderr, flush=True)
    fitted = [data for data in sets if data.name in FITTED]
    formula, held_out = faithfulness_formula(), {}
    if args.refit or args.write:
        formula = fit(fitted, FITTED)
        held_out = {data.name: fit([other for other in fitted if other is not data], FITTED) for data in fitted}
    human = [data.scored(formula) for data in fitted if data.name not in EDITED]
    print(json.dumps(asdict(formula), indent=1))
    print(*lines(sets, formula, held_out, 0), sep="\n")
    if human:
        threshold, accuracy = best_threshold(human, 0.01)
        print(f"best threshold on the fitted sets with human labels: {threshold:.2f}, balanced accuracy {accuracy:.3f}")
    if args.write:
        write(formula, fitted)


def write(formula: Formula, sets: Sequence[Measured]) -> None:
    """Write the weights into the package, with the names of the sets that they were fitted on."""
    import rageval_hooks.metrics.support.faithfulness as package

    data: list[dict[str, Any]] = [
        {"set": found.name, "rows": len(found.labels), "weight": FITTED[found.name], "source": _licence(found.name)}
        for found in sets
    ]
    path = Path(package.__path__[0]) / "weights.json"
    content = {**asdict(formula), "fitted_by": "benchmarks/fit_faithfulness.py", "data": data}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}", file=sys.stderr)


def _licence(name: str) -> str:
    return next(licence for begin, licence in LICENCES.items() if name.startswith(begin))


if __name__ == "__main__":
    main()
