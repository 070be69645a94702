"""Reading LlamaIndex's values: messages, tool calls, fields, kinds of spans, questions, answers and streamed answers.

By attribute names: the classes are not imported, because importing llama-index-core takes seconds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import lru_cache, partial
from typing import Any

from rageval_hooks.integrations.capture import values as capture_values
from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.integrations.capture.values import is_a, or_else
from rageval_hooks.runtime.interrupts import raise_interrupt
from rageval_hooks.runtime.jsonable import json_text, plain_value, string_of
from rageval_hooks.runtime.narrowing import entry_or_attribute, items_or_empty, mapping_or_empty, text_or_none
from rageval_hooks.turn import Message, ToolCall

# Roles of LlamaIndex's MessageRole, and the roles of model APIs.
_ROLES = {"chatbot": "assistant", "model": "assistant", "developer": "system", "function": "tool"}


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
    return capture_values.attribute_text(message, "content") or ""


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
    text, calls = message_text(message), _tool_calls_in(message)
    # Options of a message, such as the id of the call that it answers: {"tool_call_id": "call_1"}.
    options = mapping_or_empty(getattr(message, "additional_kwargs", None))
    return Message(
        role=role_of(message),
        content=as_json(calls) if calls and not text else text,
        tool_calls=tuple(map(tool_call, calls)),
        tool_call_id=text_or_none(options.get("tool_call_id")),
        name=text_or_none(options.get("name")),
    )


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
    found = (entry_or_attribute(value, name) for name in names)
    return next((one for one in found if one is not None), None)


def as_json(value: Any) -> str:
    """Return any value as JSON. A value that JSON does not know becomes its ``str``."""
    return json_text(value, _jsonable)


def _jsonable(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        try:
            return dump(mode="json", warnings=False)
        except Exception as error:
            raise_interrupt(error)  # else a field of the model has no JSON form: its `str` is used
    return plain_value(value) if is_dataclass(value) else string_of(value)


_NOTHING_KNOWN: dict[str, Any] = {}


@or_else(_NOTHING_KNOWN)
def tool_fields(tool: Any) -> dict[str, Any]:
    """Return a tool's description of itself: its description and the schema of its parameters."""
    metadata = tool.metadata
    return {"description": metadata.description or None, "tool_schema": as_json(metadata.get_parameters_dict())}


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a mapping, a dataclass, a pydantic model or a workflow event, by name."""
    if isinstance(value, dict):
        return {str(key): item for key, item in dict.items(value)}
    found = dict(getattr(value, "__dict__", {}))
    private = private_attributes(value)
    # Event(topic="piers") keeps {"topic": "piers"} in _data.
    found.update(private.get("_data") or {})
    # StopEvent(result="In 1869.") keeps "In 1869." in _result.
    if "_result" in private:
        found["result"] = private["_result"]
    return found


def private_attributes(value: Any) -> Mapping[str, Any]:
    """Return the private attributes of a pydantic model: a workflow's event keeps its own fields there."""
    return mapping_or_empty(getattr(value, "__pydantic_private__", None))


def is_mapping(value: Any) -> bool:
    """Return True for a mapping, and for a workflow's event, which may have any fields."""
    return isinstance(value, dict) or "_data" in private_attributes(value)


def only_string(fields: Mapping[str, Any]) -> str:
    """Return the string among some fields if there is exactly one that is not empty; else an empty string."""
    texts = [item for item in fields.values() if is_a(item, str) and item]
    return texts[0] if len(texts) == 1 else ""


def text_under(fields: Mapping[str, Any], keys: Iterable[str], read: Callable[[Any], str]) -> str | None:
    """Return the first text that is found under some keys; empty if they have no text, None without such a key.

    Args:
        fields: the fields.
        keys: the keys, the preferred one first.
        read: returns the text in a value.
    """
    known = [fields[key] for key in keys if key in fields]
    if not known:
        return None
    return next(filter(None, map(read, known)), "")


# --------------------------------------------------------------------------- kinds of spans


_UUID_LENGTH = 37
"""A span's id is ``Class.method-uuid``; this is the length of ``-uuid``."""

_PACKAGES = ("llama_index.core.", "workflows.")
"""Packages with the base classes. A class of an application may have the same name."""

_MODELS = "llama_index.llms."
"""The package that holds one package per provider of models."""

