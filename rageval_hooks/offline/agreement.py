"""How well scores agree with people's labels: reads labelled rows, measures each score on them, and says so in words.

The statistics get a score in its oriented form: higher means "label 1" (what is better when lower comes in negated).
Intervals draw whole groups, since the rows of one document are not independent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rageval_hooks.errors import ConfigurationError, requires
from rageval_hooks.metrics.base import ScoreDefinition
from rageval_hooks.offline.records.formats import BadRow
from rageval_hooks.offline.records.reading import READ_AS_IS, ReadOptions, read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.score_definitions import define_score
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import VERDICT, Score, is_about_turn, is_judged_verdict

_JUDGED_VERDICT: Final = f"{VERDICT}.trace"
"""The judge's verdict, next to the local one."""
_VERDICTS: Final = (VERDICT, _JUDGED_VERDICT)

_GROUPS: Final = ("group", "document", "doc_id", "conversation_id")
"""Fields that may name the document of a row, if the user names none."""

# From this AUROC on, if the whole interval is above chance.
_WORDS: Final = (
    (0.9, "sorts answers nearly as people do"),
    (0.8, "sorts answers well"),
    (0.7, "sorts answers fairly"),
    (0.6, "sorts answers a little better than chance"),
    (0.0, "hardly better than chance"),
)

_MARGIN: Final = 0.03
"""Half the interval of the share of bad answers for which the necessary labels are computed."""

_MAX_SORTS: Final = 5
"""Values of a score with which answers are sorted by its value, such as a verdict, and not by pass and fail."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LabelledRow:
    """An answer that people labelled.

    Attributes:
        record: the answer, perhaps with scores.
        label: True if people found it good; of several people, more than half of them.
        group: rows of one document have the same group.
        votes: how many people found it bad, and how many good.
    """

    record: Record
    label: bool
    group: str
    votes: tuple[int, int]


class Agreement(Data):
    """How well one score agrees with the labels.

    Attributes:
        score: the score's name.
        models: the models that computed it.
        rows: rows that have the score.
        left_out: labelled rows without it: it was skipped or failed there.
        auroc: probability that a good row scores better than a bad one.
        auroc_low: lower bound of its interval.
        auroc_high: upper bound of its interval.
        threshold: the threshold that kappa and balanced accuracy are for, in the score's own direction.
        fitted: True if that threshold is the best one on these rows, which makes both look better than they are.
        kappa: Cohen's kappa of the labels pass and fail with those of people.
        kappa_low: lower bound of its interval.
        kappa_high: upper bound of its interval.
        balanced_accuracy: mean of the shares of good rows that pass and of bad rows that fail.
        fail_precision: share of the rows that fail which are bad; None if no row fails. A bad verdict fails.
        fail_recall: share of the bad rows that fail.
        fail_f1: their harmonic mean; 0 if no row fails.
        calibration_error: mean distance of the score from the share of good rows; None for a score beyond 0..1.
        direction: which values are better.
        alpha: Krippendorff's alpha of people and the labels pass and fail, as one more person; None if no row has
            labels of several people.
        alpha_low: lower bound of its interval.
        alpha_high: upper bound of its interval.
        people_alpha: Krippendorff's alpha of people among themselves.
        labels_needed: labels of answers drawn at random that give the share of bad answers within 3 points, if the
            score is known for all answers.
        labels_needed_plain: the same without the score.
    """

    score: str
    models: tuple[str, ...]
    rows: int
    left_out: int
    auroc: float
    auroc_low: float
    auroc_high: float
    threshold: float
    fitted: bool
    kappa: float
    kappa_low: float
    kappa_high: float
    balanced_accuracy: float
    fail_precision: float | None
    fail_recall: float
    fail_f1: float
    calibration_error: float | None
    direction: str
    alpha: float | None = None
    alpha_low: float | None = None
    alpha_high: float | None = None
    people_alpha: float | None = None
    labels_needed: int = 0
    labels_needed_plain: int = 0


# --------------------------------------------------------------------------- statistics


@dataclass(frozen=True)
class Labelled:
    """Values of a score, with the labels, the numbers of the groups and the votes (bad, good) of their rows."""

    values: Floats
    labels: Flags
    groups: Ints
    votes: Ints

    @classmethod
    def of(cls, rows: Sequence[tuple[float, int, str]], votes: Sequence[tuple[int, int]] | None = None) -> Labelled:
        """Make it from (value, label, group) triples; without votes, each label is that of one person."""
        values, labels, groups = zip(*rows, strict=True) if rows else ((), (), ())
        numbers = {group: number for number, group in enumerate(sorted(set(groups)))}
        found = np.array(labels) == 1
        counts = np.stack([~found, found], axis=1).astype(int) if votes is None else np.array(votes, int)
        return cls(np.array(values, float), found, np.array([numbers[group] for group in groups], int), counts)

    @property
    def has_both(self) -> bool:
        """True if both labels occur; nothing can be measured otherwise."""
        return bool(self.labels.any() and not self.labels.all())

    def passed(self, threshold: float) -> Flags:
        """Return for each row whether its value is at or above a threshold, up to rounding."""
        return self.values >= threshold - 1e-9

    def drawn(self, random: np.random.Generator) -> Labelled:
        """Return as many groups as there are, drawn with replacement, each with all its rows."""
        count = int(self.groups.max()) + 1
        times = np.bincount(random.integers(0, count, count), minlength=count)[self.groups]
        groups, votes = np.repeat(self.groups, times), np.repeat(self.votes, times, axis=0)
        return Labelled(np.repeat(self.values, times), np.repeat(self.labels, times), groups, votes)


def auroc(data: Labelled) -> float:
    """Return the probability that a row with label 1 scores higher than one with label 0; ties count half."""
    _, places, counts = np.unique(data.values, return_inverse=True, return_counts=True)
    # Equal values share the mean of their ranks.
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    good = int(data.labels.sum())
    pairs = good * (len(data.labels) - good)
    return float((ranks[data.labels].sum() - good * (good + 1) / 2) / pairs) if pairs else math.nan


def kappa(data: Labelled, threshold: float) -> float:
    """Return Cohen's kappa of passing a threshold and of label 1: 0 for agreement by chance, 1 for full agreement."""
    return cohens_kappa(data.passed(threshold), data.labels)


