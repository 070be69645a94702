"""``latency``, ``tokens`` and ``cost``."""

from __future__ import annotations

import math
import sys

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks import ConfigurationError, Score, Skipped, Timing, Usage, evaluate
from rageval_hooks.metrics.base import Metric
from rageval_hooks.metrics.local.usage import Cost, Latency, Tokens
from rageval_hooks.text import tokens as tokens_module
from rageval_hooks.turn import Step, Turn
from tests.local import make_turn, run, why_not
from tests.text.junk import anything

TURN = make_turn("It was opened in 2019.", ["The pier was opened in 2019.", "Museum."], "When was the pier opened?")


def values(metric: Metric, turn: Turn) -> dict[str, float]:
    return {result.name: result.value for result in run(metric, turn) if isinstance(result, Score)}


def count(*texts: str, encoding: str = "o200k_base") -> int:
    known = tiktoken.get_encoding(encoding)
    return sum(len(known.encode_ordinary(text)) for text in texts)


FEW = Usage(input_tokens=100, output_tokens=20)


def call(model: str | None, provider: str | None, usage: Usage | None, number: int = 1) -> Step:
    return Step(
        id=str(number),
        kind="llm",
        name="model",
        started_at=number,
        ended_at=number + 1,
        model=model,
        provider=provider,
        usage=usage,
    )


def turn_of(*calls: Step, model: str | None = "gpt-4o-mini") -> Turn:
    usage = Usage.sum(step.usage for step in calls)
    return TURN.model_copy(update={"steps": calls, "usage": usage, "model": model})


# --------------------------------------------------------------------------------------------------- latency


def test_latency_has_its_parts() -> None:
    """In seconds."""
    timing = Timing(started_at=10**18, ended_at=10**18 + 1_500_000_000, retrieval=0.25, generation=1.0)

    assert values(Latency(), make_turn(timing=timing)) == {
        "latency": 1.5,
        "latency.retrieval": 0.25,
        "latency.generation": 1.0,
    }


def test_time_to_first_token_is_a_part_of_a_streamed_turn() -> None:
    """It is a part of streamed turns only."""
    timing = Timing(started_at=0, ended_at=10**9, time_to_first_token=0.5)

    assert values(Latency(), make_turn(timing=timing)) == {"latency": 1.0, "latency.time_to_first_token": 0.5}


def test_a_clock_that_was_set_back_gives_no_negative_time() -> None:
    """Wall clocks are."""
    timing = Timing(started_at=10**9, ended_at=0, time_to_first_token=-0.5)

    assert values(Latency(), make_turn(timing=timing)) == {"latency": 0.0, "latency.time_to_first_token": 0.0}


def test_a_turn_that_was_not_timed_has_no_latency() -> None:
    """Skipped, with the reason."""
    assert why_not(run(Latency(), TURN)) == ("latency", "the turn was not timed")


# ---------------------------------------------------------------------------------------------------- tokens


def test_the_providers_count_is_used() -> None:
    """And marked as his."""
    turn = TURN.model_copy(update={"usage": Usage(input_tokens=100, output_tokens=20)})

    results = run(Tokens(), turn)

    assert values(Tokens(), turn) == {"tokens": 120, "tokens.input": 100, "tokens.output": 20}
    for result in results:
        assert isinstance(result, Score)
        assert result.explanation == "counted by the provider"
        assert result.metadata == {"source": "provider"}


def test_without_a_provider_tiktoken_counts() -> None:
    """Input is query and context, output is the response; marked as an estimate."""
    results = run(Tokens(), TURN)

    read = count(TURN.query, *(passage.text for passage in TURN.passages))
    written = count(TURN.response)
    assert values(Tokens(), TURN) == {"tokens": read + written, "tokens.input": read, "tokens.output": written}
    for result in results:
        assert isinstance(result, Score)
        assert result.explanation == "estimated with tiktoken"


