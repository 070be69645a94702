"""A guard as a plain function: decisions, refusals, errors, timeouts and spans."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from blockbuster import blockbuster_ctx
from opentelemetry import trace

import rageval_hooks
from rageval_hooks import (
    AnswerBlockedError,
    ConfigurationError,
    GroundingGuard,
    GuardDecision,
    Score,
    Target,
    start_turn,
)
from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.testing import FakeJudge
from tests.guard.conftest import FALLBACK, PASSAGE, SUPPORTED, UNSUPPORTED, Traced, make_guard
from tests.local import ground_by

HERE = Path(__file__).parent


def texts_of(name: str) -> list[str]:
    by_language = json.loads((HERE / name).read_text(encoding="utf-8"))
    return [text for texts in by_language.values() for text in texts]


def test_an_unsupported_answer_is_replaced_and_a_supported_one_passes() -> None:
    """The plain function returns what the user gets."""
    guard = make_guard()
    assert guard(SUPPORTED, [PASSAGE]) == SUPPORTED
    assert guard(UNSUPPORTED, [PASSAGE]) == FALLBACK
    counted = {name: count for name, count in guard.stats().items() if count}
    assert counted == {"decisions": 2, "supported": 1, "unsupported": 1, "passed": 1, "replaced": 1}


def test_a_flagged_answer_passes_with_its_decision() -> None:
    """The decision has the scores and the reason, and the user gets the answer."""
    heard: list[GuardDecision] = []
    decision = make_guard(on_fail="flag", on_decision=heard.append).check(UNSUPPORTED, PASSAGE)
    assert (decision.verdict, decision.action, decision.answer) == ("unsupported", "flagged", UNSUPPORTED)
    assert decision.reason == "the verdict is bad: unsupported (faithfulness 0.00, unsupported_facts 1.00)"
    assert decision.explanation.startswith("“Penguins eat purple bicycles on Mars.”: no passage has ")
    assert decision.results[0].name == "verdict"
    assert heard == [decision]
    assert decision.summary()["cause"] == "unsupported"


def test_the_cause_of_a_block_is_what_went_wrong_first() -> None:
    """A search that found nothing about the question is not a fault of the answer's words."""
    hours = "The swimming pool is open from 9 to 17 on weekdays."
    decision = make_guard().check("The new pier opened in 2019.", [hours], question="When was the new pier opened?")
    assert (decision.verdict, decision.cause) == ("unsupported", "not_retrieved")
    assert decision.reason.startswith("the verdict is bad: not_retrieved (")


def test_the_guard_works_on_if_its_callback_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A log line names the exception."""

    def fail(decision: GuardDecision) -> None:
        raise KeyError(decision.checked)

    assert make_guard(on_decision=fail)(UNSUPPORTED, [PASSAGE]) == FALLBACK
    assert "on_decision of a guard raised KeyError [RAGEVAL-702]" in caplog.text


def test_a_threshold_replaces_the_verdict() -> None:
    """One number for the scores from 0 to 1; a count keeps its own threshold, unless it is named."""
    lenient = make_guard(threshold=0.0)
    assert lenient.check("The new pier was opened.", [PASSAGE]).verdict == "supported"
    assert lenient.check(UNSUPPORTED, [PASSAGE]).reason == "unsupported_facts 1.00 is above 0"
    both = make_guard(threshold=0.5).check(UNSUPPORTED, [PASSAGE])
    assert both.reason == "faithfulness 0.00 is below 0.5; unsupported_facts 1.00 is above 0"
    by_name = make_guard(threshold={"faithfulness": 0, "unsupported_facts": 1}).check(UNSUPPORTED, [PASSAGE])
    assert (by_name.verdict, by_name.summary()["scores"]["unsupported_facts"]) == ("supported", 1)
    strict = make_guard(threshold=1.0).check("A bridge was opened in September.", [PASSAGE])
    assert strict.reason.startswith("faithfulness 0.")


@pytest.mark.parametrize(
    ("support", "verdict", "reason"),
    [(0.6, "supported", ""), (0.4, "unsupported", "groundedness 0.40 fails by the threshold of scripted")],
)
def test_a_grounding_model_has_a_threshold_of_its_own(
    support: float, verdict: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was trained to decide."""
    guard = make_guard(metrics="groundedness", models=ground_by(monkeypatch, support))
    decision = guard.check(SUPPORTED, [PASSAGE])
    assert (decision.verdict, decision.reason) == (verdict, reason)


