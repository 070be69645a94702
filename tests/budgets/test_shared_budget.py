"""Budgets of a judge that processes share, in a file; the same with Redis is in tests/e2e."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from rageval_hooks import ConfigurationError, MissingDependencyError
from rageval_hooks.budgets import BudgetSpentError, BudgetUnavailableError, parse_limits, with_budget
from rageval_hooks.budgets.sqlite_store import SQLiteBudget
from rageval_hooks.budgets.store import Refusal, Reserved
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Usage
from tests.budgets.fleet import spend
from tests.disk import limited_file_size
from tests.judges.server import JudgeServer, answer
from tests.local import make_turn
from tests.online.spool.test_spool import Graded
from tests.online.test_judge_stage import judge_of


class Grade(BaseModel):
    value: int


CALL = {"calls": 1.0, "tokens": 0.0, "usd": 0.0}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_processes_of_a_host_share_a_budget(tmp_path: Path) -> None:
    """Four processes overshoot by one call each at most, and use most of the budget."""
    spent = spend(str(tmp_path / "budget.db"), processes=4, usd_per_day=2)

    assert 1.4 <= spent.usd <= 2 + 4 * 0.1
    assert spent.refusals == {"budget_spent: the judge's budget of 2 USD per day is used up"}
    assert stat.S_IMODE((tmp_path / "budget.db").stat().st_mode) == 0o600


def test_judging_stops_and_local_scores_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The reason is on the trace, as a skipped score; one log line."""
    caplog.set_level(logging.WARNING)
    exporter = InMemoryExporter()
    pipeline = Pipeline.build(
        metrics=[Graded(), "groundedness"],
        judge=FakeJudge(lambda _: {"value": 1}),
        exporters=[exporter],
        models="lexical",
        judge_budget="calls_per_day=2",
        judge_budget_store=str(tmp_path / "budget.db"),
    )
    for number in range(6):
        pipeline.submit(make_turn("It opened in 2019.", ["It opened in 2019."], f"question {number}"))
    assert pipeline.flush(30)
    stats = pipeline.stats()
    pipeline.shutdown(10)

    results = [result for one in exporter.evaluations for result in one.results if result.name == "graded"]
    reasons = [result.reason for result in results if result.status == "skipped"]
    assert [result.status for result in results].count("scored") == 2
    assert reasons == ["the judge's budget of 2 calls per day is used up"] * 4
    assert len(list(exporter.results("groundedness"))) == 6
    assert stats["judge_budget"]["limits"] == {"calls_per_day": {"limit": 2.0, "used": 2.0}}
    assert stats["judge_budget"]["refused"] == 4
    [line] = [message for message in caplog.messages if "budget" in message]
    assert "judging stops for" in line
    assert "local scores go on" in line


def test_requests_of_a_real_client_are_counted_with_their_retries(tmp_path: Path) -> None:
    """An unusable answer and its correction are two requests, with the tokens of both."""
    with JudgeServer() as server:
        server.then(answer({"wrong": 1}), answer({"value": 1}))
        server.otherwise(answer({"value": 1}))
        judge = with_budget(judge_of(server), {"calls_per_day": 10, "tokens_per_day": 1000}, str(tmp_path / "b.db"))
        asyncio.run(judge.complete([("user", "?")], Grade))

    limits = judge.budget.stats()["limits"]
    assert limits["calls_per_day"]["used"] == len(server.requests)
    assert limits["tokens_per_day"]["used"] == 120 * len(server.requests)


def test_a_budget_in_usd_needs_a_price() -> None:
    """Without one the money could not be counted."""
    settings: dict[str, Any] = {"metrics": [Graded()], "exporters": [], "judge_budget": {"usd_per_day": 5}}
    with pytest.raises(ConfigurationError, match="the price of fake:fake is not known"):
        Pipeline.build(judge=FakeJudge(), **settings)
    Pipeline.build(judge=FakeJudge(cost=0.1), **settings)


