"""``groundedness`` and ``unsupported_facts``: the formula, its golden values, its properties, its explanations."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rageval_hooks
from rageval_hooks import ConfigurationError, Passage, Score, Skipped, Turn
from rageval_hooks.metrics.local.groundedness import Groundedness
from rageval_hooks.metrics.local.unsupported_facts import UnsupportedFacts
from rageval_hooks.metrics.support.grounding import Grounding, groundedness
from rageval_hooks.models import Models
from rageval_hooks.models.embedder import Embedder, TokenVectors, keep_words
from rageval_hooks.text.fact_index import index_passage
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import Line, blank_marks, weighted_lines, words
from tests.local import LEXICAL_MODELS, make_turn, run, why_not
from tests.metrics.texts import MUSEUM, PIER, QUERY, RESPONSES
from tests.text.junk import anything


def lines_of(response: str) -> list[Line]:
    return weighted_lines(blank_marks(response), sentence_spans(response))


def lexical(response: str, *passages: str) -> Grounding:
    return groundedness(response, lines_of(response), [index_passage(passage) for passage in passages])


def score_of(response: str, passages: Sequence[str], models: Models = LEXICAL_MODELS, weak: float = 0.6) -> Score:
    [score] = run(Groundedness(weak), make_turn(response, passages), models)
    assert isinstance(score, Score), score
    return score


# ---------------------------------------------------------------------------------------------- the formula


@pytest.mark.parametrize(
    ("response", "passages", "expected"),
    [
        # The pier was opened in 2019: .25 + 1 + .25 + 1 + .25 + 2 = 4.75
        ("The pier was opened in 2019.", ["The pier was opened in 2019."], 1.0),
        ("The pier was opened in 2019.", ["A pier was closed in 2018."], 1.5 / 4.75),
        ("The pier was opened in 2019.", ["The pier is new.", "It was opened in 2019."], (1 + 3.5 / 4.75) / 2),
        ("The pier was opened in 2019.", ["Bananas."], 0.0),
        ("The pier was opened in 2019. Bananas.", ["The pier was opened in 2019."], 4.75 / 5.75),
        ("The pier. Yes, it was.", ["The pier."], 1.0),  # a sentence without content words does not count
        ("We met Anna.", ["Anna met us."], 3 / 3.25),
        ("THE PIER", ["a pier"], 2 / 2.25),
        ("See https://example.com [1].", ["nothing to see"], 1.0),
    ],
)
def test_lexical_values(response: str, passages: list[str], expected: float) -> None:
    """Weighed shares of words, anywhere and in the best window, worked out by hand."""
    assert lexical(response, *passages).value == pytest.approx(expected)


@pytest.mark.parametrize("passage", ["hundred " * 2_300, "7 " + "trillion " * 2_300])
def test_numbers_that_nobody_counts_take_no_score_away(passage: str) -> None:
    """A passage that is a row of magnitudes does not change the score of the response."""
    turn = make_turn("The pier was opened in 2019.", ["The pier was opened in 2019.", passage])

    assert [score.value for metric in (Groundedness(), UnsupportedFacts()) for score in run(metric, turn)] == [1.0, 0.0]


NEURAL = {
    "verbatim": 0.9745,
    "paraphrase": 0.8211,
    "wrong number": 0.8237,
    "wrong name": 0.5757,
    "unrelated": 0.0185,
    "half": 0.6994,
    "two passages": 0.7631,
}


@pytest.mark.parametrize("name", RESPONSES)
def test_neural_values(name: str, minilm: Models) -> None:
    """With MiniLM's token vectors: what the published weights give."""
    assert score_of(RESPONSES[name], [PIER, MUSEUM], minilm).value == pytest.approx(NEURAL[name], abs=2e-3)


def _tokens(text: str, *angles: float) -> TokenVectors:
    """One token per word of a text, each a direction in the plane, in degrees."""
    found = list(words(text))
    radians = np.radians(angles)
    return TokenVectors(
        np.asarray([word.start for word in found]),
        np.asarray([word.end for word in found]),
        np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32),
    )


