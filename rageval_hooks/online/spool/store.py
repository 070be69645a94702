"""The file of a spool: jobs that wait, and results that are not delivered yet, in SQLite."""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

_VERSION = 2
_BUSY_SECONDS = 2.0
"""How long SQLite waits for another process. Short, because a fork of this process waits as long."""

_BUSY_PAUSE = 0.02
_LOG_BYTES = 4 * 1024 * 1024
"""Size to which SQLite shrinks the write-ahead log, the file ``…-wal``."""

_ID_BITS = 24
"""Ids of jobs begin at a random multiple of 2 ** 24: those of a file that was deleted are not found in the next one."""

# The texts have their own table: a search for jobs that are due then reads small rows only.
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    origin TEXT NOT NULL,
    owner TEXT,
    lease REAL,
    lease_seconds REAL,
    waiting INTEGER NOT NULL DEFAULT 0,
    takeovers INTEGER NOT NULL DEFAULT 0,
    deliveries INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS due ON jobs (waiting, takeovers, id);
CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, job TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS results (
    id INTEGER NOT NULL,
    part TEXT NOT NULL,
    result TEXT NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (id, part)
) WITHOUT ROWID;
INSERT INTO sqlite_sequence (name, seq)
    SELECT 'jobs', (abs(random()) % 2147483648) << 24 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence);
