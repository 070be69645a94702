"""A stream between a model and the user: each sentence is held back until it is checked."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final

from rageval_hooks.guard.answers import answer_in, bare_chunk, split_chunk
from rageval_hooks.guard.checking import Decider, GuardEvidence, passages_under
from rageval_hooks.guard.options import GuardDecision
from rageval_hooks.guard.steps import GuardSteps, adrive, drive
from rageval_hooks.text.facts import find_facts
from rageval_hooks.text.sentences import sentence_spans

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

    Attributes:
        regenerates: the decision to run the chain again; None without one.
    """

    def __init__(
        self, decider: Decider, evidence: GuardEvidence | None = None, *, attempt: int = 1, may_regenerate: bool = False
    ) -> None:
        self._decider = decider
        self._evidence = evidence
        self._attempt = attempt
        self._may_regenerate = may_regenerate
        self._held = _HeldText(decider.options.answer_keys)
        # A flagged answer is shown whatever the check says, so there is nothing to hold back.
        self._is_shown_at_once = decider.options.on_fail == "flag"
        self._is_blocked = False
        self.regenerates: GuardDecision | None = None

    def run(self, chunks: Iterator[Any]) -> Iterator[Any]:
        """Yield the chunks that may be shown."""
        for chunk in chain(chunks, [_END]):
            yield from self._take(chunk)
            while (end := self._next_end(chunk)) is not None:
                yield from drive(self._check(end, chunk))
                if self._is_blocked:
                    # The model stops writing.
                    getattr(chunks, "close", lambda: None)()
                    return
        yield from self._held.rest()

    async def arun(self, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the chunks that may be shown, without blocking the event loop."""
        async for chunk in _with_end(chunks):
            for free in self._take(chunk):
                yield free
            while (end := self._next_end(chunk)) is not None:
                for checked in await adrive(self._check(end, chunk)):
                    yield checked
                if self._is_blocked:
                    if hasattr(chunks, "aclose"):
                        await chunks.aclose()
                    return
        for left in self._held.rest():
            yield left

    def _take(self, chunk: Any) -> list[Any]:
        """Take a chunk, and return what can be shown at once."""
        if chunk is _END:
            return []
        if isinstance(chunk, Mapping):
            # {"context": [Document, …]} comes before {"answer": "…"}.
            found = passages_under(chunk, self._decider.options.passage_keys)
            if found:
                self._evidence = (self._evidence or GuardEvidence()).with_passages(found)
        self._held.add(chunk)
        return self._held.rest() if self._is_shown_at_once else self._held.without_text()

    def _next_end(self, chunk: Any) -> int | None:
        if self._is_shown_at_once:
            return self._held.whole_end() if chunk is _END else None
        return self._held.next_end(final=chunk is _END)

    def _check(self, end: int, chunk: Any) -> GuardSteps[list[Any]]:
        """Check the next part of the text, and return the chunks that are shown then."""
        # Only now: a context variable of the framework says which turn this is.
        self._evidence = self._evidence or GuardEvidence()
        decision = yield from self._decider.decide(
            self._held.part(end),
            self._evidence,
            attempt=self._attempt,
            # What was shown cannot be taken back, so a new answer is only written while nothing was.
            may_regenerate=self._may_regenerate and not self._held.released,
            final=chunk is _END,
        )
        if not decision.blocked:
            return self._held.release(end)
        self._is_blocked = True
        if decision.action == "regenerated":
            self.regenerates = decision
            return []
        return [self._held.ending(decision.answer)]


async def _with_end(chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for chunk in chunks:
        yield chunk
    yield _END


class _HeldText:
    """The part of a streamed answer that is not checked yet.

    Chunks wait here in their order. A chunk with the end of one sentence and the beginning of the next is split if it
    is a string or a message with a plain text; another one waits for the next sentence too.

    Args:
        keys: the keys of mappings that may hold the answer.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._chunks: deque[tuple[Any, str]] = deque()
        self._waiting = ""
        self.released = ""

    def add(self, chunk: Any) -> None:
        """Add a chunk at the end of the stream."""
        text = answer_in(chunk, self._keys) or ""
        self._chunks.append((chunk, text))
        self._waiting += text

    def without_text(self) -> list[Any]:
        """Take out the chunks at the front that have no text, such as those with the documents of a chain."""
        free = []
        while self._chunks and not self._chunks[0][1]:
            free.append(self._chunks.popleft()[0])
        return free

    def next_end(self, *, final: bool) -> int | None:
        """Return how many characters of the held text the next part to be checked has; None if it is not complete.

        A sentence is complete when the next one has begun. A line that only leads to what follows is no part by itself:
        the passages do not support "The handbook says:" by itself.

        Args:
            final: True if the stream has ended, so that everything is complete.
        """
        whole = self.whole_end()
        # Most chunks are in the middle of a sentence: splitting the text for each would take quadratic time.
        if whole is None or (not final and _ENDS.isdisjoint(self._waiting)):
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
