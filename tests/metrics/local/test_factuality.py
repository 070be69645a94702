"""``semantic_grounding``, ``entity_consistency``, ``factual_accuracy`` and ``hallucination``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks import ConfigurationError, Metric, Score
from rageval_hooks.metrics.local.factual_accuracy import (
    EntityConsistency,
    FactualAccuracy,
    Hallucination,
    SemanticGrounding,
)
from rageval_hooks.models import Models
from rageval_hooks.models.embedder import Embedder
from rageval_hooks.models.nlp import Entity
from tests.local import LEXICAL_MODELS, make_turn, run, why_not
from tests.metrics.texts import MUSEUM, PIER, RESPONSES
from tests.text.junk import anything

LONG = " ".join(f"{MUSEUM} Room {number} is closed." for number in range(60))


def score_of(metric: Metric, response: str, passages: list[str], models: Models = LEXICAL_MODELS) -> Score:
    [score] = run(metric, make_turn(response, passages), models)
    assert isinstance(score, Score), score
    return score


@pytest.fixture(scope="module")
def library() -> Any:
    from sentence_transformers import SentenceTransformer

    from rageval_hooks.models.sources import packaged_minilm

    return SentenceTransformer(str(packaged_minilm()), device="cpu", local_files_only=True)


# ---------------------------------------------------------------------------------------- semantic_grounding


@pytest.mark.needs_torch
@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
@pytest.mark.parametrize("passages", [[PIER], [PIER, MUSEUM], [MUSEUM, "", PIER]], ids=["one", "two", "an empty one"])
def test_grounding_in_a_short_context_equals_the_cosine_of_the_library(
    response: str, passages: list[str], minilm: Models, library: Any
) -> None:
    """Of the embeddings of the whole response and of all passages, one below the other, clipped to 0..1."""
    one, other = library.encode([response, "\n".join(passages)], normalize_embeddings=True)

    score = score_of(SemanticGrounding(), response, passages, minilm)

    assert score.value == pytest.approx(min(1.0, max(0.0, float(one @ other))), abs=1e-6)
    assert score.model == "sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.needs_torch
def test_grounding_in_a_long_context_is_the_cosine_with_the_mean_of_its_windows(minilm: Models, library: Any) -> None:
    """MiniLM reads 256 tokens: beyond that, the windows of all passages count alike, and nothing is cut."""
    embedder = minilm.embedder()
    assert isinstance(embedder, Embedder)
    pieces = [text[a:b] for text in (LONG, PIER) for a, b in embedder.cut(text)]
    assert len(pieces) > 4
    mean = library.encode(pieces, batch_size=1, normalize_embeddings=True).mean(axis=0)
    response = library.encode(RESPONSES["paraphrase"], normalize_embeddings=True)

    score = score_of(SemanticGrounding(), RESPONSES["paraphrase"], [LONG, PIER], minilm)

    assert score.value == pytest.approx(float(response @ mean / np.linalg.norm(mean)), abs=1e-6)


def test_nothing_at_the_end_of_a_long_context_is_overlooked(minilm: Models) -> None:
    """What stands beyond the first 256 tokens counts."""
    response = RESPONSES["verbatim"]

    without = score_of(SemanticGrounding(), response, [LONG], minilm).value
    with_it = score_of(SemanticGrounding(), response, [f"{LONG} {PIER} {PIER} {PIER} {PIER}"], minilm).value

    assert with_it > without


@pytest.mark.parametrize(
    ("response", "passages", "value"),
    [
        ("old pier", ["An old pier."], 1.0),
        ("old pier", ["An old bridge."], 0.5),
        ("old pier", ["Old", "piers"], 1.0),
        ("old pier", ["Bananas."], 0.0),
    ],
)
def test_grounding_in_the_lexical_tier(response: str, passages: list[str], value: float) -> None:
    """The cosine of the content words of the response and of all passages together."""
    score = score_of(SemanticGrounding(), response, passages)

    assert (score.value, score.model) == (pytest.approx(value), "lexical")


# ---------------------------------------------------------------------------------------- entity_consistency


@pytest.mark.parametrize(
    ("response", "passages", "value", "explanation"),
    [
        ("Anna Berg designed the bridge.", ["It was designed by ANNA BERG."], 1.0, "all entities are in the context"),
        ("Anna Berg designed the bridge.", ["Anna was here."], 0.0, "not in the context: Anna Berg"),
        ("Anna Berg designed the bridge.", ["Anna was here.", "So was Berg."], 1.0, "all entities are in the context"),
        ("Paris opened a museum in 2019.", ["Paris opened it in 2018."], 0.5, "not in the context: 2019"),
        ("Paris opened a museum in 2019.", ["bananas"], 0.0, "not in the context: Paris, 2019"),
    ],
)
def test_entities_of_the_response_are_looked_up_in_the_context(
    response: str, passages: list[str], value: float, explanation: str, real_models: Models, tiny_nlp: Path
) -> None:
    """The share of spaCy's entities that the passages have, whatever their case."""
    score = score_of(EntityConsistency(), response, passages, real_models)

    assert (score.value, score.explanation, score.model) == (value, explanation, str(tiny_nlp))


