"""The table of runs in progress, shared by all integrations of the process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from rageval_hooks.integrations.capture.ended_runs import EndedRuns
from rageval_hooks.integrations.capture.runs import Entry, Framework, Recording, Run
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger

__all__ = ["Recorder", "shared_recorder"]

_logger = logging.getLogger(__name__)

_PARTS = frozenset(
    {"llm", "retriever", "reranker", "tool", "embedding", "prompt", "parser", "synthesizer", "model", "writer"}
)
"""Kinds of runs that are usually part of a turn. One that starts late is not a new turn."""

_FINDERS = frozenset({"retriever", "reranker"})
"""Kinds of runs whose output is passages."""

_UNKNOWN = (None, None)
"""Stands for the entry of a run that is not in the table."""

_SAMPLED_OUT = TurnContext(Context(), 0, 0, 0, 0, False, 0.0)


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
        ended: the runs that have ended recently.
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
        self.ended = EndedRuns(clock)
        self.given_up = 0
        self._limited_log = RateLimitedLogger(_logger)
        self._table: dict[Hashable, Entry] = {}
        self._open: dict[Hashable, Recording] = {}
        self.knows = self._table.__contains__
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget all runs: they go on in the parent process."""
        self._table.clear()
        self._open.clear()
        self.ended.clear()

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
        # Most runs are inside a known run of the only framework. They need none of the rules in _place.
        if around is None or explicit or run_id in self._table or len(self.frameworks) > 1:
            placed = self._place(owner, run_id, parent_id, explicit, framework, kind in _PARTS)
            if placed is None:
                return None
            if placed == "root":
                root = Run(run_id, None, framework, kind, name, input, self.clock())
                root.details = details
                if selection is None:
                    may_be_turn = explicit or not self._continues_unsampled(framework)
                    selection = _select(owner, is_turn=standalone and may_be_turn)
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
            self.ended.add([run_id])
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
        # A turn that another pipeline has sampled out may still be a turn of the explicit handler.
        may_open_turn = _sampled_out_by_another if explicit else _never
        seen = self._table.get(run_id)
        if seen is not None and not may_open_turn(seen, owner):
            # Two handlers report the same run. The turn belongs to the explicit one.
            self._claim(seen, owner, explicit)
            return None

        around = self._table.get(parent_id)
        if around is None and self._is_late(parent_id, part):
            self.ended.add([run_id])  # for the runs that it starts in turn
            return None

        around = self._nearest(around, framework)
        if around is None or may_open_turn(around, owner):
            return "root"
        self._claim(around, owner, explicit)
        return around

    def _claim(self, entry: Entry, owner: Pipeline, explicit: bool) -> None:
        """Give the turn of an entry to the pipeline of an explicit handler."""
        if explicit:
            entry[0].owner = owner

    def _nearest(self, around: Entry | None, framework: Framework | None) -> Entry | None:
        """Return the nearest enclosing run: that of the framework itself, or one of another framework inside of it."""
        foreign = self.surrounding(framework)
        if around is None:
            return foreign
        return foreign if foreign is not None and _lies_within(foreign, around) else around

    def _is_late(self, parent_id: Hashable | None, part: bool) -> bool:
        """Return True if a run with this parent belongs to a turn that has already ended."""
        if part and parent_id in self.ended:
            return True
        return self.ended.goes_on(parent_id)

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
        others = [other for other in self.frameworks if other is not framework]
        for other in others:
            around = self._table.get(other.ambient())
            if around is not None:
                return around
        return None

    def get(self, run_id: Hashable) -> Run | None:
        """Return the record of a run in progress; None if it is unknown or not recorded."""
        return self._table.get(run_id, _UNKNOWN)[1]

    def recording(self, run_id: Hashable) -> Recording | None:
        """Return the recording of a run in progress; None if it is unknown or not recorded."""
        recording, run = self._table.get(run_id, _UNKNOWN)
        return None if run is None else recording

    # --------------------------------------------------------------------------- tokens and ends

    def token(self, run_id: Hashable, text: str) -> None:
        """Record a streamed piece of text."""
        run = self.get(run_id)
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
        if run is None:
            return self._end_unrecorded(recording, run_id, error)
        if run.ended_at is None:
            run.output = output
            run.error = error
            run.ended_at = self.clock()
            if run.kind in _FINDERS and error is None:
                _prepare(recording, run)
        return self._close(recording) if run is recording.root else None

    def _end_unrecorded(self, recording: Recording, run_id: Hashable, error: BaseException | None) -> Recording | None:
        """End a run of which only the id was kept."""
        if run_id == recording.root.id:
            recording.root.error = error
            recording.root.ended_at = self.clock()
            return self._close(recording)
        # Removed at once, so that an endless turn does not fill the table.
        self.ended.add([run_id])
        if error is None and not recording.streamed:
            self.ended.add_completed(run_id)
        recording.ids.pop(run_id, None)
        self._table.pop(run_id, None)
        return None

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
        self._remember_ended(recording, ids)
        for run_id in ids:
            self._table.pop(run_id, None)
        return recording if recording.selection.selected else None

    def _remember_ended(self, recording: Recording, ids: Sequence[Hashable]) -> None:
        self.ended.add(ids)
        if recording.streamed:
            return  # the reader of a stream may have left early, while branches of the chain still run
        for run in recording.runs:
            if run.ended_at is not None and run.error is None:
                self.ended.add_completed(run.id)

    def _give_up_the_oldest(self, now: int) -> None:
        """Abandon roots that are too old, or too many: a cancelled call may never report its end."""
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


def _select(owner: Pipeline, is_turn: bool) -> TurnContext:
    """Ask a pipeline whether a root is sampled. A root that is not a turn counts as sampled out."""
    return owner.begin(otel_context.get_current()) if is_turn else _SAMPLED_OUT


def _lies_within(inner: Entry, outer: Entry) -> bool:
    """Return True if the outer run is an ancestor of the inner one."""
    run, around = inner[1], outer[1]
    return run is not None and any(ancestor is around for ancestor in run.ancestors())


def _never(_entry: Entry, _owner: Pipeline) -> bool:
    return False


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
