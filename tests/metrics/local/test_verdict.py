"""``verdict``: good, doubtful or bad, with the reason; declined; not evaluable; replaced by the judge's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rageval_hooks
from rageval_hooks import Evaluation, Passage, Score, Skipped, Turn
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.metrics.local.faithfulness import Faithfulness
from rageval_hooks.metrics.local.groundedness import Groundedness
from rageval_hooks.models import Models
from rageval_hooks.online.engine import Engine
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.worker import shared_worker
from rageval_hooks.score import CAUSES
from rageval_hooks.settings import LEXICAL, ModelSettings
from rageval_hooks.testing import FakeJudge
from tests import tiny_models
from tests.local import ground_by

QUERY = "When was the pier opened?"
PASSAGES = (
    Passage(text="The pier was opened in 2019. It cost 411 million euros and was built by Mercedes Stahl.", id="doc-1"),
    Passage(text="Dogs are not allowed on the beach in summer.", id="doc-2"),
)
SUPPORTED = "The pier was opened in 2019."
INVENTED = "The pier was opened in 2017."
LEXICAL_REST = {"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": LEXICAL}


def turn_of(response: str, **fields: Any) -> Turn:
    return Turn(**{"query": QUERY, "response": response, "passages": PASSAGES, **fields})


def verdict_of(evaluation: Evaluation) -> Score | Skipped:
    """Return the verdict, which comes first and once."""
    first = evaluation.results[0]
    assert [result.name for result in evaluation.results].count("verdict") == 1
    assert first.name == "verdict"
    assert isinstance(first, (Score, Skipped))
    return first


@pytest.mark.parametrize(
    ("response", "label", "value", "reason"),
    [
        (
            SUPPORTED,
            "good",
            1.0,
            (
                "nothing is clearly unsupported; the sentence is “The pier was opened in 2019.”; the "
                "nearest is passage doc-1"
            ),
        ),
        (
            f"{SUPPORTED} Mercedes Stahl built it there.",
            "good",
            1.0,
            (
                "nothing is clearly unsupported; the weakest of 2 sentences is “Mercedes Stahl built it there.”; "
                "the nearest is passage doc-1"
            ),
        ),
        (INVENTED, "bad", 0.0, "“The pier was opened in 2017.”: no passage has 2017; the nearest is passage doc-1"),
        (
            f"{SUPPORTED} It cost 500 million euros.",
            "bad",
            0.0,
            "“It cost 500 million euros.”: no passage has 500 million; the nearest is passage doc-1",
        ),
        (
            "Dogs are allowed on the beach in summer.",
            "bad",
            0.0,
            (
                "“Dogs are allowed on the beach in summer.”: the passages say “Dogs are not allowed on the beach in "
                "summer.”"
            ),
        ),
        (
            f"{SUPPORTED} Famous chocolate festivals with fireworks delight many visitors. It cost 411 million euros.",
            "bad",
            0.0,
            (
                "“Famous chocolate festivals with fireworks delight many visitors.”: no passage has Famous, "
                "chocolate, festivals, fireworks, delight; the nearest is passage doc-1"
            ),
        ),
        (
            "The pier was built by Mercedes Stahl of Antwerp.",
            "doubtful",
            0.5,
            "“The pier was built by Mercedes Stahl of Antwerp.”: no passage has Antwerp; the nearest is passage doc-1",
        ),
    ],
)
def test_the_label_and_its_reason(response: str, label: str, value: float, reason: str) -> None:
    """One sentence that names the sentence and the passage."""
    verdict = verdict_of(rageval_hooks.evaluate(turn_of(response), models=LEXICAL))

    assert isinstance(verdict, Score)
    assert (verdict.label, verdict.value, verdict.annotator) == (label, value, "CODE")
    assert verdict.explanation == reason


@pytest.mark.parametrize(
    ("turn", "label", "reason"),
    [
        (turn_of("I don't know."), "declined", "the response declines to answer"),
        (turn_of(""), "not_evaluable", "the turn has no response"),
        (turn_of(SUPPORTED, passages=()), "not_evaluable", "the turn has no passages"),
        (turn_of("Sure! Here are the key points:"), "not_evaluable", "the response claims nothing"),
        (turn_of("..."), "not_evaluable", "the response has no words"),
        (turn_of("It is."), "not_evaluable", "no words that could be compared"),
    ],
)
def test_an_answer_without_a_verdict_has_no_number(turn: Turn, label: str, reason: str) -> None:
    """It is skipped with a label of its own, which survives JSON."""
    verdict = verdict_of(rageval_hooks.evaluate(turn, models=LEXICAL))

    assert isinstance(verdict, Skipped)
    assert (verdict.label, verdict.metric) == (label, "verdict")
    assert reason in verdict.reason
    assert Skipped.model_validate_json(verdict.model_dump_json()).label == label


UNSEEN = Passage(text="The lighthouse on Hallay was built of granite in 1884.", id="doc-3", in_prompt=False)


@pytest.mark.parametrize(
    ("turn", "label", "cause"),
    [
        (turn_of(SUPPORTED), "good", None),
        (turn_of(INVENTED), "bad", "unsupported"),
        (turn_of("Dogs are not allowed on the beach in summer."), "doubtful", "off_topic"),
        (turn_of("I don't know."), "declined", "refused"),
        # No passage is about the question.
        (turn_of("It has a granite tower.", query="Which lighthouse did sailors like best?"), "bad", "not_retrieved"),
        (turn_of(SUPPORTED, query="Which hotels have a swimming pool?"), "doubtful", "not_retrieved"),
        (turn_of("I don't know.", query="Which hotels have a swimming pool?"), "declined", "nothing_found"),
        # A passage is about the question that was not in the prompt.
        (
            turn_of(
                "It is a tower of brick from 1870.",
                query="What is the lighthouse on Hallay built of?",
                passages=(*PASSAGES, UNSEEN),
            ),
            "bad",
            "not_shown",
        ),
        (
            turn_of("I don't know.", query="What is the lighthouse on Hallay built of?", passages=(*PASSAGES, UNSEEN)),
            "declined",
            "not_shown",
        ),
        # Both are about the question, and only that which was not in the prompt supports the answer.
        (
            turn_of(
                "The pier was opened by Ada Quill.",
                passages=(*PASSAGES, Passage(text="The pier was opened by Ada Quill.", in_prompt=False)),
            ),
            "bad",
            "not_shown",
        ),
        (
            turn_of(
                "The pier is 7 metres longer than the bridge.",
                query="How much longer than the bridge is the pier?",
                passages=(Passage(text="The pier is 22 metres long and the bridge is 15 metres long."),),
            ),
            "doubtful",
            "computed",
        ),
        (turn_of(SUPPORTED, passages=()), "not_evaluable", "no_passages"),
        (turn_of("Sure! Here are the key points:"), "not_evaluable", "no_claims"),
        (turn_of(""), "not_evaluable", None),
    ],
)
def test_the_cause_is_the_first_thing_that_went_wrong(turn: Turn, label: str, cause: str | None) -> None:
    """Retrieval, then the prompt, then the answer; one word, which survives JSON."""
    verdict = verdict_of(rageval_hooks.evaluate(turn, models=LEXICAL))

    assert (verdict.label, verdict.cause) == (label, cause)
    assert type(verdict).model_validate_json(verdict.model_dump_json()).cause == cause
    assert cause is None or cause in CAUSES


def test_a_supported_answer_to_another_question_is_doubtful() -> None:
    """The reason names the words of the question that it lacks."""
    verdict = verdict_of(
        rageval_hooks.evaluate(turn_of("Dogs are not allowed on the beach in summer."), models=LEXICAL)
    )

    assert verdict.explanation == (
        "it may not answer the question: neither the answer nor its evidence has pier, opened"
    )


def test_a_metric_that_fails_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the class of its exception: a message may quote the turn."""

    def fail(metric: Faithfulness, analysis: Any) -> Any:
        raise ValueError(analysis.turn.response)

    monkeypatch.setattr(Faithfulness, "evaluate", fail)
    verdict = verdict_of(rageval_hooks.evaluate(turn_of(SUPPORTED), metrics=["verdict"], models=LEXICAL))

    assert isinstance(verdict, Skipped)
    assert (verdict.label, verdict.reason) == ("not_evaluable", "faithfulness failed: ValueError")


