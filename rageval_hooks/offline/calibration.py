"""Limits of the verdict that are fitted to a team's own labels, and whether they are better on held-out answers.

The limits of ``bad`` are fitted: they decide about alarms. Those of ``doubtful`` keep their distance to them. What is
maximised is Cohen's kappa of ``bad`` with people. Folds are drawn by document, since its rows are not independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.local.verdict import computed_facts, limits_with, wrong_facts
from rageval_hooks.metrics.support.sentence_scores import sentences_in
from rageval_hooks.offline.agreement import Flags, Floats, Labelled, LabelledRow, cohens_kappa, interval
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Result, Score

NEEDED = ("verdict", "faithfulness", "unsupported_facts")
"""The metrics whose results a row needs."""

_FITTED = ("verdict.several.bad", "verdict.one.bad", "verdict.wrong_fact")
_GRID = np.arange(0, 101) / 100
_FOLDS = 5
_ROUNDS = 3
_MIN_ROWS = 20
"""Good and bad rows, at least."""


class AlarmFigures(Data):
    """How well ``bad`` agrees with people, on held-out rows.

    Attributes:
        kappa: Cohen's kappa.
        precision: share of the alarms that are right; None without an alarm.
        recall: share of the bad rows that raise one.
    """

    kappa: float
    precision: float | None
    recall: float


class Calibration(Data):
    """Fitted limits next to the shipped ones.

    Attributes:
        rows: rows with a verdict of the formula.
        left_out: labelled rows without one.
        models: the model of ``faithfulness``.
        shipped: the alarm of the shipped limits.
        fitted: the alarm of fitted limits, each row by limits that were fitted without its fold.
        low: lower bound of the interval of the difference of their kappas.
        high: upper bound of it.
        limits: those that are fitted to all rows, without those that stay as shipped.
    """

    rows: int
    left_out: int
    models: str
    shipped: AlarmFigures
    fitted: AlarmFigures
    low: float
    high: float
    limits: Mapping[str, float]

    @property
    def is_better(self) -> bool:
        """True if the fit is better beyond its interval."""
        return self.low > 0

    def figures(self) -> list[str]:
        """Return what was found, line by line."""
        gain = self.fitted.kappa - self.shipped.kappa
        left_out = f", {self.left_out} without a verdict are left out" if self.left_out else ""
        return [
            f"{self.rows} labelled answers{left_out}; held out in {_FOLDS} folds:",
            f"shipped limits: {_in_words(self.shipped)}",
            f"fitted limits: {_in_words(self.fitted)}",
            f"difference of kappa: {gain:+.2f} ({self.low:+.2f} to {self.high:+.2f})",
        ]

    def to_toml(self) -> str:
        """Return the file that ``instrument(thresholds=…)`` reads; without limits if the shipped ones stay."""
        lines = [f"# {line}" for line in (*self.figures(), f"models: {self.models}")]
        if not self.is_better:
            return "\n".join([*lines, "# The fit is not better beyond its interval: the shipped limits stay.", ""])
        return "\n".join([*lines, *(f"{name} = {value:g}" for name, value in self.limits.items()), ""])


def calibrate(rows: Sequence[LabelledRow], *, seed: int = 0, resamples: int = 1000, level: float = 0.95) -> Calibration:
    """Fit the limits of the verdict to labelled rows.

    Args:
        rows: with the results of :data:`NEEDED`.
        seed: for folds and intervals.
        resamples: number of bootstrap samples.
        level: confidence of the interval.

    Raises:
        ConfigurationError: there are too few rows, or the verdicts are those of a grounding model.
    """
    found = [(row, *inputs) for row in rows if (inputs := _inputs(row.record.results)) is not None]
    good = sum(row.label for row, *_ in found)
    if min(good, len(found) - good) < _MIN_ROWS:
        raise ConfigurationError(
            f"calibration needs {_MIN_ROWS} good and {_MIN_ROWS} bad answers with a verdict of the formula; there are "
            f"{good} and {len(found) - good}"
        )
    groups = {group: number for number, group in enumerate(sorted({row.group for row, *_ in found}))}
    if len(groups) < _FOLDS:
        raise ConfigurationError(f"held-out figures need answers about {_FOLDS} documents; there are {len(groups)}")
    table = np.array([inputs for _, inputs, _ in found], float)
    labels = np.array([row.label for row, *_ in found])
    model = found[0][2]
    shipped = limits_with({}, model)
    fitted = _fit(table, labels, shipped)
    numbers = np.array([groups[row.group] for row, *_ in found])
    folds = np.random.default_rng(seed).permutation(len(groups))[numbers] % _FOLDS
    before, after = _bad(table, shipped), np.zeros(len(found), bool)
    for fold in range(_FOLDS):
        inside = folds == fold
        after[inside] = _bad(table[inside], _fit(table[~inside], labels[~inside], shipped))
    # The two alarms of a row, as one value: bit 0 for the fitted limits, bit 1 for the shipped ones.
    codes = 2.0 * before + after
    both = Labelled.of(
        [(code, int(row.label), row.group) for (row, *_), code in zip(found, codes.tolist(), strict=True)]
    )
    low, high = interval(_difference, both, seed, resamples, level)
    return Calibration(
        rows=len(found),
        left_out=len(rows) - len(found),
        models=model or "default",
        shipped=_alarm(before, labels),
        fitted=_alarm(after, labels),
        low=low,
        high=high,
        limits={name: bound for name, bound in fitted.items() if bound != shipped[name]},
    )


def _inputs(results: Sequence[Result]) -> tuple[tuple[float, bool, bool, bool], str | None] | None:
    """Return what a row's verdict depends on, and the model of ``faithfulness``; None if it has no verdict.

    That is the value of ``faithfulness``, and whether the answer has several sentences, a wrong fact, and only computed
    figures that no passage has.
    """
    by_name = {result.name: result for result in results}
    verdict, faithfulness, facts = map(by_name.get, NEEDED)
    if not isinstance(verdict, Score) or not isinstance(faithfulness, Score) or facts is None:
        return None
    if verdict.model != faithfulness.model:
        raise ConfigurationError(
            f"the verdict follows the grounding model {verdict.model}, whose threshold is fixed: there is no limit to "
            "fit. `rageval-hooks agreement` says how well it agrees with the labels; --models "
            """'{"grounding": "minilm"}' fits the limits of the verdict without it"""
        )
    several = len(sentences_in(faithfulness.metadata)) > 1
    return (faithfulness.value, several, bool(wrong_facts(facts)), bool(computed_facts(facts))), faithfulness.model


def _bad(table: Floats, limits: Mapping[str, float]) -> Flags:
    """Return for which rows the verdict is bad."""
    value, several, wrong, computed = table.T
    bound = np.where(several, limits["verdict.several.bad"], limits["verdict.one.bad"])
    bad: Flags = ((value < bound) | ((wrong > 0) & (value < limits["verdict.wrong_fact"]))) & (computed == 0)
    return bad


def _fit(table: Floats, labels: Flags, shipped: Mapping[str, float]) -> dict[str, float]:
    """Return the limits with the best kappa, one after the other; of equally good ones the nearest to the shipped."""
    limits = dict(shipped)
    for _ in range(_ROUNDS):
        for name in _FITTED:
            found = np.array([cohens_kappa(~_bad(table, {**limits, name: bound}), labels) for bound in _GRID])
            best = _GRID[found >= np.nanmax(found) - 1e-9]
            limits[name] = float(best[np.abs(best - shipped[name]).argmin()])
    for kind in ("one", "several"):
        bad, doubtful = f"verdict.{kind}.bad", f"verdict.{kind}.doubtful"
        limits[doubtful] = round(min(1.0, limits[bad] + shipped[doubtful] - shipped[bad]), 2)
    return limits


def _difference(data: Labelled) -> float:
    codes = data.values.astype(int)
    return cohens_kappa(codes & 1 == 0, data.labels) - cohens_kappa(codes & 2 == 0, data.labels)


def _alarm(bad: Flags, good: Flags) -> AlarmFigures:
    right = int((bad & ~good).sum())
    precision = right / int(bad.sum()) if bad.any() else None
    return AlarmFigures(kappa=cohens_kappa(~bad, good), precision=precision, recall=right / int((~good).sum()))


def _in_words(alarm: AlarmFigures) -> str:
    precision = "unknown" if alarm.precision is None else f"{alarm.precision:.2f}"
    return f"Cohen's kappa of bad {alarm.kappa:.2f}, precision {precision}, recall {alarm.recall:.2f}"
