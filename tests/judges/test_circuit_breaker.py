"""The circuit breaker."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from rageval_hooks.errors import JudgeRejectedError, JudgeUnavailableError
from rageval_hooks.judges.openai import OpenAIJudge
from tests.judges.helpers import GOOD, PROMPT, Grade, StillClock, ask, failure, judge_of
from tests.judges.server import Gate, JudgeServer, Reply, answer, error, held, raw


def ask_all(server: JudgeServer, judge: OpenAIJudge, replies: str) -> list[str]:
    """Ask one question after the other; return the state of the circuit after each.

    Args:
        server: the server.
        judge: the judge.
        replies: what the server does: ``"+"`` it answers, ``"-"`` it fails.
    """
    states = []
    for reply in replies:
        server.then(answer(GOOD) if reply == "+" else error(500, "down"))
        with suppress(JudgeUnavailableError):
            ask(judge)
        states.append(judge.stats()["circuit"]["state"])
    return states


def test_it_opens_after_failures_in_a_row(server: JudgeServer, clock: StillClock) -> None:
    """A success in between resets the count."""
    judge = judge_of(server, clock=clock, max_retries=0, circuit_failures=2)
    assert ask_all(server, judge, "-+--") == ["closed", "closed", "closed", "open"]


def test_a_failed_probe_opens_it_for_twice_as_long(server: JudgeServer, clock: StillClock) -> None:
    """Up to ten minutes. After an answer, it begins again with 30 seconds."""
    judge = judge_of(server, clock=clock, max_retries=0, circuit_failures=1)
    pauses = []
    for _ in range(7):
        ask_all(server, judge, "-")
        pauses.append(judge.stats()["circuit"]["retry_in"])
        clock.now += pauses[-1]
        assert judge.stats()["circuit"]["state"] == "half_open"
    assert pauses == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
    assert ask_all(server, judge, "+-") == ["closed", "open"]
    assert judge.stats()["circuit"] == {
        "state": "open",
        "failures": 1,
        "opened": 8,
        "reason": "HTTP 500: the server failed: down",
        "retry_in": 30.0,
    }


def test_a_cancelled_probe_allows_another_one(server: JudgeServer, clock: StillClock) -> None:
    """The circuit does not stay half open."""
    server.then(error(500), held(answer(GOOD), Gate()), answer(GOOD))

    async def main() -> int:
        async with judge_of(server, clock=clock, max_retries=0, circuit_failures=1) as judge:
            with pytest.raises(JudgeUnavailableError):
                await judge.complete(PROMPT, Grade)
            clock.now += 31
            probe = asyncio.create_task(judge.complete(PROMPT, Grade))
            await asyncio.to_thread(server.wait_for_requests, 2)
            probe.cancel()
            await asyncio.gather(probe, return_exceptions=True)
            return (await judge.complete(PROMPT, Grade)).value.grade

    assert asyncio.run(main()) == 3


@pytest.mark.parametrize(("late", "state"), [(answer(GOOD), "open"), (error(500, "late"), "open")], ids=["yes", "no"])
def test_requests_from_before_the_opening_do_not_count(
    server: JudgeServer, clock: StillClock, late: Reply, state: str
) -> None:
    """Neither their success nor their failure changes the circuit."""
    gate = Gate()
    server.then(held(late, gate), error(500, "first"))

    async def main() -> dict[str, Any]:
        async with judge_of(server, clock=clock, max_retries=0, circuit_failures=1) as judge:
            early = asyncio.create_task(judge.complete(PROMPT, Grade))
            await asyncio.to_thread(server.wait_for_requests, 1)
            with pytest.raises(JudgeUnavailableError):
                await judge.complete(PROMPT, Grade)
            gate.set()
            await asyncio.gather(early, return_exceptions=True)
            return judge.stats()["circuit"]

    circuit = asyncio.run(main())
    assert (circuit["state"], circuit["opened"], circuit["reason"]) == (state, 1, "HTTP 500: the server failed: first")


def test_a_judge_that_is_down_is_left_alone(server: JudgeServer, clock: StillClock) -> None:
    """After five failed requests nothing is sent until the cooldown is over; then one answer closes the circuit."""
    server.otherwise(error(500, "down"))
    judge = judge_of(server, clock=clock, max_retries=0)
    for _ in range(5):
        failure(judge, JudgeUnavailableError)
    assert judge.stats()["circuit"]["state"] == "open"
    found = failure(judge, JudgeUnavailableError)
    assert "circuit is open" in found.message
    assert "HTTP 500: the server failed: down" in found.message
    assert found.details["circuit"] == "open"
    assert found.details["attempts"] == 0
    assert len(server.requests) == 5
    clock.now += 30
    server.otherwise(answer(GOOD))
    ask(judge)
    assert judge.stats()["circuit"]["state"] == "closed"


PAGE = raw("<html>It works!</html>", headers={"Content-Type": "text/html"})


@pytest.mark.parametrize("wrong", [error(401, "bad key"), PAGE], ids=["key", "address"])
def test_a_wrong_setting_opens_it_and_a_wrong_question_does_not(
    server: JudgeServer, clock: StillClock, wrong: Reply
) -> None:
    """A wrong key or a web page is true of every question; 400, a refusal or a wrong answer only of this one."""
    judge = judge_of(server, clock=clock, circuit_failures=2)
    server.otherwise(error(400, "bad"))
    for _ in range(3):
        failure(judge, JudgeRejectedError)
    assert judge.stats()["circuit"]["state"] == "closed"
    server.otherwise(wrong)
    for _ in range(2):
        failure(judge, JudgeRejectedError)
    assert judge.stats()["circuit"]["state"] == "open"


def test_rate_limits_do_not_open_the_circuit(server: JudgeServer, clock: StillClock) -> None:
    """A provider that says "slower" works."""
    server.then(*[error(429)] * 3, answer(GOOD))
    judge = judge_of(server, clock=clock, circuit_failures=1)
    ask(judge)
    assert judge.stats()["circuit"]["opened"] == 0


def test_only_one_request_probes(server: JudgeServer, clock: StillClock) -> None:
    """While the probe is open, other requests fail at once."""
    gate = Gate()
    server.then(error(500), held(answer(GOOD), gate))

    async def main() -> list[object]:
        async with judge_of(server, clock=clock, max_retries=0, circuit_failures=1) as judge:
            with pytest.raises(JudgeUnavailableError):
                await judge.complete(PROMPT, Grade)
            clock.now += 31
            probe = asyncio.create_task(judge.complete(PROMPT, Grade))
            await asyncio.to_thread(server.wait_for_requests, 2)
            others = await asyncio.gather(*(judge.complete(PROMPT, Grade) for _ in range(5)), return_exceptions=True)
            gate.set()
            await probe
            return others

    others = asyncio.run(main())
    assert [type(other) for other in others] == [JudgeUnavailableError] * 5
    assert len(server.requests) == 2