def test_raising_gives_the_decision() -> None:
    """The exception has the answer, and its message does not quote it."""
    with pytest.raises(AnswerBlockedError, match="the verdict is bad") as caught:
        make_guard(on_fail="raise").check(UNSUPPORTED, [PASSAGE])
    assert caught.value.decision.checked == UNSUPPORTED
    assert "Penguins" not in str(caught.value)


def test_no_refusal_is_blocked() -> None:
    """200 refusals in five languages pass, with passages about something else, even where every check fails."""
    refusals = texts_of("refusals.json")
    assert len(set(refusals)) == 200
    guard = make_guard(on_error="closed", threshold=1.0)
    blocked = [text for text in refusals if guard.check(text, [PASSAGE]).blocked]
    assert blocked == []


def test_a_refusal_may_cite_a_passage() -> None:
    """With the passages at hand, a name of one of them is a citation."""
    decision = make_guard(threshold=1.0).check("I don't know. [pier.md]", [{"id": "pier.md", "text": PASSAGE}])
    assert decision.verdict == "refusal"


def test_claims_are_no_refusals() -> None:
    """What claims something is checked, also where it is negated or follows a refusal."""
    guard = make_guard()
    passed = [text for text in texts_of("claims.json") if guard.check(text, ["Unrelated words."]).verdict == "refusal"]
    assert passed == []


COST = "The new pier cost 41.2 million euros and was opened in 2019."


@pytest.mark.parametrize(
    ("question", "answer", "verdict"),
    [
        ("Did the pier cost 500 million euros?", "Yes, the pier cost 500 million euros.", "unsupported"),
        ("Did the pier cost 500 million euros?", "No, it cost 41.2 million euros.", "supported"),
        ("Was the pier opened in 2016?", "Yes, the new pier was opened in 2016.", "unsupported"),
        ("What did the pier cost?", "The new pier cost 41.2 million euros.", "supported"),
    ],
)
def test_the_question_supports_nothing(question: str, answer: str, verdict: str) -> None:
    """An agreeable model and a leading question make the commonest wrong answer."""
    assert make_guard().check(answer, [COST], question=question).verdict == verdict


REFUSED_AND_CLAIMED = [
    "I don't know. the price is 500 EUR.",
    "I don't know… the price is 500 EUR.",
    "I don't know ... the price is 500 EUR.",
    "I could not find that in the documents. the pier was opened in 2016.",
    "No lo sé. el precio es de 500 euros.",
    "No tengo información. el muelle se abrió en 2016.",
    "Ich weiß es nicht. der Preis beträgt 500 Euro.",
    "Je ne sais pas. le prix est de 500 euros.",
    "I don't know, but the price is 500 EUR.",
]


