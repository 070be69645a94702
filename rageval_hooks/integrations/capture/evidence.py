"""What is evidence in a turn, for all frameworks: which tools search, and what no model has written before."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from rageval_hooks.integrations.capture.authorship import MAX_CALLS, statements_in, words_of
from rageval_hooks.integrations.capture.passages import MIN_PART
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.search_tools import searches
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.turn import Passage

_DIGIT = re.compile(r"\d")

WRITTEN_BY_MODEL = "a model of this turn wrote it"
"""Why the result of a tool is no passage."""

_MAX_WRAPPING = 80
"""A sentence of this length may be around what a model wrote, for example "Reflection recorded: …". In characters."""


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
        """Its statements: see :func:`statements_in`."""
        return statements_in(self.read())


class Evidence:
    """Tells what is evidence in a turn: what tools that search have found, and no model of the turn wrote before.

    Whatever a model of the turn wrote is no evidence, in any form: as its text, a field of JSON, an argument of a tool
    call, or a sentence of these. A text that was there before a model repeated it stays evidence.

    Args:
        runs: the runs of the turn, of all frameworks.
        search_tools: the setting of this name: names of tools that search, and ``!name`` for those that do not.
    """

    def __init__(self, runs: Sequence[Run], search_tools: Collection[str] = ()) -> None:
        self._runs = runs
        self._search_tools = search_tools
        self._words_of_prompt = lru_cache(maxsize=1)(words_of)
        self._around_search: set[int] = set()

    def tool_searches(
        self, name: str | None, *, description: str | None, arguments: Any, result: Any
    ) -> tuple[bool, str]:
        """Return whether a tool searches, and why: by the setting, else by :func:`searches` (same arguments)."""
        # A list that names some tools names all that search.
        names_all = any(not one.startswith("!") for one in self._search_tools)
        if names_all or f"!{name}" in self._search_tools:
            return name in self._search_tools, "the setting search_tools says so"
        return searches(name, description, arguments, result)

    def note_search_inside(self, runs: Iterable[Run]) -> None:
        """Note that passages were found inside some runs."""
        self._around_search.update(map(id, runs))

    def has_search_inside(self, run: Run) -> bool:
        """Return True if passages were found inside a run, so that its own output is not a search result."""
        return id(run) in self._around_search

    def among(self, found: Iterable[Passage], at: int, queries: Callable[[], Iterable[str]] = tuple) -> list[Passage]:
        """Return the passages that no model had written by the time at which they were found.

        Args:
            found: the passages.
            at: the time in nanoseconds since the epoch.
            queries: returns what was searched for: a model may have written that, and a result may quote it.
        """
        found = list(found)
        if not found or not self._written_by(at):
            return found
        searched = list(queries())
        return [passage for passage in found if not self.is_written(passage.text, at, searched)]

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

    def _written_by(self, at: int) -> list[Record]:
        """Return what models had written by a time in nanoseconds since the epoch."""
        if at < self._first_end:
            return []  # most turns have one model call, the last one
        written = (record for record in self._records if record.by_model and record.at <= at)
        return list(written)[-MAX_CALLS:]

    def is_written(self, text: str, at: int, queries: Iterable[str] = ()) -> bool:
        """Return True if models wrote a text, and a tool or a function handed it on, perhaps within a sentence.

        Args:
            text: the text.
            at: when it was there, in nanoseconds since the epoch.
            queries: what was searched for: a model may have written that, and the result may quote it.
        """
        written = self._written_by(at)
        words = words_of(text)
        phrases = {phrase for record in written for phrase in record.statements if phrase in words}
        # A function may take a part of a model's sentence.
        own = statements_in(text)
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
