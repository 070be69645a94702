"""Conditions that a report has to meet, for continuous integration: failed questions, bounds, regressions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.offline.report.build import FileReport, Report
from rageval_hooks.offline.report.compare import FileComparison, Loss, ScoreChange
from rageval_hooks.offline.running import MaxErrors
from rageval_hooks.offline.score_definitions import ANSWERED, BAD_ANSWERS
from rageval_hooks.score import CAUSES, shown_name
from rageval_hooks.text.formatting import format_share, show_value
from rageval_hooks.text.wording import counted, listed


@dataclass(frozen=True)
class Tolerance:
    """How much worse a mean may be before it counts as a regression.

    Attributes:
        value: the amount, or the share of the baseline's mean.
        is_share: True for a share.
    """

    value: float
    is_share: bool = False

    def __str__(self) -> str:
        """Return the tolerance as the option has it."""
        return f"{self.value * 100:g}%" if self.is_share else f"{self.value:g}"


@dataclass(frozen=True, kw_only=True)
class ReportGate:
    """The conditions of a check.

    Attributes:
        bounds: by score: the mean has to reach the bound (at most, where lower is better).
        has_baseline: the report's first file is a baseline, and no score may have regressed since.
        alpha: probability of a false alarm, over all scores of a file together.
        max_errors: how many questions may fail.
        tolerances: by score: how much worse its mean may be; "" for all scores that are not named. By default 1% of a
            score's range, and 5% of the mean for a score without one.
        named: scores that decide about a regression although they are about latency, tokens or cost, as those with a
            tolerance do. Those of quality always decide.
    """

    bounds: Mapping[str, float] = field(default_factory=dict)
    has_baseline: bool = False
    alpha: float = 0.05
    max_errors: MaxErrors = field(default_factory=MaxErrors)
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    named: Collection[str] = ()

    def decides(self, score: ScoreChange | Loss) -> bool:
        """Return True if a change of a score can be a regression."""
        return score.quality or score.name in self.named or score.name in self.tolerances


@dataclass(kw_only=True)
class GateResult:
    """The result of a check.

    Attributes:
        failures: a line for every condition that is not met.
        undecided: a line for every score for which a regression can be neither found nor excluded.
        notes: about the test itself.
    """

    failures: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The exit status: 1 if a condition is not met, 2 if a regression cannot be excluded, else 0."""
        if self.failures:
            return 1
        return 2 if self.undecided else 0


def gate_of(
    fail_under: Iterable[str] | None,
    has_baseline: bool,
    max_errors: str | None,
    alpha: float,
    tolerances: Iterable[str] | None,
    metrics: Collection[str],
) -> ReportGate | None:
    """Return the conditions that the options of ``rageval-hooks report`` name; None for a report without checks.

    Args:
        fail_under: bounds such as ``groundedness=0.7``; several in one string are separated by commas.
        has_baseline: whether a baseline is given.
        max_errors: how many questions may fail, such as ``3`` or ``5%``.
        alpha: probability of a false alarm.
        tolerances: such as ``groundedness=0.02``, ``cost=5%``, or ``0.02`` for all scores that are not named.
        metrics: the scores that are named.

    Raises:
        ConfigurationError: an option is wrong.
    """
    if not has_baseline and tolerances:
        raise ConfigurationError("--tolerance needs --fail-on-regression FILE, the baseline to compare with")
    if has_baseline and not 0 < alpha < 1:
        raise ConfigurationError(f"--alpha is {alpha:g}: give a probability between 0 and 1, such as 0.05")
    bounds: dict[str, float] = {}
    for part, name, number, is_share in _parts(fail_under):
        if not name or is_share or math.isnan(number):
            raise ConfigurationError(f"{part!r} does not have the form score=number, such as groundedness=0.7")
        bounds[name] = number
    accepted: dict[str, Tolerance] = {}
    for part, name, number, is_share in _parts(tolerances):
        # NaN fails every comparison.
        if part.startswith("=") or not number >= 0:
            raise ConfigurationError(
                f"--tolerance {part!r} does not have the form score=number or score=percentage, such as"
                " groundedness=0.02 or cost=5%"
            )
        accepted[name] = Tolerance(number / 100 if is_share else number, is_share=is_share)
    if not bounds and not has_baseline and max_errors is None:
        return None
    return ReportGate(
        bounds=bounds,
        has_baseline=has_baseline,
        alpha=alpha,
        max_errors=MaxErrors.parse(max_errors),
        tolerances=accepted,
        named=metrics,
    )


