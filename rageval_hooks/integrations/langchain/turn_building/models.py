"""Reading the runs of models: prompt, text, tool calls, model name, tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from rageval_hooks.integrations.capture.fields import public_parameters
from rageval_hooks.integrations.capture.host_values import attribute_text, first_of, first_string, or_else
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import as_json, as_text, message_text, role_of
from rageval_hooks.messages import PromptTemplate, ToolCall
from rageval_hooks.runtime.narrowing import mapping_or_empty, text_or_none
from rageval_hooks.text.citations import annotations_from_blocks
from rageval_hooks.turn import Message, Usage

__all__ = [
    "citations_of",
    "classifies",
    "finish_reason_in",
    "finish_reason_of",
    "generated_text",
    "model_of",
    "parameters_of",
    "prompt_messages",
    "prompt_of",
    "request_model_of",
    "response_id_of",
    "template_of",
    "tool_call",
    "tool_calls_of",
    "tools_of",
    "usage_of",
    "written_by",
]


# The parameters of a call by provider: {"model": "gpt-4.1"} of OpenAI, {"model_id": "…"} of Bedrock, and so on.
_REQUESTED_MODEL_KEYS = ("model", "model_name", "model_id", "deployment_name")


def classifies(run: Run) -> bool:
    """Return True for the run of a decision model: it answers typed questions, and writes no text.

    LangChain reports it as a model, but with the input of a chain: {"state": …, "questions": {…}} instead of a list of
    prompts.
    """
    return run.kind == "llm" and isinstance(run.input, Mapping)


def _generation(output: Any) -> Any:
    # LLMResult(generations=[[ChatGeneration(message=AIMessage("In 1869."))]]): one list per prompt.
    if isinstance(output, LLMResult) and output.generations:
        first_prompt = output.generations[0]
        return first_prompt[0] if first_prompt else None
    return None


def _message(output: Any) -> Any:
    return getattr(_generation(output), "message", None)


def _reported(output: Any) -> Any:
    """Return what a chat model's provider reported, for example {"model_name": "gpt-4.1", "finish_reason": "stop"}."""
    return getattr(_message(output), "response_metadata", None)


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
    return [message for message in prompt if isinstance(message, BaseMessage)]


def _prompt_message(message: BaseMessage) -> Message:
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
    return finish_reason_in(_reported(run.output)) or finish_reason_in(generation_info)


@or_else(None)
def model_of(run: Run) -> str | None:
    """Return the model's name: as the provider reported it, else as it was requested."""
    reported = first_string(_reported(run.output), ("model_name", "model", "model_id"))
    reported = reported or first_string(_llm_output(run.output), ("model_name", "model"))
    return reported or request_model_of(run)


@or_else(None)
def request_model_of(run: Run) -> str | None:
    """Return the model's name as the application requested it."""
    # LangChain's metadata for tracers, {"ls_provider": "openai", "ls_model_name": "gpt-4.1"}, has one name for all
    # providers. A model class that does not set it has the provider's own name in the parameters of the call.
    in_metadata = first_string(run.metadata, ("ls_model_name",))
    return in_metadata or first_string(run.details.get("invocation_params"), _REQUESTED_MODEL_KEYS)


@or_else(None)
def response_id_of(run: Run) -> str | None:
    """Return the provider's id of a completion, for example ``chatcmpl-…``."""
    reported = first_string(_reported(run.output), ("id", "response_id"))
    reported = reported or first_string(_llm_output(run.output), ("id",))
    if reported:
        return reported
    # The id of the message, unless LangChain made it, for example "run--3f1c…" or "lc_run--3f1c…".
    message_id = attribute_text(_message(run.output), "id")
    return None if message_id is None or message_id.startswith(("run-", "lc_")) else message_id


@or_else(None)
def usage_of(run: Run) -> Usage | None:
    """Return the tokens that the provider counted for a model's run."""
    # LangChain's own form: {"input_tokens": 12, "output_tokens": 3, "input_token_details": {"cache_read": 8}}
    holder = run.output if classifies(run) else _message(run.output)
    reported = getattr(holder, "usage" if classifies(run) else "usage_metadata", None)
    if reported:
        if reported.get("total_cost") == 0:  # LangChain marks answers from its own cache like this
            return Usage(input_tokens=0, output_tokens=0)
        details = reported.get("input_token_details") or {}
        return _usage(reported.get("input_tokens"), reported.get("output_tokens"), details.get("cache_read"))
    # A text model: {"prompt_tokens": 12, "completion_tokens": 3} of OpenAI, or Anthropic's names.
    of_provider = _llm_output(run.output) or {}
    counts = mapping_or_empty(of_provider.get("token_usage") or of_provider.get("usage"))
    read = first_of(counts, ("prompt_tokens", "input_tokens"))
    written = first_of(counts, ("completion_tokens", "output_tokens"))
    return _usage(read, written, None)


