"""LangChain and LangGraph: a thin callback handler, and the pure ``turn_from_runs``.

Read ``handler`` (callbacks become runs; when the root ends, its turn is submitted), then ``turn_building`` (runs become
a turn) with ``passages`` and ``question_and_answer`` next to it. ``payloads`` reads single values: states, messages and
documents. ``hook`` attaches the handler to every chain of the process.
"""

try:
    import langchain_core  # noqa: F401 - only to check that it is installed
except ImportError as error:
    from rageval_hooks.errors import MissingDependencyError

    raise MissingDependencyError("langchain-core", "langchain", "the LangChain integration") from error

from rageval_hooks.integrations.langchain.handler import CallbackHandler
from rageval_hooks.integrations.langchain.hook import attach, detach
from rageval_hooks.integrations.langchain.turn_building import turn_from_runs

__all__ = ["CallbackHandler", "attach", "detach", "turn_from_runs"]
