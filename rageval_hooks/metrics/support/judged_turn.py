"""A turn before its judge: the prompt's shared beginning, and answers that several metrics use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from rageval_hooks.judges.base import Judge, Judgement
from rageval_hooks.judges.prompts.delimiters import Fence
from rageval_hooks.text.keys import KeyedSentence, key_passages, key_response
from rageval_hooks.turn import Message, Turn

__all__ = ["JudgedTurn", "Named"]

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_INSTRUCTIONS = """\
You assess how a question-answering system has worked that searches documents and answers from what it finds.
You are given the user's question and the passages that the system has found; tasks follow, one at a time.
Judge by what the texts say, not by what you know or would like, and be strict where you are in doubt.

{notice}

Each sentence of a passage stands on a line of its own and begins with its key: the passage's number, then letters
(0a, 0b, 1a). Sentences of an answer have keys of letters alone (a, b, c). Name sentences by these keys only."""


class Named(Protocol):
    """What is known here of a metric: that it has a name."""

    @property
    def name(self) -> str:
        """As users name it."""


class JudgedTurn:
    """A turn, its judge, and what the judge has said of it so far. Lives in one event loop.

    All questions about the turn begin with the same bytes: instructions, the user's question and the passages. Those
    about the response go on with the response, again in the same bytes, and end with the task.

    Args:
        turn: the turn.
        judge: who is asked.
        metrics: those that ask the judge about this turn: what one of them finds out as it was set up, the others use.
    """

    def __init__(self, turn: Turn, judge: Judge, metrics: Iterable[Named] = ()) -> None:
        self.turn = turn
        self.judge = judge
        self._metrics = tuple(metrics)
        self.judgements: list[Judgement[Any]] = []
        self._once: dict[Hashable, asyncio.Future[Any]] = {}

    def metrics(self, kind: type[T]) -> list[T]:
        """Return the metrics of one kind that run for this turn, as they were set up."""
        return [metric for metric in self._metrics if isinstance(metric, kind)]

    @cached_property
    def passages(self) -> list[KeyedSentence]:
        """The sentences of the passages, with their keys."""
        return key_passages(passage.text for passage in self.turn.passages)

    @cached_property
    def response(self) -> list[KeyedSentence]:
        """The sentences of the response, with their keys."""
        return key_response(self.turn.response)

    @cached_property
    def fence(self) -> Fence:
        """Keeps the turn's texts in their frames."""
        return Fence([*self.turn.texts(), self.turn.reference or ""])

    @cached_property
    def prefix(self) -> Message:
        """What every question begins with."""
        lines: dict[int, list[str]] = {number: [] for number in range(len(self.turn.passages))}
        for sentence in self.passages:
            if sentence.passage is not None:
                lines[sentence.passage].append(f"{sentence.key}: {sentence.text}")
        frames = [self.fence.frame(f"passage {number}", "\n".join(text)) for number, text in lines.items()]
        parts = [
            _INSTRUCTIONS.format(notice=self.fence.notice),
            self.fence.frame("question", self.turn.query),
            *frames,
        ]
        return Message(role="system", content="\n\n".join(parts))

    @cached_property
    def framed_response(self) -> str:
        """The response with its keys, in its frame."""
        lines = (f"{sentence.key}: {sentence.text}" for sentence in self.response)
        return self.fence.frame("answer", "\n".join(lines))

    async def ask(
        self,
        task: str,
        schema: type[M],
        *,
        about_response: bool = False,
        parameters: Mapping[str, Any] | None = None,
    ) -> Judgement[M]:
        """Ask the judge one question about the turn.

        Args:
            task: what is to be found out, after everything else.
            schema: the form of the answer.
            about_response: put the system's answer before the task.
            parameters: sampling parameters for this question.

        Raises:
            JudgeError: there is no usable answer.
        """
        content = f"{self.framed_response}\n\n{task}" if about_response else task
        messages = [self.prefix, Message(role="user", content=content)]
        judgement = await self.judge.complete(messages, schema, parameters=parameters)
        self.judgements.append(judgement)
        return judgement

    async def once(self, key: Hashable, find: Callable[[], Awaitable[T]]) -> T:
        """Return what several metrics need; whoever asks first has it found out, the others wait for it.

        Args:
            key: what it is.
            find: finds it out. If it raises, it raises for all.
        """
        future = self._once.get(key)
        if future is None:
            future = self._once[key] = asyncio.ensure_future(_awaited(find))
            future.add_done_callback(_look)
        return await asyncio.shield(future)


async def _awaited(find: Callable[[], Awaitable[T]]) -> T:
    return await find()


def _look(future: asyncio.Future[Any]) -> None:
    """Take note of a failure that nobody waits for any more: a shutdown has cancelled those who did."""
    if not future.cancelled():
        future.exception()
