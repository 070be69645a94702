"""Reading the runs of models: prompt, text, tool calls, and the fields of a model call's step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.turns import prompt_text, seconds_to_first_token
from rageval_hooks.integrations.capture.values import attribute_text, first_string, or_else, public_parameters
from rageval_hooks.integrations.langchain.payloads import as_json, as_text, message_text, role_of
from rageval_hooks.integrations.langchain.runs import LangChainRun
from rageval_hooks.judges.token_counts import usage_from
from rageval_hooks.runtime.narrowing import items_or_empty, mapping_or_empty, text_or_none
from rageval_hooks.text.citations import annotations_from_blocks
from rageval_hooks.turn import Message, PromptTemplate, ToolCall, Usage

# The parameters of a call by provider: {"model": "gpt-4.1"} of OpenAI, {"model_id": "…"} of Bedrock, and so on.
_REQUESTED_MODEL_KEYS = ("model", "model_name", "model_id", "deployment_name")
_TOOL_PARAMETERS = ("tools", "functions")
_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason")


def classifies(run: Run) -> bool:
    """Return True for the run of a decision model: it answers typed questions, and writes no text.

    LangChain reports it as a model, but with the input of a chain: {"state": …, "questions": {…}} instead of a list of
    prompts.
    """
    return run.kind == "llm" and isinstance(run.input, Mapping)


# --------------------------------------------------------------------------- what a model wrote


def _generation(output: Any) -> Any:
    # LLMResult(generations=[[ChatGeneration(message=AIMessage("In 1869."))]]): one list per prompt, with one generation
    # per candidate. A call that failed may have none.
    if not isinstance(output, LLMResult):
        return None
    return next(iter(next(iter(output.generations), ())), None)


def _message(output: Any) -> Any:
    return getattr(_generation(output), "message", None)


def tool_calls_of(output: Any) -> list[Any]:
    """Return the tool calls that a model requested."""
    return getattr(_message(output), "tool_calls", None) or []


def generated_text(output: Any) -> str:
    """Return the text that a model wrote."""
    message = _message(output)
    return message_text(message) if message is not None else getattr(_generation(output), "text", None) or ""


def written_by(run: Run) -> str:
    """Return what a model wrote, or the arguments of its tool calls: one of them may be a structured answer."""
    calls = tool_calls_of(run.output)
    return as_json([call.get("args") for call in calls]) if calls else generated_text(run.output)


@or_else("")
def given_text(run: Run) -> str:
    """Return all text that a run received."""
    return prompt_text(prompt_of(run)) if run.kind == "llm" else as_text(run.input)


@or_else("")
def returned_text(run: Run) -> str:
    """Return all text that a run returned, for a model with its thoughts, its tool calls and all of its blocks."""
    message = _message(run.output)
    if message is not None:
        # Reasoning, calls that are no valid JSON, and the provider's own form of calls.
        parts = (message.content, message.tool_calls, message.invalid_tool_calls, message.additional_kwargs)
        return "\n".join(map(as_text, filter(None, parts)))
    return generated_text(run.output) if run.kind == "llm" else as_text(run.output)


@or_else(())
def citations_of(output: Any) -> Sequence[dict[str, Any]]:
    """Return the citations that a model marked in its text, with their positions."""
    return annotations_from_blocks(getattr(_message(output), "content", None))


# --------------------------------------------------------------------------- prompts


def prompt_messages(run: Run) -> list[Any]:
    """Return the messages of a chat model's prompt; an empty list for a text model."""
    # A run has a list of prompts, and one of them in practice: [[SystemMessage("…"), HumanMessage("…")]] or ["…"].
    prompt = run.input[0] if isinstance(run.input, (list, tuple)) and run.input else None
    return [one for one in prompt if isinstance(one, BaseMessage)] if isinstance(prompt, (list, tuple)) else []


def prompt_of(run: Run) -> tuple[Message, ...]:
    """Return the prompt of a model's run."""
    if classifies(run):
        return (Message(role="user", content=as_text(run.input)),)
    if isinstance(run.input, (list, tuple)) and run.input and isinstance(run.input[0], str):
        return (Message(role="user", content=run.input[0]),)
    return tuple(map(_prompt_message, prompt_messages(run)))


def _prompt_message(message: BaseMessage) -> Message:
    # An agent's request for tools has no text: {"content": "", "tool_calls": [{"name": "search", "args": {…}}]}.
    calls = getattr(message, "tool_calls", None) or ()
    text = message_text(message)
    return Message(
        role=role_of(message.type),
        content=as_json(calls) if calls and not text else text,
        tool_calls=tuple(map(_tool_call, calls)),
        tool_call_id=getattr(message, "tool_call_id", None),
        name=getattr(message, "name", None),
    )


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    # {"name": "search", "args": {"query": "pier"}, "id": "call_1"}
    return ToolCall(name=str(call.get("name")), arguments=as_json(call.get("args") or {}), id=call.get("id"))


# --------------------------------------------------------------------------- the step of a call


