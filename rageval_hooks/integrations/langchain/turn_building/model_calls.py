"""Reading the runs of models: prompt, text, tool calls, model name, tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from rageval_hooks.integrations.capture.host_values import first_of, first_string, or_else
from rageval_hooks.integrations.capture.run_facts import detail_of
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import (
    MessageSnapshot,
    ResultSnapshot,
    as_json,
    as_text,
    message_text,
    role_of,
)
from rageval_hooks.integrations.langchain.turn_building.model_requests import finish_reason_in, tool_call
from rageval_hooks.text.citations.annotations import annotations_from_blocks
from rageval_hooks.turn import Message, Usage

__all__ = [
    "citations_of",
    "classifies",
    "finish_reason_of",
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
# The parameters of a call by provider: {"model": "gpt-4.1"} of OpenAI, {"model_id": "…"} of Bedrock, and so on.
_REQUESTED_MODEL_KEYS = ("model", "model_name", "model_id", "deployment_name")


def classifies(run: Run) -> bool:
    """Return True for the run of a decision model: it answers typed questions, and writes no text.

    LangChain reports it as a model, but with the input of a chain: {"state": …, "questions": {…}} instead of a list of
    prompts.
    """
    return run.kind == "llm" and isinstance(run.input, Mapping)


def _generation(output: Any) -> Any:
    if isinstance(output, ResultSnapshot):
        return output
    # LLMResult(generations=[[ChatGeneration(message=AIMessage("In 1869."))]]): one list per prompt.
    if isinstance(output, LLMResult) and output.generations:
        first_prompt = output.generations[0]
        return first_prompt[0] if first_prompt else None
    return None


def _message(output: Any) -> Any:
    return getattr(_generation(output), "message", None)


def _response_metadata(output: Any) -> Any:
    """Return what a chat model's provider reported, for example {"model_name": "gpt-4.1", "finish_reason": "stop"}."""
    return getattr(_message(output), "response_metadata", None)


def _usage_metadata(output: Any) -> Any:
    """Return the tokens of a chat model in LangChain's form."""
    return getattr(_message(output), "usage_metadata", None)


def _llm_output(output: Any) -> Any:
    """Return what a text model's provider reported, for example {"token_usage": {…}, "model_name": "…"}."""
    return getattr(output, "llm_output", None)


def tool_calls_of(output: Any) -> list[Any]:
    """Return the tool calls that a model requested."""
    calls: list[Any] | None = getattr(_message(output), "tool_calls", None)
    return calls or []


def generated_text(output: Any) -> str:
    """Return the text that a model wrote."""
    message = _message(output)
    if message is not None:
        return message_text(message)
    text: str | None = getattr(_generation(output), "text", None)
    return text or ""


def written_by(run: Run) -> str:
    """Return what a model wrote, or the arguments of its tool calls: one of them may be a structured answer."""
    calls = tool_calls_of(run.output)
    if not calls:
        return generated_text(run.output)
    return as_json([call.get("args") for call in calls])


@or_else(())
def citations_of(output: Any) -> Sequence[dict[str, Any]]:
    """Return the citations that a model marked in its text, with their positions."""
    return annotations_from_blocks(getattr(_message(output), "content", None))


def prompt_of(run: Run) -> tuple[Message, ...]:
    """Return the prompt of a model's run."""
    if classifies(run):
        return (Message(role="user", content=as_text(run.input)),)
    prompt = _first_prompt(run)
    if isinstance(prompt, str):
        return (Message(role="user", content=prompt),)
    return tuple(map(_prompt_message, prompt_messages(run)))


def _first_prompt(run: Run) -> Any:
    """Return the prompt: a text, or a list of messages. A run has a list of prompts, and one of them in practice."""
    if isinstance(run.input, (list, tuple)) and run.input:
        return run.input[0]
    return None


def prompt_messages(run: Run) -> list[Any]:
    """Return the messages of a chat model's prompt; an empty list for a text model."""
    prompt = _first_prompt(run)
    if not isinstance(prompt, (list, tuple)):
        return []
    return [message for message in prompt if isinstance(message, _MESSAGES)]


