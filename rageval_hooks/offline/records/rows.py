"""From a row to a record: a row with columns of any tool, or one of our own tables.

A value in an unknown form is an error that says what is accepted.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.offline.records.columns import (
    ALIASES,
    ColumnMap,
    Fields,
    as_options,
    canonical,
    has_column,
    missing_column,
)
from rageval_hooks.offline.records.record import BETWEEN_TEXTS, Record
from rageval_hooks.offline.records.values import chat_text, check_list, kind_of, metadata_in, passages_in
from rageval_hooks.runtime.jsonable import plain_mapping, plain_value
from rageval_hooks.runtime.literals import unpacked
from rageval_hooks.runtime.narrowing import is_missing, items_or_empty
from rageval_hooks.score import Failed, Result, Score, Skipped
from rageval_hooks.turn import ErrorInfo, Turn

_YES_OR_NO: TypeAdapter[bool] = TypeAdapter(bool)
# What tools write into the column of errors for an answer without an error.
_NO_ERROR = ("false", "0", "0.0", "no", "none", "null")
# SQuAD 2 names its column "is_impossible".
_NEGATIVE_NAMES = ("unanswerable", "impossible", "abstain")
# What tools write into a column of ranks for a target that was not retrieved.
_MISSED = ("miss", "missed", "missing", "not found", "not_found", "none", "-")


def record_from_row(
    row: Mapping[str, Any], name: str, columns: ColumnMap, required: Iterable[str] = ("query", "response")
) -> Record:
    """Return the record that a row of a table or a JSON object holds.

    Args:
        row: values by column. Columns that no field takes are kept in the turn's metadata.
        name: id of the record if the row has none.
        columns: the column of each field.
        required: fields that must have a column; the query must have a value too.

    Raises:
        TurnError: a column is missing, or a value does not fit its field; the message says what is accepted.
    """
    fields = columns.take(row)
    error = _error_in(fields.get("error"))
    for field in required:
        # A system that failed has no answer: that is a result too.
        if field not in fields.values and not (field == "response" and error):
            raise missing_column(field, list(row))
    query = query_in(fields.get("query"))
    if "query" in required and not query.strip():
        raise TurnError("the query is missing: name metrics that need none, such as faithfulness, to score such rows")
    identity = name if is_missing(fields.get("id")) else str(fields.get("id")).strip()
    # A missed target has no rank, but is known not to be there.
    rank, missed = _rank_in(fields.get("rank"))
    metadata = {**plain_mapping(metadata_in(fields.get("metadata"))), **plain_mapping(fields.rest)}
    if not is_missing(fields.get("citations")):
        # Tables have them as JSON. A bare id becomes a citation without a position.
        found = items_or_empty(plain_value(unpacked(fields.get("citations"))))
        metadata["citations"] = [{"id": item} if isinstance(item, str) else item for item in found]
    turn = Turn(
        id=identity,
        query=query,
        response=_response_in(fields),
        passages=tuple(passages_in(fields.get("passages"), fields.columns.get("passages", ""))),
        reference=reference_in(fields.get("reference")),
        status="error" if error else "ok",
        error=ErrorInfo(type="Error", message=error) if error else None,
        metadata=metadata,
    )
    return Record(id=identity, turn=turn, rank=rank, missed=missed, **about_question(fields))


def about_question(fields: Fields) -> dict[str, Any]:
    """Return the fields of a record that are about its question and repetition: run, target, document, answerable.

    Raises:
        TurnError: a value does not fit its field.
    """
    # One text, or several as ["..."] or [{"text": "..."}].
    target_text = unpacked(fields.get("target_text"))
    items = target_text if isinstance(target_text, (list, tuple)) else [target_text]
    texts = [item.get("text") if isinstance(item, Mapping) else item for item in items]
    return {
        "run": _run_in(fields.get("run")),
        # An empty cell is no id.
        "target": text_in(fields.get("target"), "target") or None,
        "target_text": BETWEEN_TEXTS.join(text for text in texts if isinstance(text, str) and text.strip()) or None,
        "document": text_in(fields.get("document"), "document") or None,
        "answerable": _answerable_in(fields),
    }


def explain(error: ValidationError | TurnError) -> str:
    """Return in one line why a row cannot be used; pydantic's own message has many."""
    if isinstance(error, TurnError):
        return str(error)
    problems = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in problems)