_BASES = {
    "BaseQueryEngine": "query",
    "BaseChatEngine": "chat",
    "StreamingAgentChatResponse": "writer",
    "BaseRetriever": "retriever",
    "BaseNodePostprocessor": "reranker",
    "BaseSynthesizer": "synthesizer",
    "BaseTool": "tool",
    "BaseEmbedding": "embedding",
    "BaseSparseEmbedding": "embedding",
    "TransformComponent": "ingestion",
    "IngestionPipeline": "ingestion",
    "BaseLLM": "model",
    "MultiModalLLM": "model",
    "BaseWorkflowAgent": "agent",
    "AgentWorkflow": "agent",
    "Workflow": "workflow",
}
"""Base class → kind of the spans of its public methods. A model's span becomes an ``llm`` with the model's event."""

_METHODS = {
    "query": frozenset({"query", "aquery"}),
    "chat": frozenset({"chat", "achat", "stream_chat", "astream_chat"}),
    "retriever": frozenset({"retrieve", "aretrieve"}),
    "tool": frozenset({"__call__", "call", "acall"}),
    "agent": frozenset({"run"}),
    "workflow": frozenset({"run"}),
}
"""Kind → the methods that are the operation itself. Other methods of the class are parts of it. Not listed: all are."""


def kind_of(span_id: str, instance: Any) -> str:
    """Return the kind of a span: one of the values of ``_BASES``, or ``chain`` for anything else.

    Args:
        span_id: LlamaIndex's id of the span.
        instance: the object whose method it is; None for a function.
    """
    component: type = type(instance)
    kind = _kind_of_class(component)
    method = method_of(span_id)
    if kind == "embedding" and method.startswith("_"):
        return "chain"  # the public method around it is the operation
    operations = _METHODS.get(kind)
    return kind if operations is None or method in operations else "chain"


@lru_cache(maxsize=1024)
def _kind_of_class(component: type) -> str:
    for base in component.__mro__:
        if base.__name__ in _BASES and f"{base.__module__}.".startswith(_PACKAGES):
            return _BASES[base.__name__]
    return "chain"


def method_of(span_id: Hashable) -> str:
    """Return the name of the method or function whose span it is."""
    return str(span_id)[:-_UUID_LENGTH].rpartition(".")[2]


def name_of(span_id: str, instance: Any) -> str:
    """Return a component's name: a tool's own name, else the name of the class, else of the function."""
    if instance is None:
        # The qualified name of a nested function: "outer.<locals>.inner".
        return span_id[:-_UUID_LENGTH].rpartition("<locals>.")[2] or span_id
    component: type = type(instance)
    own = None
    if _kind_of_class(component) == "tool":
        own = capture_values.attribute_text(getattr(instance, "metadata", None), "name")
    return own or component.__name__


def provider_of(instance: Any) -> str | None:
    """Return the provider of a model, from the package of its class: ``llama_index.llms.openai`` is ``openai``."""
    module = type(instance).__module__
    if not module.startswith(_MODELS):
        return None
    return module.removeprefix(_MODELS).partition(".")[0]


# --------------------------------------------------------------------------- inputs


_QUERY_KEYS = (
    "str_or_query_bundle",
    "query_bundle",
    "query",
    "query_str",
    "question",
    "user_msg",
    "message",
    "input",
    "prompt",
    "text",
    "messages",
    "chat_history",
    "start_event",
    "prompt_args",
    "kwargs",
    "args",
)
"""Names of arguments and fields that hold a question, the most specific first."""

_DEPTH = 5
"""Values within values that are searched, for example {"kwargs": {"start_event": StartEvent(input="…")}} of a workflow,
and StopEvent(result=AgentOutput(response=ChatMessage(…)))."""


@or_else("")
def query_of(value: Any, depth: int = 0) -> str:
    """Return the user's question from the input of a component; empty if it has none.

    Args:
        value: the input, or a value inside of it.
        depth: how deep inside of the input the value is.
    """
    if isinstance(value, str):
        return value
    if value is None or depth > _DEPTH:
        return ""
    # QueryBundle(query_str="When was the pier opened?", embedding=None)
    query = getattr(value, "query_str", None)
    if isinstance(query, str):
        return query
    if is_message(value):
        return message_text(value)
    if isinstance(value, (list, tuple)):
        said = [message_text(one) for one in value if is_message(one) and role_of(one) == "user"]
        # The positional arguments of a function: ("When was the pier opened?",).
        return said[-1] if said else query_of(value[0], depth + 1) if len(value) == 1 else ""
    fields = fields_of(value)
    found = text_under(fields, _QUERY_KEYS, partial(query_of, depth=depth + 1))
    # The arguments of the root and the fields of an event may have any name.
    may_have_own_names = depth == 0 or (found is None and is_mapping(value))
    return found or (capture_values.question_among(fields) if may_have_own_names else "")


