"""A turn: one question, what was retrieved for it, and the answer. Plain data that round-trips through JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, PrivateAttr

from rageval_hooks.runtime.jsonable import Data, Metadata, Text, string_of
from rageval_hooks.runtime.lazy import cached_property

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span


TurnStatus = Literal["ok", "error", "cancelled", "interrupted"]
StepKind = Literal["chain", "agent", "retriever", "reranker", "embedding", "llm", "tool", "prompt", "parser"]
UsageSource = Literal["provider", "tiktoken", "characters"]
Seconds = Annotated[float, Field(allow_inf_nan=False)]

_SEEN_SHARE = 0.5
"""A cut passage with at least this share in the prompt counts as seen by the model."""


# The beginning of an image: a data URL, or base64 of JPEG, PNG, GIF or WebP, for example "/9j/4AAQSkZJRgABAQ…".
_IMAGE = re.compile(r"\s{0,20}(data:image/|(/9j/|iVBORw0KGgo|R0lGOD|UklGR)[A-Za-z0-9+/]{40})")


class ToolCall(Data):
    """A call of a tool that a model asked for.

    Attributes:
        name: the tool's name.
        arguments: its arguments as JSON.
        id: the provider's id of the call; the message with the tool's result has the same id.
    """

    name: Text
    arguments: Text = "{}"
    id: Text | None = None


class Message(Data):
    """One message of a prompt.

    Attributes:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        content: its text. For a message with tool calls and no text, the calls as JSON.
        tool_calls: the calls of tools that an earlier answer of the model asked for.
        tool_call_id: which call a message with a tool's result answers.
        name: the name of the tool, for such a message.
    """

    role: Text
    content: Text
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Text | None = None
    name: Text | None = None


class PromptTemplate(Data):
    """The template of a prompt.

    Attributes:
        text: the template, with the names of its variables.
        variables: their values.
    """

    text: Text
    variables: dict[Text, Text] = Field(default_factory=dict)


NO_SPAN = "0" * 16
"""OpenTelemetry's id of no span: stands for the trace as a whole."""


class SpanReference(Data):
    """The span of a turn and its place in a trace.

    Attributes:
        trace_id: 32 lower-case hex digits.
        span_id: 16 lower-case hex digits: the span that the scores belong to; all zeros if only the trace is known.
        flags: W3C trace flags; bit 0 is "sampled".
        parent_span_id: 16 hex digits of the application's span around the turn, if there is one.
        parent_is_remote: True if that span is in another process.
        trace_state: the W3C tracestate header of the trace.
        baggage: the OpenTelemetry baggage of the turn. Values that are not strings are dropped.
        external: True if another tracer made the turn's span. Then only evaluation spans are added.
    """

    trace_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    span_id: str = Field(pattern=r"^[0-9a-f]{16}$")
    flags: int = Field(default=1, ge=0, le=255)
    parent_span_id: str | None = Field(default=None, pattern=r"^[0-9a-f]{16}$")
    parent_is_remote: bool = False
    trace_state: Text | None = None
    baggage: dict[Text, Text] = Field(default_factory=dict)
    external: bool = False
    # Of the process that captured the turn: not data, so without a part in comparisons.
    _context: Context | None = PrivateAttr(default=None)
    _live_span: Span | None = PrivateAttr(default=None)

    def __eq__(self, other: object) -> bool:
        """Return True if the fields are equal."""
        return isinstance(other, SpanReference) and self.__dict__ == other.__dict__

    @property
    def is_known(self) -> bool:
        """False if only the trace is known, as of feedback on a trace id."""
        return self.span_id != NO_SPAN

    @property
    def sampled(self) -> bool:
        """True if the trace is recorded: bit 0 of the flags."""
        return bool(self.flags & 1)

    @property
    def context(self) -> Context | None:
        """The OpenTelemetry context in which the turn began; None in another process than the one that captured it.

        Span processors read more from it than the fields above hold, such as the values that
        ``langfuse.propagate_attributes`` sets.
        """
        return self._context

    @property
    def live_span(self) -> Span | None:
        """The turn's span that another tracer made in this process; it may have ended."""
        return self._live_span

    def within(self, context: Context, span: Span | None = None) -> SpanReference:
        """Keep the context of the turn and another tracer's span, and return the reference itself."""
        self._context, self._live_span = context, span
        return self


