"""Asks an application one question, with a time limit, and captures what the frameworks do for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from typing import Any, NamedTuple

from rageval_hooks.integrations.capture.deferred import settle
from rageval_hooks.integrations.manual.block import Block
from rageval_hooks.integrations.offline_support import installed_support
from rageval_hooks.models import Models
from rageval_hooks.offline.apps.answers import collected
from rageval_hooks.offline.apps.loading import App
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.settings import Settings
from rageval_hooks.turn import Turn


class Asked(NamedTuple):
    """The outcome of a question.

    Attributes:
        result: what the application returned.
        error: the exception; None if the application returned.
        turn: what the integrations captured; without steps if they saw nothing.
    """

    result: Any
    error: BaseException | None
    turn: Turn | None


async def ask(app: App, question: str, capture: Capture, timeout: float) -> Asked:
    """Ask one question. Run this in a separate task, so that changes of the context end with it.

    Args:
        app: the application; a plain function runs in a new thread, a coroutine function on this event loop.
        question: the question.
        capture: captures what the frameworks do.
        timeout: seconds; a thread that takes longer is abandoned.
    """
    block = capture.begin(question)
    work = asyncio.ensure_future(_call(app, question))
    error: BaseException | None = None
    try:
        done, _ = await asyncio.wait({work}, timeout=timeout)
    finally:
        work.cancel()
    if not done:
        error = TimeoutError(f"no answer within {timeout:g} s")
        await asyncio.wait({work}, timeout=0.1)  # lets a cancelled chain report its end
    elif work.cancelled():
        error = RuntimeError("the application cancelled its own task")
    else:
        error = work.exception()
    if app.framework:
        # The end of a stream may be on its way from a generator that was closed.
        await asyncio.to_thread(settle, 5.0)
    return Asked(None if error is not None else work.result(), error, capture.end(block, error))


async def _call(app: App, question: str) -> Any:
    """Return what the application returns; a stream is read to its end."""
    try:
        if app.asynchronous:
            result = await app.ask(question)
        else:
            result = await _in_thread(lambda: collected(app.ask(question)))
            result = await result if isinstance(result, Awaitable) else result
        if hasattr(result, "__aiter__"):
            return "".join([str(getattr(part, "content", part)) async for part in result])
        return collected(result)
    except SystemExit as error:  # the application's, not ours
        raise RuntimeError(f"SystemExit: {error}") from error


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a new daemon thread, in this context.

    A pool's threads would be joined at exit, and a question without an end would keep the process alive.
    """
    future: Future[Any] = Future()
    # After the timeout a question is abandoned: its future is neither cancelled nor awaited.
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            # SystemExit would end us, and asyncio cannot pass a StopIteration on.
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            future.set_exception(error if is_plain else RuntimeError(f"{type(error).__name__}: {error}"))

    threading.Thread(target=copy_context().run, args=(work,), name="rageval-run", daemon=True).start()
    return await asyncio.wrap_future(future)


class _Collector(Pipeline):
    """Keeps the turns that are handed over. Nothing is evaluated.

    Settings in the environment are ignored: they are meant for the application.
    """

    def __init__(self) -> None:
        settings = Settings.model_construct(
            exporters=(), spans="rag", evaluate_unsampled=True, evaluate_without_retrieval=True
        )
        super().__init__(settings, [], [], Models(settings.models))
        self.holds_interrupted = False
        self.computes_inline = True  # a turn is built, and handed over, before its call returns
        self.turns: dict[str | None, Turn] = {}

    def submit(
        self, turn: Turn | Callable[[], Turn], context: TurnContext | None = None, *, computes_inline: bool = True
    ) -> PendingTurn:
        """Keep a turn that has just ended."""
        built = turn if isinstance(turn, Turn) else turn()
        self.turns[built.id] = built
        return DONE


class Capture:
    """Captures what the installed frameworks do, while :meth:`attached` runs.

    Each question is a block, as of ``start_turn``: what the frameworks do in its context is one turn, and concurrent
    questions are not mixed.
    """

    def __init__(self) -> None:
        self._pipeline = _Collector()
        self._watches: list[Callable[[], object]] = []

    @contextmanager
    def attached(self) -> Iterator[Capture]:
        """Capture while the block runs. What ``instrument()`` attached to LlamaIndex is detached."""
        with ExitStack() as stack:
            for support in installed_support():
                self._watches.append(stack.enter_context(support.capturing(self._pipeline)))
            yield self

    def begin(self, question: str) -> Block:
        """Begin a question in the current context, which should be the question's own."""
        for watch in self._watches:
            watch()
        return Block(self._pipeline, Turn(query=question))

    def end(self, block: Block, error: BaseException | None) -> Turn | None:
        """End a question, and return its turn."""
        block.end(error)
        return self._pipeline.turns.pop(block.id, None)
