"""LlamaIndex as the recorder knows it."""

from __future__ import annotations

from llama_index_instrumentation.span import active_span_id

from rageval_hooks.integrations.capture.recorder import Framework, shared_recorder
from rageval_hooks.integrations.llama_index.events import turn_from_events
from rageval_hooks.integrations.llama_index.unsampled import is_inside_left_out

__all__ = ["FRAMEWORK"]


FRAMEWORK = Framework("llama_index", turn_from_events, active_span_id.get, is_inside_left_out)
shared_recorder().join(FRAMEWORK)
