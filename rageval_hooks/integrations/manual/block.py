"""Records one block of ``start_turn`` as a run, so that framework runs inside it belong to the same turn."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from contextvars import ContextVar
from uuid import uuid4

from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.capture.merging import turn_of
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Framework
from rageval_hooks.integrations.manual.joining import join_inner_turns, turn_from_block
from rageval_hooks.integrations.manual.open_turn import Given, Recorded
from rageval_hooks.online.pending import PendingTurn
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.suppression import is_suppressed
from rageval_hooks.turn import Passage

__all__ = ["FRAMEWORK", "begin"]

_recorder = shared_recorder()

_NOT_WAITING = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)
"""A caller that leaves in this way does not wait for scores."""


def begin(pipeline: Pipeline, given: Given) -> Recorded | None:
    """Start to record a turn; None if nothing is captured here."""
    if not pipeline.enabled or is_suppressed():
        return None
    try:
        outer = _innermost.get()
        if outer is not None and outer.is_open:
            return _NestedBlock(outer)
        return _Block(pipeline, given)
    except Exception as error:
        pipeline.failed("the start of a turn could not be recorded", error)
        return None


class _Block:
    """A turn in progress.

    Args:
        pipeline: receives the turn.
        given: what the application says about the turn.
    """

    def __init__(self, pipeline: Pipeline, given: Given) -> None:
        self.id = str(uuid4())
        self.answer: str | None = None
        self.inner_answer: str | None = None
        self._passages: list[Passage] = []
        self._pipeline = pipeline
        self._before = _innermost.get()
        # Joined only now: with one more framework the recorder looks up more for each run.
        _recorder.join(FRAMEWORK)
        details = {"given": given, "passages": self._passages}
        run = _recorder.start(
            pipeline, self.id, None, "block", "turn", given.question, framework=FRAMEWORK, details=details
        )
        if run is not None:
            deferred.prepare()
        # Inside a framework's run, that run is the turn, and what follows belongs to it as if there were no block.
        self._encloses = run is None or run.parent is None
        if self._encloses:
            _innermost.set(self)

    @property
    def is_open(self) -> bool:
        """True until the block ends. In a forked child, blocks of the parent are not open."""
        return _recorder.knows(self.id)

    def add(self, passages: Iterable[Passage]) -> None:
        """Add passages to the turn."""
        self._passages.extend(passages)

    def respond(self, answer: str) -> None:
        """Set the answer."""
        self.answer = answer

    def end(self, error: BaseException | None) -> PendingTurn | None:
        """Submit the turn. A synchronous caller waits for inline scores here; an asynchronous one awaits the result."""
        if isinstance(error, GeneratorExit) or deferred.closes_generator():
            # The garbage collector may be closing a generator: no context variable may be set, and no work be done.
            deferred.hand_over(self._submit, error)
            return None
        # Not by a token: a generator may end in another context than it began in.
        if self._encloses and _innermost.get() is self:
            _innermost.set(self._before)
        return self._submit(error)

    def _submit(self, error: BaseException | None) -> PendingTurn | None:
        try:
            answer = self.inner_answer if self.answer is None else self.answer
            recording = _recorder.end(self.id, answer, error)
            if recording is None:  # sampled out, part of another turn, or forgotten
                return None
            turn = turn_of(recording)
            if isinstance(error, _NOT_WAITING):
                recording.owner.submit(turn, recording.selection)
                return None
            return deferred.submit(recording.owner, turn, recording.selection)
        except Exception as failure:
            self._pipeline.failed("a turn could not be built from what was recorded", failure)
            return None


class _NestedBlock:
    """A block inside another one: its passages belong to the outer turn.

    Args:
        outer: the outer block.
    """

    def __init__(self, outer: _Block) -> None:
        self._outer = outer

    def add(self, passages: Iterable[Passage]) -> None:
        """Add passages to the outer turn."""
        self._outer.add(passages)

    def respond(self, answer: str) -> None:
        """Set the answer of the outer turn, in case the outer block sets none."""
        self._outer.inner_answer = answer

    def end(self, error: BaseException | None) -> None:
        """Do nothing: the outer block ends the turn."""


_innermost: ContextVar[_Block | None] = ContextVar("rageval_hooks_block", default=None)


def _ambient_block() -> Hashable | None:
    block = _innermost.get()
    return None if block is None else block.id


FRAMEWORK = Framework("manual", turn_from_block, _ambient_block, join=join_inner_turns)
