"""What a span is: LlamaIndex names spans by class and method only. Known by the names of base classes."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from rageval_hooks.integrations.capture.values import or_else

__all__ = ["kind_of", "method_of", "name_of", "provider_of"]

_UUID_LENGTH = 37
"""A span's id is ``Class.method-uuid``; this is how long the end of it is, dash included."""

_PACKAGES = ("llama_index.core.", "workflows.")

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
"""The methods that are the operation itself; others of the same class are parts of it. Absent: all of them."""


def kind_of(span_id: str, instance: Any) -> str:
    """Return the kind of a span: one of the values of ``_BASES``, or ``chain`` for whatever else there is.

    Args:
        span_id: LlamaIndex's id of the span.
        instance: the object whose method it is; None for a function.
    """
    kind = _kind_of(instance)
    method = method_of(span_id)
    if kind == "embedding" and method.startswith("_"):
        return "chain"
    return kind if method in _METHODS.get(kind, (method,)) else "chain"


def _kind_of(instance: Any) -> str:
    component: type = type(instance)
    return _kind_of_class(component)


@lru_cache(maxsize=1024)
def _kind_of_class(component: type) -> str:
    for base in component.__mro__:
        if base.__name__ in _BASES and f"{base.__module__}.".startswith(_PACKAGES):
            return _BASES[base.__name__]
    return "chain"


def method_of(span_id: Hashable) -> str:
    """Return the name of the method, or function, whose span it is."""
    return str(span_id)[:-_UUID_LENGTH].rpartition(".")[2]


def name_of(span_id: str, instance: Any) -> str:
    """Return a component's name: a tool's own, else its class's, else the function's."""
    if instance is None:
        return span_id[:-_UUID_LENGTH].rpartition("<locals>.")[2] or span_id
    own = _own_name(instance) if _kind_of(instance) == "tool" else None
    return own or type(instance).__name__


@or_else(None)
def _own_name(tool: Any) -> str | None:
    name = tool.metadata.name
    return name if isinstance(name, str) else None


def provider_of(instance: Any) -> str | None:
    """Return who serves a model, from the package of its class: ``llama_index.llms.openai`` is ``openai``."""
    parts = type(instance).__module__.split(".")
    return parts[2] if parts[:2] == ["llama_index", "llms"] and len(parts) > 2 else None
