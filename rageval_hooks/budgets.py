"""A judge's budget: calls, tokens and money per minute and per day, shared by the processes of a host or of a fleet.

The counts are in a SQLite file or in a Redis database. The package ``limits`` has no store in a file, counts integers
only, and cannot take back what was counted in advance.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from rageval_hooks.errors import ConfigurationError, UnknownNameError, requires
from rageval_hooks.judges.base import Admission, BudgetUsedUpError, GateClosedError, Judge, RequestGate
from rageval_hooks.judges.concurrency import PerLoop
from rageval_hooks.judges.remote import GatedJudge
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.runtime.sqlite_file import use_file

_logger = logging.getLogger(__name__)

Unit = Literal["calls", "tokens", "usd"]

_PERIODS: Final[dict[str, int]] = {"minute": 60, "day": 86_400}
_UNITS: Final[tuple[Unit, ...]] = ("calls", "tokens", "usd")
_PATIENCE_SECONDS = 2.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS usage "
    "(name TEXT PRIMARY KEY, period INTEGER NOT NULL, used REAL NOT NULL) WITHOUT ROWID"
)
_REDIS_KEY = "rageval:judge-budget"


_REST_SECONDS = 5.0
"""After a refusal or an error, the store is not asked for so long."""

_REMEMBERED_CALLS = 50
_MARGIN = 4.0
"""Requests that run at the same time are counted with so many times the size of the largest recent one."""

_UNKNOWN_TOKENS = 2000.0
"""Tokens of a call that does not report them, if no other call did."""


class BudgetUnavailableError(GateClosedError):
    """The counts of the budget cannot be read or written now."""

    kind: ClassVar[str] = "budget_unavailable"


class Limit(NamedTuple):
    """One limit of a budget.

    Attributes:
        unit: what is counted.
        period: ``minute`` or ``day``. A period begins with a full minute, or at 00:00 UTC.
        amount: how much may be used in a period.
    """

    unit: Unit
    period: str
    amount: float

    @property
    def name(self) -> str:
        """The name in the setting: ``usd_per_day``."""
        return f"{self.unit}_per_{self.period}"

    def __str__(self) -> str:
        """Return the limit in words: ``5 USD per day``."""
        unit = "USD" if self.unit == "usd" else self.unit
        return f"{self.amount:g} {unit} per {self.period}"


def parse_limits(given: Mapping[str, float]) -> tuple[Limit, ...]:
    """Return the limits of a setting such as ``{"calls_per_day": 1000}``.

    Raises:
        UnknownNameError: a limit has another name; the message lists the valid ones.
    """
    every = {limit.name: limit for limit in (Limit(unit, period, 0.0) for unit in _UNITS for period in _PERIODS)}
    for name in given.keys() - every.keys():
        raise UnknownNameError("limit in judge_budget", name, every)
    return tuple(every[name]._replace(amount=amount) for name, amount in given.items())


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
        seconds = _PERIODS[limit.period]
        window = int(now // seconds)
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
                return Refusal(limit, seconds - now % seconds), {limit.name: (period, used)}
        elif counted_in[index] != period:
            change = max(0.0, change)
        found[limit.name] = period, max(0.0, used + change)
    periods, amounts = zip(*found.values(), strict=True) if found else ((), ())
    return Counted(periods, amounts), found


class SQLiteBudget:
    """Counts what is used in the periods of limits, in a file that only its owner can read.

    Processes with the same file share the budget. A period has a number: the time since the epoch divided by its
    length. If the clock goes back, what was counted stays counted. Safe to use from any thread.

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
    """Counts in one hash of a Redis database, by the clock of its server: the clocks of the hosts need not agree.

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
        self._errors = (redis.RedisError, OSError)
        timeouts = dict.fromkeys(("socket_connect_timeout", "socket_timeout"), _PATIENCE_SECONDS)
        try:
            self._client: Any = redis.Redis.from_url(
                url, decode_responses=True, retry=Retry(NoBackoff(), 0), **timeouts
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
        """Count a request, or correct its count; see :meth:`SQLiteBudget.add`."""

        def work(pipe: Any) -> Counted | Refusal:
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
            outcome: Counted | Refusal = self._client.transaction(work, _REDIS_KEY, value_from_callable=True)
        except self._errors as error:
            # The message of a client may quote the URL with its password.
            kind = type(error).__name__
            raise BudgetUnavailableError(f"the judge's budget in Redis ({self}) cannot be used: {kind}") from None
        return outcome


BudgetStore = SQLiteBudget | RedisBudget
"""Where processes count together."""


# --------------------------------------------------------------------------- admission


class _Running:
    """The requests of one event loop: several at the same time, or one alone."""

    def __init__(self) -> None:
        self.alone = asyncio.Lock()
        self.count = 0
        self.idle = asyncio.Event()
        self.idle.set()


class SharedBudget(RequestGate):
    """Admits requests to a judge as long as they fit into limits that processes share.

    A request is counted before it is sent, and corrected after it. Requests run at the same time only if each would fit
    with four times the size of the largest recent one; otherwise, and until the first answer, they run one at a time.
    So a process exceeds a limit by one request at most.

    Args:
        limits: the limits.
        store: counts.
        model: the judge, for messages.
    """

    def __init__(self, limits: tuple[Limit, ...], store: BudgetStore, model: str) -> None:
        self._limits = limits
        self._store = store
        self._model = model
        self._recent: dict[Unit, deque[float]] = {
            "tokens": deque(maxlen=_REMEMBERED_CALLS),
            "usd": deque(maxlen=_REMEMBERED_CALLS),
        }
        self._running: PerLoop[_Running] = PerLoop(_Running)
        self._lock = ForkSafeLock()
        self._closed: GateClosedError | None = None
        self._closed_until = 0.0
        self._logged: tuple[str, float] = ("", 0.0)
        self._counts: Counter[str] = Counter()
        self._used: dict[str, float] = {}

    def stats(self) -> dict[str, Any]:
        """Return each limit with what was used when this process asked last, and the numbers of refusals and errors."""
        limits = {limit.name: {"limit": limit.amount, "used": self._used.get(limit.name)} for limit in self._limits}
        with self._lock:
            counts = {name: self._counts[name] for name in ("refused", "unavailable")}
        return {"store": str(self._store), "limits": limits, **counts}

    @asynccontextmanager
    async def request(self) -> AsyncIterator[Admission]:
        """Admit a request, and count what it used.

        Raises:
            BudgetUsedUpError: the budget is used up.
            BudgetUnavailableError: the counts cannot be read.
        """
        running = await self._running.get()
        async with AsyncExitStack() as alone:
            if not self._knows_sizes():
                await alone.enter_async_context(running.alone)
            if knows_sizes := self._knows_sizes():
                await alone.aclose()  # those that waited for the first answer go on together
            estimate = self._estimate(_MARGIN if knows_sizes else 1.0)
            counted = await self._add(estimate)
            if isinstance(counted, Refusal) and knows_sizes and counted.limit.unit != "calls":
                # Several large requests might not fit, but one may, once what the others used is counted.
                await alone.enter_async_context(running.alone)
                await running.idle.wait()
                estimate = self._estimate(1.0)
                counted = await self._add(estimate)
            if isinstance(counted, Refusal):
                limit, seconds = counted
                reason = f"the judge's budget of {limit} is used up"
                consequence = f"judging stops for the rest of the {limit.period}; local scores go on"
                self._log(limit.name, f"{reason}: {consequence}", seconds)
                raise self._close(BudgetUsedUpError(reason), min(_REST_SECONDS, seconds))
            admission = Admission()
            running.count += 1
            running.idle.clear()
            try:
                yield admission
            finally:
                used = self._amounts(admission, estimate)
                changes: dict[Unit, float] = {unit: used[unit] - estimate[unit] for unit in estimate}
                try:
                    # If the store fails now, what was counted in advance stays counted.
                    with suppress(BudgetUnavailableError):
                        # Shielded: a call that is cancelled has cost something, too.
                        await asyncio.shield(self._add(changes, counted.periods))
                finally:
                    running.count -= 1
                    if not running.count:
                        running.idle.set()

    def _estimate(self, margin: float) -> dict[Unit, float]:
        largest = {unit: max(amounts, default=0.0) * margin for unit, amounts in self._recent.items()}
        return {"calls": 1.0, **largest}

    def _knows_sizes(self) -> bool:
        return all(limit.unit == "calls" or self._recent[limit.unit] for limit in self._limits)

    def _amounts(self, admission: Admission, estimate: Mapping[Unit, float]) -> dict[Unit, float]:
        """Return what a request has used."""
        # A cached answer needs no request.
        if not admission.sent:
            return {"calls": 0.0, "tokens": 0.0, "usd": 0.0}
        tokens, cost = admission.tokens, admission.cost
        # Counting nothing would let a server without usage exceed the budget.
        if tokens is None:
            tokens = estimate["tokens"] or _UNKNOWN_TOKENS
        if tokens > 0:
            self._recent["tokens"].append(tokens)
        if cost:
            self._recent["usd"].append(cost)
        if cost is None:
            if any(limit.unit == "usd" for limit in self._limits):
                reason = f"the price of {self._model} is not known, so its budget in USD cannot be kept"
                self._closed, self._closed_until = BudgetUsedUpError(reason), float("inf")
            cost = estimate["usd"]
        return {"calls": float(admission.sent), "tokens": tokens, "usd": cost}

    async def _add(self, changes: Mapping[Unit, float], counted_in: tuple[int, ...] | None = None) -> Counted | Refusal:
        """Count in the store, or correct what was counted; on a thread: neither its lock nor the network may block."""
        # While the budget is used up, the store is not asked for each request.
        if counted_in is None and self._closed is not None and time.monotonic() < self._closed_until:
            # Another one each time: an error that is raised again would collect tracebacks.
            raise self._counted(type(self._closed)(self._closed.message))
        loop = asyncio.get_running_loop()
        try:
            outcome = await loop.run_in_executor(None, self._store.add, self._limits, changes, counted_in)
        except BudgetUnavailableError as error:
            self._log("unavailable", f"{error.message}: the judge is not asked", _REST_SECONDS * 12)
            raise self._close(error, _REST_SECONDS) from None
        if isinstance(outcome, Counted):
            used = zip(self._limits, outcome.used, strict=True)
            self._used = {limit.name: round(amount, 9) for limit, amount in used}
        return outcome

    def _close(self, error: GateClosedError, seconds: float) -> GateClosedError:
        self._closed, self._closed_until = error, time.monotonic() + seconds
        return self._counted(error)

    def _counted(self, error: GateClosedError) -> GateClosedError:
        with self._lock:
            self._counts["unavailable" if isinstance(error, BudgetUnavailableError) else "refused"] += 1
        return error

    def _log(self, kind: str, message: str, seconds: float) -> None:
        """Write a line once for each kind and period."""
        logged, until = self._logged
        if logged != kind or time.monotonic() >= until:
            self._logged = (kind, time.monotonic() + seconds)
            _logger.warning("rageval-hooks: %s [RAGEVAL-304]", message)


def with_budget(judge: Judge, limits: Mapping[str, float], store: str) -> GatedJudge:
    """Return a judge with a :class:`SharedBudget` as its gate.

    Args:
        judge: the judge.
        limits: such as ``{"calls_per_day": 1000, "usd_per_day": 5}``.
        store: the path of a file for the processes of a host, or ``redis://…`` for a fleet.

    Raises:
        ConfigurationError: a limit has an unknown name, or is in USD and the price of the judge is not known.
        MissingDependencyError: the store is in Redis, and the package redis is not installed.
    """
    parsed = parse_limits(limits)
    if any(limit.unit == "usd" for limit in parsed) and not getattr(judge, "has_known_price", False):
        raise ConfigurationError(
            f"judge_budget is in USD, but the price of {judge} is not known: give it with the judge option "
            'price_per_1k (USD for 1,000 tokens), install the price list (pip install "rageval-hooks[prices]"), or '
            "limit calls or tokens. A judge of your own needs an attribute has_known_price = True"
        )
    # "rediss" is Redis with TLS, "unix" a socket of Redis.
    is_redis = store.startswith(("redis://", "rediss://", "unix://"))
    counts: BudgetStore = RedisBudget(store) if is_redis else SQLiteBudget(Path(store).expanduser())
    return GatedJudge(judge, SharedBudget(parsed, counts, str(judge)))
