"""Finding the question in the input of the root, and the answer in its output.

Chains return texts, messages, mappings and states of any shape. The rules go from the strongest evidence to the
weakest: a key that names an answer, text that a model of the turn wrote, the end of a conversation, the only new text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, product
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue

from rageval_hooks.integrations.capture import values
from rageval_hooks.integrations.capture.authorship import carries, writer_of
from rageval_hooks.integrations.capture.values import is_a, or_else
from rageval_hooks.integrations.langchain import payloads
from rageval_hooks.integrations.langchain.payloads import fields_by_name, message_text
from rageval_hooks.runtime.narrowing import content_text

_QUERY_KEYS = ("input", "question", "query", "user_input", "prompt", "text")
"""Keys of the usual inputs, for example {"input": "…", "chat_history": […]} of a conversational chain."""

_QUERY_DEPTH = 4
"""Mappings within mappings that are searched: LangServe and agents wrap inputs, {"input": {"question": "…"}}."""

MESSAGE_KEYS = ("messages", "chat_history", "history")
"""Keys under which mappings have a conversation."""


@or_else("")
def query_of(value: Any, depth: int = _QUERY_DEPTH) -> str:
    """Return the user's question in the input of the root; empty if it has no question.

    Args:
        value: the input.
        depth: mappings and lists within others that are searched: one may contain itself.
    """
    if isinstance(value, str):
        return value
    value = value.to_messages() if isinstance(value, PromptValue) else value
    if isinstance(value, BaseMessage):
        return message_text(value)
    if isinstance(value, (list, tuple)):
        # A model that is called by itself gets a batch of one conversation: [[HumanMessage("…")]] or ["…"].
        if depth and len(value) == 1 and isinstance(value[0], (str, list)):
            return query_of(value[0], depth - 1)
        return last_human_text(messages_in(value))
    if not depth:
        return ""
    # Command(resume="yes", update={"question": "…"}) resumes a graph. What the person said to it is not the question.
    if type(value).__name__ == "Command":
        value = getattr(value, "update", None)
    fields: Mapping[Any, Any] = fields_by_name(value)
    for key in _QUERY_KEYS:
        if key in fields and (text := query_of(fields[key], depth - 1)):
            return str(text)
    return _query_under_other_key(fields)


def _query_under_other_key(fields: Mapping[Any, Any]) -> str:
    """Return the question in a mapping that has it under no known key: in a conversation, or next to one."""
    conversations = {key: messages_in(fields.get(key), key) for key in MESSAGE_KEYS}
    for key, messages in conversations.items():
        # A conversation under "messages" ends with the question; a history that ends with an answer lies before it.
        if (text := last_human_text(messages)) and (key == "messages" or not _last_model_text(messages[-1:])):
            return text

    # For example {"topic": "When was the pier opened?", "chat_history": [question, answer]}.
    others = {key: item for key, item in fields.items() if key not in MESSAGE_KEYS}
    if any(strings_in(others)):
        return values.question_among(others)
    return next(filter(None, map(last_human_text, conversations.values())), "")


def strings_in(fields: Mapping[Any, Any]) -> list[str]:
    """Return the strings of a mapping, without conversations that are given as text."""
    return [item for key, item in fields.items() if is_a(item, str) and key not in MESSAGE_KEYS]


# --------------------------------------------------------------------------- conversations


def messages_in(value: Any, key: str = "messages") -> Sequence[BaseMessage]:
    """Return the messages under a key. A string is one only under ``messages``; elsewhere it is a history as text."""
    # For example {"chat_history": "Human: Hello\nAI: Hello"}.
    if value is None or (key != "messages" and is_a(value, str)):
        return ()
    items = value if is_a(value, (list, tuple)) else (value,)
    return [message for message in map(_message, items) if message is not None]


@or_else(None)
def _message(item: Any) -> BaseMessage | None:
    # The other forms of a message: "Hello", ("user", "Hello") or {"role": "user", "content": "Hello"}.
    return item if isinstance(item, BaseMessage) else convert_to_messages([item])[0]


def last_human_text(messages: Sequence[BaseMessage]) -> str:
    """Return what the user said last."""
    return next(iter(_human_texts(messages)), "")


def _human_texts(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the texts of the human messages, the last one first."""
    return [message_text(message) for message in reversed(messages) if isinstance(message, HumanMessage)]


def _last_model_text(messages: Sequence[BaseMessage]) -> str:
    """Return the text of the last message of a model that requests no tools."""
    written = [one for one in messages if isinstance(one, AIMessage) and not one.tool_calls]
    return message_text(written[-1]) if written else ""


