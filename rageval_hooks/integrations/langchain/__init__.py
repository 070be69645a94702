"""LangChain and LangGraph: a pure ``turn_from_runs`` and a thin callback handler."""

try:
    import langchain_core  # noqa: F401 - only to see whether it is there
except ImportError as error:
    from rageval_hooks.errors import MissingDependencyError

    raise MissingDependencyError("langchain-core", "langchain", "the LangChain integration") from error

from rageval_hooks.integrations.langchain.handler import CallbackHandler
from rageval_hooks.integrations.langchain.hook import attach, detach
from rageval_hooks.integrations.langchain.runs import turn_from_runs

__all__ = ["CallbackHandler", "attach", "detach", "turn_from_runs"]
