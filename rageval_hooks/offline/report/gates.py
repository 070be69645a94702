"""Conditions that a report has to meet, for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.offline.jobs.allowance import ErrorAllowance
from rageval_hooks.offline.report.comparison import Comparison, ScoreChange
from rageval_hooks.offline.report.derived import ANSWERED, NO_ANSWER
from rageval_hooks.offline.report.model import FileReport, Report
from rageval_hooks.text.formatting import show_value
from rageval_hooks.text.wording import counted, listed

__all__ = ["Gate", "GateResult", "check_gate", "parse_bounds"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What is checked.

    Attributes:
        bounds: by score: the mean has to reach the bound (at most, where lower is better).
        has_baseline: the report's first file is a baseline, and no score may be significantly worse than there.
        alpha: probability of a false alarm, over all scores of a file together.
        max_errors: how many questions may fail.
    """

    bounds: Mapping[str, float]
    has_baseline: bool = False
    alpha: float = 0.05
    max_errors: ErrorAllowance = field(default_factory=ErrorAllowance)


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """What a gate says.

    Attributes:
        failures: a line for every condition that is not met.
        undecided: a line for every score for which a regression can be neither found nor excluded.
        notes: about the test itself.
    """

    failures: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """The exit status: 1 if a condition is not met, 2 if a regression cannot be excluded, else 0."""
        if self.failures:
            return 1
        return 2 if self.undecided else 0


def parse_bounds(given: Iterable[str]) -> dict[str, float]:
    """Read bounds such as ``groundedness=0.7``; several in one string are separated by commas.

    Raises:
        ConfigurationError: a bound does not have that form.
    """
    bounds = {}
    for part in (part.strip() for text in given for part in text.split(",")):
        name, _, number = part.rpartition("=")
        try:
            bound = float(number)
        except ValueError:
            bound = math.nan
        if not name.strip() or not math.isfinite(bound):
            raise ConfigurationError(f"{part!r} does not have the form score=number, such as groundedness=0.7")
        bounds[name.strip()] = bound
    return bounds


def check_gate(report: Report, gate: Gate) -> GateResult:
    """Check a report.

    Raises:
        ConfigurationError: a file has no value of a bounded score, or nothing in common with the baseline.
        UnknownNameError: no file has a score of that name.
    """
    checked = report.files[1:] if gate.has_baseline else report.files
    failures = [line for file in checked for line in _too_many_errors(file, gate.max_errors)]
    failures += [
        line for name, bound in gate.bounds.items() for file in checked for line in _shortfall(file, name, bound)
    ]
    if not gate.has_baseline:
        return GateResult(failures=tuple(failures))
    undecided: list[str] = []
    notes: list[str] = []
    for comparison, file in zip(report.comparisons, report.files[1:], strict=True):
        found = _regressions(comparison, gate.alpha, gate.max_errors, file.questions)
        failures += found.failures
        undecided += found.undecided
        notes += found.notes
    notes += [line for file in report.files[1:] for line in _new_scores(report.files[0], file)]
    return GateResult(failures=tuple(failures), undecided=tuple(undecided), notes=tuple(notes))


# --------------------------------------------------------------------------- failed questions and bounds


def _too_many_errors(file: FileReport, limit: ErrorAllowance) -> Iterator[str]:
    if limit.allows(file.failed_questions, file.questions):
        return
    kinds = listed([f"{number} {kind}" for kind, number in file.errors.items()])
    yield (
        f"{file.name}: {file.failed_questions} of {counted(file.questions, 'question')} failed ({kinds});"
        f" allowed: --max-errors {limit}"
    )


def _shortfall(file: FileReport, name: str, bound: float) -> Iterator[str]:
    row = file.score(name)
    if row is None and name == NO_ANSWER:
        row = file.score(ANSWERED)
    if row is None:
        valid = [row.name for row in file.scores if row.spread]
        raise UnknownNameError("score", name, valid, f"These are the scores of {file.path}.")
    if row.spread is None:
        reasons = [*row.failed.reasons, *row.skipped.reasons, "no reason is stated"]
        raise ConfigurationError(
            f"{file.path} has no value of {name}: {row.failed.count} failed, {row.skipped.count} skipped ({reasons[0]})"
        )
    mean = row.spread.mean
    lower_is_better = row.direction == "lower"
    shortfall = mean - bound if lower_is_better else bound - mean
    if shortfall <= 0:
        return
    side, limit = ("above", "at most") if lower_is_better else ("below", "at least")
    missing = [
        f"{part.count} {word}" for part, word in ((row.skipped, "skipped"), (row.failed, "failed")) if part.count
    ]
    yield (
        f"{file.name}: {name} is {show_value(mean)}, {show_value(shortfall)} {side} the bound"
        f" ({limit} {bound:g}; {', '.join([counted(row.spread.count, 'value'), *missing])})"
    )


