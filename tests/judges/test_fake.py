"""The judge for tests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rageval_hooks.errors import JudgeAnswerError, JudgeRefusedError
from rageval_hooks.judges.fake import FakeCall, FakeJudge
from rageval_hooks.turn import Usage
from tests.judges.helpers import GOOD, PROMPT, Grade, ask


@pytest.mark.parametrize("scripted", [GOOD, Grade(**GOOD), '```{"grade": 3, "why": "exact"}```'])
def test_answers_come_in_their_order(scripted: Any) -> None:
    """As fields, as an object, or as a model would write them."""
    judge = FakeJudge([scripted, {"grade": 1}])
    assert [ask(judge).value.grade for _ in range(2)] == [3, 1]


def test_answers_by_schema() -> None:
    """For metrics that ask several things in any order."""

    class Other(Grade):
        pass

    judge = FakeJudge({Grade: {"grade": 1}, Other: {"grade": 2}})
    assert [ask(judge, schema=schema).value.grade for schema in (Other, Grade, Other)] == [2, 1, 2]


@pytest.mark.parametrize("is_async", [False, True])
def test_answers_by_a_function(is_async: bool) -> None:
    """Of the call, which has the prompt."""

    def plain(call: FakeCall) -> dict[str, Any]:
        return {"grade": len(call.messages), "why": call.prompt[-12:]}

    async def slow(call: FakeCall) -> dict[str, Any]:
        await asyncio.sleep(0)
        return plain(call)

    assert ask(FakeJudge(slow if is_async else plain)).value == Grade(grade=3, why="Which grade?")


def test_it_remembers_what_it_was_asked() -> None:
    """Messages, schema and parameters."""
    judge = FakeJudge([GOOD])
    ask(judge, parameters={"seed": 1})
    [call] = judge.calls
    assert [(message.role, message.content) for message in call.messages] == list(PROMPT)
    assert (call.schema, call.parameters) == (Grade, {"seed": 1})


def test_it_reports_what_it_is_told_to() -> None:
    """Usage and cost, for tests of what becomes of them; also on a failure."""
    judge = FakeJudge([GOOD, "no"], usage=Usage(input_tokens=5, output_tokens=2), cost=0.25, model="m")
    assert ask(judge).details() == {
        "model": "m",
        "response_id": "fake-1",
        "attempts": 1,
        "mode": "text",
        "input_tokens": 5,
        "output_tokens": 2,
        "cost": 0.25,
    }
    with pytest.raises(JudgeAnswerError) as caught:
        ask(judge)
    assert caught.value.details == {"input_tokens": 5, "output_tokens": 2, "cost": 0.25}
    # What a budget in USD asks for.
    assert judge.has_known_price
    assert not FakeJudge(GOOD).has_known_price


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        ([JudgeRefusedError("no")], JudgeRefusedError, "no"),
        ([], JudgeAnswerError, "no answer for Grade"),
        ({}, JudgeAnswerError, "no answer for Grade"),
        ([{"grade": 9}], JudgeAnswerError, "less than or equal to 3"),
        (["three"], JudgeAnswerError, "no complete JSON object"),
    ],
)
def test_failures(script: Any, kind: type[Exception], message: str) -> None:
    """A scripted one, a script that is over, and an answer that does not fit."""
    judge = FakeJudge(script)
    with pytest.raises(kind, match=message):
        ask(judge)
    assert sum(judge.stats()["failed"].values()) == 1


def test_concurrent_questions_each_get_one_answer() -> None:
    """None is given twice."""
    judge = FakeJudge([{"grade": n % 4, "why": str(n)} for n in range(50)])

    async def main() -> list[Any]:
        return await asyncio.gather(*(judge.complete(PROMPT, Grade) for _ in range(50)))

    assert sorted(int(found.value.why) for found in asyncio.run(main())) == list(range(50))
