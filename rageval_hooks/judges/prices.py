"""Prices of tokens from the package genai-prices. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.runtime.lazy import BackgroundValue
from rageval_hooks.turn import Usage

_LOAD_TIMEOUT: Final = 60.0


def price_usd(usage: Usage, model: str, *, provider: str | None = None, url: str | None = None) -> float | None:
    """Return the price of some tokens in USD.

    Args:
        usage: the tokens.
        model: the model's name, as the provider reports it.
        provider: the package's name for the provider, for example ``openai`` or ``anthropic``.
        url: the address at which it is served. It overrides ``provider``: a local server that calls its model
            ``gpt-4o`` does not cost what OpenAI charges.

    Returns:
        None if the provider or the model is unknown, or if the package is not installed.
    """
    if not provider and not url:
        return None
    try:
        import genai_prices
    except ImportError:
        return None
    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=min(read := usage.cache_read_tokens or 0, usage.input_tokens),
        cache_write_tokens=max(0, min(usage.cache_write_tokens or 0, usage.input_tokens - read)),
    )
    place = {"provider_api_url": url} if url else {"provider_id": provider}
    try:
        return float(genai_prices.calc_price(tokens, model, **place).total_price)
    except (LookupError, ValueError):
        return None


@cache
def load_prices() -> BackgroundValue[Callable[..., float | None]]:
    """Return :func:`price_usd`, which may still be loading.

    For callers on a request's thread: importing the price list and its first use take up to a second.
    """

    def load() -> Callable[..., float | None]:
        try:
            import genai_prices  # noqa: F401
        except ImportError as error:
            raise ModelUnavailableError("prices", str(error)) from error
        price_usd(Usage(input_tokens=1, output_tokens=1), "gpt-4o", provider="openai")
        return price_usd

    return BackgroundValue("prices", load, _LOAD_TIMEOUT, "There are no costs.")