def text_in(value: Any, name: str) -> str:
    """Return a cell as text; empty if it is missing.

    Raises:
        TurnError: it is a list or an object.
    """
    if is_missing(value):
        return ""
    # "42" loses its quotes in tools that guess the type of a column.
    if isinstance(value, (str, bool, int, float)):
        return str(value)
    # Excel and Parquet have answers such as 2019-05-01 as dates.
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    raise TurnError(f"the {name} is {kind_of(value)}, not a text: --map {name}=COLUMN.KEY takes one of its values")


def query_in(value: Any) -> str:
    """Return the question; of a conversation, the last message of the user; empty if the value is missing.

    Raises:
        TurnError: the value holds no question.
    """
    # A question may begin with a bracket. Only text that begins like a list of messages is parsed.
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        value = unpacked(value)
    if not isinstance(value, list):
        return text_in(value, "query")
    text = chat_text(value, "user") or _single_text(value)
    if not text:
        raise TurnError("the query is a list without a message of the user")
    return text


def _single_text(value: list[Any]) -> str:
    """Return the only item of ``["..."]``; empty for any other list."""
    return value[0] if len(value) == 1 and isinstance(value[0], str) else ""


def _response_in(fields: Fields) -> str:
    """Return the answer: a text, a list with one text, or chat messages, of which the last of the assistant counts.

    Raises:
        TurnError: the value has another form.
    """
    value = fields.get("response")
    if text := chat_text(value, "assistant"):
        return text
    if not isinstance(value, list):
        return text_in(value, "response")
    if text := _single_text(value):
        return text
    path = column = fields.columns["response"]
    is_golden = canonical(column) in ALIASES["reference"] and "reference" not in fields.values
    if value and isinstance(value[0], Mapping):
        texts = [key for key, item in value[0].items() if isinstance(item, str) and " " in item.strip()]
        key = texts[0] if len(texts) == 1 else "KEY"
        path = f"join(' ', {column}[].{key})" if len(value) > 1 else f"{column}[0].{key}"
        message = f"a list of objects, not a text: try {as_options({'response': path})}"
        column = f"{column}[].{key}"
    else:
        message = f"a list of {len(value)} items, not a text: {as_options({'response': f'{path}[0]'})} takes one"
    if is_golden:
        message += f", or {as_options({'reference': column})} if it is what the application should answer"
    raise TurnError(f"the response is {message}")


def reference_in(value: Any) -> str | None:
    """Return the reference answer; several are joined by line breaks.

    Args:
        value: a text, a list of texts (also as text), or SQuAD's ``{"text": [...], "answer_start": [...]}``.

    Raises:
        TurnError: the value has another form.
    """
    check_list(value, "references")
    found = unpacked(value)
    if isinstance(found, Mapping) and isinstance(found.get("text"), list):
        found = found["text"]
    if isinstance(found, (list, tuple)):
        # Datasets wrap single answers: {"text": "..."}, {"answer": "..."}.
        texts = [item.get("text") or item.get("answer") if isinstance(item, Mapping) else item for item in found]
        known = [text for text in texts if isinstance(text, str)]
        if len(known) == len(texts):
            # Datasets repeat an answer for each annotator who gave it.
            return "\n".join(dict.fromkeys(known)) or None
    # Text that only looked like a list is the reference itself.
    return text_in(value, "reference") or None


def _answerable_in(fields: Fields) -> bool:
    """Return False if a cell says that the documents do not answer the question; True without a value."""
    value, column = fields.get("answerable"), fields.columns.get("answerable", "")
    if is_missing(value):
        return True
    try:
        # 1.0 is how tables with missing values hold a whole number.
        found = _YES_OR_NO.validate_python(str(value).strip().removesuffix(".0"))
    except ValidationError:
        raise TurnError(f"{column} is {value!r}: it must be true or false") from None
    # In columns such as `unanswerable` and `is_impossible` the value means the opposite.
    return found != any(name in column.lower() for name in _NEGATIVE_NAMES)


def _run_in(value: Any) -> int:
    """Return the number of the repetition."""
    if is_missing(value):
        return 1
    # pandas writes a column of whole numbers with a gap as "2.0".
    number = str(value).removesuffix(".0")
    if not number.isdecimal() or int(number) < 1:
        raise TurnError(f"the run is {value!r}: give a whole number from 1")
    return int(number)


def _rank_in(value: Any) -> tuple[int | None, bool]:
    """Return the rank that a cell states, and whether it says that the target was missed.

    Args:
        value: a number from 1; or 0, a negative number or a word such as ``miss`` for a target that was not retrieved.
    """
    if is_missing(value):
        return None, False
    if str(value).strip().lower() in _MISSED:
        return None, True
    try:
        rank = int(float(value))
    except (TypeError, ValueError, OverflowError):
        raise TurnError(f"the rank is {value!r}, not a whole number") from None
    return (rank, False) if rank >= 1 else (None, True)


