"""From a row with columns to a record. A value in an unknown form is an error that says what is accepted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.columns import ColumnMap, Fields, missing_column, take_fields
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.targets import rank_in, target_text_in
from rageval_hooks.offline.records.values import chat_text, is_missing, kind_of, passages_in, unpacked
from rageval_hooks.runtime.jsonable import plain_mapping, plain_value
from rageval_hooks.turn import ErrorInfo, Turn

__all__ = ["answerable_in", "explain", "query_in", "record_from_row", "reference_in", "run_in", "text_in"]

# What tools write into the column of errors for an answer without an error.
_NO_ERROR = frozenset({"false", "0", "0.0", "no", "none", "null"})
_YES, _NO = frozenset({"true", "1", "yes", "y"}), frozenset({"false", "0", "no", "n"})
# SQuAD 2 names its column "is_impossible".
_NEGATIVE_NAMES = ("unanswerable", "impossible", "abstain")


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
    rank, missed = rank_in(fields.get("rank"))
    # A column of metadata comes first: other columns may repeat a part of it.
    metadata = {**_metadata_in(fields.get("metadata")), **plain_mapping(fields.rest)}
    if not is_missing(fields.get("citations")):
        metadata["citations"] = _citations_in(fields.get("citations"))
    try:
        turn = Turn(
            id=identity,
            query=query,
            response=_response_in(fields, table),
            passages=tuple(passages_in(fields.get("passages"), table or "passages" in fields.packed)),
            reference=reference_in(fields.get("reference"), table),
            status="error" if error else "ok",
            error=ErrorInfo(type="Error", message=error) if error else None,
            metadata=metadata,
        )
        return Record(
            id=identity,
            run=run_in(fields.get("run")),
            turn=turn,
            # An empty cell is no id.
            target=text_in(fields.get("target"), "target") or None,
            target_text=target_text_in(fields.get("target_text")),
            rank=rank,
            missed=missed,
            document=text_in(fields.get("document"), "document") or None,
            answerable=answerable_in(fields),
        )
    except ValidationError as problem:
        raise TurnError(explain(problem)) from None


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
    if isinstance(value, str):
        return value
    # "42" loses its quotes in tools that guess the type of a column.
    if isinstance(value, (bool, int, float)):
        return str(value)
    raise TurnError(f"the {name} is {kind_of(value)}, not a text")


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


def _response_in(fields: Fields, table: bool) -> str:
    """Return the answer.

    It is a text; chat messages, of which the last of the assistant counts; a list with one text; or open-rag-eval's
    parts, each with its citations.

    Raises:
        TurnError: the value has another form.
    """
    value = fields.get("response")
    parts = unpacked(value)
    # In a text that may be an answer about JSON, both keys are needed to take it for open-rag-eval's parts.
    is_list = table or "response" in fields.packed or isinstance(value, list)
    needed = {"text"} if is_list else {"text", "citations"}
    if isinstance(parts, list) and parts and all(isinstance(part, Mapping) and needed <= part.keys() for part in parts):
        # "Paris [1]" for {"text": "Paris", "citations": ["[1]"]}
        return " ".join(" ".join([str(part["text"]), *map(str, part.get("citations") or ())]) for part in parts)
    if isinstance(value, list):
        text = chat_text(value, "assistant") or _single_text(value)
        if not text:
            raise TurnError(
                f"the response is a list of {len(value)} items, not a text: "
                f"--map response='{fields.columns['response']}[0]' takes one"
            )
        return text
    if isinstance(value, Mapping):
        return chat_text(value, "assistant") or text_in(value, "response")
    return text_in(value, "response")


def reference_in(value: Any, packed: bool) -> str | None:
    """Return the reference answer; several are joined by line breaks.

    Args:
        value: a text, a list of texts, or SQuAD's ``{"text": [...], "answer_start": [...]}``.
        packed: True if lists may be written as text.

    Raises:
        TurnError: the value has another form.
    """
    found = unpacked(value) if packed else value
    if isinstance(found, Mapping) and isinstance(found.get("text"), list):
        found = found["text"]
    if isinstance(found, (list, tuple)):
        # Datasets wrap single answers: {"text": "..."}, {"answer": "..."}.
        texts = [item.get("text") or item.get("answer") if isinstance(item, Mapping) else item for item in found]
        known = [text for text in texts if isinstance(text, str)]
        if len(known) == len(texts):
            # Datasets repeat an answer for each annotator who gave it.
            return "\n".join(dict.fromkeys(known)) or None
        found = value
    # Text that only looked like a list is the reference itself.
    return text_in(value if isinstance(value, str) else found, "reference") or None


def answerable_in(fields: Fields) -> bool:
    """Return False if a cell says that the documents do not answer the question; True without a value.

    In columns such as ``unanswerable`` and ``is_impossible`` the value means the opposite.

    Raises:
        TurnError: the value is neither yes nor no.
    """
    value, column = fields.get("answerable"), fields.columns.get("answerable", "")
    if is_missing(value):
        return True
    # 1.0 is how tables with missing values hold a whole number.
    word = str(value).strip().lower().removesuffix(".0")
    if word not in _YES | _NO:
        raise TurnError(f"{column or 'answerable'} is {value!r}: it must be true or false")
    is_negative = any(name in column.lower() for name in _NEGATIVE_NAMES)
    return (word in _YES) != is_negative


def run_in(value: Any) -> int:
    """Return the number of the repetition.

    Raises:
        TurnError: it is not a whole number from 1.
    """
    if is_missing(value):
        return 1
    # pandas writes a column of whole numbers with a gap as "2.0".
    number = str(value).removesuffix(".0")
    if not number.isdecimal() or int(number) < 1:
        raise TurnError(f"the run is {value!r}: give a whole number from 1")
    return int(number)


def _error_in(value: Any) -> str:
    """Return the error that a cell names; empty for values such as ``false``, which mean that nothing failed."""
    if not value or is_missing(value):
        return ""
    if isinstance(value, Mapping):
        return json.dumps(plain_value(value))
    text = text_in(value, "error")
    return "" if text.strip().lower() in _NO_ERROR else text


def _metadata_in(value: Any) -> dict[str, Any]:
    value = unpacked(value)
    if is_missing(value):
        return {}
    if not isinstance(value, Mapping):
        raise TurnError(f"the metadata is {kind_of(value)}, not an object")
    return plain_mapping(value)


def _citations_in(value: Any) -> Any:
    """Return citations as the metric reads them; a bare id becomes a citation without a position."""
    # Tables have them as JSON.
    value = plain_value(unpacked(value))
    if not isinstance(value, list):
        return value
    return [{"id": item} if isinstance(item, str) else item for item in value]
