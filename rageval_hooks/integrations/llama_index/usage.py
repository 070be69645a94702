"""Token counts, in the shapes in which providers report them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rageval_hooks.integrations.capture.values import or_else
from rageval_hooks.turn import Usage

__all__ = ["usage_of"]

_PLACES = ("usage", "usage_metadata")
_INPUT = ("prompt_tokens", "input_tokens", "prompt_token_count", "inputTokens", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "candidates_token_count", "outputTokens", "eval_count")
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_CACHED = ("cached_tokens", "cache_read", "cached_content_token_count")
_CACHED_APART = ("cache_read_input_tokens", "cacheReadInputTokens")
_WRITTEN_APART = ("cache_creation_input_tokens", "cacheWriteInputTokens")


@or_else(None)
def usage_of(response: Any) -> Usage | None:
    """Return the tokens that the provider counted for a model's response; None if it did not.

    They stand in ``raw``, an object or a mapping, under ``usage`` or ``usage_metadata`` or at the top; some model
    classes put them into ``additional_kwargs``.
    """
    raw = getattr(response, "raw", None)
    extra = getattr(response, "additional_kwargs", None)
    for place in (*(_get(raw, name) for name in _PLACES), raw, *(_get(extra, name) for name in _PLACES), extra):
        usage = _counted(place)
        if usage is not None:
            return usage
    return None


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


@or_else(None)
def _counted(place: Any) -> Usage | None:
    if place is None:
        return None
    read, written = _first(place, _INPUT), _first(place, _OUTPUT)
    if read is None or written is None or read + written == 0:
        return None
    thoughts = _first(place, ("thoughts_token_count",)) or 0  # Gemini counts these apart
    cached = next((found for name in _DETAILS if (found := _first(_get(place, name), _CACHED)) is not None), None)
    if cached is None:
        cached = _first(place, _CACHED)
    apart = _first(place, _CACHED_APART)  # Anthropic's and Bedrock's inputs are without what came from the cache
    if apart is not None:
        read += apart + (_first(place, _WRITTEN_APART) or 0)
        cached = apart
    return Usage(input_tokens=read, output_tokens=written + thoughts, cache_read_tokens=cached)


def _first(place: Any, names: Iterable[str]) -> int | None:
    for name in names:
        value = _get(place, name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
