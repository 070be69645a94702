"""What the local metrics of a turn share: each thing once, within the time and the size that there is."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks import Passage, Turn, evaluate
from rageval_hooks import models as models_module
from rageval_hooks.errors import InputTooLargeError, ModelNotReadyError, OverBudgetError
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.metrics.running import compute
from rageval_hooks.metrics.support import turn_texts
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.models.cache import MemoryCache
from rageval_hooks.models.lexical import LexicalEmbedder, LexicalEmbedding
from rageval_hooks.settings import LEXICAL, ModelSettings
from rageval_hooks.text.limits import MAX_EMBEDDED_CHARACTERS, MAX_PASSAGE_CHARACTERS
from tests import tiny_models
from tests.local import LEXICAL_MODELS, LOCAL, make_turn
from tests.metrics.texts import MUSEUM, PIER, QUERY

TURN = make_turn("It was designed by Anna Berg. It is long.", [PIER, MUSEUM], QUERY)


class ManualClock:
    """A clock that moves only when a test advances it."""

    def __init__(self, now: float = 0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, amount: float) -> None:
        self.now += amount


class CountingEmbedder(LexicalEmbedder):
    """Remembers what it embedded."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed(self, text: str, pause: Callable[[], None] = lambda: None) -> LexicalEmbedding:
        self.texts.append(text)
        return super().embed(text, pause)


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> CountingEmbedder:
    """The embedder of all lexical models, counting; with nothing in any cache."""
    counting = CountingEmbedder()
    monkeypatch.setitem(models_module._LEXICAL, "embedder", counting)
    monkeypatch.setattr(models_module, "_caches", {})
    return counting


def test_every_text_is_embedded_once(embedder: CountingEmbedder) -> None:
    """This holds for any set of metrics."""
    analysis = TurnAnalysis(TURN, LEXICAL_MODELS)

    for name in LOCAL:
        compute(REGISTRY.create(name), analysis)

    assert len(embedder.texts) == len(set(embedder.texts))
    assert {TURN.query, TURN.response, PIER, MUSEUM} <= set(embedder.texts)


def test_passages_of_an_earlier_turn_are_not_embedded_again(embedder: CountingEmbedder) -> None:
    """The same chunks come back: they are kept for the process, the response and the query are not."""
    TurnAnalysis(TURN, LEXICAL_MODELS).passage_embeddings.copy()
    embedder.texts.clear()
    models = Models(LEXICAL_MODELS.settings)  # of another handler

    again = TurnAnalysis(TURN, models)
    again.embed(TURN.response)

    assert len(again.passage_embeddings) == 2
    assert embedder.texts == [TURN.response]


