"""Counts of a budget in a SQLite file, for the processes of a host."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rageval_hooks.budgets.errors import BudgetUnavailableError
from rageval_hooks.budgets.limits import Limit
from rageval_hooks.budgets.store import Amounts, Refusal, Reserved
from rageval_hooks.runtime.fork import delay_forks

__all__ = ["SQLiteBudget"]

_BUSY_SECONDS = 2.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS usage "
    "(name TEXT PRIMARY KEY, period INTEGER NOT NULL, used REAL NOT NULL) WITHOUT ROWID"
)


class SQLiteBudget:
    """Counts in a file that only its owner can read; see :class:`BudgetStore`.

    Args:
        path: the file; created with its directory.
        clock: seconds since the epoch.
    """

    kind = "sqlite"

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock

    def __str__(self) -> str:
        """Return the path."""
        return str(self._path)

    def reserve(self, limits: Sequence[Limit], amounts: Amounts) -> Reserved | Refusal:
        """Count a call in advance, if it fits into all limits."""
        with self._transaction() as database:
            now = self._clock()
            windows = tuple(int(now // limit.seconds) for limit in limits)
            used = [_used(database, limit, window) for limit, window in zip(limits, windows, strict=True)]
            for limit, before in zip(limits, used, strict=True):
                if before >= limit.amount or before + amounts[limit.unit] > limit.amount:
                    return Refusal(limit, limit.seconds - now % limit.seconds)
            after = tuple(before + amounts[limit.unit] for limit, before in zip(limits, used, strict=True))
            _write(database, limits, windows, after)
            return Reserved(windows, after)

    def correct(self, limits: Sequence[Limit], windows: Sequence[int], changes: Amounts) -> tuple[float, ...]:
        """Replace what was counted in advance by what was used."""
        with self._transaction() as database:
            now = self._clock()
            current = tuple(int(now // limit.seconds) for limit in limits)
            after = []
            for limit, reserved_in, window in zip(limits, windows, current, strict=True):
                change = changes[limit.unit]
                is_same = _period(database, limit) == reserved_in
                used = _used(database, limit, window)
                after.append(max(0.0, used + (change if is_same else max(0.0, change))))
            _write(database, limits, current, after)
            return tuple(after)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            # A connection must not cross a fork. Opening one takes less than a millisecond, and a judge takes seconds.
            with delay_forks():
                self._create()
                database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
                try:
                    database.execute("BEGIN IMMEDIATE")
                    database.execute(_SCHEMA)
                    yield database
                    database.execute("COMMIT")
                finally:
                    database.close()
        except (sqlite3.Error, OSError) as error:
            raise BudgetUnavailableError(f"the judge's budget in {self._path} cannot be used: {error}") from None

    def _create(self) -> None:
        if self._path.exists():
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))


def _period(database: sqlite3.Connection, limit: Limit) -> int | None:
    row = database.execute("SELECT period FROM usage WHERE name = ?", (limit.name,)).fetchone()
    return None if row is None else int(row[0])


def _used(database: sqlite3.Connection, limit: Limit, window: int) -> float:
    # A later period in the file means that the clock went back: what was used then counts for this one.
    database.execute("UPDATE usage SET period = ? WHERE name = ? AND period > ?", (window, limit.name, window))
    row = database.execute("SELECT used FROM usage WHERE name = ? AND period = ?", (limit.name, window)).fetchone()
    return 0.0 if row is None else float(row[0])


def _write(
    database: sqlite3.Connection, limits: Sequence[Limit], windows: Sequence[int], used: Sequence[float]
) -> None:
    rows = [(limit.name, window, amount) for limit, window, amount in zip(limits, windows, used, strict=True)]
    database.executemany("INSERT OR REPLACE INTO usage VALUES (?, ?, ?)", rows)
