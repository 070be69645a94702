"""What ``instrument()`` attaches to LangChain: one handler for every chain, and the searches of vector stores."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from types import FrameType
from typing import Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.values import collection_name
from rageval_hooks.integrations.capture.wrapped_methods import VectorStoreSearches
from rageval_hooks.integrations.langchain.handler import FRAMEWORK, TurnHandler
from rageval_hooks.integrations.langchain.other_tracers import unwatch, watch
from rageval_hooks.integrations.langchain.payloads import copied
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.narrowing import text_or_empty
from rageval_hooks.runtime.suppression import is_suppressed

# Public methods that return documents, for example "search", "asimilarity_search_with_score" or
# "max_marginal_relevance_search_by_vector"; not "create_search_index".
_SEARCH_METHOD = re.compile(r"a?(search|similarity_search\w*|max_marginal_relevance_search\w*|hybrid_search\w*)")


class _VectorStores(VectorStoreSearches):
    def query(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Return the text; a search by a vector has none."""
        return text_or_empty(args[0] if args else kwargs.get("query"))

    def describe(self, store: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return how many passages are asked for, and of which collection."""
        details = {"collection": collection_name(store)}
        return {**details, "top_k": kwargs["k"]} if type(kwargs.get("k")) is int else details

    def read(self, result: Any, details: dict[str, Any]) -> Any:
        """Return a copy of the documents."""
        return copied(result)


VECTOR_STORES = _VectorStores("langchain_core.vectorstores.base", "VectorStore", _SEARCH_METHOD, FRAMEWORK)
"""The search methods of all vector store classes."""


class _AttachedHandler(TurnHandler):
    """The one handler that all chains of the process get from ``instrument()``."""

    explicit = False


_handler = _AttachedHandler()

_PASSED_PACKAGES = frozenset({"rageval_hooks", "langchain_core"})
"""Packages that the call of the hook passes through on its way from the code that needs a manager."""


class _Hook:
    """Takes the place of a context variable: langchain-core calls ``get`` whenever it configures a callback manager.

    Args:
        inherited: True for the hook whose handler is passed on to child managers.
    """

    def __init__(self, inherited: bool) -> None:
        self._inherited = inherited

    def get(self) -> BaseCallbackHandler | None:
        """Return the handler for the manager; None if there is nothing to capture."""
        pipeline = _handler.pipeline
        if pipeline is None or not pipeline.enabled or is_suppressed():
            return None
        return _handler if _is_asked_by_langgraph() is self._inherited else None


def _is_asked_by_langgraph() -> bool:
    """Return True if LangGraph configures the manager.

    LangGraph uses the child managers of its runs as they are, so they must inherit the handler. langchain-core
    configures every child manager, and so asks the hook for each run. There an inherited handler would only show up in
    managers that the application or other tools create, merge and compare. Nothing but the calling module tells the
    two apart.
    """
    if "langgraph" not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _PASSED_PACKAGES:
            return package == "langgraph"
        frame = frame.f_back
    return False


_registered = False


def attach(pipeline: Pipeline) -> None:
    """Send the turns of every chain in the process to a pipeline, in place of the one that was attached before."""
    global _registered
    if not _registered:
        _registered = True
        for inherited in (False, True):
            hook = cast("ContextVar[BaseCallbackHandler | None]", _Hook(inherited))
            # With a class, langchain-core adds the handler only to managers that have no handler of this class.
            register_configure_hook(hook, inheritable=inherited, handle_class=TurnHandler)
    VECTOR_STORES.install()
    watch()
    deferred.prepare()
    _handler.pipeline = pipeline


def detach() -> None:
    """Capture no more turns, and drop those in progress. langchain-core keeps the hooks, which then do nothing."""
    VECTOR_STORES.remove()
    unwatch()
    pipeline, _handler.pipeline = _handler.pipeline, None
    if pipeline is not None:
        shared_recorder().forget(pipeline)
