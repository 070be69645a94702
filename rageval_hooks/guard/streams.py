"""A stream between a model and the user: each sentence is held back until it is checked."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from rageval_hooks.guard.answers import answer_in, bare_chunk, split_chunk
from rageval_hooks.guard.checking import Decider
from rageval_hooks.guard.evidence import GuardEvidence, passages_under
from rageval_hooks.guard.options import GuardDecision, GuardOptions
from rageval_hooks.text.facts import find_facts
from rageval_hooks.text.sentences import sentence_spans

__all__ = ["GuardedStream"]

_ENDS: Final = frozenset(".!?…。！？｡．।॥؟۔։\n\r")
"""Characters without which no sentence ends."""

_END: Final = object()
"""Comes after the last chunk of a stream."""


class GuardedStream:
    """A stream between a chain and the user.

    Args:
        decider: checks it.
        evidence: what is known about the answer before the stream begins; None for the captured turn.
        attempt: which answer to the question it is, from 1.
        may_regenerate: True if the caller runs the chain again after :attr:`regenerates`.
    """

    def __init__(
        self, decider: Decider, evidence: GuardEvidence | None = None, *, attempt: int = 1, may_regenerate: bool = False
    ) -> None:
        self._decider = decider
        self._options = decider.options
        self._evidence = evidence
        self._attempt = attempt
        self._may_regenerate = may_regenerate
        self._held = _HeldText(decider.options)
        self.regenerates: GuardDecision | None = None

    def run(self, chunks: Iterator[Any]) -> Iterator[Any]:
        """Yield the chunks that may be shown."""
        for chunk in _with_end(chunks):
            yield from self._take(chunk)
            while (end := self._next_end(chunk)) is not None:
                decision = self._decider.decide(self._held.part(end), self._known(), **self._about(chunk))
                if decision.blocked:
                    # The model stops writing.
                    getattr(chunks, "close", _nothing)()
                    yield from self._ending(decision)
                    return
                yield from self._held.release(end)
        yield from self._held.rest()

    async def arun(self, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the chunks that may be shown, without blocking the event loop."""
        async for chunk in _with_async_end(chunks):
            for free in self._take(chunk):
                yield free
            while (end := self._next_end(chunk)) is not None:
                part = self._held.part(end)
                decision = await self._decider.adecide(part, self._known(), **self._about(chunk))
                if decision.blocked:
                    await getattr(chunks, "aclose", _nothing_async)()
                    for last in self._ending(decision):
                        yield last
                    return
                for checked in self._held.release(end):
                    yield checked
        for left in self._held.rest():
            yield left

    def _known(self) -> GuardEvidence:
        # Only now: a context variable of the framework says which turn this is.
        if self._evidence is None:
            self._evidence = GuardEvidence()
        return self._evidence

    def _take(self, chunk: Any) -> list[Any]:
        """Take a chunk, and return what can be shown at once."""
        if chunk is _END:
            return []
        if isinstance(chunk, Mapping):
            # {"context": [Document, …]} comes before {"answer": "…"}.
            found = passages_under(chunk, self._options.passage_keys)
            if found:
                self._evidence = self._known().with_passages(found)
        self._held.add(chunk)
        # A flagged answer is shown whatever the check says, so there is nothing to hold back.
        return self._held.rest() if self._is_shown_at_once else self._held.unheld()

    @property
    def _is_shown_at_once(self) -> bool:
        return self._options.on_fail == "flag"

    def _next_end(self, chunk: Any) -> int | None:
        ended = chunk is _END
        if self._is_shown_at_once:
            return self._held.whole_end() if ended else None
        return self._held.next_end(final=ended)

    def _about(self, chunk: Any) -> dict[str, Any]:
        """Return the other arguments of a decision."""
        # What was shown cannot be taken back, so a new answer is only written while nothing was.
        may_regenerate = self._may_regenerate and not self._held.released
        return {"attempt": self._attempt, "may_regenerate": may_regenerate, "final": chunk is _END}

    def _ending(self, decision: GuardDecision) -> list[Any]:
        if decision.action == "regenerated":
            self.regenerates = decision
            return []
        return [self._held.ending(decision.answer)]


