"""Files that this process writes for itself: readable by their owner only."""

from __future__ import annotations

import atexit
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.threads import new_lock, sleep, start_daemon_thread

_logger = logging.getLogger(__name__)

PID = "{pid}"
"""In a path, this stands for the id of the process: several workers of a server have a file each."""

_INTERVAL = 1.0


def open_private(path: str, flags: int) -> int:
    """Open a file; a new one can only be read by its owner. For the argument ``opener`` of :func:`open`."""
    return os.open(path, flags, 0o600)


class StatsFile:
    """The counters of this process, for ``rageval-hooks top``: a daemon thread replaces the file every second.

    It has numbers and names only, no texts of turns. A clean end of the process removes it.

    Args:
        path: the file; ``{pid}`` in it stands for the process id.
        read: returns the counters.
        interval: seconds between two versions of the file.
    """

    def __init__(self, path: str, read: Callable[[], Mapping[str, Any]], interval: float = _INTERVAL) -> None:
        self._template = os.path.abspath(os.path.expanduser(path))
        self._read = read
        self._interval = interval
        self._warned = False
        self._stopped = False
        self._lock = new_lock()
        reset_in_child(self)
        start_daemon_thread(self._run, "rageval-stats")
        atexit.register(self.stop)

    @property
    def path(self) -> str:
        """The file of this process."""
        return self._template.replace(PID, str(os.getpid()))

    def reset_after_fork(self) -> None:
        """Start the child's thread if the child has a separate file: two processes must not write the same one."""
        self._lock = new_lock()
        if self._stopped:
            return
        if PID in self._template:
            start_daemon_thread(self._run_in_child, "rageval-stats")
        else:
            self._stopped = True

    def stop(self) -> None:
        """End the thread and remove the file. A second call does nothing."""
        # Under the lock: a version that is being written must not appear afterwards.
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            with suppress(OSError):
                os.remove(self.path)
        atexit.unregister(self.stop)

    def _run(self) -> None:
        while not self._stopped:
            self._try_to_write()
            sleep(self._interval)

    def _run_in_child(self) -> None:
        # The counters are reset after the fork, too, perhaps after this thread was started.
        sleep(self._interval)
        self._run()

    def _try_to_write(self) -> None:
        try:
            content = json.dumps({"pid": os.getpid(), "written_at": time.time(), "stats": self._read()}, default=str)
            with self._lock:
                if not self._stopped:
                    self._write(content)
        except Exception as error:
            # Once: a full disk should not fill the log, too.
            if not self._warned:
                self._warned = True
                _logger.warning("rageval-hooks: stats_file %s cannot be written: %s [RAGEVAL-217]", self.path, error)

    def _write(self, content: str) -> None:
        temporary = f"{self.path}.{os.getpid()}.tmp"
        with suppress(FileNotFoundError):
            os.remove(temporary)
        # O_EXCL: a link that another user has put there is not followed.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
        # A reader sees the old file or the new one, never a part.
        os.replace(temporary, self.path)