# --------------------------------------------------------------------------- regressions


def _regressions(comparison: Comparison, alpha: float, limit: ErrorAllowance, questions: int) -> GateResult:
    """Look for scores that are significantly worse than in the baseline.

    A regression can be neither found nor excluded for a score that has no value in the new file, that lost more than
    the allowed number of questions to failures or more than half to skips, or that different makers made.
    """
    lost = {
        loss.name
        for loss in comparison.losses
        if loss.is_too_much or not limit.allows(loss.lost_to_failures, questions)
    }
    tested = [change for change in comparison.scores if change.test is not None]
    if not tested and not (lost and comparison.common):
        raise ConfigurationError(
            f"{comparison.before_path} and {comparison.after_path} have no questions in common that both have a"
            f" value for ({comparison.common} ids in common): nothing can be compared"
        )
    sound = [change for change in tested if change.name not in lost and change.makers is None]
    worse = [change for change in sound if change.is_worse and change.p_worse is not None and change.p_worse < alpha]
    partly_lost = [loss for loss in comparison.losses if loss.name not in lost]
    notes = [f"{comparison.after}: {comparison.describe_loss(loss)}" for loss in partly_lost]
    notes += [f"{comparison.after}: {comparison.describe_excluded(change)}" for change in sound if change.not_compared]
    return GateResult(
        failures=tuple(_regression(comparison, change) for change in worse),
        undecided=tuple(
            f"{comparison.after}: a regression cannot be excluded: {line}" for line in _undecided(comparison, lost)
        ),
        notes=(*notes, *_too_few(comparison, sound, alpha)),
    )


def _new_scores(baseline: FileReport, file: FileReport) -> Iterator[str]:
    known = {row.name for row in baseline.scores if row.spread}
    new = [row.name for row in file.scores if row.spread and row.name not in known]
    if new:
        yield f"{file.name}: {baseline.name} has no values of {', '.join(new)} to compare with"


def _undecided(comparison: Comparison, lost: set[str]) -> Iterator[str]:
    for loss in comparison.losses:
        if loss.name in lost:
            yield comparison.describe_loss(loss)
    with_loss = {loss.name for loss in comparison.losses}
    for change in comparison.scores:
        if change.makers is not None:
            why = comparison.describe_makers(change)
            yield f"{change.name}: {why}. Score both files with the same version and model"
        elif change.test is None and change.name not in with_loss:
            yield f"no question has a value of {change.name} in both files"


def _regression(comparison: Comparison, change: ScoreChange) -> str:
    test = change.test
    assert test is not None  # noqa: S101 - the caller has checked it
    interval = f" [{test.interval.low:+.3g}, {test.interval.high:+.3g}]" if test.interval else ""
    return (
        f"{comparison.after}: {change.name} is worse than in {comparison.before}: {show_value(test.before)} →"
        f" {show_value(test.after)}, difference {test.difference:+.3g}{interval}, n = {test.count},"
        f" p = {change.p_worse or 0.0:.2g} (one-sided, adjusted for {counted(_tested(comparison), 'score')})"
    )


def _tested(comparison: Comparison) -> int:
    return sum(1 for change in comparison.scores if change.test is not None and change.test.changed)


def _too_few(comparison: Comparison, tested: list[ScoreChange], alpha: float) -> Iterator[str]:
    """Say if not even a change of every question for the worse could be significant.

    Such a change of n questions has the probability 1 / 2^n, and no change has a smaller one.
    """
    most = max((change.test.count for change in tested if change.test is not None), default=0)
    scores = max(1, _tested(comparison))
    needed = math.floor(math.log2(scores / alpha)) + 1
    if 0 < most < needed:
        yield (
            f"{comparison.after}: only {counted(most, 'question')} in common with {comparison.before}. With"
            f" {counted(scores, 'score')} and alpha = {alpha:g}, at least {needed} are needed to find any change"
            " significant. Compare fewer scores: --metrics"
        )
