"""A turn: one question, what was retrieved for it, and the answer. Plain data that round-trips through JSON."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Literal

from pydantic import Field

from rageval_hooks.messages import Message, PromptTemplate, ToolCall
from rageval_hooks.runtime.jsonable import Data, Metadata, Text
from rageval_hooks.turn_parts import (
    ErrorInfo,
    Passage,
    SpanReference,
    Step,
    StepKind,
    Timing,
    Usage,
    UsageSource,
)

__all__ = [
    "ErrorInfo",
    "Message",
    "Passage",
    "PromptTemplate",
    "SpanReference",
    "Step",
    "StepKind",
    "Timing",
    "ToolCall",
    "Turn",
    "TurnStatus",
    "Usage",
    "UsageSource",
]

_BARE_TURN_BYTES = 2_000
"""A turn without texts."""


TurnStatus = Literal["ok", "error", "cancelled", "interrupted"]
_RETRIEVAL_KINDS = ("retriever", "reranker", "embedding")
_PLUMBING_KINDS = ("chain", "prompt", "parser")


class Turn(Data):
    """One question, what was retrieved for it, and the answer.

    Attributes:
        id: unique; the framework's own run id where there is one.
        query: the user's question.
        passages: the retrieved passages, in the order of the prompt or of the retriever. Those of earlier turns that
            are in the prompt again come last, marked with ``from_turn``.
        response: the answer; empty without one.
        retrieval_queries: queries of retrievers that differ from the user's question, for example rewritten ones.
        reference: a known good answer, for offline evaluation.
        prompt: the final prompt of the model call that wrote the answer.
        usage: tokens of all model calls of the turn together.
        model: the model that wrote the answer.
        timing: how long it took.
        span: its place in a trace.
        steps: the retrievers, model calls and tools inside it, by start time.
        status: how it ended; ``cancelled`` includes a stream that its reader closed early.
        complete: False if the response is only the beginning of the answer. Metrics of the response are then skipped.
        first_half_missing: True if the turn resumes a graph that had waited for a person, and what the graph did before
            is not known: it ran in another process, or too long ago.
        error: the exception that ended it.
        name: name of the chain, agent or query engine.
        framework: the name of the integration that captured it, for example ``langchain``; None without one.
        session_id: the id of the conversation.
        user_id: the application's id of the user.
        metadata: whatever else the application attached.
    """

    id: Text = ""
    query: Text = ""
    passages: tuple[Passage, ...] = ()
    response: Text = ""
    retrieval_queries: tuple[Text, ...] = ()
    reference: Text | None = None
    prompt: tuple[Message, ...] = ()
    usage: Usage | None = None
    model: Text | None = None
    timing: Timing | None = None
    span: SpanReference | None = None
    steps: tuple[Step, ...] = ()
    status: TurnStatus = "ok"
    complete: bool = True
    first_half_missing: bool = False
    error: ErrorInfo | None = None
    name: Text = "turn"
    framework: Text | None = None
    session_id: Text | None = None
    user_id: Text | None = None
    metadata: Metadata = Field(default_factory=dict)

    @property
    def prompt_passages(self) -> tuple[Passage, ...]:
        """The passages that the answering model saw.

        Metrics about the answer use these, metrics about retrieval use all.
        """
        return tuple(passage for passage in self.passages if passage.seen_by_model)

    @property
    def retrieved(self) -> tuple[Passage, ...]:
        """The passages of this turn, without those of earlier turns, which come after them."""
        return tuple(passage for passage in self.passages if passage.from_turn is None)

    @property
    def has_retrieval(self) -> bool:
        """True if this turn has passages of its own, or a retriever ran without a result."""
        return bool(self.retrieved) or any(step.kind in _RETRIEVAL_KINDS for step in self.steps)

    @property
    def is_rag(self) -> bool:
        """True if an answer was to be written from retrieved passages. A search alone is not RAG."""
        if self.first_half_missing and self.response:
            return True  # the first half may have retrieved something: metrics say what they lack
        if not self.has_retrieval:
            return False
        # Chains, prompts and parsers say nothing, and are recorded with spans="all" only.
        kinds = {step.kind for step in self.steps}.difference(_PLUMBING_KINDS)
        if self.response or self.status != "ok":
            return True
        # A tool that is called by itself, without a model, only searches too.
        only_searches = bool(kinds) and kinds.issubset((*_RETRIEVAL_KINDS, "tool"))
        return not only_searches

    def step_span_id(self, step: Step) -> str | None:
        """Return the id of a step's span as 16 hex digits; None if no span of the step is known.

        If another tracer created the span, it is that tracer's id. Ids of our own spans are derived from the ids of
        the turn's span and of the step, so that any process that has the turn can name the span.
        """
        if step.span_id is not None:
            return step.span_id
        if self.span is None or self.span.external:
            return None
        return blake2b(f"{self.span.span_id}/{step.id}".encode(), digest_size=8).hexdigest()

    def locate_passage(self, index: int) -> tuple[Step, int] | None:
        """Return the step that found a passage of the context, and the passage's position among what it found.

        Args:
            index: position of the passage in :attr:`passages`.

        Returns:
            The outermost such step, the first of several; None if no step found it.
        """
        wanted = self.passages[index]
        for step in self.steps:
            for position, passage in enumerate(step.passages):
                if (passage.id, passage.text) == (wanted.id, wanted.text):
                    return step, position
        return None

    @property
    def size(self) -> int:
        """About how many bytes the turn takes in memory: its texts and those of its steps."""
        # The passages of a step are those of the turn, or a few more.
        return _BARE_TURN_BYTES + sum(map(len, self.texts())) + sum(step.size for step in self.steps)

    def texts(self) -> Iterator[str]:
        """Yield the texts that metrics read: query, response and passages."""
        yield self.query
        yield self.response
        for passage in self.passages:
            yield passage.text
