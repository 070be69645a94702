"""First halves of turns: a graph that waits for a person may be resumed, and then both halves are one turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from rageval_hooks.integrations.capture.host_values import last_of
from rageval_hooks.integrations.capture.merging import turn_of
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.threads import new_lock

_MOST_SAMPLED_OUT = 10_000
"""Conversations whose latest turn was sampled out, that are remembered."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldTurn:
    """The first half of a turn, which waits to be resumed.

    Attributes:
        recording: its runs. They hold copies of what the application may change.
        thread: the id of the conversation.
        places: where in the graph it waits.
        since: when it began to wait, in nanoseconds of a clock that never jumps.
        size: about how many bytes it keeps in memory.
    """

    recording: Recording
    thread: str
    places: frozenset[str]
    since: int
    size: int


class HeldTurns:
    """The first halves of this process. Safe to use from any thread, but not from finalizers: it takes a lock.

    Args:
        max_turns: first halves that are held; beyond that number, or beyond the size ``queue_max_mb`` of the settings,
            the oldest are submitted.
        max_age: seconds for which a first half is held. It is submitted when the next turn ends after that.
        clock: nanoseconds, by a clock that never jumps.
    """

    def __init__(
        self, *, max_turns: int = 1000, max_age: float = 3600.0, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.max_turns = max_turns
        self.max_age_ns = int(max_age * 1e9)
        self.clock = clock
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Hold nothing: the parent process submits what it holds."""
        self._lock = new_lock()
        self._held: list[HeldTurn] = []
        self._sampled_out: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of first halves."""
        return len(self._held)

    def hold(self, recording: Recording, thread: str, places: frozenset[str]) -> None:
        """Keep the first half of a turn until it is resumed or is too old."""
        held = HeldTurn(recording=recording, thread=thread, places=places, since=self.clock(), size=recording.size)
        most_bytes = recording.owner.settings.queue_max_mb * 2**20
        too_many = []
        with self._lock:
            self._held.append(held)
            while len(self._held) > 1 and (
                len(self._held) > self.max_turns or sum(one.size for one in self._held) > most_bytes
            ):
                too_many.append(self._held.pop(0))
        _submit_all(too_many)

    def take(self, thread: str, places: frozenset[str], name: str) -> HeldTurn | None:
        """Return the first half that a turn resumes, which is then no longer held.

        Args:
            thread: the id of the conversation.
            places: the places in the graph that the turn passed.
            name: the name of the turn.
        """
        with self._lock:
            candidates = [held for held in self._held if held.thread == thread]
            # Places are unique, so two graphs whose conversations have the same id are told apart. But a state that was
            # edited while the graph waited gives its nodes new places.
            at_places = [held for held in candidates if not held.places.isdisjoint(places)]
            found = last_of(at_places or [held for held in candidates if held.recording.root.name == name])
            if found is not None:
                self._held.remove(found)
        return found

    def submit_old(self) -> None:
        """Submit the first halves that have waited for too long."""
        if not self._held:
            return
        oldest = self.clock() - self.max_age_ns
        self._submit_where(lambda held: held.since < oldest)

    def submit_all(self, owner: Pipeline | None = None) -> None:
        """Submit all first halves of a pipeline, or of all pipelines: nothing must be pending afterwards."""
        self._submit_where(lambda held: owner is None or held.recording.owner is owner)

    def _submit_where(self, is_due: Callable[[HeldTurn], bool]) -> None:
        with self._lock:
            due = [held for held in self._held if is_due(held)]
            self._held = [held for held in self._held if held not in due]
        _submit_all(due)

    # --------------------------------------------------------------------------- sampling

    def note_sampling(self, thread: str, sampled_out: bool) -> None:
        """Remember the sampling decision for the latest turn of a conversation."""
        self._sampled_out.pop(thread, None)
        if sampled_out:
            with self._lock:
                self._sampled_out[thread] = self.clock()
                while len(self._sampled_out) > _MOST_SAMPLED_OUT:
                    del self._sampled_out[next(iter(self._sampled_out))]

    def earlier_sampling(self, thread: str) -> bool | None:
        """Return True if the first half of a turn is held, False if it was sampled out, None if that is unknown."""
        if any(held.thread == thread for held in list(self._held)):
            return True
        since = self._sampled_out.get(thread)
        return False if since is not None and self.clock() - since < self.max_age_ns else None


def _submit_all(turns: Iterable[HeldTurn]) -> None:
    """Submit first halves as turns without an answer: they were not resumed."""
    for held in turns:
        recording = held.recording
        recording.owner.submit(partial(turn_of, recording), recording.selection)


_HELD = HeldTurns()


def held_turns() -> HeldTurns:
    """Return the process's first halves. All handlers share them: the second half may reach another handler."""
    return _HELD
