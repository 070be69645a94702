"""The thread that uses the file of a spool: what other threads ask for in batches, one transaction for each batch."""

from __future__ import annotations

import errno
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty
from typing import Any, NamedTuple, Protocol, TypeVar

from rageval_hooks.online.spool.store import OtherVersionError, SpoolFile, StoredJob
from rageval_hooks.runtime.fork import delay_forks, is_fork_waiting, reset_in_child
from rageval_hooks.runtime.threads import SimpleQueue, new_lock, start_daemon_thread

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_BATCH = 256
"""Requests of one transaction, at most."""

_LINGER = 0.02
"""Seconds for which the file stays open after a batch: work comes in bursts, and opening costs a millisecond."""

_LONGEST_SESSION = 1.0
"""Seconds after which the file is closed and opened again: it may have been moved away meanwhile."""

_REST_SECONDS = 10.0
"""After a failure, the file is not used for so long: each attempt costs up to two seconds."""

_ADVICE = {
    "full": "free some space on the disk",
    "failing": "look for a quota, a limit on the size of files, or a defect of the disk",
    "damaged": "move the file away, together with its -wal and -shm files; the jobs in it are not evaluated",
    "other version": "finish its jobs with the version that wrote it, or set another spool_path",
    "not writable": "make its directory writable for this process, or set another spool_path",
    "locked": "look for a process that holds a lock on it",
    "not usable": "set another spool_path",
}
_KINDS = {
    # SQLite says "database or disk is full".
    "full": ("full",),
    "failing": ("disk i/o error",),
    "locked": ("locked", "busy"),
    "not writable": ("readonly", "unable to open"),
    # "file is not a database", "database disk image is malformed", "no such table".
    "damaged": ("not a database", "malformed", "no such"),
}
"""What is wrong with the file → parts of SQLite's messages about it, in lower case."""


class _Request(NamedTuple):
    """Something to do with the file, inside of a transaction.

    Attributes:
        apply: does it.
        future: receives the result once it is on the disk, or the reason why it is not.
        is_kept: True to apply it later if the file cannot be used now.
    """

    apply: Callable[[SpoolFile], Any]
    future: Future[Any]
    is_kept: bool


class SpoolOwner(Protocol):
    """The user of a spool thread. All methods run on that thread and must not raise."""

    def claim(self, file: SpoolFile) -> list[StoredJob]:
        """Claim jobs, inside of a transaction."""

    def take(self, jobs: list[StoredJob]) -> None:
        """Start to evaluate jobs that were claimed."""

    def pause(self) -> float:
        """Return the seconds after which the thread is to look again without a request."""


