"""The circuit breaker, alone and in front of a server."""

from __future__ import annotations

import asyncio

import pytest

from rageval_hooks.errors import JudgeRejectedError, JudgeUnavailableError
from rageval_hooks.judges.client.breaker import CircuitBreaker
from tests.judges.helpers import GOOD, PROMPT, Grade, StillClock, ask, failure, judge_of
from tests.judges.server import Gate, JudgeServer, answer, error, held


def broken(clock: StillClock, failures: int = 2) -> CircuitBreaker:
    """Return a breaker that has just opened."""
    breaker = CircuitBreaker(failures, 30.0, clock)
    for _ in range(failures):
        with breaker.enter() as permit:
            permit.failed("HTTP 500")
    return breaker


def test_it_opens_after_failures_in_a_row(clock: StillClock) -> None:
    """A success in between resets the count."""
    breaker = CircuitBreaker(2, 30.0, clock)
    for outcome in ("fail", "succeed", "fail"):
        with breaker.enter() as permit:
            permit.failed("x") if outcome == "fail" else permit.succeeded()
    assert breaker.state == "closed"
    with breaker.enter() as permit:
        permit.failed("x")
    assert breaker.state == "open"


def test_while_open_calls_fail_at_once_and_say_why(clock: StillClock) -> None:
    """The reason of the last failure is the reason of those that follow."""
    breaker = broken(clock)
    with pytest.raises(JudgeUnavailableError, match=r"in 30 s.*2 failures in a row, the last: HTTP 500"):
        breaker.enter()


def test_after_a_while_one_probe_decides(clock: StillClock) -> None:
    """Half open: the first goes through, others do not; its success closes the circuit."""
    breaker = broken(clock)
    clock.now += 30
    assert breaker.state == "half_open"
    with breaker.enter() as probe:
        with pytest.raises(JudgeUnavailableError, match="a probe is under way"):
            breaker.check()
        probe.succeeded()
    assert breaker.stats() == {"state": "closed", "failures": 0, "opened": 1, "reason": None, "retry_in": 0.0}


def test_a_failed_probe_opens_it_for_twice_as_long(clock: StillClock) -> None:
    """Up to a limit."""
    breaker = broken(clock)
    pauses = []
    for _ in range(7):
        pauses.append(breaker.stats()["retry_in"])
        clock.now += pauses[-1]
        with breaker.enter() as probe:
            probe.failed("HTTP 500")
    assert pauses == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_a_cancelled_probe_allows_another_one(clock: StillClock) -> None:
    """The circuit does not stay half open."""
    breaker = broken(clock)
    clock.now += 30
    with breaker.enter():
        pass
    with breaker.enter() as probe:
        probe.succeeded()
    assert breaker.state == "closed"


def test_a_lost_probe_expires(clock: StillClock) -> None:
    """Its process may have been forked away: after ten minutes another may try."""
    breaker = broken(clock)
    clock.now += 30
    breaker.enter()
    clock.now += 601
    breaker.check()


def test_requests_from_before_the_opening_do_not_count(clock: StillClock) -> None:
    """Neither their success nor their failure changes the circuit."""
    breaker = CircuitBreaker(1, 30.0, clock)
    early, late, last = breaker.enter(), breaker.enter(), breaker.enter()
    last.failed("x")
    early.succeeded()
    late.failed("y")
    assert (breaker.state, breaker.stats()["opened"], breaker.stats()["reason"]) == ("open", 1, "x")


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


def test_a_wrong_key_opens_it_and_a_wrong_question_does_not(server: JudgeServer, clock: StillClock) -> None:
    """401 is true of every question; 400, a refusal or a wrong answer only of this one."""
    judge = judge_of(server, clock=clock, circuit_failures=2)
    server.otherwise(error(400, "bad"))
    for _ in range(3):
        failure(judge, JudgeRejectedError)
    assert judge.stats()["circuit"]["state"] == "closed"
    server.otherwise(error(401, "bad key"))
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
