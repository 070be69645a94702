"""Texts of hostile sizes: scores are computed in bounded time or skipped with a reason."""

from __future__ import annotations

import time

import pytest

from rageval_hooks import Evaluation, Passage, Turn, evaluate
from rageval_hooks.text.limits import MAX_PASSAGES, MAX_RESPONSE_CHARACTERS

PROSE = "The pier was opened in September 2019 by Mayor Jane Smith [1]. It has 7 lamps and cost $1,200.50. "
PASSAGES = ["The pier was opened in 2019 by Mayor Jane Smith.", "It has 7 lamps.", "It cost $1,200.50 in 2019."]
ANSWER_METRICS = {"groundedness", "unsupported_facts", "entity_consistency", "semantic_grounding", "hallucination"}
MAX_CPU = 8.0
"""Seconds of CPU time, generous: a laptop takes less than one. Quadratic steps took 10 to 60."""


def evaluate_in_time(response: str, passages: list[str]) -> Evaluation:
    """Evaluate a turn with the lexical models and check the CPU time of this process."""
    turn = Turn(
        query="When was the pier opened?", response=response, passages=[Passage(text=text) for text in passages]
    )
    begin = time.process_time()
    evaluation = evaluate(turn, models="lexical")

    assert time.process_time() - begin < MAX_CPU
    assert not evaluation.failed
    return evaluation


def reasons(evaluation: Evaluation) -> dict[str, str]:
    return {skipped.name: skipped.reason for skipped in evaluation.skipped}


@pytest.fixture(scope="module", autouse=True)
def warmed_up() -> None:
    """Imports and tokenizers are loaded once per process and are not measured."""
    evaluate(Turn(query="q", response="Yes.", passages=[Passage(text="Yes.")]), models="lexical")


@pytest.mark.parametrize("response", ["7" * 1_000_000, PROSE * 100_000], ids=["1 MB of digits", "10 MB of prose"])
def test_a_response_above_the_limit_is_skipped(response: str) -> None:
    """The reason names the limit and the size."""
    found = reasons(evaluate_in_time(response, PASSAGES))

    assert found.keys() >= ANSWER_METRICS
    for name in ANSWER_METRICS:
        assert found[name] == f"response longer than {MAX_RESPONSE_CHARACTERS:,} characters: {len(response):,}"


def test_too_many_passages_are_skipped() -> None:
    """Metrics that read no passage have their scores."""
    evaluation = evaluate_in_time(PROSE, [f"The pier {number} was opened in 2019." for number in range(10_000)])

    found = reasons(evaluation)
    for name in (*ANSWER_METRICS, "context_relevance"):
        assert found[name] == f"more than {MAX_PASSAGES:,} passages: 10,000"
    assert evaluation["answer_relevance"] == 1.0
    assert evaluation["tokens"] > 10_000


def test_of_too_many_passages_those_in_the_prompt_are_scored() -> None:
    """A reranker left one of them, which is all that the metrics of the answer read."""
    passages = [Passage(text=PASSAGES[0], in_prompt=number == 0) for number in range(MAX_PASSAGES + 1)]
    evaluation = evaluate(Turn(query="When?", response="In 2019.", passages=passages), models="lexical")

    assert evaluation["groundedness"] == 1.0
    assert reasons(evaluation)["context_relevance"] == "more than 1,000 passages: 1,001"


@pytest.mark.parametrize(
    "response",
    ["7" * 200_000, "[(" * 100_000, "a" * 200_000, "a" + " " * 199_998 + "b", "- a\n" * 20_000, PROSE * 1_000],
    ids=["digits", "brackets", "letters", "spaces", "lines", "prose"],
)
def test_a_response_below_the_limit_is_not_skipped_for_its_size(response: str) -> None:
    """Time grows linearly, so large responses are scored."""
    found = reasons(evaluate_in_time(response, PASSAGES))

    assert not [reason for reason in found.values() if "limit" in reason or "longer" in reason]


def test_the_largest_number_of_passages_is_scored() -> None:
    """Windows and facts of a thousand passages are merged in linear time."""
    passages = [f"The pier {number} was opened in {1000 + number} by Smith{number}." for number in range(MAX_PASSAGES)]

    evaluation = evaluate_in_time(PROSE * 3, passages)

    assert evaluation["groundedness"] > 0
    assert evaluation["unsupported_facts"] >= 1


@pytest.mark.parametrize(
    "part",
    ["Aa bb ", "Anna met Bert and Carl Dorn saw Emil. ", "had 12 of 15 and ", "Dogs are not allowed here. ", "not no "],
    ids=["one name", "names", "numbers", "negated sentences", "negations"],
)
def test_words_that_are_repeated_thousands_of_times_are_scored_in_time(part: str) -> None:
    """Not every pair of repeated sentences is compared."""
    text = part * (40_000 // len(part))

    found = evaluate_in_time(f"{text} x.", [f"{text.replace(' not', '')} x.", text])

    assert found.score("faithfulness") is not None or reasons(found)["faithfulness"].endswith(
        "no words that could be compared"
    )