class SpoolThread:
    """A daemon thread that owns a spool's file. It starts with the first request, in a forked child again.

    Args:
        make_file: makes the file.
        owner: returns the user of this thread; None ends the thread.

    Attributes:
        file: the file.
        errors: how often the file could not be used.
    """

    def __init__(self, make_file: Callable[[], SpoolFile], owner: Callable[[], SpoolOwner | None]) -> None:
        self._make_file = make_file
        self._owner = owner
        self.file = make_file()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Start with an empty queue and a file that is not open: what is queued belongs to the parent."""
        # Forks wait until the file is closed. If one did not wait long enough, SQLite's memory is wrong in this child.
        self._unusable = self.file.is_open
        self.file = self._make_file()
        self.errors = 0
        self._requests = SimpleQueue()
        self._kept: list[_Request] = []
        self._logged: set[str] = set()
        self._rests_until = 0.0
        self._error: Exception = OSError("this process was forked while the file was in use")
        self._lock = new_lock()
        self._started = False
        self._stopped = False

    def post(self, apply: Callable[[SpoolFile], T], *, is_kept: bool = False) -> Future[T]:
        """Do something with the file. Starts the thread; while the interpreter exits, it is done here.

        Args:
            apply: called inside of a transaction.
            is_kept: True to apply it later, too, if the file cannot be used now.

        Returns:
            The result once it is on the disk, or the reason why it is not.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # a task that is cancelled while it waits must not cancel it
        self._requests.put(_Request(apply, future, is_kept))
        if not self.start():
            self._serve(self._receive(0))
        return future

    def start(self) -> bool:
        """Start the thread unless it runs. Returns False if no thread can be started."""
        with self._lock:
            if self._started:
                return True
            try:
                start_daemon_thread(self._run, "rageval-spool")
            except RuntimeError:
                return False
            self._started = True
            return True

    def wake(self) -> None:
        """Let the thread look for something to do."""
        self._requests.put(None)

    def stop(self) -> None:
        """End the thread after what is queued."""
        self._stopped = True
        self.wake()

    # -- on the thread

    def _run(self) -> None:
        pause = 0.0
        while True:
            requests = self._receive(pause)
            owner = self._owner()
            if owner is None or (self._stopped and not requests):
                return
            self._serve(requests)
            pause = owner.pause()
            # Or this thread would keep its owner alive while it waits.
            del owner, requests

    def _receive(self, pause: float) -> list[_Request]:
        """Return what is queued; wait for the first request."""
        found: list[_Request] = []
        try:
            item = self._requests.get(timeout=pause) if pause > 0 else self._requests.get_nowait()
            while True:
                if item is not None:
                    found.append(item)
                if len(found) >= _BATCH:
                    return found
                item = self._requests.get_nowait()
        except Empty:
            return found

    def _serve(self, requests: list[_Request]) -> None:
        """Answer requests and claim jobs, as long as there is something to do."""
        if self._unusable or time.monotonic() < self._rests_until:
            self._fail(requests, self._error)
            return
        requests, self._kept = [*self._kept, *requests], []
        end = time.monotonic() + _LONGEST_SESSION
        try:
            with delay_forks(), self.file.session():
                while True:
                    claimed = self._transact(requests)
                    requests = []
                    if is_fork_waiting() or time.monotonic() > end:
                        break
                    requests = self._receive(_LINGER)
                    if not requests and not claimed:
                        break
        except (sqlite3.Error, OSError) as error:
            self._note(error)
            self._fail(requests, error)
            return
        # A full disk can still be read, so only writing shows that the file works again.
        if self._logged and self.file.has_written:
            self._logged.clear()
            _logger.warning("rageval-hooks: the spool %s works again [RAGEVAL-402]", self.file.path)

    def _transact(self, requests: list[_Request]) -> bool:
        """Answer requests and claim jobs in one transaction. Returns True if jobs were claimed."""
        owner = self._owner()
        with self.file.transaction():
            results = [request.apply(self.file) for request in requests]
            self.file.renew()
            claimed = [] if owner is None or self._stopped else owner.claim(self.file)
        for request, result in zip(requests, results, strict=True):
            if not request.future.done():
                request.future.set_result(result)
        if owner is not None and claimed:
            owner.take(claimed)
        return bool(claimed)

    def _fail(self, requests: list[_Request], error: Exception) -> None:
        for request in requests:
            if request.is_kept:
                self._kept.append(request)
            if not request.future.done():
                request.future.set_exception(error)

    def _note(self, error: Exception) -> None:
        """Count a failure of the file, and log each kind once, until the file works again."""
        self.errors += 1
        self._error = error
        self._rests_until = time.monotonic() + _REST_SECONDS
        kind = _kind_of(error)
        if kind not in self._logged:
            self._logged.add(kind)
            _logger.warning(
                "rageval-hooks: the spool %s is %s (%s): jobs are evaluated from memory and end with the process. To "
                "repair: %s [RAGEVAL-401]",
                self.file.path,
                kind,
                error,
                _ADVICE[kind],
            )


def _kind_of(error: Exception) -> str:
    """Return what is wrong with the file, as a key of the table of advice."""
    if isinstance(error, OtherVersionError):
        return "other version"
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return "full"
    text = str(error).lower()
    for kind, phrases in _KINDS.items():
        if any(phrase in text for phrase in phrases):
            return kind
    return "not writable" if isinstance(error, OSError) else "not usable"