def _error_in(value: Any) -> str:
    """Return the error that a cell names; empty for values such as ``false``, which mean that nothing failed."""
    if not value or is_missing(value):
        return ""
    text = json.dumps(plain_value(value)) if isinstance(value, Mapping) else text_in(value, "error")
    return "" if text.strip().lower() in _NO_ERROR else text


# --------------------------------------------------------------------------- rows of our own tables

FIXED_COLUMNS = ("id", "run", "query", "response")
OPTIONAL_COLUMNS = ("reference", "target", "rank", "missed", "document", "answerable", "error")
"""The next columns, each if a record of the file has a value for it."""

_OUR_COLUMNS = ColumnMap({name: name for name in (*FIXED_COLUMNS, *OPTIONAL_COLUMNS) if name != "missed"})

LABEL, CAUSE, PROBABILITY, REASON = ".label", ".cause", ".probability", ".reason"
"""The endings of the columns next to a score."""

# The beginnings of a reason in a cell: "failed: TimeoutError: no answer".
_FAILED, _SKIPPED = "failed: ", "skipped: "

# Scores by rank: "precision@5", "ap@10", "hit@3".
_BY_RANK = re.compile(r"(precision|ap|hit)@\d+")


def is_ours(columns: Sequence[str]) -> bool:
    """Return True for a table of this package. It has no passages."""
    return tuple(columns[: len(FIXED_COLUMNS)]) == FIXED_COLUMNS and not has_column("passages", columns)


def record_of_table(
    row: Mapping[str, Any], name: str, required: tuple[str, ...], scores: Collection[str] = ()
) -> Record:
    """Return a record with the scores of a row. Columns that a user added become metadata.

    Args:
        row: values by column.
        name: id of the record if the row has none.
        required: fields that must have a column.
        scores: columns that are scores where they hold a number.

    Raises:
        TurnError: a value does not fit its column.
    """
    # A score that is missing in every row has only the columns next to it: "groundedness.reason".
    bare = {column: column.removesuffix(LABEL).removesuffix(REASON) for column in row}
    described = {name for column, name in bare.items() if name != column}
    names = [
        name
        for name in dict.fromkeys(bare.values())
        if name not in (*FIXED_COLUMNS, *OPTIONAL_COLUMNS)
        and (name in described or is_known_score(name) or (name in scores and _is_number(row.get(name))))
    ]
    about = {name + suffix for name in names for suffix in ("", LABEL, CAUSE, PROBABILITY, REASON)}
    rest = {column: value for column, value in row.items() if column not in about}
    missed = str(rest.pop("missed", "")).lower() == "true"
    record = record_from_row(rest, name, _OUR_COLUMNS, required)
    results = tuple(result for result in (_result(score, row) for score in names) if result is not None)
    return record.model_copy(update={"results": results, "missed": missed})


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def is_known_score(name: str) -> bool:
    """Return True for the name of one of our own metrics or of its scores."""
    # Ranks are options of metrics, so that their scores are not in the list of names.
    return name in _known_names() or _BY_RANK.fullmatch(name) is not None


@cache
def _known_names() -> frozenset[str]:
    metrics = REGISTRY.builtin()
    return frozenset((*metrics, *(score.name for metric in metrics.values() for score in metric.scores)))


def _result(name: str, row: Mapping[str, Any]) -> Result | None:
    value, probability = row.get(name), row.get(name + PROBABILITY)
    label, cause = (
        None if is_missing(row.get(name + suffix)) else str(row[name + suffix]) for suffix in (LABEL, CAUSE)
    )
    if not is_missing(value):
        try:
            return Score(
                name=name,
                value=float(str(value)),
                label=label,
                cause=cause,
                probability=1.0 if is_missing(probability) else float(str(probability)),
            )
        except (TypeError, ValueError):
            raise TurnError(f"{name} is {value!r}, not a number") from None
    reason = str(row.get(name + REASON))
    if reason.startswith(_SKIPPED):
        return Skipped(name=name, reason=reason.removeprefix(_SKIPPED), label=label, cause=cause)
    if reason.startswith(_FAILED):
        kind, _, message = reason.removeprefix(_FAILED).partition(": ")
        return Failed(name=name, error_type=kind or "Error", message=message)
    return None
