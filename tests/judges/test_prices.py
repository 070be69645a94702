"""What tokens cost, by the package genai-prices."""

from __future__ import annotations

import sys

import pytest

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.judges.prices import load_prices, price_usd
from rageval_hooks.turn import Usage

pytest.importorskip("genai_prices")

TOKENS = Usage(input_tokens=1000, output_tokens=100)
CACHED = Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=900)


def test_a_known_model_has_a_price_and_cached_tokens_cost_less() -> None:
    """In USD, by the provider's name or address."""
    price = price_usd(TOKENS, "gpt-4o", provider="openai")

    assert price == pytest.approx(0.0035)
    assert price_usd(TOKENS, "gpt-4o", url="https://api.openai.com/v1") == price
    assert price_usd(CACHED, "gpt-4o", provider="openai") == pytest.approx(0.002375)


@pytest.mark.parametrize(
    ("model", "place"),
    [
        ("gpt-4o", {}),
        ("gpt-4o", {"provider": "openai", "url": "http://localhost:8000/v1"}),
        ("no-such-model", {"provider": "openai"}),
        ("gpt-4o", {"provider": "no-such-provider"}),
    ],
)
def test_what_is_not_known_has_no_price(model: str, place: dict[str, str]) -> None:
    """A local server that calls its model gpt-4o does not cost what OpenAI charges."""
    assert price_usd(TOKENS, model, **place) is None


def test_without_the_package_no_price_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The score says what is missing."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    load_prices.cache_clear()
    try:
        assert price_usd(Usage(input_tokens=10, output_tokens=10), "gpt-4o", provider="openai") is None
        with pytest.raises(ModelUnavailableError, match="genai_prices"):
            load_prices().get(wait=True)
    finally:
        load_prices.cache_clear()
