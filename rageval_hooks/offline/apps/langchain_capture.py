"""LangChain's side of a capture: a handler in every chain that runs in a context in which it watches.

Needs langchain-core; only what captures imports this.
"""

from __future__ import annotations

from contextvars import ContextVar

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.online.pipeline import Pipeline

__all__ = ["CapturingHandler"]

_handler: ContextVar[BaseCallbackHandler | None] = ContextVar("rageval_hooks_run", default=None)
register_configure_hook(_handler, inheritable=True)


class CapturingHandler(CallbackHandler):
    """Hands turns to a pipeline that is there already, whatever the environment says.

    As every handler that is passed to a chain it comes before the one of ``instrument()``; and of several, LangChain
    calls those of a context last, so that the turn is this one's.

    Args:
        pipeline: where turns go.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super(CallbackHandler, self).__init__()  # CallbackHandler's own would build a pipeline
        self.pipeline = pipeline

    def watch(self) -> None:
        """See every chain that the current context runs from now on."""
        _handler.set(self)
