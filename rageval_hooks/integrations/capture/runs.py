"""The record of a turn: its runs, the recording that holds them, and the framework that reported them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Span, SpanContext

from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.runtime.sizes import size_of
from rageval_hooks.turn import Turn


@dataclass(frozen=True, eq=False)
class Framework:
    """A framework, as the recorder sees it.

    Attributes:
        name: as shown on the turn.
        turn_of: the pure function that builds a turn from the framework's runs, the outermost run first.
        ambient: returns the id of the framework's run that the calling code is in; None outside of any run.
        text_id: converts the recorder's id of a run into the framework's id, as text.
        texts_of: returns the texts of the passages in the output of a retriever or reranker.
        join: builds one turn of a root's turn and the turns of the other frameworks' outermost runs inside it. None if
            the inner runs are only details of what the root does.
        continues_unsampled: returns True if the calling code belongs to a sampled-out turn whose runs have ended, for
            example because a streamed answer is still being read. A run of another framework is then no new turn.
    """

    name: str
    turn_of: Callable[..., Turn]
    ambient: Callable[[], Hashable | None]
    text_id: Callable[[Any], str] = str
    texts_of: Callable[[Any], Sequence[str]] = lambda _: ()
    join: Callable[[Turn, Sequence[Turn]], Turn] | None = None
    continues_unsampled: Callable[[], bool] = lambda: False


@dataclass(eq=False)
class Run:
    """One run of a framework's component. It holds references: nothing is copied or formatted.

    Attributes:
        id: the recorder's id of the run; :attr:`text_id` is the framework's id.
        parent: the enclosing run, possibly of another framework; None for the root.
        framework: the framework that reported the run.
        kind: the framework's kind of run. ``retriever``, ``reranker``, ``llm`` and ``tool`` mean the same in all.
        name: the component's name.
        input: the component's input.
        started_at: nanoseconds since the epoch.
        ended_at: nanoseconds since the epoch; None while it runs.
        output: the component's output.
        error: the exception that ended the run.
        metadata: what the framework or the application attached.
        details: further values that only some kinds have, by name.
        tokens: streamed pieces of text, in order; None if nothing was streamed.
        first_token_at: nanoseconds since the epoch.
    """

    id: Hashable
    parent: Run | None
    framework: Framework
    kind: str
    name: str
    input: Any
    started_at: int
    ended_at: int | None = None
    output: Any = None
    error: BaseException | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    tokens: list[str] | None = None
    first_token_at: int | None = None

    @property
    def text_id(self) -> str:
        """The framework's id of the run, as text."""
        return self.framework.text_id(self.id)

    @property
    def size(self) -> int:
        """About how many bytes its values take in memory."""
        return size_of((self.input, self.output, self.metadata, self.tokens))

    def ancestors(self) -> Iterator[Run]:
        """Yield the enclosing runs, the nearest first."""
        run = self.parent
        while run is not None:
            yield run
            run = run.parent


@dataclass(eq=False)
class Recording:
    """The runs under one root.

    Attributes:
        root: the outermost run.
        owner: the pipeline that receives the turn.
        selection: the turn's sampling decision and its position in the trace.
        opened_at: when it began, in nanoseconds of a clock that never jumps.
        clock_offset: nanoseconds from the times of that clock to times since the epoch, when the recording began.
        runs: the recorded runs by start time, the root first. Only the root if the turn was sampled out.
        ids: the ids in the recorder's table that belong to this recording, the root's first.
        dropped: runs that were not recorded because there were too many.
        closed: True once the recording is leaving the table.
        other_span: the span that another tracer has made for the root.
        other_context: the context of the first span that another tracer has made for a run below the root.
    """

    root: Run
    owner: Pipeline
    selection: TurnContext
    opened_at: int = 0
    clock_offset: int = 0
    runs: list[Run] = field(init=False)
    ids: dict[Hashable, None] = field(init=False)
    dropped: int = 0
    closed: bool = False
    other_span: Span | None = None
    other_context: SpanContext | None = None

    def __post_init__(self) -> None:
        self.runs = [self.root]
        self.ids = {self.root.id: None}

    @property
    def size(self) -> int:
        """About how many bytes its runs keep in memory."""
        return sum(run.size for run in self.runs)

    @property
    def streamed(self) -> bool:
        """True if the root's output is a stream, which its reader may abandon while runs continue."""
        return bool(self.root.details.get("streamed"))


Entry = tuple[Recording, Run | None]
"""A row of the recorder's table: the recording that a run belongs to, and the run unless it is not recorded."""
