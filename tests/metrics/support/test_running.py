"""What becomes of a metric that raises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rageval_hooks import Failed, JudgeMetric, ScoreDefinition
from rageval_hooks.metrics.running import compute_judged
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.testing import FakeJudge
from tests.local import make_turn


class Raising(JudgeMetric):
    """A metric of the application."""

    name = "raising"
    scores = (ScoreDefinition(name="raising", description="never there"),)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def evaluate(self, case: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    "error", [ValueError("our own"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("a timeout inside")]
)
def test_a_judge_metric_that_raises_is_a_failure(error: BaseException) -> None:
    """Whatever it raises: the other metrics go on."""
    metric = Raising(error)
    case = JudgedTurn(make_turn("It is long."), FakeJudge(lambda _: {}), [metric])
    [found] = asyncio.run(compute_judged(metric, case))

    assert isinstance(found, Failed)
    assert (found.name, found.error_type) == ("raising", type(error).__name__)


def test_a_shutdown_ends_a_judge_metric() -> None:
    """Then there is no result to report."""

    class Waiting(Raising):
        async def evaluate(self, case: Any) -> Any:
            await asyncio.Event().wait()

    async def main() -> None:
        metric = Waiting(ValueError())
        case = JudgedTurn(make_turn("It is long."), FakeJudge(lambda _: {}), [metric])
        task = asyncio.create_task(compute_judged(metric, case))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
