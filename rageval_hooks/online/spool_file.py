"""The file of a spool: jobs that wait, and results that are not delivered yet, in SQLite."""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rageval_hooks.runtime.sqlite_file import open_file
from rageval_hooks.settings import Settings

_VERSION = 2
_BUSY_SECONDS = 2.0
"""How long SQLite waits for another process."""

_LOG_BYTES = 4 * 1024 * 1024
"""Size to which SQLite shrinks the write-ahead log, the file ``…-wal``."""

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
PRAGMA user_version = 2;
COMMIT;
"""
# A lease is a time on the monotonic clock, which is the same for all processes of a host and never jumps. After a
# reboot it starts again, and an old lease may lie further ahead than any lease of its owner: it does not count. The
# owner's own length is stored, because processes with different settings may share the file.
_FREE = "(lease IS NULL OR lease <= :now OR lease > :now + lease_seconds)"

# With the key: a job of a file that was deleted must not be taken for the one with its number in the next file.
_MINE = "id = :id AND key = :key AND owner = :me"

Outcome = Literal["stored", "duplicates", "refused"]
"""What became of a job: the file has it now, had it already, or is full."""


class StoredJob(NamedTuple):
    """A job that this process has claimed.

    Attributes:
        id: its number in the file.
        key: its idempotency key.
        text: the job as JSON; something else if the file was damaged.
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

    Connections are opened for a while and closed again: forks have to wait meanwhile.

    Args:
        settings: the file, which is created with its directory; the size beyond which new jobs are refused; and the
            seconds for which a claim holds.

    Attributes:
        path: the file.
        max_bytes: the size beyond which new jobs are refused.
        lease: the seconds for which a claim holds.
        process: identifies this process in the file.
        has_written: True if the latest transaction has changed something on the disk.
    """

    def __init__(self, settings: Settings) -> None:
        self.path = Path(settings.spool_path).expanduser()
        self.max_bytes = settings.spool_max_mb * 2**20
        self.lease = settings.spool_lease
        self.process = uuid.uuid4().hex
        self.has_written = False
        self._database: sqlite3.Connection | None = None
        self._renewed = -math.inf

    @property
    def is_open(self) -> bool:
        """True inside of a session."""
        return self._database is not None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Open the file for a while: opening and closing it takes four times as long as a transaction.

        Raises:
            OSError: the file cannot be created.
            sqlite3.Error: it cannot be opened, or is damaged.
        """
        # Another user who can write to the directory could otherwise change the permissions of any of our files.
        if self.path.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link", str(self.path))
        with open_file(self.path, _BUSY_SECONDS) as database:
            if os.name == "posix":
                self.path.chmod(0o600)
            self._database = database
            try:
                _set_up(database)
                yield
            finally:  # closing it ends a transaction that has failed
                self._database = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the changes of a block together: all are on the disk at its end, or none. Opens the file if need be.

        Raises:
            OSError: the file cannot be created.
            sqlite3.Error: it cannot be opened or written, or is damaged.
        """
        if self._database is None:
            with self.session(), self.transaction():
                yield
            return
        before = self._database.total_changes
        self._run("BEGIN IMMEDIATE")
        yield
        self._run("COMMIT")
        self.has_written = self._database.total_changes > before

    def _run(self, statement: str, job: StoredJob | None = None, **values: Any) -> sqlite3.Cursor:
        assert self._database is not None, "only inside of a transaction"  # noqa: S101
        named = {} if job is None else {"id": job.id, "key": job.key}
        return self._database.execute(statement, {"me": self.process, **named, **values})

    # -- jobs

    def add(self, key: str, text: str) -> Outcome:
        """Store a job, given by its idempotency key and as JSON."""
        if self.used_bytes() + len(text) > self.max_bytes:
            return "refused"
        cursor = self._run("INSERT OR IGNORE INTO jobs (key, origin) VALUES (:key, :me)", key=key)
        if not cursor.rowcount:
            return "duplicates"
        self._run("INSERT INTO texts VALUES (:id, :text)", id=cursor.lastrowid, text=text)
        return "stored"

    def claim(self, limit: int, *, waiting: bool, max_bytes: float = math.inf) -> list[StoredJob]:
        """Claim jobs that no living process has. Jobs whose process died come last.

        Args:
            limit: how many, at most.
            max_bytes: no further job is claimed once the claimed ones have this size.
            waiting: claim jobs that wait for the judge, too, after the others.
        """
        now = time.monotonic()
        ids = self._run(
            "SELECT id FROM jobs WHERE waiting BETWEEN 0 AND :waiting AND owner IS NOT :me "  # noqa: S608 - a constant
            f"AND {_FREE} ORDER BY waiting, takeovers, id LIMIT :limit",
            now=now,
            waiting=int(waiting),
            limit=limit,
        ).fetchall()
        claimed: list[StoredJob] = []
        for (job_id,) in ids:
            if sum(len(job.text) for job in claimed) >= max_bytes:
                break
            # An owner that is still there has not released the job: its process died, or stood still for a lease.
            self._run(
                "UPDATE jobs SET takeovers = takeovers + (owner IS NOT NULL), owner = :me, lease = :until, "
                "lease_seconds = :lease WHERE id = :id",
                id=job_id,
                until=now + self.lease,
                lease=self.lease,
            )
            # As bytes: SQLite's own message about text that is not UTF-8 would quote it, and end the transaction.
            # Whoever reads the job as JSON finds out that the file was damaged.
            key, text, takeovers, deliveries = self._run(
                "SELECT CAST(key AS BLOB), CAST(job AS BLOB), takeovers, deliveries "
                "FROM jobs LEFT JOIN texts USING (id) WHERE id = :id",
                id=job_id,
            ).fetchone()
            rows = self._run("SELECT CAST(result AS BLOB), delivered FROM results WHERE id = :id", id=job_id)
            results = tuple((_text(result), bool(delivered)) for result, delivered in rows.fetchall())
            claimed.append(StoredJob(job_id, _text(key), _text(text), results, takeovers, deliveries))
        return claimed

    def renew(self) -> None:
        """Renew the leases of this process, if that is due."""
        now = time.monotonic()
        if now - self._renewed >= self.lease / 3:
            self._run("UPDATE jobs SET lease = :until WHERE owner = :me", until=now + self.lease)
            self._renewed = now

    def keep(self, job: StoredJob, part: str, result: str) -> bool:
        """Store a result. Returns False if another process has taken the job over; the result must not be used then."""
        statement = (
            f"INSERT OR IGNORE INTO results (id, part, result) SELECT id, :part, :result FROM jobs WHERE {_MINE}"  # noqa: S608
        )
        return bool(self._run(statement, job, part=part, result=result).rowcount)

    def note_delivery(self, job: StoredJob) -> None:
        """Note that the results so far are delivered; more will come."""
        self._run(
            f"UPDATE results SET delivered = 1 WHERE id = (SELECT id FROM jobs WHERE {_MINE})",  # noqa: S608
            job,
        )

    def release(self, job: StoredJob, *, waiting: bool, retry_after: float | None = None) -> None:
        """Give a job back, for this or another process.

        Args:
            job: the job.
            waiting: True if it waits for the judge.
            retry_after: its results could not be delivered, and nobody tries again for so many seconds.
        """
        self._run(
            "UPDATE jobs SET owner = NULL, lease = :until, lease_seconds = :pause, waiting = :waiting, "  # noqa: S608
            f"deliveries = deliveries + :failures WHERE {_MINE}",
            job,
            until=None if retry_after is None else time.monotonic() + retry_after,
            pause=retry_after,
            waiting=int(waiting),
            failures=int(retry_after is not None),
        )

    def release_all(self) -> None:
        """Give all jobs of this process back."""
        self._run("UPDATE jobs SET owner = NULL, lease = NULL WHERE owner = :me")

    def forget_pauses(self) -> None:
        """Let jobs be delivered at once whose results an earlier process could not deliver."""
        self._run("UPDATE jobs SET lease = NULL WHERE owner IS NULL AND lease IS NOT NULL")

    def set_aside(self, job: StoredJob) -> None:
        """Keep a job that cannot be read, for inspection, and claim it no more."""
        self._run(f"UPDATE jobs SET owner = NULL, lease = NULL, waiting = -1 WHERE {_MINE}", job)  # noqa: S608

    def finish(self, job: StoredJob) -> None:
        """Remove a job whose results are delivered."""
        if self._run(f"DELETE FROM jobs WHERE {_MINE}", job).rowcount:  # noqa: S608
            self._run("DELETE FROM texts WHERE id = :id", job)
            self._run("DELETE FROM results WHERE id = :id", job)

    # -- figures

    def used_bytes(self) -> int:
        """Return the size of the pages in use. Pages of removed jobs stay in the file and are used again."""
        statement = (
            "SELECT (page_count - freelist_count) * page_size "
            "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        )
        return int(self._run(statement).fetchone()[0])

    def count(self, *, own: bool = False) -> tuple[int, int]:
        """Return the number of jobs, and how many of them wait for the judge; without those that were set aside.

        Args:
            own: count only those that this process has stored.
        """
        total, waiting = self._run(
            "SELECT COUNT(*), COALESCE(SUM(waiting), 0) FROM jobs WHERE waiting >= 0 AND (origin = :me OR NOT :own)",
            own=own,
        ).fetchone()
        return total, waiting


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode(errors="replace")


def _set_up(database: sqlite3.Connection) -> None:
    # SQLite does not wait for a lock when it changes the journal mode, and two processes may do so at once.
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            database.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.02)
    # FULL: a committed job survives a power failure, too.
    database.execute("PRAGMA synchronous=FULL")
    database.execute(f"PRAGMA journal_size_limit={_LOG_BYTES}")
    # Deleted jobs hold texts of users: their bytes are overwritten where that costs no further write.
    database.execute("PRAGMA secure_delete=FAST")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, _VERSION):
        raise OSError(f"the file has version {version}, and this is version {_VERSION}")
    if not version:
        database.executescript(_SCHEMA)
