"""Following a streamed answer: LlamaIndex ends the span before the answer is read, the turn ends after it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from concurrent.futures import Future
from contextlib import suppress
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.capture.deferred import hand_over, in_event_loop
from rageval_hooks.integrations.capture.event_source import EventSource
from rageval_hooks.integrations.capture.recorder import Run, shared_recorder
from rageval_hooks.integrations.llama_index.runs import LlamaIndexRun, StreamKey
from rageval_hooks.integrations.llama_index.values import Streamed, is_generator, streamed_in
from rageval_hooks.online.pending import PendingTurn


class Follower:
    """Watches one answer while it is read.

    The garbage collector may close an abandoned generator at any time, also inside ``ContextVar.set`` (which crashes
    CPython 3.11 if the variable is set again) or while a lock is held. The code that runs when a generator is closed
    therefore only puts a call into the queue of another thread.

    Args:
        span_id: the span that the generator's work belongs to. The generator runs outside of that span, in the context
            of its reader.
        on_text: called with every piece.
        on_end: called once, with the exception that ended the stream or None. It is GeneratorExit if the stream was
            not read to its end. In an event loop, and for a stream that was not read to its end, another thread calls.
    """

    def __init__(
        self,
        span_id: str,
        on_text: Callable[[Any], object] = lambda _: None,
        on_end: Callable[[BaseException | None], PendingTurn | None] | None = None,
    ) -> None:
        self._span_id = span_id
        self._on_text = on_text
        self._on_end = on_end
        self._finalizer: weakref.finalize[..., Any] | None = None

    @staticmethod
    def follows(stream: Any) -> bool:
        """Return True if a generator was made by :meth:`follow`."""
        code = getattr(stream, "gi_code", None) or getattr(stream, "ag_code", None)
        return code in (Follower._read.__code__, Follower._aread.__code__)

    def follow(self, stream: Any) -> Any:
        """Return a generator that yields what another one yields."""
        # A proxy may have the methods of both kinds, so real generators are told apart by their type.
        is_generator = isinstance(stream, (GeneratorType, AsyncGeneratorType))
        is_asynchronous = isinstance(stream, AsyncGeneratorType) if is_generator else hasattr(stream, "__anext__")
        followed = self._aread(aiter(stream)) if is_asynchronous else self._read(iter(stream))
        # A generator that was never started runs none of its code when it is dropped.
        self._finalizer = when_dropped(followed, lambda: self._end(GeneratorExit()))
        return followed

    def _read(self, stream: Any) -> Generator[Any, None, None]:
        try:
            while True:
                try:
                    with _InsideSpan(self._span_id):
                        text = next(stream)
                except StopIteration:
                    break
                self._on_text(text)
                yield text
        except GeneratorExit as closed:
            try:
                if hasattr(stream, "close"):
                    stream.close()
            finally:
                self._end(closed)
            raise
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)

    async def _aread(self, stream: Any) -> AsyncGenerator[Any, None]:
        try:
            while True:
                try:
                    with _InsideSpan(self._span_id):
                        text = await anext(stream)
                except StopAsyncIteration:
                    break
                self._on_text(text)
                yield text
        except GeneratorExit as closed:
            try:
                if hasattr(stream, "aclose"):
                    await stream.aclose()
            finally:
                self._end(closed)
            raise
        except BaseException as error:
            self._end(error)
            raise
        # The reader waits for the scores, the event loop does not.
        if (pending := self._end(None)) is not None:
            await (await asyncio.shield(asyncio.wrap_future(pending)))

    def _end(self, error: BaseException | None) -> Future[PendingTurn] | None:
        """Report the end of the stream, once. Safe in a finalizer if the error is GeneratorExit."""
        on_end, self._on_end = self._on_end, None
        if self._finalizer is not None:
            self._finalizer.detach()
        if on_end is None:
            return None
        if isinstance(error, GeneratorExit) or in_event_loop():  # computing scores here would block the event loop
            return hand_over(on_end, error)
        on_end(error)
        return None


class _InsideSpan:
    """A block whose work belongs to a span."""

    def __init__(self, span_id: str) -> None:
        self._span_id = span_id

    def __enter__(self) -> None:
        self._token = active_span_id.set(self._span_id)

    def __exit__(self, kind: type[BaseException] | None, _error: object, _traceback: object) -> None:
        # With GeneratorExit an abandoned task is destroyed. Its context goes with it, so the variable is not set back.
        if kind is None or not issubclass(kind, GeneratorExit):
            with suppress(ValueError):  # the next piece is read in another context
                active_span_id.reset(self._token)


def when_dropped(stream: Any, function: Callable[[], Any]) -> weakref.finalize[..., Any] | None:
    """Have a function called when a generator is garbage collected.

    Args:
        stream: the generator.
        function: must be safe in a finalizer.

    Returns:
        None if the object is not a real generator and cannot be watched.
    """
    try:
        finalizer = weakref.finalize(stream, function)
    except TypeError:
        return None
    finalizer.atexit = False
    return finalizer


# --------------------------------------------------------------------------- the end of a turn


_MEANINGFUL = frozenset({"query", "chat", "agent", "workflow", "synthesizer", "retriever", "reranker", "llm", "tool"})
_WRITERS = ("write_response_to_history_thread", "awrite_response_to_history_task")
"""Attributes of a streamed chat response: the thread or the task that adds it to the history."""

_recorder = shared_recorder()
source = EventSource()
"""The one source of events: LlamaIndex has one dispatcher."""


def _root_of(run: Run) -> LlamaIndexRun | None:
    """Return the root that waits for streams. A root of another framework ends when that framework says so."""
    recording = _recorder.recording(run.id)
    return recording.root if recording is not None and isinstance(recording.root, LlamaIndexRun) else None


def wait_for(run: Run, key: StreamKey) -> None:
    """Let the root of a run wait for a stream."""
    root = _root_of(run)
    if root is not None:
        root.streams.open.add(key)


def end(run_id: Hashable, output: Any, error: BaseException | None = None) -> PendingTurn | None:
    """End a run; if it is a root, submit its turn and return it."""
    recording = _recorder.end(run_id, output, error)
    # A turn of nothing else is for example a node parser that is used on its own.
    if recording is None or not any(run.kind in _MEANINGFUL for run in recording.runs):
        return None
    return deferred.submit(recording)


def end_root_span(root: LlamaIndexRun, result: Any) -> None:
    """Record that a root's span has ended. The turn ends too, unless something is still being streamed."""
    streamed = streamed_in(result)
    root.output = Streamed(id(streamed[0])) if streamed else result
    streams = root.streams
    if any(getattr(result, name, None) is not None for name in _WRITERS):
        # The writer may not have started yet, or have finished already: added first, then removed, so that a writer
        # that finishes at this moment is not waited for forever.
        writer = ("writer", id(result))
        streams.open.add(writer)
        if writer in streams.finished:
            streams.open.discard(writer)
    # If the root returns a model's own stream, the end of the model call is the end of the answer.
    streams.models_count = any(map(is_generator, streamed))
    streams.span_ended = True
    if streams.turn_is_over:
        end(root.id, root.output, root.error)
    elif (recording := _recorder.recording(root.id)) is not None:
        _recorder.count_memory(recording, recording.size)


def finish_stream(run: Run, key: StreamKey, error: BaseException | None) -> PendingTurn | None:
    """Record that a stream has ended. If the turn waited for no other stream, submit and return it."""
    root = _root_of(run)
    if root is None:
        return None
    streams = root.streams
    streams.finished.add(key)
    if key not in streams.open:
        return None
    streams.open.discard(key)
    # A model inside of an engine may fail, and the engine may try another one.
    is_of_answer = key[0] != "llm" or streams.models_count
    if is_of_answer and root.error is None:
        root.error = error
    return end(root.id, root.output, root.error) if streams.turn_is_over else None
