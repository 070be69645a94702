"""A report as tables, the same for the terminal, for Markdown and for the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rageval_hooks.offline.report.comparison import Comparison, ScoreChange
from rageval_hooks.offline.report.report import FileReport, Missing, Report, ScoreRow
from rageval_hooks.offline.report.statistics import Interval
from rageval_hooks.text.formatting import flat, show_value

__all__ = ["Table", "comparison_tables", "file_tables", "to_tables"]

_MOST_DOCUMENTS = 20
_MOST_DOCUMENT_SCORES = 5
_DOCUMENT_SCORES = ("groundedness", "unsupported_facts", "context_relevance", "answer_relevance", "trace.adherence")
_MOST_RANKS = 10
_LONGEST_TEXT = 90
_LONGEST_NAME = 14
_NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        title: what it shows.
        header: names of the columns; the first holds names, the others numbers unless they are in ``texts``.
        rows: of texts, one per column.
        notes: sentences under it.
        texts: columns that hold texts.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Make everything fit to be shown: on one line, without control characters."""
        cleaned = {
            "title": flat(self.title),
            "header": tuple(map(flat, self.header)),
            "rows": tuple(tuple(map(flat, row)) for row in self.rows),
            "notes": tuple(map(flat, self.notes)),
        }
        for name, value in cleaned.items():
            object.__setattr__(self, name, value)

    def is_text(self, column: int) -> bool:
        """Whether a column holds texts and not numbers."""
        return column == 0 or self.header[column] in self.texts


def to_tables(report: Report) -> list[Table]:
    """Return the tables of a report, in the order in which they are read."""
    tables: list[Table] = []
    level = report.resampling.level
    for file in report.files:
        tables += [*file_tables(file, level), *_worst(file)]
    for comparison in report.comparisons:
        tables += [*comparison_tables(comparison, level), *_changed(comparison)]
    return tables


def file_tables(file: FileReport, level: float) -> list[Table]:
    """Return the tables of numbers of one file."""
    return [_scores(file, level), *_ranks(file), *_repeats(file), *_likeness(file), *_documents(file)]


def comparison_tables(comparison: Comparison, level: float) -> list[Table]:
    """Return the tables of numbers of two files side by side."""
    return [_comparison(comparison, level)]


# --------------------------------------------------------------------------- one file


def _scores(file: FileReport, level: float) -> Table:
    rows = [_score_row(row) for row in file.scores]
    shares = ["" if row.passed is None else f"{row.passed:.1%}" for row in file.scores]
    if file.answered is not None:
        rows.append(_answered_row(file.answered))
        shares.append("")
    header: tuple[str, ...] = ("score", "mean", f"{level:.0%} interval", "median", "spread", "values")
    if any(shares):
        header = (*header, "passed")
        rows = [(*row[:-2], share, *row[-2:]) for row, share in zip(rows, shares, strict=True)]
    answers = f", {file.records} answers" if file.runs > 1 else ""
    return Table(
        title=f"{file.name}: {file.questions} questions{answers}",
        header=(*header, "skipped", "failed"),
        rows=tuple(rows),
        notes=tuple(_score_notes(file)),
    )


def _score_row(row: ScoreRow) -> tuple[str, ...]:
    found = row.spread
    label = _label(row.name, row.direction)
    counts = (_count(row.skipped), _count(row.failed))
    if found is None:
        return (label, *[_NOTHING] * 4, "0", *counts)
    return (
        label,
        show_value(found.mean),
        _interval(found.interval),
        show_value(found.median),
        _NOTHING if found.deviation is None else show_value(found.deviation),
        f"{found.count}",
        *counts,
    )


def _answered_row(row: ScoreRow) -> tuple[str, ...]:
    """A share of yes and no: its median says nothing."""
    if row.spread is None:
        return ("questions answered", *[_NOTHING] * 4, "0", _count(row.skipped), _count(row.failed))
    interval = row.spread.interval
    bounds = _NOTHING if interval is None else f"{interval.low:.1%} … {interval.high:.1%}"
    counts = (f"{row.spread.count}", _count(row.skipped), _count(row.failed))
    return ("questions answered", f"{row.spread.mean:.1%}", bounds, "", "", *counts)