class ErrorInfo(Data):
    """An exception, as data: its type's name and its message."""

    type: Text
    message: Text = ""

    @classmethod
    def of(cls, error: BaseException) -> ErrorInfo:
        """Return an exception as data."""
        return cls(type=type(error).__name__, message=string_of(error))


_EXACTNESS: tuple[UsageSource, ...] = ("characters", "tiktoken", "provider")
"""The sources of token counts, from the least exact to the most exact."""


class Usage(Data):
    """Tokens that a model read and wrote.

    Attributes:
        input_tokens: tokens read, cached ones included.
        output_tokens: tokens written.
        cache_read_tokens: input tokens that the provider served from its cache; None if it does not report them.
        cache_write_tokens: input tokens that the provider stored in its cache; None if it does not report them.
        reasoning_tokens: output tokens of the model's thoughts; None if the provider does not report them.
        source: who counted: the provider, tiktoken (an estimate for models that are not OpenAI's), or the number of
            characters (a rough estimate).
    """

    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    cache_read_tokens: int | None = Field(default=None, ge=0)
    cache_write_tokens: int | None = Field(default=None, ge=0)
    reasoning_tokens: int | None = Field(default=None, ge=0)
    source: UsageSource = "provider"

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    @classmethod
    def sum(cls, parts: Iterable[Usage | None]) -> Usage | None:
        """Add up several counts; the sum is as exact as its least exact part. None without any count."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        details = {}
        for name in ("cache_read_tokens", "cache_write_tokens", "reasoning_tokens"):
            counts = [count for part in known if (count := getattr(part, name)) is not None]
            # None means that the provider does not say, which is not 0.
            details[name] = sum(counts) if counts else None
        return cls(
            input_tokens=sum(part.input_tokens for part in known),
            output_tokens=sum(part.output_tokens for part in known),
            **details,
            source=min((part.source for part in known), key=_EXACTNESS.index),
        )

    @classmethod
    def of_steps(cls, steps: Iterable[Step]) -> Usage | None:
        """Add up the tokens of a turn's steps; None if no step has any."""
        return cls.sum(step.usage for step in steps)

    @property
    def estimated(self) -> bool:
        """True unless the provider itself reported the numbers."""
        return self.source != "provider"


class Timing(Data):
    """How long a turn took, in seconds. None for a part that the turn did not have.

    Attributes:
        started_at: nanoseconds since the epoch.
        ended_at: nanoseconds since the epoch.
        retrieval: time during which at least one retriever ran.
        generation: time during which at least one model call outside of the retrievers ran.
        time_to_first_token: from the start of the turn to the first streamed token of the answer.
        waiting: time during which a graph waited for a person. The other figures do not contain it.
    """

    started_at: int
    ended_at: int
    retrieval: Seconds | None = None
    generation: Seconds | None = None
    time_to_first_token: Seconds | None = None
    waiting: Seconds | None = None

    @property
    def total(self) -> float:
        """Seconds from the start of the turn to its end, without those in which a graph waited for a person."""
        return max(0.0, (self.ended_at - self.started_at) / 1e9 - (self.waiting or 0.0))


