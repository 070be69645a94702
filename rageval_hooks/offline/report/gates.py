"""Conditions that a report has to meet, for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, product

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.offline.jobs.max_errors import MaxErrors
from rageval_hooks.offline.report.comparison import Comparison, Loss, ScoreChange
from rageval_hooks.offline.report.derived import ANSWERED, NO_ANSWER
from rageval_hooks.offline.report.model import FileReport, Report, ScoreRow
from rageval_hooks.offline.report.statistics import Paired, Spread
from rageval_hooks.runtime.selecting import without
from rageval_hooks.text.formatting import show_value
from rageval_hooks.text.wording import counted, listed

__all__ = ["Gate", "GateResult", "check_gate", "parse_bounds"]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The conditions of a check.

    Attributes:
        bounds: by score: the mean has to reach the bound (at most, where lower is better).
        has_baseline: the report's first file is a baseline, and no score may be significantly worse than there.
        alpha: probability of a false alarm, over all scores of a file together.
        max_errors: how many questions may fail.
    """

    bounds: Mapping[str, float]
    has_baseline: bool = False
    alpha: float = 0.05
    max_errors: MaxErrors = field(default_factory=MaxErrors)


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The result of a check.

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
    for part in chain.from_iterable(text.split(",") for text in given):
        # The last equals sign separates: a name of a score may contain one, a number cannot.
        name, _, number = map(str.strip, part.rpartition("="))
        bound = _finite(number)
        if bound is None or not name:
            raise ConfigurationError(f"{part.strip()!r} does not have the form score=number, such as groundedness=0.7")
        bounds[name] = bound
    return bounds


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    # float() also reads "nan" and "inf", which nothing could reach.
    return number if math.isfinite(number) else None


def check_gate(report: Report, gate: Gate) -> GateResult:
    """Check a report.

    Raises:
        ConfigurationError: a file has no value of a bounded score, or nothing in common with the baseline.
        UnknownNameError: no file has a score of that name.
    """
    # The baseline passed its own checks when it was made; only the files after it are checked.
    checked = report.files[1:] if gate.has_baseline else report.files
    failures: list[str] = []
    for file in checked:
        failures += _too_many_errors(file, gate.max_errors)
    for (name, bound), file in product(gate.bounds.items(), checked):
        failures += _shortfall(file, name, bound)
    if not gate.has_baseline:
        return GateResult(failures=tuple(failures))

    undecided: list[str] = []
    notes: list[str] = []
    for comparison, file in zip(report.comparisons, checked, strict=True):
        check = _RegressionCheck(comparison, gate, file.questions)
        failures += check.regressions()
        undecided += check.undecided()
        notes += check.notes()
    for file in checked:
        notes += _new_scores(report.files[0], file)
    return GateResult(failures=tuple(failures), undecided=tuple(undecided), notes=tuple(notes))


# --------------------------------------------------------------------------- failed questions and bounds


def _too_many_errors(file: FileReport, limit: MaxErrors) -> Iterator[str]:
    if limit.allows(file.failed_questions, file.questions):
        return
    kinds = listed([f"{number} {kind}" for kind, number in file.errors.items()])
    yield (
        f"{file.name}: {file.failed_questions} of {counted(file.questions, 'question')} failed ({kinds});"
        f" allowed: --max-errors {limit}"
    )


def _shortfall(file: FileReport, name: str, bound: float) -> Iterator[str]:
    row = _bounded_row(file, name)
    found = row.spread
    if found is None:
        raise _no_value(file, row, name)
    shortfall, side, limit = bound - found.mean, "below", "at least"
    if row.direction == "lower":
        shortfall, side, limit = -shortfall, "above", "at most"
    if shortfall > 0:
        yield (
            f"{file.name}: {name} is {show_value(found.mean)}, {show_value(shortfall)} {side} the bound"
            f" ({limit} {bound:g}; {_counts(row, found)})"
        )


def _no_value(file: FileReport, row: ScoreRow, name: str) -> ConfigurationError:
    reason = row.failed.main_reason or row.skipped.main_reason or "no reason is stated"
    return ConfigurationError(
        f"{file.path} has no value of {name}: {row.failed.count} failed, {row.skipped.count} skipped ({reason})"
    )


def _bounded_row(file: FileReport, name: str) -> ScoreRow:
    """Return the row of a score that has a bound.

    Raises:
        UnknownNameError: the file has no such score.
    """
    row = file.score(name)
    # A report shows `no_answer` as `answered`; a bound on either name means the same.
    if row is None and name == NO_ANSWER:
        row = file.score(ANSWERED)
    if row is None:
        valid = [row.name for row in file.scores if row.spread]
        raise UnknownNameError("score", name, valid, f"These are the scores of {file.path}.")
    return row


def _counts(row: ScoreRow, found: Spread) -> str:
    """Return how many values a mean has, and how many are missing: ``40 values, 2 skipped``."""
    numbers = {"skipped": row.skipped.count, "failed": row.failed.count}
    missing = [f"{number} {word}" for word, number in numbers.items() if number]
    return ", ".join([counted(found.count, "value"), *missing])


