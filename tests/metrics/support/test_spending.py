"""Judge metrics report all tokens that they used, once, also if some of their calls fail."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rageval_hooks import Evaluation, evaluate
from rageval_hooks.metrics.judged.citation import Citation
from rageval_hooks.metrics.judged.umbrela import Umbrela
from rageval_hooks.testing import FakeJudge
from tests.judges.server import Received, answer, error, raw
from tests.metrics.good_judge import good_answer, long_turn, on_server, served

CUT_OFF = answer({}, finish_reason="length")


def nth(*failing: int, reply: Any = CUT_OFF) -> Any:
    """Return a function that fails some of the requests with a schema, counted from 1, and answers the others."""
    count = 0

    def respond(request: Received) -> Any:
        nonlocal count
        count += 1
        return reply if count in failing else on_server()(request)

    return respond


def judged(given: dict[str, Any], metrics: Any, passages: int = 12) -> tuple[Evaluation, int]:
    """Return the results, and the input tokens that the server has charged."""
    with served(on_server(given), max_retries=0) as (_, judge):
        evaluation = evaluate(long_turn(passages), metrics=metrics, judge=judge)
        return evaluation, judge.stats()["input_tokens"]


def reported(evaluation: Evaluation) -> int:
    """Return the input tokens that the metrics report, each on its first result, as a span has them."""
    first: dict[str, Any] = {}
    for result in evaluation.results:
        if "judge" in getattr(result, "metadata", {}):
            first.setdefault(result.metric or "", result.metadata["judge"])  # type: ignore[union-attr]
    return sum(details.get("input_tokens", 0) for details in first.values())


@pytest.mark.parametrize(
    ("schema", "failing", "metrics", "requests"),
    [
        ("NuggetDrafts", [2], ["nuggets"], 3),
        ("NuggetDrafts", [1], ["nuggets"], 2),
        ("NuggetWeights", [1], ["nuggets"], 5),
        ("NuggetAssignments", [1], ["nuggets"], 5),
        ("PassageGrades", [1], ["nuggets"], 1),
        ("PassageGrades", [2], [Umbrela(batch=6)], 2),
        ("PassageGrades", [1, 2], [Umbrela(batch=6)], 2),
        ("PassageGrades", [1, 2], [Umbrela(batch=6), "ranking", "nuggets"], 2),
        ("PassageGrades", [1], ["ranking", "nuggets"], 1),
        ("CitationSupport", [2], [Citation(batch=1)], 3),
    ],
    ids=str,
)
def test_what_was_spent_in_vain_is_reported_too(schema: str, failing: list[int], metrics: Any, requests: int) -> None:
    """Answers and failed calls add up to what the provider charges, and no call is counted twice."""
    evaluation, charged = judged({schema: nth(*failing)}, metrics)

    assert evaluation.failed
    assert charged == 100 * requests
    assert reported(evaluation) == charged


def test_a_score_of_several_calls_has_their_cost_together() -> None:
    """Twelve passages in batches of six are two calls."""
    judge = FakeJudge(lambda call: good_answer(call.schema.__name__, call.messages[-1].content), cost=0.25)
    mean = evaluate(long_turn(12), metrics=[Umbrela(batch=6)], judge=judge).score("umbrela.mean")

    assert mean is not None
    assert mean.metadata["judge"]["cost"] == 0.5


def test_unanswered_requests_cost_nothing() -> None:
    """They do not make the sum unknown."""
    evaluation, charged = judged({"PassageGrades": nth(2, reply=error(500))}, [Umbrela(batch=6)])

    assert reported(evaluation) == charged == 100


def test_an_unknown_part_makes_the_sum_unknown() -> None:
    """If one reply does not report its tokens, there is no sum."""
    silent = answer({"intent": "", "grades": []}, usage=None)
    evaluation, _ = judged({"PassageGrades": nth(2, reply=silent)}, [Umbrela(batch=6)])
    mean = evaluation.score("umbrela.mean")

    assert mean is not None
    assert "input_tokens" not in mean.metadata["judge"]


def test_one_failure_for_each_score() -> None:
    """Also where batches fail in different ways: with both reasons, and as often as the metric has scores."""
    replies = iter([error(400, "not so"), raw(b'{"choices":[]}')])
    evaluation, _ = judged({"PassageGrades": lambda _: next(replies)}, ["ranking", "umbrela", "nuggets"], 30)

    assert set(Counter(result.name for result in evaluation.results).values()) == {1}
    assert len(evaluation.failed) == 7 + 2 + 6
    assert all("not so" in failed.message and "without choices[0]" in failed.message for failed in evaluation.failed)
