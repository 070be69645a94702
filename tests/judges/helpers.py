"""What the judge's tests share: a schema, a clock that stands still, and short ways to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pydantic import BaseModel, Field

from rageval_hooks.errors import JudgeError
from rageval_hooks.judges.base import Judge, Judgement
from rageval_hooks.judges.openai import OpenAIJudge
from rageval_hooks.judges.throttling import Clock
from tests.judges.server import JudgeServer

KEY = "sk-test-0123456789abcdefghijklmnop"


class Grade(BaseModel):
    """A grade from 0 to 3, and why."""

    grade: int = Field(ge=0, le=3, description="The grade.")
    why: str = ""


FIXED_NONCE = "00c0ffee"
GOOD = {"grade": 3, "why": "exact"}
PROMPT = (("system", "You grade passages."), ("user", "The passages: …"), ("user", "Which grade?"))


class StillClock(Clock):
    """A clock that moves only while a caller sleeps on it.

    Attributes:
        slept: the pauses, in seconds.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def random(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def judge_of(server: JudgeServer, **options: Any) -> OpenAIJudge:
    """Return a judge that asks the server."""
    return OpenAIJudge("judge-model", **{"base_url": server.url, "api_key": KEY, **options})


def ask(judge: Judge, messages: Iterable[Any] = PROMPT, schema: type[Any] = Grade, **options: Any) -> Judgement[Any]:
    """Ask one question on a new event loop."""
    return asyncio.run(judge.complete(messages, schema, **options))


def failure(judge: Judge, kind: type[JudgeError], **options: Any) -> JudgeError:
    """Ask one question that must fail, and return how."""
    with pytest.raises(kind) as caught:
        ask(judge, **options)
    assert type(caught.value) is kind
    return caught.value


async def until(condition: Callable[[], bool]) -> None:
    """Let the other tasks of the event loop run until a condition is met, for at most 30 seconds."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)
