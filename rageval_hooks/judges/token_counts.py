"""The tokens that a provider reports, read in the forms of all providers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rageval_hooks.runtime.narrowing import entry_or_attribute, is_integer
from rageval_hooks.turn import Usage

# Fields of OpenAI and compatible servers, Anthropic, Google, Bedrock and Ollama.
_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count", "inputTokens", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidates_token_count", "outputTokens", "eval_count")
# OpenAI and LangChain nest the count of cached tokens, Google and DeepSeek do not.
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_CACHED = ("cached_tokens", "cache_read", "cached_content_token_count", "prompt_cache_hit_tokens")
# Anthropic and Bedrock report input tokens without those that were read from or written to the cache.
_CACHED_EXTRA = ("cache_read_input_tokens", "cacheReadInputTokens")
_WRITTEN_EXTRA = ("cache_creation_input_tokens", "cacheWriteInputTokens")
_WRITTEN = ("cache_creation", "cache_write_tokens", "cache_creation_tokens")
# LangChain's counts for Anthropic, by how long the cache keeps them. "cache_creation" is 0 next to these.
_WRITTEN_BY_LIFETIME = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details", "output_token_details")
_REASONING = ("reasoning_tokens", "reasoning", "thoughts_token_count")


def usage_from(counts: Any) -> Usage | None:
    """Return the tokens that a provider counted; None without a count of both input and output.

    Args:
        counts: a mapping, or an object of a client library: ``{"prompt_tokens": 12, "completion_tokens": 3}``.
    """
    read, written = _first_count(counts, _INPUT), _first_count(counts, _OUTPUT)
    # Half a count would look like a cheap answer. Some providers report zeros in place of nothing.
    if read is None or written is None or read + written == 0:
        return None
    written += _first_count(counts, ("thoughts_token_count",)) or 0  # Gemini counts these separately
    details = [entry_or_attribute(counts, name) for name in _DETAILS]
    found = [_first_count(counts, _CACHED_EXTRA), *(_first_count(place, _CACHED) for place in (*details, counts))]
    # LiteLLM adds Anthropic's counts to OpenAI's, which have them already.
    if entry_or_attribute(counts, "prompt_tokens") is None:
        read += (found[0] or 0) + (_first_count(counts, _WRITTEN_EXTRA) or 0)
    stored = [_first_count(counts, _WRITTEN_EXTRA)]
    for place in details:
        by_lifetime = sum(_first_count(place, (name,)) or 0 for name in _WRITTEN_BY_LIFETIME)
        stored.append(by_lifetime or _first_count(place, _WRITTEN))
    thoughts = [_first_count(entry_or_attribute(counts, name), _REASONING) for name in _OUTPUT_DETAILS]
    return Usage(
        input_tokens=read,
        output_tokens=written,
        cache_read_tokens=_first_known(found),
        cache_write_tokens=_first_known(stored),
        reasoning_tokens=_first_known([*thoughts, _first_count(counts, _REASONING)]),
    )


def usage_of_llama_index(response: Any) -> Usage | None:
    """Return the tokens that the provider counted for a response of LlamaIndex; None if it did not.

    They are in ``raw`` (an object or a mapping), under ``usage`` or ``usage_metadata`` or at the top. Some model
    classes put them into ``additional_kwargs``.
    """
    containers = (getattr(response, "raw", None), getattr(response, "additional_kwargs", None))
    # {"usage": {"prompt_tokens": 12, "completion_tokens": 3}}, or without the level between.
    places = ((entry_or_attribute(one, "usage"), entry_or_attribute(one, "usage_metadata"), one) for one in containers)
    found = (usage_from(place) for three in places for place in three)
    return next((usage for usage in found if usage is not None), None)


def _first_count(place: Any, names: Iterable[str]) -> int | None:
    """Return the first non-negative integer under some names of a mapping or an object."""
    if place is None:  # most details are not reported
        return None
    # Some servers report -1 or null while they do not know the count.
    counts = (entry_or_attribute(place, name) for name in names)
    return next((count for count in counts if is_integer(count) and count >= 0), None)


def _first_known(counts: Iterable[int | None]) -> int | None:
    return next((count for count in counts if count is not None), None)