def test_the_score_is_the_number_on_the_trace() -> None:
    """Also if every call was estimated: a long prompt is more than the question and the passages."""
    turn = TURN.model_copy(update={"usage": Usage(input_tokens=6632, output_tokens=22, source="characters")})

    assert values(Tokens(), turn) == {"tokens": 6654, "tokens.input": 6632, "tokens.output": 22}


def test_tokens_written_to_the_cache_have_their_price() -> None:
    """Anthropic's cost 1.25 times as much as others."""
    usage = Usage(input_tokens=20_500, output_tokens=50, cache_read_tokens=0, cache_write_tokens=20_000)
    turn = turn_of(call("claude-sonnet-4-5", "anthropic", usage), model="claude-sonnet-4-5")

    assert values(Cost(), turn) == {"cost": pytest.approx((500 * 3 + 20_000 * 3.75 + 50 * 15) / 1e6)}


def test_an_estimate_for_one_call_is_added_to_the_providers_count_for_another() -> None:
    """A streamed call has no count by default. The counts of the other calls are not lost."""
    streamed = Usage(input_tokens=50, output_tokens=5, source="tiktoken")
    turn = turn_of(call("gpt-4o", "openai", FEW, 1), call("gpt-4o-mini", "openai", streamed, 2))

    assert values(Tokens(), turn) == {"tokens": 175, "tokens.input": 150, "tokens.output": 25}
    for result in run(Tokens(), turn):
        assert isinstance(result, Score)
        assert result.explanation == "estimated with tiktoken"
    [cost] = run(Cost(), turn)
    assert isinstance(cost, Score)
    assert cost.value == pytest.approx((100 * 2.5 + 20 * 10 + 50 * 0.15 + 5 * 0.6) / 1e6)
    assert cost.explanation == (
        "175 tokens at the price of gpt-4o (openai), gpt-4o-mini (openai); estimated with tiktoken"
    )


def test_the_models_own_encoding_is_used() -> None:
    """Where tiktoken knows the model."""
    turn = make_turn("今天天气很好，我们去公园吧", model="gpt-4")

    assert values(Tokens(), turn)["tokens.output"] == count(turn.response, encoding="cl100k_base")
    assert values(Tokens(), turn)["tokens.output"] != count(turn.response)


