"""A report as tables: for a terminal, for a file or a pipe, as Markdown and for the page. No cell is ever cropped."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from rageval_hooks.offline.report.build import MAX_RANKS, Conclusion, DocumentRow, FileReport, Report
from rageval_hooks.offline.report.compare import FileComparison
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.score import CAUSES, VERDICT
from rageval_hooks.text.formatting import (
    MISSING,
    flat,
    format_p_value,
    format_share,
    shorten,
    show_value,
    signed_value,
)
from rageval_hooks.text.wording import counted

# Characters of a question or an answer. The JSON and the page's list of questions have the whole text.
_MAX_TEXT_LENGTH: Final = 120

# Tables stay short enough to read; the page and the JSON have everything.
_MAX_DOCUMENTS = 20
_MAX_DOCUMENT_SCORES = 5

# A reason of ours says at its end what to do.
_MAX_REASON_LENGTH = 400

_ALPHA = 0.05

# In a terminal cells wrap. Names in the first column are not broken up to the first width, texts have the second.
_WHOLE_NAME, _MIN_TEXT = 32, 16

# Columns of a file, in which no line wraps.
_UNLIMITED = 100_000

_MARKS = {"good": "+", "bad": "-", "note": " "}

# What Markdown would take for markup: punctuation such as "*" or "|", and "_" at the edge of a word ("_x_", not "a_b").
_MARKUP = re.compile(r"([\\`*{}\[\]<>#|~&!]|(?<!\w)_|_(?!\w))")


class Table:
    """One table, without the columns that are empty in every row.

    Args:
        title: what it shows.
        rows: the cells of each row, by the header of their column.
        notes: sentences under it.
        texts: columns of texts, besides the first one. The others hold numbers, and are aligned to the right.
        is_detail: True for tables of single turns, which the page shows in another way.

    Attributes:
        header: names of the columns.
        rows: texts, one per column.
        texts: positions of the columns of texts.
    """

    def __init__(
        self,
        title: str,
        rows: Sequence[dict[str, str]],
        notes: Iterable[str] = (),
        *,
        texts: Collection[str] = (),
        is_detail: bool = False,
    ) -> None:
        columns = rows[0] if rows else {}
        header = [name for place, name in enumerate(columns) if place == 0 or any(row[name] for row in rows)]
        # Names of files, questions and answers may hold line breaks and control characters, which break a table.
        self.title = flat(title)
        self.header = [*map(flat, header)]
        self.rows = [tuple(flat(row[name]) for name in header) for row in rows]
        self.notes = [*map(flat, notes)]
        self.texts = {place for place, name in enumerate(header) if place == 0 or name in texts}
        self.is_detail = is_detail


def to_tables(report: Report) -> list[Table]:
    """Return the tables of a report, in reading order."""
    return [*chain(*map(file_tables, report.files), *map(comparison_tables, report.comparisons))]


def file_tables(file: FileReport) -> list[Table]:
    """Return the tables of one file, without empty ones, such as ranks without targets."""
    tables = (_scores(file), _ranks(file), _repeats(file), _similarity(file), _documents(file), _causes(file))
    return [table for table in (*tables, _worst(file)) if table.rows]


def comparison_tables(comparison: FileComparison) -> list[Table]:
    """Return the tables of two files side by side: how scores differ, and which turns changed most."""
    return [table for table in (_changes(comparison), _changed(comparison)) if table.rows or not table.is_detail]


def _spread_cells(found: Spread | None, binary: bool = False) -> dict[str, str]:
    if found is None:
        return dict.fromkeys(("mean", "interval", "median", "spread"), MISSING)
    interval = found.interval.shown(format_share if binary else show_value) if found.interval else MISSING
    if binary:
        # The median and the deviation of zeros and ones say nothing that their share does not say.
        return {"mean": format_share(found.mean), "interval": interval, "median": "", "spread": ""}
    median, deviation = show_value(found.median), show_value(found.deviation)
    return {"mean": show_value(found.mean), "interval": interval, "median": median, "spread": deviation}


# --------------------------------------------------------------------------- one file


def _scores(file: FileReport) -> Table:
    rows = [
        {
            "score": row.shown_name,
            **_spread_cells(row.spread, row.binary),
            "values": f"{row.count}",
            "passed": "" if row.passed is None else format_share(row.passed),
            "skipped": f"{row.skipped.count or ''}",
            "failed": f"{row.failed.count or ''}",
        }
        for row in file.scores
    ]
    answers = f", {file.records} answers" if file.runs > 1 else ""
    return Table(f"{file.name}: {counted(file.questions, 'question')}{answers}", rows, _score_notes(file))


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
    for row in file.scores:
        if row.makers:
            yield f"{row.name} was made by {' and '.join(row.makers)}: their values are not comparable."
    if file.errors:
        errors = ", ".join(f"{number} {kind}" for kind, number in file.errors.items())
        yield f"Answers that failed: {errors}. They count as unanswered."
    if file.bad:
        yield f"Rows that could not be read: {file.bad}."
    # One note per reason, with all scores that have it; the most frequent reason is enough.
    names: dict[tuple[str, str], list[str]] = {}
    for row in file.scores:
        for word, missing in (("skipped", row.skipped), ("failed", row.failed)):
            if missing.count:
                number = missing.reasons[missing.main_reason]
                share = "" if number == missing.count else f" ({number} of them)"
                reason = f"{shorten(missing.main_reason, _MAX_REASON_LENGTH)}{share}"
                names.setdefault((f"{missing.count} {word}", reason), []).append(row.name)
    for (number_of, reason), members in names.items():
        yield f"{', '.join(members)}, {number_of}{' each' if len(members) > 1 else ''}: {reason}"


def _ranks(file: FileReport) -> Table:
    ranks = file.ranks
    if ranks is None:
        return Table("", [])
    rows = [
        {"rank": rank, "turns": f"{number}", "share": format_share(number / ranks.count)}
        for rank, number in ranks.rows(min(MAX_RANKS, max(ranks.counts, default=0))).items()
    ]
    shares = {"retrieved": ranks.match, "missed": ranks.misses, **{f"hit@{k}": hit for k, hit in ranks.hits.items()}}
    shown = ", ".join(f"{name} {format_share(share)}" for name, share in shares.items())
    notes = [f"MRR {ranks.mrr:.3f}, {shown}; {counted(ranks.count, 'turn')}."]
    if ranks.unknown:
        notes.append(
            f"The rank of {counted(ranks.unknown, 'turn')} is unknown: they failed, or have no passages with ids."
        )
    return Table(f"{file.name}: rank of the target passage", rows, notes)


def _repeats(file: FileReport) -> Table:
    rows = [
        {
            "score": row.name,
            "mean": show_value(row.repeats.mean),
            "variance": show_value(row.repeats.variance),
            "CV": show_value(row.repeats.coefficient),
            "questions": f"{row.repeats.questions}",
            "without CV": f"{row.repeats.undefined or ''}",
        }
        for row in file.scores
        if row.repeats is not None
    ]
    note = (
        "Between the answers to one question, then the mean over questions. CV: standard deviation / mean;"
        " a question with mean 0 has none."
    )
    return Table(f"{file.name}: consistency over repeats", rows, [note])


def _similarity(file: FileReport) -> Table:
    rows = [
        {
            "F1 between answers": row.name,
            **_spread_cells(row.spread),
            "questions": f"{row.spread.count if row.spread else 0}",
            "excluded": f"{row.left_out or ''}",
        }
        for row in file.similarity
    ]
    # The reason why there is no number, or the model that made it.
    remarks = {row.name: row.reason or row.model for row in file.similarity}
    notes = [f"{name}: {remark}." for name, remark in remarks.items() if remark]
    return Table(f"{file.name}: similarity of repeated answers", rows, notes)


def _documents(file: FileReport) -> Table:
    # The ordering score comes first, then those in the order of the file: sorting is stable.
    scores = sorted((row for row in file.scores if row.count), key=lambda row: row.name != file.worst_by)
    scores = scores[:_MAX_DOCUMENT_SCORES]

    def badness(row: DocumentRow) -> float:
        # A document without the score comes last.
        mean = row.means.get(scores[0].name, math.inf)
        return -mean if scores[0].direction == "lower" and mean < math.inf else mean

    order = sorted(file.documents, key=badness) if scores else file.documents
    rows = [
        {"document": row.document, "answers": f"{row.records}"}
        | {score.name: show_value(row.means.get(score.name)) for score in scores}
        for row in order[:_MAX_DOCUMENTS]
    ]
    notes = [f"The {len(rows)} worst of {len(order)}."] if len(order) > len(rows) else []
    return Table(f"{file.name}: by source document", rows, notes)


def _causes(file: FileReport) -> Table:
    rows = [
        {
            "cause": found.cause,
            "answers": f"{found.answers}",
            "bad": f"{found.bad or ''}",
            "meaning": CAUSES.get(found.cause, ""),
            "example": found.example.id,
            "question": shorten(found.example.query, _MAX_TEXT_LENGTH),
            "reason": shorten(found.example.reason, _MAX_TEXT_LENGTH),
        }
        for found in file.causes
    ]
    return Table(
        f"{file.name}: causes of verdicts that are not good", rows, texts=("meaning", "example", "question", "reason")
    )


def _worst(file: FileReport) -> Table:
    rows = [
        {
            "id": turn.id if file.runs == 1 else f"{turn.id}, run {turn.run}",
            "verdict": (turn.verdict or "").replace("_", " "),
            "cause": turn.cause or "",
            "score": "" if file.worst_by == VERDICT else show_value(turn.value),
            "reason": shorten(turn.reason, _MAX_TEXT_LENGTH),
            "question": shorten(turn.query, _MAX_TEXT_LENGTH),
            "answer": shorten(turn.response, _MAX_TEXT_LENGTH),
        }
        for turn in file.worst
    ]
    title = f"{file.name}: worst turns by {file.worst_by}"
    return Table(title, rows, texts=("verdict", "cause", "reason", "question", "answer"), is_detail=True)


# --------------------------------------------------------------------------- two files


def _changes(comparison: FileComparison) -> Table:
    rows = []
    for change in comparison.scores:
        word = "▲ better" if change.is_significant(_ALPHA, worse=False) else ""
        row = {
            "score": f"{change.name} ↓" if change.direction == "lower" else change.name,
            **dict.fromkeys(("before", "after", "difference", "change", "interval", "p", "p (worse)"), MISSING),
            "n": f"{change.count}",
            "change": "▼ worse" if change.is_significant(_ALPHA, worse=True) else word,
        }
        if (test := change.test) is not None:
            row |= {
                "before": show_value(test.before),
                "after": show_value(test.after),
                "difference": signed_value(test.difference),
                "interval": test.interval.shown(signed_value) if test.interval else MISSING,
                "p": format_p_value(test.p),
                "p (worse)": format_p_value(1.0 if change.p_worse is None else change.p_worse),
            }
        rows.append(row)
    return Table(f"{comparison.before} → {comparison.after}", rows, _comparison_notes(comparison))


def _comparison_notes(comparison: FileComparison) -> Iterator[str]:
    yield f"Over the {counted(comparison.common, 'question')} that both have."
    yield "p: paired permutation test, two-sided; p (worse): one-sided, adjusted (Holm) by the number of scores."
    yield f"▲ ▼: significant at {_ALPHA:g} after the adjustment."
    if comparison.only_before or comparison.only_after:
        yield (
            f"Not compared: {counted(comparison.only_before, 'question')} only in {comparison.before},"
            f" {comparison.only_after} only in {comparison.after}."
        )
    if comparison.different:
        ids = counted(comparison.different, "id")
        yield f"Not compared: {ids} that stand for different questions in the two files."
    if comparison.only_in_one:
        yield f"Scores that only one of them has: {', '.join(comparison.only_in_one)}."
    for line in comparison.describe_losses(comparison.losses):
        yield f"{line}."
    for change in comparison.scores:
        if change.makers:
            yield f"{change.name}: {comparison.describe_makers(change.makers)}."


def _changed(comparison: FileComparison) -> Table:
    rows = [
        {
            "id": turn.id,
            "before": show_value(turn.before),
            "after": show_value(turn.after),
            "question": shorten(turn.query, _MAX_TEXT_LENGTH),
            "answer before": shorten(turn.response_before, _MAX_TEXT_LENGTH),
            "answer after": shorten(turn.response_after, _MAX_TEXT_LENGTH),
        }
        for turn in comparison.changed
    ]
    title = f"{comparison.before} → {comparison.after}: turns that changed most by {comparison.changed_by}"
    return Table(title, rows, texts=("question", "answer before", "answer after"), is_detail=True)


# --------------------------------------------------------------------------- text


def to_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    lines = ["# RAG evaluation", ""]
    if report.conclusion is not None:
        lines += [f"**{_escaped(report.conclusion.headline)}**", ""]
        lines += [f"- {_escaped(line.strip())}" for line in _conclusion_lines(report.conclusion)]
        lines.append("")
    for table in to_tables(report):
        # A rule with a colon at its end aligns numbers to the right.
        rules = ["---" if column in table.texts else "---:" for column in range(len(table.header))]
        lines += [f"## {_escaped(table.title)}", ""]
        lines += [_markdown_row(table.header), f"| {' | '.join(rules)} |", *map(_markdown_row, table.rows), ""]
        lines += [line for note in table.notes for line in (_escaped(note), "")]
    return "\n".join(lines)


def to_plain_text(report: Report) -> str:
    """Return the report as text without a limit on the width, for a file or a pipe."""
    console = Console(width=_UNLIMITED, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        print_tables(report, console)
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))


def print_tables(report: Report, console: Console) -> None:
    """Print the report to a terminal. Cells wrap; on a very narrow terminal, lines do."""
    if report.conclusion is not None:
        style = {"ok": "bold green", "warn": "bold yellow", "fail": "bold red"}[report.conclusion.state]
        console.print(Text(flat(report.conclusion.headline), style=style))
        for line in _conclusion_lines(report.conclusion):
            # Without control characters, and with the mark at its beginning.
            console.print(Text(f"{line[:2]}{flat(line[2:])}"))
        console.print()
    for table in to_tables(report):
        console.print(Text(table.title, style="bold"))
        _print_table(table, console)
        for note in table.notes:
            console.print(Text(note, style="dim"))
        console.print()


def _conclusion_lines(conclusion: Conclusion) -> list[str]:
    lines = [f"{_MARKS[finding.kind]} {finding.text}" for finding in (*conclusion.quality, *conclusion.changes)]
    return lines + [f"  {line}" for line in conclusion.certainty]


def _print_table(table: Table, console: Console) -> None:
    shown = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, name in enumerate(table.header):
        is_text = column in table.texts
        cells = [name, *(row[column] for row in table.rows)]
        # Names and numbers are not broken if possible, and texts have some room.
        widths = map(cell_len, cells if is_text else " ".join(cells).split())
        least = min(max(widths), _WHOLE_NAME if column == 0 else _MIN_TEXT)
        # Text() keeps rich from reading square brackets in names as its markup.
        shown.add_column(Text(name), justify="left" if is_text else "right", overflow="fold", min_width=least)
    for row in table.rows:
        shown.add_row(*map(Text, row))
    console.print(shown, crop=False)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Return a text that Markdown shows literally: no markup, no HTML, no end of the cell."""
    return _MARKUP.sub(r"\\\1", flat(text))
