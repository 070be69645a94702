"""The table of runs in progress, shared by all integrations of the process."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger
from rageval_hooks.turn import Turn

__all__ = ["STRAGGLING_SECONDS", "Framework", "Recorder", "Recording", "Run", "shared_recorder"]

_logger = logging.getLogger(__name__)

_REMEMBERED = 8192
"""Ids of ended runs that are kept, twice at most: see :meth:`Recorder.remember`."""

_PARTS = frozenset(
    {"llm", "retriever", "reranker", "tool", "embedding", "prompt", "parser", "synthesizer", "model", "writer"}
)
"""Kinds of runs that are usually part of a turn. One that starts late is not a new turn."""

_FINDERS = frozenset({"retriever", "reranker"})
"""Kinds of runs whose output is passages."""

STRAGGLING_SECONDS = 120
"""For this long after a turn has ended, runs started by its unfinished runs still count as part of it."""

_ENDED_WELL = 0
"""Recorded in place of the end time for runs that completed. Whatever starts under them later is a new turn."""


def _never() -> bool:
    return False


def _no_texts(_: object) -> Sequence[str]:
    return ()


@dataclass(frozen=True, eq=False)
class Framework:
    """What the recorder needs to know about one framework.

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
    texts_of: Callable[[Any], Sequence[str]] = _no_texts
    join: Callable[[Turn, Sequence[Turn]], Turn] | None = None
    continues_unsampled: Callable[[], bool] = _never


class Run:
    """One run of a framework's component. It holds references: nothing is copied or formatted.

    Attributes:
        id: the recorder's id of the run; :attr:`text_id` is the framework's id.
        parent: the enclosing run, possibly of another framework; None for the root.
        framework: the framework that reported the run.
        kind: the framework's kind of run. ``retriever``, ``reranker``, ``llm`` and ``tool`` mean the same in all.
        name: the component's name.
        started_at: nanoseconds since the epoch.
        ended_at: nanoseconds since the epoch; None while it runs.
        input: the component's input.
        output: the component's output.
        error: the exception that ended the run.
        metadata: what the framework or the application attached.
        details: further values that only some kinds have, by name.
        tokens: streamed pieces of text, in order; None if nothing was streamed.
        first_token_at: nanoseconds since the epoch.
    """

    ended_at: int | None = None
    output: Any = None
    error: BaseException | None = None
    metadata: dict[str, Any] | None = None
    details: dict[str, Any] | None = None
    tokens: list[str] | None = None
    first_token_at: int | None = None

    def __init__(
        self,
        id: Hashable,
        parent: Run | None,
        framework: Framework | None,
        kind: str,
        name: str,
        input: Any,
        started_at: int,
    ) -> None:
        self.id = id
        self.parent = parent
        self.framework = framework
        self.kind = kind
        self.name = name
        self.input = input
        self.started_at = started_at

    @property
    def text_id(self) -> str:
        """The framework's id of the run, as text."""
        return str(self.id) if self.framework is None else self.framework.text_id(self.id)

    def ancestors(self) -> Iterator[Run]:
        """Yield the enclosing runs, the nearest first."""
        run = self.parent
        while run is not None:
            yield run
            run = run.parent


class Recording:
    """The runs under one root.

    Attributes:
        root: the outermost run.
        runs: the recorded runs by start time, the root first. Only the root if the turn was sampled out.
        ids: the ids in the recorder's table that belong to this recording, the root's first.
        owner: the pipeline that receives the turn.
        selection: the turn's sampling decision and its position in the trace.
        external_span: trace id, span id and flags of a span that another instrumentation created for the root.
        closed: True once the recording is leaving the table.
        dropped: runs that were not recorded because there were too many.
    """

    __slots__ = ("closed", "dropped", "external_span", "ids", "owner", "root", "runs", "selection")

    def __init__(self, root: Run, owner: Pipeline, selection: TurnContext) -> None:
        self.root = root
        self.owner = owner
        self.selection = selection
        self.runs: list[Run] = [root]
        self.ids: dict[Hashable, None] = {root.id: None}
        self.dropped = 0
        self.closed = False
        self.external_span: tuple[int, int, int] | None = None

    @property
    def streamed(self) -> bool:
        """True if the root's output is a stream, which its reader may abandon while runs continue."""
        return bool((self.root.details or {}).get("streamed"))


