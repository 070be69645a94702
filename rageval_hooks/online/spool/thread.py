"""The thread that uses the file of a spool: commands of other threads in batches, one transaction for each batch."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty
from typing import Any, Generic, Protocol, TypeVar

from rageval_hooks.online.spool.health import SpoolHealth
from rageval_hooks.online.spool.store import SpoolFile, StoredJob
from rageval_hooks.runtime.fork import delay_forks, is_fork_waiting, reset_in_child
from rageval_hooks.runtime.threads import SimpleQueue, new_lock, start_daemon_thread

__all__ = ["Command", "SpoolOwner", "SpoolThread"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_BATCH = 256
"""Commands of one transaction, at most."""

_LINGER = 0.02
"""Seconds for which the file stays open after a batch: work comes in bursts, and opening costs a millisecond."""

_LONGEST_SESSION = 1.0
"""Seconds after which the file is closed and opened again: it may have been moved away meanwhile."""


@dataclass(frozen=True)
class Command(Generic[T]):
    """Something to do with the file.

    Attributes:
        apply: does it, inside of a transaction.
        done: receives the result once it is on the disk.
        failed: receives the reason why it is not.
        is_kept: True to apply it later if the file cannot be used now.
    """

    apply: Callable[[SpoolFile], T]
    done: Callable[[T], object] = lambda _: None
    failed: Callable[[Exception], object] = lambda _: None
    is_kept: bool = False


class SpoolOwner(Protocol):
    """The user of a spool thread. All methods run on that thread and must not raise."""

    def claim(self, file: SpoolFile) -> list[StoredJob]:
        """Claim jobs, inside of a transaction."""

    def take(self, jobs: list[StoredJob]) -> None:
        """Start to evaluate jobs that were claimed."""

    def pause(self) -> float:
        """Return the seconds after which the thread is to look again without a command."""


class SpoolThread:
    """A daemon thread that owns a spool's file. It starts with the first command, in a forked child again.

    Args:
        file: the file.
        owner: returns the user of this thread; None ends the thread.
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
        self.health = SpoolHealth(self.file.path)
        self._commands = SimpleQueue()
        self._kept: list[Command[Any]] = []
        self._lock = new_lock()
        self._started = False
        self._stopped = False

    def post(self, command: Command[Any]) -> None:
        """Queue a command. Starts the thread; while the interpreter exits, the command runs here."""
        self._commands.put(command)
        if not self.start():
            self._serve(self._receive(0))

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
        self._commands.put(None)

    def stop(self) -> None:
        """End the thread after what is queued."""
        self._stopped = True
        self.wake()

    # -- on the thread

    def _run(self) -> None:
        pause = 0.0
        while True:
            commands = self._receive(pause)
            owner = self._owner()
            if owner is None or (self._stopped and not commands):
                return
            self._serve(commands)
            pause = owner.pause()
            # Or this thread would keep its owner alive while it waits.
            del owner, commands

    def _receive(self, pause: float) -> list[Command[Any]]:
        """Return the commands that are queued; wait for the first one."""
        found: list[Command[Any]] = []
        try:
            item = self._commands.get(timeout=pause) if pause > 0 else self._commands.get_nowait()
            while True:
                if item is not None:
                    found.append(item)
                if len(found) >= _BATCH:
                    return found
                item = self._commands.get_nowait()
        except Empty:
            return found

    def _serve(self, commands: list[Command[Any]]) -> None:
        """Apply commands and claim jobs, as long as there is something to do."""
        if self._unusable:
            self._fail(commands, OSError("this process was forked while the file was in use"))
            return
        if self.health.rests:
            self._fail(commands, self.health.error)
            return
        commands, self._kept = [*self._kept, *commands], []
        end = time.monotonic() + _LONGEST_SESSION
        try:
            with delay_forks(), self.file.session():
                while True:
                    claimed = self._transact(commands)
                    commands = []
                    if is_fork_waiting() or time.monotonic() > end:
                        break
                    commands = self._receive(_LINGER)
                    if not commands and not claimed:
                        break
        except (sqlite3.Error, OSError) as error:
            self.health.failed(error)
            self._fail(commands, error)
        else:
            self.health.worked(has_written=self.file.has_written)

    def _transact(self, commands: list[Command[Any]]) -> bool:
        """Apply commands and claim jobs in one transaction. Returns True if jobs were claimed."""
        owner = self._owner()
        with self.file.transaction():
            results = [command.apply(self.file) for command in commands]
            self.file.renew()
            claimed = [] if owner is None or self._stopped else owner.claim(self.file)
        for command, result in zip(commands, results, strict=True):
            _call(command.done, result)
        if owner is not None and claimed:
            owner.take(claimed)
        return bool(claimed)

    def _fail(self, commands: list[Command[Any]], error: Exception) -> None:
        for command in commands:
            if command.is_kept:
                self._kept.append(command)
            _call(command.failed, error)


def _call(function: Callable[[Any], object], argument: object) -> None:
    try:
        function(argument)
    except Exception:  # the thread must continue
        _logger.warning("rageval-hooks: an error in the spool's thread [RAGEVAL-407]", exc_info=True)
