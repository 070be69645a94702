"""The verdict of a report: what is good, what is bad, what changed, and how sure the numbers are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rageval_hooks.offline.report.comparison import Comparison, ScoreChange
from rageval_hooks.offline.report.gates import GateResult
from rageval_hooks.offline.report.model import FileReport, Finding, Report, ScoreRow, Verdict
from rageval_hooks.offline.report.statistics import Interval
from rageval_hooks.text.formatting import format_interval, format_share, show_value, signed_value
from rageval_hooks.text.wording import counted, listed

__all__ = ["make_verdict"]

_GOOD_SHARE, _BAD_SHARE = 0.9, 0.75
"""Without a bound, a score is good news if at least 90% of its answers pass, and bad news below 75%."""

_ALPHA = 0.05
_FEW_QUESTIONS = 30
"""With fewer questions an interval of a share is wider than ±15 points, so that most changes stay unnoticed."""

_MOST_CHANGES = 8


def make_verdict(report: Report, bounds: Mapping[str, float] | None = None, gate: GateResult | None = None) -> Verdict:
    """Return the verdict of a report.

    Args:
        report: the report.
        bounds: by score: what its mean has to reach.
        gate: the result of the checks; None if nothing was checked.
    """
    quality = [
        finding for file in report.files for finding in _quality(file, bounds or {}, several=len(report.files) > 1)
    ]
    changes = [finding for comparison in report.comparisons for finding in _changes(comparison)]
    problems = [finding.text for finding in (*quality, *changes) if finding.kind == "bad"]
    failed = gate is not None and gate.status != 0
    if failed and gate is not None:
        extra = [*gate.failures, *gate.undecided]
        headline = f"The checks fail: {counted(len(extra), 'problem')}."
        quality = [*(Finding(kind="bad", text=line) for line in extra), *quality]
    elif problems:
        headline = f"{counted(len(problems), 'problem')} found."
    elif gate is not None:
        headline = "All checks pass."
    else:
        headline = "No problems found."
    return Verdict(
        state="fail" if failed else "warn" if problems else "ok",
        headline=headline,
        quality=tuple(dict.fromkeys(quality)),
        changes=tuple(changes),
        certainty=tuple(_certainty(report)),
    )


def _quality(file: FileReport, bounds: Mapping[str, float], *, several: bool) -> Iterator[Finding]:
    where = f"{file.name}: " if several else ""
    if file.failed_questions:
        kinds = listed([f"{number} {kind}" for kind, number in file.errors.items()])
        share = format_share(file.failed_questions / file.questions)
        text = f"{where}{file.failed_questions} of {counted(file.questions, 'question')} failed ({share}): {kinds}."
        yield Finding(kind="bad", text=text)
    for row in file.scores:
        finding = _score_finding(row, bounds.get(row.name))
        if finding is not None:
            yield finding.model_copy(update={"text": f"{where}{finding.text}"})


def _score_finding(row: ScoreRow, bound: float | None) -> Finding | None:
    if row.spread is None:
        if row.failed.count:
            reason = next(iter(row.failed.reasons), "")
            return Finding(kind="bad", text=f"{row.name} has no value: {row.failed.count} failed ({reason}).")
        return None
    mean = f"{row.name} is {_mean(row)}{_of_mean(row.spread.interval, binary=row.binary)}"
    if bound is not None:
        reached = row.spread.mean <= bound if row.direction == "lower" else row.spread.mean >= bound
        limit = "at most" if row.direction == "lower" else "at least"
        return Finding(kind="good" if reached else "bad", text=f"{mean}; required: {limit} {bound:g}.")
    if row.passed is not None:
        kind = "good" if row.passed >= _GOOD_SHARE else "bad" if row.passed < _BAD_SHARE else "note"
        text = f"{mean}; {format_share(row.passed)} of {counted(row.labelled, 'answer')} pass."
        return Finding.model_validate({"kind": kind, "text": text})
    return Finding(kind="note", text=f"{mean}.") if row.headline else None


def _mean(row: ScoreRow) -> str:
    assert row.spread is not None  # noqa: S101 - the caller has checked it
    return format_share(row.spread.mean) if row.binary else show_value(row.spread.mean)


def _of_mean(interval: Interval | None, *, binary: bool) -> str:
    if interval is None:
        return ""
    return f" [{format_interval(interval.low, interval.high, style='share' if binary else 'value')}]"


def _changes(comparison: Comparison) -> Iterator[Finding]:
    """Yield what changed significantly, the worst first; else that nothing did."""
    worse = [change for change in comparison.scores if _is_significant(change, change.p_worse)]
    better = [change for change in comparison.scores if _is_significant(change, change.p_better)]
    pair = f"{comparison.before} → {comparison.after}"
    for change in worse[:_MOST_CHANGES]:
        yield Finding(kind="bad", text=f"{pair}: {_change_in_words(change)}: worse.")
    for change in better[:_MOST_CHANGES]:
        yield Finding(kind="good", text=f"{pair}: {_change_in_words(change)}: better.")
    if not worse and not better:
        yield Finding(kind="note", text=f"{pair}: no score changed significantly over {comparison.common} questions.")
    for loss in comparison.losses:
        if loss.lost_to_failures:
            yield Finding(kind="bad", text=f"{pair}: {comparison.describe_loss(loss)}.")


def _is_significant(change: ScoreChange, p: float | None) -> bool:
    return change.makers is None and p is not None and p < _ALPHA


def _change_in_words(change: ScoreChange) -> str:
    test = change.test
    assert test is not None  # noqa: S101 - a significant change has a test
    return (
        f"{change.name} {show_value(test.before)} → {show_value(test.after)}"
        f" ({signed_value(test.difference)}, {counted(test.changed, 'question')} changed)"
    )


def _certainty(report: Report) -> Iterator[str]:
    level = f"{report.resampling.level:.0%}"
    for file in report.files:
        where = f"{file.name}: " if len(report.files) > 1 else ""
        line = f"{where}{counted(file.questions, 'question')}"
        if file.runs > 1:
            line += f", up to {file.runs} answers each"
        yield f"{line}. Square brackets are {level} intervals over questions."
        if file.questions < _FEW_QUESTIONS:
            yield f"{where}Fewer than {_FEW_QUESTIONS} questions: only large differences can be told from chance."
        if file.bad:
            yield f"{where}{counted(file.bad, 'row')} could not be read."
