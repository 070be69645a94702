"""Files that this process writes for itself: readable by their owner only."""

from __future__ import annotations

import atexit
import errno
import json
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rageval_hooks.runtime.fork import reset_in_child
from rageval_hooks.runtime.threads import new_lock, sleep, start_daemon_thread

_logger = logging.getLogger(__name__)

PID = "{pid}"
"""In a path, this stands for the id of the process: several workers of a server have a file each."""


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read. For the argument ``opener`` of :func:`open`.

    In a shared folder, somebody may have made a file or a link of this name, to read or to redirect what is written.

    Raises:
        OSError: it is a link, or the file of another user.
    """
    # /dev/stdout is a link.
    no_links = 0 if os.path.abspath(path).startswith("/dev/") else getattr(os, "O_NOFOLLOW", 0)
    try:
        file = os.open(path, flags | no_links, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, "is a symbolic link: name the file itself", path) from None
        raise
    found = os.fstat(file)
    # Access of a group was given on purpose.
    if stat.S_ISREG(found.st_mode) and (found.st_mode & 0o007 or found.st_uid != _user()):
        try:
            os.chmod(path, 0o600)
        except OSError:
            os.close(file)
            raise
    return file


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


class StatsFile:
    """The counters of this process, for ``rageval-hooks top``: a daemon thread replaces the file every second.

    It has numbers and names only, no texts of turns. A clean end of the process removes it.

    Args:
        path: the file; ``{pid}`` in it stands for the process id.
        read: returns the counters.
        interval: seconds between two versions of the file.
    """

    def __init__(self, path: str, read: Callable[[], Mapping[str, Any]], interval: float = 1.0) -> None:
        self._template = os.path.abspath(os.path.expanduser(path))
        self._read = read
        self._interval = interval
        self._warned = self._stopped = False
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
        self._stopped |= PID not in self._template
        if not self._stopped:
            start_daemon_thread(self._run, "rageval-stats")

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
            try:
                self._write()
            except Exception as error:
                # Once: a full disk should not fill the log, too.
                if not self._warned:
                    self._warned = True
                    _logger.warning(
                        "rageval-hooks: stats_file %s cannot be written: %s [RAGEVAL-217]", self.path, error
                    )
            sleep(self._interval)

    def _write(self) -> None:
        content = json.dumps({"pid": os.getpid(), "written_at": time.time(), "stats": self._read()}, default=str)
        temporary = f"{self.path}.{os.getpid()}.tmp"
        with self._lock:
            if self._stopped:
                return
            with suppress(FileNotFoundError):
                os.remove(temporary)
            # Mode "x": a link that another user has put there is not followed.
            with open(temporary, "x", encoding="utf-8", opener=open_private) as file:
                file.write(content)
            # A reader sees the old file or the new one, never a part.
            os.replace(temporary, self.path)