def tool_arguments(bound: Any) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return a tool's arguments: those by position, and those by name."""
    # A tool's method is called with {"args": ("pier",), "kwargs": {"limit": 3}}, or by the names of its parameters.
    named = dict(arguments_of(bound))
    positional = named.pop("args", None) or ()
    named.update(named.pop("kwargs", None) or {})
    return positional, named


def tool_input(bound: Any) -> str:
    """Return a tool's arguments as text: a single text unchanged, anything else as JSON."""
    positional, named = tool_arguments(bound)
    values = [*positional, *named.values()]
    if len(values) == 1 and is_a(values[0], str):
        return str.__str__(values[0])
    return as_json(named or values)


def queries_of(run: Run) -> Sequence[str]:
    """Return what a retriever or a tool was asked for."""
    if run.kind != "tool":
        return [query for query in [query_of(arguments_of(run.input)).strip()] if query]
    positional, named = tool_arguments(run.input)
    # The only argument may be passed without its name.
    return capture_values.queries_among({**named, "query": positional} if positional else named)


# --------------------------------------------------------------------------- outputs


_ANSWER_KEYS = ("result", "response", "response_txt", "answer", "output", "message", "text", "content")
"""Names of fields that hold an answer, for example ``result`` of a StopEvent or ``response`` of a Response."""

_NO_ANSWER = (list, tuple, bool, int, float, type(None))
"""Classes whose values are no answers, for example the nodes that a retriever returns."""


@or_else("")
def answer_of(value: Any, depth: int = 0) -> str:
    """Return the answer from the output of a component; empty if it has none.

    Args:
        value: the output, or a value inside of it.
        depth: how deep inside of the output the value is.
    """
    if isinstance(value, str):
        return value
    if depth > _DEPTH or isinstance(value, _NO_ANSWER):
        return ""
    is_tool_output = isinstance(getattr(value, "content", None), str)
    if is_message(value) or is_tool_output:
        return message_text(value)
    fields = fields_of(value)
    found = text_under(fields, capture_values.answer_keys_in(fields, _ANSWER_KEYS), partial(answer_of, depth=depth + 1))
    if found is not None:
        return found
    # PydanticResponse(response=Invoice(total=12)): an object of the application is a structured answer.
    if depth > 0 and hasattr(value, "model_dump"):
        return as_json(value)
    if not is_mapping(value):
        return ""
    # {"text_out": "In 1869.", "title": "The pier"}: a title is the answer only if nothing else is.
    likely = {key: item for key, item in fields.items() if not capture_values.is_beside_answer(key)}
    if text := only_string(likely):
        return text
    # {"status": "success", "data": {"answer": "In 1869."}}
    within = [answer_of(item, depth + 1) for item in likely.values() if isinstance(item, dict)]
    return next(filter(None, within), "") or only_string(fields)


@or_else(False)
def leaves_answer_open(output: Any) -> bool:
    """Return True if an output without an answer does not say that there is none: the answer was streamed.

    For example None, a generator, ``StreamingAgentChatResponse(chat_stream=…)`` of a chat engine, or ``StopEvent()``,
    ``StopEvent(result="")`` and ``StopEvent(result={"answer": ""})`` of a workflow that writes its answer to the event
    stream.
    """
    if output is None or type(output) is Streamed or hasattr(output, "chat_stream"):
        return True
    is_event = hasattr(output, "__pydantic_private__")
    result = fields_of(output).get("result") if is_event and "_result" in private_attributes(output) else output
    if isinstance(result, dict):
        return bool(capture_values.answer_keys_in(result, _ANSWER_KEYS)) or not any(result.values())
    # An array has no truth value, nor has its comparison.
    return result is None or result is True or (isinstance(result, str) and not result)


# --------------------------------------------------------------------------- streamed answers


@or_else(False)
def is_generator(value: Any) -> bool:
    """Return True for a generator, synchronous or asynchronous."""
    return isinstance(value, (Generator, AsyncGenerator))


@dataclass(frozen=True)
class Streamed:
    """The place of a streamed answer in a record.

    The record must not keep the answer alive: a stream that its reader drops is to end.

    Attributes:
        of: the ``id`` of the response or of the generator.
    """

    of: int


@or_else(())
def streamed_in(result: Any) -> Sequence[Any]:
    """Return the generators in the result of a span, and the responses whose text comes from a generator.

    A workflow's result is inside its last event. The streamed answer of a chat engine is not included: a thread or
    task of the engine reads it.
    """
    # StreamingResponse(response_gen=<generator>) of a query engine. The answer of a chat engine has a property of this
    # name, which is not in its __dict__.
    return [
        value
        for value in (result, private_attributes(result).get("_result"))
        if is_generator(value) or getattr(value, "__dict__", {}).get("response_gen") is not None
    ]
