"""``answer_relevance``, ``context_relevance`` and ``answers_question``."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks import Passage, Score, Skipped, Turn
from rageval_hooks.metrics.local.relevance import AnswerRelevance, AnswersQuestion, ContextRelevance
from rageval_hooks.models import Models
from rageval_hooks.score import Result, Target
from tests.interpreter import run_script
from tests.local import LEXICAL_MODELS, make_turn, run, why_not
from tests.metrics.texts import MUSEUM, PIER, QUERY
from tests.text.junk import anything


def scores(results: tuple[Result, ...]) -> list[Score]:
    assert all(isinstance(result, Score) for result in results), results
    return [result for result in results if isinstance(result, Score)]


# ------------------------------------------------------------------------------------------ answer_relevance


@pytest.mark.needs_torch
@pytest.mark.parametrize("response", ["Anna Berg designed it.", "An old tower.", "Bananas! 今天"])
def test_answer_relevance_is_the_sigmoid_of_the_cross_encoder(
    response: str, real_models: Models, tiny_cross_encoder: Path
) -> None:
    """Of its logit on the pair of query and response, as the library gives it."""
    import torch
    from sentence_transformers import CrossEncoder

    library = CrossEncoder(str(tiny_cross_encoder), device="cpu", local_files_only=True)
    logit = float(library.predict([(QUERY, response)], activation_fn=torch.nn.Identity())[0])

    [score] = scores(run(AnswerRelevance(), make_turn(response, query=QUERY), real_models))

    assert score.value == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-5)
    assert score.model == str(tiny_cross_encoder)
    assert score.explanation is None


def test_a_pair_that_was_cut_says_so(real_models: Models) -> None:
    """The explanation, and the metadata."""
    [score] = scores(run(AnswerRelevance(), make_turn("word " * 5_000, query=QUERY), real_models))

    assert score.explanation == "only the beginning was read: the pair is longer than the model reads"
    assert score.metadata == {"truncated": True}


@pytest.mark.parametrize(
    ("query", "response", "value"),
    [
        ("When was the pier opened?", "The pier was opened in 2019.", 1.0),
        ("When was the pier opened?", "It has a pier.", 0.5),
        ("When was the pier opened?", "Bananas.", 0.0),
    ],
)
def test_answer_relevance_in_the_lexical_tier(query: str, response: str, value: float) -> None:
    """The share of the query's content words that the response takes up."""
    [score] = scores(run(AnswerRelevance(), make_turn(response, query=query)))

    assert (score.value, score.model) == (value, "lexical")


@pytest.mark.parametrize(
    ("query", "response", "reason"),
    [
        ("", "Anna.", "the turn has no query"),
        (" \t", "Anna.", "the turn has no query"),
        (QUERY, "", "the turn has no response"),
        ("Who is it?", "It is her.", "the query has no words that could be compared"),
    ],
)
def test_answer_relevance_without_a_text_is_skipped(query: str, response: str, reason: str) -> None:
    """With the reason."""
    assert why_not(run(AnswerRelevance(), make_turn(response, query=query))) == ("answer_relevance", reason)


def test_a_turn_that_failed_says_with_what() -> None:
    """A missing response is explained by the turn's error."""
    turn = make_turn(query=QUERY, status="error", error={"type": "RateLimitError", "message": "slow down"})

    [result] = run(AnswerRelevance(), turn)

    assert isinstance(result, Skipped)
    assert result.reason == "the turn has no response: it ended with RateLimitError"


# ----------------------------------------------------------------------------------------- context_relevance


@pytest.mark.needs_torch
def test_context_relevance_is_the_librarys_cosine(minilm: Models) -> None:
    """Per passage, and for the turn the mean; each passage has a score too."""
    import numpy as np
    from sentence_transformers import SentenceTransformer

    from rageval_hooks.models.sources import packaged_minilm

    library = SentenceTransformer(str(packaged_minilm()), device="cpu", local_files_only=True)
    query, *there = library.encode([QUERY, PIER, MUSEUM], normalize_embeddings=True)
    expected = [float(np.dot(query, passage)) for passage in there]
    turn = Turn(query=QUERY, passages=(Passage(text=PIER, id="p"), Passage(text=MUSEUM)))

    whole, *parts = scores(run(ContextRelevance(), turn, minilm))

    assert [part.value for part in parts] == pytest.approx(expected, abs=1e-6)
    assert whole.value == pytest.approx(sum(expected) / 2, abs=1e-6)
    assert [part.target for part in parts] == [
        Target(kind="passage", index=0, id="p"),
        Target(kind="passage", index=1),
    ]
    assert whole.explanation == "best passage: p (0.75); 2 passages, from 0.27 to 0.75"
    assert whole.metadata == {"passages": [round(value, 4) for value in expected]}


def test_the_best_window_of_a_long_passage_counts(minilm: Models) -> None:
    """The rest of the passage does not matter."""
    long = f"{MUSEUM} " * 40 + PIER

    _, short_score, long_score, without = scores(
        run(ContextRelevance(), make_turn(query=QUERY, passages=[PIER, long, f"{MUSEUM} " * 40]), minilm)
    )

    assert short_score.value > long_score.value > without.value + 0.1


def test_one_passage_is_explained_by_itself() -> None:
    """No range of one."""
    whole, _ = scores(run(ContextRelevance(), make_turn(query="When was the pier opened?", passages=[PIER])))

    assert whole.explanation == "best passage: number 1 (1.00)"


