"""``concept_completeness``."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks import ConfigurationError, Score
from rageval_hooks.metrics.local.relevance import ConceptCompleteness
from rageval_hooks.metrics.support.turn_analysis import MAX_QUERY_CHARACTERS
from rageval_hooks.models import Models
from rageval_hooks.settings import LEXICAL, ModelSettings
from tests.local import make_turn, run, why_not
from tests.metrics.texts import QUERY
from tests.text.junk import anything


def score_of(query: str, response: str, models: Models | None = None, threshold: float = 0.45) -> Score:
    turn = make_turn(response, query=query)
    [score] = run(ConceptCompleteness(threshold), turn, models) if models else run(ConceptCompleteness(threshold), turn)
    assert isinstance(score, Score), score
    return score


@pytest.mark.parametrize(
    ("query", "response", "value", "explanation"),
    [
        (QUERY, "The new pier. It was designed.", 1.0, "taken up: new pier, designed"),
        (QUERY, "Bananas are yellow.", 0.0, "missed: new pier, designed"),
        (QUERY, "Bananas are yellow. The new pier is long.", 0.5, "missed: designed"),
        ("Explain the old tower .", "Towers of old are high.", 1.0, "taken up: old tower"),
    ],
)
def test_concepts_are_found_by_meaning(
    query: str, response: str, value: float, explanation: str, real_models: Models
) -> None:
    """The tiny pipeline's noun chunks and verbs, by MiniLM's cosine with the best sentence."""
    score = score_of(query, response, real_models)

    assert score.value == value
    assert score.explanation == explanation


@pytest.mark.needs_torch
def test_the_cosines_equal_those_of_the_library(real_models: Models, tiny_nlp: Path) -> None:
    """Of each concept with its best sentence; they are in the metadata."""
    from sentence_transformers import SentenceTransformer

    from rageval_hooks.models.sources import packaged_minilm

    library = SentenceTransformer(str(packaged_minilm()), device="cpu", local_files_only=True)
    sentences = ["Anna Berg planned it.", "The jetty is new."]
    expected = library.similarity(library.encode(["new pier", "designed"]), library.encode(sentences)).max(dim=1)[0]

    score = score_of(QUERY, " ".join(sentences), real_models)

    assert score.metadata["concepts"] == {
        "new pier": pytest.approx(float(expected[0]), abs=1e-4),
        "designed": pytest.approx(float(expected[1]), abs=1e-4),
    }
    assert score.model == f"{tiny_nlp}, sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.parametrize(
    ("response", "value"),
    [
        (
            "The new pier was designed by Anna Berg, an engineer from a small town at the coast of the northern sea.",
            1.0,
        ),
        ("A pier was built there.", 0.5),
        ("It is long.", 0.0),
    ],
)
def test_concepts_in_the_lexical_tier(response: str, value: float) -> None:
    """A concept is covered if a sentence has more than the threshold's share of its words, at any length."""
    score = score_of("Who designed it, the new pier?", response)

    assert (score.value, score.model) == (value, "lexical")


def test_a_word_in_another_form_is_taken_up() -> None:
    """ "regulated" and "regulation" have one stem."""
    score = score_of("How are the exports regulated?", "The regulation of exports is strict, as many people say often.")

    assert (score.value, score.explanation) == (1.0, "taken up: exports regulated")


@pytest.mark.parametrize(("threshold", "value"), [(0.0, 1.0), (0.25, 0.5), (0.45, 0.0), (1.0, 0.0)])
def test_the_threshold_is_a_setting(threshold: float, value: float, real_models: Models) -> None:
    """The cosine must be above it."""
    response = "The jetty, which is new, was planned by Anna Berg."

    assert score_of(QUERY, response, real_models, threshold).value == value


@pytest.mark.parametrize("threshold", [-0.01, 1.01, math.nan, math.inf])
def test_a_threshold_outside_its_range_is_refused(threshold: float) -> None:
    """The constructor raises; the message says what is valid."""
    with pytest.raises(ConfigurationError, match=r"must be from 0 to 1"):
        ConceptCompleteness(threshold)


@pytest.mark.parametrize(
    ("query", "response", "reason"),
    [
        ("", "Anna.", "the turn has no query"),
        (QUERY, " ", "the turn has no response"),
        ("Who is it?", "Anna.", "the query has no concepts"),
        (QUERY, "It is.", "the response has no words that could be compared"),
        ("pier " * MAX_QUERY_CHARACTERS, "Anna.", "100,000 characters to read; the limit is 20,000"),
    ],
)
def test_without_concepts_there_is_no_score(query: str, response: str, reason: str) -> None:
    """Skipped, with the reason."""
    assert why_not(run(ConceptCompleteness(), make_turn(response, query=query))) == ("concept_completeness", reason)


_words = st.lists(st.sampled_from("the new pier was designed by Anna . museum ?".split()), max_size=10).map(" ".join)


@given(_words | anything(), _words | anything(), st.floats(0, 1), st.floats(0, 1))
def test_a_higher_threshold_never_raises_the_share(query: str, response: str, one: float, other: float) -> None:
    """And the share is in range."""
    low, high = sorted((one, other))
    [lenient] = run(ConceptCompleteness(low), make_turn(response, query=query))
    [strict] = run(ConceptCompleteness(high), make_turn(response, query=query))

    assert isinstance(lenient, Score) == isinstance(strict, Score)
    if isinstance(lenient, Score) and isinstance(strict, Score):
        assert 0 <= strict.value <= lenient.value <= 1


@pytest.mark.parametrize("response", ["It was opened in 2019.", "They opened it in 2019.", "The opening was in 2019."])
def test_a_concept_whose_words_are_in_the_response_is_covered(response: str) -> None:
    """Any form of the words counts, whatever the model's similarity."""
    turn = make_turn(response, query="When was it opened?")

    [score] = run(ConceptCompleteness(threshold=1.0), turn)

    assert isinstance(score, Score)
    assert (score.value, score.metadata["missed"]) == (1.0, [])


@pytest.fixture(scope="module")
def lemmatizing(tiny_nlp: Path, tmp_path_factory: pytest.TempPathFactory) -> Models:
    """The tiny pipeline with a lemmatizer of a few words, as the packaged pipelines have one."""
    import spacy
    from spacy.lookups import Lookups

    pipeline = spacy.load(tiny_nlp)
    lookups = Lookups()
    lookups.add_table("lemma_lookup", {"built": "build", "having": "have"})
    pipeline.add_pipe("lemmatizer", config={"mode": "lookup"}).initialize(lookups=lookups)  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("nlp") / "lemmas"
    pipeline.to_disk(folder)
    return Models(ModelSettings(nlp=str(folder), cross_encoder=LEXICAL, precision="fp32"))


@pytest.mark.parametrize(
    ("query", "response", "explanation"),
    [
        ("Who built the new pier?", "They build a new pier.", "taken up: new pier, built"),
        ("Who built the new pier?", "They own a new pier.", "missed: built"),
        # "having" is no content word: "have" anywhere in the response would take it up.
        ("Who having the new pier?", "They have a new pier.", "missed: having"),
    ],
)
def test_a_word_with_the_same_lemma_is_taken_up(
    query: str, response: str, explanation: str, lemmatizing: Models
) -> None:
    """Unless the concept has no content word."""
    assert score_of(query, response, lemmatizing, threshold=1.0).explanation == explanation