@pytest.mark.parametrize("answer", REFUSED_AND_CLAIMED)
def test_a_refusal_followed_by_a_claim_is_blocked(answer: str) -> None:
    """An answer is a refusal only if nothing else is claimed, also in lower case and after an ellipsis."""
    # An answer in another language than all passages is not checked.
    passages = [
        COST,
        "El muelle costó 41,2 millones de euros y se abrió en 2019.",
        "Der Steg kostete 41,2 Millionen Euro und wurde im Jahr 2019 eröffnet.",
        "La jetée a coûté 41,2 millions d'euros et elle a été ouverte en 2019.",
    ]
    decision = make_guard().check(answer, passages, question="What is the price?")
    assert (decision.verdict, decision.answer) == ("unsupported", FALLBACK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_fail": "block"}, "on_fail: Input should be 'flag', 'replace', 'raise' or 'regenerate', not 'block'"),
        ({"on_error": "ajar"}, "on_error: Input should be 'open' or 'closed'"),
        ({"timeout_ms": 0}, "timeout_ms: Input should be greater than 0, not 0"),
        ({"fallback": " ", "timeout_ms": 0}, "fallback: .*; timeout_ms: Input"),  # all of them at once
        ({"fallback": " "}, "fallback: String should match"),
        ({"max_regenerations": 99}, "max_regenerations: Input should be less than or equal to 5, not 99"),
        ({"threshold": 1.5}, "the threshold of faithfulness is 1.5, but its values are 0 to 1"),
        ({"threshold": {"grounding": 0.5}}, "unknown score in thresholds 'grounding'"),
        ({"threshold": True}, "threshold: .* must be a number, not a boolean"),
        ({"metrics": ["latency"]}, "the guard has no threshold for latency"),
        ({"models": {"embedder": "example/none"}, "metrics": "faithfulness"}, "the guard has no threshold for faith"),
        ({"metrics": ["groundednes"]}, "Did you mean 'groundedness'"),
        ({"passage_keys": "context"}, "passage_keys: Input should be a valid tuple, not 'context'"),
    ],
)
def test_a_wrong_option_is_an_error_at_construction(options: dict[str, Any], message: str) -> None:
    """The message says what is valid."""
    with pytest.raises(ConfigurationError, match=message):
        GroundingGuard(**{"models": "lexical", **options})


