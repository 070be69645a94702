"""LlamaIndex as a framework of the shared recorder: the current span, and how its turns are built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.capture.runs import Framework, Run
from rageval_hooks.integrations.llama_index.passages import EarlierTools
from rageval_hooks.integrations.llama_index.turn_building import turn_from_events
from rageval_hooks.turn import Turn

__all__ = ["FRAMEWORK"]

_recorder = shared_recorder()


def _continues_an_unsampled_turn() -> bool:
    """Return True if the calling code belongs to a sampled-out turn whose root span has ended.

    A streamed answer is read after that. The model may then call a chain of another framework.
    """
    span_id = active_span_id.get()
    return span_id is not None and not _recorder.knows(span_id) and _recorder.ended.goes_on(span_id)


def _texts_of(nodes: Any) -> list[str]:
    return [node.get_content() for node in nodes or ()]


_earlier = EarlierTools()


def _turn_of(runs: Sequence[Run], **options: Any) -> Turn:
    turn = turn_from_events(runs, earlier=_earlier, **options)
    _earlier.remember(runs)
    return turn


FRAMEWORK = Framework(
    "llama_index",
    _turn_of,
    active_span_id.get,
    texts_of=_texts_of,
    continues_unsampled=_continues_an_unsampled_turn,
)
_recorder.join(FRAMEWORK)
