"""The attributes of a model call's span: a chat that backends can draw, its tools, parameters and tokens."""

from __future__ import annotations

from collections.abc import Iterable

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.masking import shown_parameters
from rageval_hooks.exporters.otel.attributes.messages import (
    add_input_messages,
    add_output_message,
    add_tool_definitions,
    chat_request,
    chat_response,
    text_beside,
)
from rageval_hooks.exporters.otel.attributes.ordering import Attributes, indexed, json_string
from rageval_hooks.messages import ToolCall
from rageval_hooks.turn import Step, Usage

__all__ = ["add_model_call"]

# The conventions' names for parameters, by the names that providers and frameworks use.
_REQUEST_PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
    "n": "choice.count",
}

# OpenInference's names of products, by LangChain's and LlamaIndex's names of providers.
_SYSTEMS = {
    "openai": "openai",
    "azure": "openai",
    "azure_openai": "openai",
    "anthropic": "anthropic",
    "cohere": "cohere",
    "mistral": "mistralai",
    "mistralai": "mistralai",
    "google_vertexai": "vertexai",
    "vertex": "vertexai",
}


def add_model_call(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    """Add what a model call has, the most important first."""
    _add_model(attributes, step)
    if step.usage is not None:
        _add_usage(attributes, step.usage)
    attributes.put(semconv.RESPONSE_TIME_TO_FIRST_CHUNK, step.time_to_first_token)
    attributes.put(semconv.LLM_FINISH_REASON, step.finish_reason)
    _add_completion(attributes, step, policy)
    _add_parameters(attributes, step, policy)
    _add_template(attributes, step, policy)
    # A long conversation may exceed the provider's limit of attributes, so what is one attribute comes before it.
    _add_prompt(attributes, step, policy)
    _add_tools(attributes, step, policy)


def _add_model(attributes: Attributes, step: Step) -> None:
    attributes.put(semconv.LLM_MODEL_NAME, step.model)
    attributes.put(semconv.REQUEST_MODEL, step.request_model)
    attributes.put(semconv.RESPONSE_MODEL, step.model)
    attributes.put(semconv.RESPONSE_ID, step.response_id)
    attributes.put(semconv.LLM_PROVIDER, step.provider)
    attributes.put(semconv.LLM_SYSTEM, _SYSTEMS.get(step.provider or ""))
    attributes.put(semconv.PROVIDER_NAME, step.provider)


def _add_usage(attributes: Attributes, usage: Usage) -> None:
    attributes[semconv.LLM_TOKENS_PROMPT] = usage.input_tokens
    attributes[semconv.LLM_TOKENS_COMPLETION] = usage.output_tokens
    attributes[semconv.LLM_TOKENS_TOTAL] = usage.total_tokens
    attributes[semconv.USAGE_INPUT_TOKENS] = usage.input_tokens
    attributes[semconv.USAGE_OUTPUT_TOKENS] = usage.output_tokens
    attributes.put(semconv.LLM_TOKENS_CACHE_READ, usage.cache_read_tokens)
    attributes.put(semconv.USAGE_CACHE_READ_TOKENS, usage.cache_read_tokens)
    attributes[semconv.USAGE_SOURCE] = usage.source


def _add_completion(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    if step.output is None:
        return
    _, shown = policy.shows(step)
    text = text_beside(step.output, step.tool_calls)
    reason = step.finish_reason or _usual_reason(step)
    # MLflow and Langfuse draw a conversation where the values have the form of OpenAI's API.
    attributes[semconv.OUTPUT_VALUE] = policy.quote(chat_response(text, step.tool_calls, reason), shown)
    attributes[semconv.OUTPUT_MIME_TYPE] = semconv.JSON if shown else semconv.TEXT
    attributes[indexed(semconv.LLM_OUTPUT_MESSAGE, 0, "role")] = "assistant"
    if text or not step.tool_calls:
        attributes[indexed(semconv.LLM_OUTPUT_MESSAGE, 0, "content")] = policy.quote(text, policy.output_messages)
    _add_calls(attributes, semconv.LLM_OUTPUT_MESSAGE, 0, step.tool_calls, policy, policy.output_messages)
    if shown:
        add_output_message(attributes, text, step.tool_calls, reason)


def _usual_reason(step: Step) -> str:
    """Return the finish reason of a call whose provider does not say it."""
    ended_well = step.complete and step.error is None
    return "stop" if ended_well else "error"


def _add_prompt(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    if not step.messages:
        return
    shown, _ = policy.shows(step)
    attributes[semconv.INPUT_VALUE] = policy.quote(chat_request(step.messages), shown)
    attributes[semconv.INPUT_MIME_TYPE] = semconv.JSON if shown else semconv.TEXT
    if shown:
        add_input_messages(attributes, step.messages)
    for index, message in enumerate(step.messages):
        text = text_beside(message.content, message.tool_calls)
        attributes[indexed(semconv.LLM_INPUT_MESSAGE, index, "role")] = message.role
        # A message of tool calls alone has no content.
        if text or not message.tool_calls:
            attributes[indexed(semconv.LLM_INPUT_MESSAGE, index, "content")] = policy.quote(text, policy.input_messages)
        attributes.put(indexed(semconv.LLM_INPUT_MESSAGE, index, "tool_call_id"), message.tool_call_id)
        attributes.put(indexed(semconv.LLM_INPUT_MESSAGE, index, "name"), message.name)
        _add_calls(attributes, semconv.LLM_INPUT_MESSAGE, index, message.tool_calls, policy, policy.input_messages)


def _add_calls(
    attributes: Attributes, template: str, index: int, calls: Iterable[ToolCall], policy: ContentPolicy, shown: bool
) -> None:
    """Add the tool calls of a message, the way OpenInference numbers the items of lists."""
    for number, call in enumerate(calls):
        fields = {
            "function.name": call.name,
            "function.arguments": policy.quote(call.arguments, shown),
            "id": call.id,
        }
        for field, value in fields.items():
            name = indexed(semconv.MESSAGE_TOOL_CALL, number, field)
            attributes.put(indexed(template, index, name), value)


def _add_parameters(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    parameters = shown_parameters(step.parameters, policy)
    for name, value in parameters.items():
        # The conventions name numbers only; the other parameters are in the JSON below.
        known = _REQUEST_PARAMETERS.get(name)
        if known is not None and isinstance(value, (int, float)):
            attributes[semconv.REQUEST_PARAMETER.format(name=known)] = value
    if parameters and policy.parameters:
        attributes[semconv.LLM_INVOCATION_PARAMETERS] = json_string(parameters)


def _add_template(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    if step.template is None or not policy.shows_prompts:
        return
    attributes[semconv.PROMPT_TEMPLATE] = step.template.text
    attributes[semconv.PROMPT_VARIABLES] = json_string(step.template.variables)


def _add_tools(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    if not policy.tools:
        return
    add_tool_definitions(attributes, step.tools)
    for index, schema in enumerate(step.tools):
        attributes[indexed(semconv.LLM_TOOL, index, "json_schema")] = schema
