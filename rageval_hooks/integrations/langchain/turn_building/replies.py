"""Finding the reply in a conversation: the last message of the model that was not there before.

A conversation is a list of messages, for example what an agent returns: [question, tool call, tool result, reply].
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, convert_to_messages

from rageval_hooks.integrations.capture.authorship import carries
from rageval_hooks.integrations.capture.host_values import is_a, or_else
from rageval_hooks.integrations.langchain.payloads import message_text, role_of
from rageval_hooks.integrations.langchain.turn_building.question import as_messages, last_human_text, query_of

__all__ = ["new_reply"]


@or_else("")
def new_reply(messages: Any, before: Any, given: Any, written: Sequence[str]) -> str:
    """Return the reply in a conversation, unless it was there before.

    Args:
        messages: the conversation in the output.
        before: the conversation in the input.
        given: the whole input.
        written: the texts that models of this turn wrote.
    """
    if not is_a(messages, (list, tuple)) or not messages:
        return ""
    return _reply_in(_added(messages, as_messages(before, "messages"), query_of(given)), written)


def _added(messages: Sequence[Any], before: Sequence[Any], query: str) -> Sequence[Any]:
    """Return the messages that came after the input's messages and after the question.

    A graph with a checkpointer has the messages of earlier turns before those of the input.
    """
    said, told = _said(messages), _said(before)
    begins_with_input = said[: len(told)] == told
    if not begins_with_input and _is_cut(said, told):
        return ()

    start = len(told) if begins_with_input else 0
    humans = _positions(messages, HumanMessage)
    asked = _position_of_question(messages, humans, {query, last_human_text(before)})
    if asked is not None:
        return messages[max(start, asked + 1) :]
    # The question was rewritten: the last human message is taken for it.
    if humans and not start:
        return messages[humans[-1] + 1 :]
    return messages[start:]


def _is_cut(said: Sequence[Any], told: Sequence[Any]) -> bool:
    """Return True if a conversation is the end of the input's, or has it as its own end: nothing was replied.

    A node that trims the history returns [c, d] for [a, b, c, d]. A node that loads the history returns [a, b, c, d]
    for [c, d].
    """
    if not told or said[-1:] != told[-1:]:
        return False
    is_shorter = len(said) <= len(told)
    return is_shorter or said[-len(told) :] == told


def _position_of_question(messages: Sequence[Any], humans: Sequence[int], questions: Collection[str]) -> int | None:
    """Return the position of the last human message with the text of the question."""
    for position in reversed(humans):
        text = message_text(messages[position])
        if text and text in questions:
            return position
    return None


def _positions(messages: Sequence[Any], of: type) -> list[int]:
    """Return the positions of the messages of a class."""
    return [position for position, message in enumerate(messages) if is_a(message, of)]


@or_else(())
def _said(messages: Sequence[Any]) -> Sequence[tuple[str, str]]:
    """Return who said what."""
    converted = convert_to_messages(messages)
    return [(role_of(message.type), message_text(message)) for message in converted]


def _reply_in(messages: Sequence[Any], written: Sequence[str]) -> str:
    """Return the reply among the new messages of a conversation.

    The reply comes after the last result of a tool. If nothing does, the text next to the tool call or the tool's text
    is the reply (``return_direct``).
    """
    results = _positions(messages, ToolMessage)
    if not results:
        # A node that returns {"messages": [text]} makes a human message of the model's text.
        return _last_model_text(messages) or _human_text(messages, written)

    last = messages[results[-1] + 1 :]
    if text := _last_model_text(last):
        return text
    # The node after the tool may make a human message of the model's text, or of the tool's.
    if text := next(iter(_human_texts(last)), ""):
        return text
    if not _positions(last, AIMessage):
        return _directly_returned(messages, messages[results[-1]])
    return _last_model_text(messages)


def _directly_returned(messages: Sequence[Any], result: ToolMessage) -> str:
    """Return the answer of an agent that ends with a tool: the text next to the tool call, else the tool's text."""
    calls = _positions(messages, AIMessage)
    if not calls:
        return message_text(result)
    last_call = messages[calls[-1]]
    return message_text(last_call) or message_text(result)


def _last_model_text(messages: Sequence[Any]) -> str:
    """Return the text of the last message of a model that requests no tools."""
    for message in reversed(messages):
        if is_a(message, AIMessage) and not message.tool_calls:
            return message_text(message)
    return ""


def _human_texts(messages: Sequence[Any]) -> list[str]:
    """Return the texts of the human messages, the last one first."""
    positions = _positions(messages, HumanMessage)
    return [message_text(messages[position]) for position in reversed(positions)]


def _human_text(messages: Sequence[Any], written: Sequence[str]) -> str:
    """Return the text of the last human message that a model of this turn wrote."""
    for text, one in product(_human_texts(messages), written):
        if carries(text, one):
            return text
    return ""
