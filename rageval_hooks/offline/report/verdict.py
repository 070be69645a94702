"""The verdict of a report: what is good, what is bad, what changed, and how sure the numbers are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from rageval_hooks.offline.report.comparison import Comparison
from rageval_hooks.offline.report.gates import GateResult
from rageval_hooks.offline.report.model import FileReport, Finding, FindingKind, Report, ScoreRow, State, Verdict
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.text.formatting import format_interval, format_share, show_value, signed_value
from rageval_hooks.text.wording import counted, listed

__all__ = ["make_verdict"]

# Without a bound, a score is good news if at least 90% of its answers pass, and bad news below 75%.
_GOOD_SHARE, _BAD_SHARE = 0.9, 0.75

_ALPHA = 0.05

# With fewer questions an interval of a share is wider than ±15 points, so that most changes stay unnoticed.
_FEW_QUESTIONS = 30

_FEWEST_FOR_INTERVAL = 2

# A verdict is read first, so it stays short; the tables have every change.
_MOST_CHANGES = 8


def make_verdict(report: Report, bounds: Mapping[str, float] | None = None, gate: GateResult | None = None) -> Verdict:
    """Return the verdict of a report.

    Args:
        report: the report.
        bounds: by score: what its mean has to reach.
        gate: the result of the checks; None if nothing was checked.
    """
    bounds = bounds or {}
    missed = [] if gate is None else [*gate.failures, *gate.undecided]
    quality: list[Finding] = []
    for file in report.files:
        found = _quality(file, bounds, _where(file, report))
        quality += [finding for finding in found if not _is_told(finding, file, missed, bounds)]
    changes = list(chain.from_iterable(map(_changes, report.comparisons)))
    problems = sum(finding.kind == "bad" for finding in (*quality, *changes))
    # The conditions that fail come first: they decide the exit status.
    quality[:0] = [Finding(kind="bad", text=line) for line in missed]
    state, headline = _summary(problems, missed, is_checked=gate is not None)
    return Verdict(
        state=state,
        headline=headline,
        quality=tuple(quality),
        changes=tuple(changes),
        certainty=tuple(_certainty(report)),
    )


def _summary(problems: int, missed: list[str], *, is_checked: bool) -> tuple[State, str]:
    """Return the state and the headline of a verdict."""
    if missed:
        return "fail", f"The checks fail: {counted(len(missed), 'problem')}."
    if problems:
        return "warn", f"{counted(problems, 'problem')} found."
    return "ok", "All checks pass." if is_checked else "No problems found."


def _where(file: FileReport, report: Report) -> str:
    """Return the beginning of a line about a file: its name, if the report has several files."""
    return f"{file.name}: " if len(report.files) > 1 else ""


def _quality(file: FileReport, bounds: Mapping[str, float], where: str) -> Iterator[Finding]:
    if file.failed_questions:
        kinds = listed([f"{number} {kind}" for kind, number in file.errors.items()])
        share = format_share(file.failed_questions / file.questions)
        text = f"{where}{file.failed_questions} of {counted(file.questions, 'question')} failed ({share}): {kinds}."
        yield Finding(kind="bad", text=text)
    for row in file.scores:
        finding = _score_finding(row, bounds.get(row.name))
        if finding is not None:
            yield finding.model_copy(update={"text": f"{where}{finding.text}"})


def _is_told(finding: Finding, file: FileReport, missed: Iterable[str], bounds: Collection[str]) -> bool:
    """Return True if a failed check says the same as a finding: that questions failed, or that a bound is missed."""
    if finding.kind != "bad":
        return False
    failed = f"{file.failed_questions} of {counted(file.questions, 'question')} failed"
    subjects = [failed, *(f"{name} is " for name in bounds)]
    said = [line for line in missed if line.startswith(f"{file.name}: ")]
    return any(subject in finding.text and any(subject in line for line in said) for subject in subjects)


def _score_finding(row: ScoreRow, bound: float | None) -> Finding | None:
    if row.spread is None:
        return _without_value(row)
    mean = f"{row.name} is {_in_words(row.spread, binary=row.binary)}"
    if bound is not None:
        return _bound_finding(row, row.spread.mean, mean, bound)
    if row.passed is not None:
        text = f"{mean}; {format_share(row.passed)} of {counted(row.labelled, 'answer')} pass."
        return Finding(kind=_kind_of_share(row.passed), text=text)
    # A score without a bound is neither good nor bad; only the headline scores are worth a line.
    if not row.headline:
        return None
    return Finding(kind="note", text=f"{mean}.")


def _without_value(row: ScoreRow) -> Finding | None:
    if row.failed.count:
        text = f"{row.name} has no value: {row.failed.count} failed ({row.failed.main_reason})."
        return Finding(kind="bad", text=text)
    # Skipped scores lack an input, which is often intended. Without a headline score, "no problems" means little.
    if row.headline and row.skipped.count:
        text = f"{row.name} has no value: {row.skipped.count} skipped ({row.skipped.main_reason})."
        return Finding(kind="note", text=text)
    return None


def _bound_finding(row: ScoreRow, value: float, mean: str, bound: float) -> Finding:
    is_reached, limit = value >= bound, "at least"
    if row.direction == "lower":
        is_reached, limit = value <= bound, "at most"
    return Finding(kind="good" if is_reached else "bad", text=f"{mean}; required: {limit} {bound:g}.")


def _kind_of_share(share: float) -> FindingKind:
    if share >= _GOOD_SHARE:
        return "good"
    return "bad" if share < _BAD_SHARE else "note"


def _in_words(found: Spread, *, binary: bool) -> str:
    """Return a mean with its interval: ``0.812 [0.780 … 0.840]``."""
    show, style = (format_share, "share") if binary else (show_value, "value")
    mean = show(found.mean)
    if found.interval is None:
        return mean
    return f"{mean} [{format_interval(found.interval.low, found.interval.high, style=style)}]"


def _changes(comparison: Comparison) -> Iterator[Finding]:
    """Yield what changed significantly, the worst first; else that nothing did."""
    pair = f"{comparison.before} → {comparison.after}"
    worse = list(_significant(comparison, worse=True))
    better = list(_significant(comparison, worse=False))
    for change in worse[:_MOST_CHANGES]:
        yield Finding(kind="bad", text=f"{pair}: {change}: worse.")
    for change in better[:_MOST_CHANGES]:
        yield Finding(kind="good", text=f"{pair}: {change}: better.")
    if not worse and not better:
        yield Finding(kind="note", text=f"{pair}: no score changed significantly over {comparison.common} questions.")
    # Values that were skipped or not computed are in the notes of the tables; failures are bad news.
    failed = [loss for loss in comparison.losses if loss.lost_to_failures]
    for line in comparison.describe_losses(failed):
        yield Finding(kind="bad", text=f"{pair}: {line}.")


def _significant(comparison: Comparison, *, worse: bool) -> Iterator[str]:
    """Yield the scores that changed significantly in one direction, in words."""
    for change in comparison.scores:
        test = change.test
        if test is not None and change.is_significant(_ALPHA, worse=worse):
            yield (
                f"{change.name} {show_value(test.before)} → {show_value(test.after)}"
                f" ({signed_value(test.difference)}, {counted(test.changed, 'question')} changed)"
            )


def _certainty(report: Report) -> Iterator[str]:
    level = f"{report.resampling.level:.0%}"
    any_repeats = any(file.runs > 1 for file in report.files)
    for file in report.files:
        where = _where(file, report)
        yield f"{where}{_basis(file, level, any_repeats=any_repeats)}"
        if file.questions < _FEW_QUESTIONS:
            yield f"{where}Fewer than {_FEW_QUESTIONS} questions: only large differences can be told from chance."
        if file.bad:
            yield f"{where}{counted(file.bad, 'row')} could not be read."


def _basis(file: FileReport, level: str, *, any_repeats: bool) -> str:
    """Return what the numbers of a file are based on, and what their intervals mean."""
    questions = counted(file.questions, "question")
    if file.questions < _FEWEST_FOR_INTERVAL:
        return f"{questions}: too few for intervals."
    if not any(row.spread is not None and row.spread.interval for row in file.scores):
        return f"{questions}."
    intervals = f"Square brackets are {level} intervals over questions"
    if file.runs > 1:
        answers = f"{file.records} answers, up to {file.runs} to a question"
        return f"{questions}, {answers}. {intervals}: the answers to a question count together, as one value."
    if any_repeats:
        # The other file has repeats, from which the reader sees how much answers vary.
        return f"{questions}, one answer each. {intervals}; how much the answers to a question vary is not known."
    return f"{questions}. {intervals}."