@pytest.mark.parametrize(
    ("passage", "angles", "expected"),
    [
        # The .25, pier 1, of .25, Anna 2: 3.5 in all
        ("The pier of Anna", (0, 90, 0, 0), 1.0),
        # cos 53.13° = .6 is half way from .3 to .9: a word that is not there counts a quarter by what is near it
        ("The quay of Anna", (0, 143.13, 0, 0), (3.5 - 0.75) / 3.5),
        # a word that is there counts half where nothing is near it: here all but pier
        ("The pier of Anna", (90, 90, 90, 90), (3.5 - 2.5 / 2) / 3.5),
        # what is not there, and like what is there, counts half
        ("One quay by Anne", (0, 90, 0, 0), 0.5),
        ("One quay by Anne", (180, 180, 180, 180), 0.0),
    ],
)
def test_neural_values_by_hand(passage: str, angles: tuple[float, ...], expected: float) -> None:
    """Half of the score is whether the word occurs, half is its best similarity."""
    response = "The pier of Anna"
    own, there = _tokens(response, 0, 90, 0, 0), _tokens(passage, *angles)

    found = groundedness(response, lines_of(response), [index_passage(passage)], own, [there])

    assert found.value == pytest.approx(expected, abs=1e-4)


def reference(response: str, passages: list[str], embedder: Embedder | None) -> float:
    """The formula as its docstring has it, word by word and window by window."""
    windows: list[tuple[set[str], np.ndarray]] = []
    for passage in passages:
        tokens = None if embedder is None else keep_words(passage, embedder.embed(passage)).tokens
        found = list(words(passage))
        chunks = [found[i : i + 100] for i in range(0, len(found), 100)]
        for a in range(max(1, len(chunks) - 1)):
            inside = [word for chunk in chunks[a : a + 2] for word in chunk]
            begin, end = inside[0].start, inside[-1].end
            vectors = np.empty((0, 0)) if tokens is None else _vectors(tokens, begin, end)
            windows.append(({word.key for word in inside}, vectors))
    own = None if embedder is None else embedder.embed(response).tokens
    total = weight = 0.0
    for span in sentence_spans(response):
        [(_, line)] = weighted_lines(blank_marks(response), [span])
        if not any(word.is_content for word in line):
            continue
        both: list[list[float]] = []
        anywhere = 0.0
        for word in line:
            hits = [float(word.key in keys) for keys, _ in windows]
            nears = hits
            if own is not None and word.readable:
                pieces = _vectors(own, word.start, word.end)
                nears = [
                    sum(_rescaled(float((there @ piece).max())) for piece in pieces) / len(pieces)
                    for _, there in windows
                ]
            both.append([word.weight * (hit + near) / 2 for hit, near in zip(hits, nears, strict=True)])
            anywhere += word.weight * (max(hits) + max(nears)) / 2
        mass = sum(word.weight for word in line)
        together = max(sum(column) for column in zip(*both, strict=True))
        total += (anywhere + together) / 2
        weight += mass
    return total / weight


def _vectors(tokens: TokenVectors, start: int, end: int) -> np.ndarray:
    inside = (tokens.starts < end) & (tokens.ends > start)
    return tokens.vectors[inside].astype(np.float32)


def _rescaled(cosine: float) -> float:
    return min(1.0, max(0.0, (cosine - 0.3) / 0.6))


_LONG = " ".join(random.Random(0).choices(f"{PIER} {MUSEUM} Bananas are yellow.".split(), k=450))
TURNS = [
    *((response, [PIER, MUSEUM]) for response in RESPONSES.values()),
    ("The pier, it is said, was opened. The sea is free! Bananas: yellow.", [_LONG, PIER]),
    ("Москва is a museum of 北京 and Zürich.", ["Москва 北京 museum", "Zurich"]),
    ("Unbelievably, piers' entrances weren't free...", [MUSEUM, "!!!", PIER]),
]


@pytest.mark.parametrize(("response", "passages"), TURNS)
@pytest.mark.parametrize("tier", ["lexical", "neural"])
def test_the_value_is_the_documented_formula(response: str, passages: list[str], tier: str, minilm: Models) -> None:
    """Computed the slow way, with one loop per symbol."""
    models = minilm if tier == "neural" else LEXICAL_MODELS
    embedder = models.embedder()

    value = score_of(response, passages, models).value

    expected = reference(response, [text for text in passages if any(words(text))], _neural(embedder))
    assert value == pytest.approx(expected, abs=1e-5)


