"""The table of runs in progress: what is in it, and how runs leave it. The recorder adds to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from rageval_hooks.integrations.capture.ended_runs import EndedRuns
from rageval_hooks.integrations.capture.runs import Entry, Recording, Run
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.narrowing import text_or_empty

__all__ = ["RunTable"]

_logger = logging.getLogger(__name__)

_FINDERS = frozenset({"retriever", "reranker"})
"""Kinds of runs whose output is passages."""

_UNKNOWN = (None, None)
"""Stands for the entry of a run that is not in the table."""


class RunTable:
    """The runs in progress by id. Safe to use from any thread, and from finalizers: it takes no locks.

    A run is in the table from its start until its root ends. Then all runs of that root are removed, whether they have
    ended or not, because cancelled runs never report an end. Runs of sampled-out turns are in the table without a
    record, so that whatever happens inside such a turn is recognized as part of it.

    Args:
        max_open: open roots; beyond that number the oldest is abandoned.
        max_age: seconds after which a root that has not ended is abandoned.
        clock: nanoseconds since the epoch.
        age_clock: nanoseconds, by a clock that never jumps: a clock that is set forward must not end open turns.

    Attributes:
        knows: returns True if the run with this id is in the table. It is the dictionary's own method, for speed.
        ended: the runs that have ended recently.
        given_up: number of abandoned roots.
    """

    def __init__(
        self, *, max_open: int, max_age: float, clock: Callable[[], int], age_clock: Callable[[], int]
    ) -> None:
        self.age_clock = age_clock
        self.max_open = max_open
        self.max_age_ns = int(max_age * 1e9)
        self.clock = clock
        self.ended = EndedRuns(clock)
        self.given_up = 0
        self._limited_log = RateLimitedLogger(_logger)
        self._table: dict[Hashable, Entry] = {}
        self._open: dict[Hashable, Recording] = {}
        self._held: dict[Hashable, int] = {}
        self.knows = self._table.__contains__
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget all runs: they go on in the parent process."""
        self._table.clear()
        self._open.clear()
        self._held.clear()
        self.ended.clear()

    def __len__(self) -> int:
        """Return the number of runs in the table."""
        return len(self._table)

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
        # A list is appended to, because joining the text for each piece would take quadratic time.
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
        # The first of several handlers that report the end is as good as the others.
        if run.ended_at is None:
            run.output = output
            run.error = error
            run.ended_at = self.clock()
            if run.kind in _FINDERS and error is None:
                _prepare(recording, run)
                # Its reader may leave a stream open for long, and with it the passages.
                if recording.streamed and run is not recording.root:
                    self._hold(recording, run.size)
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

    def hold(self, root: Run) -> None:
        """Note that a root's call has ended, and that its turn waits for the end of a stream."""
        recording = self._open.get(root.id)
        if recording is not None:
            self._hold(recording, recording.size)

    def _hold(self, recording: Recording, size: int) -> None:
        """Count what a turn keeps in memory while its answer is streamed. The oldest are abandoned if it is too much.

        Args:
            recording: the turn.
            size: further bytes.
        """
        self._held[recording.root.id] = self._held.get(recording.root.id, 0) + size
        most = recording.owner.settings.queue_max_mb * 2**20
        # Copies: other threads change the dictionary.
        while len(held := dict(self._held)) > 1 and sum(held.values()) > most:
            oldest = self._open.get(next(iter(held)))
            self._held.pop(next(iter(held)), None)
            if oldest is not None:
                self._give_up(oldest, f"{len(held)} turns wait for their streams, with more than {most / 2**20:g} MiB")
        if recording.closed:  # another thread has just ended the root
            self._held.pop(recording.root.id, None)

    def forget(self, owner: Pipeline) -> None:
        """Remove all runs whose turns a pipeline would receive: it accepts no more."""
        for recording in list(self._open.values()):
            if recording.owner is owner:
                self._close(recording)

    def _close(self, recording: Recording) -> Recording | None:
        if self._open.pop(recording.root.id, None) is None:
            return None  # another handler has closed it
        self._held.pop(recording.root.id, None)
        # Before the ids are copied: a run that another thread adds now removes itself again.
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
            if len(self._open) < self.max_open and now - oldest.opened_at <= self.max_age_ns:
                return
            age = (now - oldest.opened_at) // 1_000_000_000
            self._give_up(oldest, f"{len(self._open)} open runs, {age} s old")

    def _give_up(self, recording: Recording, why: str) -> None:
        """Abandon a root that has not ended."""
        if self._close(recording) is None:
            return
        self.given_up += 1
        recording.owner.drop("not_ended")
        self._limited_log.warn(
            "given up", "the run %r never ended and is abandoned (%s) [RAGEVAL-211]", recording.root.name, why
        )


def _prepare(recording: Recording, run: Run) -> None:
    """Have the passages analysed in the background while the turn continues."""
    # A sampled-out turn may be recorded for a guard.
    if run is recording.root or run.framework is None or not recording.selection.selected:
        return
    try:
        texts = run.framework.texts_of(run.output)
    except Exception:
        return  # preparation is optional, and the builder of the turn reads the same output with more care
    recording.owner.prepare(recording.selection, text_or_empty(run.input), texts)