def call_fields(call: LangChainRun, runs: Sequence[LangChainRun], prompt: tuple[Message, ...]) -> dict[str, Any]:
    """Return the fields of a model call's step.

    Args:
        call: the run of the model.
        runs: the runs of the turn. A prompt template is one of them.
        prompt: the prompt of the call: see :func:`prompt_of`.
    """
    message, tool_calls = _message(call.output), tool_calls_of(call.output)
    output = as_text(call.output) if classifies(call) else generated_text(call.output)
    if not output:
        # The beginning of an answer that broke off, or [{"name": "search", "args": {"query": "pier"}, "id": "call_1"}].
        output = "".join(call.tokens or ()) or (as_json(tool_calls) if tool_calls else "")
    requested = call.parameters
    # What the provider of a chat model reported, for example {"model_name": "gpt-4.1", "finish_reason": "stop"}, and
    # that of a text model: {"token_usage": {…}, "model_name": "…"}.
    reported = getattr(message, "response_metadata", None)
    of_text_model = getattr(call.output, "llm_output", None)
    # LangChain's metadata for tracers, {"ls_provider": "openai", "ls_model_name": "gpt-4.1"}, has one name for all
    # providers. A model class that does not set it has the provider's own name in the parameters of the call.
    request_model = first_string(call.metadata, ("ls_model_name",)) or first_string(requested, _REQUESTED_MODEL_KEYS)
    response_id = first_string(reported, ("id", "response_id")) or first_string(of_text_model, ("id",))
    if response_id is None:
        # The id of the message, unless LangChain made it, for example "run--3f1c…" or "lc_run--3f1c…".
        message_id = attribute_text(message, "id") or "run-"
        response_id = None if message_id.startswith(("run-", "lc_")) else message_id
    return {
        "messages": prompt,
        "template": _template_of(call, runs),
        # Each as JSON: {"type": "function", "function": {"name": "search"}}.
        "tools": tuple(as_json(tool) for name in _TOOL_PARAMETERS for tool in items_or_empty(requested.get(name))),
        "parameters": public_parameters(requested, without=_TOOL_PARAMETERS),
        "tool_calls": tuple(map(_tool_call, tool_calls)),
        "finish_reason": first_string(reported, _FINISH_KEYS)
        or first_string(getattr(_generation(call.output), "generation_info", None), _FINISH_KEYS),
        "output": output,
        "model": first_string(reported, ("model_name", "model", "model_id"))
        or first_string(of_text_model, ("model_name", "model"))
        or request_model,
        "request_model": request_model,
        "response_id": response_id,
        "provider": first_string(call.metadata, ("ls_provider",)),
        "usage": _usage_of(call),
        "time_to_first_token": seconds_to_first_token(call, call.started_at),
    }


@or_else(None)
def _usage_of(run: Run) -> Usage | None:
    """Return the tokens that the provider counted for a model's run."""
    # LangChain's own form: {"input_tokens": 12, "output_tokens": 3, "input_token_details": {"cache_read": 8}}
    holder = run.output if classifies(run) else _message(run.output)
    reported = getattr(holder, "usage" if classifies(run) else "usage_metadata", None)
    if reported:
        is_cached = reported.get("total_cost") == 0  # LangChain marks answers from its own cache like this
        return Usage(input_tokens=0, output_tokens=0) if is_cached else usage_from(reported)
    # A text model: {"prompt_tokens": 12, "completion_tokens": 3} of OpenAI, or Anthropic's names.
    of_provider = run.output.llm_output or {}
    return usage_from(of_provider.get("token_usage") or of_provider.get("usage"))


@or_else(None)
def _template_of(call: Run, runs: Sequence[LangChainRun]) -> PromptTemplate | None:
    """Return the template of a model's prompt: that of the last prompt template in the same sequence before it."""
    before = [run for run in runs if run.kind == "prompt" and run.parent is call.parent]
    before = [run for run in before if run.started_at <= call.started_at]
    if call.parent is None or not before:
        return None
    prompt = max(before, key=lambda run: run.started_at)
    text = "\n\n".join(_template_texts(prompt.template))
    variables = {str(name): as_text(value) for name, value in mapping_or_empty(prompt.input).items()}
    # A prompt of placeholders only has no text.
    return PromptTemplate(text=text, variables=variables) if text else None


def _template_texts(serialized: Any) -> Iterator[str]:
    """Yield the templates in LangChain's serialized form of a prompt, each with the role of its message.

    A text prompt is {"name": "PromptTemplate", "kwargs": {"template": "Use {context}"}}. A chat prompt is
    {"name": "ChatPromptTemplate", "kwargs": {"messages": [{"id": […, "SystemMessagePromptTemplate"], …}, …]}}.
    """
    fields = _kwargs(serialized)
    if text := text_or_none(fields.get("template")):
        yield text
    for message in fields.get("messages") or ():
        inner = _kwargs(message)
        # A fixed message has its text: {"id": […, "SystemMessage"], "kwargs": {"content": "Be brief."}}
        text = text_or_none(_kwargs(inner.get("prompt")).get("template") or inner.get("content"))
        name = text_or_none(inner.get("variable_name"))
        if text:
            # "system" of SystemMessagePromptTemplate or SystemMessage
            class_name = str((message.get("id") or [""])[-1])
            role = class_name.removesuffix("PromptTemplate").removesuffix("Message").lower()
            yield f"{role}: {text}" if role else text
        elif name:  # MessagesPlaceholder(variable_name="history")
            yield f"{{{name}}}"


def _kwargs(serialized: Any) -> Mapping[str, Any]:
    return mapping_or_empty(mapping_or_empty(serialized).get("kwargs"))
