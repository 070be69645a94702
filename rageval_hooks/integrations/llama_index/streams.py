"""Following a streamed answer: LlamaIndex ends the span before the answer is read, the turn ends after it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import Token
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.capture.deferred import hand_over, running_loop

__all__ = ["Follower", "when_dropped"]

OnEnd = Callable[[BaseException | None], None]


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
        on_text: Callable[[Any], None] | None = None,
        on_end: OnEnd | None = None,
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
        followed = self._aread(aiter(stream)) if _is_asynchronous(stream) else self._read(iter(stream))
        if self._on_end is not None:
            # A generator that was never started runs none of its code when it is dropped.
            self._finalizer = when_dropped(followed, self._abandon)
        return followed

    def _read(self, stream: Any) -> Generator[Any, None, None]:
        try:
            while True:
                try:
                    text = self._next(stream)
                except StopIteration:
                    break
                if self._on_text is not None:
                    self._on_text(text)
                yield text
        except GeneratorExit:
            try:
                if hasattr(stream, "close"):
                    stream.close()
            finally:
                self._abandon()
            raise
        except BaseException as error:
            self._finish(error)
            raise
        self._finish(None)

    def _next(self, stream: Any) -> Any:
        token = active_span_id.set(self._span_id)
        try:
            return next(stream)
        finally:
            _leave_span(token)

    async def _aread(self, stream: Any) -> AsyncGenerator[Any, None]:
        try:
            while True:
                try:
                    text = await self._anext(stream)
                except StopAsyncIteration:
                    break
                if self._on_text is not None:
                    self._on_text(text)
                yield text
        except GeneratorExit:
            try:
                if hasattr(stream, "aclose"):
                    await stream.aclose()
            finally:
                self._abandon()
            raise
        except BaseException as error:
            self._finish(error)
            raise
        await self._afinish()

    async def _anext(self, stream: Any) -> Any:
        token: Token[str | None] | None = active_span_id.set(self._span_id)
        try:
            return await anext(stream)
        except GeneratorExit:
            # An abandoned task is destroyed here. Its context goes with it, so the variable is not set back.
            token = None
            raise
        finally:
            if token is not None:
                _leave_span(token)

    def _abandon(self) -> None:
        """Report that the stream was not read to its end. Safe in a finalizer."""
        on_end = self._take_on_end()
        if on_end is not None:
            hand_over(on_end, GeneratorExit())

    def _finish(self, error: BaseException | None) -> None:
        on_end = self._take_on_end()
        if on_end is None:
            return
        if running_loop() is not None:
            hand_over(on_end, error)  # computing scores here would block the event loop
        else:
            on_end(error)

    async def _afinish(self) -> None:
        """Report the end. The reader waits for the scores, the event loop does not."""
        on_end = self._take_on_end()
        if on_end is not None:
            await asyncio.shield(asyncio.wrap_future(hand_over(on_end, None)))

    def _take_on_end(self) -> OnEnd | None:
        """Return the callback the first time, then None."""
        on_end, self._on_end = self._on_end, None
        if self._finalizer is not None:
            self._finalizer.detach()
        return on_end


def _is_asynchronous(stream: Any) -> bool:
    # A proxy may have the methods of both kinds, so real generators are told apart by their type.
    if isinstance(stream, (GeneratorType, AsyncGeneratorType)):
        return isinstance(stream, AsyncGeneratorType)
    return hasattr(stream, "__anext__")


def _leave_span(token: Token[str | None]) -> None:
    try:
        active_span_id.reset(token)
    except ValueError:
        return  # the next piece is read in another context


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
