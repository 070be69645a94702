"""Finding the answer in the output of the root.

Chains return texts, messages, mappings and states of any shape. The rules go from the strongest evidence to the
weakest: a key that names an answer, text that a model of the turn wrote, the end of a conversation, the only new text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from rageval_hooks.integrations.capture.authorship import carries, writer_of
from rageval_hooks.integrations.capture.fields.keys import (
    answer_keys_in,
    is_answer_object_key,
    is_beside_answer,
)
from rageval_hooks.integrations.capture.host_values import is_a, or_else
from rageval_hooks.integrations.langchain.payloads import (
    as_json,
    content_text,
    fields_by_name,
    is_content,
    is_structured_answer,
    message_text,
)
from rageval_hooks.integrations.langchain.turn_building.question import MESSAGE_KEYS, query_of, strings_in
from rageval_hooks.integrations.langchain.turn_building.replies import new_reply

__all__ = ["answer_of", "is_interrupted", "is_stream_event"]

_DEPTH = 3
"""Mappings within mappings that are searched: {"status": "success", "data": {"answer": "…"}}."""

_MOST_FIELDS = 100
"""A mapping with more fields is data and not an envelope."""

_EVENT_KEYS = ("type", "event")
"""Keys that say which event of a stream an output is, for example {"type": "done", "seconds": 2}."""

_STRUCTURED = "structured_response"
"""Where LangChain's agents put an answer that has a schema."""


@or_else("")
def answer_of(value: Any, given: Any = None, written: Sequence[str] = (), streamed: Sequence[str] = ()) -> str:
    """Return the answer in the output of the root; empty if it has no answer.

    Args:
        value: the output.
        given: the input. Whatever passed through unchanged is not an answer.
        written: the texts that models of this turn wrote, the last one first.
        streamed: those of them that were streamed. The output may then be the closing event of the stream.
    """
    if isinstance(value, str):
        return str.__str__(value)  # a plain string also from a subclass
    if isinstance(value, BaseMessage):
        return message_text(value)
    if isinstance(value, Mapping):
        return _answer_in_mapping(value, given, written, streamed)
    if is_content(value):
        return content_text(value)
    if isinstance(value, (list, tuple)):
        return new_reply(value, given, given, written)
    if is_structured_answer(value):
        return _answer_in_object(value)
    return ""


def _answer_in_mapping(fields: Mapping[Any, Any], given: Any, written: Sequence[str], streamed: Sequence[str]) -> str:
    # An agent's last message repeats a structured response as JSON, or calls the tool that returns it.
    structured = fields.get(_STRUCTURED)
    if structured is not None and as_json(structured) != as_json(_field(given, _STRUCTURED)):
        return _structured_text(structured)

    text = _under_answer_key(fields, given, _is_certain_answer)
    if text is not None:
        return _newer_reply(text, fields, given, written) or text
    text = _answer_under_other_key(fields, given, written, streamed)
    if text:
        return text

    # An object under an answer key may be a grader's verdict. It is the answer only if nothing else is.
    verdict = _under_answer_key(fields, given, _is_object)
    return verdict or ""


def _newer_reply(text: str, fields: Mapping[Any, Any], given: Any, written: Sequence[str]) -> str:
    """Return the reply in the conversation if the text under an answer key is of an earlier turn; else nothing.

    A graph with a checkpointer still has the answer of the turn before, if it now took a branch that only replies.
    """
    if not written or writer_of(text, written, str) is not None:
        return ""
    return _first_matching(list(_replies(fields, given, written).values()), written[:1], carries)


def _replies(fields: Mapping[Any, Any], given: Any, written: Sequence[str]) -> dict[str, str]:
    """Return the reply in each conversation of a mapping by its key."""
    return {key: new_reply(fields.get(key), _field(given, key), given, written) for key in MESSAGE_KEYS}


def _under_answer_key(fields: Mapping[Any, Any], given: Any, is_answer: Callable[[str, Any], bool]) -> str | None:
    """Return the answer under a key that names an answer, unless it passed through; None without such a key."""
    for key in answer_keys_in(fields):
        item = fields.get(key)
        if not is_answer(key, item):
            continue
        text = str(answer_of(item))
        passed_through = text == answer_of(_field(given, key))
        if not text or not passed_through:
            return text
    return None


def _is_certain_answer(key: str, item: Any) -> bool:
    """Return True if the value under an answer key is certainly an answer. An object may be a verdict about one."""
    if is_a(item, (str, BaseMessage)) or is_content(item):
        return True
    return is_answer_object_key(key) and bool(is_structured_answer(item))


def _is_object(_key: str, item: Any) -> bool:
    return bool(is_structured_answer(item))


@or_else(None)
def _field(value: Any, key: str) -> Any:
    fields: Mapping[Any, Any] = fields_by_name(value)
    return fields.get(key)


# --------------------------------------------------------------------------- answers that are objects


def _structured_text(value: Any) -> str:
    """Return the answer in a structured response: its field ``answer`` or the like, else all of it as JSON."""
    if is_structured_answer(value):
        return _answer_in_object(value)
    # A schema that is a dataclass or a TypedDict: Answer(answer="In 1869.") or {"answer": "In 1869."}.
    fields = fields_by_name(value)
    return _known_field(fields) or as_json(dict(fields) or value)


