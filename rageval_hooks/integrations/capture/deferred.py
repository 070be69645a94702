"""Turns that are submitted later: by another thread, or after a person has answered.

The calling thread must not do work itself if it runs an event loop or a finalizer.
"""

from __future__ import annotations

import sys
import threading
import time
from asyncio.events import _get_running_loop
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

from rageval_hooks.integrations.capture.recorder import Recording
from rageval_hooks.integrations.capture.turns import turn_of
from rageval_hooks.integrations.capture.values import last_of
from rageval_hooks.online.pending import DONE, PendingTurn
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.fork import reset_in_child, run_in_child
from rageval_hooks.runtime.pool import local_pool, on_pool_thread
from rageval_hooks.runtime.threads import new_lock

_MAX_SAMPLED_OUT = 10_000
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
        with self._lock:
            self._held.append(held)
            most, size = recording.owner.settings.queue_max_mb * 2**20, sum(one.size for one in self._held)
            too_many = []
            while len(self._held) > 1 and (size > most or len(self._held) > self.max_turns):
                too_many.append(self._held.pop(0))
                size -= too_many[-1].size
        self._submit(too_many)

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
        if self._held:
            oldest = self.clock() - self.max_age_ns
            self._take_where(lambda held: held.since < oldest)

    def submit_all(self, owner: Pipeline | None = None) -> None:
        """Submit all first halves of a pipeline, or of all pipelines: nothing must be pending afterwards."""
        self._take_where(lambda held: owner is None or held.recording.owner is owner)

    def _take_where(self, is_due: Callable[[HeldTurn], bool]) -> None:
        with self._lock:
            due = [held for held in self._held if is_due(held)]
            self._held = [held for held in self._held if held not in due]
        self._submit(due)

    def _submit(self, due: list[HeldTurn]) -> None:
        for held in due:  # as turns without an answer: they were not resumed
            submit(held.recording, builds=False, waits=False)

    # --------------------------------------------------------------------------- sampling

    def note_sampling(self, thread: str, sampled_out: bool) -> None:
        """Remember the sampling decision for the latest turn of a conversation."""
        self._sampled_out.pop(thread, None)
        if sampled_out:
            with self._lock:
                self._sampled_out[thread] = self.clock()
                while len(self._sampled_out) > _MAX_SAMPLED_OUT:
                    del self._sampled_out[next(iter(self._sampled_out))]

    def earlier_sampling(self, thread: str) -> bool | None:
        """Return True if the first half of a turn is held, False if it was sampled out, None if that is unknown."""
        if any(held.thread == thread for held in list(self._held)):
            return True
        since = self._sampled_out.get(thread)
        return False if since is not None and self.clock() - since < self.max_age_ns else None


_HELD = HeldTurns()


def held_turns() -> HeldTurns:
    """Return the process's first halves. All handlers share them: the second half may reach another handler."""
    return _HELD


_MAX_PENDING = 2048
_MAX_PENDING_BYTES = 128 * 2**20

_pending: dict[Future[Any], int] = {}
"""Futures of work that has not finished, with its size in bytes. Only added to and removed from, which is atomic:
:func:`hand_over` may be called by the garbage collector, when this very thread could hold a lock."""


def in_event_loop() -> bool:
    """Return True if the calling thread runs an event loop, of asyncio or trio, which must not be blocked."""
    # Not ``asyncio.get_running_loop``: it raises without a running loop, which takes ten times as long.
    if _get_running_loop() is not None:
        return True
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_trio_token()
    except (RuntimeError, AttributeError):  # the latter while another thread imports it
        return False
    return True


def closes_generator() -> bool:
    """Return True if the caller runs because a generator is being closed.

    The garbage collector may be closing it, in the middle of any other code. So nothing that runs then may take a lock
    or set a context variable. In CPython 3.11, a context variable that is set during ``ContextVar.set`` crashes the
    process.
    """
    return isinstance(sys.exception(), GeneratorExit)


