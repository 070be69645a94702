"""Reading what a model was asked besides its messages: parameters, tools, and the template of the prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rageval_hooks.integrations.capture.fields.parameters import public_parameters
from rageval_hooks.integrations.capture.host_values import first_string, or_else
from rageval_hooks.integrations.capture.run_facts import detail_of
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import as_json, as_text
from rageval_hooks.messages import PromptTemplate, ToolCall
from rageval_hooks.runtime.narrowing import mapping_or_empty, text_or_none

__all__ = ["finish_reason_in", "parameters_of", "template_of", "tool_call", "tools_of"]

_TOOL_PARAMETERS = ("tools", "functions")
_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason")


@or_else({})
def parameters_of(call: Run) -> Mapping[str, Any]:
    """Return the parameters of a call, for example {"temperature": 0.2, "max_completion_tokens": 100}."""
    return public_parameters(detail_of(call, "invocation_params") or {}, without=_TOOL_PARAMETERS)


@or_else(())
def tools_of(call: Run) -> Sequence[str]:
    """Return the tools that a model could call, each as JSON: {"type": "function", "function": {"name": "search"}}."""
    parameters = detail_of(call, "invocation_params") or {}
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
    if sequence is None:
        return None
    for run in reversed(runs):
        is_before = run.parent is sequence and run.started_at <= call.started_at
        if run.kind == "prompt" and is_before:
            return _template_of_prompt(run)
    return None


def _template_of_prompt(run: Run) -> PromptTemplate | None:
    text = "\n\n".join(_template_texts(detail_of(run, "template")))
    # A prompt of placeholders only has no text.
    if not text:
        return None
    return PromptTemplate(text=text, variables=_variables(run.input))


def _variables(given: Any) -> dict[str, str]:
    return {str(name): as_text(value) for name, value in mapping_or_empty(given).items()}


def _template_texts(serialized: Any) -> Iterator[str]:
    """Yield the templates in LangChain's serialized form of a prompt, each with the role of its message.

    A text prompt is {"name": "PromptTemplate", "kwargs": {"template": "Use {context}"}}. A chat prompt is
    {"name": "ChatPromptTemplate", "kwargs": {"messages": [{"id": […, "SystemMessagePromptTemplate"], …}, …]}}.
    """
    fields = _fields(serialized)
    text = text_or_none(fields.get("template"))
    if text:
        yield text
    for message in fields.get("messages") or ():
        text = _message_template(message)
        role = _role(message)
        if text:
            yield f"{role}: {text}" if role else text


def _message_template(message: Any) -> str | None:
    fields = _fields(message)
    # A fixed message: {"id": […, "SystemMessage"], "kwargs": {"content": "Be brief."}}
    text = _fields(fields.get("prompt")).get("template") or fields.get("content")
    if isinstance(text, str):
        return text
    # MessagesPlaceholder(variable_name="history")
    name = fields.get("variable_name")
    return f"{{{name}}}" if isinstance(name, str) else None


def _role(message: Any) -> str:
    """Return a message's role by its class: "system" for SystemMessagePromptTemplate or SystemMessage.

    A placeholder for several messages has no role.
    """
    class_name = str((message.get("id") or [""])[-1])
    if class_name == "MessagesPlaceholder":
        return ""
    return class_name.removesuffix("PromptTemplate").removesuffix("Message").lower()


def _fields(serialized: Any) -> Mapping[str, Any]:
    return mapping_or_empty(mapping_or_empty(serialized).get("kwargs"))
