"""Queries of LlamaIndex's vector stores that are called directly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rageval_hooks.integrations.capture.direct_searches import DirectSearches
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.wrapped_methods import WrappedMethods
from rageval_hooks.integrations.llama_index.nodes import nodes_in
from rageval_hooks.integrations.llama_index.turn_building import FRAMEWORK


def _query(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, str]:
    query = args[0] if args else kwargs.get("query")
    return {"query_str": getattr(query, "query_str", None) or ""}


def _describe(store: Any, _kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {"instance": store}


def _read(result: Any, details: dict[str, Any]) -> Any:
    # A store that keeps no texts, such as SimpleVectorStore, finds ids only.
    details["nodes_after"] = nodes_in(result)
    return result if details["nodes_after"] else None


_searches = DirectSearches(
    recorder=shared_recorder(), framework=FRAMEWORK, query=_query, describe=_describe, read=_read
)

VECTOR_STORES = WrappedMethods(
    "llama_index.core.vector_stores.types", "BasePydanticVectorStore", re.compile("a?query"), _searches.wrap
)
"""The methods ``query`` and ``aquery`` of all vector store classes."""
