"""Asks an application one question, with a time limit, and captures what the frameworks do for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from itertools import chain
from typing import Any, NamedTuple

from opentelemetry import context as otel_context

from rageval_hooks.integrations.offline_support import installed_support
from rageval_hooks.models import Models
from rageval_hooks.offline.apps.answers import collected
from rageval_hooks.offline.apps.loading import App
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.settings import Settings
from rageval_hooks.turn import Passage, Timing, Turn, Usage


class Asked(NamedTuple):
    """The outcome of a question.

    Attributes:
        result: what the application returned.
        error: the exception; None if the application returned.
        turn: what the integrations captured; None if they saw nothing.
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
    captured = capture.begin()
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
    if not captured and app.framework:
        from rageval_hooks.integrations.capture.deferred import settle

        await asyncio.get_running_loop().run_in_executor(None, settle, 5.0)
    return Asked(None if error is not None else work.result(), error, joined(captured))


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


_KEY = otel_context.create_key("rageval-run-question")


class _Collector(Pipeline):
    """Assigns every turn to its question by the OpenTelemetry context in which the turn began.

    The context follows the caller through threads and tasks, so that turns of concurrent questions are not mixed, and
    the application's own trace stays unchanged. Nothing is evaluated. Settings in the environment are ignored: they
    are meant for the application.
    """

    def __init__(self) -> None:
        settings = Settings.model_construct(
            exporters=(), spans="rag", evaluate_unsampled=True, evaluate_without_retrieval=True
        )
        super().__init__(settings, [], [], Models(settings.models))
        self.holds_interrupted = False
        self.computes_inline = True  # a turn is built, and handed over, before its call returns

    def submit(
        self, turn: Turn | Callable[[], Turn], context: TurnContext | None = None, *, computes_inline: bool = True
    ) -> PendingTurn:
        """Keep a turn that has just ended."""
        if context is None:
            return DONE
        captured = otel_context.get_value(_KEY, context.context)
        if isinstance(captured, list):
            captured.append(turn if isinstance(turn, Turn) else turn())
        return DONE


class Capture:
    """Captures what the installed frameworks do, while :meth:`attached` runs."""

    def __init__(self) -> None:
        self._pipeline = _Collector()
        self._watches: list[Callable[[], None]] = []

    @contextmanager
    def attached(self) -> Iterator[Capture]:
        """Capture while the block runs. What ``instrument()`` attached to LlamaIndex is detached."""
        with ExitStack() as stack:
            for support in installed_support():
                self._watches.append(stack.enter_context(support.capturing(self._pipeline)))
            yield self

    def begin(self) -> list[Turn]:
        """Return the list to which the turns of the current context are added from now on, in the order of their ends.

        The context should be the question's own.
        """
        captured: list[Turn] = []
        otel_context.attach(otel_context.set_value(_KEY, captured))
        for watch in self._watches:
            watch()
        return captured


def joined(turns: Sequence[Turn]) -> Turn | None:
    """Merge the turns that one question caused.

    A function that calls a retriever and a model directly produces several.
    The answer is that of the last turn with one; the passages are those of all.
    """
    if len(turns) < 2:
        return next(iter(turns), None)
    turns = sorted(turns, key=lambda turn: turn.timing.started_at if turn.timing else 0)
    answered = [turn for turn in turns if turn.response]
    # The output of a parser or a router is an answer too, but seldom the one that the user reads.
    written = [turn for turn in answered if turn.prompt or turn.model]
    # An application that failed has turns without an answer.
    last = (written or answered or turns)[-1]
    # The turn of a bare retriever has what it was asked as its question.
    queries = [query for turn in turns for query in (turn.query if turn.passages else "", *turn.retrieval_queries)]
    return last.model_copy(
        update={
            "passages": _all_passages(turns, last),
            "retrieval_queries": tuple(dict.fromkeys(filter(None, queries))),
            "steps": tuple(chain.from_iterable(turn.steps for turn in turns)),
            "usage": Usage.sum(turn.usage for turn in turns),
            "timing": _timing([turn.timing for turn in turns if turn.timing is not None]),
        }
    )


def _all_passages(turns: Sequence[Turn], last: Turn) -> tuple[Passage, ...]:
    from rageval_hooks.integrations.capture.passages import mark_seen, unique_passages

    passages = unique_passages(chain.from_iterable(turn.passages for turn in turns))
    is_marked = all(passage.in_prompt is not None for passage in passages)
    if is_marked or not last.prompt:
        return passages
    # A retriever that was called directly has no prompt: its passages are in that of the model.
    texts = [message.content for message in last.prompt]
    return mark_seen(passages, "\n".join(texts))


def _timing(timings: Sequence[Timing]) -> Timing | None:
    if not timings:
        return None
    return Timing(
        started_at=min(timing.started_at for timing in timings),
        ended_at=max(timing.ended_at for timing in timings),
        retrieval=_sum(timing.retrieval for timing in timings),
        generation=_sum(timing.generation for timing in timings),
    )


def _sum(seconds: Iterable[float | None]) -> float | None:
    """Return the sum of what is known; None if nothing is known, which is not 0 seconds."""
    known = [value for value in seconds if value is not None]
    return sum(known) if known else None
