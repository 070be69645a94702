"""The conclusion of a report: what is good, what is bad, what changed, and how sure the numbers are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from rageval_hooks.metrics.local.reference_overlap import RECALL
from rageval_hooks.offline.report.build import Conclusion, FileReport, Finding, FindingKind, Report, ScoreSummary
from rageval_hooks.offline.report.compare import FileComparison, ScoreChange
from rageval_hooks.offline.report.gate import GateResult
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.offline.score_definitions import BAD_ANSWERS
from rageval_hooks.score import VERDICT
from rageval_hooks.text.formatting import format_p_value, format_share, shorten, show_value, signed_value
from rageval_hooks.text.wording import counted, listed

# Without a bound, a share is good news from 90%, and bad news below 75%.
_GOOD_SHARE, _BAD_SHARE = 0.9, 0.75

# A tenth of bad answers is bad news; that many supported ones may be called bad by mistake.
_BAD_ANSWERS: Final = 0.1

_ALPHA: Final = 0.05

# A loss of this share of a score's range is told, even if it is not significant among all scores together.
_LARGE_EFFECT: Final = 0.2

# With fewer questions an interval of a share is wider than ±15 points, so that most changes stay unnoticed.
_MIN_QUESTIONS: Final = 30

_MAX_REASON_LENGTH: Final = 200

# A conclusion is read first, so it stays short; the tables have every change.
_MAX_CHANGES: Final = 8


def conclude(report: Report, bounds: Mapping[str, float] | None = None, gate: GateResult | None = None) -> Conclusion:
    """Return the conclusion of a report.

    Args:
        report: the report.
        bounds: by score: what its mean has to reach.
        gate: the result of the checks; None if nothing was checked.
    """
    missed = [] if gate is None else [*gate.failures, *gate.undecided]
    # The conditions that fail come first: they decide the exit status.
    quality = [Finding(kind="bad", text=line) for line in missed]
    counts: list[str] = []
    if conversations := [file.conversation for file in report.files if file.conversation is not None]:
        wrong = sum(found.first_bad is not None for found in conversations)
        unanswered = sum(found.unanswered for found in conversations)
        of = f"of {counted(len(conversations), 'conversation')}"
        counts.append(f"A bad answer is in {wrong} {of}; {unanswered} end unanswered.")
    for file in report.files:
        where = _where(file, report)
        if file.verdicts:
            # Such as "63 answers: 50 good, 8 doubtful, 5 bad."
            parts = [f"{count} {label.replace('_', ' ')}" for label, count in file.verdicts.items()]
            if without := file.records - sum(file.verdicts.values()):
                parts.append(f"{without} without a verdict")
            counts.append(f"{where}{counted(file.records, 'answer')}: {', '.join(parts)}.")
        comparisons = [comparison for comparison in report.comparisons if comparison.after == file.name]
        # What is worse than before is not good, even if most answers still pass.
        is_worse = any(change.quality for pair in comparisons for change in _told_changes(pair, worse=True))
        for kind, text in _quality(file, bounds or {}, missed):
            if not (kind == "good" and is_worse):
                quality.append(Finding(kind=kind, text=f"{where}{text}"))
    changes = [finding for comparison in report.comparisons for finding in _changes(comparison)]
    problems = sum(finding.kind == "bad" for finding in (*quality, *changes))
    state: Literal["ok", "warn", "fail"] = "fail" if missed else "warn" if problems else "ok"
    headline = "No problems found." if gate is None else "All checks pass."
    if missed:
        headline = f"The checks fail: {counted(len(missed), 'problem')}."
    elif problems:
        headline = f"{counted(problems, 'problem')} found."
    return Conclusion(
        state=state,
        headline=" ".join([*map(_lead, report.comparisons), *counts, headline]),
        quality=tuple(quality),
        changes=tuple(changes),
        certainty=tuple(_certainty(report)),
    )


def _where(file: FileReport, report: Report) -> str:
    """Return the beginning of a line about a file: its name, if the report has several files."""
    return f"{file.name}: " if len(report.files) > 1 else ""


# --------------------------------------------------------------------------- one file


def _quality(file: FileReport, bounds: Mapping[str, float], missed: Sequence[str]) -> Iterator[tuple[FindingKind, str]]:
    """Yield what is good and bad in a file: bad answers, failures, missing references, missed targets, then scores.

    Args:
        file: the file.
        bounds: by score: what its mean has to reach.
        missed: the checks that fail, which are told before.
    """
    if file.conversation is not None:
        is_bad = file.conversation.first_bad is not None or file.conversation.unanswered
        yield "bad" if is_bad else "good", file.conversation.sentence()
    bad = file.score(BAD_ANSWERS)
    if bad is not None and bad.spread is not None and bad.name not in bounds:
        number = file.verdicts.get("bad", 0)
        are = "is" if number == 1 else "are"
        text = f"{number} of {counted(bad.count, 'answer')} {are} bad: {_mean(bad.spread, True)}."
        if file.judged_share is not None:
            text = f"{file.judged_share.sentence()} By the local verdicts alone: {_mean(bad.spread, True)}."
        if file.bad_by_cause:
            text += f" By cause: {', '.join(file.bad_by_cause)}."
        for turn in [turn for turn in file.worst if turn.verdict == "bad"][:1]:
            cause = f" ({turn.cause})" if turn.cause else ""
            text += f" For example {turn.id}{cause}: {shorten(turn.reason, _MAX_REASON_LENGTH)}"
        yield "good" if not number else "note" if bad.spread.mean < _BAD_ANSWERS else "bad", text
    failed = f"{file.failed_questions} of {counted(file.questions, 'question')} failed"
    if file.failed_questions and not any(line.startswith(f"{file.name}: {failed}") for line in missed):
        kinds = listed([f"{number} {kind}" for kind, number in file.errors.items()])
        yield "bad", f"{failed} ({format_share(file.failed_questions / file.questions)}): {kinds}."
    recall = file.score(RECALL)
    if recall is not None and recall.passed is not None:
        lacking, answers = round((1 - recall.passed) * recall.labelled), counted(recall.labelled, "answer")
        text = f"{lacking} of {answers} lack the reference answer: less than half of its words."
        yield _kind_of_share(recall.passed), text
    if (ranks := file.ranks) is not None:
        answers = counted(ranks.count, "answer")
        text = f"the target passage was missed in {ranks.missed} of {answers} ({ranks.misses:.0%})."
        yield _kind_of_share(ranks.match), text
    for row in file.scores:
        # What is said above needs no second line.
        if row.name in bounds or row.name not in (RECALL, VERDICT, BAD_ANSWERS):
            yield from _about_score(row, bounds.get(row.name))


def _kind_of_share(share: float) -> FindingKind:
    return "good" if share >= _GOOD_SHARE else "bad" if share < _BAD_SHARE else "note"


def _mean(found: Spread, is_share: bool) -> str:
    show = format_share if is_share else show_value
    return show(found.mean) + (f" [{found.interval.shown(show)}]" if found.interval else "")


def _about_score(row: ScoreSummary, bound: float | None) -> Iterator[tuple[FindingKind, str]]:
    if row.spread is None:
        if row.failed.count:
            yield "bad", f"{row.name} has no value: {row.failed.count} failed ({row.failed.main_reason})."
        # Skipped scores lack an input, which is often intended. Without a headline score, "no problems" means little.
        elif row.headline and row.skipped.count:
            yield "note", f"{row.name} has no value: {row.skipped.count} skipped ({row.skipped.main_reason})."
        return
    mean = f"{row.name} is {_mean(row.spread, row.binary)}"
    if bound is not None:
        # A bound that is missed is a check that fails, which is told before.
        if row.spread.mean <= bound if row.direction == "lower" else row.spread.mean >= bound:
            limit = "at most" if row.direction == "lower" else "at least"
            yield "good", f"{mean}; required: {limit} {bound:g}."
    elif row.passed is not None:
        passed = f"{format_share(row.passed)} of {counted(row.labelled, 'answer')} pass"
        yield _kind_of_share(row.passed), f"{mean}; {passed}."
    # A score without a bound is neither good nor bad; only the headline scores are worth a line.
    elif row.headline:
        yield "note", f"{mean}."


# --------------------------------------------------------------------------- changes


def _lead(comparison: FileComparison) -> str:
    """Return in one sentence whether a file is better or worse: ``s2 is worse: bad 0% → 46%``."""
    if not comparison.common:
        return f"{comparison.before} and {comparison.after} cannot be compared: they have no questions in common."
    told = {worse: _told_changes(comparison, worse=worse) for worse in (True, False)}
    for worse, changes in told.items():
        # The share of bad answers, or else what changed most.
        for change in sorted(changes, key=lambda change: change.name != BAD_ANSWERS)[:1]:
            if change.quality and change.test is not None:
                show = format_share if change.binary else show_value
                name = "bad" if change.name == BAD_ANSWERS else change.name
                numbers = f"{name} {show(change.test.before)} → {show(change.test.after)}"
                return f"{comparison.after} is {'worse' if worse else 'better'}: {numbers}."
    return f"{comparison.after} is neither better nor worse, as far as {counted(comparison.common, 'question')} tell."


def _changes(comparison: FileComparison) -> Iterator[Finding]:
    """Yield what changed: the share of bad answers, then the worse before the better; else that nothing did."""
    pair = f"{comparison.before} → {comparison.after}"
    worse, better = (_told_changes(comparison, worse=worse) for worse in (True, False))
    for change in comparison.scores:
        if change.name == BAD_ANSWERS and not change.makers and change.worsening:
            word = "worse" if change.worsening > 0 else "better"
            kind: FindingKind = "bad" if change in worse else "good" if change in better else "note"
            yield Finding(kind=kind, text=f"{pair}: bad answers {_numbers(change, comparison)}: {word}.")
    yield from _told(pair, "bad", "worse", worse, comparison)
    yield from _told(pair, "good", "better", better, comparison)
    if not worse and not better and comparison.common:
        text = f"{pair}: no score changed significantly over {counted(comparison.common, 'question')}."
        yield Finding(kind="note", text=text)
    # Values that were skipped or not computed are in the notes of the tables; failures are bad news.
    for line in comparison.describe_losses(loss for loss in comparison.losses if loss.lost_to_failures):
        yield Finding(kind="bad", text=f"{pair}: {line}.")


def _told_changes(comparison: FileComparison, *, worse: bool) -> list[ScoreChange]:
    """Return the changes in one direction that are worth telling: quality before usage, the largest first.

    Args:
        comparison: two files.
        worse: changes for the worse, else for the better.
    """
    found = []
    for change in comparison.scores:
        is_large_loss = False
        if worse and change.quality and change.makers is None and change.test is not None:
            # A change of eight questions is never significant among twenty scores, even from 100% to 0%.
            is_large_loss = change.test.p < _ALPHA and change.worsening > 0 and change.effect >= _LARGE_EFFECT
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
    groups: dict[str, list[ScoreChange]] = {}
    for change in changes:
        if change.name != BAD_ANSWERS:
            groups.setdefault(_numbers(change, comparison), []).append(change)
    lines = list(groups.items())
    for numbers, members in lines[:_MAX_CHANGES]:
        # A few milliseconds more are no problem, however certain they are.
        important = any(change.quality or change.effect >= _LARGE_EFFECT for change in members)
        names = ", ".join(change.name for change in members)
        yield Finding(kind=kind if important else "note", text=f"{pair}: {names} {numbers}: {word}.")
    if rest := [change.name for _, members in lines[_MAX_CHANGES:] for change in members]:
        yield Finding(kind="note", text=f"{pair}: {counted(len(rest), 'more score')} {word}: {', '.join(rest)}.")


# --------------------------------------------------------------------------- certainty


def _certainty(report: Report) -> Iterator[str]:
    for file in report.files:
        where = _where(file, report)
        line = f"{where}{counted(file.questions, 'question')}"
        if file.runs > 1:
            line += f", {file.records} answers, up to {file.runs} to a question"
        if file.questions < 2:
            line += ": too few for intervals"
        elif any(row.spread is not None and row.spread.interval for row in file.scores):
            line += f". Square brackets are {report.resampling.level:.0%} intervals over questions"
        yield f"{line}."
        if file.questions < _MIN_QUESTIONS:
            yield f"{where}Fewer than {_MIN_QUESTIONS} questions: only large differences can be told from chance."
        if file.bad:
            yield f"{where}{counted(file.bad, 'row')} could not be read."
        yield from file.notes
