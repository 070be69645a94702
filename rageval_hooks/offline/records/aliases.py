"""From a row of somebody's file to a record: the names that other tools have for the same things."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.record import Record
from rageval_hooks.runtime.jsonable import plain_mapping, plain_value
from rageval_hooks.text.wording import with_article
from rageval_hooks.turn import ErrorInfo, Passage, Turn

__all__ = ["ALIASES", "check_columns", "explain", "has_column", "is_missing", "record_from_row"]

ALIASES: dict[str, tuple[str, ...]] = {
    "query": ("query", "user_input", "question", "input", "query_text"),
    "response": ("response", "answer", "actual_output", "generated_answer", "output"),
    "passages": (
        "passages",
        "retrieved_contexts",
        "retrieval_context",
        "contexts",
        "retrieved_passages",
        "context",
        "documents",
        "chunks",
    ),
    "reference": (
        "reference",
        "reference_answer",
        "expected_output",
        "ground_truth",
        "ground_truths",
        "ground_truth_answer",
        "golden_answer",
        "expected_answer",
    ),
    "id": ("id", "query_id", "question_id", "turn_id"),
    "run": ("run", "query_run"),
    "citations": ("citations",),
    "metadata": ("metadata", "additional_metadata"),
    "target": ("target", "chunk_id"),
    "document": ("document",),
    "error": ("error",),
}
"""What a field of a record is called: here, in Ragas (new and old), in DeepEval, in open-rag-eval and seed 003."""

_THEIR_CELLS = frozenset({"generated_answer", "retrieved_passages"})
"""Columns of open-rag-eval that hold lists and objects as texts, in whatever file."""

_TEXTS = ("text", "content", "page_content", "passage", "chunk", "document", "body")
_IDS = ("id", "passage_id", "chunk_id", "doc_id", "document_id", "node_id", "id_")
_SCORES = ("score", "similarity", "relevance_score", "similarity_score")
_HUMAN = frozenset({"human", "user"})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ITEM = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[}\]])(\s+(?=["'{\[]))?""", re.DOTALL)
_NO_ERROR = frozenset({"false", "0", "0.0", "no", "none", "null"})


def has_column(field: str, columns: Iterable[str]) -> bool:
    """Whether one of some columns is a field's, under any of its names."""
    return any(_canonical(name) in ALIASES[field] for name in columns)


def check_columns(found: Iterable[str], required: Iterable[str]) -> None:
    """Check that the columns of a file have what is needed.

    Raises:
        TurnError: a column is missing; the message says which names are accepted, and which columns there are.
    """
    names = list(found)
    for field in required:
        if not has_column(field, names):
            raise TurnError(
                f"there is no column for the {field}: accepted are {', '.join(ALIASES[field])}; "
                f"found: {', '.join(names) or '(none)'}"
            )


def record_from_row(
    row: Mapping[str, Any], name: str, required: Iterable[str] = ("query", "response"), *, table: bool = False
) -> Record:
    """Return the record that a row of a table or a JSON object holds.

    Args:
        row: values by column. What no field takes is kept in the turn's metadata.
        name: the record's id if it has none.
        required: fields whose columns must be there.
        table: whether its cells cannot be lists or objects, and hold these as texts.

    Raises:
        TurnError: a column is missing, or a value is none of its field; the message says what is accepted.
    """
    fields, rest, packed = _split(row)
    if not all(field in fields for field in required):
        check_columns(row, required)
    query = _query(fields.get("query"))
    if not query.strip() and "query" in required:
        raise TurnError("the query is empty")
    metadata = {**_metadata(fields.get("metadata")), **plain_mapping(rest)}
    if not is_missing(fields.get("citations")):
        metadata["citations"] = _citations(fields["citations"])
    error = _error(fields.get("error"))
    identity = name if is_missing(fields.get("id")) else str(fields["id"]).strip()
    try:
        return Record(
            id=identity,
            run=_run(fields.get("run")),
            turn=Turn(
                id=identity,
                query=query,
                response=_response(fields.get("response"), table or "response" in packed),
                passages=tuple(_passages(fields.get("passages"), table or "passages" in packed)),
                reference=_reference(fields.get("reference"), table),
                status="error" if error else "ok",
                error=ErrorInfo(type="Error", message=error) if error else None,
                metadata=metadata,
            ),
            target=_text(fields.get("target"), "target") or None,
            document=_text(fields.get("document"), "document") or None,
        )
    except ValidationError as problem:
        raise TurnError(explain(problem)) from None


def explain(error: ValidationError) -> str:
    """Return what pydantic says in one line."""
    problems = error.errors(include_url=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in problems)


