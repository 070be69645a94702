"""Reads what an application returns for a question: an answer, and the passages if it returns them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rageval_hooks.errors import RagevalError
from rageval_hooks.integrations.offline_support import installed_support
from rageval_hooks.offline.records.values import field_of, first_present, is_number
from rageval_hooks.runtime.narrowing import mapping_or_empty, text_or_empty
from rageval_hooks.text.wording import with_article
from rageval_hooks.turn import Passage, Turn

__all__ = ["Answer", "UnreadableAnswerError", "collected", "read_answer"]

# Names of the answer and of the passages in the results of frameworks and of tutorials, the most specific first.
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
        return Answer(_plain(result))
    if _is_pair(result):
        answer, passages = result
        return Answer(_text(answer), _passages(passages))
    return _answer_in_fields(result)


def _answer_in_fields(result: Any) -> Answer:
    """Return the answer of a mapping, a message or a response object."""
    text = _text(result)
    named = [field_of(result, name) for name in _PASSAGE_KEYS]
    lists = [value for value in named if _is_list(value)]
    passages = _passages(lists[0]) if lists else None
    # A chain that formats its documents returns the whole context as one text.
    context = next(filter(str.strip, map(text_or_empty, named)), None)
    return Answer(text, passages, context)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _plain(text: str) -> str:
    """Return a text without what a subclass adds, such as the metadata of LangChain's message texts."""
    return str.__str__(text)


def _text(result: Any) -> str:
    if isinstance(result, str):
        return _plain(result)
    for name in _ANSWER_KEYS:
        value = field_of(result, name)
        if isinstance(value, str):
            return _plain(value)
        # The answer may be a message: `{"answer": AIMessage(content="...")}`.
        content = field_of(value, "content")
        if isinstance(content, str):
            return _plain(content)
    raise UnreadableAnswerError(f"the application returned {_described(result)}; an answer is {_FORMS}")


def _described(result: Any) -> str:
    if not isinstance(result, Mapping):
        return _kind(result)
    names = ", ".join(map(str, result))
    return f"a mapping with {names or 'nothing'}"


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
    score = field_of(item, "score")
    # `similarity_search_with_score` of LangChain returns pairs.
    if _is_pair(item):
        item, score = item
    # LlamaIndex's NodeWithScore has the node inside.
    return _document(getattr(item, "node", item), score, number)


def _document(item: Any, score: Any, number: int) -> Passage:
    texts = [field_of(item, name) for name in _TEXT_KEYS]
    text = next((text for text in texts if isinstance(text, str)), None)
    if text is None:
        raise UnreadableAnswerError(f"the application's passage {number} is {_kind(item)} without a text")
    identifier = first_present(item, _ID_KEYS)
    return Passage(
        text=text,
        id=None if identifier is None else str(identifier),
        # A score of infinity, which some stores give an exact match, is not JSON.
        score=float(score) if is_number(score) and math.isfinite(score) else None,
        metadata=dict(mapping_or_empty(field_of(item, "metadata"))),
    )
