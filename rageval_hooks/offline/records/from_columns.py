"""From a row with columns to a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.cells import (
    answerable_in,
    citations_in,
    error_in,
    is_missing,
    metadata_in,
    query_in,
    reference_in,
    response_in,
    run_in,
    text_in,
)
from rageval_hooks.offline.records.columns import Fields, missing_column, take_fields
from rageval_hooks.offline.records.mapping import ColumnMap
from rageval_hooks.offline.records.passages import passages_in
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.targets import rank_in, target_text_in
from rageval_hooks.runtime.jsonable import plain_mapping
from rageval_hooks.turn import ErrorInfo, Turn

__all__ = ["explain", "record_from_fields", "record_from_row"]


def record_from_row(
    row: Mapping[str, Any],
    name: str,
    required: Iterable[str] = ("query", "response"),
    *,
    table: bool = False,
    mapping: ColumnMap | None = None,
) -> Record:
    """Return the record that a row of a table or a JSON object holds.

    Args:
        row: values by column. Columns that no field takes are kept in the turn's metadata.
        name: id of the record if the row has none.
        required: fields that must have a column; the query must have a value too.
        table: True if cells hold text only, so that lists and objects are written as text.
        mapping: columns that the user named.

    Raises:
        TurnError: a column is missing, or a value does not fit its field; the message says what is accepted.
    """
    fields = take_fields(row, mapping)
    has_failed = bool(error_in(fields.get("error")))
    for field in required:
        # A system that failed has no answer: that is a result too.
        if field not in fields.values and not (field == "response" and has_failed):
            raise missing_column(field, list(row))
    if "query" in required and not query_in(fields.get("query")).strip():
        raise TurnError("the query is missing: name metrics that need none, such as faithfulness, to score such rows")
    return record_from_fields(fields, name, table=table)


def record_from_fields(fields: Fields, name: str, *, table: bool) -> Record:
    """Return the record that the fields of a row make.

    Raises:
        TurnError: a value does not fit its field.
    """
    identity = name if is_missing(fields.get("id")) else str(fields.get("id")).strip()
    # A missed target has no rank, but is known not to be there.
    rank, missed = rank_in(fields.get("rank"))
    try:
        return Record(
            id=identity,
            run=run_in(fields.get("run")),
            turn=_turn(fields, identity, table),
            # An empty cell is no id.
            target=text_in(fields.get("target"), "target") or None,
            target_text=target_text_in(fields.get("target_text")),
            rank=rank,
            missed=missed,
            document=text_in(fields.get("document"), "document") or None,
            answerable=answerable_in(fields.get("answerable"), fields.columns.get("answerable", "")),
        )
    except ValidationError as problem:
        raise TurnError(explain(problem)) from None


def _turn(fields: Fields, identity: str, table: bool) -> Turn:
    error = error_in(fields.get("error"))
    failure: dict[str, Any] = {}
    if error:
        failure = {"status": "error", "error": ErrorInfo(type="Error", message=error)}
    return Turn(
        id=identity,
        query=query_in(fields.get("query")),
        response=response_in(fields.get("response"), table or "response" in fields.packed),
        passages=tuple(passages_in(fields.get("passages"), table or "passages" in fields.packed)),
        reference=reference_in(fields.get("reference"), table),
        metadata=_metadata(fields),
        **failure,
    )


def _metadata(fields: Fields) -> dict[str, Any]:
    # A column of metadata comes first: other columns may repeat a part of it.
    found = {**metadata_in(fields.get("metadata")), **plain_mapping(fields.rest)}
    if not is_missing(fields.get("citations")):
        found["citations"] = citations_in(fields.get("citations"))
    return found


def explain(error: ValidationError | TurnError) -> str:
    """Return in one line why a row cannot be used; pydantic's own message has many."""
    if isinstance(error, TurnError):
        return str(error)
    problems = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in problems)