def prepare() -> None:
    """Register the exit drain, so that :func:`hand_over` has nothing left to set up."""
    EXIT_DRAIN.add(_submit_held, "capture")
    EXIT_DRAIN.add(settle, "capture", lambda: bool(_pending))
    EXIT_DRAIN.register()


_part_takers: list[Callable[[EndedTurn, Recording], bool]] = []


def offer_parts_to(take_part: Callable[[EndedTurn, Recording], bool]) -> None:
    """Ask a function about each turn before it is submitted. It returns True if it takes the turn as part of another.

    Functions are asked for the turns of all pipelines. One that is registered twice is asked once.
    """
    if take_part not in _part_takers:
        _part_takers.append(take_part)


def submit(
    recording: Recording, *, builds: bool = True, waits: bool = True, may_have_scores: bool = True
) -> PendingTurn:
    """Submit the turn of a recording, and wait for its inline scores within the budget.

    Args:
        recording: the runs of the turn.
        builds: True to build the turn here, and not on another thread: its values may change afterwards.
        waits: False for a caller that waits for no scores. A thread that runs an event loop never waits.
        may_have_scores: False if the turn certainly has no local scores.

    Returns:
        What a coroutine may await, for the rest of the budget.
    """
    ended = EndedTurn(partial(turn_of, recording))
    try:
        if builds:
            ended.build()
    except BaseException as error:
        recording.not_submitted(error)
    if any(take_part(ended, recording) for take_part in _part_takers):
        return DONE
    pending = recording.owner.submit(ended, recording.selection, may_have_scores=may_have_scores)
    # A thread of the pool must not wait for the pool; who has handed over the work may.
    if waits and may_have_scores and not in_event_loop() and not on_pool_thread():
        pending.wait()
    return pending


def hand_over(
    function: Callable[..., PendingTurn | None],
    *args: Any,
    size: int = 0,
    on_full: Callable[[], object] = lambda: None,
) -> Future[PendingTurn]:
    """Call a function soon, on another thread but in a copy of this context; :func:`settle` waits for it.

    Safe to call from a finalizer after :func:`prepare`: it takes no locks and sets no context variables. If too much
    waits already, the function is not called.

    Args:
        function: the work. It returns the turn that it has submitted, if it has submitted one.
        args: its arguments.
        size: about how many bytes they take in memory.
        on_full: called instead, on this thread. It must be safe in a finalizer, too.

    Returns:
        Once the function has returned, what a caller may wait for: the turn that it returned, or :data:`DONE`.
    """
    future: Future[PendingTurn] = Future()
    if sys.is_finalizing():  # the threads are gone
        future.set_result(DONE)
        return future
    prepare()
    # A copy: another thread, or a finalizer on this one, may change the dictionary.
    sizes = list(_pending.values())
    if sizes and (len(sizes) >= _MAX_PENDING or sum(sizes) + size > _MAX_PENDING_BYTES):
        on_full()
        future.set_result(DONE)
        return future
    _pending[future] = size
    local_pool().submit(_call, future, function, args)
    return future


def _call(future: Future[PendingTurn], function: Callable[..., PendingTurn | None], args: tuple[Any, ...]) -> None:
    _this_thread.handed_over = True
    try:
        future.set_result(function(*args) or DONE)
    except BaseException as error:
        future.set_exception(error)
    finally:
        _this_thread.handed_over = False
        _pending.pop(future, None)


_this_thread = threading.local()


def _submit_held(_: float) -> None:
    held_turns().submit_all()


def settle(timeout: float) -> bool:
    """Wait until everything that was handed over is done; returns False if that took longer than ``timeout`` s.

    It returns True at once if the caller was itself handed over, because it would wait for itself.
    """
    return getattr(_this_thread, "handed_over", False) or not wait(list(_pending), timeout).not_done


def flush(pipeline: Pipeline, timeout: float) -> bool:
    """Wait until every turn so far is evaluated and delivered; False if that took longer than ``timeout`` s."""
    end = time.monotonic() + timeout
    settled = settle(timeout)
    held_turns().submit_all(pipeline)
    return pipeline.flush(max(0.0, end - time.monotonic())) and settled


run_in_child(_pending.clear)