class Found:
    """A pipeline that finds what it is told to."""

    name = "found"

    def __init__(self, *entities: Entity) -> None:
        self._entities = list(entities)

    def entities(self, text: str, pause: object) -> list[Entity]:
        return self._entities


class ModelsWith(Models):
    """The lexical models with another pipeline."""

    def __init__(self, nlp: Found) -> None:
        super().__init__(LEXICAL_MODELS.settings)
        self._nlp = nlp

    def nlp(self, *, wait: bool = False) -> Any:
        return self._nlp


@pytest.mark.parametrize(
    ("entities", "value"),
    [
        ([Entity("March 3, 2020", "DATE"), Entity("two million", "CARDINAL")], 1.0),
        ([Entity("2020-03-03", "DATE"), Entity("3 million", "CARDINAL")], 0.5),
        ([Entity("the World Health Organization", "ORG")], 1.0),
        ([Entity("2020", "DATE"), Entity("2020", "CARDINAL"), Entity("1999", "DATE")], 0.5),
    ],
)
def test_numbers_dates_and_initials_are_compared_by_value(entities: list[Entity], value: float) -> None:
    """Each entity counts once, in any notation."""
    passages = ["On 3 March 2020 the WHO counted 2,000,000."]

    assert score_of(EntityConsistency(), "text", passages, ModelsWith(Found(*entities))).value == value


def test_found_and_missing_entities_are_kept_with_the_score(real_models: Models) -> None:
    """For dashboards."""
    score = score_of(EntityConsistency(), "Paris opened a museum in 2019.", ["Paris"], real_models)

    assert score.metadata == {"found": ["Paris"], "missing": ["2019"]}


# ------------------------------------------------------------------------ factual_accuracy and hallucination

RESPONSE, PASSAGES = "Paris opened a museum in 2019.", ["Paris opened it in 2018.", MUSEUM]


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 1.0])
def test_accuracy_is_the_weighted_mean(weight: float, real_models: Models, tiny_nlp: Path) -> None:
    """The mean is over semantic grounding and entity consistency; hallucination is its complement."""
    grounding = score_of(SemanticGrounding(), RESPONSE, PASSAGES, real_models).value

    accuracy = score_of(FactualAccuracy(weight), RESPONSE, PASSAGES, real_models)
    hallucination = score_of(Hallucination(weight), RESPONSE, PASSAGES, real_models)

    assert accuracy.value == pytest.approx(weight * grounding + (1 - weight) * 0.5)
    assert hallucination.value == 1 - accuracy.value
    assert (accuracy.name, hallucination.name) == ("factual_accuracy", "hallucination")
    assert accuracy.model == f"{tiny_nlp}, sentence-transformers/all-MiniLM-L6-v2"
    assert accuracy.explanation == hallucination.explanation
    assert accuracy.explanation == (
        f"semantic grounding {grounding:.2f}, entity consistency 0.50; not in the context: 2019"
    )


def test_without_weights_both_halves_count_alike(real_models: Models) -> None:
    """One half each."""
    by_default = score_of(FactualAccuracy(), RESPONSE, PASSAGES, real_models)

    assert by_default == score_of(FactualAccuracy(0.5), RESPONSE, PASSAGES, real_models)