def _parts(given: Iterable[str] | None) -> Iterator[tuple[str, str, float, bool]]:
    """Yield each part of an option: as it is, its name, its number, and whether that is a percentage.

    The name is empty for all scores. The number is NaN if it is none, or infinite, which nothing could reach.
    """
    for part in (part.strip() for text in given or () for part in text.split(",")):
        # The last equals sign separates: a name of a score may contain one, a number cannot.
        name, _, text = map(str.strip, part.rpartition("="))
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        yield part, name, number if math.isfinite(number) else math.nan, text.endswith("%")


def check_gate(report: Report, gate: ReportGate) -> GateResult:
    """Check a report.

    Raises:
        ConfigurationError: a file has no value of a bounded score, or nothing in common with the baseline.
        UnknownNameError: no file has a score of that name.
    """
    names = list(dict.fromkeys(row.name for file in report.files for row in file.scores))
    for name in gate.tolerances:
        if name and name not in names:
            raise UnknownNameError("score", name, names)
    # The baseline passed its own checks when it was made; only the files after it are checked.
    checked = report.files[1:] if gate.has_baseline else report.files
    result = GateResult()
    for file in checked:
        if not gate.max_errors.allows(file.failed_questions, file.questions):
            kinds = listed([f"{number} {kind}" for kind, number in file.errors.items()])
            result.failures.append(
                f"{file.name}: {file.failed_questions} of {counted(file.questions, 'question')} failed ({kinds});"
                f" allowed: --max-errors {gate.max_errors}"
            )
    for name, bound in gate.bounds.items():
        for file in checked:
            result.failures += _shortfall(file, name, bound)
            answered = file.score(ANSWERED) if name == BAD_ANSWERS else None
            if answered and answered.spread and answered.spread.mean < 1 and ANSWERED not in gate.bounds:
                share = format_share(answered.spread.mean)
                result.notes.append(
                    f"{file.name}: {ANSWERED} is {share}. A refusal is not bad: add --fail-under {ANSWERED}=0.9"
                )
    for comparison, file in zip(report.comparisons, checked, strict=True) if gate.has_baseline else ():
        _check_regressions(comparison, gate, file.questions, result)
        known = {row.name for row in report.files[0].scores if row.count}
        if new := [row.name for row in file.scores if row.count and row.name not in known]:
            lacks = f"{report.files[0].name} has no values of {', '.join(new)} to compare with"
            result.notes.append(f"{file.name}: {lacks}")
    return result


def _shortfall(file: FileReport, name: str, bound: float) -> Iterator[str]:
    # "verdict.bad.unsupported": the answers that are bad for one cause
    whole, _, cause = name.rpartition(".")
    if whole == BAD_ANSWERS and cause in CAUSES:
        yield from _bad_by_cause(file, cause, bound)
        return
    row = file.score(name)
    if row is None:
        valid = [row.name for row in file.scores if row.spread]
        raise UnknownNameError("score", name, valid, f"These are the scores of {file.path}.")
    if row.spread is None:
        reason = row.failed.main_reason or row.skipped.main_reason or "no reason is stated"
        raise ConfigurationError(
            f"{file.path} has no value of {name}: {row.failed.count} failed, {row.skipped.count} skipped ({reason})"
        )
    mean = row.spread.mean
    shortfall, side, limit = bound - mean, "below", "at least"
    if row.direction == "lower":
        shortfall, side, limit = -shortfall, "above", "at most"
    if shortfall > 0:
        numbers = {"skipped": row.skipped.count, "failed": row.failed.count}
        values = [counted(row.count, "value"), *(f"{number} {word}" for word, number in numbers.items() if number)]
        values += file.bad_by_cause if name == BAD_ANSWERS else []
        yield (
            f"{file.name}: {shown_name(name)} is {show_value(mean)}, {show_value(shortfall)} {side} the bound"
            f" ({limit} {bound:g}; {', '.join(values)})"
        )


