"""A judge over a backend: cache, slots, counters and log lines around the exchange."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Union

from pydantic import BaseModel

from rageval_hooks.errors import JudgeError
from rageval_hooks.judges.base import AnyMessage, Judge, Judgement, Mode, as_messages
from rageval_hooks.judges.client.admission import Gate, GateClosedError
from rageval_hooks.judges.client.backend import Backend
from rageval_hooks.judges.client.backoff import Backoff
from rageval_hooks.judges.client.breaker import CircuitBreaker
from rageval_hooks.judges.client.cache import CachedAnswer, JudgeCache, cache_key
from rageval_hooks.judges.client.call import Exchange, Question, Rules
from rageval_hooks.judges.client.capabilities import Learned
from rageval_hooks.judges.client.policy import CallPolicy
from rageval_hooks.judges.client.rate_limit import Throttle
from rageval_hooks.judges.client.redaction import Redactor
from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.executors import ForkSafeLock
from rageval_hooks.runtime.per_loop import PerLoop
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger
from rageval_hooks.turn import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["AnyCache", "RemoteJudge"]

_logger = logging.getLogger(__name__)
T = TypeVar("T", bound=BaseModel)

AnyCache = Union[JudgeCache, str, Path, None]


@dataclass
class _Asked:
    """A question that is being asked, for those who ask the same meanwhile.

    Attributes:
        over: set when it is.
        answer: None if there is none.
        failed: whether there is none because the judge failed.
    """

    over: asyncio.Event = field(default_factory=asyncio.Event)
    answer: CachedAnswer | None = None
    failed: bool = False


class _Slots:
    """The places for requests at the same time, of one event loop, and what is being asked there."""

    def __init__(self, size: int) -> None:
        self.semaphore = asyncio.Semaphore(size)
        self.waiting = 0
        self.running = 0
        self.asked: dict[str, _Asked] = {}


class RemoteJudge(Judge):
    """What :class:`OpenAIJudge` and the adapters have in common.

    Connections and slots belong to an event loop and are made for each one that asks; the limits per minute, the
    circuit breaker, the counters and what was learned are shared by all loops and threads. A forked process starts with
    a copy of these.

    Args:
        name: whose models it uses.
        model: the model that is asked for.
        backend: sends single requests.
        policy: times and limits.
        modes: the ways to ask for the answer's form that may be used, best first.
        parameters: fields of every request.
        cache: answers on disk: a cache, or the path of one; None for none.
        clock: tells the time.
    """

    def __init__(
        self,
        name: str,
        model: str,
        backend: Backend,
        policy: CallPolicy,
        *,
        modes: tuple[Mode, ...] | None = None,
        parameters: Mapping[str, Any] | None = None,
        cache: AnyCache = None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or Clock()
        self.name = name
        self.model = model
        self.policy = policy
        self._rules = Rules(
            backend=backend,
            policy=policy,
            learned=Learned(modes or backend.modes),
            breaker=CircuitBreaker(policy.circuit_failures, policy.circuit_cooldown, clock),
            throttle=Throttle(policy.requests_per_minute, policy.tokens_per_minute, clock),
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
            messages: likewise.
            schema: likewise.
            parameters: likewise.
            gate: lets each request through, or does not; an answer from the cache is no request.
        """
        question = Question(as_messages(messages), schema, {**self._parameters, **(parameters or {})})
        self._count(calls=1)
        if self._cache is None:
            return await self._ask(question, gate)
        return await self._ask_once(question, gate, self._cache)

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The judge can be used again."""
        await self._rules.backend.aclose()

    def stats(self) -> dict[str, Any]:
        """Return calls, answers, failures by kind, requests, tokens, cost, and the state of circuit and cache."""
        slots = self._slots.things()
        with self._lock:
            counts = {name: self._counts[name] for name in _COUNTERS}
            failures, cost = dict(self._failures), self._cost
        learned = self._rules.learned
        return {
            "judge": str(self),
            **counts,
            "failed": failures,
            "cost": cost,
            "running": sum(slot.running for slot in slots),
            "waiting": sum(slot.waiting for slot in slots),
            "circuit": self._rules.breaker.stats(),
            "mode": learned.best_mode,
            "refused_parameters": learned.refused,
            "cache": self._cache.stats() if self._cache is not None else None,
        }

    async def _ask(self, question: Question[T], gate: Gate | None) -> Judgement[T]:
        exchange = Exchange(self._rules, question, gate)
        failure: JudgeError
        try:
            async with self._slot():
                judgement = await exchange.run()
        except JudgeError as error:
            failure = error
        else:
            self._count(answered=1)
            return judgement
        finally:
            self._count_exchange(exchange)
        if not isinstance(failure, GateClosedError):
            self._failed(failure)
        raise failure

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        slots = await self._slots.get()
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

    def _key(self, question: Question[T]) -> str:
        return cache_key(
            identity=self._rules.backend.identity,
            messages=question.messages,
            schema=question.schema,
            parameters=question.parameters,
        )

    async def _ask_once(self, question: Question[T], gate: Gate | None, cache: JudgeCache) -> Judgement[T]:
        """Return the answer from the cache, or that to the same question of another task of this event loop, or ask.

        Who has waited for one that failed asks by itself, and does not wait for another.
        """
        key = self._key(question)
        asked = (await self._slots.get()).asked
        while (other := asked.get(key)) is not None:
            await other.over.wait()
            if (known := self._known(other.answer, question.schema)) is not None:
                return known
            if other.answer is not None or other.failed:
                return await self._ask_and_keep(question, gate, cache, key, _Asked())
        asked[key] = own = _Asked()
        try:
            own.answer = await cache.get(key)
            if (known := self._known(own.answer, question.schema)) is not None:
                return known
            own.answer = None
            return await self._ask_and_keep(question, gate, cache, key, own)
        except JudgeError:
            own.failed = True
            raise
        finally:
            del asked[key]
            own.over.set()

    async def _ask_and_keep(
        self, question: Question[T], gate: Gate | None, cache: JudgeCache, key: str, asked: _Asked
    ) -> Judgement[T]:
        judgement = await self._ask(question, gate)
        asked.answer = CachedAnswer(
            value=judgement.value.model_dump_json(),
            model=judgement.model,
            response_id=judgement.response_id,
            mode=judgement.mode,
        )
        await cache.put(key, asked.answer)
        return judgement

    def _known(self, answer: CachedAnswer | None, schema: type[T]) -> Judgement[T] | None:
        if answer is None:
            return None
        try:
            value = schema.model_validate_json(answer.value)
        except ValueError:  # a validator that the schema's JSON does not show has changed
            return None
        self._count(answered=1, cached=1)
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

    def _count_exchange(self, exchange: Exchange[T]) -> None:
        usage = exchange.known_usage
        self._count(
            requests=exchange.attempts,
            retries=exchange.retries,
            repairs=int(exchange.repaired),
            input_tokens=usage.input_tokens if usage else 0,
            output_tokens=usage.output_tokens if usage else 0,
            cached_tokens=(usage.cache_read_tokens or 0) if usage else 0,
        )
        with self._lock:
            self._cost += exchange.known_cost

    def _failed(self, failure: JudgeError) -> None:
        with self._lock:
            self._failures[failure.kind] += 1
        self._limited_log.warn(failure.kind, "the judge %s: %s: %s", self, failure.kind, failure.message)


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
