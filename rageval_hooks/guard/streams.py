"""A stream between a model and the user: each sentence is held back until it is checked."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

from rageval_hooks.guard.answers import answer_in, ending_chunk
from rageval_hooks.guard.checking import Decider, GuardEvidence, GuardSteps, adrive, drive, passages_under
from rageval_hooks.guard.options import GuardDecision
from rageval_hooks.text.facts import find_facts
from rageval_hooks.text.sentences import sentence_spans

_ENDS: Final = frozenset(".!?…。！？｡．।॥؟۔։\n\r")
"""Characters without which no sentence ends."""

_END: Final = object()
"""Comes after the last chunk of a stream."""


class _Waiting(NamedTuple):
    """A chunk that is held back, with its text."""

    chunk: Any
    text: str


class GuardedStream:
    """A stream between a chain and the user. Chunks wait in their order, each until all of its text is checked.

    Args:
        decider: checks it.
        evidence: what is known about the answer before the stream begins; None for the captured turn.
        attempt: which answer to the question it is, from 1.

    Attributes:
        regenerates: the decision to run the chain again; None without one.
    """

    def __init__(self, decider: Decider, evidence: GuardEvidence | None = None, *, attempt: int = 1) -> None:
        self.regenerates: GuardDecision | None = None
        self._decider = decider
        self._evidence = evidence
        self._attempt = attempt
        # A flagged answer is shown whatever the check says, so there is nothing to hold back.
        self._is_shown_at_once = decider.options.on_fail == "flag"
        self._is_blocked = False
        self._has_shown = False
        self._chunks: deque[_Waiting] = deque()
        self._shown = ""
        self._unchecked = ""
        self._checked = 0  # characters at the beginning of the waiting chunks that belong to checked sentences

    def run(self, chunks: Iterator[Any]) -> Generator[Any, None, None]:
        """Yield the chunks that may be shown."""
        for chunk in chain(chunks, [_END]):
            yield from drive(self._take(chunk))
            if self._is_blocked:
                # The model stops writing.
                getattr(chunks, "close", lambda: None)()
                return

    async def arun(self, chunks: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """Yield the chunks that may be shown, without blocking the event loop."""
        async for chunk in _with_end(chunks):
            for shown in await adrive(self._take(chunk)):
                yield shown
            if self._is_blocked:
                if hasattr(chunks, "aclose"):
                    await chunks.aclose()
                return

    def _take(self, chunk: Any) -> GuardSteps[list[Any]]:
        """Take a chunk, check what it completes, and return the chunks that may be shown."""
        is_last = chunk is _END
        shown = [] if is_last else self._add(chunk)
        while not self._is_blocked and (end := self._next_end(is_last)) is not None:
            shown += yield from self._check(end, is_last)
        return [*shown, *self._rest()] if is_last and not self._is_blocked else shown

    def _add(self, chunk: Any) -> list[Any]:
        """Add a chunk, and return what can be shown at once: chunks without text, such as those with documents."""
        options = self._decider.options
        # {"context": [Document, …]} comes before {"answer": "…"}.
        found = passages_under(chunk, options.passage_keys) if isinstance(chunk, Mapping) else []
        if found:
            known = self._evidence or GuardEvidence()
            self._evidence = replace(known, passages=(*known.passages, *found))
        text = answer_in(chunk, options.answer_keys) or ""
        self._chunks.append(_Waiting(chunk, text))
        self._unchecked += text
        if self._is_shown_at_once:
            return self._rest()
        free = []
        while self._chunks and not self._chunks[0].text:
            free.append(self._chunks.popleft().chunk)
        return free

    def _next_end(self, is_last: bool) -> int | None:
        """Return how many characters the next part to be checked has; None if it is not complete.

        A sentence is complete when the next one has begun. A line that only leads to what follows is no part by itself:
        the passages do not support "The handbook says:" by itself.

        Args:
            is_last: True if the stream has ended, so that everything is complete.
        """
        text = self._unchecked
        whole = len(text) if text.strip() and is_last else None
        # Most chunks are in the middle of a sentence: splitting the text for each would take quadratic time.
        if self._is_shown_at_once or (not is_last and _ENDS.isdisjoint(text)):
            return whole
        for (start, end), (next_start, _) in pairwise(sentence_spans(text)):
            sentence = text[start:end]
            # For example "Here is what I found:".
            if not sentence.rstrip(" *_").endswith(":") or find_facts(sentence, [(0, len(sentence))]):
                return next_start
        return whole

    def _check(self, end: int, is_last: bool) -> GuardSteps[list[Any]]:
        """Check the next part of the text, and return the chunks that are shown then."""
        # Only now: a context variable of the framework says which turn this is.
        self._evidence = self._evidence or GuardEvidence()
        decision = yield from self._decider.decide(
            self._unchecked[:end].strip(),
            self._evidence,
            attempt=self._attempt,
            # What was shown cannot be taken back, so a new answer is only written while nothing was.
            may_regenerate=not self._has_shown,
            final=is_last,
            shown=self._shown,
        )
        if decision.blocked:
            self._is_blocked = True
            if decision.action == "regenerated":
                self.regenerates = decision
                return []
            # In the form of the chunks that wait. After sentences that were shown, it is a separate paragraph.
            fallback = f"\n\n{decision.answer}" if self._has_shown else decision.answer
            waiting = next(chunk for chunk, text in self._chunks if text)
            return [ending_chunk(waiting, self._decider.options.answer_keys, fallback)]
        self._shown += self._unchecked[:end]
        self._unchecked = self._unchecked[end:]
        self._checked += end
        shown = []
        while self._chunks and len(self._chunks[0].text) <= self._checked:
            chunk, text = self._chunks.popleft()
            shown.append(chunk)
            self._checked -= len(text)
            self._has_shown |= bool(text.strip())
        return shown

    def _rest(self) -> list[Any]:
        """Take out all chunks, whether or not their text is checked."""
        left = [chunk for chunk, _ in self._chunks]
        self._chunks.clear()
        return left


async def _with_end(chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for chunk in chunks:
        yield chunk
    yield _END
