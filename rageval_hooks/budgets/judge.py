"""A judge with a budget that it shares with other processes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel

from rageval_hooks.budgets.stores import (
    BudgetStore,
    BudgetUnavailableError,
    Counted,
    Limit,
    Refusal,
    Unit,
    open_store,
    parse_limits,
)
from rageval_hooks.errors import ConfigurationError, JudgeError
from rageval_hooks.judges.base import Admission, AnyMessage, GateClosedError, Judge, Judgement, RequestGate
from rageval_hooks.judges.concurrency import PerLoop
from rageval_hooks.judges.remote import RemoteJudge
from rageval_hooks.runtime.fork import ForkSafeLock

_logger = logging.getLogger(__name__)
T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

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
        self._closed_until = 0.0
        self._closed: GateClosedError | None = None
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
            counted = await self._count_in_advance(estimate)
            if isinstance(counted, Refusal) and knows_sizes and counted.limit.unit != "calls":
                # Several large requests might not fit, but one may, once what the others used is counted.
                await alone.enter_async_context(running.alone)
                await running.idle.wait()
                estimate = self._estimate(1.0)
                counted = await self._count_in_advance(estimate)
            if isinstance(counted, Refusal):
                raise self._refused(counted)
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
                    await asyncio.shield(self._in_thread(partial(self._correct, counted, changes)))
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
                self._close(BudgetUsedUpError(reason), float("inf"))
            cost = estimate["usd"]
        return {"calls": 1.0, "tokens": tokens, "usd": cost}

    async def _count_in_advance(self, estimate: Mapping[Unit, float]) -> Counted | Refusal:
        # While the budget is used up, the store is not asked for each request.
        if not self.is_open and self._closed is not None:
            self._note_refusal(self._closed)
            # Another one each time: an error that is raised again would collect tracebacks.
            raise type(self._closed)(self._closed.message)
        try:
            outcome = await self._in_thread(lambda: self._store.add(self._limits, estimate))
        except BudgetUnavailableError as error:
            self._close(error, _REST_SECONDS)
            self._log("unavailable", f"{error.message}: the judge is not asked", _REST_SECONDS * 12)
            self._note_refusal(error)
            raise
        self._note(outcome)
        return outcome

    def _refused(self, refusal: Refusal) -> BudgetUsedUpError:
        """Return why no request is sent for a while."""
        reason = f"the judge's budget of {refusal.limit} is used up"
        error = BudgetUsedUpError(reason)
        self._close(error, min(_REST_SECONDS, refusal.resets_in))
        stop = f"{reason}: judging stops for {_duration(refusal.resets_in)}; local scores go on"
        self._log(refusal.limit.name, stop, refusal.resets_in)
        self._note_refusal(error)
        return error

    def _correct(self, counted: Counted, changes: Mapping[Unit, float]) -> None:
        """Count what a request has used; on a thread."""
        try:
            self._note(self._store.add(self._limits, changes, counted.periods))
        except BudgetUnavailableError as error:
            # What was counted in advance stays counted.
            self._close(error, _REST_SECONDS)
            self._note_refusal(error)

    def _note(self, outcome: Counted | Refusal) -> None:
        if isinstance(outcome, Counted):
            used = zip(self._limits, outcome.used, strict=True)
            self._used = {limit.name: round(amount, 9) for limit, amount in used}

    def _close(self, error: GateClosedError, seconds: float) -> None:
        self._closed, self._closed_until = error, time.monotonic() + seconds

    def _note_refusal(self, error: GateClosedError) -> None:
        with self._lock:
            self._counts["unavailable" if isinstance(error, BudgetUnavailableError) else "refused"] += 1

    def _log(self, kind: str, message: str, seconds: float) -> None:
        """Write a line once for each kind and period."""
        logged, until = self._logged
        if logged != kind or time.monotonic() >= until:
            self._logged = (kind, time.monotonic() + seconds)
            _logger.warning("rageval-hooks: %s [RAGEVAL-304]", message)

    async def _in_thread(self, call: Callable[[], R]) -> R:
        # Neither a lock of the file nor the network may stop the event loop.
        return await asyncio.get_running_loop().run_in_executor(None, call)


class SharedBudgetJudge(Judge):
    """Asks another judge as long as a shared budget lasts.

    The judges of this package count each request, retries and corrections included. Answers from their caches cost
    nothing. Another judge is counted by its answers, and may exceed the budget by its own retries.

    Args:
        judge: the judge.
        budget: admits requests.
    """

    def __init__(self, judge: Judge, budget: _SharedBudget) -> None:
        self.judge = judge
        self.budget = budget
        self.name = getattr(judge, "name", type(judge).__name__)
        self.model = getattr(judge, "model", "?")
        self.max_prompt_tokens = judge.max_prompt_tokens

    async def complete(
        self, messages: Iterable[AnyMessage], schema: type[T], *, parameters: Mapping[str, Any] | None = None
    ) -> Judgement[T]:
        """Ask one question; see :meth:`Judge.complete`.

        Raises:
            BudgetUsedUpError: the budget is used up.
            BudgetUnavailableError: the counts cannot be read.
        """
        # A subclass with its own `complete` may not know the gate.
        if isinstance(self.judge, RemoteJudge) and type(self.judge).complete is RemoteJudge.complete:
            return await self.judge.complete(messages, schema, parameters=parameters, gate=self.budget)
        async with self.budget.request() as admission:
            admission.sent = True
            try:
                judgement = await self.judge.complete(messages, schema, parameters=parameters)
            except JudgeError as error:
                admission.cost = error.details.get("cost", 0.0)
                admission.tokens = sum(error.details.get(f"{kind}_tokens") or 0 for kind in ("input", "output"))
                raise
            admission.cost = judgement.cost
            admission.tokens = None if judgement.usage is None else judgement.usage.total_tokens
            return judgement

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self.judge.aclose()

    def close(self, timeout: float = 5.0) -> None:
        """Close the connections of event loops on other threads."""
        self.judge.close(timeout)

    def stats(self) -> dict[str, Any]:
        """Return the counts of the judge itself."""
        return self.judge.stats()


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
    return SharedBudgetJudge(judge, _SharedBudget(parsed, open_store(store), str(judge)))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
