"""Short uses of a SQLite file that several processes share."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from rageval_hooks.runtime.fork import delay_forks

T = TypeVar("T")

_BUSY_SECONDS = 0.05
_PATIENCE_SECONDS = 2.0


def use_file(path: Path, work: Callable[[sqlite3.Connection], T], *setup: str) -> T:
    """Call a function with a connection to a file that only its owner can read; create the file if it is missing.

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
            # A connection must not cross a fork: SQLite would believe that the child holds the parent's locks. So forks
            # wait while it is open, which is for milliseconds: a lock is waited for without a connection.
            with delay_forks():
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    # Created here and not by SQLite, which would use the umask.
                    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
                    for statement in setup:
                        database.execute(statement)
                    return work(database)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= end:
                raise
        time.sleep(0.01)
