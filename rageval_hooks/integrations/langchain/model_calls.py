"""Reading the runs of models: prompt, text, tool calls, model name, tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import first_string, or_else
from rageval_hooks.integrations.langchain.rendering import as_json, content_text, role_of
from rageval_hooks.integrations.langchain.snapshots import MessageSnapshot, ResultSnapshot
from rageval_hooks.text.annotations import annotations_from_blocks
from rageval_hooks.turn import Message, Usage

__all__ = [
    "citations_of",
    "generated_text",
    "model_of",
    "prompt_messages",
    "prompt_of",
    "request_model_of",
    "response_id_of",
    "tool_calls_of",
    "usage_of",
    "written_by",
]

_MESSAGES = (BaseMessage, MessageSnapshot)


def _generation(output: Any) -> Any:
    if isinstance(output, ResultSnapshot):
        return output
    if isinstance(output, LLMResult) and output.generations and output.generations[0]:
        return output.generations[0][0]
    return None


def _message(output: Any) -> Any:
    return getattr(_generation(output), "message", None)


def tool_calls_of(output: Any) -> list[Any]:
    """Return the tool calls that a model requested."""
    return getattr(_message(output), "tool_calls", None) or []


def generated_text(output: Any) -> str:
    """Return the text that a model wrote."""
    message = _message(output)
    if message is not None:
        return content_text(message.content)
    return getattr(_generation(output), "text", "") or ""


def written_by(run: Run) -> str:
    """Return what a model wrote, or the arguments of its tool calls: one of them may be a structured answer."""
    calls = tool_calls_of(run.output)
    return as_json([call.get("args") for call in calls]) if calls else generated_text(run.output)


@or_else(())
def citations_of(output: Any) -> Sequence[dict[str, Any]]:
    """Return the citations that a model marked in its text, with their positions."""
    return annotations_from_blocks(getattr(_message(output), "content", None))


def prompt_of(run: Run) -> tuple[Message, ...]:
    """Return the prompt of a model's run."""
    first = run.input[0] if isinstance(run.input, (list, tuple)) and run.input else None
    if isinstance(first, str):
        return (Message(role="user", content=first),)
    return tuple(_prompt_message(message) for message in prompt_messages(run))


def prompt_messages(run: Run) -> list[Any]:
    """Return the messages of a chat model's prompt; none for a text model."""
    first = run.input[0] if isinstance(run.input, (list, tuple)) and run.input else None
    if not isinstance(first, (list, tuple)):
        return []
    return [message for message in first if isinstance(message, _MESSAGES)]


def _prompt_message(message: BaseMessage | MessageSnapshot) -> Message:
    text = content_text(message.content)
    calls = getattr(message, "tool_calls", None)
    if not text and calls:
        text = as_json(calls)
    return Message(role=role_of(message.type), content=text)


@or_else(None)
def model_of(run: Run) -> str | None:
    """Return the model's name: as the provider reported it, else as it was requested."""
    reported = getattr(_message(run.output), "response_metadata", None) or {}
    llm_output = getattr(run.output, "llm_output", None) or {}
    return (
        first_string(reported, ("model_name", "model", "model_id"))
        or first_string(llm_output, ("model_name", "model"))
        or request_model_of(run)
    )


@or_else(None)
def request_model_of(run: Run) -> str | None:
    """Return the model's name as the application requested it."""
    requested = (run.details or {}).get("invocation_params") or {}
    return first_string(run.metadata or {}, ("ls_model_name",)) or first_string(
        requested, ("model", "model_name", "model_id", "deployment_name")
    )


@or_else(None)
def response_id_of(run: Run) -> str | None:
    """Return the provider's id of a completion, for example ``chatcmpl-…``."""
    message = _message(run.output)
    reported = first_string(getattr(message, "response_metadata", None) or {}, ("id", "response_id"))
    llm_output = first_string(getattr(run.output, "llm_output", None) or {}, ("id",))
    own = getattr(message, "id", None)
    # LangChain makes ids of its own where the provider gives none, for example "run--3f1c…" or "lc_run--3f1c…".
    provided = own if isinstance(own, str) and not own.startswith(("run-", "lc_")) else None
    return reported or llm_output or provided


@or_else(None)
def usage_of(run: Run) -> Usage | None:
    """Return the tokens that the provider counted for a model's run."""
    reported = getattr(_message(run.output), "usage_metadata", None)
    if reported and reported.get("total_cost") == 0:  # LangChain marks answers from its own cache like this
        return Usage(input_tokens=0, output_tokens=0)
    if reported:
        details = reported.get("input_token_details") or {}
        return _usage(reported.get("input_tokens"), reported.get("output_tokens"), details.get("cache_read"))
    llm_output = getattr(run.output, "llm_output", None) or {}
    counts = llm_output.get("token_usage") or llm_output.get("usage") or {}
    if not isinstance(counts, Mapping):
        return None
    return _usage(
        counts.get("prompt_tokens", counts.get("input_tokens")),
        counts.get("completion_tokens", counts.get("output_tokens")),
        None,
    )


def _usage(input_tokens: Any, output_tokens: Any, cached: Any) -> Usage | None:
    if not isinstance(input_tokens, int) or not isinstance(output_tokens, int):
        return None
    # Some providers report zeros in place of nothing.
    if input_tokens < 0 or output_tokens < 0 or input_tokens + output_tokens == 0:
        return None
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cached if isinstance(cached, int) and cached >= 0 else None,
    )