# --------------------------------------------------------------------------- regressions


class _RegressionCheck:
    """Looks for scores of one file that are significantly worse than in the baseline.

    A regression can be neither found nor excluded for a score that has no value in the new file, that lost more than
    the allowed number of questions to failures or more than half to skips, or that different makers made.

    Args:
        comparison: the baseline with the file.
        gate: what is checked.
        questions: number of questions of the file.

    Raises:
        ConfigurationError: the files have nothing in common that could be compared.
    """

    def __init__(self, comparison: Comparison, gate: Gate, questions: int) -> None:
        self._comparison = comparison
        self._alpha = gate.alpha
        self._lost: list[Loss] = []
        self._partly_lost: list[Loss] = []
        for loss in comparison.losses:
            is_allowed = gate.max_errors.allows(loss.lost_to_failures, questions)
            if is_allowed and not loss.is_too_much:
                self._partly_lost.append(loss)
            else:
                self._lost.append(loss)
        self._check_anything_in_common()
        lost = {loss.name for loss in self._lost}
        self._sound = [change for change in comparison.scores if change.is_tested and change.name not in lost]

    def _check_anything_in_common(self) -> None:
        comparison = self._comparison
        has_tests = any(change.count for change in comparison.scores)
        # Common questions that lost all their scores are a finding, which `undecided` reports.
        has_losses = bool(self._lost) and comparison.common > 0
        if has_tests or has_losses:
            return
        raise ConfigurationError(
            f"{comparison.before_path} and {comparison.after_path} have no questions in common that both have a"
            f" value for ({comparison.common} ids in common): nothing can be compared"
        )

    def regressions(self) -> Iterator[str]:
        """Yield a line for each score that is significantly worse."""
        for change in self._sound:
            # With a large alpha, a mean that did not change could be called significant.
            is_regression = change.is_worse and change.is_significant(self._alpha, worse=True)
            if is_regression and change.test is not None:
                yield self._regression(change, change.test)

    def undecided(self) -> Iterator[str]:
        """Yield a line for each cause that keeps a regression from being found or excluded."""
        for line in (*self._comparison.describe_losses(self._lost), *self._not_comparable()):
            yield f"{self._comparison.after}: a regression cannot be excluded: {line}"

    def notes(self) -> Iterator[str]:
        """Yield lines about the test itself."""
        comparison = self._comparison
        for line in comparison.describe_losses(self._partly_lost):
            yield f"{comparison.after}: {line}"
        for change in self._sound:
            if change.not_compared:
                yield f"{comparison.after}: {comparison.describe_excluded(change)}"
        yield from self._too_few()

    def _not_comparable(self) -> Iterator[str]:
        with_loss = {loss.name for loss in self._comparison.losses}
        for change in self._comparison.scores:
            # Two versions of a metric, or two judges, measure different things.
            if change.makers is not None:
                why = self._comparison.describe_makers(change)
                yield f"{change.name}: {why}. Score both files with the same version and model"
            # A loss has its own line, which also says why.
            elif change.test is None and change.name not in with_loss:
                yield f"no question has a value of {change.name} in both files"

    def _regression(self, change: ScoreChange, test: Paired) -> str:
        before, after = self._comparison.before, self._comparison.after
        difference = f"difference {test.difference:+.3g}"
        if test.interval:
            difference += f" [{test.interval.low:+.3g}, {test.interval.high:+.3g}]"
        return (
            f"{after}: {change.name} is worse than in {before}: {show_value(test.before)} → {show_value(test.after)},"
            f" {difference}, n = {test.count},"
            f" p = {change.p_worse or 0.0:.2g} (one-sided, adjusted for {counted(self._tests(), 'score')})"
        )

    def _tests(self) -> int:
        """Return the number of scores that the p-values are adjusted for; an unchanged score is no test."""
        return sum(change.changed > 0 for change in self._comparison.scores)

    def _too_few(self) -> Iterator[str]:
        """Say if there are too few questions for any change to be significant."""
        # If every one of n questions changes for the worse, p is 1 / 2^n; no change of n questions has a smaller p.
        most = max((change.count for change in self._sound), default=0)
        scores = max(1, self._tests())
        needed = math.floor(math.log2(scores / self._alpha)) + 1
        if 0 < most < needed:
            yield (
                f"{self._comparison.after}: only {counted(most, 'question')} in common with {self._comparison.before}."
                f" With {counted(scores, 'score')} and alpha = {self._alpha:g}, at least {needed} are needed to find"
                " any change significant. Compare fewer scores: --metrics"
            )


def _new_scores(baseline: FileReport, file: FileReport) -> Iterator[str]:
    new = without(_names_with_values(file), _names_with_values(baseline))
    if new:
        yield f"{file.name}: {baseline.name} has no values of {', '.join(new)} to compare with"


def _names_with_values(file: FileReport) -> list[str]:
    return [row.name for row in file.scores if row.count]
