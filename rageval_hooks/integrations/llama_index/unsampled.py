"""What belongs to a turn of LlamaIndex that is not looked at, and so must not become a turn of its own."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from types import AsyncGeneratorType, FrameType, GeneratorType
from typing import Any

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.capture.recorder import shared_recorder

__all__ = ["LeftOut", "is_inside_left_out", "is_part_left_out", "is_read_here", "left_out", "note_stream"]

_recorder = shared_recorder()
_knows = _recorder.knows


class LeftOut:
    """A root that is not looked at. The recorder does not know of it, but for a while after its end.

    Args:
        span_id: its id.

    Attributes:
        runs: whether its span has not ended.
    """

    __slots__ = ("runs", "span_id")

    def __init__(self, span_id: str) -> None:
        self.span_id = span_id
        self.runs = True

    def end(self) -> None:
        """Note that its span has ended. What it streams, or has others do, may go on."""
        self.runs = False
        _recorder.remember([self.span_id])


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
    if root is None or _knows(parent_id):
        return False
    if root.runs or parent_id == root.span_id:
        return root.runs or _recorder.has_ended(parent_id)
    return _recorder.has_ended(root.span_id) and not _recorder.has_ended(parent_id)  # which was another turn's


def is_inside_left_out() -> bool:
    """Whether the calling code runs inside of a turn that is not looked at."""
    return is_part_left_out(active_span_id.get()) or is_read_here()


# --------------------------------------------------------------------------- streamed answers

_streams: dict[int, weakref.ref[Any]] = {}
"""Streamed answers of such turns, by the ``id`` of their frame: a generator runs in its reader's context, which need
not know of the turn, but wherever it runs it stands on the thread's stack. So none of its pieces costs anything."""


def note_stream(stream: Any) -> bool:
    """Keep in mind that a generator writes the answer of such a turn; returns False if it is no plain generator."""
    frame = _frame_of(stream)
    if frame is None:
        return type(stream) in (GeneratorType, AsyncGeneratorType)  # it was read to its end
    key = id(frame)
    if key in _streams and _is_streams(frame):
        return True

    def forget(reference: weakref.ref[Any]) -> None:
        if _streams.get(key) is reference:
            _streams.pop(key, None)

    _streams[key] = weakref.ref(stream, forget)
    return True


def is_read_here() -> bool:
    """Whether the calling code is called by such a generator."""
    return bool(_streams) and any(map(_is_streams, _stack()))


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_streams(frame: FrameType) -> bool:
    reference = _streams.get(id(frame))
    return reference is not None and _frame_of(reference()) is frame  # and not one that lies where another has lain


def _frame_of(stream: Any) -> FrameType | None:
    kind = type(stream)
    if kind is GeneratorType:
        frame: FrameType | None = stream.gi_frame
    else:
        frame = stream.ag_frame if kind is AsyncGeneratorType else None
    return frame
