"""Budgets of a judge that processes share, in a file; the same with Redis is in tests/e2e."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from rageval_hooks import ConfigurationError, MissingDependencyError
from rageval_hooks.budgets import (
    BudgetUnavailableError,
    BudgetUsedUpError,
    Counted,
    Refusal,
    SQLiteBudget,
    parse_limits,
    with_budget,
)
from rageval_hooks.judges.base import Judgement
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
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
        pipeline.submit(EndedTurn.of(make_turn("It opened in 2019.", ["It opened in 2019."], f"question {number}")))
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
    assert "judging stops for the rest of the day; local scores go on" in line


def test_requests_of_a_real_client_are_counted_with_their_retries(tmp_path: Path) -> None:
    """An unusable answer and its correction are two requests, a cached answer is no request."""
    with JudgeServer() as server:
        server.then(answer({"wrong": 1}), answer({"value": 1}))
        server.otherwise(answer({"value": 1}))
        client = judge_of(server, cache=tmp_path / "cache.db")
        judge = with_budget(client, {"calls_per_day": 10, "tokens_per_day": 1000}, str(tmp_path / "b.db"))
        for _ in range(2):
            asyncio.run(judge.complete([("user", "?")], Grade))
        assert len(server.requests) == 2

    limits = judge.gates[0].stats()["limits"]
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


def test_what_is_left_is_used_by_one_request_at_a_time(tmp_path: Path) -> None:
    """Four more requests of that size would not fit, but one does."""
    judge = with_budget(
        FakeJudge(lambda _: {"value": 1}, usage=Usage(input_tokens=90, output_tokens=10)),
        {"tokens_per_day": 350},
        str(tmp_path / "budget.db"),
    )
    for _ in range(3):
        asyncio.run(judge.complete([("user", "?")], Grade))
    with pytest.raises(BudgetUsedUpError, match="350 tokens per day"):
        asyncio.run(judge.complete([("user", "?")], Grade))
    assert judge.gates[0].stats()["limits"]["tokens_per_day"]["used"] == 300


def test_an_answer_without_a_price_stops_a_budget_in_usd(tmp_path: Path) -> None:
    """A judge of the user's own said that it has one."""
    own = FakeJudge(lambda _: {"value": 1})
    own.has_known_price = True
    judge = with_budget(own, {"usd_per_day": 5}, str(tmp_path / "budget.db"))
    asyncio.run(judge.complete([("user", "?")], Grade))
    with pytest.raises(BudgetUsedUpError, match="the price of fake:fake is not known"):
        asyncio.run(judge.complete([("user", "?")], Grade))


class OwnCache(FakeJudge):
    """Answers without a request."""

    async def complete(self, *arguments: Any, **options: Any) -> Judgement[Any]:
        return Judgement(value=Grade(value=1), model="m", usage=None, attempts=0)


def test_an_answer_without_a_request_uses_nothing(tmp_path: Path) -> None:
    judge = with_budget(OwnCache(), {"calls_per_day": 1, "tokens_per_day": 1}, str(tmp_path / "budget.db"))
    for _ in range(3):
        asyncio.run(judge.complete([("user", "?")], Grade))
    assert {limit["used"] for limit in judge.gates[0].stats()["limits"].values()} == {0}


@pytest.mark.parametrize("url", ["redis://:secret@host:port", "unix://?db=secret", "rediss://:secret@host:port"])
def test_a_wrong_redis_url_is_an_error_without_its_password(url: str) -> None:
    pytest.importorskip("redis")
    with pytest.raises(ConfigurationError, match="not a Redis URL") as error:
        with_budget(FakeJudge(), {"calls_per_day": 5}, url)
    assert "secret" not in str(error.value)


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
    assert judge.gates[0].stats()["unavailable"] == 2