PRAGMA user_version = 2;
COMMIT;
"""
# A lease is a time on the monotonic clock, which is the same for all processes of a host and never jumps. After a
# reboot it starts again, and an old lease may lie further ahead than any lease of its owner: it does not count. The
# owner's own length is stored, because processes with different settings may share the file.
_FREE = "(owner IS NULL OR lease <= :now OR lease > :now + lease_seconds)"


Outcome = Literal["stored", "duplicates", "refused"]
"""What became of a job: the file has it now, had it already, or is full."""


class OtherVersionError(sqlite3.DatabaseError):
    """The file was written by another version of this package."""


class StoredJob(NamedTuple):
    """A job that this process has claimed.

    Attributes:
        id: its number in the file.
        key: its idempotency key.
        text: the job as JSON.
        results: what earlier attempts have found out: evaluations as JSON without their turn, and whether the exporters
            have delivered them.
        takeovers: how many processes have ended while they had the job.
        deliveries: how often the results could not be delivered.
    """

    id: int
    key: str
    text: str
    results: tuple[tuple[str, bool], ...]
    takeovers: int
    deliveries: int


class SpoolFile:
    """Jobs and their results in one file that only its owner can read. Used by one thread at a time.

    Several processes may use the file. A process claims a job for some seconds (a lease) and renews its leases while it
    lives. Results and the removal of a job are accepted from the process that holds its lease only.

    A connection must not cross a fork: SQLite would believe that the child holds the parent's locks. Connections are
    therefore opened for a while and closed again (:meth:`session`); forks have to wait meanwhile.

    Args:
        path: the file; created with its directory.
        max_bytes: new jobs are refused if the file would grow beyond it.
        lease: seconds for which a claim holds.
        clock: the monotonic clock, in seconds.

    Attributes:
        process: identifies this process in the file.
        has_written: True if the latest session has changed something on the disk.
        unreadable: numbers of jobs that were set aside since this list was emptied.
    """

    def __init__(self, path: Path, max_bytes: int, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.lease = lease
        self.process = uuid.uuid4().hex
        self.unreadable: list[int] = []
        self.has_written = False
        self._clock = clock
        self._database: sqlite3.Connection | None = None
        self._renewed = 0.0

    # -- connections

    @contextmanager
    def session(self) -> Iterator[None]:
        """Open the file for a while.

        Raises:
            OSError: the file cannot be created.
            sqlite3.Error: it cannot be opened, or is damaged.
        """
        self._create()
        self.has_written = False
        database = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._database = database
        try:
            self._set_up(database)
            yield
        finally:
            database.close()
            self._database = None

    @property
    def is_open(self) -> bool:
        """True inside of a session."""
        return self._database is not None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the changes of a block together: all are on the disk at its end, or none.

        Raises:
            sqlite3.Error: none is.
        """
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self.has_written = self._run("COMMIT").connection.total_changes > 0
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite may have ended the transaction itself
                self._run("ROLLBACK")
            raise

    def _create(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Another user who can write to the directory could otherwise change the permissions of any of our files.
        if self.path.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link", str(self.path))
        # Created here and not by SQLite, which would use the umask. Its log files have the permissions of this one.
        descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            if os.name == "posix" and os.fstat(descriptor).st_mode & 0o077:
                os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)

    def _set_up(self, database: sqlite3.Connection) -> None:
        # SQLite does not wait for a lock when it changes the journal mode, and two processes may do so at once.
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                database.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_BUSY_PAUSE)
        # FULL: a committed job survives a power failure, too.
        database.execute("PRAGMA synchronous=FULL")
        database.execute(f"PRAGMA journal_size_limit={_LOG_BYTES}")
        # Deleted jobs hold texts of users: their bytes are overwritten where that costs no further write.
        database.execute("PRAGMA secure_delete=FAST")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version == _VERSION:
            return
        if version:
            raise OtherVersionError(f"the file has version {version}, and this is version {_VERSION}")
        database.executescript(_SCHEMA)

    def _run(self, statement: str, values: Mapping[str, object] | tuple[object, ...] = ()) -> sqlite3.Cursor:
        assert self._database is not None, "only inside of a session"  # noqa: S101
        return self._database.execute(statement, values)

    # -- jobs

    def add(self, key: str, text: str) -> Outcome:
        """Store a job, given by its idempotency key and as JSON."""
        if self.used_bytes() + len(text) > self.max_bytes:
            return "refused"
        cursor = self._run("INSERT OR IGNORE INTO jobs (key, origin) VALUES (?, ?)", (key, self.process))
        if not cursor.rowcount:
            return "duplicates"
        self._run("INSERT INTO texts VALUES (?, ?)", (cursor.lastrowid, text))
        return "stored"

    def claim(self, limit: int, *, waiting: bool, max_bytes: float = math.inf) -> list[StoredJob]:
        """Claim jobs that no living process has. Jobs whose process died come last.

        Args:
            limit: how many, at most.
            max_bytes: no further job is claimed once the claimed ones have this size.
            waiting: claim jobs that wait for the judge; False for the others.
        """
        now = self._clock()
        ids = self._run(
            f"SELECT id FROM jobs WHERE waiting = :waiting AND owner IS NOT :me AND {_FREE} "  # noqa: S608 - a constant
            "ORDER BY takeovers, id LIMIT :limit",
            {"now": now, "me": self.process, "waiting": int(waiting), "limit": limit},
        ).fetchall()
        claimed: list[StoredJob] = []
        for (job_id,) in ids:
            if sum(len(job.text) for job in claimed) >= max_bytes:
                break
            job = self._claim_one(job_id, now)
            if job is None:
                self.set_aside(job_id)
                self.unreadable.append(job_id)
            else:
                claimed.append(job)
        return claimed

    def _claim_one(self, job_id: int, now: float) -> StoredJob | None:
        """Claim a job. Returns None if it has no text, or one that is not UTF-8: the file was damaged."""
        # An owner that is still there has not released the job: its process died, or stood still for a whole lease.
        self._run(
            "UPDATE jobs SET takeovers = takeovers + (owner IS NOT NULL), owner = ?, lease = ? + ?, lease_seconds = ? "
            "WHERE id = ?",
            (self.process, now, self.lease, self.lease, job_id),
        )
        # As bytes: SQLite's own message about text that is not UTF-8 would quote it, and end the whole transaction.
        key, text, takeovers, deliveries = self._run(
            "SELECT CAST(key AS BLOB), CAST(job AS BLOB), takeovers, deliveries FROM jobs LEFT JOIN texts USING (id) "
            "WHERE id = ?",
            (job_id,),
        ).fetchone()
        rows = self._run("SELECT CAST(result AS BLOB), delivered FROM results WHERE id = ?", (job_id,)).fetchall()
        if text is None:
            return None
        try:
            results = tuple((result.decode(), bool(delivered)) for result, delivered in rows)
            return StoredJob(job_id, key.decode(), text.decode(), results, takeovers, deliveries)
        except UnicodeDecodeError:
            return None

    def set_aside(self, job_id: int) -> None:
        """Keep a job that cannot be read, for inspection, and claim it no more."""
        self._run("UPDATE jobs SET owner = NULL, lease = NULL, waiting = -1 WHERE id = ?", (job_id,))

    def renew(self) -> None:
        """Renew the leases of this process, if that is due."""
        now = self._clock()
        if 0 <= now - self._renewed < self.lease / 3:
            return
        self._run("UPDATE jobs SET lease = ? WHERE owner = ?", (now + self.lease, self.process))
        self._renewed = now

    def keep(self, job_id: int, part: str, result: str) -> bool:
        """Store a result. Returns False if another process has taken the job over; the result must not be used then.

        The result of a job whose file was deleted meanwhile is not stored, and may be used: no other process has it.
        """
        if not self._is_mine(job_id):
            (latest,) = self._run("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'").fetchone()
            return bool(latest >> _ID_BITS != job_id >> _ID_BITS)
        statement = "INSERT OR IGNORE INTO results (id, part, result) VALUES (?, ?, ?)"
        return bool(self._run(statement, (job_id, part, result)).rowcount)

    def note_delivery(self, job_id: int) -> None:
        """Note that the results so far are delivered; more will come."""
        if self._is_mine(job_id):
            self._run("UPDATE results SET delivered = 1 WHERE id = ?", (job_id,))

    def release(self, job_id: int, *, waiting: bool, undelivered: bool = False) -> None:
        """Give a job back, for this or another process.

        Args:
            job_id: the job.
            waiting: True if it waits for the judge.
            undelivered: True if its results could not be delivered.
        """
        self._run(
            "UPDATE jobs SET owner = NULL, lease = NULL, waiting = ?, deliveries = deliveries + ? "
            "WHERE id = ? AND owner = ?",
            (int(waiting), int(undelivered), job_id, self.process),
        )

    def release_all(self) -> None:
        """Give all jobs of this process back."""
        self._run("UPDATE jobs SET owner = NULL, lease = NULL WHERE owner = ?", (self.process,))

    def finish(self, job_id: int) -> None:
        """Remove a job whose results are delivered."""
        if self._run("DELETE FROM jobs WHERE id = ? AND owner = ?", (job_id, self.process)).rowcount:
            self._run("DELETE FROM texts WHERE id = ?", (job_id,))
            self._run("DELETE FROM results WHERE id = ?", (job_id,))

    def _is_mine(self, job_id: int) -> bool:
        found = self._run("SELECT 1 FROM jobs WHERE id = ? AND owner = ?", (job_id, self.process))
        return found.fetchone() is not None

    # -- figures

    def used_bytes(self) -> int:
        """Return the size of the pages in use. Pages of removed jobs stay in the file and are used again."""
        pages, free, size = (
            self._run(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def count(self, *, own: bool = False) -> tuple[int, int]:
        """Return the number of jobs, and how many of them wait for the judge; without those that were set aside.

        Args:
            own: count only those that this process has stored.
        """
        where = "WHERE waiting >= 0" + (" AND origin = ?" if own else "")
        values = (self.process,) if own else ()
        found = self._run(f"SELECT COUNT(*), COALESCE(SUM(waiting), 0) FROM jobs {where}", values)  # noqa: S608
        total, waiting = found.fetchone()
        return total, waiting
