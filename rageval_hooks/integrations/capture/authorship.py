"""Who wrote the answer: the model call, and the calls whose text reached its prompt. And how texts are compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import unescape
from typing import Any, TypeVar

from rageval_hooks.integrations.capture.passages import MIN_PART, PromptText
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import last_of
from rageval_hooks.turn import Message, Step

T = TypeVar("T", bound=Run | Step)
R = TypeVar("R", bound=Run)
Call = TypeVar("Call")

# The words of a text, for example "opened" and "1869" of "opened: 1869".
_WORDS = re.compile(r"\w+")

# Marks of citations, for example "[1]" or "[doc-3]".
_MARKS = re.compile(r"\[[^\]\s]{1,12}\]")

# White space and characters as JSON and Python write them: the two characters backslash and n, or "\u00e9" for "é".
_ESCAPED = re.compile(r"\\(?:[nrt]|u([0-9a-fA-F]{4}))")

# Where a sentence, a line, a string of JSON or an XML element ends, for example after "Note:" or "In 1869.".
_ENDS = re.compile(r'[\n\t"{}\[\]<>|`•]+|(?<=[.!?;:])\s+|(?<=[。！？；：])')

_MIN_CONTRIBUTION = 8
"""Shorter texts, such as a grader's "yes", are found in prompts by chance."""

MAX_CALLS = 200
"""Of an agent that runs for long, only so many calls before the answer are compared with its prompts."""


# --------------------------------------------------------------------------- the call that wrote the answer


def writer_of(
    response: str,
    calls: Sequence[Call],
    text_of: Callable[[Call], str],
    messages_of: Callable[[Call], Iterable[Message]] = lambda _: (),
) -> Call | None:
    """Return the model call that wrote a response. Others may have rewritten the question or checked the answer.

    Args:
        response: the response.
        calls: the model calls by start time.
        text_of: returns what a call wrote.
        messages_of: returns the prompt of a call.

    Returns:
        The last call whose text equals the response, apart from case, punctuation and marks of citations,
        and which was not given the response in its instructions. Without such a call: the first call whose text
        contains the whole response. If not: the first of the calls that share most words with it, or that most of it
        comes from. None if no call qualifies.
    """
    response = response.strip()
    if not response or not calls:
        return None
    texts = [text_of(call).strip() for call in calls]
    wanted, words = "", texts
    if texts[-1] != response:  # to read the words of 10 MB takes 0.1 s on the application's thread
        wanted, words = words_of(response), list(map(words_of, texts))
    equal = [
        call
        for call, text, words_of_call in zip(calls, texts, words, strict=True)
        if text == response or (wanted and words_of_call == wanted)
    ]
    if len(equal) > 1:
        # An agent may write the same text twice, and the later call has seen more passages. A guard that returns the
        # text in its instructions has not written it. A supervisor gets it from a tool or an assistant.
        told = [(call, [one.content for one in messages_of(call) if one.role in ("system", "user")]) for call in equal]
        equal = [call for call, contents in told if not any(response in content for content in contents)] or equal[:1]
    if equal or not wanted:
        return last_of(equal)

    # The response may be one field of the JSON object that the model wrote: {"answer": "The \"old\" pier."}. A later
    # call may repeat it, to check it or to sum up the conversation.
    if " " in wanted:  # a single word is found in other texts by chance
        for call, text in zip(calls, words, strict=True):
            if wanted in text:
                return call

    # The application may have added a greeting or a list of sources to the model's text.
    # Then half of the response's words are the model's, or most of the model's words are in the response. Rewritten
    # and follow-up questions may be in it, too.
    said = set(wanted.split())
    shared = [
        0 if text.endswith("?") and not response.endswith("?") else len(said.intersection(words_of_call.split()))
        for text, words_of_call in zip(texts, words, strict=True)
    ]
    best = shared.index(max(shared))
    if shared[best] and (2 * shared[best] >= len(said) or 5 * shared[best] >= 4 * len(set(words[best].split()))):
        return calls[best]
    sizes = [len(text) if carries(response, text) else 0 for text in texts]
    return calls[sizes.index(max(sizes))] if any(sizes) else None


def last_without_tools(calls: Sequence[R], tool_calls_of: Callable[[Any], Sequence[Any]]) -> R | None:
    """Return the last model call that requested no tools; the last of all if each did; None without calls.

    Args:
        calls: the model calls by start time.
        tool_calls_of: returns the tool calls in the output of a model.
    """
    return last_of([call for call in calls if not tool_calls_of(call.output)] or calls)


def words_of(text: str) -> str:
    """Return the words of a text in lower case, with single spaces, also of JSON and Markdown.

    "**In 1869** [1]." and '{"answer": "In 1869."}' become "in 1869" and "answer in 1869".
    """
    return " ".join(_WORDS.findall(_MARKS.sub(" ", _unescaped(text)).casefold()))


def _unescaped(text: str) -> str:
    if "\\" in text:
        text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "\n", text)
    return unescape(text) if "&" in text else text  # "&lt;"


def carries(text: str, written: str) -> bool:
    """Return True if a text contains what a model wrote, unless that is so short that it may be there by chance."""
    text, written = text.strip(), written.strip()
    return bool(written) and written in text and len(written) >= min(MIN_PART, len(text) / 2)


def contributors(
    answering: T,
    calls: Sequence[T],
    prompt_of: Callable[[T], str],
    text_of: Callable[[T], str],
    reached: Callable[[T, str], bool] = lambda _call, _prompt: False,
) -> list[T]:
    """Return the answering call and the earlier calls whose text reached its prompt, directly or through others.

    The map calls of a map-reduce chain, the earlier rounds of a refine chain and the agents below a supervisor have
    all seen passages for the answer. A grader or a query rewriter has not contributed: its text is not in the prompt.

    Args:
        answering: the call that wrote the answer.
        calls: all model calls.
        prompt_of: returns all text of a call's prompt.
        text_of: returns what a call wrote.
        reached: returns True if a part of what a call wrote is in a prompt: a field of its JSON, a sentence.

    Returns:
        The calls by start time.
    """
    texts = [(call, text_of(call).strip(), prompt_of(call)) for call in calls]
    # A later call that repeats the answer may have read more for it.
    answer = text_of(answering).strip()
    waiting = [answering]
    waiting += [call for call, text, _ in texts if answer and text == answer and call is not answering]
    found = set(map(id, waiting))
    for call in waiting:  # grows while it is read
        prompt = PromptText(prompt_of(call))
        for other, text, read in texts[-MAX_CALLS:]:
            # An agent reads again all that it has read before.
            is_before = (other.ended_at or other.started_at) <= call.started_at and not prompt.text.startswith(read)
            if id(other) in found or not is_before:
                continue
            # A label, such as "yes" or "vectorstore", is in prompts by chance.
            is_phrase = len(text) >= _MIN_CONTRIBUTION and " " in text
            if (is_phrase and prompt.contains(text)) or reached(other, prompt.text):
                found.add(id(other))
                waiting.append(other)
    return sorted(waiting, key=lambda call: call.started_at)


def statements_in(text: str) -> list[str]:
    """Return the words of each sentence, line, or string of JSON in a text, questions and short ones excepted.

    For example {"cost": "41.2 million crowns", "open": "Is it open?"} has "41 2 million crowns".
    """
    found = []
    for part in _ENDS.split(_unescaped(text)):
        words = "" if part.rstrip().endswith(("?", "？")) else words_of(part)
        # A single word is a label, for example "vectorstore". Some languages have no spaces.
        if len(words) >= _MIN_CONTRIBUTION and (" " in words or not words.isascii()):
            found.append(words)
    return found
