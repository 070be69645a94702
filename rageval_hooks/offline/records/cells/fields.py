"""Reading each field of a record from a cell. A value in an unknown form is an error that says what is accepted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.cells.chat import chat_text
from rageval_hooks.offline.records.cells.kinds import is_missing, is_text, kind_of
from rageval_hooks.offline.records.cells.packed import unpacked
from rageval_hooks.runtime.jsonable import plain_mapping, plain_value
from rageval_hooks.runtime.narrowing import mapping_or_empty, mappings_in, text_or_empty

__all__ = [
    "answerable_in",
    "citations_in",
    "error_in",
    "metadata_in",
    "query_in",
    "reference_in",
    "response_in",
    "run_in",
    "text_in",
]

_NO_ERROR = frozenset({"false", "0", "0.0", "no", "none", "null"})
"""Values that tools write into the column of errors for an answer without an error."""


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


def error_in(value: Any) -> str:
    """Return the error that a cell names; empty for values such as ``false``, which mean that nothing failed."""
    if not value or is_missing(value):
        return ""
    if isinstance(value, Mapping):
        return json.dumps(plain_value(value))
    text = text_in(value, "error")
    return "" if text.strip().lower() in _NO_ERROR else text


def query_in(value: Any) -> str:
    """Return the question; of a conversation, the last message of the user; empty if the value is missing.

    Raises:
        TurnError: the value holds no question.
    """
    if is_missing(value):
        return ""
    # A question may begin with a bracket. Only text that begins like a list of messages is parsed.
    if isinstance(value, str) and not value.lstrip().startswith("[{"):
        return value
    value = unpacked(value)
    if not isinstance(value, list):
        return text_in(value, "query")
    text = chat_text(value, "user") or _single_text(value)
    if not text:
        raise TurnError("the query is a list without a message of the user")
    return text


def _single_text(value: Sequence[Any]) -> str:
    """Return the only item of ``["..."]``; empty for any other list."""
    return text_or_empty(value[0]) if len(value) == 1 else ""


def response_in(value: Any, packed: bool) -> str:
    """Return the answer.

    Args:
        value: a text; chat messages, of which the last of the assistant counts; a list with one text; or
            open-rag-eval's parts, each with its citations.
        packed: True if lists may be written as text.

    Raises:
        TurnError: the value has another form.
    """
    parts = unpacked(value)
    # In a text that may be an answer about JSON, both keys are needed to take it for open-rag-eval's parts.
    may_be_parts = packed or isinstance(value, list)
    needed = {"text"} if may_be_parts else {"text", "citations"}
    if _are_parts(parts, needed):
        return " ".join(map(_part_text, parts))
    if isinstance(value, list):
        return _response_in_list(value)
    if isinstance(value, Mapping):
        return chat_text(value, "assistant") or text_in(value, "response")
    return text_in(value, "response")


def _response_in_list(value: list[Any]) -> str:
    text = chat_text(value, "assistant") or _single_text(value)
    if text:
        return text
    raise TurnError(f"the response is a list of {len(value)} items, not a text: --map response='COLUMN[0]' takes one")


def _are_parts(parts: Any, needed: set[str]) -> bool:
    found = [part for part in mappings_in(parts) if needed <= part.keys()]
    return bool(found) and len(found) == len(parts)


def _part_text(part: Mapping[str, Any]) -> str:
    """Return ``"Paris [1]"`` for ``{"text": "Paris", "citations": ["[1]"]}``."""
    citations = part.get("citations") or ()
    return " ".join([str(part["text"]), *map(str, citations)])


def reference_in(value: Any, packed: bool) -> str | None:
    """Return the reference answer; several are joined by line breaks.

    Args:
        value: a text, a list of texts, or SQuAD's ``{"text": [...], "answer_start": [...]}``.
        packed: True if lists may be written as text.

    Raises:
        TurnError: the value has another form.
    """
    found = _reference_list(unpacked(value) if packed else value)
    if isinstance(found, (list, tuple)):
        texts = list(map(_reference_text, found))
        if all(map(is_text, texts)):
            # Datasets repeat an answer for each annotator who gave it.
            return "\n".join(dict.fromkeys(texts)) or None
        found = value
    # Text that only looked like a list is the reference itself.
    text = value if isinstance(value, str) else found
    return text_in(text, "reference") or None


def _reference_list(value: Any) -> Any:
    texts = mapping_or_empty(value).get("text")
    return texts if isinstance(texts, list) else value


def _reference_text(item: Any) -> Any:
    """Return the text of ``{"text": "..."}`` or ``{"answer": "..."}``, as datasets wrap single answers."""
    if not isinstance(item, Mapping):
        return item
    return item.get("text") or item.get("answer")


_YES, _NO = frozenset({"true", "1", "yes", "y"}), frozenset({"false", "0", "no", "n"})
# SQuAD 2 names its column "is_impossible".
_NEGATIVE_NAMES = ("unanswerable", "impossible", "abstain")


def answerable_in(value: Any, column: str) -> bool:
    """Return False if a cell says that the documents do not answer the question; True without a value.

    Args:
        value: a boolean, 0 or 1, or a word such as ``no``.
        column: name of its column; in ``unanswerable`` and ``is_impossible`` the value means the opposite.

    Raises:
        TurnError: the value is neither yes nor no.
    """
    if is_missing(value):
        return True
    # 1.0 is how tables with missing values hold a whole number.
    word = str(value).strip().lower().removesuffix(".0")
    if word not in _YES | _NO:
        raise TurnError(f"{column or 'answerable'} is {value!r}: it must be true or false")
    says_yes = word in _YES
    is_negative = any(name in column.lower() for name in _NEGATIVE_NAMES)
    return says_yes != is_negative


def run_in(value: Any) -> int:
    """Return the number of the repetition.

    Raises:
        TurnError: it is not a whole number from 1.
    """
    if is_missing(value):
        return 1
    try:
        # pandas writes a column of whole numbers with a gap as "2.0".
        number = int(str(value).removesuffix(".0"))
    except ValueError:
        number = 0
    if number < 1:
        raise TurnError(f"the run is {value!r}: give a whole number from 1")
    return number


def metadata_in(value: Any) -> dict[str, Any]:
    """Return metadata as plain data.

    Raises:
        TurnError: it is not an object.
    """
    value = unpacked(value)
    if is_missing(value):
        return {}
    if not isinstance(value, Mapping):
        raise TurnError(f"the metadata is {kind_of(value)}, not an object")
    return plain_mapping(value)


def citations_in(value: Any) -> Any:
    """Return citations as the metric reads them; a bare id becomes a citation without a position."""
    # Tables have them as JSON.
    value = plain_value(unpacked(value))
    if not isinstance(value, list):
        return value
    return [{"id": item} if isinstance(item, str) else item for item in value]
