"""Budgets of judges: which requests they let through, and what they count."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks.budgets import with_budget
from rageval_hooks.errors import ConfigurationError, JudgeError, JudgeUnavailableError
from rageval_hooks.judges.openai import OpenAIJudge
from rageval_hooks.offline.command_judge import Budget, BudgetedJudge
from rageval_hooks.testing import FakeJudge
from rageval_hooks.turn import Usage
from tests.judges.helpers import GOOD, Grade, StillClock
from tests.judges.server import JudgeServer, answer, error, hang_up


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        server.otherwise(answer(GOOD))
        yield server


def judge_of(server: JudgeServer, **options: Any) -> OpenAIJudge:
    return OpenAIJudge("m", base_url=server.url, api_key="sk-test", clock=StillClock(), **options)


def budgeted(server: JudgeServer, budget: Budget, **options: Any) -> BudgetedJudge:
    return BudgetedJudge(judge_of(server, **options), budget)


def ask(judge: BudgetedJudge, count: int = 5, *, at_once: bool = False) -> list[Any]:
    """Ask different questions; return the grades, or the kinds of the failures."""

    async def one(number: int) -> Any:
        try:
            return (await judge.complete([("user", f"question {number}")], Grade)).value.grade
        except JudgeError as error:
            return error.kind

    async def main() -> list[Any]:
        async with judge:
            if at_once:
                return list(await asyncio.gather(*map(one, range(count))))
            return [await one(number) for number in range(count)]

    return asyncio.run(main())


@pytest.mark.parametrize("at_once", [False, True])
def test_retries_count(server: JudgeServer, at_once: bool) -> None:
    """No request more than there may be; a question that has no retry left says what happened to it."""
    server.otherwise(error(500))
    budget = Budget(max_calls=3)
    found = ask(budgeted(server, budget), at_once=at_once)

    assert len(server.requests) == budget.spent.calls == 3
    assert set(found) == {"unavailable", "budget_spent"}


class TestWithASharedBudget:
    """A command may have ``--max-calls`` and the setting ``judge_budget``."""

    def test_retries_count_for_both(self, server: JudgeServer, tmp_path: Path) -> None:
        """Neither is exceeded by the retries of a question."""
        server.otherwise(error(500))
        judge = judge_of(server, circuit_failures=99)
        shared = with_budget(judge, {"calls_per_day": 5}, str(tmp_path / "budget.db"))
        first, second = Budget(max_calls=3), Budget(max_calls=3)

        assert ask(BudgetedJudge(shared, first), 2) == ["unavailable", "budget_spent"]
        assert (len(server.requests), first.spent.calls) == (3, 3)
        assert ask(BudgetedJudge(shared, second), 2) == ["unavailable", "budget_spent"]
        assert (len(server.requests), second.spent.calls) == (5, 2)

    def test_a_limit_in_money_needs_a_known_price(self, server: JudgeServer, tmp_path: Path) -> None:
        """Before anything is asked."""
        shared = with_budget(judge_of(server), {"calls_per_day": 5}, str(tmp_path / "budget.db"))
        with pytest.raises(ConfigurationError, match="the price of openai:m is not known"):
            BudgetedJudge(shared, Budget(max_cost=0.01))
        priced = with_budget(judge_of(server, price_per_1k=1.0), {"calls_per_day": 5}, str(tmp_path / "budget.db"))
        budget = Budget(max_cost=0.3)
        assert ask(BudgetedJudge(priced, budget), 3) == [3, 3, "budget_spent"]
        assert budget.spent.cost == pytest.approx(0.24)


def test_a_repair_counts(server: JudgeServer) -> None:
    """A request that does not fit into the budget is not sent."""
    server.otherwise(answer("nonsense"))

    assert ask(budgeted(server, Budget(max_calls=3)), 3) == ["invalid_answer", "invalid_answer", "budget_spent"]
    assert len(server.requests) == 3


def test_a_request_without_what_was_refused_counts(server: JudgeServer) -> None:
    """It is one more."""
    server.then(error(400, "unsupported", param="temperature"))

    assert ask(budgeted(server, Budget(max_calls=2)), 2) == [3, "budget_spent"]


def test_what_the_budget_refuses_is_no_failure_of_the_judge(server: JudgeServer) -> None:
    """Neither counted nor logged as one; the budget itself counts it."""
    budget = Budget(max_calls=1)
    judge = budgeted(server, budget)
    ask(judge, 4)

    assert judge.stats()["failed"] == {}
    assert budget.refused == 3


def test_the_cache_answers_without_a_budget(server: JudgeServer, tmp_path: Path) -> None:
    """An answer from it is no request: also with nothing left, and also at the same time."""
    cache = tmp_path / "answers.sqlite"
    assert ask(budgeted(server, Budget(), cache=cache), 3) == [3] * 3
    budget = Budget(max_calls=0, max_cost=0.0)

    assert ask(budgeted(server, budget, cache=cache, price_per_1k=1.0), 3) == [3] * 3
    assert ask(budgeted(server, budget, cache=cache, price_per_1k=1.0), 4, at_once=True) == [3, 3, 3, "budget_spent"]
    assert (len(server.requests), budget.spent.calls) == (3, 0)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    "reply",
    [
        answer(GOOD, finish_reason="length", usage=None),
        answer("nonsense", usage=None),
        answer("x" * 600_000),
    ],
)
def test_failing_answers_of_an_unknown_price_use_it_up(server: JudgeServer, reply: Any, at_once: bool) -> None:
    """They cost money too: after an answer without a count of tokens, what is left is not known."""
    server.otherwise(reply)
    budget = Budget(max_cost=0.01)
    found = ask(budgeted(server, budget, price_per_1k=0.001), at_once=at_once)

    assert len(server.requests) == 1
    assert found[1:] == ["budget_spent"] * 4
    assert "the price of openai:m is not known" in (budget.reason or "")


@pytest.mark.parametrize("reply", [error(500), hang_up(), error(429)])
def test_a_request_that_nobody_answered_costs_nothing(server: JudgeServer, reply: Any) -> None:
    """It does not make the price unknown: a passing failure is no reason to stop."""
    server.otherwise(reply)
    budget = Budget(max_cost=0.01)
    ask(budgeted(server, budget, max_retries=1, circuit_failures=99, price_per_1k=1.0), 3)

    assert len(server.requests) == budget.spent.calls == 6
    assert budget.reason is None


def test_a_limit_in_money_needs_a_known_price(server: JudgeServer) -> None:
    """The error says how to give the price, before anything is asked."""
    with pytest.raises(ConfigurationError) as raised:
        budgeted(server, Budget(max_cost=0.01))

    assert str(raised.value) == (
        "max-cost is 0.01 USD, but the price of openai:m is not known: give it with the judge option price_per_1k "
        '(USD for 1,000 tokens), such as --judge-options "price_per_1k=0.002", install the price list '
        '(pip install "rageval-hooks[prices]"), or use --max-calls'
    )
    assert server.requests == []


def test_a_given_price_is_charged(server: JudgeServer) -> None:
    """120 tokens of an answer at 1 USD for 1,000: the third question does not fit into 0.3 USD."""
    budget = Budget(max_cost=0.3)

    assert ask(budgeted(server, budget, price_per_1k=1.0), 3) == [3, 3, "budget_spent"]
    assert budget.spent.cost == pytest.approx(0.24)


class TestAnotherJudge:
    """One that does not know of budgets is asked while a question more fits in."""

    def test_failures_without_a_price(self) -> None:
        """Are of an unknown price if it says that there were replies."""
        budget = Budget(max_cost=0.01)
        judge = BudgetedJudge(FakeJudge(lambda _: JudgeUnavailableError("down", attempts=2, replies=1)), budget)

        assert ask(judge, 3) == ["unavailable", "budget_spent", "budget_spent"]
        assert budget.spent.calls == 2

    def test_the_first_answer_tells_the_price(self) -> None:
        """The others wait for it, so that no more are asked than fit in."""
        usage = Usage(input_tokens=1, output_tokens=1)
        judge = FakeJudge(lambda _: GOOD, usage=usage, cost=0.4)

        assert sorted(map(str, ask(BudgetedJudge(judge, Budget(max_cost=1.0)), at_once=True))) == [
            "3",
            "3",
            "budget_spent",
            "budget_spent",
            "budget_spent",
        ]
