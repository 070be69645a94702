"""The servers and the clock that the judge's tests share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rageval_hooks.runtime.logs import REDACTORS
from tests.judges.helpers import FIXED_NONCE, StillClock
from tests.judges.server import JudgeServer


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_LOG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_redaction_of_earlier_tests() -> None:
    """A guard that redacts, which waits for the garbage collector, would mask the server's address in log messages."""
    if REDACTORS:
        gc.collect()


@pytest.fixture
def fixed_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the nonce of each call known, for models whose answers are written before they are asked."""
    monkeypatch.setattr("secrets.token_hex", lambda _: FIXED_NONCE)


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        yield server


@pytest.fixture
def clock() -> StillClock:
    return StillClock()
