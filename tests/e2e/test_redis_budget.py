"""A budget in a real Redis server."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from rageval_hooks.budgets import BudgetUnavailableError, with_budget
from rageval_hooks.judges.fake import FakeJudge
from tests.budgets.fleet import spend

SERVER = shutil.which("redis-server")

pytestmark = pytest.mark.skipif(SERVER is None, reason="no Redis server: apt-get install redis-server")


class Grade(BaseModel):
    value: int


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a server with an empty database."""
    redis = pytest.importorskip("redis", reason='no client: pip install "rageval-hooks[redis]"')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(SERVER), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if "Ready to accept connections" in line:
                break
        client = redis.Redis(port=port)
        client.ping()
        client.close()
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait(10)
        server.stdout.close()


@pytest.mark.parametrize(
    ("limits", "unit", "largest_call"),
    [({"calls_per_day": 25}, "calls", 0), ({"tokens_per_day": 2000}, "tokens", 100), ({"usd_per_day": 2}, "usd", 0.1)],
)
def test_a_fleet_shares_a_budget(url: str, limits: dict[str, float], unit: str, largest_call: float) -> None:
    """Four processes overshoot by one call each at most, and use most of the budget."""
    [limit] = limits.values()
    spent = spend(url, processes=4, **limits)

    assert 0.7 * limit <= getattr(spent, unit) <= limit + 4 * largest_call
    [refusal] = spent.refusals
    assert refusal.startswith("budget_spent: the judge's budget of ")


def test_a_server_that_is_down_stops_the_judge() -> None:
    """Without the counts the budget could be exceeded. The message shows no password."""
    judge = with_budget(FakeJudge([{"value": 1}]), {"calls_per_day": 5}, "redis://:secret@127.0.0.1:1/0")
    with pytest.raises(BudgetUnavailableError, match=r"Redis \(127\.0\.0\.1:1\) cannot be used") as error:
        asyncio.run(judge.complete([("user", "?")], Grade))
    assert "secret" not in str(error.value)
