"""LlamaIndex as the recorder knows it."""

from __future__ import annotations

from contextvars import ContextVar

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.llama_index.events import turn_from_events
from rageval_hooks.integrations.recorder import Framework, shared_recorder

__all__ = ["FRAMEWORK", "left_out_root"]

left_out_root: ContextVar[str | None] = ContextVar("rageval_hooks_llama_index_left_out", default=None)
"""The root of a turn that is not looked at, which began in this context last; what is under it is not recorded."""


def _left_out() -> bool:
    """Whether the calling code runs inside of a turn that is not looked at."""
    return shared_recorder().leaves_out(active_span_id.get(), left_out_root.get())


FRAMEWORK = Framework("llama_index", turn_from_events, active_span_id.get, _left_out)
shared_recorder().join(FRAMEWORK)
