"""LlamaIndex as the recorder knows it."""

from __future__ import annotations

from contextvars import ContextVar

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.llama_index.events import turn_from_events
from rageval_hooks.integrations.recorder import Framework, shared_recorder

__all__ = ["FRAMEWORK", "LeftOut", "is_part_left_out", "left_out"]

_recorder = shared_recorder()
_knows = _recorder.knows


class LeftOut:
    """A root that is not looked at. The recorder does not know of it, but for a while after its end.

    Args:
        span_id: its id.
    """

    __slots__ = ("_runs", "span_id")

    def __init__(self, span_id: str) -> None:
        self.span_id = span_id
        self._runs = True

    def end(self) -> None:
        """Note that its span has ended. What it streams, or has others do, may go on."""
        self._runs = False
        _recorder.remember([self.span_id])

    @property
    def counts(self) -> bool:
        """Whether what runs in its context is part of it: it is under way, or has ended lately."""
        return self._runs or _recorder.has_ended(self.span_id)


left_out: ContextVar[LeftOut | None] = ContextVar("rageval_hooks_llama_index_left_out", default=None)
"""The root that was left out last in this context."""


def is_part_left_out(parent_id: str | None) -> bool:
    """Whether a span is part of a turn that is not looked at, or was lately.

    Args:
        parent_id: the span around it.
    """
    if parent_id is None:
        return False
    root = left_out.get()
    return root is not None and not _knows(parent_id) and root.counts


def _is_inside_left_out() -> bool:
    """Whether the calling code runs inside of a turn that is not looked at."""
    return is_part_left_out(active_span_id.get())


FRAMEWORK = Framework("llama_index", turn_from_events, active_span_id.get, _is_inside_left_out)
_recorder.join(FRAMEWORK)