def _answer_in_object(value: Any) -> str:
    """Return the answer in a pydantic object, for example Answer(answer="In 1869.", sources=[1])."""
    known = _known_field(dict(value))
    if known is not None:
        return known
    return as_json(value)


def _known_field(fields: Mapping[Any, Any]) -> str | None:
    text = _under_answer_key(fields, None, _is_certain_answer)
    if text is not None:
        return text
    return _under_answer_key(fields, None, _is_object)


# --------------------------------------------------------------------------- answers under keys of the application


def _answer_under_other_key(
    fields: Mapping[Any, Any], given: Any, written: Sequence[str], streamed: Sequence[str]
) -> str:
    """Find the answer in a mapping that has it under no known key: in a conversation, or next to one."""
    replies = _replies(fields, given, written)
    strings = _new_strings(fields, given)

    # Text that a model of this turn wrote is the strongest evidence.
    if text := _first_matching(list(replies.values()), written, carries):
        return text

    # A later step may have copied the model's text, with or without words around it. A title, a critique or follow-up
    # questions, which a model may have written after the answer, come last.
    likely = [text for key, text in strings if not is_beside_answer(key)]
    beside = [text for key, text in strings if is_beside_answer(key)]
    for texts in (likely, _answers_within(fields), beside):
        text = _first_matching(texts, written, _is_same_text) or _first_matching(texts, written, carries)
        if text:
            return text

    # An agent's conversation: the last new message is the reply.
    if replies["messages"]:
        return replies["messages"]

    # A single new string is the answer, unless it closes a stream ("done").
    streamed = streamed if is_stream_event(fields, given) else ()
    if len(strings) == 1:
        [(_, text)] = strings
        if not _closes_stream(text, streamed):
            return text

    # A history may end with a fixed reply. If a model wrote something, that is the better answer.
    if written:
        return ""
    return next(filter(None, replies.values()), "")


def _new_strings(fields: Mapping[Any, Any], given: Any) -> list[tuple[Any, str]]:
    """Return the keys and texts of a mapping that were not in the input already."""
    passed_through = {"", query_of(given), *strings_in(fields_by_name(given))}
    texts = [(key, str(answer_of(item))) for key, item in fields.items() if _may_be_answer(item)]
    return [(key, text) for key, text in texts if text not in passed_through]


def _answers_within(fields: Mapping[Any, Any], depth: int = _DEPTH) -> list[str]:
    """Return the texts under keys that name an answer, in mappings and objects within a mapping."""
    if not depth:
        return []
    found: list[str] = []
    for item in islice(fields.values(), _MOST_FIELDS):
        inner = _fields_of_wrapper(item)
        text = _under_answer_key(inner, None, _is_certain_answer)
        if text:
            found.append(text)
        found += _answers_within(inner, depth - 1)
    return found


@or_else({})
def _fields_of_wrapper(item: Any) -> Mapping[Any, Any]:
    """Return the fields of a mapping or of a pydantic object that may wrap the answer, for example of "data"."""
    if isinstance(item, Mapping):
        return item
    return dict(item) if is_structured_answer(item) else {}


def _may_be_answer(item: Any) -> bool:
    """Return True for a text, a model's message and content blocks; a human message is not an answer."""
    return is_a(item, (str, AIMessage)) or bool(is_content(item))


def _first_matching(texts: Sequence[str], written: Sequence[str], matches: Callable[[str, str], bool]) -> str:
    """Return the first text that matches the latest possible text of a model."""
    for one, text in product(written, texts):
        if matches(text, one):
            return text
    return ""


def _is_same_text(text: str, written: str) -> bool:
    return text.strip() == written.strip()


# --------------------------------------------------------------------------- events of a stream


@or_else(False)
def is_stream_event(output: Any, given: Any) -> bool:
    """Return True if an output looks like an event of a stream, for example ``{"type": "done"}``."""
    if not isinstance(output, Mapping):
        return False
    # {"type": "question"} that passed through from the input is the application's own.
    keys = [key for key in _EVENT_KEYS if key in output]
    return any(output[key] != _field(given, key) for key in keys)


def _closes_stream(text: str, streamed: Sequence[str]) -> bool:
    """Return True if a text is the closing event of a stream (for example "done") and not its content."""
    # A text that is longer than a stream cannot be taken from it.
    longer = [one for one in streamed if len(one) > len(text)]
    return not all(_is_taken_from(text, one) for one in longer)


def _is_taken_from(text: str, whole: str) -> bool:
    """Return True if a text is a field of a streamed JSON object, or a phrase of the streamed text."""
    if as_json(text) in whole:
        return True
    # A single word is in other texts by chance.
    return " " in text and text in whole


@or_else(False)
def is_interrupted(output: Any) -> bool:
    """Return True if a graph's output says that it waits for a person."""
    # {"messages": […], "__interrupt__": [Interrupt(value="Is this correct?")]}
    return isinstance(output, Mapping) and "__interrupt__" in output
