"""A judge over a backend: the cache, concurrency slots, counters and log lines around each call."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from rageval_hooks.errors import ConfigurationError, JudgeError
from rageval_hooks.judges.base import AnyMessage, Judge, Judgement, Mode, as_messages
from rageval_hooks.judges.client.admission import Gate, GateClosedError
from rageval_hooks.judges.client.backend import Backend
from rageval_hooks.judges.client.backoff import Backoff
from rageval_hooks.judges.client.breaker import CircuitBreaker
from rageval_hooks.judges.client.cache import CachedAnswer, JudgeCache, cache_key
from rageval_hooks.judges.client.call import CallContext, JudgeCall, JudgeQuestion
from rageval_hooks.judges.client.capabilities import Capabilities
from rageval_hooks.judges.client.policy import CallPolicy
from rageval_hooks.judges.client.rate_limit import RateLimiter
from rageval_hooks.judges.client.redaction import Redactor
from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.event_loops import PerLoop
from rageval_hooks.runtime.executors import ForkSafeLock
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.turn import Usage

__all__ = ["AnyCache", "RemoteJudge"]

_logger = logging.getLogger(__name__)
T = TypeVar("T", bound=BaseModel)

AnyCache = JudgeCache | str | Path | None


@dataclass
class _PendingQuestion:
    """A question whose answer is on its way, so that equal questions wait for it.

    Attributes:
        done: set when the call has ended.
        answer: the answer; None while it is missing.
        failed: True if the judge failed.
    """

    done: asyncio.Event = field(default_factory=asyncio.Event)
    answer: CachedAnswer | None = None
    failed: bool = False


class _Slots:
    """The concurrency slots of one event loop, and its pending questions."""

    def __init__(self, size: int) -> None:
        self.semaphore = asyncio.Semaphore(size)
        self.waiting = 0
        self.running = 0
        self.pending: dict[str, _PendingQuestion] = {}


class RemoteJudge(Judge):
    """The common part of :class:`OpenAIJudge` and the framework adapters.

    Connections and slots belong to one event loop. The limits per minute, the circuit breaker, the counters and the
    capabilities are shared by all event loops and threads. A forked process starts with a copy of them.

    Args:
        name: the provider.
        model: the requested model.
        backend: sends single requests.
        policy: timeouts and limits.
        structured: the best mode that may be used; None for the backend's best one.
        parameters: fields of every request.
        cache: an answer cache, or its path; None for no cache.
        clock: the time and random numbers.

    Raises:
        ConfigurationError: the backend does not have that mode.
    """

    def __init__(
        self,
        name: str,
        model: str,
        backend: Backend,
        policy: CallPolicy,
        *,
        structured: Mode | None = None,
        parameters: Mapping[str, Any] | None = None,
        cache: AnyCache = None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or Clock()
        self.name = name
        self.model = model
        self.policy = policy
        self._context = CallContext(
            backend=backend,
            policy=policy,
            capabilities=Capabilities(_modes_from(structured, backend.modes)),
            breaker=CircuitBreaker(policy.circuit_failures, policy.circuit_cooldown, clock),
            rate_limiter=RateLimiter(policy.requests_per_minute, policy.tokens_per_minute, clock),
            redact=Redactor(backend.secrets),
            clock=clock,
            backoff=Backoff(),
            model=model,
        )
        self._parameters = dict(parameters or {})
        self._cache = JudgeCache(cache) if isinstance(cache, (str, Path)) else cache
        self._slots = PerLoop(lambda: _Slots(policy.max_concurrency))
        self._lock = ForkSafeLock()
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._cost = 0.0
        self._limited_log = RateLimitedLogger(_logger)

    async def complete(
        self,
        messages: Iterable[AnyMessage],
        schema: type[T],
        *,
        parameters: Mapping[str, Any] | None = None,
        gate: Gate | None = None,
    ) -> Judgement[T]:
        """Ask one question; see :meth:`Judge.complete`.

        Args:
            messages: the prompt.
            schema: the schema of the answer.
            parameters: sampling parameters of this question.
            gate: admits or refuses each request. A cache hit is not a request.
        """
        question = JudgeQuestion(as_messages(messages), schema, {**self._parameters, **(parameters or {})})
        self._count(calls=1)
        if self._cache is None:
            return await self._ask(question, gate)
        return await self._ask_once(question, gate, self._cache)

    @property
    def has_known_price(self) -> bool:  # type: ignore[override]  # read only here
        """True if what its answers cost is known."""
        return self._context.cost(Usage(input_tokens=1, output_tokens=1), self.model) is not None

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The judge can be used again."""
        await self._context.backend.aclose()

    def close(self, timeout: float = 5.0) -> None:
        """Close the connections of event loops on other threads, such as those that ``evaluate()`` has used."""
        self._context.backend.close(timeout)

    def stats(self) -> dict[str, Any]:
        """Return the counts of calls, answers, failures and requests, the tokens and cost, and the circuit's state."""
        slots = self._slots.things()
        with self._lock:
            counts = {name: self._counts[name] for name in _COUNTERS}
            failures, cost = dict(self._failures), self._cost
        capabilities = self._context.capabilities
        return {
            "judge": str(self),
            **counts,
            "failed": failures,
            "cost": cost,
            "running": sum(slot.running for slot in slots),
            "waiting": sum(slot.waiting for slot in slots),
            "circuit": self._context.breaker.stats(),
            "mode": capabilities.best_mode,
            "refused_parameters": capabilities.refused,
            "cache": self._cache.stats() if self._cache is not None else None,
        }

    async def _ask(self, question: JudgeQuestion[T], gate: Gate | None) -> Judgement[T]:
        judge_call = JudgeCall(self._context, question, gate)
        failure: JudgeError
        try:
            async with self._slot():
                judgement = await judge_call.run()
        except JudgeError as error:
            failure = error
        else:
            self._count(answered=1)
            return judgement
        finally:
            self._count_call(judge_call)
        # A used-up budget says nothing about the judge.
        if not isinstance(failure, GateClosedError):
            self._failed(failure)
        raise failure

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        slots = await self._slots.get()
        # Counted in both states: a call may be cancelled while it waits.
        slots.waiting += 1
        try:
            await slots.semaphore.acquire()
        finally:
            slots.waiting -= 1
        slots.running += 1
        try:
            yield
        finally:
            slots.running -= 1
            slots.semaphore.release()

    # -- cache

    def _key(self, question: JudgeQuestion[T]) -> str:
        return cache_key(
            identity=self._context.backend.identity,
            messages=question.messages,
            schema=question.schema,
            parameters=question.parameters,
        )

    async def _ask_once(self, question: JudgeQuestion[T], gate: Gate | None, cache: JudgeCache) -> Judgement[T]:
        """Return the cached answer, the answer to an equal question that is pending in this event loop, or ask.

        A call that waited for an equal question which failed asks by itself and does not wait again.
        """
        key = self._key(question)
        pending = (await self._slots.get()).pending
        while (other := pending.get(key)) is not None:
            await other.done.wait()
            if (cached := self._cached_judgement(other.answer, question.schema)) is not None:
                return cached
            if other.answer is not None or other.failed:
                return await self._ask_and_store(question, gate, cache, key, _PendingQuestion())
            # The other call was cancelled. Another waiting call may have taken its place: look again.
        pending[key] = own = _PendingQuestion()
        try:
            own.answer = await cache.get(key)
            if (cached := self._cached_judgement(own.answer, question.schema)) is not None:
                return cached
            own.answer = None
            return await self._ask_and_store(question, gate, cache, key, own)
        except JudgeError:
            own.failed = True
            raise
        finally:
            # In this order: a call that wakes up must not find this one again.
            del pending[key]
            own.done.set()

    async def _ask_and_store(
        self, question: JudgeQuestion[T], gate: Gate | None, cache: JudgeCache, key: str, pending: _PendingQuestion
    ) -> Judgement[T]:
        judgement = await self._ask(question, gate)
        pending.answer = CachedAnswer(
            value=judgement.value.model_dump_json(),
            model=judgement.model,
            response_id=judgement.response_id,
            mode=judgement.mode,
        )
        await cache.put(key, pending.answer)
        return judgement

    def _cached_judgement(self, answer: CachedAnswer | None, schema: type[T]) -> Judgement[T] | None:
        if answer is None:
            return None
        try:
            value = schema.model_validate_json(answer.value)
        except ValueError:
            # The JSON schema is part of the cache key, but a validator in Python code may have changed.
            return None
        self._count(answered=1, cached=1)
        # A cached answer costs nothing: a report must not add up what the first one cost.
        usage = Usage(input_tokens=0, output_tokens=0)
        return Judgement(
            value=value,
            model=answer.model,
            usage=usage,
            response_id=answer.response_id,
            cost=0.0,
            attempts=0,
            mode=answer.mode,
            cached=True,
        )

    # -- counters and log

    def _count(self, **amounts: int) -> None:
        with self._lock:
            self._counts.update(amounts)

    def _count_call(self, judge_call: JudgeCall[T]) -> None:
        # A failed call has cost something, too.
        usage = judge_call.known_usage
        self._count(
            requests=judge_call.attempts,
            retries=judge_call.retries,
            repairs=int(judge_call.repaired),
            input_tokens=usage.input_tokens if usage else 0,
            output_tokens=usage.output_tokens if usage else 0,
            cached_tokens=(usage.cache_read_tokens or 0) if usage else 0,
        )
        with self._lock:
            self._cost += judge_call.known_cost

    def _failed(self, failure: JudgeError) -> None:
        with self._lock:
            self._failures[failure.kind] += 1
        self._limited_log.warn(failure.kind, "the judge %s: %s: %s [RAGEVAL-301]", self, failure.kind, failure.message)


def _modes_from(structured: Mode | None, modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    """Return the modes from the given one on; the judge lowers the mode if a server refuses it."""
    if structured is None:
        return modes
    if structured not in modes:
        raise ConfigurationError(f"structured is one of {', '.join(modes)}, not {structured!r}")
    return modes[modes.index(structured) :]


_COUNTERS = (
    "calls",
    "answered",
    "cached",
    "requests",
    "retries",
    "repairs",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
)