def is_missing(value: Any) -> bool:
    """Whether a cell has nothing in it: null, an empty text, or the not-a-number of a table."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _canonical(name: str) -> str:
    return _CAMEL.sub("_", str(name).strip()).lower().replace(" ", "_").replace("-", "_")


def _split(row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], set[str]]:
    """Return the values by field, those of no field by their own names, and the fields that open-rag-eval packs."""
    names = {_canonical(name): name for name in reversed(list(row))}
    fields: dict[str, Any] = {}
    used, packed = set(), set()
    for field, aliases in ALIASES.items():
        there = [names[alias] for alias in aliases if alias in names]
        if there:
            chosen = next((name for name in there if not is_missing(row[name])), there[0])
            fields[field] = row[chosen]
            used.add(chosen)
            if _canonical(chosen) in _THEIR_CELLS:
                packed.add(field)
    return fields, {name: value for name, value in row.items() if name not in used and not is_missing(value)}, packed


def _unpacked(value: Any) -> Any:
    """Return what a text holds if it is JSON, or a list as Python, pandas and numpy write it into a table."""
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    for read in (json.loads, _literal):
        try:
            found = read(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return found if isinstance(found, (list, dict)) else value
    return value


def _literal(text: str) -> Any:
    """Return what a text is in Python; items with nothing but a blank between them, as numpy writes them, are several.

    Raises:
        ValueError: it is nothing; likewise SyntaxError.
    """
    return ast.literal_eval(_ITEM.sub(lambda item: item[1] + ("," if item[2] else ""), text.strip()))


def _text(value: Any, field: str) -> str:
    if is_missing(value):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return str(value)
    raise TurnError(f"the {field} is {_kind(value)}, not a text")


def _error(value: Any) -> str:
    """Return what went wrong; empty where a column says only that nothing did."""
    if not value or (isinstance(value, str) and value.strip().lower() in _NO_ERROR):
        return ""
    return _text(value, "error")


def _query(value: Any) -> str:
    """Return the question; of a conversation, as Ragas has it, the last of the user's."""
    if is_missing(value):
        raise TurnError("the query is missing")
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        said = [item for item in value if isinstance(item, Mapping)]
        asked = [item for item in said if str(item.get("type") or item.get("role") or "").lower() in _HUMAN]
        if not asked:
            raise TurnError("the query is a list without a message of the user")
        return _text(asked[-1].get("content"), "query")
    return _text(value, "query")


def _response(value: Any, table: bool) -> str:
    """Return the answer; open-rag-eval cuts it into parts with citations."""
    parts = _unpacked(value)
    needed = {"text"} if table or isinstance(value, list) else {"text", "citations"}
    if isinstance(parts, list) and parts and all(isinstance(part, Mapping) and needed <= part.keys() for part in parts):
        return " ".join(" ".join([str(part["text"]), *map(str, part.get("citations") or ())]) for part in parts)
    if isinstance(value, list):
        raise TurnError("the response is a list, not a text")
    return _text(value, "response")


def _reference(value: Any, table: bool) -> str | None:
    """Return the reference answer; of several, as Ragas had them, all."""
    found = _unpacked(value) if table else value
    if isinstance(found, list) and all(isinstance(item, str) for item in found):
        value = found
    if isinstance(value, (list, tuple)):
        value = "\n".join(_text(item, "reference") for item in value)
    return _text(value, "reference") or None


def _run(value: Any) -> int:
    if is_missing(value):
        return 1
    try:
        number = int(str(value).removesuffix(".0"))
    except ValueError:
        number = 0
    if number < 1:
        raise TurnError(f"the run is {value!r}: it is a whole number from 1")
    return number


def _metadata(value: Any) -> dict[str, Any]:
    value = _unpacked(value)
    if is_missing(value):
        return {}
    if not isinstance(value, Mapping):
        raise TurnError(f"the metadata is {_kind(value)}, not an object")
    return plain_mapping(value)


def _citations(value: Any) -> Any:
    """Return citations as the metric reads them; an id alone is one that does not say where it stands."""
    value = plain_value(_unpacked(value))
    return [{"id": item} if isinstance(item, str) else item for item in value] if isinstance(value, list) else value


def _passages(value: Any, table: bool) -> list[Passage]:
    if is_missing(value):
        return []
    value = _unpacked_passages(value, table)
    if isinstance(value, str):
        return [Passage(text=value)]
    if isinstance(value, Mapping):
        if any(isinstance(value.get(key), str) for key in _TEXTS):
            return [_passage(value, 1)]
        return [_passage({"id": key, "text": text}, number) for number, (key, text) in enumerate(value.items(), 1)]
    if not isinstance(value, (list, tuple)):
        raise TurnError(f"the passages are {_kind(value)}: give a list of texts or of objects with a text")
    return [_passage(item, number) for number, item in enumerate(value, 1)]


def _unpacked_passages(value: Any, table: bool) -> Any:
    """Return the passages that a text holds; the text itself where it is one that only looks like a list or object."""
    found = _unpacked(value)
    if isinstance(found, list):
        return found if not found or any(isinstance(item, (str, Mapping)) for item in found) else value
    if isinstance(value, str) and isinstance(found, Mapping):
        texts = all(isinstance(text, str) for text in found.values())
        return found if table and (texts or any(isinstance(found.get(key), str) for key in _TEXTS)) else value
    return found


def _passage(item: Any, number: int) -> Passage:
    if isinstance(item, str):
        return Passage(text=item)
    if not isinstance(item, Mapping):
        raise TurnError(f"passage {number} is {_kind(item)}: give a text, or an object with text, id, score, metadata")
    key = next((key for key in _TEXTS if isinstance(item.get(key), str)), None)
    if key is None:
        raise TurnError(f"passage {number} has no text: accepted are {', '.join(_TEXTS)}; found: {', '.join(item)}")
    place = next((name for name in _IDS if not is_missing(item.get(name))), None)
    rank = next((name for name in _SCORES if _is_number(item.get(name))), None)
    known = {key, place, rank, "metadata", "in_prompt", "prompt_share"}
    return Passage(
        text=item[key],
        id=None if place is None else str(item[place]),
        score=None if rank is None else float(item[rank]),
        metadata={
            **{name: part for name, part in item.items() if name not in known},
            **_metadata(item.get("metadata")),
        },
        in_prompt=item.get("in_prompt"),
        prompt_share=item.get("prompt_share"),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _kind(value: Any) -> str:
    names = {dict: "object", list: "list", bool: "truth value", int: "number", float: "number", str: "text"}
    return with_article(names.get(type(value), type(value).__name__))
