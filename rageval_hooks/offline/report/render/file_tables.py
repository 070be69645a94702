"""The tables of one file: scores, ranks, repeats, similarity, documents and worst turns.

A column is one entry of a tuple of :class:`Column`; a section is one entry of :data:`FILE_SECTIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal

from rageval_hooks.offline.report.details import ShownTurn
from rageval_hooks.offline.report.model import DocumentRow, FileReport, Missing, ScoreRow
from rageval_hooks.offline.report.render.table_model import (
    LONGEST_TEXT,
    Column,
    Table,
    make_table,
    show_interval,
    with_arrow,
)
from rageval_hooks.offline.report.similarity import Similarity
from rageval_hooks.offline.report.statistics import Spread, Variation
from rageval_hooks.text.formatting import MISSING, format_share, shorten, show_value
from rageval_hooks.text.wording import counted

__all__ = ["FILE_SECTIONS", "file_tables"]

# Tables stay short enough to read; the page and the JSON have everything.
_MOST_DOCUMENTS = 20
_MOST_DOCUMENT_SCORES = 5
_MOST_RANKS = 10

# A reason of ours says at its end what to do.
_LONGEST_REASON = 400

_Repeats = tuple[str, Variation]


def file_tables(file: FileReport) -> list[Table]:
    """Return the tables of one file."""
    # A section returns None if the file has nothing for it, such as ranks.
    return list(filter(None, (section(file) for section in FILE_SECTIONS)))


# --------------------------------------------------------------------------- scores


def _scores(file: FileReport) -> Table:
    columns: tuple[Column[ScoreRow], ...] = (
        Column("score", lambda row: with_arrow(row.name, row.direction), is_text=True),
        Column("mean", _if_measured(_mean)),
        Column("interval", _if_measured(_mean_interval)),
        Column("median", _if_measured(lambda found, binary: _unless(binary, found.median))),
        Column("spread", _if_measured(lambda found, binary: _unless(binary, found.deviation))),
        Column("values", lambda row: f"{row.count}"),
        Column("passed", _passed, only_if_any=True),
        Column("skipped", lambda row: _count(row.skipped)),
        Column("failed", lambda row: _count(row.failed)),
    )
    answers = f", {file.records} answers" if file.runs > 1 else ""
    title = f"{file.name}: {counted(file.questions, 'question')}{answers}"
    return make_table(title, columns, file.scores, list(_score_notes(file)))


def _if_measured(cell: Callable[[Spread, bool], str]) -> Callable[[ScoreRow], str]:
    """Return a cell with a dash for a score without values. It is given the values, and True for a yes or no."""

    def show(row: ScoreRow) -> str:
        return MISSING if row.spread is None else cell(row.spread, row.binary)

    return show


def _mean(found: Spread, binary: bool) -> str:
    return format_share(found.mean) if binary else show_value(found.mean)


def _mean_interval(found: Spread, binary: bool) -> str:
    return show_interval(found.interval, style="share" if binary else "value")


def _unless(binary: bool, value: float | None) -> str:
    # The median and the deviation of zeros and ones say nothing that their share does not say.
    return "" if binary else show_value(value)


def _passed(row: ScoreRow) -> str:
    return "" if row.passed is None else format_share(row.passed)


def _score_notes(file: FileReport) -> Iterator[str]:
    if any(row.direction == "lower" for row in file.scores):
        yield "↓ lower is better."
    if file.runs > 1:
        yield f"Up to {file.runs} answers to each question: intervals are over questions."
    if any(row.sampled for row in file.scores):
        yield "Scores of sampled turns are weighted by 1 / probability."
    if file.unanswerable:
        yield (
            f"{file.unanswerable} of {file.records} answers are to questions marked as unanswerable, where a refusal is"
            " right: “declined” is about these, “answered” about the others. Scores that need an answer skip them."
        )
    yield from _maker_notes(file)
    if file.errors:
        errors = ", ".join(f"{number} {kind}" for kind, number in file.errors.items())
        yield f"Answers that failed: {errors}. They count as unanswered."
    if file.bad:
        yield f"Rows that could not be read: {file.bad}."
    yield from _missing_notes(file)


def _maker_notes(file: FileReport) -> Iterator[str]:
    for row in file.scores:
        if row.makers:
            yield f"{row.name} was made by {' and '.join(row.makers)}: their values are not comparable."


def _missing_notes(file: FileReport) -> Iterator[str]:
    """Yield why scores are missing: one note per reason, with all scores that have it."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in file.scores:
        for word, missing in (("skipped", row.skipped), ("failed", row.failed)):
            if missing.count:
                names.setdefault((f"{missing.count} {word}", _main_reason(missing)), []).append(row.name)
    for (number, reason), members in names.items():
        each = " each" if len(members) > 1 else ""
        yield f"{', '.join(members)}, {number}{each}: {reason}"


def _main_reason(missing: Missing) -> str:
    # The most frequent reason is enough for a note.
    reason = missing.main_reason
    number = missing.reasons[reason]
    share = "" if number == missing.count else f" ({number} of them)"
    return f"{shorten(reason, _LONGEST_REASON)}{share}"


# --------------------------------------------------------------------------- ranks, repeats, documents, worst turns