def test_warming_up_says_which_model_cannot_be_loaded(tmp_path: Path) -> None:
    """A folder without its files, as after an interrupted copy."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelUnavailableError, match="embedder"):
        GroundingGuard(models={"embedder": str(tmp_path), "download": False}).warm_up()
    make_guard().warm_up()


@pytest.mark.parametrize(
    "passage",
    [{"snippet": PASSAGE}, {"document": {"content": PASSAGE}, "score": 0.8}, {"_source": {"body": PASSAGE}}],
    ids=["a search engine's", "next to its score", "an index's"],
)
def test_forms_of_passages_are_those_of_files(passage: dict[str, Any]) -> None:
    """What a file may have as a passage, the guard reads too."""
    decision = make_guard(on_error="closed").check(SUPPORTED, [passage])
    assert decision.verdict == "supported"


def test_something_that_is_no_passage_is_an_error() -> None:
    """A search without results is none."""
    guard = make_guard(on_error="closed")
    assert guard.check(SUPPORTED, []).verdict == "unchecked"
    for passages in (7, {"title": "a mapping without a text"}):
        with pytest.raises(TypeError, match="a guard takes texts, documents or nodes as passages"):
            guard.check(SUPPORTED, passages)
    with pytest.raises(TypeError, match="the text of an answer, not a value of type NoneType"):
        guard.check(None, [PASSAGE])


def test_an_answer_without_content_words_passes() -> None:
    """There is nothing to compare."""
    assert make_guard(on_error="closed").check("Yes, it is.", [PASSAGE]).verdict == "no_claims"


def test_regenerate_is_an_error_where_nothing_can_be_asked_again() -> None:
    """The message says where it works."""
    guard = make_guard(on_fail="regenerate")
    with pytest.raises(ConfigurationError, match=r"guard.middleware\(\) in create_agent or guard.wrap\(chain\)"):
        guard.check(SUPPORTED, [PASSAGE])


def test_passages_come_from_the_turn_that_is_being_captured() -> None:
    """Without named passages, those of the open turn are used, also if the turn is sampled out."""
    guard = make_guard()
    for rate in (1.0, 0.0):
        with (
            rageval_hooks.instrument(metrics=[], exporters=[], models="lexical", sample_rate=rate),
            start_turn("When was the pier opened?") as turn,
        ):
            turn.add_passages([PASSAGE])
            assert guard.check(SUPPORTED).verdict == "supported"
            assert guard.check(UNSUPPORTED).verdict == "unsupported"


def test_named_passages_count_alone() -> None:
    """Also where the captured turn has others: the caller says what the answer was written from."""
    guard = make_guard()
    with (
        rageval_hooks.instrument(metrics=[], exporters=[], models="lexical"),
        start_turn("When was the pier opened?") as turn,
    ):
        turn.add_passages([PASSAGE])
        assert guard.check(SUPPORTED, ["Bread is baked in Kent."]).verdict == "unsupported"
        assert guard.check(SUPPORTED, []).verdict == "unchecked"


@pytest.mark.parametrize("on_error", ["open", "closed"])
def test_an_answer_in_another_language_follows_on_error(on_error: Any) -> None:
    """Its words cannot be compared with those of the passages."""
    decision = make_guard(on_error=on_error).check("Der Steg kostete 41,2 Millionen Euro und ist neu.", [COST])

    assert (decision.verdict, decision.blocked) == ("unchecked", on_error == "closed")
    assert decision.cause == "language"
    assert decision.reason.startswith("language: verdict: language German")


def test_a_question_to_the_user_passes() -> None:
    """It claims nothing."""
    assert make_guard().check("Which pier do you mean?", [COST]).verdict == "refusal"


@pytest.mark.parametrize(("on_error", "answer"), [("open", UNSUPPORTED), ("closed", FALLBACK)])
def test_a_check_without_passages_follows_on_error(on_error: Any, answer: str, traced: Traced) -> None:
    """Nothing can be said about the answer. The status of the span is an error, which a blocked answer is not."""
    decision = make_guard(traced, on_error=on_error).check(UNSUPPORTED)
    assert (decision.verdict, decision.answer) == ("unchecked", answer)
    assert decision.reason == "no_passages: verdict: the turn has no passages"
    make_guard(traced).check(UNSUPPORTED, [PASSAGE])
    statuses = [(span.status.is_ok, span.status.description) for span in traced.decisions]
    assert statuses == [(False, decision.reason), (True, None)]


def test_the_log_says_what_to_do_without_passages(caplog: pytest.LogCaptureFixture) -> None:
    """Once a minute for each reason."""
    make_guard(metrics="groundedness").check(UNSUPPORTED)
    assert "which is passed: groundedness: the turn has no passages; call instrument(), or give" in caplog.text
    assert "[RAGEVAL-701]" in caplog.text


@pytest.mark.parametrize(("on_error", "answer"), [("open", SUPPORTED), ("closed", FALLBACK)])
def test_a_model_that_hangs_costs_no_more_than_the_timeout(hanging: Any, on_error: Any, answer: str) -> None:
    """Fail-open and fail-closed; once all threads hang, further checks do not wait. Refusals pass all the time."""
    guard = make_guard(metrics=[hanging], threshold=0.5, on_error=on_error, timeout_ms=50)
    decisions = [guard.check(SUPPORTED, [PASSAGE])]
    # On a slow machine, some checks do not begin before their timeout, and keep no thread.
    while "are still running after their timeout" not in decisions[-1].reason and len(decisions) < 100:
        decisions.append(guard.check(SUPPORTED, [PASSAGE]))
    assert {decision.answer for decision in decisions} == {answer}
    assert decisions[0].reason == "no result within 50 ms"
    assert len(decisions) < 100
    assert guard.check("I don't know.", [PASSAGE]).action == "passed"


def test_a_model_that_hangs_does_not_block_the_event_loop(hanging: Any) -> None:
    """Other tasks run while a check waits."""
    guard = make_guard(metrics=[hanging], threshold=0.5, on_error="closed", timeout_ms=300)

    async def main() -> int:
        ticks = 0
        check = asyncio.create_task(guard.acheck(SUPPORTED, [PASSAGE]))
        while not check.done():
            await asyncio.sleep(0.005)
            ticks += 1
        assert check.result().answer == FALLBACK
        return ticks

    assert asyncio.run(main()) >= 5


@pytest.mark.parametrize("redact", [False, True])
def test_a_check_in_an_event_loop_of_trio(traced: Traced, redact: bool) -> None:
    """Also with texts that are redacted for the span."""
    guard = make_guard(traced, redact=redact)

    async def main() -> list[str]:
        return [(await guard.acheck(text, [PASSAGE])).answer for text in (SUPPORTED, UNSUPPORTED)]

    assert trio.run(main) == [SUPPORTED, FALLBACK]
    assert len(traced.decisions) == 2


def test_a_timeout_in_an_event_loop_of_trio(hanging: Any) -> None:
    guard = make_guard(metrics=[hanging], threshold=0.5, on_error="closed", timeout_ms=50)

    async def main() -> GuardDecision:
        return await guard.acheck(SUPPORTED, [PASSAGE])

    assert trio.run(main).reason == "no result within 50 ms"


def test_another_event_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a message that says which ones work."""
    monkeypatch.delitem(sys.modules, "trio")
    with pytest.raises(ConfigurationError, match="works in event loops of asyncio and trio: use check"):
        make_guard().acheck(SUPPORTED, [PASSAGE]).send(None)


