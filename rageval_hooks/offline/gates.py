"""Bounds that a report has to keep, for continuous integration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.exporters.console import format_value
from rageval_hooks.offline.comparison import Comparison, ScoreChange
from rageval_hooks.offline.report import FileReport, Report
from rageval_hooks.offline.wording import counted

__all__ = ["parse_bounds", "regressions", "shortfalls"]


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
        f"{file.name}: {name} is {format_value(mean)}, {format_value(missing)} {side} the bound"
        f" ({limit} {bound:g}; {row.spread.count} values{_left_out(row.skipped.count, row.failed.count)})"
    )


def _left_out(skipped: int, failed: int) -> str:
    parts = [f"{count} {word}" for count, word in ((skipped, "skipped"), (failed, "failed")) if count]
    return f", {' and '.join(parts)}" if parts else ""


def regressions(report: Report, alpha: float) -> tuple[list[str], list[str]]:
    """Return a line for every score that is significantly worse than in the baseline, and notes on the test itself.

    Args:
        report: its first file is the baseline.
        alpha: the probability of a false alarm, over all scores of a file together.

    Raises:
        ConfigurationError: a file has no questions in common with the baseline, or none with values in both.
    """
    lines, notes = [], []
    for comparison in report.comparisons:
        tested = [change for change in comparison.scores if change.test is not None]
        if not tested:
            raise ConfigurationError(
                f"{comparison.before_path} and {comparison.after_path} have no questions in common that both have a"
                f" value for ({comparison.common} ids in common): nothing can be compared"
            )
        lines += [
            _regression(comparison, change)
            for change in tested
            if change.is_worse and change.p_worse is not None and change.p_worse < alpha
        ]
        note = _too_few(comparison, tested, alpha)
        if note:
            notes.append(note)
    return lines, notes


def _regression(comparison: Comparison, change: ScoreChange) -> str:
    test = change.test
    assert test is not None  # noqa: S101 - by the caller
    interval = ""
    if test.interval is not None:
        interval = f" [{test.interval.low:+.3g}, {test.interval.high:+.3g}]"
    return (
        f"{comparison.after}: {change.name} is worse than in {comparison.before}: {format_value(test.before)} →"
        f" {format_value(test.after)}, difference {test.difference:+.3g}{interval}, n = {test.count},"
        f" p = {change.p_worse:.2g} (one-sided, adjusted for {counted(_tested(comparison), 'score')})"
    )


def _tested(comparison: Comparison) -> int:
    return sum(1 for change in comparison.scores if change.test is not None and change.test.changed)


def _too_few(comparison: Comparison, tested: list[ScoreChange], alpha: float) -> str | None:
    """Say so where not even a change of every question for the worse could be significant."""
    most = max(change.test.count for change in tested if change.test is not None)
    scores = max(1, _tested(comparison))
    needed = math.floor(math.log2(scores / alpha)) + 1
    if most >= needed:
        return None
    return (
        f"{comparison.after}: only {counted(most, 'question')} in common with {comparison.before}; with"
        f" {counted(scores, 'score')} and alpha = {alpha:g} it takes at least {needed} to find any change significant."
        " Fewer scores: --metrics"
    )
