"""Who wrote what, and when: the call that wrote the answer, and what models wrote before a text was found."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from html import unescape
from typing import Any, TypeVar

from rageval_hooks.integrations.capture.passages import MIN_PART, PromptText
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import last_of
from rageval_hooks.runtime.lazy import cached_property
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

_DIGIT = re.compile(r"\d")

_MIN_CONTRIBUTION = 8
"""Shorter texts, such as a grader's "yes", are found in prompts by chance."""

WRITTEN_BY_MODEL = "a model of this turn wrote it"
"""Why the result of a tool is no passage."""

_MAX_WRAPPING = 80
"""A sentence of this length may be around what a model wrote, for example "Reflection recorded: …". In characters."""

_MAX_CALLS = 200
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
        equal = [call for call in equal if not _is_instructed(messages_of(call), response)] or equal[:1]
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


def _is_instructed(messages: Iterable[Message], text: str) -> bool:
    return any(text in message.content for message in messages if message.role in ("system", "user"))


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
        for other, text, read in texts[-_MAX_CALLS:]:
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


# --------------------------------------------------------------------------- what models wrote before a text was found


@dataclass(eq=False)
class Record:
    """A text that came up during a turn.

    Attributes:
        at: when it was there, in nanoseconds since the epoch.
        by_model: True if a model of the turn wrote it: its answer, its thoughts, the arguments of its tool calls.
        read: returns the text.
    """

    at: int
    by_model: bool
    read: Callable[[], str]

    @cached_property
    def words(self) -> str:
        """Its words: see :func:`words_of`."""
        return words_of(self.read())

    @cached_property
    def statements(self) -> list[str]:
        """Its statements: see :func:`_statements_in`."""
        return _statements_in(self.read())


class Authors:
    """Tells who wrote a text first: the models of a turn, or somebody else.

    Whatever a model of the turn wrote is no evidence, in any form: as its text, a field of JSON, an argument of a tool
    call, or a sentence of these. A text that was there before a model repeated it stays evidence.

    Args:
        runs: the runs of the turn, of all frameworks.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._words_of_prompt = lru_cache(maxsize=1)(words_of)

    @cached_property
    def _calls(self) -> list[Run]:
        return [run for run in self._runs if run.kind == "llm"]

    @cached_property
    def _first_end(self) -> float:
        """When the first model call ended."""
        return min((call.ended_at for call in self._calls if call.ended_at is not None), default=math.inf)

    @cached_property
    def _asking(self) -> set[int]:
        """The identities of the runs with a model call inside."""
        return {id(outer) for call in self._calls for outer in call.ancestors()}

    @cached_property
    def _record_of(self) -> dict[int, Record]:
        """What each model call wrote, by the identity of its run."""
        return {
            id(run): Record(run.ended_at, True, partial(run.framework.returned_text, run))
            for run in self._calls
            if run.ended_at is not None
        }

    @cached_property
    def _records(self) -> list[Record]:
        """All texts, the first one first."""
        records = list(self._record_of.values())
        for run in self._runs:
            if run.kind == "llm" or run.parent is None:
                records.append(Record(run.started_at, False, partial(run.framework.given_text, run)))
            if run.kind in ("retriever", "tool"):
                records.append(Record(self.found_at(run), False, partial(run.framework.returned_text, run)))
        # A tool may start in the very moment in which the model that calls it ends.
        return sorted(records, key=lambda record: (record.at, not record.by_model))

    def found_at(self, run: Run) -> int:
        """Return when the output of a run was there, at the latest: at its start, unless a model was called inside it.

        A search that runs next to a model does not have its result from that model. A retriever that calls a model, to
        choose passages or to cut them, returns passages.
        """
        is_asking = id(run) in self._asking and run.kind != "retriever"
        return run.ended_at if is_asking and run.ended_at is not None else run.started_at

    def have_written(self, at: int) -> list[Record]:
        """Return what models had written by a time in nanoseconds since the epoch."""
        if at < self._first_end:
            return []  # most turns have one model call, the last one
        written = (record for record in self._records if record.by_model and record.at <= at)
        return list(written)[-_MAX_CALLS:]

    def wrote(self, text: str, at: int, queries: Iterable[str] = ()) -> bool:
        """Return True if models wrote a text, and a tool or a function handed it on, perhaps within a sentence.

        Args:
            text: the text.
            at: when it was there, in nanoseconds since the epoch.
            queries: what was searched for: a model may have written that, and the result may quote it.
        """
        written = self.have_written(at)
        if not written:
            return False
        words = words_of(text)
        phrases = {phrase for record in written for phrase in record.statements if phrase in words}
        # A function may take a part of a model's sentence.
        own = _statements_in(text)
        phrases.update(one for one in own if len(one) >= MIN_PART and any(one in record.words for record in written))
        searched = "\n".join(map(words_of, queries))
        rest, total, solid, long = words, 0, 0, 0
        for phrase in sorted(phrases, key=len, reverse=True):
            if phrase in rest and phrase not in searched:
                size = rest.count(phrase) * len(phrase)
                rest = rest.replace(phrase, "\n")
                if self._is_of_model(phrase):
                    total += size
                    is_long = len(phrase) >= MIN_PART
                    long += size if is_long else 0
                    solid += size if is_long or _DIGIT.search(phrase) else 0
        if not total:
            return False
        # What is left may have been there before, too: the user's question, or what a search found.
        earlier = [record for record in self._records if record.at < at and not record.by_model]
        for phrase in own:
            if phrase in rest and any(phrase in record.words for record in earlier):
                rest = rest.replace(phrase, "\n")
        # A sentence around a model's statement is no more than 80 characters, or no longer than the statement. Names
        # and other short phrases may be in any text by chance: they have to be most of it.
        return len(" ".join(rest.split())) <= max(total / 2, solid, min(_MAX_WRAPPING, 2 * long))

    def reached(self, call: Run, prompt: str) -> bool:
        """Return True if a statement that a model made is in a prompt: not one that it repeated."""
        if (record := self._record_of.get(id(call))) is None:
            return False
        words = self._words_of_prompt(prompt)
        long = (one for one in record.statements if len(one) >= MIN_PART)
        return any(one in words and self._is_of_model(one) for one in long)

    def _is_of_model(self, phrase: str) -> bool:
        """Return True if a model wrote a phrase first, and did not repeat it from its prompt or a result."""
        first = next((record for record in self._records if phrase in record.words), None)
        return first is not None and first.by_model


def _statements_in(text: str) -> list[str]:
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