class Passage(Data):
    """A retrieved piece of text.

    Attributes:
        text: the text as the retriever returned it.
        id: the store's own id.
        score: the retriever's or reranker's own score, on its own scale.
        metadata: the document's metadata, as JSON-able data.
        in_prompt: True if the final prompt has the whole text, None if no prompt was captured.
        prompt_share: share of the text that the prompt has, 0..1: 0 for a dropped passage, less than 1 for a cut one.
        from_turn: None for a passage of this turn. The id of an earlier turn of the conversation that retrieved the
            passage, which is in the prompt again; ``"earlier"`` if that turn is not known. Such a passage supports the
            answer, but is not a result of this turn's retrieval.
    """

    text: Text
    id: Text | None = None
    score: float | None = Field(default=None, allow_inf_nan=False)
    metadata: Metadata = Field(default_factory=dict)
    in_prompt: bool | None = None
    prompt_share: float | None = Field(default=None, ge=0, le=1)
    from_turn: Text | None = None

    @property
    def seen_by_model(self) -> bool:
        """True if the answering model saw the passage.

        A passage counts as seen if no prompt was captured, or if at least half of it is in the prompt.
        """
        # The model did read the rest of a cut passage; without it, a correct answer would look unsupported.
        mostly_shown = (self.prompt_share or 0.0) >= _SEEN_SHARE
        return self.in_prompt is not False or mostly_shown

    @property
    def is_image(self) -> bool:
        """True if the text is an image in base64 or as a data URL, which metrics of texts cannot read."""
        return _IMAGE.match(self.text) is not None


NOTHING_FOUND = "its result says that nothing was found"
"""The value of :attr:`Step.left_out` for a tool that searched without a result."""


class Step(Data):
    """One operation inside a turn. It becomes a child span.

    Attributes:
        id: unique within the turn.
        parent_id: the enclosing step; None directly under the turn.
        kind: the kind of operation.
        name: the component's own name.
        started_at: nanoseconds since the epoch.
        ended_at: nanoseconds since the epoch.
        input: what went in, as text: the retriever's query, the tool's arguments.
        output: what came out, as text.
        messages: a model call's prompt.
        template: what the prompt was made of, if the framework reports it.
        tool_calls: the calls of tools that the model asked for.
        tools: the tools that the model could choose from, each as a JSON schema in OpenAI's form.
        parameters: the parameters of a model call, for example ``temperature``, by the provider's names.
        finish_reason: why the model stopped, for example ``stop`` or ``length``.
        description: what a tool says of itself.
        tool_schema: a tool's parameters, as JSON schema.
        call_id: the provider's id of the call that a tool answers.
        left_out: why a tool's result is no passage: "its name says that it acts".
        top_k: how many passages were asked for.
        data_source: the collection or the kind of store that a retriever searched.
        passages: what a retriever or reranker returned.
        model: name of the model as the provider reported it, else as the application requested it.
        request_model: name of the model that the application requested, if it is known.
        response_id: the provider's id of the completion.
        provider: the company or server that ran the model, for example ``openai``.
        usage: the model call's tokens.
        time_to_first_token: seconds from the start of this model call to its first token, when it was streamed.
        error: the exception that ended it.
        complete: False if the turn ended before this step did.
        span_id: 16 hex digits: the span that another tracer created for this step.
        span_tracer: the instrumentation scope of that tracer, for example ``openinference.instrumentation.langchain``.
    """

    id: Text
    parent_id: Text | None = None
    kind: StepKind
    name: Text
    started_at: int
    ended_at: int
    input: Text | None = None
    output: Text | None = None
    messages: tuple[Message, ...] = ()
    template: PromptTemplate | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tools: tuple[Text, ...] = ()
    parameters: Metadata = Field(default_factory=dict)
    finish_reason: Text | None = None
    description: Text | None = None
    tool_schema: Text | None = None
    call_id: Text | None = None
    left_out: Text | None = None
    top_k: int | None = None
    data_source: Text | None = None
    passages: tuple[Passage, ...] = ()
    model: Text | None = None
    request_model: Text | None = None
    response_id: Text | None = None
    provider: Text | None = None
    usage: Usage | None = None
    time_to_first_token: Seconds | None = None
    error: ErrorInfo | None = None
    complete: bool = True
    span_id: str | None = Field(default=None, pattern=r"^[0-9a-f]{16}$")
    span_tracer: Text | None = None

    @property
    def found_nothing(self) -> bool:
        """True for a tool that searched and says that it found nothing."""
        return self.left_out == NOTHING_FOUND

    @property
    def size(self) -> int:
        """The characters of its input, its output and its messages."""
        texts = (self.input, self.output, *(message.content for message in self.messages))
        return sum(len(text) for text in texts if text)