def _with_end(chunks: Iterator[Any]) -> Iterator[Any]:
    yield from chunks
    yield _END


async def _with_async_end(chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for chunk in chunks:
        yield chunk
    yield _END


def _nothing() -> None:
    return None


async def _nothing_async() -> None:
    return None


class _HeldText:
    """The part of a streamed answer that is not checked yet.

    Chunks wait here in their order. A chunk with the end of one sentence and the beginning of the next is split if it
    is a string or a message with a plain text; another one waits for the next sentence too.

    Args:
        options: the options of the guard, for the keys of mappings.
    """

    def __init__(self, options: GuardOptions) -> None:
        self._keys = options.answer_keys
        self._chunks: deque[tuple[Any, str]] = deque()
        self._waiting = ""
        self.released = ""
        self._known_ends = False

    def add(self, chunk: Any) -> None:
        """Add a chunk at the end of the stream."""
        text = answer_in(chunk, self._keys) or ""
        self._chunks.append((chunk, text))
        self._waiting += text
        self._known_ends = self._known_ends or not _ENDS.isdisjoint(text)

    def unheld(self) -> list[Any]:
        """Take out the chunks at the front that have no text, such as those with the documents of a chain."""
        free = []
        while self._chunks and not self._chunks[0][1]:
            free.append(self._chunks.popleft()[0])
        return free

    def next_end(self, *, final: bool = False) -> int | None:
        """Return how many characters of the held text the next part to be checked has; None if none is complete.

        A sentence is complete when the next one has begun. A line that only leads to what follows is no part by itself:
        The passages do not support "The handbook says:" by itself.

        Args:
            final: True if the stream has ended, so that everything is complete.
        """
        whole = self.whole_end()
        if whole is None:
            return None
        # Most chunks are in the middle of a sentence: splitting the text for each would take quadratic time.
        if not final and not self._known_ends:
            return None
        spans = sentence_spans(self._waiting)
        for (start, end), following in pairwise(spans):
            if not _leads_on(self._waiting[start:end]):
                return following[0]
        return whole if final else None

    def whole_end(self) -> int | None:
        """Return how many characters the held text has; None if it is blank."""
        return len(self._waiting) if self._waiting.strip() else None

    def part(self, end: int) -> str:
        """Return the next part, which is what is checked."""
        return self._waiting[:end].strip()

    def release(self, end: int) -> list[Any]:
        """Take out the chunks, or parts of them, that have the next part of the text."""
        out: list[Any] = []
        left = end
        while self._chunks:
            chunk, text = self._chunks[0]
            if len(text) > left:
                before, after = split_chunk(chunk, self._keys, left)
                out += before
                self._chunks[0] = (after, text[left:])
                break
            out.append(self._chunks.popleft()[0])
            left -= len(text)
        self.released += self._waiting[:end]
        self._waiting = self._waiting[end:]
        self._known_ends = not _ENDS.isdisjoint(self._waiting)
        return out

    def ending(self, text: str) -> Any:
        """Return the chunk that ends a blocked stream, in the form of the chunks that are held back."""
        # After sentences that were shown, the fallback is a separate paragraph.
        text = f"\n\n{text}" if self.released else text
        chunk = next(chunk for chunk, held in self._chunks if held)
        return bare_chunk(chunk, self._keys, text)

    def rest(self) -> list[Any]:
        """Take out all chunks, whether or not their text is checked."""
        left = [chunk for chunk, _ in self._chunks]
        self._chunks.clear()
        return left


def _leads_on(sentence: str) -> bool:
    """Return True if a sentence only announces the next: "Here is what I found:"."""
    return sentence.rstrip(" *_").endswith(":") and not find_facts(sentence, [(0, len(sentence))])
