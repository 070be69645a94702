"""Reading what a model was asked besides its messages: parameters, tools, and the template of the prompt.

By attribute names: the classes are not imported, because importing llama-index-core takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.fields.parameters import public_parameters
from rageval_hooks.integrations.capture.host_values import first_string, or_else
from rageval_hooks.integrations.llama_index.payloads.inputs import arguments_of
from rageval_hooks.integrations.llama_index.payloads.messages import as_json
from rageval_hooks.messages import PromptTemplate
from rageval_hooks.runtime.jsonable import string_of
from rageval_hooks.runtime.narrowing import entry_or_attribute
from rageval_hooks.runtime.selecting import entries_of

__all__ = ["finish_reason_of", "parameters_of", "template_in", "tool_fields", "tools_in"]

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
    atoms = entries_of(description or {}, *_ATOMS)
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
