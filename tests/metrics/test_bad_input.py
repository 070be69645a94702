"""Bad input: the scores that make sense, the others skipped with a reason; never an exception, never a failure."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rageval_hooks import Score, Skipped, Turn
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.metrics.running import compute
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models
from rageval_hooks.score import Result
from tests.local import LEXICAL_MODELS, LOCAL, make_turn
from tests.metrics.texts import MUSEUM, PIER, QUERY
from tests.text.junk import JUNK, anything

METRICS = [REGISTRY.create(name) for name in LOCAL]
RANGES = {definition.name: definition for metric in METRICS for definition in metric.scores}
ANSWER = "It was designed by Anna Berg in 2019."


def evaluate(turn: Turn, models: Models = LEXICAL_MODELS) -> dict[str, Result]:
    """Compute all local metrics with one analysis; check each result; return those of the whole turn by name."""
    analysis = TurnAnalysis(turn, models, wait=True)
    found: dict[str, Result] = {}
    for metric in METRICS:
        for result in compute(metric, analysis):
            if isinstance(result, Score):
                low, high = RANGES[result.name].low, RANGES[result.name].high
                assert low <= result.value
                assert high is None or result.value <= high
                result.model_dump_json().encode()
                if result.target.kind == "turn":
                    found[result.name] = result
            else:
                assert isinstance(result, Skipped), result
                assert result.reason
                found[result.name] = result
    return found


def scored(results: dict[str, Result]) -> set[str]:
    return {name for name, result in results.items() if isinstance(result, Score)}


COUNTS = {"tokens", "tokens.input", "tokens.output"}
GROUNDING = {
    "groundedness",
    "faithfulness",
    "semantic_grounding",
    "factual_accuracy",
    "hallucination",
    "unsupported_facts",
}
EVERYTHING = (
    COUNTS
    | GROUNDING
    | {"entity_consistency", "answers_question", "answer_relevance", "context_relevance", "concept_completeness"}
)

CASES: dict[str, tuple[Callable[[], Turn], set[str]]] = {
    "everything is empty": (lambda: make_turn(), COUNTS),
    "empty response": (lambda: make_turn("", [PIER], QUERY), COUNTS | {"context_relevance"}),
    "white space for a response": (lambda: make_turn(" \n\t", [PIER], QUERY), COUNTS | {"context_relevance"}),
    "empty query": (lambda: make_turn(ANSWER, [PIER]), COUNTS | GROUNDING | {"entity_consistency"}),
    "zero passages": (
        lambda: make_turn(ANSWER, [], QUERY),
        COUNTS | {"answer_relevance", "concept_completeness"},
    ),
    "empty passages": (
        lambda: make_turn(ANSWER, ["", " "], QUERY),
        COUNTS | {"answer_relevance", "concept_completeness"},
    ),
    "one empty passage": (lambda: make_turn(ANSWER, ["", PIER], QUERY), EVERYTHING),
    "lone surrogates": (
        lambda: make_turn(f"\ud800 {ANSWER} \udfff", [f"{PIER}\ud83d", MUSEUM], f"{QUERY} \udc00"),
        EVERYTHING,
    ),
    "other languages": (
        lambda: make_turn(
            "埃菲尔铁塔位于巴黎，建于1889年。",
            ["埃菲尔铁塔于1889年在巴黎建成。", "Эйфелева башня — в Париже."],
            "埃菲尔铁塔在哪里？",
        ),
        COUNTS | GROUNDING | {"context_relevance"},
    ),
    "a thousand passages": (
        lambda: make_turn(ANSWER, [f"{text} Page {n % 20}." for n in range(500) for text in (PIER, MUSEUM)], QUERY),
        EVERYTHING,
    ),
    "a very long word": (lambda: make_turn("a" * 200_000, ["a" * 200_000], "a" * 200_000), set()),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_in_the_lexical_tier(case: str) -> None:
    """What can be computed is, and nothing else."""
    make, expected = CASES[case]

    results = evaluate(make())

    assert not expected or scored(results) == expected


@pytest.mark.parametrize("case", CASES)
def test_bad_input_with_models(case: str, real_models: Models) -> None:
    """Likewise; what the tiny pipeline finds in a text is another matter."""
    make, expected = CASES[case]

    results = evaluate(make(), real_models)

    unsure = {"entity_consistency", "concept_completeness"}
    assert not expected or scored(results) - unsure == expected - unsure


JUNKS = ["binary", "prose", "code", "Chinese", "digits", "surrogates", "controls", "emoji"]


@pytest.mark.parametrize("name", JUNKS)
def test_junk_of_100_000_characters(name: str) -> None:
    """As a passage; and shorter as a response and as a query."""
    evaluate(make_turn(ANSWER, [JUNK[name](100_000), PIER], QUERY))
    evaluate(make_turn(JUNK[name](3_000), [PIER], JUNK[name](1_000)))


@pytest.mark.parametrize("name", JUNKS)
def test_junk_with_models(name: str, real_models: Models) -> None:
    """As a passage, a response and a query at once."""
    evaluate(make_turn(JUNK[name](300), [JUNK[name](600), PIER], JUNK[name](60)), real_models)


def test_a_long_passage_is_embedded_as_a_whole(real_models: Models) -> None:
    """200,000 characters in few tokens: what matters stands at the end."""
    passage = "-" * 100 + " " * 199_000 + PIER

    results = evaluate(make_turn(ANSWER, [passage], QUERY), real_models)

    assert scored(results) >= {"groundedness", "semantic_grounding", "context_relevance"}
    groundedness = results["groundedness"]
    assert isinstance(groundedness, Score)
    assert groundedness.value > 0.8


@pytest.mark.parametrize(
    ("turn", "skipped"),
    [
        (
            make_turn(ANSWER, ["word " * 30_000, "word " * 30_001], QUERY),
            GROUNDING - {"unsupported_facts"} | {"answers_question", "context_relevance"},
        ),
        (
            make_turn(ANSWER, ["word " * 200_001], QUERY),
            GROUNDING | {"answers_question", "context_relevance", "entity_consistency"},
        ),
        (make_turn("word " * 60_001, [], QUERY), {"answer_relevance", "concept_completeness"}),
        (make_turn(ANSWER, [], "word " * 4_001), {"concept_completeness"}),
    ],
    ids=["300,000 characters of context", "a million", "a long response", "a long query"],
)
def test_what_would_take_too_long_is_skipped(turn: Turn, skipped: set[str], real_models: Models) -> None:
    """The reason names the size and the limit; the others are computed."""
    results = evaluate(turn, real_models)

    too_large = {
        name
        for name, result in results.items()
        if isinstance(result, Skipped) and ("the limit is" in result.reason or "longer than" in result.reason)
    }
    assert too_large == skipped


@given(anything(), st.lists(anything(), max_size=4), anything())
def test_anything_has_scores_in_range(response: str, passages: list[str], query: str) -> None:
    """Or a reason why not."""
    evaluate(make_turn(response, passages, query))


@settings(max_examples=20)
@given(response=anything(), passages=st.lists(anything(), max_size=2), query=anything())
def test_anything_has_scores_in_range_with_models(
    real_models: Models, response: str, passages: list[str], query: str
) -> None:
    """Or a reason why not."""
    evaluate(make_turn(response, passages, query), real_models)