def _bad_by_cause(file: FileReport, cause: str, bound: float) -> Iterator[str]:
    row = file.score(BAD_ANSWERS)
    if row is None or not row.count:
        raise ConfigurationError(f"{file.path} has no verdicts: {BAD_ANSWERS}.{cause} cannot be checked")
    number = sum(found.bad for found in file.causes if found.cause == cause)
    if number / row.count > bound:
        yield (
            f"{file.name}: {number} of {counted(row.count, 'answer')} are bad with the cause {cause}"
            f" ({number / row.count:.3f}; at most {bound:g})"
        )


def _check_regressions(comparison: FileComparison, gate: ReportGate, questions: int, result: GateResult) -> None:
    """Look for scores of one file that have regressed since the baseline.

    A score has regressed if the interval of its paired difference lies beyond the tolerance, and the difference is
    significant over all scores that decide.

    A regression can be neither found nor excluded for a score that has no value in the new file, that lost more than
    the allowed number of questions to failures or more than half to skips, or that different makers made.

    Args:
        comparison: the baseline with the file.
        gate: what is checked.
        questions: number of questions of the file.
        result: what was found is added to it.

    Raises:
        ConfigurationError: the files have nothing in common that could be compared.
    """
    after = comparison.after
    deciding = [*filter(gate.decides, comparison.scores)]
    losses = {loss.name: loss for loss in comparison.losses if gate.decides(loss)}
    lost = {
        name: loss
        for name, loss in losses.items()
        if loss.is_too_much or not gate.max_errors.allows(loss.lost_to_failures, questions)
    }
    # Common questions that lost all their scores are undecided.
    if not any(change.count for change in comparison.scores) and not (lost and comparison.common):
        raise ConfigurationError(
            f"{comparison.before_path} and {comparison.after_path} have no questions in common that both have a"
            f" value for ({comparison.common} ids in common): nothing can be compared"
        )
    causes = comparison.describe_losses(lost.values())
    for change in deciding:
        if change.makers is not None:
            # Two versions of a metric, or two judges, measure different things.
            why = comparison.describe_makers(change.makers)
            causes.append(f"{change.name}: {why}. Score both files with the same version and model")
        elif change.test is None:
            # A loss has its own line, which also says why.
            if change.name not in losses:
                causes.append(f"no question has a value of {change.name} in both files")
        elif change.name not in lost:
            result.failures += _regression(comparison, gate, change)
    result.undecided += [f"{after}: a regression cannot be excluded: {cause}" for cause in causes]
    notes = comparison.describe_losses(loss for name, loss in losses.items() if name not in lost)
    # If every one of n questions changes for the worse, p is 1 / 2^n: with fewer questions the check never fails.
    most = max((change.count for change in deciding if change.test), default=0)
    needed = math.floor(math.log2(1 / gate.alpha)) + 1
    if 0 < most < needed:
        notes.append(
            f"only {counted(most, 'question')} in common with {comparison.before}. With alpha = {gate.alpha:g}, at"
            f" least {needed} are needed to find any change significant"
        )
    result.notes += [f"{after}: {note}" for note in notes]


def _regression(comparison: FileComparison, gate: ReportGate, change: ScoreChange) -> Iterator[str]:
    """Yield a line if a score has regressed."""
    test = change.test
    # A single question has no interval, and its change is never significant.
    if test is None or test.interval is None or not change.is_significant(gate.alpha, worse=True):
        return
    # By default: smaller changes are not worth a failed build, and the same application shows them from run to run.
    default = Tolerance(0.05, is_share=True) if change.scale is None else Tolerance(0.01 * change.scale)
    tolerance = gate.tolerances.get(change.name) or gate.tolerances.get("") or default
    tolerated = tolerance.value * abs(test.before) if tolerance.is_share else tolerance.value
    # The end of the interval that is nearest to no change.
    least = test.interval.low if change.direction == "lower" else -test.interval.high
    if least > tolerated:
        yield (
            f"{comparison.after}: {change.name} is worse than in {comparison.before}: {show_value(test.before)} →"
            f" {show_value(test.after)}, difference {test.difference:+.3g} [{test.interval.low:+.3g},"
            f" {test.interval.high:+.3g}], tolerance {tolerance}, n = {test.count}, p = {change.p_worse or 0.0:.2g}"
            " (one-sided, adjusted for the number of scores)"
        )
