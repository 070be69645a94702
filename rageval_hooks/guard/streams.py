"""A stream between a model and the user: each sentence is shown once it is checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from rageval_hooks.guard.deciding import Decider
from rageval_hooks.guard.decision import GuardDecision
from rageval_hooks.guard.evidence import Evidence, passages_under
from rageval_hooks.guard.sentences import HeldStream

__all__ = ["GuardedStream"]

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
        self, decider: Decider, evidence: Evidence | None = None, *, attempt: int = 1, may_regenerate: bool = False
    ) -> None:
        self._decider = decider
        self._options = decider.options
        self._evidence = evidence
        self._attempt = attempt
        self._may_regenerate = may_regenerate
        self._held = HeldStream(decider.options)
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

    def _known(self) -> Evidence:
        # Only now: a context variable of the framework says which turn this is.
        if self._evidence is None:
            self._evidence = Evidence()
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
