"""What a run of LlamaIndex knows besides the fields of every run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rageval_hooks.integrations.capture.recorder import Run
from rageval_hooks.turn import Passage

Snapshot = tuple[Passage, ...]
"""Nodes at one moment. Rerankers and postprocessors change nodes in place."""

StreamKey = tuple[str, Hashable]
"""The source of the stream (``answer``, ``writer`` or ``llm``), and the identity of the stream."""


@dataclass
class OpenStreams:
    """The streams that a root waits for.

    No lock: several threads may see that a turn is over, and ``streams.end`` ends it once.
    """

    open: set[StreamKey] = field(default_factory=set)
    finished: set[StreamKey] = field(default_factory=set)
    span_ended: bool = False
    models_count: bool = False

    @property
    def turn_is_over(self) -> bool:
        """True if nothing of the answer is still streamed."""
        return self.span_ended and not any(self.models_count or kind != "llm" for kind, _ in tuple(self.open))


@dataclass(eq=False, kw_only=True)
class LlamaIndexRun(Run):
    """A run of LlamaIndex.

    Attributes:
        instance: the component that runs.
        nodes_before: what a reranker or a synthesizer was given.
        nodes_after: what a retriever or a reranker returned; None until it has.
        model: of a model call: the model, as the event of the call's start describes it.
        options: of a model call: its further arguments.
        inner_call: the id of the model call inside the run that has no span of its own, while it goes on.
        cancelled: True if the user has cancelled the workflow.
        streams: of a root, what it waits for.
    """

    instance: Any = None
    nodes_before: Snapshot = ()
    nodes_after: Snapshot | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    inner_call: Hashable | None = None
    cancelled: bool = False
    streams: OpenStreams = field(default_factory=OpenStreams)

    def is_of_same_component(self, other: Run) -> bool:
        """Return True if another run is of the same component."""
        return isinstance(other, LlamaIndexRun) and other.instance is self.instance
