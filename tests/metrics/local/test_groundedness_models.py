"""``groundedness`` by a grounding model: the score, its explanation, spans and label; and it is never inline."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import rageval_hooks
from rageval_hooks import ConfigurationError, Passage, Score, Turn
from rageval_hooks.metrics.local.groundedness import Groundedness
from rageval_hooks.models import Models
from rageval_hooks.models.grounding import GroundingResult
from rageval_hooks.online.engine import Engine
from rageval_hooks.settings import LEXICAL, ModelSettings
from tests import tiny_models
from tests.local import ScriptedGrounding, ground_by, make_turn, run, why_not

TURN = Turn(
    query="When was the pier opened?",
    response="The pier [2] was opened in 2019 [1]. Yes, it was. The old tower is by Anna Berg [2].",
    passages=(
        Passage(text="The new pier was opened in 2019.", id="p"),
        Passage(text="Anna Berg designed the tower.", id="t"),
    ),
)
LEXICAL_REST = {"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": LEXICAL}
REST = ModelSettings(embedder=LEXICAL, cross_encoder=LEXICAL, nlp=LEXICAL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tokens"
    return tiny_models.add_graph(tiny_models.build_grounding(path, "BertForTokenClassification"), "tokens")


def score_of(turn: Turn, folder: Path, **options: object) -> Score:
    models = {**LEXICAL_REST, "grounding": str(folder)}
    [score] = rageval_hooks.evaluate(turn, metrics=["groundedness"], models=models, **options).scores  # type: ignore[arg-type]
    return score


def test_the_score_names_its_model_and_how_it_was_asked(folder: Path) -> None:
    """Model and version, the mean over the same sentences as the formula, and the model's own threshold."""
    score = score_of(TURN, folder)

    first, second = score.metadata["sentences"]
    mean = (first["score"] * first["weight"] + second["score"] * second["weight"]) / (
        first["weight"] + second["weight"]
    )
    assert score.value == pytest.approx(mean)
    assert (score.model, score.version) == (str(folder), "lettucedetect-1")
    assert score.label == ("pass" if score.value >= 0.5 else "fail")
    details = score.metadata["grounding_model"]
    assert {name: details[name] for name in ("family", "template", "backend", "threshold", "windows", "passes")} == {
        "family": "token classification",
        "template": "lettucedetect",
        "backend": "onnx",
        "threshold": 0.5,
        "windows": 1,
        "passes": 1,
    }


def test_spans_are_places_in_the_response(folder: Path) -> None:
    """Of sentences and of their unsupported parts, although the model reads the answer without citation markers."""
    score = score_of(TURN, folder, thresholds={"groundedness": 0.99})

    parts = []
    for sentence in score.metadata["sentences"]:
        assert TURN.response[sentence["start"] : sentence["end"]] == sentence["text"]
        for part in sentence.get("unsupported", ()):
            assert TURN.response[part["start"] : part["end"]] == part["text"]
            assert sentence["start"] <= part["start"] < part["end"] <= sentence["end"]
            assert part["text"].strip(" [12].") or part["text"] == "."
            parts.append(part["text"])
    assert parts
    assert score.label == "fail"
    assert "unsupported: “" in (score.explanation or "")


def test_the_model_never_runs_while_a_caller_waits(folder: Path) -> None:
    """A caller's deadline leaves the metric to the background, however far away the deadline is."""
    models = Models(REST.model_copy(update={"grounding": str(folder)}))
    models.grounding(wait=True)
    engine = Engine([Groundedness()], models)
    job = engine.job(TURN)

    evaluation, remaining = engine.evaluate_local(job, engine.analyze(TURN, deadline=time.perf_counter() + 3600))

    assert evaluation.results == ()
    assert remaining is not None
    assert remaining.names == ("groundedness",)
    late, rest = engine.evaluate_local(remaining, engine.analyze(TURN).patient())
    assert [result.name for result in late.results] == ["groundedness"]
    assert rest is None


def test_without_the_model_the_embedder_is_not_loaded_for_it(folder: Path) -> None:
    """``"minilm"`` is the formula over the embedder's vectors, or over words where the embedder is lexical."""
    with_model = Models(ModelSettings(grounding=str(folder)))
    formula = Models(ModelSettings())

    assert with_model.needed(Groundedness.models) == {"grounding"}
    assert formula.needed(Groundedness.models) == {"embedder"}
    assert Models(REST).grounding().name == LEXICAL


def test_a_turn_that_needs_too_many_passes_is_skipped(folder: Path) -> None:
    """With the numbers; a model that is not on this machine is a reason to skip, too."""
    long = TURN.model_copy(update={"passages": tuple(Passage(text="The museum. " * 3000) for _ in range(2))})
    models = {**LEXICAL_REST, "grounding": str(folder), "download": False}
    [skipped] = rageval_hooks.evaluate(long, metrics=[Groundedness(max_passes=2)], models=models).skipped
    silent = TURN.model_copy(update={"response": "It is [1]."})
    [nothing] = rageval_hooks.evaluate(silent, metrics=["groundedness"], models=models).skipped
    models["grounding"] = "example/none"
    [missing] = rageval_hooks.evaluate(TURN, metrics=["groundedness"], models=models).skipped

    assert "more than max_passes=2 passes of the model" in skipped.reason
    assert "no words that could be compared" in nothing.reason
    with pytest.raises(ConfigurationError, match="max_passes of groundedness must be at least 1, not 0"):
        Groundedness(max_passes=0)
    assert "hf download example/none" in missing.reason


def test_an_answer_of_which_the_model_read_no_sentence_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to add up."""
    models = Models(ModelSettings(**ground_by(monkeypatch)))
    monkeypatch.setattr(
        ScriptedGrounding, "read", lambda *_: GroundingResult(sentences=(), windows=1, passes=1, tokens=1)
    )
    name, reason = why_not(run(Groundedness(), make_turn("The pier is long.", ["The pier is long."]), models))

    assert (name, "words" in reason) == ("groundedness", True)
