"""Reading prompts, model responses and tool arguments of LlamaIndex.

By attribute names: the classes are not imported, because importing llama-index-core takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.fields import public_parameters
from rageval_hooks.integrations.capture.host_values import attribute_text, first_string, or_else
from rageval_hooks.messages import Message, PromptTemplate, ToolCall
from rageval_hooks.runtime.jsonable import json_text, string_of
from rageval_hooks.runtime.narrowing import (
    entry_or_attribute,
    first_text,
    is_integer,
    items_or_empty,
    mapping_or_empty,
    text_or_none,
)
from rageval_hooks.turn import Usage

__all__ = [
    "arguments_of",
    "as_json",
    "finish_reason_of",
    "is_message",
    "message_text",
    "messages_of",
    "model_of",
    "parameters_of",
    "refusal_of",
    "requested_model_in",
    "response_id_of",
    "role_of",
    "template_in",
    "tool_call",
    "tool_calls_of",
    "tool_fields",
    "tools_in",
    "usage_of",
]


# Roles of LlamaIndex's MessageRole, and the roles of model APIs.
_ROLES = {"chatbot": "assistant", "model": "assistant", "developer": "system", "function": "tool"}
_MODEL_KEYS = ("model", "model_version", "modelId")
_RESPONSE_ID_KEYS = ("id", "response_id", "responseId")


def arguments_of(bound: Any) -> dict[str, Any]:
    """Return the arguments of a call by name. An operation without a call has a dict already."""
    if isinstance(bound, dict):
        return bound
    # LlamaIndex's spans carry an inspect.BoundArguments.
    return getattr(bound, "arguments", None) or {}


@or_else(False)
def is_message(value: Any) -> bool:
    """Return True for a chat message."""
    # A PydanticResponse has every attribute, each None, so that hasattr alone says nothing.
    if getattr(value, "role", None) is None:
        return False
    return hasattr(value, "blocks") or hasattr(value, "content")


def role_of(message: Any) -> str:
    """Return the role of a chat message, by the names that turns use."""
    role = str(getattr(message.role, "value", message.role))
    return _ROLES.get(role, role)


def message_text(message: Any) -> str:
    """Return the text of a message."""
    return attribute_text(message, "content") or ""


def tool_calls_of(response: Any) -> list[Any]:
    """Return the tool calls that a model asked for."""
    return _tool_calls_in(getattr(response, "message", None))


def _tool_calls_in(message: Any) -> list[Any]:
    # Older model classes: ChatMessage(additional_kwargs={"tool_calls": [{"function": {"name": "search", …}}]}).
    kwargs = mapping_or_empty(getattr(message, "additional_kwargs", None))
    calls = items_or_empty(kwargs.get("tool_calls"))
    if calls:
        return list(calls)
    # ChatMessage(blocks=[TextBlock(…), ToolCallBlock(tool_name="search", …)])
    blocks = getattr(message, "blocks", ())
    return [block for block in blocks if getattr(block, "block_type", "") == "tool_call"]


def messages_of(prompt: Any) -> tuple[Message, ...]:
    """Return the prompt of a model call, which is a text or a list of chat messages."""
    if isinstance(prompt, str):
        return (Message(role="user", content=prompt),)
    if not isinstance(prompt, Sequence):
        return ()
    return tuple(_prompt_message(message) for message in prompt if is_message(message))


def _prompt_message(message: Any) -> Message:
    text = message_text(message)
    calls = _tool_calls_in(message)
    if not text and calls:
        text = as_json(calls)
    return Message(
        role=role_of(message),
        content=text,
        tool_calls=tuple(map(tool_call, calls)),
        tool_call_id=_text_option(message, "tool_call_id"),
        name=_text_option(message, "name"),
    )


@or_else(None)
def _text_option(message: Any, name: str) -> str | None:
    """Return an option of a message, such as the id of the call that it answers: {"tool_call_id": "call_1"}."""
    return text_or_none(message.additional_kwargs.get(name))


def tool_call(call: Any) -> ToolCall:
    """Return a tool call.

    LlamaIndex has ``tool_id``, ``tool_name`` and ``tool_kwargs``, or a block with ``tool_call_id``; providers have
    ``id`` and ``function`` with ``name`` and ``arguments``, as objects or mappings.
    """
    function = entry_or_attribute(call, "function") or call
    arguments = _first_field(function, ("tool_kwargs", "arguments", "input"))
    return ToolCall(
        name=string_of(_first_field(function, ("tool_name", "name"))),
        arguments=arguments if isinstance(arguments, str) else as_json(arguments or {}),
        id=_first_field(call, ("tool_id", "tool_call_id", "id")),
    )


def _first_field(value: Any, names: Sequence[str]) -> Any:
    for name in names:
        found = entry_or_attribute(value, name)
        if found is not None:
            return found
    return None


@or_else(None)
def model_of(response: Any) -> str | None:
    """Return the model's name as the provider reported it in ``raw``, an object or a mapping."""
    name = _reported(response, _MODEL_KEYS)
    return None if name == "unknown" else name


