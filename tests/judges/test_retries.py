"""When a request is tried again, and how long that takes: on a clock that stands still."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rageval_hooks.errors import JudgeAnswerError, JudgeRateLimitedError, JudgeUnavailableError
from tests.judges.helpers import GOOD, PROMPT, Grade, StillClock, ask, failure, judge_of, until
from tests.judges.server import Gate, JudgeServer, answer, error, held


def test_a_passing_failure_is_tried_again(server: JudgeServer, clock: StillClock) -> None:
    """The answer of the third request is the answer; pauses double."""
    server.then(error(503), error(500), answer(GOOD))
    judgement = ask(judge_of(server, clock=clock))
    assert (judgement.value.grade, judgement.attempts) == (3, 3)
    assert clock.slept == [0.25, 0.5]


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After-Ms": "1500"}, 1.5),
    ],
    ids=["seconds", "milliseconds"],
)
@pytest.mark.parametrize("status", [429, 503])
def test_the_pause_that_the_server_wants_is_kept(
    server: JudgeServer, clock: StillClock, headers: dict[str, str], pause: float, status: int
) -> None:
    """Retry-After, in each of its forms, and a little more by chance, so that not all come back at once."""
    server.then(error(status, headers=headers), answer(GOOD))
    ask(judge_of(server, clock=clock))
    assert clock.slept == [pause + 0.25]


def test_a_pause_beyond_the_time_is_not_waited_for(server: JudgeServer, clock: StillClock) -> None:
    """The question fails at once, and so do others until the pause is over: the server is not asked."""
    server.then(error(429, "later", headers={"Retry-After": "400"}))
    server.otherwise(answer(GOOD))
    judge = judge_of(server, clock=clock)
    failure(judge, JudgeRateLimitedError)
    assert "another 400 s" in failure(judge, JudgeRateLimitedError).message
    assert (len(server.requests), clock.slept) == (1, [])
    clock.now += 200
    assert ask(judge).value.grade == 3  # within its own time of 300 s
    assert clock.slept == [200.0]


def test_retry_after_is_limited_to_ten_minutes(server: JudgeServer, clock: StillClock) -> None:
    """A broken header does not stop the judge for longer."""
    server.then(error(429, headers={"Retry-After": "999999999"}), answer(GOOD))
    judge = judge_of(server, clock=clock)
    failure(judge, JudgeRateLimitedError)
    clock.now += 601
    assert ask(judge).value.grade == 3


@pytest.mark.parametrize("header", ["", "soon", "-3", "inf", "nan", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_senseless_header_is_ignored(server: JudgeServer, clock: StillClock, header: str) -> None:
    """Then the pause is the usual one."""
    server.then(error(429, headers={"Retry-After": header}), answer(GOOD))
    ask(judge_of(server, clock=clock))
    assert clock.slept == [0.25]


def test_the_number_of_retries_is_limited(server: JudgeServer, clock: StillClock) -> None:
    """``max_retries`` further requests, not one more."""
    server.otherwise(error(500))
    failure(judge_of(server, clock=clock, max_retries=2, circuit_failures=99), JudgeUnavailableError)
    assert len(server.requests) == 3
    failure(judge_of(server, clock=clock, max_retries=0), JudgeUnavailableError)
    assert len(server.requests) == 4


def test_a_correction_is_not_a_retry(server: JudgeServer, clock: StillClock) -> None:
    """The counters tell failures of the server from wrong answers."""
    server.then(error(503), answer("no JSON"), answer(GOOD))
    judge = judge_of(server, clock=clock)
    ask(judge)
    stats = judge.stats()
    assert (stats["requests"], stats["retries"], stats["repairs"]) == (3, 1, 1)


def test_a_retry_that_the_circuit_stops_is_not_counted(server: JudgeServer, clock: StillClock) -> None:
    """The error is that of the last request, and the counters have only requests that were sent."""
    server.otherwise(error(503, "overloaded"))
    judge = judge_of(server, clock=clock, circuit_failures=1)
    assert "overloaded" in failure(judge, JudgeUnavailableError).message
    assert "the circuit is open" in failure(judge, JudgeUnavailableError).message
    stats = judge.stats()
    assert (stats["requests"], stats["retries"], len(server.requests)) == (1, 0, 1)


def test_the_total_time_is_limited(server: JudgeServer, clock: StillClock) -> None:
    """No retry begins that would end after it."""
    server.otherwise(error(500, headers={"Retry-After": "4"}))
    failure(judge_of(server, clock=clock, max_retries=50, total_timeout=10, circuit_failures=99), JudgeUnavailableError)
    assert clock.slept == [4.25, 4.5]
    assert len(server.requests) == 3


def test_no_repair_begins_after_the_total_time(server: JudgeServer, clock: StillClock) -> None:
    """A wrong answer that came at the last moment is not asked for again. The failure says what was wrong with it."""

    def late(request: Any) -> Any:
        clock.now += 301
        return answer("no JSON")

    server.otherwise(late)
    message = failure(judge_of(server, clock=clock), JudgeAnswerError).message
    assert message == (
        "the answer is not usable, and no second request was possible: it contains no complete JSON object"
    )
    assert len(server.requests) == 1


def test_time_in_the_queue_does_not_count(server: JudgeServer) -> None:
    """The timeout begins with the first request, so callers that wait for a slot do not fail."""
    clock = StillClock()
    gate = Gate()
    server.then(held(answer(GOOD), gate))
    server.otherwise(answer(GOOD))

    async def main() -> int:
        async with judge_of(server, clock=clock, max_concurrency=1) as judge:
            questions = [asyncio.create_task(judge.complete(PROMPT, Grade)) for _ in range(3)]
            await until(lambda: len(server.requests) == 1)
            clock.now += 250
            gate.set()
            return len(await asyncio.gather(*questions))

    assert asyncio.run(main()) == 3


def test_pauses_grow_to_a_limit_and_half_of_each_is_chance(server: JudgeServer, clock: StillClock) -> None:
    """0.25..0.5 s, 0.5..1 s … up to 10..20 s; a thousand retries overflow nothing."""
    server.otherwise(error(500))
    judge = judge_of(server, clock=clock, max_retries=1100, total_timeout=1e6, circuit_failures=9999)
    failure(judge, JudgeUnavailableError)
    assert clock.slept[:7] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert set(clock.slept[7:]) == {10.0}
    assert len(clock.slept) == 1100


def test_a_cancelled_question_leaves_no_trace(server: JudgeServer) -> None:
    """The slot is free, nothing counts as failed, and the connection is closed."""
    gate = Gate()
    server.then(held(answer(GOOD), gate))
    server.otherwise(answer(GOOD))

    async def main() -> dict[str, Any]:
        async with judge_of(server, max_concurrency=1) as judge:
            task = asyncio.create_task(judge.complete(PROMPT, Grade))
            await asyncio.to_thread(server.wait_for_requests, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await judge.complete(PROMPT, Grade)
            return judge.stats()

    stats = asyncio.run(main())
    assert (stats["failed"], stats["answered"]) == ({}, 1)
    assert stats["circuit"]["failures"] == 0
