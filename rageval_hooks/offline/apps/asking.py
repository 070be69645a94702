"""One question to an application, with a time limit: the result, or how it failed, and what was seen meanwhile."""

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
    """What came of a question.

    Attributes:
        result: what the application returned.
        error: the exception that it ended with; None if it returned.
        turns: what the integrations saw of it.
    """

    result: Any = None
    error: BaseException | None = None
    turns: list[Turn] = field(default_factory=list)


async def ask(app: App, question: str, capture: Capture, timeout: float) -> Asked:
    """Ask one question. Runs in a task of its own: what it sets in the context is gone with it.

    Args:
        app: who is asked; a plain function on a thread of its own, a coroutine function on this event loop.
        question: the question.
        capture: sees what the frameworks do.
        timeout: seconds; a thread that takes longer is left to itself.
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
        await asyncio.wait({work}, timeout=0.1)  # a cancelled chain says that it was
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
    """Return a result with its asynchronous stream, if it is one, read to the end."""
    if hasattr(result, "__aiter__"):
        return "".join([str(getattr(part, "content", part)) async for part in result])
    return collected(result)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Run a function on a thread of its own, in this context. The interpreter's exit does not wait for it."""
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
        with suppress(RuntimeError):  # nobody waits any more: the event loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=copy_context().run, args=(work,), name="rageval-run", daemon=True).start()
    result, error = await future
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
    return result