def _usage(input_tokens: Any, output_tokens: Any, cached: Any) -> Usage | None:
    counts = [
        count if isinstance(count, int) and count >= 0 else None for count in (input_tokens, output_tokens, cached)
    ]
    read, written, from_cache = counts
    # Some providers report zeros in place of nothing.
    if read is None or written is None or read + written == 0:
        return None
    return Usage(input_tokens=read, output_tokens=written, cache_read_tokens=from_cache)


# --------------------------------------------------------------------------- besides the messages

_TOOL_PARAMETERS = ("tools", "functions")
_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason")


@or_else({})
def parameters_of(call: Run) -> Mapping[str, Any]:
    """Return the parameters of a call, for example {"temperature": 0.2, "max_completion_tokens": 100}."""
    return public_parameters(call.details.get("invocation_params") or {}, without=_TOOL_PARAMETERS)


@or_else(())
def tools_of(call: Run) -> Sequence[str]:
    """Return the tools that a model could call, each as JSON: {"type": "function", "function": {"name": "search"}}."""
    parameters = call.details.get("invocation_params") or {}
    tools = chain.from_iterable(parameters.get(name) or () for name in _TOOL_PARAMETERS)
    return tuple(map(as_json, tools))


def tool_call(call: Mapping[str, Any]) -> ToolCall:
    """Return a tool call of LangChain, for example {"name": "search", "args": {"query": "pier"}, "id": "call_1"}."""
    return ToolCall(name=str(call.get("name")), arguments=as_json(call.get("args") or {}), id=call.get("id"))


def finish_reason_in(reported: Any) -> str | None:
    """Return why a model stopped, by what its provider reported: {"finish_reason": "stop", "model_name": "…"}."""
    return first_string(reported, _FINISH_KEYS)


@or_else(None)
def template_of(call: Run, runs: Sequence[Run]) -> PromptTemplate | None:
    """Return the template of a model's prompt: that of the last prompt template in the same sequence before it."""
    sequence = call.parent
    before = (run for run in runs if run.kind == "prompt" and run.parent is sequence)
    prompt = max((run for run in before if run.started_at <= call.started_at), key=_started_at, default=None)
    if sequence is None or prompt is None:
        return None
    text = "\n\n".join(_template_texts(prompt.details.get("template")))
    variables = {str(name): as_text(value) for name, value in mapping_or_empty(prompt.input).items()}
    # A prompt of placeholders only has no text.
    return PromptTemplate(text=text, variables=variables) if text else None


def _started_at(run: Run) -> int:
    return run.started_at


def _template_texts(serialized: Any) -> Iterator[str]:
    """Yield the templates in LangChain's serialized form of a prompt, each with the role of its message.

    A text prompt is {"name": "PromptTemplate", "kwargs": {"template": "Use {context}"}}. A chat prompt is
    {"name": "ChatPromptTemplate", "kwargs": {"messages": [{"id": […, "SystemMessagePromptTemplate"], …}, …]}}.
    """
    fields = _fields(serialized)
    if text := text_or_none(fields.get("template")):
        yield text
    for message in fields.get("messages") or ():
        inner = _fields(message)
        # A fixed message has its text: {"id": […, "SystemMessage"], "kwargs": {"content": "Be brief."}}
        text = text_or_none(_fields(inner.get("prompt")).get("template") or inner.get("content"))
        name = text_or_none(inner.get("variable_name"))
        if text:
            # "system" of SystemMessagePromptTemplate or SystemMessage
            class_name = str((message.get("id") or [""])[-1])
            role = class_name.removesuffix("PromptTemplate").removesuffix("Message").lower()
            yield f"{role}: {text}" if role else text
        elif name:  # MessagesPlaceholder(variable_name="history")
            yield f"{{{name}}}"


def _fields(serialized: Any) -> Mapping[str, Any]:
    return mapping_or_empty(mapping_or_empty(serialized).get("kwargs"))