def test_it_needs_no_other_metric() -> None:
    """Named alone, it is the same as among the defaults."""
    alone = rageval_hooks.evaluate(turn_of(INVENTED), metrics=["verdict"], models=LEXICAL)

    assert [result.name for result in alone.results] == ["verdict"]
    assert verdict_of(alone) == verdict_of(rageval_hooks.evaluate(turn_of(INVENTED), models=LEXICAL))


def test_redaction_holds_for_the_reason() -> None:
    """The reason quotes the redacted sentence; label and value are those of the original."""
    privacy = PrivacyPolicy(lambda text: text.replace("Quill", "X").replace("4711", "0000"))
    engine = Engine([REGISTRY.create("verdict")], Models(ModelSettings(**LEXICAL_REST)), privacy=privacy)
    job = engine.job(turn_of("The pier was opened in 2017 by Ada Quill."))

    evaluation, _ = engine.evaluate_local(job, engine.analyze(job.turn).patient())

    verdict = verdict_of(evaluation)
    assert isinstance(verdict, Score)
    assert (verdict.label, "Quill" in str(verdict)) == ("bad", False)
    assert "2017 by Ada X" in str(verdict.explanation)


# --------------------------------------------------------------------------- the judge


def labels(*supported: bool, overall: bool | None = None) -> dict[str, Any]:
    """What a judge says of an answer whose sentences are supported or not, the first passage being the source."""
    return {
        "relevance_explanation": "",
        "all_relevant_sentence_keys": ["0a"],
        "sentence_support_information": [
            {
                "response_sentence_key": "abc"[index],
                "explanation": "as it says" if is_supported else "the passage says 2019",
                "supporting_sentence_keys": ["0a"],
                "fully_supported": is_supported,
            }
            for index, is_supported in enumerate(supported)
        ],
        "all_utilized_sentence_keys": ["0a"],
        "overall_supported": all(supported) if overall is None else overall,
    }


