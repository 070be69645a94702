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

# ARGV: for each limit its name, its period in seconds, its amount, the change, and the period in which the change was
# counted in advance, or "". The time is that of the server: the clocks of the hosts need not agree. Scripts run without
# interruption. The rules are those of SQLiteBudget.add().
_REDIS_ADD = """
local seconds = tonumber(redis.call('TIME')[1])
local found, answer = {}, {'ok'}
for i = 1, #ARGV, 5 do
  local name, length, limit, change = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local window = math.floor(seconds / length)
  local period = tonumber(redis.call('HGET', KEYS[1], name .. ':period') or '-1')
  local used = math.max(0, tonumber(redis.call('HGET', KEYS[1], name .. ':used') or '0'))
  if period < window then
    period, used = window, 0
  elseif period > window + 1 then
    period = window
    redis.call('HSET', KEYS[1], name .. ':period', period)
  end
  if ARGV[i + 4] == '' then
    if used >= limit or used + change > limit then
      return {'refused', tostring((i - 1) / 5), tostring(length - seconds % length)}
    end
  elseif tonumber(ARGV[i + 4]) ~= period then
    change = math.max(0, change)
  end
  table.insert(found, {name, period, math.max(0, used + change)})
end
for _, one in ipairs(found) do
  local used = string.format('%.9f', one[3])
  redis.call('HSET', KEYS[1], one[1] .. ':period', one[2], one[1] .. ':used', used)
  table.insert(answer, tostring(one[2]))
  table.insert(answer, used)
end
return answer
"""


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

        def count(database: sqlite3.Connection) -> Counted | Refusal:
            now = self._clock()
            rows: list[tuple[str, int, float]] = []
            for index, limit in enumerate(limits):
                window = int(now // limit.seconds)
                row = database.execute("SELECT period, used FROM usage WHERE name = ?", (limit.name,)).fetchone()
                period, used = row or (-1, 0.0)
                # The next period means that the clock went back across its beginning: it goes on with its counts. A
                # later one means that the clock was wrong: what was counted then counts for this period.
                if period < window:
                    period, used = window, 0.0
                elif period > window + 1:
                    period = window
                    database.execute("UPDATE usage SET period = ? WHERE name = ?", (period, limit.name))
                change = changes[limit.unit]
                if counted_in is None:
                    if used >= limit.amount or used + change > limit.amount:
                        database.execute("COMMIT")
                        return Refusal(limit, limit.seconds - now % limit.seconds)
                elif counted_in[index] != period:
                    change = max(0.0, change)
                rows.append((limit.name, period, max(0.0, used + change)))
            database.executemany("INSERT OR REPLACE INTO usage VALUES (?, ?, ?)", rows)
            database.execute("COMMIT")
            return Counted(tuple(period for _, period, _ in rows), tuple(used for _, _, used in rows))

        try:
            return use_file(self._path, count, "BEGIN IMMEDIATE", _SCHEMA)
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
        periods: Sequence[int | str] = [""] * len(limits) if counted_in is None else counted_in
        values: list[str | int | float] = []
        for limit, period in zip(limits, periods, strict=True):
            values += [limit.name, limit.seconds, limit.amount, changes[limit.unit], period]
        try:
            answer = cast("list[str]", cast("Any", self._client).eval(_REDIS_ADD, 1, _REDIS_KEY, *values))
        except (self._error, OSError) as error:
            # The message of a client may quote the URL with its password.
            kind = type(error).__name__
            raise BudgetUnavailableError(f"the judge's budget in Redis ({self}) cannot be used: {kind}") from None
        if answer[0] == "refused":
            return Refusal(limits[int(float(answer[1]))], float(answer[2]))
        return Counted(tuple(int(float(text)) for text in answer[1::2]), tuple(map(float, answer[2::2])))


BudgetStore = SQLiteBudget | RedisBudget
"""Where processes count together."""
