"""Reads what an application returns for a question: an answer, and the passages if it returns them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rageval_hooks.errors import RagevalError
from rageval_hooks.integrations.offline_support import installed_support
from rageval_hooks.text.wording import with_article
from rageval_hooks.turn import Passage, Turn

__all__ = ["Answer", "UnreadableAnswerError", "collected", "read_answer"]

_ANSWER_KEYS = ("answer", "response", "result", "output", "output_text", "text", "content")
_PASSAGE_KEYS = (
    "passages",
    "contexts",
    "source_documents",
    "source_nodes",
    "retrieved_contexts",
    "documents",
    "chunks",
    "context",
)
_TEXT_KEYS = ("text", "page_content", "content")
_ID_KEYS = ("id", "node_id", "id_", "chunk_id")
_FORMS = "a text, a pair of text and passages, a mapping with 'answer' and 'passages', or a Turn"


class UnreadableAnswerError(RagevalError):
    """The application returned something that holds no answer."""


@dataclass(frozen=True)
class Answer:
    """The parts of a result.

    Attributes:
        text: the answer; None if the result has no answer.
        passages: the passages; None if the result does not list them.
        context: passages as one text, which may be several joined.
        turn: the whole turn, if the application returned one.
    """

    text: str | None = None
    passages: tuple[Passage, ...] | None = None
    context: str | None = None
    turn: Turn | None = None


def collected(result: Any) -> Any:
    """Return a result; a stream is read to its end."""
    for support in installed_support():
        result = support.read_stream(result)
    if isinstance(result, Iterator):
        return "".join(str(getattr(part, "content", part)) for part in result)
    return result


def read_answer(result: Any) -> Answer:
    """Find the answer and the passages in the result of an application.

    Raises:
        UnreadableAnswerError: the result holds no answer; the message says what is accepted.
    """
    if isinstance(result, Turn):
        return Answer(result.response, result.passages, turn=result)
    if isinstance(result, str):
        return Answer(str.__str__(result))
    if isinstance(result, tuple) and len(result) == 2:
        return Answer(_text(result[0]), _passages(result[1]))
    text = _text(result)
    named = [_field(result, name) for name in _PASSAGE_KEYS]
    found = next((value for value in named if _is_list(value)), None)
    context = next((value for value in named if isinstance(value, str) and value.strip()), None)
    return Answer(text, None if found is None else _passages(found), context)


def _text(result: Any) -> str:
    if isinstance(result, str):
        return str.__str__(result)
    for name in _ANSWER_KEYS:
        value = _field(result, name)
        if isinstance(value, str):
            return str.__str__(value)
        if value is not None and isinstance(_field(value, "content"), str):  # a message
            return str(_field(value, "content"))
    found = (
        f"a mapping with {', '.join(map(str, result)) or 'nothing'}" if isinstance(result, Mapping) else _kind(result)
    )
    raise UnreadableAnswerError(f"the application returned {found}; an answer is {_FORMS}")


def _kind(value: Any) -> str:
    return "None" if value is None else with_article(type(value).__name__)


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _passages(value: Any) -> tuple[Passage, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (Passage(text=value),)
    if not _is_list(value):
        raise UnreadableAnswerError(f"the application's passages are {_kind(value)}; give a list of texts or documents")
    return tuple(_passage(item, number) for number, item in enumerate(value, 1))


def _passage(item: Any, number: int) -> Passage:
    """Return a text, a mapping, a LangChain document or a LlamaIndex node as a passage."""
    if isinstance(item, Passage):
        return item
    if isinstance(item, str):
        return Passage(text=item)
    score = _field(item, "score")
    if isinstance(item, tuple) and len(item) == 2:  # a document and its score
        item, score = item
    item = getattr(item, "node", item)
    text = next((value for name in _TEXT_KEYS if isinstance(value := _field(item, name), str)), None)
    if text is None:
        raise UnreadableAnswerError(f"the application's passage {number} is {_kind(item)} without a text")
    identifier = next((value for name in _ID_KEYS if (value := _field(item, name)) not in (None, "")), None)
    metadata = _field(item, "metadata")
    return Passage(
        text=text,
        id=None if identifier is None else str(identifier),
        score=float(score) if _is_finite(score) else None,
        metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return None if callable(found := getattr(value, name, None)) else found
