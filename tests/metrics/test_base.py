"""What a metric is, how one is made from a function, and how one is run."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pytest

from rageval_hooks import (
    Failed,
    Metric,
    Score,
    ScoreDefinition,
    Skipped,
    Turn,
    UnknownNameError,
    metric,
)
from rageval_hooks.errors import InputTooLargeError, ModelNotReadyError, ModelUnavailableError, OverBudgetError
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.score import Result
from tests.local import LOCAL, make_turn, run, why_not

TURN = make_turn("An answer.", ["A passage."], "A question?")


class Custom(Metric):
    """Does what it is told to."""

    name: ClassVar[str] = "custom"
    version: ClassVar[str] = "7"

    def __init__(self, result: Any) -> None:
        self._result = result

    def evaluate(self, analysis: object) -> Result | Iterable[Result]:
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------- from a function


def test_a_function_becomes_a_metric() -> None:
    """Its name names the score, its docstring describes it."""

    @metric(high=None, unit="words", direction="lower", version="3")
    def response_words(turn: Turn) -> int:
        """Words of the response.

        More on that.
        """
        return len(turn.response.split())

    assert response_words.scores == (
        ScoreDefinition(
            name="response_words", description="Words of the response.", direction="lower", high=None, unit="words"
        ),
    )
    [score] = run(response_words, TURN)
    assert isinstance(score, Score)
    assert (score.name, score.value, score.version) == ("response_words", 2, "3")
    assert response_words(TURN) == 2
    assert repr(response_words) == "<metric response_words>"


def test_a_decorator_without_arguments() -> None:
    """Arguments of the decorator are optional."""

    @metric
    def nothing_said(turn: Turn) -> bool:
        return True

    [score] = run(nothing_said, TURN)
    assert isinstance(score, Score)
    assert (score.name, score.value) == ("nothing_said", 1.0)


def test_two_function_metrics_do_not_share_their_attributes() -> None:
    """Each has its own name, requirements and version."""
    one = metric(lambda turn: 1, name="one", requires=["query"], version="2")
    other = metric(lambda turn: 1, name="other")

    assert (one.name, one.requires, one.version) == ("one", ("query",), "2")
    assert (other.name, other.requires, other.version) == ("other", (), "1")


@pytest.mark.parametrize(
    ("returned", "value"),
    [(0.5, 0.5), (3, 3.0), (True, 1.0), (np.float32(0.5), 0.5), (np.int64(3), 3.0), (np.bool_(True), 1.0)],
)
def test_what_counts_as_a_number(returned: Any, value: float) -> None:
    """Python's numbers, and those of numerical libraries."""
    [score] = run(metric(lambda turn: returned, name="number", high=None), TURN)

    assert isinstance(score, Score)
    assert score.value == value


def test_a_function_may_return_results() -> None:
    """One, several, or None to skip."""
    score, skipped = Score(name="a", value=1, metric="m"), Skipped(name="b", reason="why", metric="m")

    assert run(metric(lambda turn: score, name="m"), TURN) == (score,)
    assert run(metric(lambda turn: [score, skipped], name="m"), TURN) == (score, skipped)
    assert why_not(run(metric(lambda turn: None, name="m"), TURN)) == ("m", "the function returned None")


@pytest.mark.parametrize("requires", [["contexts"], ["query", "usage"], "passage"])
def test_unknown_requirements_are_refused(requires: Any) -> None:
    """At construction; the message lists what there is."""
    with pytest.raises(UnknownNameError, match="Valid: passages, query, reference, response, timing"):
        metric(lambda turn: 1, name="m", requires=requires)


def test_one_requirement_needs_no_list() -> None:
    """A string is one field, not its letters."""
    assert metric(lambda turn: 1, name="m", requires="query").requires == ("query",)


# ------------------------------------------------------------------------------------------------- running


@pytest.mark.parametrize(
    ("field", "turn", "reason"),
    [
        ("query", make_turn(), "the turn has no query"),
        ("query", make_turn(query=" \n"), "the turn has no query"),
        ("response", make_turn(), "the turn has no response"),
        ("passages", make_turn(), "the turn has no passages"),
        ("passages", make_turn(passages=["", " "]), "the passages have no text"),
        ("reference", make_turn(), "the turn has no reference answer"),
        ("timing", make_turn(), "the turn was not timed"),
        ("response", make_turn(status="cancelled"), "the turn has no response: it ended with cancelled"),
        (
            "response",
            make_turn(response="It w", status="cancelled", complete=False),
            "answer incomplete: the model was stopped before its end",
        ),
    ],
)
def test_a_metric_without_its_input_is_skipped(field: Any, turn: Turn, reason: str) -> None:
    """It is not even called."""
    calls: list[Turn] = []

    assert why_not(run(metric(calls.append, name="m", requires=[field]), turn)) == ("m", reason)
    assert calls == []


def test_scores_carry_the_metrics_version() -> None:
    """So that numbers of different formulas are not compared; the name is the metric's unless another is given."""
    assert Custom(None).score(0.5).name == "custom"
    assert Custom(None).score(0.5).version == "7"
    assert Custom(None).score(0.5, "custom.part", model="m").model == "m"