def test_a_check_does_not_block_the_event_loop() -> None:
    """Blockbuster raises if our code blocks."""
    guard = make_guard()
    guard.check(SUPPORTED, [PASSAGE])  # what is imported on first use blocks once

    async def main() -> list[str]:
        with blockbuster_ctx("rageval_hooks"):
            decisions = await asyncio.gather(*(guard.acheck(text, [PASSAGE]) for text in (SUPPORTED, UNSUPPORTED) * 9))
        return [decision.answer for decision in decisions]

    assert asyncio.run(main()) == [SUPPORTED, FALLBACK] * 9


def test_a_metric_that_fails_follows_on_error() -> None:
    """The exception does not reach the application, and its message, which may quote a text, not the reason."""

    @rageval_hooks.metric(name="failing_model", requires=("response",))
    def failing_model(turn: Any) -> float:
        raise ValueError(turn.response)

    decision = make_guard(metrics=[failing_model], threshold=0.5, on_error="closed").check(SUPPORTED, [PASSAGE])
    assert (decision.verdict, decision.answer) == ("unchecked", FALLBACK)
    assert decision.reason == "failing_model: failed with ValueError"


def test_a_metric_without_a_score_of_the_turn_follows_on_error() -> None:
    """A score of each passage says nothing about the answer."""

    @rageval_hooks.metric(name="of_passages", requires=("passages",))
    def of_passages(turn: Any) -> list[Score]:
        return [Score(name="of_passages", value=1.0, target=Target(kind="passage", index=0))]

    decision = make_guard(metrics=[of_passages], threshold=0.5, on_error="closed").check(SUPPORTED, [PASSAGE])
    assert (decision.verdict, decision.reason) == ("unchecked", "of_passages: no result")


