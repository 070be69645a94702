"""Answers that are streamed: their spans end before the model is even called, the turn when the last word was read."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Hashable
from contextvars import Token
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.capture.deferred import hand_over, running_loop
from rageval_hooks.integrations.capture.recorder import Run

__all__ = ["Follower", "hold", "leave", "release", "when_dropped"]

_lock = threading.RLock()  # the garbage collector may close a generator while its thread is in here


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


# --------------------------------------------------------------------------- what a root waits for

Key = tuple[str, Hashable]
"""What is streamed: an ``answer`` to its reader, by a ``writer`` to a chat's history, or by a model, an ``llm``."""


class _Streams:
    """What a root waits for once its span has ended."""

    __slots__ = ("done", "left", "models", "open")

    def __init__(self) -> None:
        self.open: set[Key] = set()
        self.done: set[Key] = set()
        self.left = False
        self.models = False

    @property
    def over(self) -> bool:
        return self.left and not any(self.models or kind != "llm" for kind, _ in tuple(self.open))


def hold(root: Run, key: Key) -> None:
    """Let a root wait for something that is being streamed."""
    with _lock:
        _streams(root).open.add(key)


def release(root: Run, key: Key, error: BaseException | None = None) -> bool:
    """Note that something was streamed to its end, or failed; returns whether that ends the root."""
    with _lock:
        streams = _streams(root)
        streams.done.add(key)
        if key not in streams.open:
            return False
        streams.open.discard(key)
        if error is not None and root.error is None and (key[0] != "llm" or streams.models):
            root.error = error
        return streams.over


def leave(root: Run, writer: Key | None, *, models: bool) -> bool:
    """Note that a root's span has ended without an error; returns whether the root has ended with it.

    Args:
        root: the root.
        writer: what a thread or a task was started for, that may not have begun yet, or may have ended already.
        models: whether to wait for model calls whose streams nobody follows.
    """
    with _lock:
        streams = _streams(root)
        if writer is not None and writer not in streams.done:
            streams.open.add(writer)
        streams.left, streams.models = True, models
        return streams.over


def _streams(root: Run) -> _Streams:
    if root.details is None:
        root.details = {}
    streams: _Streams = root.details.setdefault("streams", _Streams())
    return streams


# --------------------------------------------------------------------------- following a generator


class Follower:
    """Watches one answer being read.

    Args:
        span_id: the span that the generator's work belongs to. It runs wherever it is read, outside of that span.
        on_text: called with every piece.
        on_end: called once, with the exception that ended it, or None; GeneratorExit if it was not read to its end.
            Not in an event loop, and not on a thread that happens to collect garbage: there a pool's thread calls it.
    """

    def __init__(
        self,
        span_id: str,
        on_text: Callable[[Any], None] | None = None,
        on_end: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        self._span_id = span_id
        self._on_text = on_text
        self._on_end = on_end
        self._finalizer: weakref.finalize[..., Any] | None = None

    @staticmethod
    def follows(stream: Any) -> bool:
        """Whether a generator is one that is followed already."""
        code = getattr(stream, "gi_code", None) or getattr(stream, "ag_code", None)
        return code in (Follower._read.__code__, Follower._aread.__code__)

    def follow(self, stream: Any) -> Any:
        """Return a generator that yields what a generator yields."""
        followed = self._aread(aiter(stream)) if _is_asynchronous(stream) else self._read(iter(stream))
        if self._on_end is not None:
            self._finalizer = when_dropped(followed, self._dropped)
        return followed

    def _read(self, stream: Any) -> Generator[str, None, None]:
        try:
            while True:
                token = active_span_id.set(self._span_id)
                try:
                    text = next(stream)
                except StopIteration:
                    break
                finally:
                    _leave_span(token)
                if self._on_text is not None:
                    self._on_text(text)
                yield text
        except BaseException as error:
            if isinstance(error, GeneratorExit) and hasattr(stream, "close"):
                stream.close()
            self._end(error)
            raise
        self._end(None)

    async def _aread(self, stream: Any) -> AsyncGenerator[str, None]:
        try:
            while True:
                token = active_span_id.set(self._span_id)
                try:
                    text = await stream.__anext__()
                except StopAsyncIteration:
                    break
                finally:
                    _leave_span(token)
                if self._on_text is not None:
                    self._on_text(text)
                yield text
        except BaseException as error:
            if isinstance(error, GeneratorExit) and hasattr(stream, "aclose"):
                await stream.aclose()
            self._end(error)
            raise
        await self._aend()

    def _dropped(self) -> None:
        self._end(GeneratorExit())

    def _take_end(self) -> Callable[[BaseException | None], None] | None:
        """Return what is to be called at the end, the first time; and let go of it."""
        on_end, self._on_end = self._on_end, None
        if self._finalizer is not None:
            self._finalizer.detach()
        return on_end

    def _end(self, error: BaseException | None) -> None:
        on_end = self._take_end()
        if on_end is None:
            return
        if isinstance(error, GeneratorExit) or running_loop() is not None:
            hand_over(on_end, error)
        else:
            on_end(error)

    async def _aend(self) -> None:
        """End after the last word: its reader waits for what is computed about it, the event loop does not."""
        on_end = self._take_end()
        if on_end is not None:
            await asyncio.shield(asyncio.wrap_future(hand_over(on_end, None)))


def _is_asynchronous(stream: Any) -> bool:
    if isinstance(stream, (GeneratorType, AsyncGeneratorType)):  # or poses as one: a proxy has the methods of both
        return isinstance(stream, AsyncGeneratorType)
    return hasattr(stream, "__anext__")


def _leave_span(token: Token[str | None]) -> None:
    try:  # not with suppress: it comes for each of hundreds of tokens
        active_span_id.reset(token)
    except ValueError:
        return  # it is read on in another context


def when_dropped(stream: Any, function: Callable[[], Any]) -> weakref.finalize[..., Any] | None:
    """Have a function called when nobody holds a generator any more: one that was never begun runs no code itself."""
    try:
        finalizer = weakref.finalize(stream, function)
    except TypeError:  # no generator but like one, and nothing can be known of its end
        return None
    finalizer.atexit = False
    return finalizer