@pytest.mark.parametrize(
    ("result", "error_type", "message"),
    [
        (ZeroDivisionError("division by zero"), "ZeroDivisionError", "division by zero"),
        ("text", "TypeError", "returned str, not a number or a result"),
        ([Score(name="a", value=1), 3], "TypeError", "returned int, not a number or a result"),
        (object(), "TypeError", "'object' object is not iterable"),
    ],
)
def test_a_metric_that_goes_wrong_has_failed(
    result: Any, error_type: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """That is a result with the reason, never an exception."""
    [failed] = run(Custom(result), TURN)

    assert isinstance(failed, Failed)
    assert (failed.name, failed.error_type, failed.message) == ("custom", error_type, message)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_has_failed(value: float) -> None:
    """NaN is not a score: the result is failed."""
    [result] = run(metric(lambda turn: value, name="m"), TURN)

    assert isinstance(result, Failed)
    assert result.message == "value: Input should be a finite number"


def test_a_generator_that_raises_halfway_has_failed() -> None:
    """Its earlier results are dropped: without the rest they may mean something else."""

    class Halfway(Custom):
        def evaluate(self, analysis: object) -> Iterable[Result]:
            yield self.score(1)
            raise ValueError("halfway")

    [result] = run(Halfway(None), TURN)

    assert isinstance(result, Failed)
    assert result.message == "halfway"


def test_a_metric_that_requires_what_no_turn_has_has_failed() -> None:
    """A class is not checked when it is made."""

    class Strange(Custom):
        requires = ("contexts",)  # type: ignore[assignment]

    [result] = run(Strange(None), TURN)

    assert isinstance(result, Failed)
    assert result.error_type == "AttributeError"


def test_a_value_outside_of_its_range_has_failed() -> None:
    """The message says where the range is given. Within it, the score has the unit and the range of its definition."""

    @metric(high=5, unit="stars")
    def stars(turn: Turn) -> int:
        return len(turn.response)

    [low, high] = [run(stars, make_turn(response)) for response in ("1234", "123456")]

    assert [(score.value, score.unit, score.high) for score in low if isinstance(score, Score)] == [(4, "stars", 5)]
    assert [failed.message for failed in high if isinstance(failed, Failed)] == [
        "the value is 6, and stars is 0 to 5: give its range where it is made, such as high=None"
    ]


def test_a_metric_that_fails_on_every_turn_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """One line with the traceback."""

    class Flood(Custom):
        name = "flood"

    for _ in range(10):
        run(Flood(KeyError("x")), TURN)

    [record] = [record for record in caplog.records if "flood" in record.getMessage()]
    assert record.levelno == logging.WARNING
    assert record.exc_info is not None


@pytest.mark.parametrize("error", [ModelUnavailableError("nlp", "no such file"), InputTooLargeError("too large")])
def test_an_unavailable_model_or_a_too_large_input_is_skipped(error: Exception) -> None:
    """With the reason."""
    assert why_not(run(Custom(error), TURN)) == ("custom", str(error))


@pytest.mark.parametrize("error", [ModelNotReadyError("nlp"), OverBudgetError()])
def test_a_metric_that_has_to_wait_says_so(error: Exception) -> None:
    """The pipeline moves it to the background."""
    with pytest.raises(type(error)):
        run(Custom(error), TURN)


@pytest.mark.parametrize(
    ("value", "threshold", "direction", "expected"),
    [
        (0.5, 0.5, "higher", "pass"),
        (0.49, 0.5, "higher", "fail"),
        (0.5, 0.5, "lower", "pass"),
        (0.51, 0.5, "lower", "fail"),
    ],
)
def test_labels_come_from_thresholds(value: float, threshold: float, direction: Any, expected: str) -> None:
    """At least, or at most where lower is better."""
    definition = ScoreDefinition(name="a", description="", direction=direction)

    assert definition.label(Score(name="a", value=value), threshold).label == expected


# ------------------------------------------------------------------------------------------------ built in


def test_the_local_metrics_are_all_there() -> None:
    """Every metric of the documentation's table, and all of them run when none is named."""
    builtin = REGISTRY.builtin()

    assert set(LOCAL) <= set(builtin)
    assert all(builtin[name].default for name in LOCAL)
    assert all(builtin[name].calls == "0" for name in LOCAL)


@pytest.mark.parametrize("name", LOCAL)
def test_every_score_is_defined(name: str) -> None:
    """Each score that a metric returns has a definition with name, meaning and range."""
    made = REGISTRY.create(name)
    defined = {definition.name: definition for definition in made.scores}

    assert made.name in defined
    assert made.source
    for result in run(made, TURN):
        if isinstance(result, Score):
            definition = defined[result.name]
            assert definition.description
            assert definition.low <= result.value
            assert definition.high is None or result.value <= definition.high
            assert result.version == made.version


def test_what_is_better_when_it_is_lower() -> None:
    """All others are better when they are higher."""
    lower = {
        definition.name
        for name in LOCAL
        for definition in REGISTRY.builtin()[name].scores
        if definition.direction == "lower"
    }

    assert lower == {
        "hallucination",
        "unsupported_facts",
        "latency",
        "latency.retrieval",
        "latency.generation",
        "latency.time_to_first_token",
        "tokens",
        "tokens.input",
        "tokens.output",
        "cost",
    }