def test_without_an_encoding_characters_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four to a token, rounded up per text; marked as such."""
    monkeypatch.setattr(tokens_module, "load_encoding", lambda model: Unavailable())

    results = run(Tokens(), make_turn("12345", ["1234", ""], "1"))

    assert [result.value for result in results if isinstance(result, Score)] == [4, 2, 2]
    for result in results:
        assert isinstance(result, Score)
        assert result.explanation == "estimated from the number of characters"
        assert result.metadata == {"source": "characters"}


class Unavailable:
    state = "failed"

    def start(self) -> None:
        pass

    def get(self, *, wait: bool) -> object:
        raise RuntimeError("no ranks")


# ------------------------------------------------------------------------------------------------------ cost


@pytest.mark.parametrize(("rate", "cost"), [(0.0005, 0.00006), (0.0, 0.0), (2.0, 0.24)])
def test_cost_at_a_fixed_rate(rate: float, cost: float) -> None:
    """The rate is for 1,000 tokens, read or written."""
    turn = TURN.model_copy(update={"usage": Usage(input_tokens=100, output_tokens=20)})

    [score] = run(Cost(rate_per_1k=rate), turn)

    assert isinstance(score, Score)
    assert score.value == pytest.approx(cost)
    assert score.explanation == f"120 tokens at {rate:g} USD / 1,000; counted by the provider"


def test_the_cost_of_an_estimate_is_marked() -> None:
    """The score says that its tokens are an estimate."""
    [score] = run(Cost(0.0005), TURN)

    assert isinstance(score, Score)
    assert score.value == pytest.approx(values(Tokens(), TURN)["tokens"] * 0.0005 / 1000)
    assert score.metadata["source"] == "tiktoken"


def test_cost_at_the_prices_of_the_models() -> None:
    """Each model call is priced by its model: .15 and .60 USD for a million tokens, 2.50 and 10 for gpt-4o."""
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    turn = turn_of(call("gpt-4o", "openai", usage, 1), call("gpt-4o-mini", "openai", usage, 2))

    [score] = run(Cost(), turn)

    assert isinstance(score, Score)
    assert score.value == pytest.approx(12.5 + 0.75)
    assert score.explanation == (
        "4000000 tokens at the price of gpt-4o (openai), gpt-4o-mini (openai); counted by the provider"
    )
    assert score.metadata == {"source": "provider", "prices": "genai-prices"}


def test_tokens_that_no_call_shows_have_the_price_of_the_answering_model() -> None:
    """The framework counted a million tokens, of which the recorded call has 120."""
    turn = turn_of(call("gpt-4o-mini", "openai", FEW))
    turn = turn.model_copy(update={"usage": Usage(input_tokens=1_000_000, output_tokens=0)})

    [score] = run(Cost(), turn)

    assert isinstance(score, Score)
    assert score.value == pytest.approx(0.15)


def test_an_estimate_has_the_price_of_the_answering_model() -> None:
    """Without a count by the provider, the estimated tokens are priced."""
    [score] = run(Cost(), turn_of(call("gpt-4o-mini", "openai", None)))

    assert isinstance(score, Score)
    assert 0 < score.value < 1e-4
    assert score.explanation is not None
    assert score.explanation.endswith("at the price of gpt-4o-mini (openai); estimated with tiktoken")


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (turn_of(model=None), "the turn does not say which model was called"),
        (turn_of(call("gpt-4o-mini", None, FEW)), "the turn does not say who serves the model 'gpt-4o-mini'"),
        (turn_of(call("m", "nowhere", FEW)), "the price of m (nowhere) is not known"),
        (turn_of(call("m", "openai", FEW)), "the price of m (openai) is not known"),
        (
            turn_of(call("gpt-4o-mini", "openai", FEW, 1), call("m", "openai", FEW, 2)),
            "the price of m (openai) is not known",
        ),
    ],
)
def test_without_a_known_price_there_is_no_cost(turn: Turn, reason: str) -> None:
    """The score is skipped; the reason says how to give a price."""
    [skipped] = run(Cost(), turn)

    assert isinstance(skipped, Skipped)
    assert skipped.reason == f"{reason}: set cost_rate (RAGEVAL_COST_RATE) to USD for 1,000 tokens to have a cost"


def test_without_the_price_list_the_reason_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is in another extra."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)

    [skipped] = run(Cost(), turn_of(call("gpt-4o-mini", "openai", FEW)))

    assert isinstance(skipped, Skipped)
    assert 'the price list is not installed (pip install "rageval-hooks[prices]")' in skipped.reason


def test_the_rate_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """``RAGEVAL_COST_RATE`` is the rate of the metric, also where the metric runs by default."""
    monkeypatch.setenv("RAGEVAL_COST_RATE", "0.5")
    turn = TURN.model_copy(update={"usage": FEW})

    for metrics in (None, "cost", [Cost]):
        assert evaluate(turn, metrics=metrics, models="lexical")["cost"] == pytest.approx(0.06)


@pytest.mark.parametrize("rate", [-0.1, math.nan, math.inf])
def test_an_invalid_rate_is_refused(rate: float) -> None:
    """The constructor raises; the message says what is valid."""
    with pytest.raises(ConfigurationError, match="rate_per_1k must be a price, 0 or more"):
        Cost(rate)


@given(anything(), st.lists(anything(), max_size=3), anything())
def test_any_texts_have_a_count_and_a_price(response: str, passages: list[str], query: str) -> None:
    """Whole numbers, 0 or more; the parts add up."""
    turn = make_turn(response, passages, query)

    found = values(Tokens(), turn)

    assert found["tokens"] == found["tokens.input"] + found["tokens.output"] >= 0
    assert values(Cost(0.0005), turn)["cost"] == pytest.approx(found["tokens"] * 0.0005 / 1000)
