"""The append-only record of what runs, shared by all integrations of the process."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.turn_context import Selection
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger
from rageval_hooks.turn import Turn

__all__ = ["STRAGGLING_SECONDS", "Framework", "Recorder", "Recording", "Run", "shared_recorder"]

_logger = logging.getLogger(__name__)

_REMEMBERED = 8192
_PARTS = frozenset(
    {"llm", "retriever", "reranker", "tool", "embedding", "prompt", "parser", "synthesizer", "model", "writer"}
)
STRAGGLING_SECONDS = 120
"""So long after the end of a turn what its runs start counts as part of it, unless they have ended well."""


def _never() -> bool:
    return False


@dataclass(frozen=True, eq=False)
class Framework:
    """One framework's side of a recording.

    Attributes:
        name: as it stands on the turn.
        turn_of: the pure function that builds a turn from the framework's runs, the outermost first.
        ambient: returns the id of the run of this framework that the calling code runs in, by the framework's own
            context variables; None outside of any.
        left_out: whether the calling code runs inside of a turn of this framework that is not looked at, and of which
            the recorder may have been told nothing.
        text_id: turns the id by which the recorder knows a run into the framework's own, as text.
    """

    name: str
    turn_of: Callable[..., Turn]
    ambient: Callable[[], Hashable | None]
    left_out: Callable[[], bool] = _never
    text_id: Callable[[Any], str] = str


class Run:
    """One run of a framework's component, as it was seen: references only, nothing is copied or formatted.

    Attributes:
        id: by which the recorder knows the run; the framework's id of it as :attr:`text_id` has it.
        parent: the run around it, perhaps of another framework; None for the root.
        framework: whose run it is.
        kind: the framework's kind of run. ``retriever``, ``reranker``, ``llm`` and ``tool`` mean the same in all.
        name: the component's name.
        started_at: nanoseconds since the epoch.
        ended_at: nanoseconds since the epoch; None while it runs.
        input: what went in.
        output: what came out.
        error: the exception that ended it.
        metadata: what the framework or the application attached.
        details: more that only some kinds have, by name.
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
        """Yield the runs around this one, the nearest first."""
        run = self.parent
        while run is not None:
            yield run
            run = run.parent


class Recording:
    """The runs under one root.

    Attributes:
        root: the outermost run.
        runs: all runs by start time, the root first.
        owner: the pipeline that gets the turn.
        selection: where the turn stands in its trace.
        external_span: trace id, span id and flags of a span that somebody else's instrumentation has for the root.
        closed: whether it is out of the table, or about to be.
    """

    __slots__ = ("closed", "external_span", "ids", "owner", "root", "runs", "selection", "shed")

    def __init__(self, root: Run, owner: Pipeline, selection: Selection) -> None:
        self.root = root
        self.owner = owner
        self.selection = selection
        self.runs: list[Run] = [root]
        self.ids: list[Hashable] = [root.id]
        self.shed = 0
        self.closed = False
        self.external_span: tuple[int, int, int] | None = None