def test_a_check_that_fails_follows_on_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the exception, and not its message, which may quote a text."""

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(SUPPORTED)

    monkeypatch.setattr("rageval_hooks.online.engine.Engine.evaluate_local", fail)
    decision = make_guard(on_error="closed").check(SUPPORTED, [PASSAGE])
    assert (decision.verdict, decision.answer) == ("unchecked", FALLBACK)
    assert decision.reason == "the check failed with RuntimeError"


@pytest.mark.parametrize("supported", [True, False])
def test_a_judge_decides(supported: bool) -> None:
    """It reads redacted texts."""
    labels = {
        "relevance_explanation": "",
        "all_relevant_sentence_keys": ["0a"],
        "sentence_support_information": [
            {
                "response_sentence_key": key,
                "explanation": "",
                "supporting_sentence_keys": ["0a"],
                "fully_supported": supported,
            }
            for key in "ab"
        ],
        "all_utilized_sentence_keys": ["0a"],
        "overall_supported": supported,
    }
    judge = FakeJudge(lambda call: labels)
    answer = f"{SUPPORTED} Write to ada@example.org."
    guard = make_guard(
        metrics=["trace", "faithfulness"],
        threshold={"trace.adherence": 0.5, "faithfulness": 0},
        judge=judge,
        redact=True,
    )
    decision = guard.check(answer, [PASSAGE], question="When?")
    assert (decision.verdict, decision.answer) == (("supported", answer) if supported else ("unsupported", FALLBACK))
    assert {"trace.adherence", "faithfulness"} <= {result.name for result in decision.results}
    [call] = judge.calls
    assert "<EMAIL_ADDRESS>" in str(call)
    assert "ada@example.org" not in str(call)


def test_a_judge_that_hangs_costs_no_more_than_the_timeout() -> None:
    """Judge metrics run on the background loop."""

    class Hanging(rageval_hooks.Judge):
        name = "hanging"

        async def complete(self, *_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

    guard = make_guard(
        metrics=["trace"], threshold={"trace.adherence": 0.5}, judge=Hanging(), on_error="closed", timeout_ms=100
    )
    started = time.monotonic()
    decision = guard.check(SUPPORTED, [PASSAGE], question="When?")
    assert (decision.verdict, decision.answer) == ("unchecked", FALLBACK)
    assert time.monotonic() - started < 10


def test_the_decision_is_a_span_below_the_current_one(traced: Traced) -> None:
    """With what the guard saw, the scores and what it did."""
    with traced.provider.get_tracer("app").start_as_current_span("request") as request:
        request.set_attribute("openinference.span.kind", "CHAIN")
        make_guard(traced).check(UNSUPPORTED, [PASSAGE], question="When?")
    span = traced.decision
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id
    attributes = dict(span.attributes)
    assert attributes["gen_ai.operation.name"] == "run_guardrail"
    assert attributes["gen_ai.security.guardrail.name"] == "GroundingGuard"
    assert attributes["gen_ai.security.verdict.type"] == "deny"
    assert attributes["rageval.guard.verdict"] == "unsupported"
    assert attributes["rageval.guard.action"] == "replaced"
    assert attributes["rageval.score.faithfulness"] < 0.1
    assert attributes["rageval.label.faithfulness"] == "fail"
    seen = json.loads(attributes["input.value"])
    assert seen == {"question": "When?", "answer": UNSUPPORTED, "passages": [{"id": None, "text": PASSAGE}]}
    assert attributes["output.value"] == FALLBACK


def test_without_content_the_span_has_scores_and_no_texts(traced: Traced) -> None:
    """The switches of the other spans count here too."""
    make_guard(traced, capture_content=False).check(UNSUPPORTED, [PASSAGE], question="When?")
    attributes = dict(traced.decision.attributes)
    assert attributes["rageval.score.faithfulness"] < 0.1
    assert not any(text in str(attributes) for text in ("Penguins", "pier", "When?", FALLBACK))


def test_without_content_the_message_of_a_failed_metric_is_hidden(traced: Traced) -> None:
    """It may quote the answer."""

    @rageval_hooks.metric(name="failing_model", requires=("response",))
    def failing_model(turn: Any) -> float:
        raise ValueError(turn.response)

    make_guard(traced, metrics=[failing_model], threshold=0.5, capture_content=False).check(UNSUPPORTED, [PASSAGE])
    assert traced.decision.attributes["rageval.failed.failing_model"] == "ValueError: __REDACTED__"


@pytest.mark.parametrize("asynchronous", [True, False])
def test_redacted_texts_do_not_reach_the_span(asynchronous: bool, traced: Traced) -> None:
    """Scores are computed on the original texts, and the user gets the original answer."""
    answer = "Write to ada@example.com about the new pier."
    guard = make_guard(traced, redact=True)
    if asynchronous:
        decision = asyncio.run(guard.acheck(answer, [answer], question="Is it bob@example.com?"))
    else:
        decision = guard.check(answer, [answer], question="Is it bob@example.com?")
    assert (decision.verdict, decision.answer) == ("supported", answer)
    written = str(dict(traced.decision.attributes))
    assert "the new pier" in written
    assert "example.com" not in written


def test_in_a_captured_turn_the_span_is_below_the_turn_if_nothing_else_is_current(traced: Traced) -> None:
    """It goes to the provider of the captured turn."""
    guard = make_guard()
    with (
        rageval_hooks.instrument(metrics=[], models="lexical", tracer_provider=traced.provider) as handle,
        start_turn("When?") as turn,
    ):
        turn.add_passages([PASSAGE])
        guard.check(SUPPORTED)
        turn.respond(SUPPORTED)
    assert handle.flush(10)
    [root] = [span for span in traced.exporter.get_finished_spans() if span.name.startswith("rag")]
    assert traced.decision.parent is not None
    assert traced.decision.parent.span_id == root.context.span_id


def test_without_a_provider_nothing_is_written() -> None:
    """The global provider of the API is not replaced."""
    before = trace.get_tracer_provider()
    make_guard().check(SUPPORTED, [PASSAGE])
    assert trace.get_tracer_provider() is before


@pytest.mark.parametrize("where", ["environment", "captured turn"])
def test_private_texts_are_not_on_the_span(traced: Traced, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """The redaction of the captured turn counts, or that of the environment; the user gets the original answer."""
    answer = f"{SUPPORTED} Ask jane@example.org."
    if where == "environment":
        monkeypatch.setenv("RAGEVAL_REDACT", "true")
        guard = make_guard(on_fail="flag", tracer_provider=traced.provider)
        assert guard(answer, [f"{PASSAGE} Ask jane@example.org."]) == answer
    else:
        guard = make_guard(on_fail="flag")
        with (
            rageval_hooks.instrument(metrics=[], tracer_provider=traced.provider, redact=True) as handle,
            start_turn("Who is jane@example.org?") as turn,
        ):
            turn.add_passages([f"{PASSAGE} Ask jane@example.org."])
            assert guard(answer) == answer
            turn.respond(answer)
        assert handle.flush(30)

    shown = repr([dict(span.attributes or {}) for span in traced.exporter.get_finished_spans()])
    assert "jane@example.org" not in shown
    assert "Ask <EMAIL_ADDRESS>." in shown


def test_a_captured_turn_that_cannot_be_read_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without passages the answer is not checked, and our exception is counted."""

    def fail(_: object) -> None:
        raise RuntimeError("our own mistake")

    monkeypatch.setattr("rageval_hooks.guard.checking.turn_of", fail)
    with rageval_hooks.instrument(metrics=[], exporters=[]) as handle, start_turn("When was it opened?") as turn:
        turn.add_passages([PASSAGE])
        decision = make_guard().check(SUPPORTED)
        errors = handle.stats()["internal_errors"]

    assert (decision.verdict, decision.cause, errors) == ("unchecked", "no_passages", 1)


def test_a_span_that_cannot_be_written_does_not_change_the_decision(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A log line says so."""

    def fail(_: object) -> None:
        raise RuntimeError("our own mistake")

    monkeypatch.setattr("rageval_hooks.guard.span.written", fail)
    assert make_guard(traced)(UNSUPPORTED, [PASSAGE]) == FALLBACK
    assert traced.decisions == []
    assert "the span of a guard could not be written [RAGEVAL-704]" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        "Thank you for your question! Let me know if you need any further information about this topic.",
        "The rules of the new pier:",
    ],
)
def test_a_longer_text_that_claims_nothing_passes(answer: str) -> None:
    """Its words are about the conversation, or announce what follows: no passage is needed."""
    guard = make_guard(on_error="closed", metrics="faithfulness", threshold=0.5)
    assert guard.check(answer, [PASSAGE]).verdict == "no_claims"