@pytest.mark.parametrize(
    ("query", "passages", "reason"),
    [
        ("", [PIER], "the turn has no query"),
        (QUERY, [], "the turn has no passages"),
        (QUERY, ["", "\n"], "the passages have no text"),
    ],
)
def test_context_relevance_without_a_text_is_skipped(query: str, passages: list[str], reason: str) -> None:
    """With the reason."""
    [result] = run(ContextRelevance(), make_turn(query=query, passages=passages))

    assert isinstance(result, Skipped)
    assert result.reason == reason


@pytest.mark.parametrize(
    ("query", "tier"), [("Who is it?", "lexical"), ("\u200b\x00", "lexical"), ("\u200b", "neural")]
)
def test_a_query_without_words_is_skipped(query: str, tier: str, minilm: Models) -> None:
    """It is like nothing, which is not a relevance of 0."""
    models = minilm if tier == "neural" else LEXICAL_MODELS

    results = run(ContextRelevance(), make_turn(query=query, passages=[PIER]), models)

    assert why_not(results) == ("context_relevance", "the query has no words that could be compared")


@pytest.mark.parametrize("empty", ["", "---", " \n"])
def test_a_passage_without_words_has_no_score(empty: str, minilm: Models) -> None:
    """It is not in the mean either, and the explanation says so."""
    passages = [empty, PIER]

    whole, full = scores(run(ContextRelevance(), make_turn(query=QUERY, passages=passages), minilm))

    assert whole.value == full.value
    assert full.target.index == 1
    assert whole.metadata["passages"] == [None, round(full.value, 4)]
    assert (whole.explanation or "").endswith("not counted, without words: 1")


_words = st.lists(st.sampled_from("the new pier was opened by Anna in 2019 museum ?".split()), max_size=8).map(" ".join)


@given(_words | anything(), _words | anything(), st.lists(_words | anything(), max_size=4))
def test_relevances_are_in_range_and_of_any_order(query: str, response: str, passages: list[str]) -> None:
    """0..1, one score per passage, and the turn's is the same when the passages come the other way round."""
    turn = make_turn(response, passages, query)
    for result in run(AnswerRelevance(), turn):
        assert isinstance(result, Skipped) or 0 <= result.value <= 1  # type: ignore[union-attr]
    forward, backward = (
        run(ContextRelevance(), make_turn(response, order, query)) for order in (passages, passages[::-1])
    )
    assert len(forward) == len(backward)
    if isinstance(forward[0], Score) and isinstance(backward[0], Score):
        assert 0 <= forward[0].value <= 1
        assert forward[0].value == backward[0].value
        assert len(forward) == 1 + sum(any(map(str.isalnum, passage)) for passage in passages)


# --------------------------------------------------------------------------- answers_question

MUSEUM_TEXT = "The museum in Ardwell is open from 9 to 5. Tickets cost 12 euros. It was founded in 1911 by Marta Oldag."


@pytest.mark.parametrize(
    ("query", "response", "answers"),
    [
        ("What does a ticket to the museum cost?", "Tickets cost 12 euros.", True),
        ("When was the museum founded?", "It was founded in 1911.", True),
        # The words of the question are in the sentence that supports it.
        ("Who founded the museum in 1911?", "Marta Oldag", True),
        # A word that begins like one of the question: museum, museums' and the like.
        ("What are the benefits of a ticketholder?", "Tickets cost 12 euros.", True),
        ("When was the museum founded?", "Tickets cost 12 euros.", False),
        ("Which hotels have a swimming pool?", "The museum in Ardwell is open from 9 to 5.", False),
        # Of another kind than the question asks for.
        ("When was the museum founded?", "Marta Oldag", False),
        ("Who founded the museum?", "The museum is open from 9 to 5.", False),
        ("How many people founded the museum?", "Marta Oldag", False),
    ],
)
def test_an_answer_to_another_question_has_a_low_probability(query: str, response: str, answers: bool) -> None:
    """Though the passage supports it."""
    [score] = scores(run(AnswersQuestion(), make_turn(response, [MUSEUM_TEXT], query)))

    assert (score.value >= 0.2) is answers


@pytest.mark.parametrize(
    ("query", "response", "reason"),
    [
        ("Is the museum open at noon?", "Yes, it is.", "yes or no"),
        ("Wann wurde das Museum in Ardwell eröffnet?", "1911", "German"),
        ("And then?", "Tickets cost 12 euros.", "no words"),
        ("What do the documents say?", "Tickets cost 12 euros.", "no words"),
        ("How much is entry?", "Tickets cost 12 euros.", "no words"),
        ("I love museums. They are so quiet!", "Tickets cost 12 euros.", "asks nothing"),
    ],
)
def test_what_cannot_be_compared_with_the_question_is_skipped(query: str, response: str, reason: str) -> None:
    """Words alone say nothing about a question of one word, which the answer may say in another."""
    assert reason in why_not(run(AnswersQuestion(), make_turn(response, [MUSEUM_TEXT], query)))[1]


def test_the_explanation_names_the_words_of_the_question_that_are_missing() -> None:
    """As they are written there."""
    [score] = scores(
        run(AnswersQuestion(), make_turn("Tickets cost 12 euros.", [MUSEUM_TEXT], "When was the museum founded?"))
    )

    assert score.explanation == "neither the answer nor its evidence has museum, founded"


def test_words_of_a_question_that_begin_alike_count_in_every_process() -> None:
    """Whatever the order of Python's sets, which differs between processes."""
    script = """
from rageval_hooks import evaluate
answer = "The photographic shop has photocopiers."
case = {"query": "Do photographers use photocopies?", "response": answer, "contexts": [answer]}
print(evaluate(case, metrics=["answers_question"], models="lexical")["answers_question"])
"""
    assert len({run_script(script, PYTHONHASHSEED=str(seed)) for seed in range(4)}) == 1