@pytest.mark.parametrize(
    ("answer", "label", "reason"),
    [
        (labels(True), "good", "the judge finds every sentence supported by the passages"),
        (
            labels(False),
            "bad",
            "“The pier was opened in 2017.” is only partly supported by passage doc-1: the passage says 2019",
        ),
        (
            labels(False, overall=True),
            "doubtful",
            "“The pier was opened in 2017.” is only partly supported by passage doc-1: the passage says 2019",
        ),
    ],
)
def test_the_judges_verdict_replaces_the_local_one(answer: dict[str, Any], label: str, reason: str) -> None:
    """Under the same name, by annotator LLM, with the judge's model."""
    evaluation = rageval_hooks.evaluate(turn_of(INVENTED), judge=FakeJudge(lambda call: answer), models=LEXICAL)

    verdict = verdict_of(evaluation)
    assert isinstance(verdict, Score)
    assert (verdict.label, verdict.annotator, verdict.model) == (label, "LLM", "fake")
    assert verdict.explanation == reason
    assert verdict.cause == (None if label == "good" else "unsupported")


def test_without_the_judges_verdict_the_local_one_stays() -> None:
    """The judge says nothing about the sentence, so its scores of the support are failed."""
    evaluation = rageval_hooks.evaluate(turn_of(INVENTED), judge=FakeJudge(lambda call: labels()), models=LEXICAL)

    verdict = verdict_of(evaluation)
    assert isinstance(verdict, Score)
    assert (verdict.label, verdict.annotator) == ("bad", "CODE")


def test_no_judge_is_asked_about_a_refusal() -> None:
    """A judge calls it unsupported. The local verdict stands alone, so that the turn counts once."""
    judge = FakeJudge(lambda call: labels(False))
    evaluation = rageval_hooks.evaluate(turn_of("I don't know the price of the pier."), judge=judge, models=LEXICAL)

    assert [result.label for result in evaluation.results if result.name == "verdict"] == ["declined"]
    assert verdict_of(evaluation).metric == "verdict"
    assert not [result for result in evaluation.scores if result.metric == "trace"]
    assert judge.calls == []