def _score_notes(file: FileReport) -> Iterable[str]:
    if any(row.direction == "lower" for row in file.scores):
        yield "↓ lower is better."
    if file.runs > 1:
        yield f"Up to {file.runs} answers to each question: intervals are over questions."
    if any(row.sampled for row in file.scores):
        yield "Scores of sampled turns are weighted by 1 / probability."
    for row in file.scores:
        if row.makers:
            yield f"{row.name} was made by {' and '.join(row.makers)}: a mean of what does not compare."
    if file.errors:
        errors = ", ".join(f"{number} {kind}" for kind, number in file.errors.items())
        yield f"Answers that failed: {errors}."
    if file.bad:
        yield f"Rows that could not be read: {file.bad}."
    for word in ("skipped", "failed"):
        for row in file.scores:
            missing: Missing = getattr(row, word)
            if missing.count:
                reason, number = next(iter(missing.reasons.items()))
                share = "" if number == missing.count else f" ({number} of them)"
                yield f"{row.name}, {missing.count} {word}: {_short(reason, 160)}{share}"


def _ranks(file: FileReport) -> Iterable[Table]:
    ranks = file.ranks
    if ranks is None:
        return
    listed = list(ranks.counts.items())
    rows = [(f"{rank}", f"{number}", f"{number / ranks.count:.1%}") for rank, number in listed[:_MOST_RANKS]]
    rest = sum(number for _, number in listed[_MOST_RANKS:])
    if rest:
        rows.append((f"beyond {listed[_MOST_RANKS - 1][0]}", f"{rest}", f"{rest / ranks.count:.1%}"))
    rows.append(("missed", f"{ranks.missed}", f"{ranks.misses:.1%}"))
    hits = ", ".join(f"hit@{k} {share:.1%}" for k, share in ranks.hits.items())
    notes = [f"match {ranks.match:.1%}, misses {ranks.misses:.1%}, MRR {ranks.mrr:.3f}, {hits}; {ranks.count} turns."]
    if ranks.failed:
        notes.append(f"{ranks.failed} turns failed before anything was retrieved and are not counted.")
    yield Table(f"{file.name}: rank of the target passage", ("rank", "turns", "share"), tuple(rows), tuple(notes))


def _repeats(file: FileReport) -> Iterable[Table]:
    rows = [
        (
            row.name,
            show_value(row.repeats.mean),
            show_value(row.repeats.variance),
            _NOTHING if row.repeats.coefficient is None else show_value(row.repeats.coefficient),
            f"{row.repeats.questions}",
            f"{row.repeats.undefined}" if row.repeats.undefined else "",
        )
        for row in file.scores
        if row.repeats is not None
    ]
    if rows:
        note = (
            "Between the answers to one question, then the mean over questions. CV: standard deviation / mean;"
            " a question with mean 0 has none."
        )
        header = ("score", "mean", "variance", "CV", "questions", "without CV")
        yield Table(f"{file.name}: consistency over repeats", header, tuple(rows), (note,))


def _likeness(file: FileReport) -> Iterable[Table]:
    if not file.likeness:
        return
    rows, notes = [], []
    for item in file.likeness:
        found = item.spread
        if found is None:
            rows.append((item.name, *[_NOTHING] * 4, "0", f"{item.left_out}"))
            notes.append(f"{item.name}: {item.reason}.")
            continue
        deviation = _NOTHING if found.deviation is None else show_value(found.deviation)
        numbers = (show_value(found.mean), _interval(found.interval), show_value(found.median), deviation)
        rows.append((item.name, *numbers, f"{found.count}", f"{item.left_out}" if item.left_out else ""))
        if item.model:
            notes.append(f"{item.name}: {item.model}.")
    if any(item.drawn for item in file.likeness):
        notes.append("Over questions that were drawn at random from all.")
    header = ("F1 between answers", "mean", "interval", "median", "spread", "questions", "left out")
    yield Table(f"{file.name}: how alike repeated answers are", header, tuple(rows), tuple(notes))


