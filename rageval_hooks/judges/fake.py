"""A judge that answers from a script, for tests."""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from rageval_hooks.errors import JudgeAnswerError, JudgeError
from rageval_hooks.judges.answers import UnusableAnswerError, parse_answer
from rageval_hooks.judges.base import AnyMessage, Judge, Judgement, as_messages, usage_details
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.turn import Message, Usage

T = TypeVar("T", bound=BaseModel)

ScriptedAnswer = BaseModel | Mapping[str, Any] | str | Exception
"""An answer: an object, its fields, or a model's text; or an exception to raise."""


@dataclass(frozen=True)
class FakeCall:
    """A question that the judge received.

    Attributes:
        messages: the prompt.
        schema: the schema of the answer.
        parameters: the parameters of this question.
    """

    messages: tuple[Message, ...]
    schema: type[BaseModel]
    parameters: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """The contents of all messages, for assertions."""
        return "\n\n".join(message.content for message in self.messages)


Script = Iterable[ScriptedAnswer] | Mapping[type[BaseModel], ScriptedAnswer] | Callable[[FakeCall], Any]


class FakeJudge(Judge):
    """Answers from a script and records its calls. Answers are parsed and validated like those of a real judge.

    Args:
        script: answers in order; or a mapping from schema to the answer for each call; or a function (plain or async)
            that takes the call and returns an answer.
        model: the name of the model.
        usage: tokens that each answer reports.
        cost: USD that each answer reports.

    Attributes:
        calls: the received calls, in order.

    Example:
        >>> class Grade(BaseModel):
        ...     grade: int
        >>> judge = FakeJudge([{"grade": 3}])
        >>> import asyncio
        >>> asyncio.run(judge.complete([("user", "How good is it?")], Grade)).value
        Grade(grade=3)
    """

    def __init__(
        self, script: Script = (), *, model: str = "fake", usage: Usage | None = None, cost: float | None = None
    ) -> None:
        self.name = "fake"
        self.model = model
        self.calls: list[FakeCall] = []
        self._script = _by_call(script)
        self._usage = usage
        self._cost = cost
        self.has_known_price = cost is not None
        self._lock = ForkSafeLock()
        self._failures: Counter[str] = Counter()

    async def complete(
        self,
        messages: Iterable[AnyMessage],
        schema: type[T],
        *,
        parameters: Mapping[str, Any] | None = None,
    ) -> Judgement[T]:
        """Return the next answer of the script.

        Raises:
            JudgeAnswerError: the script has no answer for this question, or one that does not fit the schema.
        """
        call = FakeCall(as_messages(messages), schema, dict(parameters or {}))
        with self._lock:
            self.calls.append(call)
            number = len(self.calls)
            answer = self._script(call)
        # Outside of the lock: a function of a test may wait for another call.
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is None:
            answer = JudgeAnswerError(f"the script has no answer for {schema.__name__} (call {number})")
        try:
            value = _parse(answer, schema)
        except JudgeError as error:
            with self._lock:
                self._failures[error.kind] += 1
            # A real judge charges for an unusable answer too.
            spent = usage_details(self._usage, self._cost)
            error.details.update({name: fact for name, fact in spent.items() if fact is not None})
            raise
        return Judgement(
            value=value, model=self.model, usage=self._usage, response_id=f"fake-{number}", cost=self._cost
        )

    def stats(self) -> dict[str, Any]:
        """Return the number of calls, and of failures by kind."""
        return {"judge": str(self), "calls": len(self.calls), "failed": dict(self._failures)}


def _by_call(script: Script) -> Callable[[FakeCall], Any]:
    """Return a function for answers by schema, or for answers in order, each of which is given once."""
    if callable(script):
        return script
    if isinstance(script, Mapping):
        return lambda call: script.get(call.schema)
    queue = iter(script)
    return lambda _: next(queue, None)


def _parse(answer: Any, schema: type[T]) -> T:
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, BaseModel):
        # Parsed from text even if the test gives an object, so that answers pass the same checks as a model's.
        answer = answer.model_dump_json()
    elif isinstance(answer, Mapping):
        answer = json.dumps(answer)
    try:
        return parse_answer(answer, schema)
    except UnusableAnswerError as error:
        raise JudgeAnswerError(f"the answer is not usable: {error}") from None