@or_else("")
def refusal_of(response: Any) -> str:
    """Return the words in which a model refused, for which OpenAI has a separate field; empty if it did not."""
    choice = next(iter(items_or_empty(entry_or_attribute(getattr(response, "raw", None), "choices"))), None)
    places = (entry_or_attribute(choice, "message"), getattr(response, "additional_kwargs", None))
    return first_text(entry_or_attribute(place, "refusal") for place in places) or ""


@or_else(None)
def response_id_of(response: Any) -> str | None:
    """Return the provider's id of a completion, for example ``chatcmpl-…``."""
    return _reported(response, _RESPONSE_ID_KEYS)


def _reported(response: Any, keys: tuple[str, ...]) -> str | None:
    """Return the first text under some keys of the provider's own response, an object or a mapping."""
    raw = getattr(response, "raw", None)
    return first_text(entry_or_attribute(raw, key) for key in keys)


@or_else(None)
def requested_model_in(description: Mapping[str, Any] | None) -> str | None:
    """Return the model's name in the event of a call's start, for example {"model_name": "gpt-4.1", "num_output": 256}.

    Models without a name are called "unknown" there.
    """
    name = first_string(description, ("model_name", "model"))
    return None if name == "unknown" else name


def as_json(value: Any) -> str:
    """Return any value as JSON. A value that JSON does not know becomes its ``str``."""
    return json_text(value, _jsonable)


def _jsonable(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return dump(mode="json", warnings=False)
        except Exception:
            pass  # a field of the model has no JSON form: its text has to do
    return str(value)


# --------------------------------------------------------------------------- requests: parameters, tools, templates


# Of the description of a model: texts for prompts, and what is no parameter of the call.
_NO_PARAMETERS = frozenset({"system_prompt", "query_wrapper_prompt", "class_name", "tools", "messages"})
_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason")
_ATOMS = (str, bool, int, float)


@or_else({})
def parameters_of(description: Mapping[str, Any] | None, options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the parameters of a model call.

    Args:
        description: the model, as the event of the call's start describes it: {"model": "gpt-4.1", "temperature": 0.1}.
        options: the further arguments of the call: {"tool_choice": "auto"}.
    """
    atoms = {name: value for name, value in (description or {}).items() if isinstance(value, _ATOMS)}
    return public_parameters({**atoms, **(options or {})}, without=_NO_PARAMETERS)


@or_else(())
def tools_in(options: Mapping[str, Any] | None) -> Sequence[str]:
    """Return the tools that a model could call, each as JSON: {"type": "function", "function": {"name": "search"}}."""
    return tuple(as_json(tool) for tool in (options or {}).get("tools") or ())


@or_else(None)
def template_in(bound: Any, model: Any) -> PromptTemplate | None:
    """Return the template that ``predict`` was called with.

    Args:
        bound: the arguments of ``LLM.predict(prompt, **prompt_args)`` or one of its relatives.
        model: the model. A template may be different for chat models.
    """
    arguments = arguments_of(bound)
    prompt = arguments.get("prompt")
    if prompt is None or not hasattr(prompt, "get_template"):
        return None
    given = {**(getattr(prompt, "kwargs", None) or {}), **(arguments.get("prompt_args") or {})}
    variables = {str(name): string_of(value) for name, value in given.items()}
    return PromptTemplate(text=string_of(prompt.get_template(llm=model)), variables=variables)


@or_else(None)
def finish_reason_of(response: Any) -> str | None:
    """Return why a model stopped, from the provider's own response: {"choices": [{"finish_reason": "stop"}]}."""
    raw = getattr(response, "raw", None)
    choices = entry_or_attribute(raw, "choices")
    holders = [raw, choices[0]] if choices else [raw]
    for holder in holders:
        if found := first_string({key: entry_or_attribute(holder, key) for key in _FINISH_KEYS}, _FINISH_KEYS):
            return found
    return None


def tool_fields(tool: Any) -> dict[str, Any]:
    """Return a tool's description of itself: its description and the schema of its parameters."""
    return {"description": _description(tool), "tool_schema": _schema(tool)}


@or_else(None)
def _description(tool: Any) -> str | None:
    return tool.metadata.description or None


@or_else(None)
def _schema(tool: Any) -> str | None:
    return as_json(tool.metadata.get_parameters_dict())


# --------------------------------------------------------------------------- token counts


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
    read, written = _first_count(place, _INPUT), _first_count(place, _OUTPUT)
    # Some providers report zeros in place of nothing.
    if read is None or written is None or read + written == 0:
        return None
    written += _first_count(place, ("thoughts_token_count",)) or 0  # Gemini counts these separately
    cached = _first_count(place, _CACHED_EXTRA)
    if cached is not None:
        read += cached + (_first_count(place, _WRITTEN_EXTRA) or 0)
    else:
        # {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 8}}
        details = [entry_or_attribute(place, name) for name in _DETAILS]
        counts = [_first_count(detail, _CACHED) for detail in (*details, place)]
        cached = next((count for count in counts if count is not None), None)
    return Usage(input_tokens=read, output_tokens=written, cache_read_tokens=cached)


def _first_count(place: Any, names: Iterable[str]) -> int | None:
    """Return the first non-negative integer under some names of a mapping or an object."""
    for name in names:
        count: object = entry_or_attribute(place, name)
        if is_integer(count) and count >= 0:
            return count
    return None