# --------------------------------------------------------------------------- answers


_DEPTH = 3
"""Mappings within mappings that are searched: {"status": "success", "data": {"answer": "…"}}."""

_MAX_FIELDS = 100
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
    if isinstance(value, dict):
        return _answer_in_mapping(value, given, written, streamed)
    if payloads.is_content(value):
        return content_text(value)
    if isinstance(value, (list, tuple)):
        return new_reply(value, given, given, written)
    if payloads.is_structured_answer(value):
        return _structured_text(value)
    return ""


def _answer_in_mapping(fields: Mapping[Any, Any], given: Any, written: Sequence[str], streamed: Sequence[str]) -> str:
    # An agent's last message repeats a structured response as JSON, or calls the tool that returns it.
    structured = fields.get(_STRUCTURED)
    if structured is not None and payloads.as_json(structured) != payloads.as_json(_field(given, _STRUCTURED)):
        return _structured_text(structured)

    text = _under_answer_key(fields, given)
    if text is not None:
        # A graph with a checkpointer still has the last turn's answer, if it now took a branch that only replies.
        is_newer = not written or writer_of(text, written, str) is not None
        replies = () if is_newer else _replies(fields, given, written).values()
        return _first_matching(list(replies), written[:1], carries) or text
    # An object under an answer key may be a grader's judgement. It is the answer only if nothing else is.
    other = _answer_under_other_key(fields, given, written, streamed)
    return other or _under_answer_key(fields, given, certain=False) or ""


def _replies(fields: Mapping[Any, Any], given: Any, written: Sequence[str]) -> dict[str, str]:
    """Return the reply in each conversation of a mapping by its key."""
    return {key: new_reply(fields.get(key), _field(given, key), given, written) for key in MESSAGE_KEYS}


def _under_answer_key(fields: Mapping[Any, Any], given: Any, certain: bool = True) -> str | None:
    """Return the answer under a key that names an answer, unless it passed through; None without such a key.

    Args:
        fields: the mapping.
        given: the input.
        certain: False for objects, which may be judgements of an answer.
    """
    for key in values.answer_keys_in(fields):
        item = fields.get(key)
        is_object = bool(payloads.is_structured_answer(item))
        is_text = is_a(item, (str, BaseMessage)) or payloads.is_content(item)
        is_certain = is_text or (is_object and values.is_answer_object_key(key))
        if is_certain if certain else is_object:
            text = str(answer_of(item))
            if not text or text != answer_of(_field(given, key)):
                return text
    return None


def _field(value: Any, key: str) -> Any:
    fields: Mapping[Any, Any] = fields_by_name(value)
    return fields.get(key)


# --------------------------------------------------------------------------- answers that are objects


def _structured_text(value: Any) -> str:
    """Return the answer in a structured response: its field ``answer`` or the like, else all of it as JSON.

    The schema is a pydantic class, a dataclass or a TypedDict: Answer(answer="In 1869.", sources=[1]).
    """
    fields = fields_by_name(value)
    for certain in (True, False):
        if (text := _under_answer_key(fields, None, certain)) is not None:
            return text
    return payloads.as_json(value if payloads.is_structured_answer(value) else fields or value)


# --------------------------------------------------------------------------- answers under keys of the application


def _answer_under_other_key(
    fields: Mapping[Any, Any], given: Any, written: Sequence[str], streamed: Sequence[str]
) -> str:
    """Find the answer in a mapping that has it under no known key: in a conversation, or next to one."""
    replies = _replies(fields, given, written)
    # Texts, a model's messages and content blocks that were not in the input already. A human message is no answer.
    passed_through = {"", query_of(given), *strings_in(fields_by_name(given))}
    texts = [
        (key, str(answer_of(item)))
        for key, item in fields.items()
        if is_a(item, (str, AIMessage)) or payloads.is_content(item)
    ]
    strings = [(key, text) for key, text in texts if text not in passed_through]

    # Text that a model of this turn wrote is the strongest evidence.
    if text := _first_matching(list(replies.values()), written, carries):
        return text

    # A router's label, for example "small_talk", is no answer next to a reply.
    if replies["messages"]:
        written = [one for one in written if " " in one]

    # A later step may have copied the model's text, with or without words around it. A title, a critique or follow-up
    # questions, which a model may have written after the answer, come last.
    likely = [text for key, text in strings if not values.is_beside_answer(key)]
    beside = [text for key, text in strings if values.is_beside_answer(key)]
    for group in (likely, _answers_within(fields), beside):
        same = _first_matching(group, written, lambda text, one: text.strip() == one.strip())
        if text := same or _first_matching(group, written, carries):
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


