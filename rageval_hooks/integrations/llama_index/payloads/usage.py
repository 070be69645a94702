"""Token counts, in the different shapes in which providers report them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rageval_hooks.integrations.capture.host_values import or_else
from rageval_hooks.runtime.narrowing import entry_or_attribute, is_integer
from rageval_hooks.turn import Usage

__all__ = ["usage_of"]

_PLACES = ("usage", "usage_metadata")
_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count", "inputTokens", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidates_token_count", "outputTokens", "eval_count")
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_CACHED = ("cached_tokens", "cache_read", "cached_content_token_count")
# Anthropic and Bedrock report input tokens without those that were read from or written to the cache.
_CACHED_EXTRA = ("cache_read_input_tokens", "cacheReadInputTokens")
_WRITTEN_EXTRA = ("cache_creation_input_tokens", "cacheWriteInputTokens")


@or_else(None)
def usage_of(response: Any) -> Usage | None:
    """Return the tokens that the provider counted for a model's response; None if it did not.

    They are in ``raw`` (an object or a mapping), under ``usage`` or ``usage_metadata`` or at the top. Some model
    classes put them into ``additional_kwargs``.
    """
    for container in (getattr(response, "raw", None), getattr(response, "additional_kwargs", None)):
        # {"usage": {"prompt_tokens": 12, "completion_tokens": 3}}, or without the level between.
        places = [entry_or_attribute(container, name) for name in _PLACES]
        for place in (*places, container):
            usage = _counted(place)
            if usage is not None:
                return usage
    return None


@or_else(None)
def _counted(place: Any) -> Usage | None:
    if place is None:
        return None
    read, written = _first(place, _INPUT), _first(place, _OUTPUT)
    if read is None or written is None:
        return None
    # Some providers report zeros in place of nothing.
    if read + written == 0:
        return None
    thoughts = _first(place, ("thoughts_token_count",)) or 0  # Gemini counts these separately
    extra = _first(place, _CACHED_EXTRA)
    if extra is None:
        return Usage(input_tokens=read, output_tokens=written + thoughts, cache_read_tokens=_cached(place))
    put_into_cache = _first(place, _WRITTEN_EXTRA) or 0
    read += extra + put_into_cache
    return Usage(input_tokens=read, output_tokens=written + thoughts, cache_read_tokens=extra)


def _cached(place: Any) -> int | None:
    # {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 8}}
    for name in _DETAILS:
        found = _first(entry_or_attribute(place, name), _CACHED)
        if found is not None:
            return found
    return _first(place, _CACHED)


def _first(place: Any, names: Iterable[str]) -> int | None:
    for name in names:
        count: int = entry_or_attribute(place, name)
        if _is_count(count):
            return count
    return None


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 0
