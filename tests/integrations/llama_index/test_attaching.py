"""Detaching leaves nothing behind. What is attached, and when, is tested in tests/e2e/integrations/llama_index."""

from __future__ import annotations

from llama_index_instrumentation import get_dispatcher

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter


def test_the_dispatcher_is_left_as_it_was() -> None:
    """After the shutdown LlamaIndex has no handler of ours. Attaching twice adds each handler once."""
    dispatcher = get_dispatcher()
    before = (list(dispatcher.span_handlers), list(dispatcher.event_handlers))
    for sample_rate in (1.0, 0.5):
        handle = rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()], sample_rate=sample_rate)
        assert len(dispatcher.span_handlers) == len(before[0]) + 1
        assert len(dispatcher.event_handlers) == len(before[1]) + 1
    handle.shutdown()

    assert all(a is b for a, b in zip(dispatcher.span_handlers, before[0], strict=True))
    assert all(a is b for a, b in zip(dispatcher.event_handlers, before[1], strict=True))