def _answers_within(fields: Mapping[Any, Any], depth: int = _DEPTH) -> list[str]:
    """Return the texts under keys that name an answer, in mappings and objects within a mapping."""
    if not depth:
        return []
    found: list[str] = []
    for item in islice(fields.values(), _MAX_FIELDS):
        inner = fields_by_name(item)
        if text := _under_answer_key(inner, None):
            found.append(text)
        found += _answers_within(inner, depth - 1)
    return found


def _first_matching(texts: Sequence[str], written: Sequence[str], matches: Callable[[str, str], bool]) -> str:
    """Return the first text that matches the latest possible text of a model."""
    for one, text in product(written, texts):
        if matches(text, one):
            return text
    return ""


# --------------------------------------------------------------------------- events of a stream


@or_else(False)
def is_stream_event(output: Any, given: Any) -> bool:
    """Return True if an output looks like an event of a stream, for example ``{"type": "done"}``."""
    # {"type": "question"} that passed through from the input is the application's own.
    keys = [key for key in _EVENT_KEYS if key in output]
    return any(output[key] != _field(given, key) for key in keys)


def _closes_stream(text: str, streamed: Sequence[str]) -> bool:
    """Return True if a text is the closing event of a stream (for example "done") and not its content."""
    for whole in streamed:
        # The content is a field of the streamed JSON object, or a phrase. A single word is in other texts by chance.
        is_content = payloads.as_json(text) in whole or (" " in text and text in whole)
        # A text that is longer than a stream cannot be taken from it.
        if len(whole) > len(text) and not is_content:
            return True
    return False


# --------------------------------------------------------------------------- replies in conversations


@or_else("")
def new_reply(messages: Any, before: Any, given: Any, written: Sequence[str]) -> str:
    """Return the reply in a conversation, unless it was there before.

    Args:
        messages: the conversation in the output.
        before: the conversation in the input.
        given: the whole input.
        written: the texts that models of this turn wrote.
    """
    if not is_a(messages, (list, tuple)):
        return ""
    conversation = messages_in([message for message in messages if not is_a(message, str)])
    return _reply_in(_added(conversation, messages_in(before), query_of(given)), written)


def _added(messages: Sequence[BaseMessage], before: Sequence[BaseMessage], query: str) -> Sequence[BaseMessage]:
    """Return the messages that came after the input's messages and after the question.

    A graph with a checkpointer has the messages of earlier turns before those of the input.
    """
    said, told = ([(payloads.role_of(one.type), message_text(one)) for one in some] for some in (messages, before))
    start = len(told) if said[: len(told)] == told else 0
    # Nothing was replied: a node that trims the history returns [c, d] for [a, b, c, d], and one that loads the history
    # returns [a, b, c, d] for [c, d].
    is_end = told and not start and said[-1:] == told[-1:]
    if is_end and (len(said) <= len(told) or said[-len(told) :] == told):
        return ()
    humans = [position for position, message in enumerate(messages) if isinstance(message, HumanMessage)]
    questions = {query, last_human_text(before)} - {""}
    for position in reversed(humans):
        if message_text(messages[position]) in questions:
            return messages[max(start, position + 1) :]
    # The question was rewritten: the last human message is taken for it.
    return messages[humans[-1] + 1 :] if humans and not start else messages[start:]


def _reply_in(messages: Sequence[BaseMessage], written: Sequence[str]) -> str:
    """Return the reply among the new messages of a conversation.

    The reply comes after the last result of a tool. If nothing does, the text next to the tool call or the tool's text
    is the reply (``return_direct``).
    """
    results = [position for position, message in enumerate(messages) if isinstance(message, ToolMessage)]
    if not results:
        # A node that returns {"messages": [text]} makes a human message of the model's text.
        matching = (text for text, one in product(_human_texts(messages), written) if carries(text, one))
        return _last_model_text(messages) or next(matching, "")

    last = messages[results[-1] + 1 :]
    # The node after the tool may make a human message of the model's text, or of the tool's.
    if text := _last_model_text(last) or last_human_text(last):
        return text
    calls = [message for message in messages if isinstance(message, AIMessage)]
    if calls and calls[-1] in last:
        return _last_model_text(messages)
    beside_call = message_text(calls[-1]) if calls else ""
    return beside_call or message_text(messages[results[-1]])
