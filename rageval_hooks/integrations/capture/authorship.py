"""Which model call wrote a text, and which calls had a part in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rageval_hooks.integrations.capture.host_values import last_of
from rageval_hooks.integrations.capture.passages import LEAST_PART, PromptText
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.turn import Message

T = TypeVar("T")

# The words of a text, for example "opened" and "1869" of "opened: 1869".
_WORDS = re.compile(r"\w+")

# Marks of citations and of Markdown, for example "[1]", "[doc-3]", "**", "`" or "#".
_MARKS = re.compile(r"\[[^\]\s]{1,12}\]|[*_`#>]")

_COMPARED_CHARACTERS = 50_000
"""Longer texts are compared by their beginnings and ends: 10 MB would hold the interpreter's lock for 100 ms."""

_LEAST_CONTRIBUTION = 8
"""Shorter texts, such as a grader's "yes", are found in prompts by chance."""

_MOST_CALLS = 200
"""Of an agent that runs for long, only so many calls before the answer are compared with its prompts."""


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """A model call, as :func:`contributors` sees it.

    Attributes:
        prompt: all text of the prompt.
        text: what the model wrote.
        started_at: nanoseconds since the epoch.
        ended_at: nanoseconds since the epoch.
    """

    prompt: str
    text: str
    started_at: int
    ended_at: int


def prompt_text(messages: Iterable[Message]) -> str:
    """Return all text of a prompt."""
    return "\n".join(message.content for message in messages)


def writer_of(response: str, calls: Sequence[T], text_of: Callable[[T], str]) -> T | None:
    """Return the model call that wrote a response. Others may have rewritten the question or judged the answer.

    Args:
        response: the response.
        calls: the model calls by start time.
        text_of: returns what a call wrote.

    Returns:
        The last call whose text equals the response, apart from case, white space and marks of Markdown and citations.
        Without such a call: the last call of all, if it shares most of its words with the response. If not: the call
        that most of the response comes from. None if no call qualifies.
    """
    response = response.strip()
    wanted = _bare(response)
    if not wanted or not calls:
        return None
    texts = [text_of(call).strip() for call in calls]
    # From the last call: an agent may write the same text twice, and the later call has seen more passages.
    for call, text in zip(reversed(calls), reversed(texts), strict=True):
        if _bare(text) == wanted:
            return call
    # The application may have added a greeting or a list of sources to the model's text.
    # Then half of the response's words are the model's, or most of the model's words are in the response.
    words, words_of_last = set(_WORDS.findall(wanted)), set(_WORDS.findall(_bare(texts[-1])))
    shared = len(words & words_of_last)
    if 2 * shared >= len(words) or (words_of_last and 5 * shared >= 4 * len(words_of_last)):
        return calls[-1]
    shares = [_shared_characters(response, text) for text in texts]
    most = max(shares)
    return calls[len(shares) - 1 - shares[::-1].index(most)] if most else None  # of equal ones the last


def last_without_tools(calls: Sequence[Run], tool_calls_of: Callable[[Any], Sequence[Any]]) -> Run | None:
    """Return the last model call that requested no tools; the last of all if each did; None without calls.

    Args:
        calls: the model calls by start time.
        tool_calls_of: returns the tool calls in the output of a model.
    """
    without_tools = [call for call in calls if not tool_calls_of(call.output)]
    return last_of(without_tools or calls)


def _bare(text: str) -> str:
    """Return a text without marks, in lower case and with single spaces: "**In 1869** [1]." becomes "in 1869 .".

    Of a long text the beginning and the end. Each is read from twice as many characters as are kept, since marks and
    spaces are removed.
    """
    kept = _COMPARED_CHARACTERS // 2
    if len(text) > 4 * kept:
        return _unmarked(text[: 2 * kept])[:kept] + _unmarked(text[-2 * kept :])[-kept:]
    bare = _unmarked(text)
    return bare if len(bare) <= 2 * kept else bare[:kept] + bare[-kept:]


def _unmarked(text: str) -> str:
    return " ".join(_MARKS.sub(" ", text).casefold().split())


def _shared_characters(response: str, written: str) -> int:
    """Return how many characters of a response a model wrote."""
    if carries(response, written):
        return len(written)
    if len(response) < LEAST_PART and " " not in response:
        return 0  # a single word is found in other texts by chance
    # The response may be one field of the JSON object that the model wrote: {"answer": "The \"old\" pier."}.
    as_json = json.dumps(response, ensure_ascii=False)[1:-1]
    if response in written or as_json in written:
        return len(response)
    return 0


def carries(text: str, written: str) -> bool:
    """Return True if a text contains what a model wrote, unless that is so short that it may be there by chance."""
    text, written = text.strip(), written.strip()
    if not written or written not in text:
        return False
    return len(written) >= min(LEAST_PART, len(text) / 2)


def contributors(answering: ModelCall, calls: Iterable[ModelCall]) -> list[ModelCall]:
    """Return the answering call and the earlier calls whose text reached its prompt, directly or through others.

    The map calls of a map-reduce chain, the earlier rounds of a refine chain and the agents below a supervisor have
    all seen passages for the answer. A grader or a query rewriter has not contributed: its text is not in the prompt.
    """
    # A label, such as "yes" or "vectorstore", is in prompts by chance.
    phrases = [call for call in calls if len(call.text) >= _LEAST_CONTRIBUTION and " " in call.text.strip()]
    candidates = phrases[-_MOST_CALLS:]
    found = [answering]
    for call in found:  # grows while it is read
        prompt = PromptText(call.prompt)
        earlier = [other for other in candidates if other.ended_at <= call.started_at]
        for other in earlier:
            if other not in found and prompt.contains(other.text):
                found.append(other)
    return found
