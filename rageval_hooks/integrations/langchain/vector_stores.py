"""Searches in vector stores of LangChain that are called directly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rageval_hooks.integrations.capture.direct_searches import DirectSearches
from rageval_hooks.integrations.capture.host_values import first_string
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.wrapped_methods import WrappedMethods
from rageval_hooks.integrations.langchain.framework import FRAMEWORK
from rageval_hooks.integrations.langchain.payloads import copy_documents
from rageval_hooks.runtime.narrowing import text_or_empty

# Public methods that return documents, for example "search", "asimilarity_search_with_score" or
# "max_marginal_relevance_search_by_vector"; not "create_search_index".
_SEARCH_METHOD = re.compile(r"a?(search|similarity_search\w*|max_marginal_relevance_search\w*|hybrid_search\w*)")

_COLLECTION_FIELDS = ("collection_name", "_collection_name", "index_name", "_index_name", "table_name", "_table_name")
"""Where vector stores keep the name of what they search."""


def _query(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    # A search by a vector has no text.
    return text_or_empty(args[0] if args else kwargs.get("query"))


def _describe(store: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many passages are asked for, and of which collection."""
    # A cheap look only: a property of a class may ask the server.
    details = {"collection": first_string(vars(store), _COLLECTION_FIELDS) or type(store).__name__}
    return {**details, "top_k": kwargs["k"]} if type(kwargs.get("k")) is int else details


_searches = DirectSearches(
    recorder=shared_recorder(), framework=FRAMEWORK, query=_query, describe=_describe, read=copy_documents
)

VECTOR_STORES = WrappedMethods("langchain_core.vectorstores.base", "VectorStore", _SEARCH_METHOD, _searches.wrap)
"""The search methods of all vector store classes."""