def test_only_the_first_request_runs_alone(tmp_path: Path) -> None:
    """Until it is answered, it is not known how many tokens a request has. The others then run together."""
    running: list[int] = []
    together = asyncio.Event()

    async def wait(_: Any) -> dict[str, int]:
        running.append(running[-1] + 1 if running else 1)
        if len(running) > 1:
            if running[-1] > 1:
                together.set()
            await asyncio.wait_for(together.wait(), 60)
        running.append(running[-1] - 1)
        return {"value": 1}

    async def ask_all() -> None:
        judge = with_budget(
            FakeJudge(wait, usage=Usage(input_tokens=10, output_tokens=10)),
            {"tokens_per_day": 1000},
            str(tmp_path / "budget.db"),
        )
        await asyncio.gather(*(judge.complete([("user", "?")], Grade) for _ in range(8)))

    asyncio.run(ask_all())
    assert running[:2] == [1, 0], "the first request is answered before the second is sent"
    assert max(running) > 1


def test_redis_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra, at the line that asks for it."""
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingDependencyError, match=r"rageval-hooks\[redis\]"):
        with_budget(FakeJudge(), {"calls_per_day": 5}, "redis://localhost")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("calls_per_hour=5", "unknown limit in judge_budget 'calls_per_hour'"),
        ("calls_per_day=many", "judge_budget.calls_per_day"),
        ({"calls_per_day": -1}, "judge_budget.calls_per_day"),
    ],
)
def test_wrong_limits_are_errors(limits: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Pipeline.build(metrics=[Graded()], exporters=[], judge=FakeJudge(), judge_budget=limits)


def test_a_file_that_cannot_be_used_stops_the_judge(tmp_path: Path) -> None:
    """A budget that cannot be checked must not be exceeded."""
    (tmp_path / "folder").write_text("not a directory")
    judge = with_budget(FakeJudge([{"value": 1}]), {"calls_per_day": 5}, str(tmp_path / "folder" / "budget.db"))

    for _ in range(2):
        with pytest.raises(BudgetUnavailableError, match="cannot be used"):
            asyncio.run(judge.complete([("user", "?")], Grade))
    assert judge.budget.stats()["unavailable"] == 2


def test_a_full_disk_stops_the_judge(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Said once and counted: the use could not be counted."""
    judge = with_budget(FakeJudge([{"value": 1}]), {"calls_per_day": 5}, str(tmp_path / "budget.db"))
    with limited_file_size(4096):
        for _ in range(2):
            with pytest.raises(BudgetUnavailableError, match="cannot be used"):
                asyncio.run(judge.complete([("user", "?")], Grade))

    assert judge.budget.stats()["unavailable"] == 2
    assert sum("the judge is not asked" in message for message in caplog.messages) == 1


def test_periods_and_a_clock_that_jumps(tmp_path: Path) -> None:
    """A new period begins with the full minute. What was used is not forgotten if the clock goes back."""
    now = [1_000_000_020.0]
    store = SQLiteBudget(tmp_path / "budget.db", clock=lambda: now[0])
    limits = parse_limits({"calls_per_minute": 2})

    def call() -> Reserved | Refusal:
        return store.reserve(limits, CALL)

    assert isinstance(call(), Reserved)
    assert isinstance(call(), Reserved)
    assert call() == Refusal(limits[0], 60.0)
    now[0] -= 3600
    assert isinstance(call(), Refusal)
    now[0] += 60
    assert isinstance(call(), Reserved)


def test_the_budget_lasts_until_it_is_used_up(tmp_path: Path) -> None:
    """With the limit 0 the judge is never asked."""
    judge = with_budget(FakeJudge(), {"calls_per_minute": 0}, str(tmp_path / "budget.db"))
    with pytest.raises(BudgetSpentError, match="0 calls per minute"):
        asyncio.run(judge.complete([("user", "?")], Grade))
