"""What tokens cost, by the prices that the package genai-prices brings along. Nothing is downloaded."""

from __future__ import annotations

from rageval_hooks.turn import Usage

__all__ = ["price_usd"]


def price_usd(usage: Usage, model: str, *, provider: str | None = None, url: str | None = None) -> float | None:
    """Return the price of some tokens in USD.

    Args:
        usage: the tokens.
        model: the model's name, as the provider reports it.
        provider: who serves it, by the package's name for him: ``openai``, ``anthropic`` …
        url: the address at which it is served; it comes before ``provider``: a local server that calls its model
            ``gpt-4o`` is not paid by OpenAI's list.

    Returns:
        None where provider or model is unknown, or the package is not installed.
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
        cache_read_tokens=min(usage.cache_read_tokens or 0, usage.input_tokens),
    )
    try:
        if url:
            price = genai_prices.calc_price(tokens, model, provider_api_url=url)
        else:
            price = genai_prices.calc_price(tokens, model, provider_id=provider)
    except (LookupError, ValueError):
        return None
    return float(price.total_price)