def test_a_full_disk_stops_the_judge(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Said once and counted: the use could not be counted."""
    judge = with_budget(FakeJudge([{"value": 1}]), {"calls_per_day": 5}, str(tmp_path / "budget.db"))
    with limited_file_size(4096):
        for _ in range(2):
            with pytest.raises(BudgetUnavailableError, match="cannot be used"):
                asyncio.run(judge.complete([("user", "?")], Grade))

    assert judge.gates[0].stats()["unavailable"] == 2
    assert sum("the judge is not asked" in message for message in caplog.messages) == 1


def used_after(store: SQLiteBudget, limits: dict[str, float], **changes: float) -> str:
    """Count a request; return what is used, or why it does not fit."""
    outcome = store.add(parse_limits(limits), {"calls": 1.0, "tokens": 0.0, "usd": 0.0, **changes})
    if isinstance(outcome, Refusal):
        return f"refused by {outcome.limit.name} for {outcome.resets_in:g} s"
    return ", ".join(f"{amount:g}" for amount in outcome.used)


def test_periods_begin_with_the_minute_and_with_the_day(tmp_path: Path) -> None:
    """A day's budget is not renewed by a new minute, nor by a new hour."""
    day = 20_000 * 86_400.0
    now = [day + 30.0]
    store = SQLiteBudget(tmp_path / "budget.db", clock=lambda: now[0])
    limits = {"calls_per_minute": 2, "calls_per_day": 3, "usd_per_day": 1}
    assert used_after(store, limits, usd=0.25) == "1, 1, 0.25"
    assert used_after(store, limits, usd=0.25) == "2, 2, 0.5"
    assert used_after(store, limits) == "refused by calls_per_minute for 30 s"
    now[0] = day + 60
    assert used_after(store, limits, usd=0.75) == "refused by usd_per_day for 86340 s"
    assert used_after(store, limits, usd=0.5) == "1, 3, 1"
    for later in (120.0, 3600.0, 86_399.0):
        now[0] = day + later
        assert used_after(store, limits) == f"refused by calls_per_day for {86_400 - later:g} s"
    now[0] = day + 86_400
    assert used_after(store, limits) == "1, 1, 0"


@pytest.mark.parametrize("seconds_back", [90, 3600, 400 * 86_400])
def test_a_clock_that_goes_back_renews_nothing(tmp_path: Path, seconds_back: float) -> None:
    """Neither then, nor when the same day comes again. A day that is far ahead does not stop the judge for long."""
    day = 20_000 * 86_400.0
    now = [day + 60.0]
    store = SQLiteBudget(tmp_path / "budget.db", clock=lambda: now[0])
    limits = {"calls_per_day": 2}
    assert [used_after(store, limits) for _ in range(2)] == ["1", "2"]
    now[0] -= seconds_back
    assert used_after(store, limits).startswith("refused")
    if seconds_back < 86_400:
        now[0] = day + 120.0
        assert used_after(store, limits).startswith("refused")
    now[0] += 86_400
    assert used_after(store, limits) == "1"


def test_corrections_count_in_the_period_of_the_request(tmp_path: Path) -> None:
    """If that is over, what was counted too much is not given back to the new period."""
    now = [1_000_000_020.0]
    store = SQLiteBudget(tmp_path / "budget.db", clock=lambda: now[0])
    limits = parse_limits({"tokens_per_minute": 100})
    first = store.add(limits, {"tokens": 50.0})
    assert isinstance(first, Counted)
    assert store.add(limits, {"tokens": -20.0}, first.periods) == Counted(first.periods, (30.0,))
    now[0] += 60
    assert store.add(limits, {"tokens": -20.0}, first.periods).used == (0.0,)
    assert store.add(limits, {"tokens": 20.0}, first.periods).used == (20.0,)
    assert store.add(limits, {"tokens": -15.0}, first.periods).used == (20.0,)


def test_a_locked_file_stops_the_judge_after_a_while(tmp_path: Path) -> None:
    """Another process that holds the lock for longer than two seconds does not stop the application."""
    store = SQLiteBudget(tmp_path / "budget.db")
    assert used_after(store, {"calls_per_day": 5}) == "1"
    other = sqlite3.connect(tmp_path / "budget.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    with pytest.raises(BudgetUnavailableError, match="cannot be used: database is locked"):
        used_after(store, {"calls_per_day": 5})
    other.close()
    assert used_after(store, {"calls_per_day": 5}) == "2"


def test_the_budget_lasts_until_it_is_used_up(tmp_path: Path) -> None:
    """With the limit 0 the judge is never asked."""
    judge = with_budget(FakeJudge(), {"calls_per_minute": 0}, str(tmp_path / "budget.db"))
    with pytest.raises(BudgetUsedUpError, match="0 calls per minute"):
        asyncio.run(judge.complete([("user", "?")], Grade))
