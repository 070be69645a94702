"""The kind of a span, from its class and method: LlamaIndex's spans carry no kind.

Classes are recognised by the names of their base classes, because importing llama-index-core takes seconds.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from rageval_hooks.integrations.capture.host_values import or_else
from rageval_hooks.runtime.narrowing import text_or_none

__all__ = ["kind_of", "method_of", "name_of", "provider_of"]

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
    own = _own_name(instance) if _kind_of_class(component) == "tool" else None
    return own or component.__name__


@or_else(None)
def _own_name(tool: Any) -> str | None:
    return text_or_none(tool.metadata.name)


def provider_of(instance: Any) -> str | None:
    """Return the provider of a model, from the package of its class: ``llama_index.llms.openai`` is ``openai``."""
    module = type(instance).__module__
    if not module.startswith(_MODELS):
        return None
    return module.removeprefix(_MODELS).partition(".")[0]
