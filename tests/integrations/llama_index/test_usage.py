"""Token counts are read in the forms of all providers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.integrations.llama_index.fakes import step_of_call


def response(raw: Any = None, **additional: Any) -> Any:
    return SimpleNamespace(raw=raw, additional_kwargs=additional)


OPENAI = {"prompt_tokens": 40, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 12}}
RESPONSES = {"input_tokens": 40, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 12}}
ANTHROPIC = {
    "input_tokens": 10,
    "output_tokens": 7,
    "cache_read_input_tokens": 12,
    "cache_creation_input_tokens": 18,
}
# LiteLLM adds Anthropic's counts to OpenAI's, which have them already.
LITELLM = {
    "prompt_tokens": 40,
    "completion_tokens": 7,
    "cache_read_input_tokens": 12,
    "cache_creation_input_tokens": 18,
}
BEDROCK = {"inputTokens": 28, "outputTokens": 7, "cacheReadInputTokens": 12}
GEMINI = {
    "prompt_token_count": 40,
    "candidates_token_count": 4,
    "thoughts_token_count": 3,
    "cached_content_token_count": 12,
}


def as_objects(value: Any) -> Any:
    return SimpleNamespace(**{key: as_objects(item) for key, item in value.items()}) if type(value) is dict else value


@pytest.mark.parametrize("shape", [lambda raw: raw, as_objects], ids=["mapping", "object"])
@pytest.mark.parametrize(
    "raw",
    [
        {"usage": OPENAI},
        {"usage": RESPONSES},
        {"usage": ANTHROPIC},
        {"usage": BEDROCK},
        {"usage": LITELLM},
        {"usage_metadata": GEMINI},
    ],
    ids=["openai", "responses", "anthropic", "bedrock", "litellm", "gemini"],
)
def test_cached_and_thought_tokens_are_counted(raw: Any, shape: Any) -> None:
    """Counts that a provider reports separately are added to input or output."""
    usage = step_of_call(response(shape(raw))).usage

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (40, 7, 12)
    assert usage.source == "provider"


@pytest.mark.parametrize(
    "given",
    [
        response({"prompt_eval_count": 40, "eval_count": 7}),
        response(None, prompt_tokens=40, completion_tokens=7),
        response(None, usage={"prompt_tokens": 40, "completion_tokens": 7}),
        response({"usage": None}, prompt_tokens=40, completion_tokens=7),
    ],
    ids=["ollama", "additional_kwargs", "usage in additional_kwargs", "raw without"],
)
def test_other_places(given: Any) -> None:
    """The counts are at the top of the raw response, or next to it."""
    usage = step_of_call(given).usage

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (40, 7, None)


@pytest.mark.parametrize(
    "given",
    [
        None,
        response(),
        response("text"),
        response({"usage": {}}),
        response({"usage": {"prompt_tokens": 40}}),
        response({"usage": {"prompt_tokens": "40", "completion_tokens": "7"}}),
        response({"usage": {"prompt_tokens": -1, "completion_tokens": 7}}),
        response({"usage": {"prompt_tokens": 0, "completion_tokens": 0}}),
        response({"usage": {"prompt_tokens": True, "completion_tokens": True}}),
    ],
)
def test_no_count_is_none(given: Any) -> None:
    """Usage is then estimated and marked as estimated."""
    assert step_of_call(given).usage is None
