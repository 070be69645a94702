"""LlamaIndex as the recorder knows it."""

from __future__ import annotations

from contextvars import ContextVar

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.llama_index.events import turn_from_events
from rageval_hooks.integrations.recorder import Framework, shared_recorder

__all__ = ["FRAMEWORK", "is_part_left_out", "left_out_root"]

_knows = shared_recorder().knows

left_out_root: ContextVar[str | None] = ContextVar("rageval_hooks_llama_index_left_out", default=None)
"""The root of a turn that is not looked at, which began in this context last. The recorder does not know of it."""


def is_part_left_out(parent_id: str | None) -> bool:
    """Whether a span is part of a turn that is not looked at, or was.

    Args:
        parent_id: the span around it.
    """
    return parent_id is not None and left_out_root.get() is not None and not _knows(parent_id)


def _is_inside_left_out() -> bool:
    """Whether the calling code runs inside of a turn that is not looked at."""
    return is_part_left_out(active_span_id.get())


FRAMEWORK = Framework("llama_index", turn_from_events, active_span_id.get, _is_inside_left_out)
shared_recorder().join(FRAMEWORK)