def _ranks(file: FileReport) -> Table | None:
    ranks = file.ranks
    if ranks is None:
        return None
    counts = list(ranks.counts.items())
    rows = [(f"{rank}", number) for rank, number in counts[:_MOST_RANKS]]
    # A retriever that returns hundreds of passages would make the table as long.
    rest = sum(number for _, number in counts[_MOST_RANKS:])
    if rest:
        rows.append((f"beyond {counts[_MOST_RANKS - 1][0]}", rest))
    rows.append(("missed", ranks.missed))
    columns: tuple[Column[tuple[str, int]], ...] = (
        Column("rank", lambda row: row[0], is_text=True),
        Column("turns", lambda row: f"{row[1]}"),
        Column("share", lambda row: format_share(row[1] / ranks.count)),
    )
    hits = ", ".join(f"hit@{k} {format_share(share)}" for k, share in ranks.hits.items())
    shares = f"Retrieved {format_share(ranks.match)}, missed {format_share(ranks.misses)}"
    notes = [f"{shares}, MRR {ranks.mrr:.3f}, {hits}; {counted(ranks.count, 'turn')}."]
    if ranks.unknown:
        notes.append(
            f"The rank of {counted(ranks.unknown, 'turn')} is unknown: they failed, or have no passages with ids."
        )
    return make_table(f"{file.name}: rank of the target passage", columns, rows, notes)


def _repeats(file: FileReport) -> Table | None:
    rows = [(row.name, row.repeats) for row in file.scores if row.repeats is not None]
    if not rows:
        return None
    columns = (
        Column[_Repeats]("score", lambda row: row[0], is_text=True),
        Column[_Repeats]("mean", lambda row: show_value(row[1].mean)),
        Column[_Repeats]("variance", lambda row: show_value(row[1].variance)),
        Column[_Repeats]("CV", lambda row: show_value(row[1].coefficient)),
        Column[_Repeats]("questions", lambda row: f"{row[1].questions}"),
        Column[_Repeats]("without CV", lambda row: f"{row[1].undefined or ''}", only_if_any=True),
    )
    note = (
        "Between the answers to one question, then the mean over questions. CV: standard deviation / mean;"
        " a question with mean 0 has none."
    )
    return make_table(f"{file.name}: consistency over repeats", columns, rows, [note])


def _similarity(file: FileReport) -> Table | None:
    if not file.similarity:
        return None
    columns: tuple[Column[Similarity], ...] = (
        Column("F1 between answers", lambda row: row.name, is_text=True),
        Column("mean", lambda row: _of_spread(row, "mean")),
        Column("interval", lambda row: MISSING if row.spread is None else show_interval(row.spread.interval)),
        Column("median", lambda row: _of_spread(row, "median")),
        Column("spread", lambda row: _of_spread(row, "deviation")),
        Column("questions", lambda row: f"{row.spread.count if row.spread else 0}"),
        Column("excluded", lambda row: f"{row.left_out or ''}", only_if_any=True),
    )
    # The reason why there is no number, or the model that made it.
    remarks = {row.name: row.reason or row.model for row in file.similarity}
    notes = [f"{name}: {remark}." for name, remark in remarks.items() if remark]
    if any(row.drawn for row in file.similarity):
        notes.append("Over questions that were drawn at random from all.")
    return make_table(f"{file.name}: similarity of repeated answers", columns, file.similarity, notes)


def _of_spread(row: Similarity, field: Literal["mean", "median", "deviation"]) -> str:
    return MISSING if row.spread is None else show_value(getattr(row.spread, field))


def _documents(file: FileReport) -> Table | None:
    if not file.documents:
        return None
    names = _document_scores(file)
    order = _worst_documents(file, names[0] if names else None)
    columns = [
        Column[DocumentRow]("document", lambda row: row.document, is_text=True),
        Column[DocumentRow]("answers", lambda row: f"{row.records}"),
        *(Column[DocumentRow](name, lambda row, name=name: show_value(row.means.get(name))) for name in names),  # type: ignore[misc]
    ]
    shown = order[:_MOST_DOCUMENTS]
    notes = [f"The {len(shown)} worst of {len(order)}."] if len(order) > len(shown) else []
    return make_table(f"{file.name}: by source document", columns, shown, notes)


def _document_scores(file: FileReport) -> list[str]:
    """Return the scores to show per document: the ordering one first, then those in the order of the file."""
    names = [row.name for row in file.scores if row.count]
    # Sorting is stable: all but the first keep their order.
    names.sort(key=lambda name: name != file.worst_by)
    return names[:_MOST_DOCUMENT_SCORES]


def _worst_documents(file: FileReport, ordering: str | None) -> list[DocumentRow]:
    row = file.score(ordering) if ordering is not None else None
    if row is None:
        return list(file.documents)
    # A document without the score comes last.
    sign, last = (-1, -math.inf) if row.direction == "lower" else (1, math.inf)
    return sorted(file.documents, key=lambda document: sign * document.means.get(row.name, last))


def _worst(file: FileReport) -> Table | None:
    if not file.worst:
        return None
    columns: tuple[Column[ShownTurn], ...] = (
        Column("id", lambda turn: turn.id if file.runs == 1 else f"{turn.id}, run {turn.run}", is_text=True),
        Column("score", lambda turn: show_value(turn.value)),
        Column("question", lambda turn: shorten(turn.query, LONGEST_TEXT), is_text=True),
        Column("answer", lambda turn: shorten(turn.response, LONGEST_TEXT), is_text=True),
    )
    return make_table(f"{file.name}: worst turns by {file.worst_by}", columns, file.worst, is_detail=True)


def _count(missing: Missing) -> str:
    return f"{missing.count}" if missing.count else ""


FILE_SECTIONS: tuple[Callable[[FileReport], Table | None], ...] = (
    _scores,
    _ranks,
    _repeats,
    _similarity,
    _documents,
    _worst,
)
"""The tables of one file, in reading order."""