def _prompt_message(message: BaseMessage | MessageSnapshot) -> Message:
    # An agent's request for tools has no text: {"content": "", "tool_calls": [{"name": "search", "args": {…}}]}.
    calls = getattr(message, "tool_calls", None)
    text = message_text(message)
    if not text and calls:
        text = as_json(calls)
    return Message(
        role=role_of(message.type),
        content=text,
        tool_calls=tuple(map(tool_call, calls or ())),
        tool_call_id=getattr(message, "tool_call_id", None),
        name=getattr(message, "name", None),
    )


@or_else(None)
def finish_reason_of(run: Run) -> str | None:
    """Return why a model stopped, for example ``stop``, ``length`` or ``tool_calls``."""
    generation_info = getattr(_generation(run.output), "generation_info", None)
    return finish_reason_in(_response_metadata(run.output)) or finish_reason_in(generation_info)


@or_else(None)
def model_of(run: Run) -> str | None:
    """Return the model's name: as the provider reported it, else as it was requested."""
    reported = first_string(_response_metadata(run.output), ("model_name", "model", "model_id"))
    reported = reported or first_string(_llm_output(run.output), ("model_name", "model"))
    return reported or request_model_of(run)


@or_else(None)
def request_model_of(run: Run) -> str | None:
    """Return the model's name as the application requested it."""
    # LangChain's metadata for tracers, {"ls_provider": "openai", "ls_model_name": "gpt-4.1"}, has one name for all
    # providers. A model class that does not set it has the provider's own name in the parameters of the call.
    in_metadata = first_string(run.metadata, ("ls_model_name",))
    return in_metadata or first_string(detail_of(run, "invocation_params"), _REQUESTED_MODEL_KEYS)


@or_else(None)
def response_id_of(run: Run) -> str | None:
    """Return the provider's id of a completion, for example ``chatcmpl-…``."""
    reported = first_string(_response_metadata(run.output), ("id", "response_id"))
    reported = reported or first_string(_llm_output(run.output), ("id",))
    return reported or _id_from_provider(getattr(_message(run.output), "id", None))


def _id_from_provider(message_id: Any) -> str | None:
    """Return the id of a message, unless LangChain made it, for example "run--3f1c…" or "lc_run--3f1c…"."""
    if not isinstance(message_id, str) or message_id.startswith(("run-", "lc_")):
        return None
    return message_id


@or_else(None)
def usage_of(run: Run) -> Usage | None:
    """Return the tokens that the provider counted for a model's run."""
    reported = getattr(run.output, "usage", None) if classifies(run) else _usage_metadata(run.output)
    return _usage_of_chat_model(reported) if reported else _usage_of_text_model(run.output)


def _usage_of_chat_model(reported: Mapping[str, Any]) -> Usage | None:
    """Read LangChain's own form: {"input_tokens": 12, "output_tokens": 3, "input_token_details": {"cache_read": 8}}."""
    if reported.get("total_cost") == 0:  # LangChain marks answers from its own cache like this
        return Usage(input_tokens=0, output_tokens=0)
    details = reported.get("input_token_details") or {}
    return _usage(reported.get("input_tokens"), reported.get("output_tokens"), details.get("cache_read"))


def _usage_of_text_model(output: Any) -> Usage | None:
    """Read the provider's form, by OpenAI's names ({"prompt_tokens": 12, "completion_tokens": 3}) or Anthropic's."""
    reported = _llm_output(output) or {}
    counts = reported.get("token_usage") or reported.get("usage")
    if not isinstance(counts, Mapping):
        return None
    read = first_of(counts, ("prompt_tokens", "input_tokens"))
    written = first_of(counts, ("completion_tokens", "output_tokens"))
    return _usage(read, written, None)


def _usage(input_tokens: Any, output_tokens: Any, cached: Any) -> Usage | None:
    if not _is_count(input_tokens) or not _is_count(output_tokens):
        return None
    # Some providers report zeros in place of nothing.
    if input_tokens + output_tokens == 0:
        return None
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cached if _is_count(cached) else None,
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0
