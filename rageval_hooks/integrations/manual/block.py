"""Records one block of ``start_turn`` as a run, and makes one turn of it and of the framework runs inside it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from opcode import opname
from types import FrameType
from typing import Any
from uuid import uuid4

from rageval_hooks.integrations.capture import authorship, deferred, turns
from rageval_hooks.integrations.capture.passages import mark_dropped, mark_seen, unique_passages
from rageval_hooks.integrations.capture.recorder import Framework, Run, shared_recorder
from rageval_hooks.integrations.capture.trace_context import span_reference
from rageval_hooks.integrations.capture.values import last_of, or_else
from rageval_hooks.online.pending import PendingTurn
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.interrupts import raise_interrupt
from rageval_hooks.runtime.suppression import is_suppressed
from rageval_hooks.turn import Message, Passage, SpanReference, Step, Turn

_recorder = shared_recorder()


def begin(pipeline: Pipeline, given: Turn) -> Block | None:
    """Start to record a turn; None if nothing is captured here."""
    if not pipeline.enabled or is_suppressed():
        return None
    block = Block(pipeline)
    try:
        block.start(given)
        return block
    except BaseException as error:
        block.failed("the start of a turn could not be recorded", error)
        return None


class Block:
    """A turn in progress. Its methods raise nothing but interrupts.

    Args:
        pipeline: receives the turn.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.id = str(uuid4())
        self.answer: str | None = None
        self.inner_answer: str | None = None
        self.pieces: list[str] = []
        self.is_partial = False
        self._passages: list[Passage] = []
        self._pipeline = pipeline
        self._before = _innermost.get()
        self._outer = _current()  # inside another open block, this one only adds to it
        self._encloses = False
        self._has_ended = False
        self._trace_id = ""
        self._generator: FrameType | None = None

    def start(self, given: Turn) -> None:
        """Record the start.

        Args:
            given: what the application says about the turn.
        """
        if self._outer is not None:
            return
        # Joined only now: with one more framework the recorder looks up more for each run.
        _recorder.join(FRAMEWORK)
        run = _recorder.start(
            self._pipeline, self.id, None, framework=FRAMEWORK, kind="block", name="turn", input=given.query
        )
        if isinstance(run, _BlockRun):
            run.given, run.passages = given, self._passages
            deferred.prepare()
        # Inside a framework's run, that run is the turn, and what follows belongs to it as if there were no block.
        self._encloses = run is None or run.parent is None
        if self._encloses:
            self._generator = _generator_around()
            if self._generator is not None:
                _in_generators[self._generator] = self
            _innermost.set(self)  # last, so that an interrupt leaves no block in the context

    @property
    def is_running(self) -> bool:
        """False if the block has ended, or while the reader of its generator has control."""
        # In a forked child, blocks of the parent are not open.
        if self._has_ended or not _recorder.knows(self.id):
            return False
        return self._generator is None or not _is_at_yield(self._generator)

    @property
    @or_else("")  # spans of other tracers are asked
    def trace_id(self) -> str:
        """The id of the trace that the turn is in; empty if that is not known."""
        if self._trace_id:
            return self._trace_id
        recording = _recorder.around((self._outer or self).id)
        return "" if recording is None else span_reference(recording).trace_id

    def add(self, passages: Iterable[Passage]) -> None:
        """Add passages to the turn."""
        if self._outer is not None:
            self._outer.add(passages)
        else:
            self._passages.extend(passages)

    def respond(self, answer: str) -> None:
        """Set the answer; inside another block, the answer of that one in case it sets none."""
        if self._outer is not None:
            self._outer.inner_answer = answer
        else:
            self.answer = answer

    def end(self, error: BaseException | None) -> PendingTurn | None:
        """Submit the turn. A synchronous caller waits for inline scores here; an asynchronous one awaits the result."""
        if self._outer is not None:
            self._outer.inner_answer = "".join(self.pieces) or self._outer.inner_answer
            return None
        self._has_ended = True
        if self._generator is not None:
            _in_generators.pop(self._generator, None)
            self._generator = None
        if isinstance(error, GeneratorExit) or deferred.closes_generator():
            # The garbage collector may be closing a generator: no context variable may be set, and no work be done.
            deferred.hand_over(self._submit, error)
            return None
        return self._submit(error)

    def _submit(self, error: BaseException | None) -> PendingTurn | None:
        try:
            # Not by a token: a generator may end in another context than it began in.
            if self._encloses and _innermost.get() is self:
                _innermost.set(self._before)
            self._trace_id = self.trace_id  # afterwards the recorder has forgotten it
            answer = "".join(self.pieces) or (self.inner_answer if self.answer is None else self.answer)
            if isinstance(run := _recorder.get(self.id), _BlockRun):
                run.is_partial = self.is_partial
            recording = _recorder.end(self.id, answer, error)
            if recording is None:  # sampled out, part of another turn, or forgotten
                return None
            is_cancelled = turns.outcome_of_error(error)[0] == "cancelled"  # its caller does not wait for scores
            pending = deferred.submit(recording, waits=not is_cancelled)
            return None if is_cancelled else pending
        except BaseException as failure:
            self.failed("a turn could not be built from what was recorded", failure)
            return None

    def drop(self) -> None:
        """Drop the turn unless it was submitted. Safe in a finalizer."""
        _recorder.abandon(self.id)

    def failed(self, what: str, error: BaseException) -> None:
        """Drop the turn after an exception, and count an exception of ours."""
        self.drop()
        raise_interrupt(error)
        self._pipeline.failed(what, error)