def cohens_kappa(passed: Flags, labels: Flags) -> float:
    """Return Cohen's kappa of two labels of the same rows; NaN if there is only one label."""
    by_chance = passed.mean() * labels.mean() + (1 - passed.mean()) * (1 - labels.mean())
    return float(((passed == labels).mean() - by_chance) / (1 - by_chance)) if by_chance < 1 else math.nan


def alpha(data: Labelled, threshold: float | None = None) -> float:
    """Return Krippendorff's alpha of people, with passing a threshold as one more person's label if it is given.

    Raises:
        MissingDependencyError: krippendorff is not installed.
    """
    with requires("krippendorff", "offline", "the agreement of several people"):
        import krippendorff
    counts = data.votes
    if threshold is not None:
        passed = data.passed(threshold)
        counts = counts + np.stack([~passed, passed], axis=1)
    if not counts.any(axis=0).all():
        return math.nan  # with one label only, nothing can be measured
    return float(krippendorff.alpha(value_counts=counts, value_domain=(0, 1), level_of_measurement="nominal"))


def labels_needed(labels: Flags, sorts: NDArray[Any], level: float) -> int:
    """Return how many labels give the share of bad answers within 3 points, where each answer is of a known sort.

    As in the corrected share of a report: the share within each sort is estimated, and weighted by its size.
    """
    variance = 0.0
    for sort in np.unique(sorts):
        inside = sorts == sort
        good = labels[inside].mean()
        variance += inside.mean() * good * (1 - good)
    return math.ceil(variance * (NormalDist().inv_cdf(0.5 + level / 2) / _MARGIN) ** 2)