class Recorder:
    """The table of what runs now.

    Every run that has started stands in it, with its recording, until its root ends; then the root's whole family is
    taken out, whether its members have ended or not: cancelled ones never do. Safe to use from any thread.

    Args:
        max_runs: runs under one root; later ones are not recorded.
        max_open: roots at a time; beyond it the oldest is given up.
        max_age: seconds after which a root that has not ended is given up.
        clock: nanoseconds since the epoch.

    Attributes:
        knows: returns whether the run with an id is under way, selected or not. The table's own method: it is asked
            before whatever a framework runs.
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
        self._table: dict[Hashable, tuple[Recording, Run | None]] = {}
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
        """Make a framework known, so that what others run inside of its runs belongs to the same turn."""
        if framework not in self.frameworks:
            self.frameworks.append(framework)

    def __len__(self) -> int:
        """How many runs stand in the table."""
        return len(self._table)

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
        selection: Selection | None = None,
    ) -> Run | None:
        """Record that a run has started.

        Args:
            owner: the pipeline of the handler that saw it.
            run_id: the framework's id.
            parent_id: the id of the run around it.
            kind: the framework's kind.
            name: the component's name.
            input: what goes in.
            explicit: whether the handler was attached to this very chain; then its pipeline gets the turn.
            framework: whose run it is. What is around it may be a run of another, nearer than its framework's parent.
            standalone: whether it can be a turn of its own; if not, as a root it is left out with all that is under it.
            selection: what was decided beforehand, should it be a root; None to ask its owner.

        Returns:
            The new record; None if there is nothing to record: another handler has recorded it, its turn is not
            selected, or its root has ended.
        """
        around = self._table.get(parent_id)
        if around is None or explicit or run_id in self._table or len(self.frameworks) > 1:
            placed = self._place(owner, run_id, parent_id, explicit, framework, kind in _PARTS)
            if placed is None:
                return None
            if isinstance(placed, str):
                if selection is None:
                    left_out = not standalone or (not explicit and self.is_left_out(framework))
                    selection = _LEFT_OUT if left_out else owner.begin(otel_context.get_current())
                return self._start_root(owner, Run(run_id, None, framework, kind, name, input, self.clock()), selection)
            around = placed
        recording, parent = around
        recording.ids.append(run_id)
        if parent is None or len(recording.runs) >= self.max_runs:  # not selected, or shed: only the family is kept
            recording.shed += recording.selection.selected
            self._table[run_id] = (recording, None)
            run = None
        else:
            run = Run(run_id, parent, framework, kind, name, input, self.clock())
            recording.runs.append(run)
            self._table[run_id] = (recording, run)
        if recording.closed:  # by another thread, just now
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
    ) -> tuple[Recording, Run | None] | Literal["root"] | None:
        """Return what is around a run that is about to start, or that it is a root; None if it is not recorded.

        Args:
            owner: the pipeline of the handler that saw it.
            run_id: its id.
            parent_id: the id of the run around it.
            explicit: whether the handler was attached to this very chain.
            framework: whose run it is.
            part: whether it is of a kind that is mostly part of something: a late one is no turn of its own.
        """
        seen = self._table.get(run_id)
        if seen is not None and not (explicit and _passed_over(seen, owner)):
            if explicit:
                seen[0].owner = owner
            return None
        around = None
        if parent_id is not None:
            around = self._table.get(parent_id)
            if around is None and (self.goes_on(parent_id) or (part and self.has_ended(parent_id))):
                self.remember([run_id])  # for what it starts in its turn
                return None
        foreign = self.surrounding(framework)
        if around is None or (foreign is not None and _lies_within(foreign, around)):
            around = foreign
        if around is None or (explicit and _passed_over(around, owner)):
            return "root"
        if explicit:
            around[0].owner = owner
        return around

    def surrounding(self, framework: Framework | None) -> tuple[Recording, Run | None] | None:
        """Return what another framework is in the middle of: the recording, and its run if it is selected."""
        for other in self.frameworks:
            if other is not framework:
                run_id = other.ambient()
                around = self._table.get(run_id) if run_id is not None else None
                if around is not None:
                    return around
        return None

    def is_left_out(self, framework: Framework | None) -> bool:
        """Whether the calling code is inside of a turn of another framework that is not looked at."""
        return any(other.left_out() for other in self.frameworks if other is not framework)

    def _start_root(self, owner: Pipeline, run: Run, selection: Selection) -> Run | None:
        recording = Recording(run, owner, selection)
        self._give_up_the_oldest(run.started_at)
        self._open[run.id] = recording
        recorded = run if selection.selected else None
        self._table[run.id] = (recording, recorded)
        return recorded

    def has_ended(self, run_id: Hashable) -> bool:
        """Whether a run is part of a turn that has ended lately."""
        return run_id in self._ended or run_id in self._ended_before

    def goes_on(self, run_id: Hashable) -> bool:
        """Whether a run is part of a turn that has ended lately, and may itself go on."""
        since = self._ended.get(run_id) or self._ended_before.get(run_id)
        return bool(since) and self.clock() - (since or 0) < STRAGGLING_SECONDS * 1_000_000_000

    def get(self, run_id: Hashable) -> Run | None:
        """Return the record of a run that is under way and selected."""
        seen = self._table.get(run_id)
        return seen[1] if seen is not None else None

    def recording(self, run_id: Hashable) -> Recording | None:
        """Return the recording that a run under way belongs to, if it is selected."""
        seen = self._table.get(run_id)
        return seen[0] if seen is not None and seen[1] is not None else None

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
            The recording, if that was its root and the turn is selected. It is returned once, and is out of the table.
        """
        seen = self._table.get(run_id)
        if seen is None:
            return None
        recording, run = seen
        if run is not None and run.ended_at is None:
            run.output = output
            run.error = error
            run.ended_at = self.clock()
        if run is not recording.root and run_id != recording.ids[0]:
            return None
        return self._close(recording)

    def forget(self, owner: Pipeline) -> None:
        """Take out everything under way that would go to a pipeline: it takes no more turns."""
        for recording in list(self._open.values()):
            if recording.owner is owner:
                self._close(recording)

    def _close(self, recording: Recording) -> Recording | None:
        if self._open.pop(recording.root.id, None) is None:
            return None  # another handler was first
        recording.closed = True
        self.remember(recording.ids)
        if not (recording.root.details or {}).get("streamed"):  # its reader may have left, and branches go on
            for run in recording.runs:
                if run.ended_at is not None and run.error is None:
                    self._ended[run.id] = 0
        for run_id in recording.ids:
            self._table.pop(run_id, None)
        if recording.shed:
            self._limited_log.warn(
                "shed", "a turn had %d runs more than the %d that are recorded", recording.shed, self.max_runs
            )
        return recording if recording.selection.selected else None

    def remember(self, ids: Iterable[Hashable]) -> None:
        """Keep the ids of runs that ended lately, or whose turn did.

        What such a run starts soon afterwards must not be taken for a root of its own: a branch that runs on after
        another has failed, a stream that its reader has left. But what begins after its parent has ended well is no
        part of it: an application's own worker, which has the context in which it was started.

        In two halves, the older of which is dropped as a whole: to drop ids one by one, a dictionary would look for its
        first entry among ever more places that are free.
        """
        if len(self._ended) >= _REMEMBERED:
            self._ended_before, self._ended = self._ended, {}
        self._ended.update(dict.fromkeys(ids, self.clock()))

    def _give_up_the_oldest(self, now: int) -> None:
        while self._open:
            try:
                oldest = next(iter(self._open.values()))
            except (RuntimeError, StopIteration):  # another thread was here
                return
            if len(self._open) < self.max_open and now - oldest.root.started_at <= self.max_age_ns:
                return
            if self._close(oldest) is not None:
                self.given_up += 1
                self._limited_log.warn(
                    "given up",
                    "a run of %r never ended and is given up (%d open at once, %d s old)",
                    oldest.root.name,
                    len(self._open) + 1,
                    (now - oldest.root.started_at) // 1_000_000_000,
                )


def _lies_within(inner: tuple[Recording, Run | None], outer: tuple[Recording, Run | None]) -> bool:
    """Whether a run is, at some distance, around another."""
    run, around = inner[1], outer[1]
    return run is not None and any(ancestor is around for ancestor in run.ancestors())


_LEFT_OUT = Selection(Context(), 0, 0, 0, 0, False, 0.0)


def _passed_over(entry: tuple[Recording, Run | None], owner: Pipeline) -> bool:
    """Whether a run belongs to a turn that another pipeline has not selected."""
    recording, run = entry
    return run is None and not recording.selection.selected and recording.owner is not owner


_SHARED = Recorder()


def shared_recorder() -> Recorder:
    """Return the process's one recorder: what two handlers see, or two frameworks, is one turn."""
    return _SHARED