Entry = tuple[Recording, Run | None]
"""A row of the recorder's table: the recording that a run belongs to, and the run unless it is not recorded."""


class Recorder:
    """The table of runs in progress. Safe to use from any thread, and from finalizers: it takes no locks.

    A run is in the table from its start until its root ends. Then all runs of that root are removed, whether they have
    ended or not, because cancelled runs never report an end. Runs of sampled-out turns are in the table without a
    record, so that whatever happens inside such a turn is recognized as part of it.

    Args:
        max_runs: runs recorded under one root; later ones are dropped.
        max_open: open roots; beyond that number the oldest is abandoned.
        max_age: seconds after which a root that has not ended is abandoned.
        clock: nanoseconds since the epoch.

    Attributes:
        knows: returns True if the run with this id is in the table. It is the table's own method, for speed.
        given_up: number of abandoned roots.
    """

    def __init__(
        self,
        *,
        max_runs: int = 10_000,
        max_open: int = 10_000,
        max_age: float = 3600.0,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.max_runs = max_runs
        self.max_open = max_open
        self.max_age_ns = int(max_age * 1e9)
        self.clock = clock
        self.frameworks: list[Framework] = []
        self.given_up = 0
        self._limited_log = RateLimitedLogger(_logger)
        self._table: dict[Hashable, Entry] = {}
        self.knows = self._table.__contains__
        self._clear()
        if hasattr(os, "register_at_fork"):
            method = weakref.WeakMethod(self._clear)
            os.register_at_fork(after_in_child=lambda: (clear := method()) and clear())

    def _clear(self) -> None:
        self._table.clear()
        self._open: dict[Hashable, Recording] = {}
        self._ended: dict[Hashable, int] = {}
        self._ended_before: dict[Hashable, int] = {}

    def join(self, framework: Framework) -> None:
        """Register a framework, so that runs of other frameworks inside its runs belong to the same turn."""
        if framework not in self.frameworks:
            self.frameworks.append(framework)

    def __len__(self) -> int:
        """Return the number of runs in the table."""
        return len(self._table)

    # --------------------------------------------------------------------------- starts

    def start(
        self,
        owner: Pipeline,
        run_id: Hashable,
        parent_id: Hashable | None,
        kind: str,
        name: str,
        input: Any,
        *,
        explicit: bool = False,
        framework: Framework | None = None,
        standalone: bool = True,
        selection: TurnContext | None = None,
        details: dict[str, Any] | None = None,
    ) -> Run | None:
        """Record that a run has started.

        Args:
            owner: the pipeline of the handler that reports the run.
            run_id: the framework's id.
            parent_id: the id of the enclosing run, as the framework sees it.
            kind: the framework's kind.
            name: the component's name.
            input: the component's input.
            explicit: True if the handler was attached to this chain; its pipeline then receives the turn.
            framework: the framework that reports the run. A run of another framework may enclose it more closely.
            standalone: False if the run cannot be a turn by itself. As a root it counts as sampled out.
            selection: the sampling decision if the run is a root; None to ask ``owner``.
            details: initial value of :attr:`Run.details`.

        Returns:
            The new record. None if there is nothing to record: another handler has recorded the run, its turn was
            sampled out, or its root has ended.
        """
        around = self._table.get(parent_id)
        if around is None or explicit or run_id in self._table or len(self.frameworks) > 1:
            placed = self._place(owner, run_id, parent_id, explicit, framework, kind in _PARTS)
            if placed is None:
                return None
            if placed == "root":
                root = Run(run_id, None, framework, kind, name, input, self.clock())
                root.details = details
                if selection is None:
                    is_turn = standalone and (explicit or not self._continues_unsampled(framework))
                    selection = owner.begin(otel_context.get_current()) if is_turn else _SAMPLED_OUT
                return self._start_root(owner, root, selection)
            around = placed
        recording, parent = around
        run = None
        if parent is not None and len(recording.runs) < self.max_runs:
            run = Run(run_id, parent, framework, kind, name, input, self.clock())
            run.details = details
            recording.runs.append(run)
        elif recording.selection.selected:
            self._count_dropped(recording)
        recording.ids[run_id] = None
        self._table[run_id] = (recording, run)
        if recording.closed:  # another thread has just ended the root
            self.remember([run_id])
            self._table.pop(run_id, None)
            return None
        return run

    def _place(
        self,
        owner: Pipeline,
        run_id: Hashable,
        parent_id: Hashable | None,
        explicit: bool,
        framework: Framework | None,
        part: bool,
    ) -> Entry | Literal["root"] | None:
        """Find the run that encloses a run that is about to start.

        Args:
            owner: the pipeline of the handler that reports the run.
            run_id: its id.
            parent_id: the id of the enclosing run, as the framework sees it.
            explicit: True if the handler was attached to this chain.
            framework: the framework that reports the run.
            part: True if the run's kind is usually part of a turn: a late one is not a new turn.

        Returns:
            The enclosing run's entry, ``"root"`` if no run encloses it, or None if the run is not to be recorded.
        """
        seen = self._table.get(run_id)
        if seen is not None and not (explicit and _sampled_out_by_another(seen, owner)):
            # Two handlers report the same run. The turn belongs to the explicit one.
            if explicit:
                seen[0].owner = owner
            return None
        around = None
        if parent_id is not None:
            around = self._table.get(parent_id)
            if around is None and self._is_late(parent_id, part):
                self.remember([run_id])  # for the runs that it starts in turn
                return None
        foreign = self.surrounding(framework)
        if around is None or (foreign is not None and _lies_within(foreign, around)):
            around = foreign
        if around is None or (explicit and _sampled_out_by_another(around, owner)):
            return "root"
        if explicit:
            around[0].owner = owner
        return around

    def _is_late(self, parent_id: Hashable, part: bool) -> bool:
        """Return True if a run with this parent belongs to a turn that has already ended."""
        return self.goes_on(parent_id) or (part and self.has_ended(parent_id))

    def _continues_unsampled(self, framework: Framework | None) -> bool:
        """Return True if the calling code is inside a sampled-out turn of another framework."""
        return any(other.continues_unsampled() for other in self.frameworks if other is not framework)

    def _start_root(self, owner: Pipeline, run: Run, selection: TurnContext) -> Run | None:
        recording = Recording(run, owner, selection)
        self._give_up_the_oldest(run.started_at)
        self._open[run.id] = recording
        recorded = run if selection.selected else None
        self._table[run.id] = (recording, recorded)
        return recorded

    def _count_dropped(self, recording: Recording) -> None:
        recording.dropped += 1
        if recording.dropped == 1:
            self._limited_log.warn(
                "dropped runs",
                "a turn has more than %d runs; the later ones are not recorded",
                self.max_runs,
            )

    # --------------------------------------------------------------------------- lookups

    def surrounding(self, framework: Framework | None) -> Entry | None:
        """Return the run of another framework that the calling code is in."""
        for other in self.frameworks:
            if other is not framework:
                run_id = other.ambient()
                around = self._table.get(run_id) if run_id is not None else None
                if around is not None:
                    return around
        return None

    def has_ended(self, run_id: Hashable) -> bool:
        """Return True if a run belongs to a turn that ended recently."""
        return run_id in self._ended or run_id in self._ended_before

    def goes_on(self, run_id: Hashable) -> bool:
        """Return True if a run belongs to a turn that ended recently, and may itself still be running."""
        since = self._ended.get(run_id) or self._ended_before.get(run_id) or _ENDED_WELL
        return since != _ENDED_WELL and self.clock() - since < STRAGGLING_SECONDS * 1_000_000_000

    def get(self, run_id: Hashable) -> Run | None:
        """Return the record of a run in progress; None if it is unknown or not recorded."""
        seen = self._table.get(run_id)
        return seen[1] if seen is not None else None

    def recording(self, run_id: Hashable) -> Recording | None:
        """Return the recording of a run in progress; None if it is unknown or not recorded."""
        seen = self._table.get(run_id)
        return seen[0] if seen is not None and seen[1] is not None else None

    # --------------------------------------------------------------------------- tokens and ends

    def token(self, run_id: Hashable, text: str) -> None:
        """Record a streamed piece of text."""
        seen = self._table.get(run_id)
        run = seen[1] if seen is not None else None
        if run is None or not text:
            return
        if run.tokens is not None:
            run.tokens.append(text)
        else:
            run.tokens = [text]
            run.first_token_at = self.clock()

    def end(self, run_id: Hashable, output: Any, error: BaseException | None = None) -> Recording | None:
        """Record that a run has ended.

        Returns:
            The recording, if this was its root and the turn was sampled. It is returned once, and is out of the table.
        """
        seen = self._table.get(run_id)
        if seen is None:
            return None
        recording, run = seen
        if run is not None and run.ended_at is None:
            run.output = output
            run.error = error
            run.ended_at = self.clock()
            if run.kind in _FINDERS and error is None:
                _prepare(recording, run)
        if run_id == recording.root.id:
            if run is None:
                recording.root.error = error
                recording.root.ended_at = self.clock()
            return self._close(recording)
        if run is None:
            self._forget_unrecorded(recording, run_id, error)
        return None

    def _forget_unrecorded(self, recording: Recording, run_id: Hashable, error: BaseException | None) -> None:
        """Remove a run of which only the id was kept, so that an endless turn does not fill the table."""
        self.remember([run_id])
        if error is None and not recording.streamed:
            self._ended[run_id] = _ENDED_WELL
        recording.ids.pop(run_id, None)
        self._table.pop(run_id, None)

    def forget(self, owner: Pipeline) -> None:
        """Remove all runs whose turns a pipeline would receive: it accepts no more."""
        for recording in list(self._open.values()):
            if recording.owner is owner:
                self._close(recording)

    def _close(self, recording: Recording) -> Recording | None:
        if self._open.pop(recording.root.id, None) is None:
            return None  # another handler has closed it
        recording.closed = True
        ids = list(recording.ids)
        self.remember(ids)
        # The reader of a stream may have left early, while branches of the chain still run.
        if not recording.streamed:
            for run in recording.runs:
                if run.ended_at is not None and run.error is None:
                    self._ended[run.id] = _ENDED_WELL
        for run_id in ids:
            self._table.pop(run_id, None)
        return recording if recording.selection.selected else None

    def remember(self, ids: Iterable[Hashable]) -> None:
        """Keep the ids of runs that have just ended, or whose turn has.

        A run that starts under one of them soon afterwards is not a new turn: a branch that continues after another
        has failed, or a stream that its reader has left. But a run that starts after its parent has completed is not
        part of the old turn. It may come from a worker of the application, which keeps the context it was started in.

        The ids are kept in two halves, and the older half is dropped as a whole. Dropping ids one by one would be slow,
        because a dictionary scans the slots of deleted entries to find its first one.
        """
        if len(self._ended) >= _REMEMBERED:
            self._ended_before, self._ended = self._ended, {}
        self._ended.update(dict.fromkeys(ids, self.clock()))

    def _give_up_the_oldest(self, now: int) -> None:
        while self._open:
            try:
                oldest = next(iter(self._open.values()))
            except (RuntimeError, StopIteration):  # another thread has changed the table
                return
            if len(self._open) < self.max_open and now - oldest.root.started_at <= self.max_age_ns:
                return
            if self._close(oldest) is not None:
                self.given_up += 1
                self._limited_log.warn(
                    "given up",
                    "the run %r never ended and is abandoned (%d open runs, %d s old)",
                    oldest.root.name,
                    len(self._open) + 1,
                    (now - oldest.root.started_at) // 1_000_000_000,
                )


def _lies_within(inner: Entry, outer: Entry) -> bool:
    """Return True if the outer run is an ancestor of the inner one."""
    run, around = inner[1], outer[1]
    return run is not None and any(ancestor is around for ancestor in run.ancestors())


_SAMPLED_OUT = TurnContext(Context(), 0, 0, 0, 0, False, 0.0)


def _sampled_out_by_another(entry: Entry, owner: Pipeline) -> bool:
    """Return True if a run belongs to a turn that another pipeline has sampled out."""
    recording, run = entry
    return run is None and not recording.selection.selected and recording.owner is not owner


def _prepare(recording: Recording, run: Run) -> None:
    """Have the passages analysed in the background while the turn continues."""
    if run is recording.root or run.framework is None:
        return
    try:
        texts = run.framework.texts_of(run.output)
    except Exception:
        return  # preparation is optional, and the builder of the turn reads the same output with more care
    recording.owner.prepare(recording.selection, run.input if isinstance(run.input, str) else "", texts)


_SHARED = Recorder()


def shared_recorder() -> Recorder:
    """Return the process's recorder. All handlers and frameworks share it, so that what they see is one turn."""
    return _SHARED
