"""The recorder of runs, shared by all integrations of the process: where a run that starts belongs."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Literal
from weakref import WeakSet

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from rageval_hooks.integrations.capture.run_table import RunTable
from rageval_hooks.integrations.capture.runs import Entry, Framework, Recording, Run
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import TurnContext

__all__ = ["Recorder", "shared_recorder"]

_PARTS = frozenset(
    {"llm", "retriever", "reranker", "tool", "embedding", "prompt", "parser", "synthesizer", "model", "writer"}
)
"""Kinds of runs that are usually part of a turn. One that starts late is not a new turn."""

_SAMPLED_OUT = TurnContext(Context(), 0, 0, 0, 0, False, 0.0)


class Recorder(RunTable):
    """Adds the runs that integrations report to the table, each below the run that encloses it.

    Args:
        max_runs: runs recorded under one root; later ones are dropped.
        max_open: open roots; beyond that number the oldest is abandoned.
        max_age: seconds after which a root that has not ended is abandoned.
        clock: nanoseconds since the epoch.
        age_clock: nanoseconds, by a clock that never jumps.

    Attributes:
        guards: the guards of the process. While there is one, the runs of sampled-out turns are recorded too: they are
            not evaluated, but the guard needs their passages.
    """

    def __init__(
        self,
        *,
        max_runs: int = 10_000,
        max_open: int = 10_000,
        max_age: float = 3600.0,
        clock: Callable[[], int] = time.time_ns,
        age_clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(max_open=max_open, max_age=max_age, clock=clock, age_clock=age_clock)
        self.max_runs = max_runs
        self.guards: WeakSet[object] = WeakSet()
        self.frameworks: list[Framework] = []

    def join(self, framework: Framework) -> None:
        """Register a framework, so that runs of other frameworks inside its runs belong to the same turn."""
        if framework not in self.frameworks:
            self.frameworks.append(framework)

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
        context: Context | None = None,
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
            context: the OpenTelemetry context of the turn if the run is a root; None for the current one.
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
                    selection = _select(owner, context, is_turn=standalone and may_be_turn)
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
        recording.opened_at = self.age_clock()
        self._give_up_the_oldest(recording.opened_at)
        self._open[run.id] = recording
        recorded = run if selection.selected or self.guards else None
        self._table[run.id] = (recording, recorded)
        return recorded

    def _count_dropped(self, recording: Recording) -> None:
        recording.dropped += 1
        if recording.dropped == 1:
            self._limited_log.warn(
                "dropped runs",
                "a turn has more than %d runs; the later ones are not recorded [RAGEVAL-210]",
                self.max_runs,
            )

    def surrounding(self, framework: Framework | None) -> Entry | None:
        """Return the run of another framework that the calling code is in."""
        others = [other for other in self.frameworks if other is not framework]
        for other in others:
            around = self._table.get(other.ambient())
            if around is not None:
                return around
        return None


def _select(owner: Pipeline, context: Context | None, is_turn: bool) -> TurnContext:
    """Ask a pipeline whether a root is sampled. A root that is not a turn counts as sampled out."""
    if not is_turn:
        return _SAMPLED_OUT
    return owner.begin(otel_context.get_current() if context is None else context)


def _lies_within(inner: Entry, outer: Entry) -> bool:
    """Return True if the outer run is an ancestor of the inner one."""
    run, around = inner[1], outer[1]
    return run is not None and any(ancestor is around for ancestor in run.ancestors())


def _never(_entry: Entry, _owner: Pipeline) -> bool:
    return False


def _sampled_out_by_another(entry: Entry, owner: Pipeline) -> bool:
    """Return True if a run belongs to a turn that another pipeline has sampled out."""
    recording, _ = entry
    return not recording.selection.selected and recording.owner is not owner


_SHARED = Recorder()


def shared_recorder() -> Recorder:
    """Return the process's recorder. All handlers and frameworks share it, so that what they see is one turn."""
    return _SHARED
