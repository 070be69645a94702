"""A judge with a budget that it shares with other processes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from rageval_hooks.budgets.stores import (
    BudgetStore,
    BudgetUnavailableError,
    Counted,
    Limit,
    RedisBudget,
    Refusal,
    SQLiteBudget,
    Unit,
    parse_limits,
)
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.base import Admission, GateClosedError, Judge, RequestGate
from rageval_hooks.judges.concurrency import PerLoop
from rageval_hooks.judges.remote import GatedJudge
from rageval_hooks.runtime.fork import ForkSafeLock

_logger = logging.getLogger(__name__)

_REST_SECONDS = 5.0
"""After a refusal or an error, the store is not asked for so long."""

_REMEMBERED_CALLS = 50
_MARGIN = 4.0
"""Requests that run at the same time are counted with so many times the size of the largest recent one."""

_UNKNOWN_TOKENS = 2000.0
"""Tokens of a call that does not report them, if no other call did."""


class BudgetUsedUpError(GateClosedError):
    """The budget is used up."""

    kind: ClassVar[str] = "budget_spent"


class _Running:
    """The requests of one event loop: several at the same time, or one alone."""

    def __init__(self) -> None:
        self.alone = asyncio.Lock()
        self.count = 0
        self.idle = asyncio.Event()
        self.idle.set()


class _SharedBudget(RequestGate):
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

    @property
    def is_open(self) -> bool:
        """False for a while after a refusal."""
        return time.monotonic() >= self._closed_until

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
                self._log(limit.name, f"{reason}: judging stops for {_duration(seconds)}; local scores go on", seconds)
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
                    # Shielded: a call that is cancelled has cost something, too.
                    await asyncio.shield(self._correct(changes, counted.periods))
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

    async def _correct(self, changes: Mapping[Unit, float], counted_in: tuple[int, ...]) -> None:
        # If the store fails now, what was counted in advance stays counted.
        with suppress(BudgetUnavailableError):
            await self._add(changes, counted_in)

    async def _add(self, changes: Mapping[Unit, float], counted_in: tuple[int, ...] | None = None) -> Counted | Refusal:
        """Count in the store, or correct what was counted; on a thread: neither its lock nor the network may block."""
        # While the budget is used up, the store is not asked for each request.
        if counted_in is None and not self.is_open and self._closed is not None:
            # Another one each time: an error that is raised again would collect tracebacks.
            raise self._count_refusal(type(self._closed)(self._closed.message))
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
        return self._count_refusal(error)

    def _count_refusal(self, error: GateClosedError) -> GateClosedError:
        with self._lock:
            self._counts["unavailable" if isinstance(error, BudgetUnavailableError) else "refused"] += 1
        return error

    def _log(self, kind: str, message: str, seconds: float) -> None:
        """Write a line once for each kind and period."""
        logged, until = self._logged
        if logged != kind or time.monotonic() >= until:
            self._logged = (kind, time.monotonic() + seconds)
            _logger.warning("rageval-hooks: %s [RAGEVAL-304]", message)


class SharedBudgetJudge(GatedJudge):
    """Asks another judge as long as a shared budget lasts.

    Args:
        judge: the judge.
        budget: admits requests.
    """

    def __init__(self, judge: Judge, budget: _SharedBudget) -> None:
        super().__init__(judge, budget)
        self.budget = budget


def with_budget(judge: Judge, limits: Mapping[str, float], store: str) -> SharedBudgetJudge:
    """Return a judge with a budget.

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
    counts = RedisBudget(store) if is_redis else SQLiteBudget(Path(store).expanduser())
    return SharedBudgetJudge(judge, _SharedBudget(parsed, counts, str(judge)))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