def test_without_entities_the_grounding_is_the_score(real_models: Models) -> None:
    """And the explanation says so."""
    response = "The new pier was opened."
    grounding = score_of(SemanticGrounding(), response, [PIER], real_models).value

    accuracy = score_of(FactualAccuracy(), response, [PIER], real_models)

    assert accuracy.value == grounding
    assert accuracy.explanation == "no named entities in the response: semantic grounding alone"
    assert score_of(Hallucination(), response, [PIER], real_models).value == 1 - grounding


def test_hallucination_is_better_when_it_is_lower() -> None:
    """It is the only one of the four."""
    directions = {
        definition.name: definition.direction
        for metric in (SemanticGrounding, EntityConsistency, FactualAccuracy, Hallucination)
        for definition in metric.scores
    }

    assert directions == {
        "semantic_grounding": "higher",
        "entity_consistency": "higher",
        "factual_accuracy": "higher",
        "hallucination": "lower",
    }


@pytest.mark.parametrize("metric", [FactualAccuracy, Hallucination])
@pytest.mark.parametrize("weight", [-0.1, 1.5, math.nan])
def test_a_weight_outside_its_range_is_refused(metric: type[FactualAccuracy], weight: float) -> None:
    """At construction."""
    with pytest.raises(ConfigurationError, match=r"grounding_weight must be from 0 to 1"):
        metric(weight)


# ------------------------------------------------------------------------------------------- what is skipped

ALL = (SemanticGrounding(), EntityConsistency(), FactualAccuracy(), Hallucination())
NO_WORDS = "the response or the passages have no words that could be compared"


@pytest.mark.parametrize("metric", ALL, ids=repr)
@pytest.mark.parametrize(
    ("response", "passages", "reason"),
    [
        ("", [PIER], "the turn has no response"),
        ("Anna.", [], "the turn has no passages"),
        ("Anna.", ["", " "], "the passages have no text"),
    ],
)
def test_without_a_text_there_is_no_score(metric: Metric, response: str, passages: list[str], reason: str) -> None:
    """Skipped, with the reason."""
    assert why_not(run(metric, make_turn(response, passages))) == (metric.name, reason)


@pytest.mark.parametrize("metric", [SemanticGrounding(), FactualAccuracy(), Hallucination()], ids=repr)
@pytest.mark.parametrize(
    ("response", "passages", "tier"),
    [("It is.", [PIER], "lexical"), ("Anna.", ["\ufffd"], "neural")],
)
def test_texts_in_which_nothing_can_be_read_have_no_score(
    metric: Metric, response: str, passages: list[str], tier: str, minilm: Models
) -> None:
    """A text without words is not a grounding of 0."""
    models = minilm if tier == "neural" else LEXICAL_MODELS

    assert why_not(run(metric, make_turn(response, passages), models)) == (metric.name, NO_WORDS)


def test_entity_consistency_without_entities_is_skipped(real_models: Models) -> None:
    """No entities are not consistent entities."""
    results = run(EntityConsistency(), make_turn("The new pier was opened.", [PIER]), real_models)

    assert why_not(results) == ("entity_consistency", "the response has no named entities")


_words = st.lists(st.sampled_from("the pier was opened by Anna Berg in 2019 in Paris .".split()), max_size=10).map(
    " ".join
)


@given(_words | anything(), st.lists(_words | anything(), max_size=3), _words, st.randoms(use_true_random=False))
def test_values_are_in_range_and_of_any_order(response: str, passages: list[str], more: str, order: Any) -> None:
    """0..1; the order of passages does not matter; one more passage never takes an entity away."""
    shuffled = list(passages)
    order.shuffle(shuffled)
    for metric in ALL:
        [one], [other] = run(metric, make_turn(response, passages)), run(metric, make_turn(response, shuffled))
        assert isinstance(one, Score) == isinstance(other, Score)
        if isinstance(one, Score) and isinstance(other, Score):
            assert 0 <= one.value <= 1
            assert one.value == pytest.approx(other.value)
    [before] = run(EntityConsistency(), make_turn(response, passages))
    [after] = run(EntityConsistency(), make_turn(response, [*passages, more]))
    if isinstance(before, Score):
        assert isinstance(after, Score)
        assert set(before.metadata["missing"]) >= set(after.metadata["missing"])
