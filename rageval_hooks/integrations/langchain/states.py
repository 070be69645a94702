"""Reading states: what a chain or a graph passes between its steps, as a mapping or as an object with fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from langchain_core.load.serializable import Serializable
from langchain_core.outputs import LLMResult
from pydantic import BaseModel

from rageval_hooks.integrations.capture.host_values import or_else

__all__ = ["fields_by_name", "fields_of", "is_command", "is_structured_answer"]


@or_else({})
def fields_by_name(value: Any) -> Mapping[Any, Any]:
    """Return the items of a mapping, or the fields of a state that is a dataclass or a pydantic model."""
    if isinstance(value, Mapping):
        return value
    # LangGraph accepts both as the class of a graph's state.
    if is_dataclass(value) or is_structured_answer(value):
        fields: dict[str, Any] = vars(value)
        return fields
    return {}


@or_else(())
def fields_of(value: Any) -> Sequence[Any]:
    """Return the values in a mapping, in the state that a graph's command sets, or in a state of the application."""
    state = value.update if is_command(value) else value
    return list(fields_by_name(state).values())


@or_else(False)
def is_command(value: Any) -> bool:
    """Return True for a LangGraph ``Command(update={"documents": […]}, goto="answer")``, which a node may return."""
    # By name: LangGraph may not be installed.
    return type(value).__name__ == "Command" and hasattr(value, "update")


@or_else(False)
def is_structured_answer(value: Any) -> bool:
    """Return True if a value is an instance of a pydantic class of the application."""
    if not isinstance(value, BaseModel):
        return False
    # LangChain's own classes are pydantic classes too.
    return not isinstance(value, (Serializable, LLMResult))
