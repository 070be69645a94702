"""The limits of a budget, and where their counts are kept: a SQLite file, or a Redis database.

The package ``limits`` has no store in a file, counts integers only, and cannot take back what was counted in advance.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from rageval_hooks.errors import ConfigurationError, UnknownNameError, requires
from rageval_hooks.judges.base import GateClosedError
from rageval_hooks.runtime.sqlite_file import use_file

if TYPE_CHECKING:
    import redis


Unit = Literal["calls", "tokens", "usd"]

_PERIODS: Final[dict[str, int]] = {"minute": 60, "day": 86_400}
_KINDS: Final[dict[str, tuple[Unit, str]]] = {
    f"{unit}_per_{period}": (unit, period) for unit in ("calls", "tokens", "usd") for period in _PERIODS
}
_PATIENCE_SECONDS = 2.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS usage "
    "(name TEXT PRIMARY KEY, period INTEGER NOT NULL, used REAL NOT NULL) WITHOUT ROWID"
)
_REDIS_KEY = "rageval:judge-budget"


class BudgetUnavailableError(GateClosedError):
    """The counts of the budget cannot be read or written now."""

    kind: ClassVar[str] = "budget_unavailable"


class Limit(NamedTuple):
    """One limit of a budget.

    Attributes:
        name: ``calls_per_minute``, ``usd_per_day`` …
        unit: what is counted.
        seconds: the period. A period begins with a full minute, or at 00:00 UTC.
        amount: how much may be used in a period.
    """

    name: str
    unit: Unit
    seconds: int
    amount: float

    def __str__(self) -> str:
        """Return the limit in words: ``5 USD per day``."""
        unit = "USD" if self.unit == "usd" else self.unit
        return f"{self.amount:g} {unit} per {self.name.rpartition('_')[2]}"


def parse_limits(given: Mapping[str, float]) -> tuple[Limit, ...]:
    """Return the limits of a setting such as ``{"calls_per_day": 1000}``.

    Raises:
        UnknownNameError: a limit has another name; the message lists the valid ones.
    """
    limits = []
    for name, amount in given.items():
        if name not in _KINDS:
            raise UnknownNameError("limit in judge_budget", name, _KINDS)
        unit, period = _KINDS[name]
        limits.append(Limit(name, unit, _PERIODS[period], amount))
    return tuple(limits)


class Refusal(NamedTuple):
    """A request does not fit.

    Attributes:
        limit: the limit that it would exceed.
        resets_in: seconds until the next period begins.
    """

    limit: Limit
    resets_in: float


class Counted(NamedTuple):
    """A change was counted.

    Attributes:
        periods: the number of the period in which it was counted, for each limit.
        used: what is used up now, for each limit.
    """

    periods: tuple[int, ...]
    used: tuple[float, ...]


def _count(
    now: float,
    limits: Sequence[Limit],
    changes: Mapping[Unit, float],
    counted_in: Sequence[int] | None,
    stored: Mapping[str, tuple[int, float]],
) -> tuple[Counted | Refusal, dict[str, tuple[int, float]]]:
    """Count a request; see :meth:`SQLiteBudget.add`.

    Args:
        now: seconds since the epoch.
        limits: the limits.
        changes: how much of each unit is added.
        counted_in: for a correction, the periods of the request.
        stored: limit → the number of its last period, and what was used in it.

    Returns:
        The outcome, and what is to be stored.
    """
    found: dict[str, tuple[int, float]] = {}
    for index, limit in enumerate(limits):
        window = int(now // limit.seconds)
        period, used = stored.get(limit.name, (-1, 0.0))
        # The next period means that the clock went back across its beginning: it goes on with its counts. A later one
        # means that the clock was wrong: what was counted then counts for this period.
        if period < window:
            period, used = window, 0.0
        elif period > window + 1:
            period = window
        change = changes[limit.unit]
        if counted_in is None:
            if used >= limit.amount or used + change > limit.amount:
                return Refusal(limit, limit.seconds - now % limit.seconds), {limit.name: (period, used)}
        elif counted_in[index] != period:
            change = max(0.0, change)
        found[limit.name] = period, max(0.0, used + change)
    periods, amounts = zip(*found.values(), strict=True) if found else ((), ())
    return Counted(periods, amounts), found


class SQLiteBudget:
    """Counts what is used in the periods of limits, in a file that only its owner can read.

    Processes that use the same file share the budget. Safe to use from any thread. A period has a number: the time
    since the epoch divided by its length. If the clock goes back, what was counted stays counted.

    Args:
        path: the file; created with its directory.
        clock: seconds since the epoch.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock

    def __str__(self) -> str:
        """Return the path."""
        return str(self._path)

    def add(
        self, limits: Sequence[Limit], changes: Mapping[Unit, float], counted_in: Sequence[int] | None = None
    ) -> Counted | Refusal:
        """Count a request in advance, or correct what was counted in advance.

        Args:
            limits: the limits.
            changes: how much of each unit is added. An amount of 0 fits unless the limit is used up.
            counted_in: for a correction: the periods in which the request was counted. A correction always fits. If
                a period is over, only an increase is counted.

        Raises:
            BudgetUnavailableError: the counts cannot be changed now.
        """

        def work(database: sqlite3.Connection) -> Counted | Refusal:
            rows = database.execute("SELECT name, period, used FROM usage")
            stored = {name: (period, used) for name, period, used in rows}
            outcome, found = _count(self._clock(), limits, changes, counted_in, stored)
            new = [(name, *counts) for name, counts in found.items()]
            database.executemany("INSERT OR REPLACE INTO usage VALUES (?, ?, ?)", new)
            database.execute("COMMIT")
            return outcome

        try:
            return use_file(self._path, work, "BEGIN IMMEDIATE", _SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise BudgetUnavailableError(f"the judge's budget in {self._path} cannot be used: {error}") from None


class RedisBudget:
    """Counts in one hash of a Redis database, by the clock of its server.

    Processes that use the same database share the budget.

    Args:
        url: such as ``redis://host:6379/0``. It may hold a password, and is never shown.

    Raises:
        MissingDependencyError: the package redis is not installed.
        ConfigurationError: the URL is wrong.
    """

    def __init__(self, url: str) -> None:
        with requires("redis", "redis", "a judge_budget_store in Redis"):
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        self._error = redis.RedisError
        try:
            self._client: redis.Redis = redis.Redis.from_url(
                url,
                decode_responses=True,
                socket_connect_timeout=_PATIENCE_SECONDS,
                socket_timeout=_PATIENCE_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
            place = urlsplit(url)
            self._place = f"{place.hostname}:{place.port or 6379}"
        except ValueError:
            raise ConfigurationError(
                "judge_budget_store is not a Redis URL such as redis://host:6379/0 (not shown: it may hold a password)"
            ) from None

    def __str__(self) -> str:
        """Return host and port."""
        return self._place

    def add(
        self, limits: Sequence[Limit], changes: Mapping[Unit, float], counted_in: Sequence[int] | None = None
    ) -> Counted | Refusal:
        """Count a request in advance, or correct its count; see :meth:`SQLiteBudget.add`."""

        def work(pipe: Any) -> Counted | Refusal:
            # The time of the server: the clocks of the hosts need not agree.
            now, hash_ = float(pipe.time()[0]), pipe.hgetall(_REDIS_KEY)
            stored = {
                limit.name: (int(hash_[f"{limit.name}:period"]), float(hash_[f"{limit.name}:used"]))
                for limit in limits
                if f"{limit.name}:period" in hash_
            }
            outcome, found = _count(now, limits, changes, counted_in, stored)
            pipe.multi()
            for name, (period, used) in found.items():
                pipe.hset(_REDIS_KEY, mapping={f"{name}:period": period, f"{name}:used": f"{used:.9f}"})
            return outcome

        try:
            # It is done again if another process has changed the counts meanwhile.
            outcome = cast("Any", self._client).transaction(work, _REDIS_KEY, value_from_callable=True)
            return cast("Counted | Refusal", outcome)
        except (self._error, OSError) as error:
            # The message of a client may quote the URL with its password.
            kind = type(error).__name__
            raise BudgetUnavailableError(f"the judge's budget in Redis ({self}) cannot be used: {kind}") from None


BudgetStore = SQLiteBudget | RedisBudget
"""Where processes count together."""
