"""What is wrong with the file of a spool: said once, with what to do, and counted."""

from __future__ import annotations

import errno
import logging
import sqlite3
import time
from pathlib import Path

from rageval_hooks.online.spool.store import OtherVersionError

__all__ = ["SpoolHealth"]

_logger = logging.getLogger(__name__)

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


class SpoolHealth:
    """Knows whether the file can be used. Logs each kind of failure once, until the file works again.

    Args:
        path: the file.

    Attributes:
        errors: how often the file could not be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logged: set[str] = set()
        self._rest_until = 0.0
        self.errors = 0
        self.error: Exception = OSError("the spool has not been opened")

    @property
    def rests(self) -> bool:
        """True for a while after a failure."""
        return time.monotonic() < self._rest_until

    def failed(self, error: Exception) -> None:
        """Note a failure, and log it unless it is known."""
        self.errors += 1
        self.error = error
        self._rest_until = time.monotonic() + _REST_SECONDS
        kind = kind_of(error)
        if kind in self._logged:
            return
        self._logged.add(kind)
        _logger.warning(
            "rageval-hooks: the spool %s is %s (%s): jobs are evaluated from memory and end with the process. To "
            "repair: %s [RAGEVAL-401]",
            self._path,
            kind,
            error,
            _ADVICE[kind],
        )

    def worked(self, *, has_written: bool) -> None:
        """Note that the file was used. A full disk can still be read, so only writing shows that it works again."""
        self._rest_until = 0.0
        if self._logged and has_written:
            self._logged.clear()
            _logger.warning("rageval-hooks: the spool %s works again [RAGEVAL-402]", self._path)


def kind_of(error: Exception) -> str:
    """Return what is wrong, as a key of the table of advice."""
    if isinstance(error, OtherVersionError):
        return "other version"
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return "full"
    text = str(error).lower()
    for kind, phrases in _BY_MESSAGE.items():
        if any(phrase in text for phrase in phrases):
            return kind
    if isinstance(error, OSError):
        return "not writable"
    # SQLite: "file is not a database", "database disk image is malformed".
    is_damaged = isinstance(error, sqlite3.DatabaseError) and _is_damage(text)
    return "damaged" if is_damaged else "not usable"


def _is_damage(text: str) -> bool:
    return "not a database" in text or "malformed" in text or "no such" in text


_BY_MESSAGE: dict[str, tuple[str, ...]] = {
    # SQLite says "database or disk is full".
    "full": ("full",),
    "failing": ("disk i/o error",),
    "locked": ("locked", "busy"),
    "not writable": ("readonly", "unable to open"),
}
"""The problem → parts of SQLite's messages about it, in lower case."""
