"""What the offline commands need of LlamaIndex: turns of the queries that run for one question.

Found by the name of this file. Imported only by commands that capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rageval_hooks.integrations.llama_index import attach, detach
from rageval_hooks.online.pipeline import Pipeline

__all__ = ["capturing"]


@contextmanager
def capturing(pipeline: Pipeline) -> Iterator[Callable[[], None]]:
    """Capture turns while the block runs. What ``instrument()`` attached is detached.

    Args:
        pipeline: receives the turns.

    Yields:
        A function without effect: LlamaIndex's handlers see every context.
    """
    attach(pipeline)
    try:
        yield lambda: None
    finally:
        detach()
