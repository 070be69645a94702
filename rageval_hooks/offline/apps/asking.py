"""Asks an application one question, with a time limit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from rageval_hooks.offline.apps.answers import collected
from rageval_hooks.offline.apps.loading import App
from rageval_hooks.offline.apps.turn_capture import Capture
from rageval_hooks.turn import Turn

__all__ = ["Asked", "ask"]

_SETTLING = 5.0


@dataclass
class Asked:
    """The outcome of a question.

    Attributes:
        result: what the application returned.
        error: the exception; None if the application returned.
        turns: what the integrations captured.
    """

    result: Any = None
    error: BaseException | None = None
    turns: list[Turn] = field(default_factory=list)


async def ask(app: App, question: str, capture: Capture, timeout: float) -> Asked:
    """Ask one question. Run this in a separate task, so that changes of the context end with it.

    Args:
        app: the application; a plain function runs in a new thread, a coroutine function on this event loop.
        question: the question.
        capture: captures what the frameworks do.
        timeout: seconds; a thread that takes longer is abandoned.
    """
    captured = capture.begin()
    work = asyncio.ensure_future(_call(app, question))
    asked = Asked()
    try:
        done, _ = await asyncio.wait({work}, timeout=timeout)
    finally:
        work.cancel()
    if not done:
        asked.error = TimeoutError(f"no answer within {timeout:g} s")
        await asyncio.wait({work}, timeout=0.1)  # lets a cancelled chain report its end
    elif work.cancelled():
        asked.error = RuntimeError("the application cancelled its own task")
    else:
        asked.error = work.exception()
        asked.result = None if asked.error is not None else work.result()
    if not captured.turns and app.framework:
        from rageval_hooks.integrations.capture.deferred import settle

        await asyncio.get_running_loop().run_in_executor(None, settle, _SETTLING)
    asked.turns = list(captured.turns)
    return asked


async def _call(app: App, question: str) -> Any:
    try:
        if app.asynchronous:
            return await _read(await app.ask(question))
        result = await _in_thread(lambda: collected(app.ask(question)))
        return await _read(await result) if isinstance(result, Awaitable) else await _read(result)
    except SystemExit as error:  # the application's, not ours
        raise RuntimeError(f"SystemExit: {error}") from error


async def _read(result: Any) -> Any:
    """Return a result; an asynchronous stream is read to its end."""
    if hasattr(result, "__aiter__"):
        return "".join([str(getattr(part, "content", part)) async for part in result])
    return collected(result)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a new daemon thread, in this context: the interpreter does not wait for it at exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(outcome: tuple[Any, BaseException | None]) -> None:
        if not future.done():
            future.set_result(outcome)

    def work() -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = (function(), None)
        except BaseException as error:  # SystemExit too
            outcome = (None, error)
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    # A pool's threads would be joined at exit, and a question without an end would keep the process alive.
    threading.Thread(target=copy_context().run, args=(work,), name="rageval-run", daemon=True).start()
    result, error = await future
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
    return result