def test_an_embedder_that_fails_costs_only_the_scores_that_need_it(
    embedder: CountingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example for want of memory."""

    def fail(text: str, pause: Callable[[], None]) -> LexicalEmbedding:
        raise MemoryError

    monkeypatch.setattr(embedder, "embed", fail)

    found = evaluate(TURN, metrics=["context_relevance", "faithfulness"], models=LEXICAL)

    assert [(failed.name, failed.error_type) for failed in found.failed] == [("context_relevance", "MemoryError")]
    assert found["faithfulness"] is not None


def test_without_a_cache_passages_are_embedded_for_each_turn(embedder: CountingEmbedder) -> None:
    """``cache_mb=0``."""
    models = Models(LEXICAL_MODELS.settings.model_copy(update={"cache_mb": 0.0}))

    for _ in range(2):
        TurnAnalysis(TURN, models).passage_embeddings.copy()

    assert embedder.texts == [PIER, MUSEUM, PIER, MUSEUM]


def test_passages_without_words_do_not_fill_the_cache_unseen(embedder: CountingEmbedder) -> None:
    """An empty embedding has a size, too: its text."""
    models = Models(LEXICAL_MODELS.settings.model_copy(update={"cache_mb": 0.01}))

    passages = ["\n" * 1_000 + "." * number for number in range(100)]

    TurnAnalysis(make_turn("a", passages), models).passage_embeddings.copy()

    assert sum(models.cache.get(passage) is not None for passage in passages) <= 10


def test_the_lexical_side_of_a_passage_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within its own bound."""
    read: list[str] = []
    index = turn_texts.index_passage
    monkeypatch.setattr(turn_texts, "_indexes", MemoryCache(1_000_000))
    monkeypatch.setattr(turn_texts, "index_passage", lambda text: read.append(text) or index(text))

    for _ in range(3):
        TurnAnalysis(TURN, LEXICAL_MODELS).passage_indexes.copy()

    assert read == [PIER, MUSEUM]


def test_the_work_stops_when_the_budget_is_used_up() -> None:
    """It stops before the next passage; finished embeddings are kept."""
    clock = ManualClock()
    analysis = TurnAnalysis(TURN, LEXICAL_MODELS, deadline=10, clock=clock)
    assert analysis.response.sentences

    clock.advance(10)

    for compute_it in (
        lambda: analysis.pause(),
        lambda: analysis.passage_indexes,
        lambda: analysis.entities,
        lambda: analysis.concepts,
        lambda: analysis.embed("something new"),
    ):
        with pytest.raises(OverBudgetError):
            compute_it()
    assert len(analysis.response.sentences) == 2


def test_cancelled_work_stops() -> None:
    """It has a state of its own: there is no deadline, and yet nothing more is computed."""
    analysis = TurnAnalysis(TURN, LEXICAL_MODELS)
    analysis.pause()

    analysis.cancel()

    assert analysis.must_stop
    assert analysis.deadline is None
    with pytest.raises(OverBudgetError):
        _ = analysis.passage_indexes


def test_in_the_background_there_is_no_deadline() -> None:
    """The work goes on where it was."""
    clock = ManualClock(20)
    analysis = TurnAnalysis(TURN, LEXICAL_MODELS, deadline=10, clock=clock)
    with pytest.raises(OverBudgetError):
        _ = analysis.entities

    assert analysis.patient() is analysis
    assert [entity.text for entity in analysis.entities] == ["Anna Berg"]


def test_only_the_background_waits_for_a_loading_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inline, the metrics are deferred."""
    monkeypatch.setattr(models_module, "_loaded", {})
    loaded = LexicalEmbedder()
    monkeypatch.setitem(models_module._LOADERS, "embedder", lambda settings: loaded)
    asked: list[bool] = []

    class Hesitant(Models):
        def embedder(self, *, wait: bool = False) -> Any:
            asked.append(wait)
            if not wait:
                raise ModelNotReadyError("embedder")
            return loaded

    analysis = TurnAnalysis(TURN, Hesitant(ModelSettings(cross_encoder=LEXICAL, nlp=LEXICAL)))

    with pytest.raises(ModelNotReadyError):
        analysis.embed("a")
    assert analysis.patient().embed("a")
    assert asked == [False, True]


@pytest.mark.parametrize(
    ("response", "passages", "query", "what"),
    [
        ("a", [" " * (MAX_PASSAGE_CHARACTERS + 1)], "", "passage_indexes"),
        ("a", [" " * 600_000, " " * 400_001], "", "passage_indexes"),
        ("a", [" " * MAX_EMBEDDED_CHARACTERS], "", "passage_embeddings"),
        (" " * MAX_EMBEDDED_CHARACTERS, ["a"], "", "passage_embeddings"),
        (" " * MAX_EMBEDDED_CHARACTERS, ["a"], "", "semantic_grounding"),
        (" " * (MAX_EMBEDDED_CHARACTERS + 1), [], "", "sentence_embeddings"),
        (" " * (MAX_EMBEDDED_CHARACTERS + 1), [], "", "entities"),
        ("", [], " " * 20_001, "concepts"),
    ],
)
def test_what_is_too_large_is_not_begun(response: str, passages: list[str], query: str, what: str) -> None:
    """The message names the size and the limit."""
    analysis = TurnAnalysis(make_turn(response, passages, query), LEXICAL_MODELS)

    with pytest.raises(InputTooLargeError, match=r"^[\d,]+ characters to read; the limit is [\d,]+$"):
        getattr(analysis, what)


def test_a_short_context_is_embedded_as_one_text(minilm: Models) -> None:
    """One passage below the other, as long as the model reads that at once."""
    analysis = TurnAnalysis(TURN, minilm)

    assert analysis.context_embedding is analysis.embed(f"{PIER}\n{MUSEUM}")


def test_a_context_that_does_not_fit_is_the_windows_of_its_passages(
    minilm: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text is not embedded again: the passages' windows, which are kept, are put together."""
    analysis = TurnAnalysis(make_turn("a", [PIER, MUSEUM * 15]), minilm)
    embedded: list[str] = []
    embed = analysis.embed
    monkeypatch.setattr(analysis, "embed", lambda text: embedded.append(text) or embed(text))

    context = analysis.context_embedding

    assert len(context.windows) == sum(len(part.windows) for part in analysis.passage_embeddings) > 2  # type: ignore[union-attr]
    assert embedded == []


def test_the_context_of_one_passage_is_that_passage(minilm: Models) -> None:
    """Nothing is computed for it."""
    analysis = TurnAnalysis(Turn(response="a", passages=(Passage(text=PIER),)), minilm)

    assert analysis.context_embedding is analysis.passage_embeddings[0]


def test_passages_that_were_not_prepared_do_not_use_up_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their scores come later: a model takes longer for them than a caller waits. In time, short ones are embedded."""
    pytest.importorskip("onnxruntime")
    folder = tiny_models.add_graph(tiny_models.build_encoder(tmp_path / "model"), "encoder")
    models = Models(ModelSettings(embedder=str(folder), cross_encoder=LEXICAL, nlp=LEXICAL, precision="fp32"))
    for passage, is_late in (("The pier is long. " * 100, True), ("The pier is long.", False)):
        analysis = TurnAnalysis(make_turn("It is long.", [passage], QUERY), models, wait=True)
        analysis.deadline = math.inf
        if is_late:
            with pytest.raises(OverBudgetError):
                analysis.passage_embeddings  # noqa: B018 - it is computed here
        else:
            assert len(analysis.passage_embeddings) == 1
