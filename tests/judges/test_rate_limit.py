"""Requests and tokens per minute."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.judges.throttling import Clock, RateLimiter
from tests.judges.helpers import GOOD, PROMPT, Grade, StillClock, ask, judge_of
from tests.judges.server import JudgeServer, answer


def wait(rate_limiter: RateLimiter, tokens: float) -> float:
    """Reserve a time; return the seconds until then."""
    return rate_limiter.reserve(tokens) - rate_limiter._clock.monotonic()


def test_requests_are_spaced(clock: StillClock) -> None:
    """Two per minute: one each half minute."""
    rate_limiter = RateLimiter(requests=2, tokens=None, clock=clock)
    assert [wait(rate_limiter, 0) for _ in range(4)] == [0, 30, 60, 90]


def test_tokens_count_with_their_number(clock: StillClock) -> None:
    """100 per minute: after 50 tokens comes half a minute."""
    rate_limiter = RateLimiter(requests=None, tokens=100, clock=clock)
    assert [wait(rate_limiter, tokens) for tokens in (50, 25, 10)] == [0, 30, 45]


def test_the_stricter_limit_holds(clock: StillClock) -> None:
    """A small request waits for the limit of requests, a large one makes the next wait for that of tokens."""
    rate_limiter = RateLimiter(requests=6, tokens=100, clock=clock)
    assert [wait(rate_limiter, tokens) for tokens in (1, 50, 1)] == [0, 10, 40]


def test_the_reported_tokens_replace_the_estimate(clock: StillClock) -> None:
    """A request that took less than estimated leaves room at once, one that took more takes it."""
    rate_limiter = RateLimiter(requests=None, tokens=60, clock=clock)
    rate_limiter.reserve(50)
    rate_limiter.give_back(40)
    assert wait(rate_limiter, 5) == 10
    rate_limiter.give_back(-5)
    assert wait(rate_limiter, 1) == 20


def test_a_request_larger_than_a_minute_allows_takes_a_minute(clock: StillClock) -> None:
    """It cannot be cut."""
    rate_limiter = RateLimiter(requests=None, tokens=100, clock=clock)
    assert [wait(rate_limiter, tokens) for tokens in (500, 1)] == [0, 60]


def test_a_pause_holds_for_all(clock: StillClock) -> None:
    """The server's pause comes before the local limit, and a shorter pause does not end a longer one."""
    rate_limiter = RateLimiter(requests=None, tokens=None, clock=clock)
    rate_limiter.pause(10)
    rate_limiter.pause(5)
    assert (wait(rate_limiter, 1), rate_limiter.paused) == (10, 10)


@given(
    requests=st.integers(1, 5),
    tokens=st.integers(10, 100),
    uses=st.lists(st.tuples(st.floats(0, 40), st.integers(0, 150)), max_size=40),
)
def test_no_minute_holds_more_than_is_allowed(requests: int, tokens: int, uses: list[tuple[float, int]]) -> None:
    """For any sequence of requests, no span of a minute exceeds a limit before its last request."""
    clock = StillClock()
    rate_limiter = RateLimiter(requests=requests, tokens=tokens, clock=clock)
    sent = []
    for gap, amount in uses:
        clock.now += gap
        sent.append((clock.now + wait(rate_limiter, amount), min(amount, tokens)))
    starts = [start for start, _ in sent]
    assert starts == sorted(starts)
    for end in starts:
        minute = [amount for start, amount in sent if end - 60 + 1e-6 < start <= end]
        assert len(minute) <= requests
        assert sum(minute[:-1]) <= tokens


def test_a_judge_waits_for_its_minute(server: JudgeServer, clock: StillClock) -> None:
    """The second request waits for the next minute. Waiting is not a failure."""
    server.otherwise(answer(GOOD))
    judge = judge_of(server, clock=clock, requests_per_minute=1, total_timeout=5)

    async def main() -> None:
        async with judge:
            await asyncio.gather(*(judge.complete(PROMPT, Grade) for _ in range(3)))

    asyncio.run(main())
    assert len(server.requests) == 3
    assert clock.slept == [pytest.approx(60), pytest.approx(60)]


def test_a_judge_estimates_its_tokens_and_corrects_them(server: JudgeServer, clock: StillClock) -> None:
    """Before the request: four bytes per token and 500 for the answer. After it: the reported usage."""
    server.otherwise(answer(GOOD))  # reports 120
    judge = judge_of(server, clock=clock, tokens_per_minute=1200)
    for _ in range(3):
        ask(judge)
    assert clock.slept == [pytest.approx(6), pytest.approx(6)]


def test_the_real_clock() -> None:
    """It lets others work meanwhile, and its random numbers are not those of the application."""
    order: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().call_soon(order.append, "another task")
        await Clock().sleep(0)
        order.append("the judge")

    random.seed(1)
    expected = random.random()
    random.seed(1)
    numbers = {Clock().random() for _ in range(20)}
    asyncio.run(main())

    assert order == ["another task", "the judge"]
    assert len(numbers) == 20
    assert all(0 <= number < 1 for number in numbers)
    assert random.random() == expected
