"""What a captured turn says of a guard: the user's answer, the one that was blocked, and the verdict on that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableGenerator, RunnableLambda
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import rageval_hooks
from rageval_hooks import AnswerBlockedError, Evaluation, GroundingGuard, Turn
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.testing import FakeJudge, InMemoryExporter
from tests.guard.conftest import FALLBACK, PASSAGE, SUPPORTED, Traced, make_guard

WRONG = "The new pier was opened in September 1871."


def answered(guard: GroundingGuard, answer: Any = WRONG, **settings: Any) -> tuple[Evaluation, Traced]:
    """Let a guard check an answer inside a captured turn, and return its inline evaluation and its spans."""
    traced, exporter = Traced(), InMemoryExporter()
    otel = OtelExporter(traced.provider, log_events=False, score_metrics=False)
    settings = {"models": "lexical", "inline_budget_ms": 20_000, **settings}
    with rageval_hooks.instrument(exporters=[exporter, otel], **settings) as handle:
        try:
            with rageval_hooks.start_turn("When was the pier opened?") as turn:
                turn.add_passages([PASSAGE])
                turn.respond(answer(guard) if callable(answer) else guard(answer))
        except AnswerBlockedError:
            pass
        assert handle.flush(30)
    [inline] = [found for found in exporter.evaluations if found.stage == "inline"]
    return inline, traced


def turn_span(traced: Traced) -> dict[str, Any]:
    [root] = [span for span in traced.exporter.get_finished_spans() if span.parent is None]
    return dict(root.attributes or {})


def label(evaluation: Evaluation) -> str | None:
    return next(result.label for result in evaluation.results if result.name == "verdict")


@pytest.mark.parametrize(
    ("on_fail", "seen", "blocked"),
    [("replace", FALLBACK, WRONG), ("raise", "", WRONG), ("flag", WRONG, None)],
)
def test_the_verdict_is_that_of_the_blocked_answer(on_fail: Any, seen: str, blocked: str | None) -> None:
    """The turn has what the user saw, and next to it what the user did not get."""
    action = {"replace": "replaced", "raise": "raised", "flag": "flagged"}[on_fail]
    evaluation, traced = answered(make_guard(on_fail=on_fail))

    outcome = evaluation.turn.guard
    assert outcome is not None
    assert (evaluation.turn.response, outcome.action, outcome.blocked_answer) == (seen, action, blocked)
    assert label(evaluation) == "bad"
    assert evaluation["unsupported_facts"] == 1
    found = turn_span(traced)
    assert (found["rageval.verdict"], found["rageval.guard.action"]) == ("bad", action)
    assert found["rageval.guard.reason"].startswith("the verdict is bad: unsupported")
    assert found["rageval.guard.cause"] == outcome.cause == "unsupported"
    assert found.get("rageval.guard.blocked_answer") == blocked


def test_an_answer_that_passes_is_the_answer() -> None:
    evaluation, traced = answered(make_guard(), SUPPORTED)

    assert evaluation.turn.response == SUPPORTED
    assert evaluation.turn.evaluated is evaluation.turn
    assert label(evaluation) == "good"
    assert turn_span(traced)["rageval.guard.action"] == "passed"


def test_the_judge_is_asked_about_the_blocked_answer() -> None:
    """And not about the fallback, which it would call a refusal."""
    judge = FakeJudge()
    answered(make_guard(), judge=judge)

    [call] = judge.calls
    prompt = "\n".join(message.content for message in call.messages)
    assert "1871" in prompt
    assert FALLBACK not in prompt


def test_in_a_stream_the_blocked_answer_begins_with_what_was_shown() -> None:
    """The rest is not known: the model stops."""

    def written(_: Iterator[Any]) -> Iterator[str]:
        yield from (f"{SUPPORTED} ", "It was ", "built in 1871. ", "And so on.")

    def stream(guard: GroundingGuard) -> str:
        return "".join((RunnableGenerator(written) | guard).stream("When?"))

    evaluation, _ = answered(make_guard(), stream)

    assert evaluation.turn.response == f"{SUPPORTED} \n\n{FALLBACK}"
    assert evaluation.turn.guard is not None
    assert evaluation.turn.guard.blocked_answer == f"{SUPPORTED} It was built in 1871."


@pytest.mark.parametrize(
    ("answers", "action", "blocked", "verdict"),
    [((WRONG, SUPPORTED), "regenerated", None, "good"), ((WRONG, f"{WRONG} "), "replaced", WRONG, "bad")],
    ids=["the second passes", "both are blocked"],
)
def test_an_answer_that_was_written_again(
    answers: tuple[str, str], action: str, blocked: str | None, verdict: str
) -> None:
    """The verdict is that of the last one."""

    def regenerate(guard: GroundingGuard) -> str:
        left = iter(answers)
        return str(guard.wrap(RunnableLambda(lambda _: next(left))).invoke("When was the pier opened?"))

    evaluation, _ = answered(make_guard(on_fail="regenerate"), regenerate)

    outcome = evaluation.turn.guard
    assert outcome is not None
    assert (outcome.action, (outcome.blocked_answer or "").strip() or None, label(evaluation)) == (
        action,
        blocked,
        verdict,
    )


@pytest.mark.parametrize(
    "settings", [{"capture_content": False}, {"redact": lambda text: text.replace("1871", "[year]")}]
)
def test_the_blocked_answer_is_hidden_and_redacted_like_all_texts(settings: dict[str, Any]) -> None:
    """On every span; what the guard did stays."""
    _, traced = answered(make_guard(), **settings)

    assert turn_span(traced)["rageval.guard.action"] == "replaced"
    assert "1871" not in json.dumps([dict(span.attributes or {}) for span in traced.exporter.get_finished_spans()])


@pytest.mark.parametrize("passages", [[PASSAGE], []], ids=["with passages", "without"])
@pytest.mark.parametrize("answer", ["Hello!", "Great question!", "You're welcome!", "Thank you for asking."])
def test_what_claims_nothing_is_not_unchecked(answer: str, passages: list[str]) -> None:
    """Nothing in it could be wrong, so that a strict guard lets it pass."""
    decision = make_guard(on_error="closed").check(answer, passages)

    assert (decision.verdict, decision.answer) == ("no_claims", answer)


def test_decisions_are_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """By action, verdict and cause, also where nothing is instrumented."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr("rageval_hooks.guard.checking.global_meter_provider", lambda: provider)

    def counted() -> dict[tuple[Any, ...], Any]:
        data = reader.get_metrics_data()
        return {
            tuple(point.attributes.get(f"rageval.guard.{name}") for name in ("action", "verdict", "cause")): point.value
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for found in scope.metrics
            if found.name == "rageval.guard.decisions"
            for point in found.data.data_points
        }

    guard = make_guard()
    guard.check(SUPPORTED, [PASSAGE])
    before = counted()
    for answer in (SUPPORTED, WRONG, WRONG):
        guard.check(answer, [PASSAGE])
    after = counted()

    passed, replaced = ("passed", "supported", None), ("replaced", "unsupported", "unsupported")
    assert after[passed] - before[passed] == 1
    assert after[replaced] - before.get(replaced, 0) == 2


def test_a_turn_with_a_guard_goes_through_json() -> None:
    """A spool and another process have it too."""
    evaluation, _ = answered(make_guard())

    assert Turn.model_validate_json(evaluation.turn.model_dump_json()).evaluated.response == WRONG
