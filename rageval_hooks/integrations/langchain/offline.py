"""What the offline commands need of LangChain: turns of the chains that run for one question.

Found by the name of this file. Imported only by commands that capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.online.pipeline import Pipeline

__all__ = ["capturing"]

_handler: ContextVar[BaseCallbackHandler | None] = ContextVar("rageval_hooks_run", default=None)
register_configure_hook(_handler, inheritable=True)


@contextmanager
def capturing(pipeline: Pipeline) -> Iterator[Callable[[], None]]:
    """Capture turns while the block runs.

    Args:
        pipeline: receives the turns.

    Yields:
        A function that captures every chain that the calling context runs from then on.
    """
    handler = _CapturingHandler(pipeline)

    def watch() -> None:
        _handler.set(handler)

    yield watch


class _CapturingHandler(CallbackHandler):
    """Hands turns to an existing pipeline, whatever the environment says.

    Like every handler that is passed to a chain, it comes before the one of ``instrument()``. LangChain calls handlers
    of a context last, so that the turn belongs to this one.

    Args:
        pipeline: receives the turns.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        super(CallbackHandler, self).__init__()  # CallbackHandler's own would build a pipeline
        self.pipeline = pipeline
