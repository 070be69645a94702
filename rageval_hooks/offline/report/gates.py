"""Bounds that a report has to keep, for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.offline.report.comparison import Comparison, ScoreChange
from rageval_hooks.offline.report.report import FileReport, Report
from rageval_hooks.text.formatting import show_value
from rageval_hooks.text.wording import counted

__all__ = ["Regressions", "parse_bounds", "regressions", "shortfalls"]

_LEAST_P = 1e-12


@dataclass(frozen=True)
class Regressions:
    """What a comparison with a baseline says.

    Attributes:
        worse: a line for every score that is significantly worse.
        untold: a line for every score of which it cannot be told whether it is.
        notes: on the test itself.
    """

    worse: tuple[str, ...]
    untold: tuple[str, ...]
    notes: tuple[str, ...]


def parse_bounds(given: Iterable[str]) -> dict[str, float]:
    """Read bounds such as ``groundedness=0.7``; several in one string are separated by commas.

    Raises:
        ConfigurationError: one is not of that form.
    """
    bounds = {}
    for part in (part.strip() for text in given for part in text.split(",")):
        name, equals, number = part.rpartition("=")
        try:
            bounds[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name.strip() or not math.isfinite(bounds[name.strip()]):
            raise ConfigurationError(f"{part!r} is not of the form score=number, such as groundedness=0.7")
    return bounds


def shortfalls(report: Report, bounds: Mapping[str, float]) -> list[str]:
    """Return a line for every mean that does not reach its bound: at least, or at most where lower is better.

    Raises:
        UnknownNameError: no file has a score of that name.
        ConfigurationError: a file has none, or it was only ever skipped or failed; the message says why.
    """
    lines = []
    for name, bound in bounds.items():
        for file in report.files:
            line = _shortfall(file, name, bound)
            if line:
                lines.append(line)
    return lines


def _shortfall(file: FileReport, name: str, bound: float) -> str | None:
    row = file.answered if name == "answered" and file.answered else file.score(name)
    if row is None:
        valid = [row.name for row in file.scores if row.spread] + (["answered"] if file.answered else [])
        raise UnknownNameError("score", name, valid, f"These are the scores of {file.path}.")
    if row.spread is None:
        reasons = list(row.failed.reasons) + list(row.skipped.reasons)
        raise ConfigurationError(
            f"{file.path} has no value of {name}: {row.failed.count} failed, {row.skipped.count} skipped"
            f" ({reasons[0] if reasons else 'for no stated reason'})"
        )
    mean = row.spread.mean
    missing = mean - bound if row.direction == "lower" else bound - mean
    if missing <= 0:
        return None
    side, limit = ("above", "at most") if row.direction == "lower" else ("below", "at least")
    return (
        f"{file.name}: {name} is {show_value(mean)}, {show_value(missing)} {side} the bound"
        f" ({limit} {bound:g}; {row.spread.count} values{_left_out(row.skipped.count, row.failed.count)})"
    )


def _left_out(skipped: int, failed: int) -> str:
    parts = [f"{count} {word}" for count, word in ((skipped, "skipped"), (failed, "failed")) if count]
    return f", {' and '.join(parts)}" if parts else ""


def regressions(report: Report, alpha: float) -> Regressions:
    """Look for scores that are significantly worse than in the baseline.

    Whether a score is worse cannot be told if it has no value in the new file, none for more than half of the questions
    that have one in the baseline, no question with a value in both, or if another version or model made it for more
    than half of these.

    Args:
        report: its first file is the baseline.
        alpha: the probability of a false alarm, over all scores of a file together.

    Raises:
        ConfigurationError: a file has no questions in common with the baseline, or none with values in both.
    """
    worse: list[str] = []
    untold: list[str] = []
    notes: list[str] = []
    for comparison in report.comparisons:
        lost = {loss.name for loss in comparison.losses if loss.too_much}
        tested = [change for change in comparison.scores if change.test is not None]
        if not tested and not (lost and comparison.common):
            raise ConfigurationError(
                f"{comparison.before_path} and {comparison.after_path} have no questions in common that both have a"
                f" value for ({comparison.common} ids in common): nothing can be compared"
            )
        sound = [change for change in tested if change.name not in lost and change.makers is None]
        worse += [
            _regression(comparison, change)
            for change in sound
            if change.is_worse and change.p_worse is not None and change.p_worse < alpha
        ]
        untold += [f"{comparison.after}: it cannot be told whether {line}" for line in _untold(comparison)]
        notes += [
            f"{comparison.after}: {comparison.loss_in_words(loss)}" for loss in comparison.losses if not loss.too_much
        ]
        notes += [f"{comparison.after}: {comparison.left_out_in_words(change)}" for change in sound if change.left_out]
        notes += _too_few(comparison, sound, alpha)
    for file in report.files[1:]:
        new = _without_values(report.files[0], file)
        if new:
            notes.append(f"{file.name}: {report.files[0].name} has no values to compare with of {', '.join(new)}")
    return Regressions(worse=tuple(worse), untold=tuple(untold), notes=tuple(notes))


def _without_values(baseline: FileReport, file: FileReport) -> list[str]:
    known = {row.name for row in baseline.scores if row.spread}
    return [row.name for row in file.scores if row.spread and row.name not in known]


def _untold(comparison: Comparison) -> Iterable[str]:
    for loss in comparison.losses:
        if loss.too_much:
            yield f"{loss.name} got worse: {comparison.loss_in_words(loss)}"
    lost = {loss.name for loss in comparison.losses}
    for change in comparison.scores:
        if change.makers is not None:
            yield f"{change.name} got worse: {comparison.makers_in_words(change)}. Score both files alike"
        elif change.test is None and change.name not in lost:
            yield f"{change.name} got worse: no question has a value of it in both files"


def _regression(comparison: Comparison, change: ScoreChange) -> str:
    test = change.test
    assert test is not None  # noqa: S101 - by the caller
    interval = ""
    if test.interval is not None:
        interval = f" [{test.interval.low:+.3g}, {test.interval.high:+.3g}]"
    return (
        f"{comparison.after}: {change.name} is worse than in {comparison.before}: {show_value(test.before)} →"
        f" {show_value(test.after)}, difference {test.difference:+.3g}{interval}, n = {test.count},"
        f" p {_probability(change.p_worse or 0.0)} (one-sided, adjusted for {counted(_tested(comparison), 'score')})"
    )


def _probability(p: float) -> str:
    return f"= {p:.2g}" if p >= _LEAST_P else f"< {_LEAST_P:g}"


def _tested(comparison: Comparison) -> int:
    return sum(1 for change in comparison.scores if change.test is not None and change.test.changed)


def _too_few(comparison: Comparison, tested: list[ScoreChange], alpha: float) -> Iterable[str]:
    """Say so where not even a change of every question for the worse could be significant.

    Such a change of n questions has the probability 1 / 2^n, and none has a lesser one.
    """
    most = max((change.test.count for change in tested if change.test is not None), default=0)
    scores = max(1, _tested(comparison))
    needed = math.floor(math.log2(scores / alpha)) + 1
    if 0 < most < needed:
        yield (
            f"{comparison.after}: only {counted(most, 'question')} in common with {comparison.before}; with"
            f" {counted(scores, 'score')} and alpha = {alpha:g} it takes at least {needed} to find any change"
            " significant. Fewer scores: --metrics"
        )