def interval(
    measure: Callable[[Labelled], float], data: Labelled, seed: int, samples: int, level: float = 0.95
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a measure."""
    random = np.random.default_rng(seed)
    found = np.array([measure(data.drawn(random)) for _ in range(samples)])
    usable = found[~np.isnan(found)]
    if not len(usable):
        return math.nan, math.nan
    low, high = np.quantile(usable, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def calibration_error(data: Labelled) -> float:
    """Expected calibration error: how far the share of label 1 is from the mean value, in ten bins of equal width."""
    where = np.minimum((data.values * 10).astype(int), 9)
    error = 0.0
    for number in np.unique(where):
        inside = where == number
        error += inside.mean() * abs(data.values[inside].mean() - data.labels[inside].mean())
    return float(error)


def balanced_accuracy(data: Labelled, threshold: float) -> float:
    """Mean of the share of label 1 at or above the threshold and the share of label 0 below it."""
    above = data.passed(threshold)
    return float((above[data.labels].mean() + (~above[~data.labels]).mean()) / 2)


def best_threshold(sets: Sequence[Labelled], step: float) -> tuple[float, float]:
    """Return the threshold with the best mean balanced accuracy over sets, and that mean.

    Args:
        sets: each counts the same, however large it is.
        step: thresholds are multiples of it; of equally good ones the middle one is taken.
    """
    low = min(float(data.values.min()) for data in sets)
    high = max(float(data.values.max()) for data in sets)
    grid = np.arange(int(np.floor(low / step)), int(np.ceil(high / step)) + 2) * step
    found = np.array([np.mean([balanced_accuracy(data, threshold) for data in sets]) for threshold in grid])
    equal = grid[found >= found.max() - 1e-12]
    return float(equal[(len(equal) - 1) // 2]), float(found.max())


# --------------------------------------------------------------------------- rows


def labelled_rows(
    path: Path,
    label: str,
    group: str | None,
    options: ReadOptions = READ_AS_IS,
    *,
    note: Callable[[str], object] = lambda _: None,
) -> tuple[list[LabelledRow], list[str]]:
    """Read labelled rows.

    Args:
        path: a file of any format that ``rageval-hooks score`` reads, or writes.
        label: the column of the label.
        group: the column that names a row's document; None to look for a usual one.
        options: how to read it.
        note: called with each choice that the user should know.

    Returns:
        The rows, and why others cannot be used, with their lines.

    Raises:
        ConfigurationError: no row has a label, or all have the same one.
    """
    rows: list[LabelledRow] = []
    bad: list[str] = []
    for line, item in read_items(path, ("response",), options=options, note=note):
        if isinstance(item, BadRow):
            bad.append(f"line {line}: {item.reason}")
            continue
        fields = {"document": item.document, **item.labelled.turn.metadata}
        opinions = item.opinions(label)
        votes = opinions.count(False), opinions.count(True)
        if None in opinions or votes[0] == votes[1]:
            what = "labels of people who disagree evenly" if opinions else "no label"
            if None in opinions:
                given = item.annotations.get(label, fields.get(label))
                what = f"the label {str(given)[:40]!r}, not 1 or 0"
            bad.append(f"line {line}: {label} has {what}")
            continue
        names = [str(name) for name in map(fields.get, [group] if group else _GROUPS) if name is not None]
        # Rows about the same passage are about the same document.
        usual = item.turn.passages[0].text if item.turn.passages else item.id
        rows.append(LabelledRow(item, votes[1] > votes[0], names[0] if names else usual, votes))
    if not rows:
        raise ConfigurationError(
            f"no row of {path} has a label in the column {label!r}: 1 for a good answer, 0 for a bad one. "
            "--label names another column"
        )
    if len({row.label for row in rows}) == 1:
        raise ConfigurationError(f"all {len(rows)} labels in {path} are the same: agreement needs good and bad answers")
    return rows, bad


# --------------------------------------------------------------------------- agreement


def measure(
    rows: Sequence[LabelledRow], *, seed: int = 0, resamples: int = 1000, level: float = 0.95
) -> list[Agreement]:
    """Measure every score that both good and bad rows have: the verdict first, then the best agreement.

    Args:
        rows: labelled rows with their scores.
        seed: for the random numbers of the intervals.
        resamples: number of bootstrap samples.
        level: confidence of the intervals.
    """
    by_score: dict[str, list[tuple[LabelledRow, Score]]] = {}
    for row in rows:
        for score in row.record.results:
            if isinstance(score, Score) and is_about_turn(score) and score.annotator != "HUMAN":
                name = _JUDGED_VERDICT if is_judged_verdict(score) else score.name
                by_score.setdefault(name, []).append((row, score))
    found = []
    for name, part in by_score.items():
        definition = define_score(part[0][1].name, part[0][1].metric)
        # Oriented values: higher is better for all scores.
        sign = 1 if definition.direction == "higher" else -1
        values = [(sign * score.value, int(row.label), row.group) for row, score in part]
        data = Labelled.of(values, [row.votes for row, _ in part])
        if not data.has_both:
            continue
        threshold, fitted = _threshold([score for _, score in part], definition, data, sign)
        fails, is_bad = ~data.passed(threshold), ~data.labels
        failing, bad, both = int(fails.sum()), int(is_bad.sum()), int((fails & is_bad).sum())
        # So that 1 is good, whatever the direction.
        shares = data if sign == 1 else replace(data, values=1 + data.values)
        is_share = definition.low == 0 and definition.high == 1
        several = bool((data.votes.sum(axis=1) > 1).any())
        measures: dict[str, Callable[[Labelled], float]] = {
            "auroc": auroc,
            "kappa": partial(kappa, threshold=threshold),
            **({"alpha": partial(alpha, threshold=threshold)} if several else {}),
        }
        figures: dict[str, Any] = {}
        for what, function in measures.items():
            low, high = interval(function, data, seed, resamples, level)
            figures |= {what: function(data), f"{what}_low": low, f"{what}_high": high}
        sorts = data.values if len(np.unique(data.values)) <= _MAX_SORTS else data.passed(threshold)
        agreement = Agreement(
            score=name,
            models=tuple(sorted({score.model for _, score in part if score.model})),
            rows=len(part),
            left_out=len(rows) - len(part),
            threshold=sign * threshold,
            fitted=fitted,
            balanced_accuracy=balanced_accuracy(data, threshold),
            fail_precision=both / failing if failing else None,
            fail_recall=both / bad,
            fail_f1=2 * both / (failing + bad),
            calibration_error=calibration_error(shares) if is_share else None,
            direction=definition.direction,
            people_alpha=alpha(data) if several else None,
            labels_needed=labels_needed(data.labels, sorts, level),
            labels_needed_plain=labels_needed(data.labels, np.zeros(len(part)), level),
            **figures,
        )
        found.append(agreement)
    return sorted(found, key=lambda agreement: (agreement.score not in _VERDICTS, -agreement.auroc))


def _threshold(scores: Sequence[Score], definition: ScoreDefinition, data: Labelled, sign: int) -> tuple[float, bool]:
    """Return the oriented threshold that the labels follow; without labels, the best one on these rows, and True.

    The verdict is an alarm if it is bad; a doubtful one passes.
    """
    passing = [sign * score.value for score in scores if score.label in ("pass", "good", "doubtful")]
    failing = [sign * score.value for score in scores if score.label in ("fail", "bad")]
    default = definition.default_threshold(scores[0])
    if default is not None and (passing or failing):
        bound = sign * default - 1e-9
        if min(passing, default=math.inf) >= bound > max(failing, default=-math.inf):
            return sign * default, False
    if passing:
        return min(passing), False
    # A score without an upper bound is a number such as tokens, where hundredths mean nothing. One that no metric
    # defines is known by its values.
    is_share = definition.high is not None if definition.description else bool((abs(data.values) <= 1).all())
    return best_threshold([data], 0.01 if is_share else 1.0)[0], True


# --------------------------------------------------------------------------- in words


def strength(auroc: float, low: float, high: float) -> str:
    """Say what an AUROC with its interval means."""
    if high < 0.5:
        return "sorts answers the wrong way round"
    if low <= 0.5:
        return "not distinguishable from chance"
    return next(words for least, words in _WORDS if auroc >= least)


def to_json(found: Sequence[Agreement]) -> str:
    """Return the figures as JSON."""
    return json.dumps([{**item.model_dump(mode="json"), "in_words": _in_words(item)} for item in found], indent=1)


def to_text(found: Sequence[Agreement]) -> str:
    """Return one paragraph per score."""
    lines = []
    for item in found:
        models = f" ({', '.join(item.models)})" if item.models else ""
        left_out = f", {item.left_out} without the score" if item.left_out else ""
        sign = "≥" if item.direction == "higher" else "≤"
        threshold = f"{sign} {item.threshold:.2f}{' (fitted to these rows)' if item.fitted else ''}"
        kappa = _with_bounds(item.kappa, item.kappa_low, item.kappa_high)
        alarm, none = ("bad", "is bad") if item.score in _VERDICTS else ("fail", "fails")
        precision = f"unknown, no row {none}" if item.fail_precision is None else f"{item.fail_precision:.2f}"
        lines += [
            f"{item.score}{models}: {_in_words(item)}",
            f"  AUROC {_with_bounds(item.auroc, item.auroc_low, item.auroc_high)} on {item.rows} rows{left_out}",
            f"  with the threshold {threshold}: Cohen's kappa {kappa}, balanced accuracy {item.balanced_accuracy:.2f}",
            f"  as an alarm: precision of {alarm} {precision}, recall {item.fail_recall:.2f}, F1 {item.fail_f1:.2f}",
        ]
        if item.calibration_error is not None:
            lines.append(f"  calibration error {item.calibration_error:.2f}")
        if item.alpha is not None:
            with_people = _with_bounds(item.alpha, item.alpha_low, item.alpha_high)
            among = f"of people among themselves {item.people_alpha:.2f}"
            lines.append(f"  Krippendorff's alpha with people {with_people}; {among}")
        lines.append(
            f"  labels for the share of bad answers within {_MARGIN:.0%}: {item.labels_needed:,}; without this score "
            f"{item.labels_needed_plain:,}"
        )
    return "\n".join(lines)


def _with_bounds(*figures: float | None) -> str:
    value, low, high = ("" if figure is None else f"{figure:.2f}" for figure in figures)
    return f"{value} ({low} to {high})"


def _in_words(item: Agreement) -> str:
    return strength(item.auroc, item.auroc_low, item.auroc_high)