class GuardOutcome(Data):
    """What a guard did with the answer of a turn.

    Attributes:
        action: ``passed``, ``flagged``, ``replaced``, ``raised`` or ``regenerated``.
        verdict: ``supported``, ``unsupported``, ``refusal``, ``no_claims`` or ``unchecked``.
        cause: why the answer is not supported, in one word; None if it is, or if that is not known.
        reason: why; it names scores and quotes no text.
        blocked_answer: the answer that the user did not get; None if it was shown.
    """

    action: Text
    verdict: Text
    cause: Text | None = None
    reason: Text = ""
    blocked_answer: Text | None = None


_BARE_TURN_BYTES = 2_000
"""A turn without texts."""


_RETRIEVAL_KINDS = ("retriever", "reranker", "embedding")
_PLUMBING_KINDS = ("chain", "prompt", "parser")


class Turn(Data):
    """One question, what was retrieved for it, and the answer.

    Attributes:
        id: unique; the framework's own run id where there is one.
        query: the user's question.
        passages: the retrieved passages, in the order of the prompt or of the retriever. Those of earlier turns that
            are in the prompt again come last, marked with ``from_turn``.
        response: the answer as the user saw it; empty without one.
        guard: what a guard did with the answer; None without a guard.
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
        missing: why a field is empty that should not be, by its name: "the spans of Haystack do not have it: set …".
    """

    model_config = ConfigDict(ignored_types=(cached_property,))

    id: Text = ""
    query: Text = ""
    passages: tuple[Passage, ...] = ()
    response: Text = ""
    guard: GuardOutcome | None = None
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
    missing: dict[Text, Text] = Field(default_factory=dict)

    @property
    def evaluated(self) -> Turn:
        """The turn with the answer that metrics judge: what the model wrote, also if a guard has blocked it."""
        if self.guard is None or self.guard.blocked_answer is None:
            return self
        # The exception of a guard that raises ended the turn, and not the answer.
        ended = {"status": "ok", "complete": True, "error": None}
        return self.model_copy(update={**ended, "response": self.guard.blocked_answer, "guard": None})

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
        if index >= len(self.passages):  # a metric of the user may give a score a position that does not exist
            return None
        place = self._places[index]
        return place and (self.steps[place[0]], place[1])

    @cached_property
    def _places(self) -> list[tuple[int, int] | None]:
        """For each passage, the step that found it and its position there."""
        found: dict[tuple[str | None, str], tuple[int, int]] = {}
        for number, step in enumerate(self.steps):
            for position, passage in enumerate(step.passages):
                found.setdefault((passage.id, passage.text), (number, position))
        return [found.get((passage.id, passage.text)) for passage in self.passages]

    @cached_property
    def answer_id(self) -> str | None:
        """The provider's id of the completion that became the answer; None if it is not known."""
        calls = [step for step in self.steps if step.response_id is not None]
        # A later call may have nothing to do with the answer, such as one that suggests follow-up questions.
        answering = [step for step in calls if (text := (step.output or "").strip()) and text in self.response]
        return (answering or calls)[-1].response_id if calls else None

    def with_hidden_texts(self, changes: Mapping[str, Any]) -> Turn:
        """Return a copy with other texts, which knows its answer and the places of its passages all the same."""
        return self.model_copy(update={**changes, "_places": self._places, "answer_id": self.answer_id})

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