def _documents(file: FileReport) -> Iterable[Table]:
    if not file.documents:
        return
    there = [row.name for row in file.scores if row.spread is not None]
    names = [name for name in _DOCUMENT_SCORES if name in there]
    names = (names + [name for name in there if name not in names])[:_MOST_DOCUMENT_SCORES]
    worst = file.worst_by if file.worst_by in there else names[0] if names else None
    order = list(file.documents)
    if worst is not None:
        row = file.score(worst)
        sign = -1 if row is not None and row.direction == "lower" else 1
        order.sort(key=lambda item: sign * item.means[worst] if worst in item.means else float("inf"))
    rows = tuple(
        (
            item.document,
            f"{item.records}",
            *(show_value(item.means[name]) if name in item.means else _NOTHING for name in names),
        )
        for item in order[:_MOST_DOCUMENTS]
    )
    notes = (f"The {len(rows)} worst of {len(order)}.",) if len(order) > len(rows) else ()
    yield Table(f"{file.name}: by source document", ("document", "answers", *names), rows, notes)


def _worst(file: FileReport) -> Iterable[Table]:
    if file.worst:
        rows = tuple(
            (
                turn.id if file.runs == 1 else f"{turn.id}, run {turn.run}",
                show_value(turn.value),
                _short(turn.query),
                _short(turn.response),
            )
            for turn in file.worst
        )
        yield Table(
            f"{file.name}: worst turns by {file.worst_by}",
            ("id", "score", "question", "answer"),
            rows,
            texts=("question", "answer"),
        )


# --------------------------------------------------------------------------- two files


def _comparison(comparison: Comparison, level: float) -> Table:
    notes = [
        f"Over the {comparison.common} questions that both have.",
        "p: paired permutation test, two-sided; p (worse): one-sided, adjusted for the number of scores (Holm).",
    ]
    if comparison.only_before or comparison.only_after:
        notes.append(
            f"Left out: {comparison.only_before} questions only in {comparison.before},"
            f" {comparison.only_after} only in {comparison.after}."
        )
    if comparison.different:
        notes.append(f"Left out: {comparison.different} ids that both have for different questions.")
    if comparison.only_in_one:
        notes.append(f"Scores that only one of them has: {', '.join(comparison.only_in_one)}.")
    notes += [f"{comparison.loss_in_words(loss)}." for loss in comparison.losses]
    notes += [f"{change.name}: {comparison.makers_in_words(change)}." for change in comparison.scores if change.makers]
    notes += [f"{comparison.left_out_in_words(change)}." for change in comparison.scores if change.left_out]
    names = (comparison.before, comparison.after)
    if max(map(len, names)) > _LONGEST_NAME:
        names = ("before", "after")
    return Table(
        f"{comparison.before} → {comparison.after}",
        ("score", *names, "difference", f"{level:.0%} interval", "p", "p (worse)", "n"),
        tuple(_change_row(change) for change in comparison.scores),
        tuple(notes),
    )


def _change_row(change: ScoreChange) -> tuple[str, ...]:
    label = _label(change.name, change.direction)
    test = change.test
    if test is None:
        return (label, *[_NOTHING] * 6, "0")
    return (
        label,
        show_value(test.before),
        show_value(test.after),
        _signed(test.difference),
        _interval(test.interval, signed=True),
        _probability(test.p),
        _NOTHING if change.p_worse is None else _probability(change.p_worse),
        f"{test.count}",
    )


def _changed(comparison: Comparison) -> Iterable[Table]:
    if comparison.changed:
        rows = tuple(
            (
                turn.id,
                show_value(turn.before),
                show_value(turn.after),
                *(_short(text, 60) for text in (turn.query, turn.response_before, turn.response_after)),
            )
            for turn in comparison.changed
        )
        yield Table(
            f"{comparison.before} → {comparison.after}: turns that changed most by {comparison.changed_by}",
            ("id", "before", "after", "question", "answer before", "answer after"),
            rows,
            texts=("question", "answer before", "answer after"),
        )


# --------------------------------------------------------------------------- cells


def _label(name: str, direction: str) -> str:
    return f"{name} ↓" if direction == "lower" else name


def _count(missing: Missing) -> str:
    return f"{missing.count}" if missing.count else ""


def _interval(interval: Interval | None, *, signed: bool = False) -> str:
    if interval is None:
        return _NOTHING
    show = _signed if signed else show_value
    return f"{show(interval.low)} … {show(interval.high)}"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{show_value(value)}"


def _probability(p: float) -> str:
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def _short(text: str, length: int = _LONGEST_TEXT) -> str:
    line = flat(text)
    return line if len(line) <= length else line[: length - 1] + "…"
