"""The recorder of runs, shared by all integrations: where a run belongs, which runs are in progress, and how they end.

A ``Recording`` has the runs under one root. ``EndedRuns`` remembers which runs have ended, so that what they start
afterwards is recognized.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakSet

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, set_span_in_context

from rageval_hooks.integrations.capture.recent_searches import RecentSearch
from rageval_hooks.integrations.capture.values import is_a, or_else
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.interrupts import is_interrupt
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.narrowing import size_of
from rageval_hooks.turn import GuardOutcome, Turn


@dataclass(eq=False, kw_only=True)
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
        tokens: streamed pieces of text, in order; None if nothing was streamed.
        first_token_at: nanoseconds since the epoch.
        span_id: the id of the span that another tracer has made for the run.
        span_tracer: the name of that tracer.
        streamed: True for a root whose output is a stream, which its reader may abandon while runs continue.
        searches_before: of a root, the searches shortly before it.
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
    tokens: list[str] | None = None
    first_token_at: int | None = None
    span_id: str | None = None
    span_tracer: str | None = None
    streamed: bool = False
    searches_before: Sequence[RecentSearch] = ()

    @property
    def text_id(self) -> str:
        """The framework's id of the run, as text."""
        return str(self.id)

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


@dataclass(frozen=True, eq=False)
class Framework:
    """A framework, as the recorder sees it.

    Attributes:
        name: as shown on the turn.
        turn_of: the pure function that builds a turn from the framework's runs, the outermost run first.
        ambient: returns the id of the framework's run that the calling code is in; None outside of any run.
        texts_of: returns the texts of the passages in the output of a retriever or reranker.
        join: builds one turn of a root's turn and the turns of the other frameworks' outermost runs inside it. None if
            the inner runs are only details of what the root does.
        given_text: returns all text that a run received, for example the prompt of a model.
        returned_text: returns all text that a run returned, for a model also its thoughts and the arguments of its tool
            calls.
        find_span: returns the span that another tracer has made for a run, by the run's id. For a root that is about to
            start the recording is None. Never raises.
        run_class: the class of its runs: a run of a framework may know more than a :class:`Run`.
    """

    name: str
    turn_of: Callable[..., Turn]
    ambient: Callable[[], Hashable | None]
    texts_of: Callable[[Any], Sequence[str]] = lambda _: ()
    join: Callable[[Turn, Sequence[Turn]], Turn] | None = None
    given_text: Callable[[Run], str] = lambda _: ""
    returned_text: Callable[[Run], str] = lambda _: ""
    find_span: Callable[[Any, Recording | None], Span | None] = lambda _run_id, _recording: None
    run_class: type[Run] = Run


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
        reporters: the pipelines of the handlers that have reported the root.
        mixed: True if several calls at the same time have the root's id, so that their runs cannot be told apart.
        guard: what a guard has done with the answer; None without a guard.
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
    reporters: list[Pipeline] = field(default_factory=list)
    mixed: bool = False
    guard: GuardOutcome | None = None
    other_span: Span | None = None
    other_context: SpanContext | None = None

    def __post_init__(self) -> None:
        self.runs = [self.root]
        self.ids = {self.root.id: None}

    @property
    def size(self) -> int:
        """About how many bytes its runs keep in memory."""
        return sum(run.size for run in self.runs)

    def not_submitted(self, error: BaseException) -> None:
        """Raise an interrupt that came before the turn was submitted, and count the turn as dropped.

        After any other exception the pipeline builds the turn again, and counts the failure.
        """
        if not isinstance(error, Exception) or is_interrupt(error):
            self.owner.count_dropped("interrupted")
            raise error


Entry = tuple[Recording, Run | None]
"""A row of the recorder's table: the recording that a run belongs to, and the run unless it is not recorded."""


_logger = logging.getLogger(__name__)

_PARTS = frozenset(
    {"llm", "retriever", "reranker", "tool", "embedding", "prompt", "parser", "synthesizer", "model", "writer"}
)
"""Kinds of runs that are usually part of a turn. One that starts late is not a new turn."""

