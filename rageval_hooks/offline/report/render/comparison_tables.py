"""The tables of two files side by side: how scores differ, and which turns changed most.

A column is one entry of a tuple of :class:`Column`; a section is one entry of :data:`COMPARISON_SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rageval_hooks.offline.report.comparison import ChangedTurn, Comparison, ScoreChange
from rageval_hooks.offline.report.render.table_model import (
    LONGEST_TEXT,
    Column,
    Table,
    make_table,
    show_interval,
    with_arrow,
)
from rageval_hooks.offline.report.statistics import Paired
from rageval_hooks.text.formatting import MISSING, format_p_value, shorten, show_value, signed_value
from rageval_hooks.text.wording import counted

__all__ = ["COMPARISON_SECTIONS", "comparison_tables"]

# Longer names of files would make columns of numbers wider than a terminal.
_LONGEST_NAME = 14

_ALPHA = 0.05


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Return the tables of two files side by side."""
    return list(filter(None, (section(comparison) for section in COMPARISON_SECTIONS)))


def _changes(comparison: Comparison) -> Table:
    before, after = comparison.before, comparison.after
    # Long names would make columns of numbers wider than a terminal; the title has them.
    if max(len(before), len(after)) > _LONGEST_NAME:
        before, after = "before", "after"
    columns: tuple[Column[ScoreChange], ...] = (
        Column("score", lambda row: with_arrow(row.name, row.direction), is_text=True),
        Column(before, _if_tested(lambda test: show_value(test.before))),
        Column(after, _if_tested(lambda test: show_value(test.after))),
        Column("difference", _if_tested(lambda test: signed_value(test.difference))),
        Column("change", _change, only_if_any=True),
        Column("interval", _if_tested(lambda test: show_interval(test.interval, style="signed"))),
        Column("p", _if_tested(lambda test: format_p_value(test.p))),
        Column("p (worse)", lambda row: MISSING if row.p_worse is None else format_p_value(row.p_worse)),
        Column("n", lambda row: f"{row.count}"),
    )
    title = f"{comparison.before} → {comparison.after}"
    return make_table(title, columns, comparison.scores, list(_comparison_notes(comparison)))


def _change(row: ScoreChange) -> str:
    """Return in a word how a score changed, if it changed significantly."""
    if row.is_significant(_ALPHA, worse=True):
        return "▼ worse"
    return "▲ better" if row.is_significant(_ALPHA, worse=False) else ""


def _if_tested(cell: Callable[[Paired], str]) -> Callable[[ScoreChange], str]:
    """Return a cell that is empty for a score without values in both files."""

    def show(row: ScoreChange) -> str:
        return MISSING if row.test is None else cell(row.test)

    return show


def _comparison_notes(comparison: Comparison) -> Iterator[str]:
    yield f"Over the {counted(comparison.common, 'question')} that both have."
    yield "p: paired permutation test, two-sided; p (worse): one-sided, adjusted for the number of scores (Holm)."
    if any(map(_change, comparison.scores)):
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
            yield f"{change.name}: {comparison.describe_makers(change)}."
        if change.not_compared:
            yield f"{comparison.describe_excluded(change)}."


def _changed(comparison: Comparison) -> Table | None:
    if not comparison.changed:
        return None
    columns: tuple[Column[ChangedTurn], ...] = (
        Column("id", lambda turn: turn.id, is_text=True),
        Column("before", lambda turn: show_value(turn.before)),
        Column("after", lambda turn: show_value(turn.after)),
        Column("question", lambda turn: shorten(turn.query, LONGEST_TEXT), is_text=True),
        Column("answer before", lambda turn: shorten(turn.response_before, LONGEST_TEXT), is_text=True),
        Column("answer after", lambda turn: shorten(turn.response_after, LONGEST_TEXT), is_text=True),
    )
    title = f"{comparison.before} → {comparison.after}: turns that changed most by {comparison.changed_by}"
    return make_table(title, columns, comparison.changed, is_detail=True)


COMPARISON_SECTIONS: tuple[Callable[[Comparison], Table | None], ...] = (_changes, _changed)
"""The tables of two files, in reading order."""