_innermost: ContextVar[Block | None] = ContextVar("rageval_hooks_block", default=None)


# --------------------------------------------------------------------------- blocks in generators

_in_generators: dict[FrameType, Block] = {}
"""Open blocks in generators, by the frame of the generator.

A generator shares its context with its reader, who has control between two pieces. What the reader does then is not
part of the block: two answers may be read side by side. The generator may also be read in a different context each
time, for example by a web server that reads it on a pool of threads.
"""

_MANAGERS = frozenset({"contextlib", "_pytest.fixtures"})
"""Modules that make context managers of generators. Their block is around what the manager is around."""

_OWN = frozenset({__name__, "rageval_hooks.integrations.manual.open_turn"})


def _current() -> Block | None:
    """Return the block that the calling code is in."""
    frame = sys._getframe(1) if _in_generators else None
    while frame is not None:
        if (block := _in_generators.get(frame)) is not None:
            return block
        frame = frame.f_back
    block = _innermost.get()
    while block is not None and not block.is_running:
        block = block._before
    return block


def _generator_around() -> FrameType | None:
    """Return the frame of the generator whose code opens a block; None outside of generators."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module, caller = frame.f_globals.get("__name__"), frame.f_back
        if module not in _OWN | _MANAGERS:
            is_generator = frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR)
            if not is_generator:
                return None
            if caller is None or caller.f_globals.get("__name__") not in _MANAGERS:
                return frame
        frame = caller
    return None


def _is_at_yield(frame: FrameType) -> bool:
    """Return True if a generator waits for its reader, and not for something that it awaits."""
    if frame.f_back is not None:
        return False  # it runs, on this thread or on another one
    # After a yield, the next instruction is RESUME 1, or RESUME 2 of a "yield from". After an await it is RESUME 3.
    # Higher bits are flags. On a Python without such instructions, the generator counts as running.
    position, code = frame.f_lasti, frame.f_code.co_code
    position += 2 * (opname[code[position]] == "YIELD_VALUE")
    return opname[code[position]] == "RESUME" and code[position + 1] & 3 != 3


# --------------------------------------------------------------------------- from a block to a turn


@dataclass(eq=False, kw_only=True)
class _BlockRun(Run):
    """The run of a block.

    Attributes:
        given: what the application says about the turn.
        passages: the passages that it has named so far.
        is_partial: True if the application did not read its stream to the end.
    """

    given: Turn = field(default_factory=Turn)
    passages: list[Passage] = field(default_factory=list)
    is_partial: bool = False


def _turn_from_block(
    runs: Sequence[_BlockRun],
    *,
    span: SpanReference | None = None,
    attributes: Mapping[str, Any] | None = None,
    **_options: Any,
) -> Turn:
    """Build a turn from what the application said about it.

    Args:
        runs: the block's record.
        span: the turn's position in its trace.
        attributes: what the application put into its OpenTelemetry context: ``session.id``, ``user.id``, ``metadata``.
    """
    block = runs[0]
    given = block.given
    status, error = turns.outcome_of_error(block.error)
    return turns.build_turn(
        block,
        query=given.query,
        passages=unique_passages(tuple(block.passages)),
        response=block.output or "",
        complete=not block.is_partial,
        reference=given.reference,
        span=span,
        status=status,
        error=error,
        session_id=given.session_id,
        user_id=given.user_id,
        metadata=given.metadata,
        attributes=attributes,
    )


def _join_inner_turns(turn: Turn, inner: Sequence[Turn]) -> Turn:
    """Add what frameworks did inside a block.

    Args:
        turn: the block's turn.
        inner: the turns that the frameworks' outermost runs would be by themselves, by start time.
    """
    if not inner:
        return turn

    def text_of(step: Step) -> str:
        return step.output or ""

    def messages_of(step: Step) -> Sequence[Message]:
        return step.messages

    def prompt_of(step: Step) -> str:
        return turns.prompt_text(step.messages)

    # The turns may have run at the same time.
    steps = sorted((step for one in inner for step in one.steps), key=lambda step: step.started_at)
    calls = turns.of_kind(turns.outside_retrieval(steps), "llm")
    # The last inner turn with an answer: one that called a model, because a chain that formats text has a response too.
    with_response = [one for one in inner if one.response]
    answered = last_of([one for one in with_response if turns.of_kind(one.steps, "llm")] or with_response)
    # The model call that wrote the answer; None if no captured call did, for example an HTTP client did.
    own = [] if answered is None else [call for call in calls if call in answered.steps]
    if turn.response:
        writer = authorship.writer_of(turn.response, calls, text_of, messages_of)
    else:  # without a call whose text is the answer, the last one is the most likely
        last_answer = "" if answered is None else answered.response
        writer = authorship.writer_of(last_answer, own, text_of, messages_of) or last_of(own)
    prompt = None
    if writer is not None:
        prompt = "\n".join(map(prompt_of, authorship.contributors(writer, calls, prompt_of, text_of)))
    # The inner turn whose model wrote the answer of the block.
    source = next((one for one in inner if writer is not None and writer in one.steps), None)
    captured_answer = "" if turn.response or answered is None else answered.response
    status = turn.status
    if status == "ok" and not turn.response and inner[-1].status == "interrupted":
        status = "interrupted"  # an error inside the block did not reach its end: the application has handled it
    # What was searched for: a retriever that is called directly is an inner turn whose question is the query.
    searched: list[str] = []
    for one in inner:
        searched += [one.query] if any(map(turns.is_retrieval, one.steps)) else []
        searched += one.retrieval_queries
    first_token = None if writer is None else (writer.started_at, writer.time_to_first_token)
    return turn.model_copy(
        update={
            "query": turn.query or inner[0].query,
            "passages": _passages(turn, inner, source, prompt),
            "retrieval_queries": turns.rewritten(searched, turn.query),
            **turns.fields_of_steps(turn, steps, first_token),
            "status": status,
            "session_id": next((one.session_id for one in (turn, *inner) if one.session_id), None),
            "user_id": next((one.user_id for one in (turn, *inner) if one.user_id), None),
            # For example the citations of the answer. What the application says wins.
            "metadata": {**({} if source is None else source.metadata), **turn.metadata},
            "prompt": () if writer is None else writer.messages,
            "model": None if writer is None else writer.model,
            "framework": (answered or inner[-1]).framework,
            "response": turn.response or captured_answer,
            # The model was stopped, or the block ended with an exception before the application used the answer.
            "complete": turn.complete
            and (answered is None or not captured_answer or (answered.complete and turn.status == "ok")),
        }
    )


def _passages(turn: Turn, inner: Sequence[Turn], source: Turn | None, prompt: str | None) -> tuple[Passage, ...]:
    """Return the passages that the application named, then those that were captured.

    Args:
        turn: the block's turn, with the named passages.
        inner: the framework's turns.
        source: the inner turn that wrote the answer. It knows best which of its passages were in the prompt.
        prompt: the text that the answer was written from; None if it is not known.
    """

    def share(passage: Passage) -> float:
        return passage.prompt_share or 0.0

    # If no named passage is in the prompt, the application has rewritten them, and its word counts.
    marked = mark_seen(turn.passages, prompt)
    named = marked if any(map(share, marked)) else turn.passages

    # Each captured passage once: as the one that shows most of it in the prompt of the whole block's answer.
    captured: dict[str, Passage] = {}
    for one in inner:
        again = one.passages if prompt is None else mark_seen(one.passages, prompt)
        for old, new in zip(one.passages, again, strict=True):
            # The framework may have seen more than the text of the prompt says, for example that a passage was cut.
            passage = max(old, new, key=share) if one is source else new
            captured[passage.text] = max(captured.get(passage.text, passage), passage, key=share)
    named_texts = {passage.text for passage in named}
    others = [passage for passage in captured.values() if passage.text not in named_texts]
    if named and prompt is None:
        # The application named what it gave to the model. The rest was retrieved and not used.
        others = list(map(mark_dropped, others))
    return (*named, *others)


FRAMEWORK = Framework(
    "manual",
    _turn_from_block,
    lambda: getattr(_current(), "id", None),
    join=_join_inner_turns,
    run_class=_BlockRun,
)
