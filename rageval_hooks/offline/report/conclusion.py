"""The conclusion of a report: what is good, what is bad, what changed, and how sure the numbers are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from rageval_hooks.metrics.local.reference_overlap import RECALL
from rageval_hooks.offline.report.definitions import BAD_ANSWERS
from rageval_hooks.offline.report.gate import GateResult
from rageval_hooks.offline.report.model import (
    Conclusion,
    FileComparison,
    FileReport,
    Finding,
    FindingKind,
    Report,
    ScoreChange,
    ScoreSummary,
)
from rageval_hooks.score import VERDICT
from rageval_hooks.text.formatting import (
    format_interval,
    format_p_value,
    format_share,
    shorten,
    show_value,
    signed_value,
)
from rageval_hooks.text.wording import counted, listed

# Without a bound, a share is good news from 90%, and bad news below 75%.
_GOOD_SHARE, _BAD_SHARE = 0.9, 0.75

# A tenth of bad answers is bad news; that many supported ones may be called bad by mistake.
_BAD_ANSWERS: Final = 0.1

_ALPHA: Final = 0.05

# A loss of this share of a score's range is told, even if it is not significant among all scores together.
_LARGE_EFFECT: Final = 0.2

# With fewer questions an interval of a share is wider than ±15 points, so that most changes stay unnoticed.
_FEW_QUESTIONS: Final = 30

_LONGEST_REASON: Final = 200

# A conclusion is read first, so it stays short; the tables have every change.
_MOST_CHANGES: Final = 8


def conclude(report: Report, bounds: Mapping[str, float] | None = None, gate: GateResult | None = None) -> Conclusion:
    """Return the conclusion of a report.

    Args:
        report: the report.
        bounds: by score: what its mean has to reach.
        gate: the result of the checks; None if nothing was checked.
    """
    bounds = bounds or {}
    missed = [] if gate is None else [*gate.failures, *gate.undecided]
    changes = [finding for comparison in report.comparisons for finding in _changes(comparison)]
    quality: list[Finding] = []
    for file in report.files:
        # What is worse than before is not good, even if most answers still pass.
        is_worse = any(
            change.quality
            for comparison in report.comparisons
            if comparison.after == file.name
            for change in _told_changes(comparison, worse=True)
        )
        for finding in _quality(file, bounds, _where(file, report)):
            # A failed check may say the same: that questions failed, or that a bound is missed.
            subjects = [f"{file.failed_questions} of {counted(file.questions, 'question')} failed"]
            subjects += [f"{name} is " for name in bounds]
            told = [line for line in missed if line.startswith(f"{file.name}: ")]
            is_told = any(subject in finding.text and any(subject in line for line in told) for subject in subjects)
            if not (finding.kind == "good" and is_worse) and not (finding.kind == "bad" and is_told):
                quality.append(finding)
    problems = sum(finding.kind == "bad" for finding in (*quality, *changes))
    state: Literal["ok", "warn", "fail"] = "ok"
    headline = "No problems found." if gate is None else "All checks pass."
    if missed:
        state, headline = "fail", f"The checks fail: {counted(len(missed), 'problem')}."
    elif problems:
        state, headline = "warn", f"{counted(problems, 'problem')} found."
    verdicts = [f"{_where(file, report)}{_count_verdicts(file)}" for file in report.files if file.verdicts]
    return Conclusion(
        state=state,
        headline=" ".join([*verdicts, headline]),
        # The conditions that fail come first: they decide the exit status.
        quality=(*(Finding(kind="bad", text=line) for line in missed), *quality),
        changes=tuple(changes),
        certainty=tuple(_certainty(report)),
    )


def _count_verdicts(file: FileReport) -> str:
    """Return how many answers have which verdict, such as ``63 answers: 50 good, 8 doubtful, 5 bad``."""
    counts = [f"{count} {label.replace('_', ' ')}" for label, count in file.verdicts.items()]
    if without := file.records - sum(file.verdicts.values()):
        counts.append(f"{without} without a verdict")
    return f"{counted(file.records, 'answer')}: {', '.join(counts)}."


def _where(file: FileReport, report: Report) -> str:
    """Return the beginning of a line about a file: its name, if the report has several files."""
    return f"{file.name}: " if len(report.files) > 1 else ""


# --------------------------------------------------------------------------- one file


def _quality(file: FileReport, bounds: Mapping[str, float], where: str) -> Iterator[Finding]:
    """Yield what is good and bad in a file: bad answers, failures, missing references, missed targets, then scores."""
    bad = file.score(BAD_ANSWERS)
    if bad is not None and bad.spread is not None and bad.name not in bounds:
        share = format_share(bad.spread.mean)
        if bad.spread.interval is not None:
            share += f" [{format_interval(bad.spread.interval.low, bad.spread.interval.high, style='share')}]"
        kind: FindingKind = "note" if bad.spread.mean < _BAD_ANSWERS else "bad"
        number = file.verdicts.get("bad", 0)
        text = f"{where}{number} of {counted(bad.count, 'answer')} {'is' if number == 1 else 'are'} bad: {share}."
        for turn in [turn for turn in file.worst if turn.verdict == "bad"][:1]:
            text += f" For example {turn.id}: {shorten(turn.reason, _LONGEST_REASON)}"
        yield Finding(kind=kind if number else "good", text=text)
    if file.failed_questions:
        kinds = listed([f"{number} {kind}" for kind, number in file.errors.items()])
        share = format_share(file.failed_questions / file.questions)
        text = f"{where}{file.failed_questions} of {counted(file.questions, 'question')} failed ({share}): {kinds}."
        yield Finding(kind="bad", text=text)
    recall = file.score(RECALL)
    if recall is not None and recall.passed is not None:
        lacking = round((1 - recall.passed) * recall.labelled)
        text = (
            f"{lacking} of {counted(recall.labelled, 'answer')} lack the reference answer: less than half of its words."
        )
        yield Finding(kind=_kind_of_share(recall.passed), text=f"{where}{text}")
    if file.ranks is not None:
        ranks = file.ranks
        text = (
            f"the target passage was missed in {ranks.missed} of {counted(ranks.count, 'answer')} ({ranks.misses:.0%})."
        )
        yield Finding(kind=_kind_of_share(ranks.match), text=f"{where}{text}")
    for row in file.scores:
        # What is said above needs no second line.
        if row.name in bounds or row.name not in (RECALL, VERDICT, BAD_ANSWERS):
            finding = _score_finding(row, bounds.get(row.name))
            if finding is not None:
                yield finding.model_copy(update={"text": f"{where}{finding.text}"})


def _kind_of_share(share: float) -> FindingKind:
    if share >= _GOOD_SHARE:
        return "good"
    return "bad" if share < _BAD_SHARE else "note"


def _score_finding(row: ScoreSummary, bound: float | None) -> Finding | None:
    if row.spread is None:
        if row.failed.count:
            text = f"{row.name} has no value: {row.failed.count} failed ({row.failed.main_reason})."
            return Finding(kind="bad", text=text)
        # Skipped scores lack an input, which is often intended. Without a headline score, "no problems" means little.
        if row.headline and row.skipped.count:
            text = f"{row.name} has no value: {row.skipped.count} skipped ({row.skipped.main_reason})."
            return Finding(kind="note", text=text)
        return None
    show, style = (format_share, "share") if row.binary else (show_value, "value")
    mean = f"{row.name} is {show(row.spread.mean)}"
    if row.spread.interval is not None:
        mean += f" [{format_interval(row.spread.interval.low, row.spread.interval.high, style=style)}]"
    if bound is not None:
        is_reached, limit = row.spread.mean >= bound, "at least"
        if row.direction == "lower":
            is_reached, limit = row.spread.mean <= bound, "at most"
        return Finding(kind="good" if is_reached else "bad", text=f"{mean}; required: {limit} {bound:g}.")
    if row.passed is not None:
        text = f"{mean}; {format_share(row.passed)} of {counted(row.labelled, 'answer')} pass."
        return Finding(kind=_kind_of_share(row.passed), text=text)
    # A score without a bound is neither good nor bad; only the headline scores are worth a line.
    return Finding(kind="note", text=f"{mean}.") if row.headline else None


# --------------------------------------------------------------------------- changes


def _changes(comparison: FileComparison) -> Iterator[Finding]:
    """Yield what changed: the share of bad answers, then the worse before the better; else that nothing did."""
    pair = f"{comparison.before} → {comparison.after}"
    worse, better = (_told_changes(comparison, worse=worse) for worse in (True, False))
    for change in comparison.scores:
        if change.name == BAD_ANSWERS and not change.makers and change.test and change.test.difference:
            word = "worse" if change.worsening > 0 else "better"
            kind: FindingKind = "bad" if change in worse else "good" if change in better else "note"
            yield Finding(kind=kind, text=f"{pair}: bad answers {_numbers(change, comparison)}: {word}.")
    yield from _told(pair, "bad", "worse", worse, comparison)
    yield from _told(pair, "good", "better", better, comparison)
    if not worse and not better:
        text = f"{pair}: no score changed significantly over {counted(comparison.common, 'question')}."
        yield Finding(kind="note", text=text)
    # Values that were skipped or not computed are in the notes of the tables; failures are bad news.
    failed = [loss for loss in comparison.losses if loss.lost_to_failures]
    for line in comparison.describe_losses(failed):
        yield Finding(kind="bad", text=f"{pair}: {line}.")


def _told_changes(comparison: FileComparison, *, worse: bool) -> list[ScoreChange]:
    """Return the changes in one direction that are worth telling: quality before usage, the largest first.

    Args:
        comparison: two files.
        worse: changes for the worse, else for the better.
    """
    found = []
    for change in comparison.scores:
        # A change of eight questions is never significant among twenty scores, even from 100% to 0%.
        is_large_loss = (
            worse
            and change.quality
            and change.makers is None
            and change.test is not None
            and change.test.p < _ALPHA
            and change.worsening > 0
            and change.effect >= _LARGE_EFFECT
        )
        if is_large_loss or change.is_significant(_ALPHA, worse=worse):
            found.append(change)
    return sorted(found, key=lambda change: (not change.quality, -change.effect))


def _numbers(change: ScoreChange, comparison: FileComparison) -> str:
    """Return a change in numbers: ``0.900 → 0.655 (-0.245, 30 questions changed)``."""
    test = change.test
    if test is None:
        return ""
    show = format_share if change.binary else show_value
    difference = f"{100 * test.difference:+.1f} points" if change.binary else signed_value(test.difference)
    numbers = f"{show(test.before)} → {show(test.after)} ({difference}, {counted(test.changed, 'question')} changed"
    if not change.is_significant(_ALPHA, worse=change.worsening > 0):
        scores = sum(other.quality == change.quality for other in comparison.scores)
        numbers += f", p = {format_p_value(test.p)}, which may be chance among {counted(scores, 'score')}"
    return f"{numbers})"


def _told(
    pair: str, kind: FindingKind, word: str, changes: Sequence[ScoreChange], comparison: FileComparison
) -> Iterator[Finding]:
    # Scores with the same numbers, such as hit@3 and hit@5, share a line.
    names: dict[str, list[str]] = {}
    for change in changes:
        if change.name != BAD_ANSWERS:
            names.setdefault(_numbers(change, comparison), []).append(change.name)
    important = {change.name for change in changes if change.quality or change.effect >= _LARGE_EFFECT}
    for numbers, members in list(names.items())[:_MOST_CHANGES]:
        # A few milliseconds more are no problem, however certain they are.
        shown_kind: FindingKind = "note" if important.isdisjoint(members) else kind
        yield Finding(kind=shown_kind, text=f"{pair}: {', '.join(members)} {numbers}: {word}.")
    if rest := [name for members in list(names.values())[_MOST_CHANGES:] for name in members]:
        yield Finding(kind="note", text=f"{pair}: {counted(len(rest), 'more score')} {word}: {', '.join(rest)}.")


# --------------------------------------------------------------------------- certainty


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
    if file.questions < 2:
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