# --------------------------------------------------------------------------- grounding models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tokens"
    return tiny_models.add_graph(tiny_models.build_grounding(path, "BertForTokenClassification"), "tokens")


GOOD = (
    "nothing is clearly unsupported; the weakest of 2 sentences is “Mercedes Stahl built it.”; the nearest is passage"
)
WEAK = "“Mercedes Stahl built it.”: no passage has all of it in one place; the nearest is passage"


@pytest.mark.parametrize(
    ("supports", "position", "label", "reason"),
    [
        ((0.9, 0.5), 0, "good", f"{GOOD} doc-1"),
        ((0.9, 0.4), 0, "doubtful", f"{WEAK} doc-1"),
        ((0.4, 0.3), 0, "bad", f"{WEAK} doc-1"),
        ((0.4, 0.3), 1, "bad", f"{WEAK} doc-2"),  # the passage that the model has read
    ],
)
def test_the_label_by_a_grounding_model(
    supports: tuple[float, ...], position: int, label: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad if the answer is below the model's threshold, doubtful if a sentence is."""
    models = ground_by(monkeypatch, *supports, positions=(position,))
    turn = turn_of(f"{SUPPORTED} Mercedes Stahl built it.")
    verdict = verdict_of(rageval_hooks.evaluate(turn, metrics=["verdict"], models=models))

    assert isinstance(verdict, Score)
    assert (verdict.model, verdict.label, verdict.explanation) == ("scripted", label, reason)


def test_a_grounding_model_decides_where_there_is_one(folder: Path) -> None:
    """The verdict has its model and threshold; a turn that it cannot read is left to the formula."""
    models = {**LEXICAL_REST, "grounding": str(folder)}
    evaluation = rageval_hooks.evaluate(turn_of(INVENTED), metrics=["verdict", "groundedness"], models=models)

    verdict, grounded = verdict_of(evaluation), evaluation.score("groundedness")
    assert isinstance(verdict, Score)
    assert grounded is not None
    assert (verdict.model, verdict.label) == (str(folder), "good" if grounded.label == "pass" else "bad")
    assert "doc-1" in str(verdict.explanation)
    long = turn_of(INVENTED, passages=(*PASSAGES, Passage(text="The museum. " * 1000)))
    unread = verdict_of(rageval_hooks.evaluate(long, metrics=[Groundedness(max_passes=1), "verdict"], models=models))
    assert isinstance(unread, Score)
    assert unread.model == LEXICAL


def test_a_slow_grounding_model_does_not_replace_the_judges_verdict(folder: Path) -> None:
    """The local verdict that comes after the judge's is dropped, so that backends keep the judge's."""
    models = Models(ModelSettings(**LEXICAL_REST, grounding=str(folder)))
    engine = Engine(
        [REGISTRY.create(name) for name in ("verdict", "trace")], models, FakeJudge(lambda call: labels(True))
    )
    parts: list[Evaluation] = []

    async def keep(part: Evaluation) -> None:
        parts.append(part)

    whole = shared_worker().call(lambda: engine.evaluate(engine.job(turn_of(INVENTED)), on_part=keep)).result(60)

    assert verdict_of(whole).metric == "trace"
    arrived = [result.metric for part in parts for result in part.results if result.name == "verdict"]
    assert arrived[-1] == "trace"
    assert json.loads(whole.model_dump_json())["results"][0]["label"] == "good"


@pytest.mark.parametrize(
    ("passage", "response"),
    [
        ("You can check in until 23:00.", "You can check in until 11 p.m."),
        ("The battery lasts 1,440 minutes.", "The battery lasts 24 hours."),
        ("The fine is EUR 1.000.", "The fine is 1,000 euros."),
        ("Bake it at 180 °C.", "Bake it at 356 °F."),
    ],
)
def test_a_value_in_another_notation_is_good_in_a_short_sentence(passage: str, response: str) -> None:
    """The words of the value count as found."""
    turn = Turn(query="What is said?", passages=(Passage(text=passage),), response=response)

    [result] = rageval_hooks.evaluate(turn, metrics=["verdict"], models="lexical").results

    assert result.label == "good"
