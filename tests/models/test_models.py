"""The models of a process: lazy, shared, loaded in the background; and what a user sees when one cannot be had."""

from __future__ import annotations

import threading
from pathlib import Path

import huggingface_hub
import pytest

import rageval_hooks
from rageval_hooks import Evaluation, Passage, Turn
from rageval_hooks import models as models_module
from rageval_hooks.errors import ModelNotReadyError, ModelUnavailableError
from rageval_hooks.models import Models, sources
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.settings import LEXICAL, ModelSettings
from rageval_hooks.testing import InMemoryExporter
from tests.local import LOCAL

TURN = Turn(
    query="Who designed the new pier?",
    response="Anna Berg designed the bridge.",
    passages=(Passage(text="Anna Berg designed the new pier."),),
)
NEEDS = {
    "embedder": {
        "answers_question",
        "concept_completeness",
        "context_relevance",
        "factual_accuracy",
        "faithfulness",
        "groundedness",
        "hallucination",
        "semantic_grounding",
    },
    "cross_encoder": {"answer_relevance"},
    "nlp": {"concept_completeness", "entity_consistency", "factual_accuracy", "hallucination"},
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests have loaded, for the time of one test."""
    monkeypatch.setattr(models_module, "_loaded", {})
    monkeypatch.setattr(models_module, "_caches", {})


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("rageval_hooks")]


def test_two_of_the_same_settings_share_their_models(tiny_nlp: Path) -> None:
    """What is loaded is loaded once for the process; other settings have their own."""
    one = Models(ModelSettings(nlp=str(tiny_nlp)))
    same = Models(ModelSettings(nlp=str(tiny_nlp), cache_mb=1))
    other = Models(ModelSettings(nlp=str(tiny_nlp), load_timeout=60))

    assert one.nlp(wait=True) is same.nlp(wait=True)
    assert one.nlp() is not other.nlp(wait=True)


def test_nothing_is_loaded_before_it_is_used() -> None:
    """Nor asked for by looking at its state."""
    models = Models(ModelSettings())

    assert [models.state(role) for role in ("embedder", "cross_encoder", "nlp")] == ["idle"] * 3


def test_lexical_models_are_always_ready() -> None:
    """They need no loading and no waiting."""
    models = Models(ModelSettings(embedder=LEXICAL, cross_encoder=LEXICAL, nlp=LEXICAL))
    models.load(["embedder", "cross_encoder", "nlp"])

    assert [models.state(role) for role in ("embedder", "cross_encoder", "nlp")] == ["ready"] * 3
    assert models.embedder().name == models.cross_encoder().name == models.nlp().name == "lexical"


def test_models_are_loaded_in_the_background(tiny_nlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that does not wait is told that the model is still loading."""
    may_end = threading.Event()
    load = models_module._LOADERS["nlp"]

    def slow(settings: ModelSettings) -> object:
        assert may_end.wait(30)
        return load(settings)

    monkeypatch.setitem(models_module._LOADERS, "nlp", slow)
    models = Models(ModelSettings(nlp=str(tiny_nlp)))
    models.load(["nlp"])

    with pytest.raises(ModelNotReadyError):
        models.nlp()
    may_end.set()
    assert models.nlp(wait=True).entities("Anna Berg designed the bridge.")


@pytest.mark.parametrize(("sample_rate", "loads"), [(1.0, True), (0.0, False)])
def test_the_first_question_starts_the_load(tiny_nlp: Path, sample_rate: float, loads: bool) -> None:
    """While the application works on its answer; not a question that is sampled out."""
    settings = {"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": str(tiny_nlp)}
    metrics = ["entity_consistency"]
    with rageval_hooks.instrument(metrics=metrics, models=settings, exporters=[], sample_rate=sample_rate):
        models = Models(ModelSettings(**settings))
        before = models.state("nlp")
        with rageval_hooks.start_turn(TURN.query):
            state = models.state("nlp")

    assert before == "idle"
    assert (state != "idle") is loads


def test_a_model_that_is_loading_delays_its_own_metrics_only(tiny_nlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Late scores that need no model, or another one, arrive before it is loaded, also of the turns that follow."""
    may_end = threading.Event()
    load = models_module._LOADERS["nlp"]

    def slow(settings: ModelSettings) -> object:
        assert may_end.wait(60)
        return load(settings)

    monkeypatch.setitem(models_module._LOADERS, "nlp", slow)
    exporter = InMemoryExporter()
    handle = rageval_hooks.instrument(
        metrics=["entity_consistency", "groundedness"],
        models={"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": str(tiny_nlp)},
        exporters=[exporter],
        inline_budget_ms=0,
    )
    arrived = []
    for number in range(5):  # more than there are threads for local scores
        with rageval_hooks.start_turn(TURN.query) as turn:
            turn.add_passages(TURN.passages)
            turn.respond(TURN.response)
        arrived.append(wait_until(lambda n=number: len(list(exporter.results("groundedness"))) > n, 10))  # type: ignore[misc]
    early = list(exporter.results("entity_consistency"))
    may_end.set()
    assert handle.flush(30)
    handle.shutdown()

    assert arrived == [True] * 5
    assert early == []
    assert [result.status for result in exporter.results("entity_consistency")] == ["scored"] * 5


@pytest.mark.parametrize(
    ("settings", "role", "reason"),
    [
        ({"embedder": "rageval-tests/none"}, "embedder", "rageval-tests/none is not on this machine"),
        ({"cross_encoder": "rageval-tests/none"}, "cross_encoder", "rageval-tests/none is not on this machine"),
        ({"nlp": "en_core_web_none"}, "nlp", "the spaCy pipeline en_core_web_none is not installed"),
    ],
)
def test_metrics_whose_model_cannot_be_had_are_skipped(
    settings: dict[str, str], role: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason, and one log line for all metrics and turns; the others have their scores."""
    lexical = {"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": LEXICAL, "download": False}

    evaluations = [rageval_hooks.evaluate(TURN, metrics=LOCAL, models={**lexical, **settings}) for _ in range(3)]

    for evaluation in evaluations:
        assert skipped(evaluation) == NEEDS[role] | {"cost", "latency"}
        assert not evaluation.failed
        for result in evaluation.skipped:
            assert result.name in ("cost", "latency") or result.reason.startswith(f"{role}: {reason}")
    [line] = logged(caplog)
    assert line.startswith(f"rageval-hooks: {role}: {reason}")
    assert line.endswith("Metrics that need it are skipped. [RAGEVAL-203]")


def skipped(evaluation: Evaluation) -> set[str]:
    return {result.name for result in evaluation.skipped}


def test_a_load_past_its_deadline_skips_metrics_until_it_is_there(
    tiny_nlp: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No evaluation hangs; one that comes after the model does has its scores."""
    may_end = threading.Event()
    load = models_module._LOADERS["nlp"]

    def slow(settings: ModelSettings) -> object:
        assert may_end.wait(30)
        return load(settings)

    monkeypatch.setitem(models_module._LOADERS, "nlp", slow)
    settings = {"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": str(tiny_nlp), "load_timeout": 0.01}

    late = rageval_hooks.evaluate(TURN, metrics=["entity_consistency"], models=settings)
    may_end.set()
    for thread in threading.enumerate():
        if thread.name == "rageval-load-nlp":
            thread.join(30)
    in_time = rageval_hooks.evaluate(TURN, metrics=["entity_consistency"], models=settings)

    assert [result.reason for result in late.skipped] == ["nlp: loading took longer than 0.01 seconds"]
    assert in_time["entity_consistency"] == 1.0
    assert len(logged(caplog)) == 1


def test_metrics_of_a_pipeline_without_entities_are_skipped(tiny_nlp: Path, tmp_path: Path) -> None:
    """A pipeline with a parser alone serves the concepts."""
    import spacy

    pipeline = spacy.load(tiny_nlp)
    pipeline.remove_pipe("ner")
    pipeline.to_disk(tmp_path / "parser")
    settings = {"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": str(tmp_path / "parser")}

    evaluation = rageval_hooks.evaluate(TURN, metrics=LOCAL, models=settings)

    assert skipped(evaluation) == {"cost", "entity_consistency", "factual_accuracy", "hallucination", "latency"}
    assert evaluation["concept_completeness"] == 0.5


@pytest.mark.parametrize(("retry", "asked"), [(600.0, 1), (0.0, 2)])
def test_a_hub_that_did_not_answer_is_asked_again_after_some_time(
    retry: float, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before, and without a restart of the process."""
    names: list[str] = []

    def fail(self: object, name: str, timeout: float) -> None:
        names.append(name)
        raise ConnectionError("no route to host")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    monkeypatch.setattr(sources, "HUB_RETRY", retry)
    models = Models(ModelSettings(embedder="rageval-tests/none"))

    for _ in range(2):
        with pytest.raises(ModelUnavailableError, match="no route to host"):
            models.embedder(wait=True)

    assert len(names) == asked