_FINDERS = frozenset({"retriever", "reranker"})
"""Kinds of runs whose output is passages."""


@or_else(())
def _texts_found(run: Run) -> Sequence[str]:
    return run.framework.texts_of(run.output)


_SAMPLED_OUT = TurnContext(
    context=Context(), trace_id=0, span_id=0, parent_span_id=0, flags=0, selected=False, probability=0.0
)

_UNKNOWN = (None, None)
"""Stands for the entry of a run that is not in the table."""


class Recorder:
    """The runs in progress by id. Safe to use from any thread, and from finalizers: it takes no locks.

    A run is in the table from its start until its root ends. Then all runs of that root are removed, whether they have
    ended or not, because cancelled runs never report an end. Runs of sampled-out turns are in the table without a
    record, so that whatever happens inside such a turn is recognized as part of it.

    Args:
        max_runs: runs recorded under one root; later ones are dropped.
        max_open: open roots; beyond that number the oldest is abandoned.
        max_age: seconds after which a root that has not ended is abandoned.
        clock: nanoseconds, by a clock that never jumps. All times of a turn come from it, moved to the time at which
            the turn began.
        wall_clock: nanoseconds since the epoch.

    Attributes:
        knows: returns True if the run with this id is in the table. It is the dictionary's own method, for speed.
        ended: the runs that have ended recently.
        given_up: number of abandoned roots.
        guards: the guards of the process. While there is one, the runs of sampled-out turns are recorded too: they are
            not evaluated, but the guard needs their passages.
    """

    def __init__(
        self,
        *,
        max_runs: int = 10_000,
        max_open: int = 10_000,
        max_age: float = 3600.0,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.max_runs = max_runs
        self.max_open = max_open
        self.max_age_ns = int(max_age * 1e9)
        self.clock = clock
        self.wall_clock = wall_clock
        self.guards: WeakSet[object] = WeakSet()
        self.frameworks: list[Framework] = []
        self.ended = EndedRuns(clock)
        self.given_up = 0
        self._limited_log = RateLimitedLogger(_logger)
        self._table: dict[Hashable, Entry] = {}
        self._open: dict[Hashable, Recording] = {}
        self._memory: dict[Hashable, int] = {}
        self.knows = self._table.__contains__
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget all runs: they go on in the parent process."""
        self._table.clear()
        self._open.clear()
        self._memory.clear()
        self.ended.clear()

    def __len__(self) -> int:
        """Return the number of runs in the table."""
        return len(self._table)

    def join(self, framework: Framework) -> None:
        """Register a framework, so that runs of other frameworks inside its runs belong to the same turn."""
        if framework not in self.frameworks:
            self.frameworks.append(framework)

    def get(self, run_id: Hashable) -> Run | None:
        """Return the record of a run in progress; None if it is unknown or not recorded."""
        return self._table.get(run_id, _UNKNOWN)[1]

    def recording(self, run_id: Hashable) -> Recording | None:
        """Return the recording of a run in progress; None if it is unknown or not recorded."""
        recording, run = self._table.get(run_id, _UNKNOWN)
        return None if run is None else recording

    def around(self, run_id: Hashable) -> Recording | None:
        """Return the recording of a run in progress, also of a turn that was sampled out; None if it is unknown."""
        entry = self._table.get(run_id)
        return None if entry is None else entry[0]

    def open_roots(self) -> list[Run]:
        """Return the roots in progress."""
        return [recording.root for recording in list(self._open.values())]

    def surrounding(self, framework: Framework | None) -> Entry | None:
        """Return the run of another framework that the calling code is in."""
        for other in self.frameworks:
            around = None if other is framework else self._table.get(other.ambient())
            if around is not None:
                return around
        return None

    # --------------------------------------------------------------------------- starts

    def start(
        self,
        owner: Pipeline,
        run_id: Hashable,
        parent_id: Hashable | None,
        *,
        framework: Framework,
        kind: str,
        name: str,
        input: Any,
        explicit: bool = False,
        standalone: bool = True,
        selected: bool | None = None,
        streamed: bool = False,
    ) -> Run | None:
        """Record that a run has started.

        Args:
            owner: the pipeline of the handler that reports the run.
            run_id: the framework's id.
            parent_id: the id of the enclosing run, as the framework sees it.
            framework: the framework that reports the run. A run of another framework may enclose it more closely.
            kind: the framework's kind.
            name: the component's name.
            input: the component's input.
            explicit: True if the handler was attached to this chain; its pipeline then receives the turn.
            standalone: False if the run cannot be a turn by itself. As a root it counts as sampled out.
            selected: the sampling decision if the run is a root that resumes an earlier turn; None to decide now.
            streamed: True for a root whose output is a stream.

        Returns:
            The new record. None if there is nothing to record: another handler has recorded the run, its turn was
            sampled out, or its root has ended.
        """
        around = self._table.get(parent_id)
        # Most runs are inside a known run of the only framework. They need none of the rules in _place.
        if around is None or explicit or run_id in self._table or len(self.frameworks) > 1:
            placed = self._place(owner, run_id, parent_id, framework=framework, explicit=explicit, part=kind in _PARTS)
            if placed is None:
                return None
            if placed == "root":
                root = framework.run_class(
                    id=run_id,
                    parent=None,
                    framework=framework,
                    kind=kind,
                    name=name,
                    input=input,
                    started_at=self.wall_clock(),
                    streamed=streamed,
                )
                context = otel_context.get_current()
                # The turn is sampled like another tracer's span. Most tracers do not make their spans current.
                if (span := framework.find_span(run_id, None)) is not None:
                    context = set_span_in_context(span, context)
                selection = owner.begin(context, selected=selected) if standalone else _SAMPLED_OUT
                now = self.clock()
                recording = Recording(root, owner, selection, opened_at=now, clock_offset=root.started_at - now)
                recording.reporters.append(owner)
                self._give_up_the_oldest(now)
                self._open[run_id] = recording
                recorded = root if selection.selected or self.guards else None
                self._table[run_id] = (recording, recorded)
                return recorded
            around = placed

        recording, parent = around
        run = None
        if parent is not None and len(recording.runs) < self.max_runs:
            run = framework.run_class(
                id=run_id,
                parent=parent,
                framework=framework,
                kind=kind,
                name=name,
                input=input,
                started_at=self.clock() + recording.clock_offset,
            )
            recording.runs.append(run)
        elif recording.selection.selected:
            recording.dropped += 1
            if recording.dropped == 1:
                self._limited_log.warn(
                    "dropped runs",
                    "a turn has more than %d runs; the later ones are not recorded [RAGEVAL-210]",
                    self.max_runs,
                )

        recording.ids[run_id] = None
        self._table[run_id] = (recording, run)
        if recording.closed:  # another thread has just ended the root
            self.ended.add([run_id])
            self._table.pop(run_id, None)
            return None
        return run

    def _place(
        self,
        owner: Pipeline,
        run_id: Hashable,
        parent_id: Hashable | None,
        *,
        framework: Framework,
        explicit: bool,
        part: bool,
    ) -> Entry | Literal["root"] | None:
        """Find the run that encloses a run that is about to start.

        Args:
            owner: the pipeline of the handler that reports the run.
            run_id: its id.
            parent_id: the id of the enclosing run, as the framework sees it.
            framework: the framework that reports the run.
            explicit: True if the handler was attached to this chain.
            part: True if the run's kind is usually part of a turn: a late one is not a new turn.

        Returns:
            The enclosing run's entry, ``"root"`` if no run encloses it, or None if the run is not to be recorded.
        """
        seen = self._table.get(run_id)
        if seen is not None:
            recording = seen[0]
            if run_id == recording.root.id and owner in recording.reporters:
                self._note_same_id(recording)
                return None
            # Two handlers report the same run. The turn belongs to the explicit one.
            recording.reporters.append(owner)
            if explicit:
                recording.owner = owner
            return None

        around = self._table.get(parent_id)
        is_late = self.ended.goes_on(parent_id) or (part and parent_id in self.ended)
        if around is None and is_late:
            self.ended.add([run_id])  # for the runs that it starts in turn
            return None

        # A run of another framework may be inside the one that this framework sees around it.
        foreign = self.surrounding(framework)
        inner = None if foreign is None else foreign[1]
        if around is None or (inner is not None and any(outer is around[1] for outer in inner.ancestors())):
            around = foreign
        if around is None:
            return "root"
        if explicit:
            around[0].owner = owner
        return around

    def _note_same_id(self, recording: Recording) -> None:
        """Count a call with the id of another one that has not ended: its runs would be in the other one's turn."""
        if recording.selection.selected:
            recording.mixed = True
            recording.owner.count_dropped("same_run_id")
            self._limited_log.warn(
                "same run id",
                "calls of %r at the same time have one run_id, so their runs cannot be told apart: they are not "
                "evaluated; give each call its own run_id [RAGEVAL-221]",
                recording.root.name,
            )

    # --------------------------------------------------------------------------- tokens and ends

    def token(self, run_id: Hashable, text: str) -> None:
        """Record a streamed piece of text."""
        recording, run = self._table.get(run_id, _UNKNOWN)
        if recording is None or run is None or not text:
            return
        # A list is appended to, because joining the text for each piece would take quadratic time.
        if run.tokens is not None:
            run.tokens.append(text)
        else:
            run.tokens = [text]
            run.first_token_at = self.clock() + recording.clock_offset

    def end(self, run_id: Hashable, output: Any, error: BaseException | None = None) -> Recording | None:
        """Record that a run has ended.

        Returns:
            The recording, if this was its root and the turn was sampled. It is returned once, and is out of the table.
        """
        recording, run = self._table.get(run_id, _UNKNOWN)
        if recording is None:
            return None
        root = recording.root
        if run is None and run_id == root.id:
            root.error = error
            root.ended_at = self.clock() + recording.clock_offset
            return self._close(recording)
        if run is None:  # only its id was kept
            # Removed at once, so that an endless turn does not fill the table.
            self.ended.add([run_id], completed=error is None and not recording.root.streamed)
            recording.ids.pop(run_id, None)
            self._table.pop(run_id, None)
            return None

        # The first of several handlers that report the end is as good as the others.
        if run.ended_at is None:
            run.output = output
            run.error = error
            run.ended_at = self.clock() + recording.clock_offset
            if run.kind in _FINDERS and error is None and run is not root:
                # Its passages are analysed in the background while the turn continues. The builder of the turn reads
                # the same output with more care. A sampled-out turn may be recorded for a guard.
                if recording.selection.selected:
                    query = run.input if is_a(run.input, str) else ""
                    recording.owner.prepare(recording.selection, query, _texts_found(run))
                # Its reader may leave a stream open for long, and with it the passages.
                if recording.root.streamed:
                    self.count_memory(recording, run.size)
        return self._close(recording) if run is root else None

    def count_memory(self, recording: Recording, size: int) -> None:
        """Count what a turn keeps in memory while its answer is streamed. The oldest are abandoned if it is too much.

        Args:
            recording: the turn.
            size: further bytes.
        """
        self._memory[recording.root.id] = self._memory.get(recording.root.id, 0) + size
        most = recording.owner.settings.queue_max_mb * 2**20
        # Copies: other threads change the dictionary.
        while len(sizes := dict(self._memory)) > 1 and sum(sizes.values()) > most:
            oldest = self._open.get(next(iter(sizes)))
            self._memory.pop(next(iter(sizes)), None)
            if oldest is not None:
                self._give_up(oldest, f"{len(sizes)} turns wait for their streams, with more than {most / 2**20:g} MiB")

    def forget(self, owner: Pipeline) -> None:
        """Remove all runs whose turns a pipeline would receive: it accepts no more."""
        for recording in list(self._open.values()):
            if recording.owner is owner:
                self._close(recording)

    def abandon(self, run_id: Hashable) -> None:
        """Drop the turn of a root whose end will not be reported: an interrupt came while we recorded it."""
        recording = self._open.get(run_id)
        if recording is not None and self._close(recording) is not None:
            recording.owner.count_dropped("interrupted")
            self.ended.forget(recording.ids)  # what starts next is a turn, although a context may name this one

    def _close(self, recording: Recording) -> Recording | None:
        self._memory.pop(recording.root.id, None)
        # Before the ids are copied: a run that another thread adds now removes itself again.
        recording.closed = True
        ids = list(recording.ids)
        self.ended.add(ids)
        # The reader of a stream may have left early, while branches of the chain still run.
        if not recording.root.streamed and not recording.mixed:
            whole = (run.id for run in recording.runs if run.ended_at is not None and run.error is None)
            self.ended.add(whole, completed=True)
        for run_id in ids:
            self._table.pop(run_id, None)
        # At last, so that a turn whose end is interrupted is abandoned later. Another handler may have closed it.
        is_open = self._open.pop(recording.root.id, None) is not None
        if is_open and recording.mixed:
            recording.owner.count_dropped("same_run_id")
        return recording if is_open and recording.selection.selected and not recording.mixed else None

    def _give_up_the_oldest(self, now: int) -> None:
        """Abandon roots that are too old, or too many: a cancelled call may never report its end."""
        while self._open:
            try:
                oldest = next(iter(self._open.values()))
            except (RuntimeError, StopIteration):  # another thread has changed the table
                return
            if len(self._open) < self.max_open and now - oldest.opened_at <= self.max_age_ns:
                return
            age = (now - oldest.opened_at) // 1_000_000_000
            self._give_up(oldest, f"{len(self._open)} open runs, {age} s old")

    def _give_up(self, recording: Recording, why: str) -> None:
        """Abandon a root that has not ended."""
        if self._close(recording) is None:
            return
        self.given_up += 1
        recording.owner.count_dropped("not_ended")
        self._limited_log.warn(
            "given up", "the run %r never ended and is abandoned (%s) [RAGEVAL-211]", recording.root.name, why
        )


# --------------------------------------------------------------------------- runs that have ended

_REMEMBERED = 16_384
"""Ids of ended runs that are kept."""

_STRAGGLING_NS = 120 * 1_000_000_000
"""For this long after a turn has ended, runs started by its unfinished runs still count as part of it."""


class EndedRuns:
    """The ids of runs that have ended, or whose turn has, with the time of the end. Takes no locks.

    A run that starts under one of them soon afterwards is not a new turn: a branch that continues after another has
    failed, or a stream that its reader has left. But a run that starts after its parent has completed is not part of
    the old turn. It may come from a worker of the application, which keeps the context it was started in.

    Args:
        clock: nanoseconds, by a clock that never jumps.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        # Ordered, because a plain dictionary scans the slots of removed entries to find its first one.
        self._ended: OrderedDict[Hashable, int] = OrderedDict()
        self.clear = self._ended.clear

    def add(self, ids: Iterable[Hashable], *, completed: bool = False) -> None:
        """Keep the ids of runs that have ended, or whose turn has; ``completed``: without an exception."""
        self._ended.update(dict.fromkeys(ids, _COMPLETED if completed else self._clock()))
        with suppress(KeyError):  # another thread has removed the last one
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)

    def forget(self, ids: Iterable[Hashable]) -> None:
        """Remove the ids of runs."""
        for run_id in ids:
            self._ended.pop(run_id, None)

    def __contains__(self, run_id: Hashable) -> bool:
        """Return True if a run belongs to a turn that ended recently."""
        return run_id in self._ended

    def goes_on(self, run_id: Hashable) -> bool:
        """Return True if a run belongs to a turn that ended recently, and may itself still be running."""
        # An id that is unknown counts as completed: whatever starts under it is a new turn.
        ended_at = self._ended.get(run_id, _COMPLETED)
        return ended_at != _COMPLETED and self._clock() - ended_at < _STRAGGLING_NS


_COMPLETED = 0
"""Recorded in place of the end time for runs that completed. Whatever starts under them later is a new turn."""


_SHARED = Recorder()


def shared_recorder() -> Recorder:
    """Return the process's recorder. All handlers and frameworks share it, so that what they see is one turn."""
    return _SHARED
