"""Evaluations that the exporter ``jsonl`` wrote: a turn with its inline scores, and a line for each later score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rageval_hooks.offline.records.from_columns import explain
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import BadRow, Group, Row
from rageval_hooks.offline.records.source import RowSource
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.score import Evaluation
from rageval_hooks.turn import Turn

__all__ = ["is_evaluation", "read_evaluations"]


def is_evaluation(row: Mapping[str, Any]) -> bool:
    """Return True if a row is an evaluation. It has a turn like a record, and a stage, or no id except the turn's."""
    return holds_turn(row) and ("stage" in row or "id" not in row)


def read_evaluations(source: RowSource) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield a record for each turn, with its line and with the scores that came later."""
    for number, group in enumerate(source.groups(_turn_id), 1):
        if isinstance(group, BadRow):
            yield group.line, group
            continue
        try:
            yield group.line, _record(group, number)
        except ValidationError as error:
            yield group.line, BadRow(group.line, explain(error), group.rows[0])


def _record(group: Group, number: int) -> Record:
    found = [Evaluation.model_validate(row) for row in group.rows]
    turn = _whole_turn(found)
    results = tuple(result for evaluation in found for result in evaluation.results)
    return Record(id=turn.id or str(number), turn=turn, results=results)


def _whole_turn(found: Sequence[Evaluation]) -> Turn:
    # Lines of later scores may have the turn without its content.
    whole = (evaluation.turn for evaluation in found if evaluation.stage == "inline")
    return next(whole, found[0].turn)


def _turn_id(row: Row) -> tuple[str]:
    identity = mapping_or_empty(row.data.get("turn")).get("id")
    if identity:
        return (str(identity),)
    # Turns without an id stay apart: each row is its own group.
    return (f"\0{row.number}",)
