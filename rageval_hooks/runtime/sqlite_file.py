"""SQLite files that several processes share, and only their owner can read."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from rageval_hooks.runtime.fork import delay_forks

T = TypeVar("T")

_BUSY_SECONDS = 0.05
_PATIENCE_SECONDS = 2.0


@contextmanager
def open_file(path: Path, timeout: float) -> Iterator[sqlite3.Connection]:
    """Open a file, and create it and its directory if they are missing.

    A connection must not cross a fork: SQLite would believe that the child holds the parent's locks. So forks wait
    while it is open.

    Args:
        path: the file.
        timeout: seconds for which SQLite waits for another process.

    Raises:
        sqlite3.Error: the file cannot be opened.
        OSError: it cannot be created.
    """
    with delay_forks():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Created here and not by SQLite, which would use the umask. Its log files have the permissions of this one.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(path, timeout=timeout, isolation_level=None)) as database:
            yield database


def use_file(path: Path, work: Callable[[sqlite3.Connection], T], *setup: str) -> T:
    """Call a function with a connection to a file, which is created if it is missing.

    Args:
        path: the file; its directory is created, too.
        work: is called again if another process holds a lock, for two seconds.
        setup: statements that come first.

    Raises:
        sqlite3.Error: the file cannot be used: it is locked, damaged, or the disk is full.
        OSError: the file cannot be created.
    """
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            # Forks wait for milliseconds only: a lock is waited for without a connection.
            with open_file(path, _BUSY_SECONDS) as database:
                for statement in setup:
                    database.execute(statement)
                return work(database)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= end:
                raise
        time.sleep(0.01)