def _neural(embedder: object) -> Embedder | None:
    return embedder if isinstance(embedder, Embedder) else None


# ----------------------------------------------------------------------------------------------- properties

_VOCABULARY = "the pier of Anna Berg opened in 2019 . It is 120 metres long ! museum free on Sundays and , not".split()
texts = st.lists(st.sampled_from(_VOCABULARY), max_size=15).map(" ".join)


@given(texts | anything(), st.lists(texts | anything(), max_size=4))
def test_values_are_in_range(response: str, passages: list[str]) -> None:
    """The turn's, every sentence's, and every coverage."""
    found = lexical(response, *passages)

    assert found.value is None or 0 <= found.value <= 1
    for sentence in found.sentences:
        assert 0 <= sentence.score <= 1
        assert 0 <= sentence.coverage <= 1


@settings(max_examples=15)
@given(response=texts, passages=st.lists(texts, max_size=3))
def test_neural_values_are_in_range(minilm: Models, response: str, passages: list[str]) -> None:
    """Rounding does not take them beyond 1."""
    found = run(Groundedness(), make_turn(response, passages), minilm)

    assert all(isinstance(result, Skipped) or 0 <= result.value <= 1 for result in found)  # type: ignore[union-attr]


@given(texts, st.lists(texts, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_passages_does_not_matter(response: str, passages: list[str], order: random.Random) -> None:
    """Not a bit."""
    shuffled = list(passages)
    order.shuffle(shuffled)

    assert lexical(response, *shuffled).value == lexical(response, *passages).value


def test_the_order_of_passages_does_not_matter_to_vectors_either(minilm: Models) -> None:
    """Up to rounding."""
    passages = [PIER, MUSEUM, _LONG]

    one, other = (score_of(RESPONSES["two passages"], order, minilm).value for order in (passages, passages[::-1]))

    assert one == pytest.approx(other, abs=1e-6)


@given(texts, st.lists(texts, max_size=4), texts)
def test_one_more_passage_never_lowers_support(response: str, passages: list[str], more: str) -> None:
    """It can only hold words that the others lack."""
    without, with_it = lexical(response, *passages).value, lexical(response, *passages, more).value

    assert without is None or (with_it is not None and with_it >= without)


@settings(max_examples=15)
@given(response=texts, passages=st.lists(texts, max_size=3), more=texts)
def test_one_more_passage_never_lowers_support_with_vectors(
    minilm: Models, response: str, passages: list[str], more: str
) -> None:
    """This holds for any passage, up to rounding."""
    turns = [make_turn(response, passages), make_turn(response, [*passages, more])]
    [without], [with_it] = (run(Groundedness(), turn, minilm) for turn in turns)

    assert isinstance(without, Skipped) or with_it.value >= without.value - 1e-6  # type: ignore[union-attr]


@given(texts, texts)
def test_one_more_missing_word_never_raises_a_sentence(text: str, passage: str) -> None:
    """It is one more word to find."""
    sentence = text.replace("!", "").replace(".", "")
    with_it = lexical(f"{sentence} zebra", passage).value
    without = lexical(sentence, passage).value

    assert without is None or (with_it is not None and with_it <= without)


@given(st.lists(texts, min_size=1, max_size=5))
def test_a_passage_supports_itself(passages: list[str]) -> None:
    """A response that is one of the passages has everything."""
    value = lexical(passages[0], *passages).value

    assert value is None or value == pytest.approx(1)


def test_a_better_answer_scores_better(minilm: Models) -> None:
    """Verbatim near 1, unrelated near 0, and between them the others in the order that people would give."""
    for models in (minilm, LEXICAL_MODELS):
        value = {name: score_of(response, [PIER, MUSEUM], models).value for name, response in RESPONSES.items()}
        assert value["verbatim"] > 0.95
        assert value["unrelated"] < 0.05
        assert value["verbatim"] > value["paraphrase"] > value["wrong name"] > value["unrelated"]
        assert value["verbatim"] > value["wrong number"]
        assert value["verbatim"] > value["half"] > value["unrelated"]


def test_the_same_turn_has_the_same_bits(minilm: Models) -> None:
    """Whether its passages were cached or not."""
    first = score_of(RESPONSES["paraphrase"], [PIER, MUSEUM], minilm)
    for response in RESPONSES.values():
        score_of(response, [MUSEUM, f"{PIER} {response}"], minilm)

    assert score_of(RESPONSES["paraphrase"], [PIER, MUSEUM], minilm) == first


# ------------------------------------------------------------------------------------------- what is skipped


@pytest.mark.parametrize(
    ("response", "passages", "reason"),
    [
        ("", [PIER], "the turn has no response"),
        (" \n", [PIER], "the turn has no response"),
        ("The pier.", [], "the turn has no passages"),
        ("The pier.", ["", " \t"], "the passages have no text"),
        ("The pier.", ["!!!", "..."], "the response or the passages have no words that could be compared"),
        ("It is so.", [PIER], "the response or the passages have no words that could be compared"),
        ("?! 😀", [PIER], "the response has no words"),
    ],
)
@pytest.mark.parametrize("tier", ["lexical", "neural"])
def test_without_words_there_is_no_score(
    response: str, passages: list[str], reason: str, tier: str, minilm: Models
) -> None:
    """A score that cannot be computed is skipped; it is not a number."""
    models = minilm if tier == "neural" else LEXICAL_MODELS

    assert why_not(run(Groundedness(), make_turn(response, passages), models)) == ("groundedness", reason)


# -------------------------------------------------------------------------------------------- explanations


def test_a_weak_sentence_is_named(minilm: Models) -> None:
    """With its score, its best passage and the words that no passage has; good ones are not."""
    turn = Turn(
        response="The new pier was opened in September 2019. It was designed by Zaha Hadid.",
        passages=(Passage(text=MUSEUM, id="m"), Passage(text=PIER, id="p")),
    )

    [score] = run(Groundedness(), turn, minilm)

    assert isinstance(score, Score)
    assert score.explanation == (
        "1 of 2 sentences below 0.50:\n0.30 “It was designed by Zaha Hadid.” best passage: p; missing: Zaha, Hadid"
    )
    assert score.model == "sentence-transformers/all-MiniLM-L6-v2"
    assert score.annotator == "CODE"


def test_sentences_that_cost_most_come_first() -> None:
    """Five are named, the others counted."""
    response = " ".join(f"The pier has {number} bananas and apples." for number in range(60, 68)) + " Bananas."

    lines = (score_of(response, ["The pier has them."]).explanation or "").splitlines()

    assert lines[0] == "9 of 9 sentences below 0.50:"
    assert "0.00 “Bananas.” no passage has any of it; missing: Bananas" not in lines  # short: it costs least
    assert lines[-1] == "and 4 more"
    assert len(lines) == 7


def test_a_passage_without_an_id_is_named_by_its_place() -> None:
    """Counted from 1."""
    explanation = score_of("The pier has bananas and apples.", ["nothing", "the pier"]).explanation

    assert explanation is not None
    assert "best passage: number 2; missing: bananas, apples" in explanation


@pytest.mark.parametrize(
    ("response", "explanation"),
    [
        ("The new pier was opened.", "reaches 0.50"),
        ("The new pier was opened. It is long.", "all 2 sentences reach 0.50"),
        ("The new pier was opened on one day of September 2019.", "reaches 0.50; words that no passage has: day"),
    ],
)
def test_a_well_supported_response(response: str, explanation: str) -> None:
    """The explanation says so, and still names missing words: one wrong number hardly lowers the score."""
    assert score_of(response, [PIER]).explanation == explanation


def test_a_number_in_another_form_is_not_missing() -> None:
    """The words differ, and the fact is the same."""
    score = score_of("The pier cost 411 million euros.", ["The pier cost 411,000,000 euros."])

    assert score.explanation == "reaches 0.50"


def test_the_explanation_uses_the_threshold_of_the_label() -> None:
    """A turn that fails names the sentences below the threshold, one that passes says that all reach it."""
    turn = make_turn("The new pier was opened in September 2017.", [PIER])  # 0.74

    low = rageval_hooks.evaluate(turn, metrics=["groundedness"], models="lexical", thresholds={"groundedness": 0.7})
    high = rageval_hooks.evaluate(turn, metrics=["groundedness"], models="lexical", thresholds={"groundedness": 0.9})

    [passed], [failed] = low.scores, high.scores
    assert (passed.label, passed.explanation) == ("pass", "reaches 0.70; words that no passage has: 2017")
    assert failed.label == "fail"
    assert (failed.explanation or "").startswith("below 0.90:\n0.74 “The new pier was opened in September 2017.”")


@given(
    st.lists(st.sampled_from([*RESPONSES.values(), "Bananas.", "Yes, it is so."]), min_size=1, max_size=6),
    st.sampled_from([None, 0.3, 0.6, 0.8, 0.95]),
)
def test_an_explanation_never_contradicts_its_label(sentences: list[str], threshold: float | None) -> None:
    """A failed turn names at least one sentence. "All sentences reach" occurs only in a turn that passes."""
    thresholds = None if threshold is None else {"groundedness": threshold}
    turn = make_turn(" ".join(sentences), [PIER, MUSEUM])

    evaluation = rageval_hooks.evaluate(turn, metrics=["groundedness"], models="lexical", thresholds=thresholds)

    for score in evaluation.scores:
        first, *named = (score.explanation or "").splitlines()
        assert ("reach" in first) == (not named)
        assert score.label == "pass" or named


def test_a_passage_that_the_model_did_not_see_supports_nothing() -> None:
    """The score uses the passages of the prompt; the explanation says where else a sentence has its support."""
    passages = (Passage(text=PIER, id="p", in_prompt=False), Passage(text=MUSEUM, id="m", in_prompt=True))

    [score] = run(Groundedness(), Turn(response="It was designed by Anna Berg.", passages=passages))

    assert isinstance(score, Score)
    assert score.value < 0.3
    assert (score.explanation or "").endswith("only in a passage that was not in the prompt: p")
    assert score.metadata["sentences"][0]["passage"] == 1  # the position in the turn


def test_without_a_passage_in_the_prompt_the_answer_is_not_judged() -> None:
    """Skipped, with the reason; metrics of retrieval go on."""
    turn = Turn(query=QUERY, response="It was designed by Anna Berg.", passages=(Passage(text=PIER, in_prompt=False),))

    evaluation = rageval_hooks.evaluate(turn, models="lexical")

    reasons = {result.name for result in evaluation.skipped if result.reason == "no passage was in the prompt"}
    assert reasons == {
        "verdict",
        "groundedness",
        "faithfulness",
        "unsupported_facts",
        "semantic_grounding",
        "entity_consistency",
        "factual_accuracy",
        "answers_question",
        "hallucination",
    }
    assert evaluation.score("context_relevance") is not None


@pytest.mark.parametrize("weak", [-0.1, 1.1, math.nan])
def test_a_bound_outside_its_range_is_refused(weak: float) -> None:
    """At construction."""
    with pytest.raises(ConfigurationError, match=r"weak must be from 0 to 1"):
        Groundedness(weak)


def test_the_sentences_are_kept_with_the_score(minilm: Models) -> None:
    """For dashboards: text, score, its parts, weight, best passage and missing words of each."""
    score = score_of("The new pier was opened in September 2019. Bananas are yellow.", [MUSEUM, PIER], minilm)

    first, second = score.metadata["sentences"]
    assert first["text"] == "The new pier was opened in September 2019."
    assert (first["passage"], first["missing"], first["coverage"]) == (1, [], 1.0)
    assert (second["coverage"], second["missing"]) == (pytest.approx(0, abs=0.15), ["Bananas", "yellow"])
    assert 0.9 < first["alignment"] <= 1
    whole = first["weight"] + second["weight"]
    mean = (first["score"] * first["weight"] + second["score"] * second["weight"]) / whole
    assert score.value == pytest.approx(mean, abs=1e-4)


def test_a_long_response_keeps_a_bounded_number_of_sentences() -> None:
    """A hundred."""
    score = score_of("The pier is long. " * 500, [PIER])

    assert len(score.metadata["sentences"]) == 100


# ----------------------------------------------------------------------------------------- unsupported facts


@pytest.mark.parametrize(
    ("response", "count", "explanation"),
    [
        ("It was opened in 2019 by Anna Berg, in 2019.", 0, "the passages support: 2019, Anna Berg"),
        ("It was opened in 2017 by Anna Berg.", 1, "no passage has: 2017"),
        ("It was designed by Zaha Hadid, in 2017, in 2017.", 2, "no passage has: Zaha Hadid, 2017"),
        ("It is long.", 0, "the response states no numbers, dates or names"),
    ],
)
def test_unsupported_facts_are_counted_and_listed(response: str, count: int, explanation: str) -> None:
    """Each once, in the order of the response."""
    [score] = run(UnsupportedFacts(), make_turn(response, [PIER, MUSEUM]))

    assert isinstance(score, Score)
    assert (score.value, score.explanation) == (count, explanation)
    assert len(score.metadata["missing"]) == count


def test_facts_of_the_question_are_listed_but_not_counted() -> None:
    """The user brought them up, so the answer did not make them up."""
    response = "No, Zaha Hadid did not design it in 2017, nor in 2016."
    turn = make_turn(response, [PIER], "Did Zaha Hadid design it in 2017?")

    [score] = run(UnsupportedFacts(), turn)

    assert isinstance(score, Score)
    assert (score.value, score.explanation) == (1, "no passage has: 2016; in the question: Zaha Hadid, 2017")
    assert [fact["text"] for fact in score.metadata["in_question"]] == ["Zaha Hadid", "2017"]


def test_a_fact_that_only_an_unseen_passage_has_is_unsupported() -> None:
    """The explanation names the passage."""
    passages = (Passage(text=PIER, id="p", in_prompt=False), Passage(text=MUSEUM, in_prompt=True))

    [score] = run(UnsupportedFacts(), Turn(response="It was opened in 2019.", passages=passages))

    assert isinstance(score, Score)
    explanation = "no passage has: 2019; only in a passage that was not in the prompt (p): 2019"
    assert (score.value, score.explanation) == (1, explanation)


def test_many_unsupported_facts_are_all_counted() -> None:
    """Fifty are listed."""
    response = "It has " + ", ".join(f"{number} piers" for number in range(1000, 1100)) + "."

    [score] = run(UnsupportedFacts(), make_turn(response, [PIER]))

    assert isinstance(score, Score)
    assert score.value == 100
    assert len(score.metadata["missing"]) == 50


@given(texts | anything(), st.lists(texts | anything(), min_size=1, max_size=3), texts | anything())
def test_unsupported_facts_are_never_more_than_what_is_stated(response: str, passages: list[str], more: str) -> None:
    """And the count is a whole number, 0 or more."""
    for result in run(UnsupportedFacts(), make_turn(response, [*passages, more])):
        assert isinstance(result, Skipped) or 0 <= result.value <= result.metadata["stated"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("query", "response"),
    [
        (QUERY, "I don't know."),
        (QUERY, "The passages do not say when the pier was opened."),
        ("What did Barack Obama pay in 2017?", "The passages do not mention what Barack Obama paid in 2017."),
    ],
)
def test_a_refusal_is_not_judged(query: str, response: str) -> None:
    """A refusal claims nothing, so metrics about claims are skipped and the others run."""
    turn = make_turn(response, [PIER], query)

    evaluation = rageval_hooks.evaluate(turn, models="lexical", thresholds={"unsupported_facts": 0})

    reasons = {result.name for result in evaluation.skipped if "declines to answer" in result.reason}
    assert reasons == {
        "verdict",
        "groundedness",
        "faithfulness",
        "unsupported_facts",
        "semantic_grounding",
        "entity_consistency",
        "factual_accuracy",
        "hallucination",
        "answers_question",
        "concept_completeness",
    }
    assert evaluation.score("context_relevance") is not None
    assert evaluation.score("tokens") is not None


@pytest.mark.parametrize(
    "response",
    [
        "The passages do not mention that the pier cost 34 million.",
        "The passages do not mention the price of 34 million.",
        "I don't know when Carl Brown opened the pier.",
    ],
)
def test_a_refusal_that_brings_up_a_fact_is_judged(response: str) -> None:
    """The fact is neither in the question nor in the passages, so it is a claim."""
    evaluation = rageval_hooks.evaluate(make_turn(response, [PIER], QUERY), models="lexical")

    assert evaluation["unsupported_facts"] == 1
    assert evaluation.score("groundedness") is not None
