"""A judge that sends requests: retries, limits, capabilities and the cache around one client library.

A judge derives from :class:`RemoteJudge` and has a :class:`Backend`, which sends one request with its library.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypedDict, TypeVar
from weakref import WeakValueDictionary

from pydantic import BaseModel, Field, ValidationError

from rageval_hooks.errors import (
    ConfigurationError,
    JudgeAnswerError,
    JudgeError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeTooLargeError,
    JudgeTruncatedError,
    JudgeUnavailableError,
)
from rageval_hooks.judges.answers import UnusableAnswerError, nonce_name, parse_answer, schema_json
from rageval_hooks.judges.base import (
    MAX_PROMPT_TOKENS,
    Admission,
    AnyMessage,
    GateClosedError,
    Judge,
    Judgement,
    Mode,
    RequestGate,
    as_messages,
    usage_details,
)
from rageval_hooks.judges.cache import CachedAnswer, JudgeCache, cache_key
from rageval_hooks.judges.capabilities import Capabilities
from rageval_hooks.judges.concurrency import Clock, PerLoop
from rageval_hooks.judges.failures import CallFailure, MessageCleaner, classify_failure
from rageval_hooks.judges.limits import CircuitBreaker, RateLimiter
from rageval_hooks.judges.prompts import Nonce, estimated_tokens, with_repair, with_schema
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.runtime.jsonable import Data, clean_text
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.suppression import quietly
from rageval_hooks.turn import Message, Usage

_logger = logging.getLogger(__name__)
T = TypeVar("T", bound=BaseModel)

AnyCache = JudgeCache | str | Path | None

_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_FILTERED = frozenset({"content_filter", "refusal", "safety", "prohibited_content", "recitation"})
_ENFORCED: frozenset[Mode] = frozenset({"json_schema", "structured"})
# Requests repeated without something that the server refused. Each removes one parameter or lowers the mode, so the
# bound is reached only by a server that contradicts itself.
_MAX_ADAPTATIONS = 40
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 20.0
# A `Retry-After` of a day must not silence the judge for a day.
_LONGEST_PAUSE_SECONDS = 600.0
_FIRST_ANSWER_TOKENS = 500.0
# Weight of the newest answer in the running mean of answer sizes.
_ANSWER_WEIGHT = 1 / 8
_COUNTERS = (
    *("calls", "answered", "cached", "requests", "retries", "repairs"),
    *("input_tokens", "output_tokens", "cached_tokens"),
)


class CallPolicy(Data):
    """Limits and price of a judge's calls.

    Attributes:
        timeout: seconds for one request.
        total_timeout: seconds for one question, from its first request, including all retries and pauses.
        max_retries: retries of one question after temporary failures. Requests repeated without a refused parameter,
            and the one correction of an unusable answer, do not count.
        max_concurrency: concurrent requests per event loop.
        requests_per_minute: limit in any minute; None for no limit.
        tokens_per_minute: limit of input and output tokens together, estimated before a request and corrected after
            it; None for no limit.
        max_prompt_tokens: tokens of a prompt at most, estimated. The texts of larger turns are cut; a larger prompt of
            another origin is not sent.
        max_answer_bytes: a larger response is not read to its end.
        circuit_failures: failures in a row that open the circuit breaker.
        circuit_cooldown: seconds that the circuit stays open the first time. Doubled after each failed probe, up to
            600 s.
        price_per_1k: USD for 1,000 tokens, read or written; None for the price that genai-prices has for the model, if
            it has one.
    """

    timeout: float = Field(default=120.0, gt=0)
    total_timeout: float = Field(default=300.0, gt=0)
    max_retries: int = Field(default=3, ge=0)
    max_concurrency: int = Field(default=8, ge=1)
    requests_per_minute: float | None = Field(default=None, ge=1)
    tokens_per_minute: float | None = Field(default=None, ge=1)
    max_prompt_tokens: int = Field(default=MAX_PROMPT_TOKENS, ge=1000)
    max_answer_bytes: int = Field(default=512 * 1024, ge=1)
    circuit_failures: int = Field(default=5, ge=1)
    circuit_cooldown: float = Field(default=30.0, gt=0)
    price_per_1k: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @classmethod
    def build(cls, options: CallOptions) -> CallPolicy:
        """Make a policy from keyword arguments.

        Raises:
            ConfigurationError: an option is unknown or out of range.
        """
        try:
            return cls(**options)
        except ValidationError as error:
            item = error.errors(include_url=False, include_input=False)[0]
            name = ".".join(map(str, item["loc"]))
            if item["type"] == "extra_forbidden":
                valid = ", ".join(cls.model_fields)
                raise ConfigurationError(f"unknown judge option {name!r}. Valid: {valid}") from None
            raise ConfigurationError(f"{name}: {item['msg']}") from None


class CallOptions(TypedDict, total=False):
    """The fields of :class:`CallPolicy`, as keyword arguments."""

    timeout: float
    total_timeout: float
    max_retries: int
    max_concurrency: int
    requests_per_minute: float | None
    tokens_per_minute: float | None
    max_prompt_tokens: int
    max_answer_bytes: int
    circuit_failures: int
    circuit_cooldown: float
    price_per_1k: float | None


@dataclass(frozen=True)
class JudgeRequest:
    """One request to a model.

    Attributes:
        messages: the prompt. In a mode that does not enforce the schema, it includes instructions about it.
        schema: the schema of the answer.
        mode: how the schema is enforced.
        parameters: additional fields of the request: sampling parameters and the user's own.
        max_answer_bytes: a larger answer must not be read to its end.
        timeout: seconds after which the caller cancels the request.
    """

    messages: tuple[Message, ...]
    schema: type[BaseModel]
    mode: Mode
    parameters: Mapping[str, Any] = field(default_factory=dict)
    max_answer_bytes: int = 512 * 1024
    timeout: float = 120.0


@dataclass(frozen=True)
class JudgeReply:
    """A model's reply.

    Attributes:
        text: the answer; with structured output by tool call, the call's arguments.
        usage: tokens, if reported.
        model: the model that answered, if reported.
        response_id: the provider's id of the response.
        finish_reason: why the model stopped, as the provider names it.
        refusal: the model's text if it refused.
    """

    text: str
    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None


class Backend(ABC):
    """Sends requests with one client library. Retries, limits, parsing and caching are not its concern.

    Attributes:
        modes: the supported modes, the most reliable one first. The last is ``text``.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("text",)

    @property
    @abstractmethod
    def where(self) -> str:
        """The server or the model, for messages, without secrets."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """JSON-serializable facts that distinguish this model from others, for the cache key, without secrets."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in messages."""
        return ()

    @abstractmethod
    async def send(self, request: JudgeRequest) -> JudgeReply:
        """Send one request. Exceptions of the client library pass through.

        Raises:
            NotImplementedError: the model does not support this mode.
            JudgeTooLargeError: the answer is larger than ``max_answer_bytes``.
        """

    def cost(self, usage: Usage, model: str) -> float | None:
        """Return the price of the tokens in USD; None if it is unknown."""
        return None

    async def aclose(self) -> None:  # noqa: B027 - optional
        """Close the connections of the running event loop."""

    def close(self, timeout: float) -> None:  # noqa: B027 - optional
        """Close the connections of event loops on other threads, within a timeout in seconds."""


class _EqualQuestions:
    """Equal questions that are asked at the same time: one after the other, so that the first answer serves all."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.answer: CachedAnswer | None = None


class _Slots:
    """The concurrency slots of one event loop, and its pending questions by their keys in the cache."""

    def __init__(self, size: int) -> None:
        self.semaphore = asyncio.Semaphore(size)
        self.waiting = 0
        self.running = 0
        self.pending: WeakValueDictionary[str, _EqualQuestions] = WeakValueDictionary()


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
        modes = backend.modes
        if structured is not None and structured not in modes:
            raise ConfigurationError(f"structured is one of {', '.join(modes)}, not {structured!r}")
        self.name = name
        self.model = model
        self.policy = policy
        self.max_prompt_tokens = policy.max_prompt_tokens
        self._backend = backend
        self._parameters = dict(parameters or {})
        self._cache = JudgeCache(cache) if isinstance(cache, (str, Path)) else cache
        self._clock = clock or Clock()
        # The judge lowers the mode if a server refuses it.
        self._capabilities = Capabilities(modes[modes.index(structured) if structured else 0 :])
        self._breaker = CircuitBreaker(policy.circuit_failures, policy.circuit_cooldown, policy.timeout, self._clock)
        self._rate_limiter = RateLimiter(policy.requests_per_minute, policy.tokens_per_minute, self._clock)
        self._clean = MessageCleaner(backend.secrets)
        self._answer_tokens = _FIRST_ANSWER_TOKENS
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
        gate: RequestGate | None = None,
    ) -> Judgement[T]:
        """Ask one question; see :meth:`Judge.complete`.

        Args:
            messages: the prompt.
            schema: the schema of the answer.
            parameters: sampling parameters of this question.
            gate: admits or refuses each request. A cache hit is not a request.
        """
        prompt = as_messages(messages)
        wanted = {**self._parameters, **(parameters or {})}
        slots = await self._slots.get()
        self._count(calls=1)
        if self._cache is None:
            return await self._ask(_Call(self, prompt, schema, wanted, gate), slots)
        key = cache_key(identity=self._backend.identity, messages=prompt, schema=schema, parameters=wanted)
        equal = slots.pending.setdefault(key, _EqualQuestions())
        async with equal.lock:
            # The first answer is kept in memory too: the file may not be writable.
            answer = equal.answer or await self._cache.get(key)
            # The JSON schema is part of the key, but a validator in Python code may have changed.
            with suppress(ValueError):
                if answer is not None:
                    value = schema.model_validate_json(answer.value)
                    self._count(answered=1, cached=1)
                    # A cached answer costs nothing: a report must not add up what the first one cost.
                    return Judgement(
                        value=value,
                        model=answer.model,
                        usage=Usage(input_tokens=0, output_tokens=0),
                        response_id=answer.response_id,
                        cost=0.0,
                        attempts=0,
                        mode=answer.mode,
                        cached=True,
                    )
            found = await self._ask(_Call(self, prompt, schema, wanted, gate), slots)
            equal.answer = CachedAnswer(found.value.model_dump_json(), found.model, found.response_id, found.mode)
            await self._cache.put(key, equal.answer)
            return found

    @property
    def has_known_price(self) -> bool:  # type: ignore[override]  # read only here
        """True if what its answers cost is known."""
        return self._price(Usage(input_tokens=1, output_tokens=1), self.model) is not None

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The judge can be used again."""
        await self._backend.aclose()

    def close(self, timeout: float = 5.0) -> None:
        """Close the connections of event loops on other threads, such as those that ``evaluate()`` has used."""
        self._backend.close(timeout)

    def stats(self) -> dict[str, Any]:
        """Return the counts of calls, answers, failures and requests, the tokens and cost, and the circuit's state."""
        slots = self._slots.things()
        with self._lock:
            counts = {name: self._counts[name] for name in _COUNTERS}
            failures, cost = dict(self._failures), self._cost
        return {
            "judge": str(self),
            **counts,
            "failed": failures,
            "cost": cost,
            "running": sum(slot.running for slot in slots),
            "waiting": sum(slot.waiting for slot in slots),
            "circuit": self._breaker.stats(),
            "mode": self._capabilities.best_mode,
            "refused_parameters": self._capabilities.refused,
            "cache": self._cache.stats() if self._cache is not None else None,
        }

    async def _ask(self, call: _Call[T], slots: _Slots) -> Judgement[T]:
        """Ask a question that is not in the cache, when it is its turn, and count what it took."""
        # Counted in both states: a call may be cancelled while it waits.
        slots.waiting += 1
        try:
            await slots.semaphore.acquire()
        finally:
            slots.waiting -= 1
        slots.running += 1
        try:
            judgement = await call.run()
            self._count(answered=1)
            return judgement
        except JudgeError as error:
            failure = error
        finally:
            slots.running -= 1
            slots.semaphore.release()
            self._count_requests(call)
        failure.details.update({name: fact for name, fact in call.details().items() if fact is not None})
        # A used-up budget says nothing about the judge.
        if not isinstance(failure, GateClosedError):
            with self._lock:
                self._failures[failure.kind] += 1
            self._limited_log.warn(
                failure.kind, "the judge %s: %s: %s [RAGEVAL-301]", self, failure.kind, failure.message
            )
        # Raised outside of the handler: inside, the client's exception would stay in the chain and could hold secrets.
        raise failure

    def _price(self, usage: Usage, model: str) -> float | None:
        """Return the price of some tokens in USD: at the user's rate, else the backend's; None if it is unknown."""
        if self.policy.price_per_1k is not None:
            return usage.total_tokens / 1000 * self.policy.price_per_1k
        return self._backend.cost(usage, model)

    def _count(self, **amounts: int) -> None:
        with self._lock:
            self._counts.update(amounts)

    def _count_requests(self, call: _Call[Any]) -> None:
        """Count what a call took. One that failed has cost something, too."""
        usage = call.known_usage or Usage(input_tokens=0, output_tokens=0)
        self._count(
            requests=call.attempts,
            retries=call.retries,
            repairs=int(call.repaired),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cache_read_tokens or 0,
        )
        with self._lock:
            self._cost += call.known_cost


class _Call(Generic[T]):
    """The requests for one question: retries and at most one correction, until there is an answer or a final failure.

    The loop is our own. The retries of client libraries and tenacity's know neither the circuit breaker nor the limits
    per minute nor budgets, which every single request has to pass. A repeated request is also often a different one:
    without a parameter that the server refused.

    Args:
        judge: the judge.
        messages: the prompt.
        schema: the schema of the answer.
        parameters: the fields of the request.
        gate: admits each request; None for no limit.

    Attributes:
        attempts: number of requests sent.
        retries: number of requests sent after a temporary failure.
        repaired: True if the model was asked to correct its answer.
    """

    def __init__(
        self,
        judge: RemoteJudge,
        messages: tuple[Message, ...],
        schema: type[T],
        parameters: Mapping[str, Any],
        gate: RequestGate | None,
    ) -> None:
        self._judge = judge
        self._messages = messages
        self._schema = schema
        self._parameters = parameters
        self._gate = gate
        self._nonce = Nonce.new(nonce_name(schema))
        self._deadline: float | None = None
        self._mode: Mode = "text"
        self._model = judge.model
        self._response_id: str | None = None
        # One entry for each reply.
        self._usages: list[Usage | None] = []
        self._costs: list[float | None] = []
        self.attempts = 0
        self.retries = 0
        self.repaired = False

    @property
    def known_usage(self) -> Usage | None:
        """Tokens of the replies that reported them."""
        return Usage.sum(self._usages)

    @property
    def known_cost(self) -> float:
        """USD of the replies whose price is known."""
        return sum(cost for cost in self._costs if cost is not None)

    @property
    def _usage(self) -> Usage | None:
        """Tokens of all replies. None if there is no reply, or if one did not report its tokens."""
        return self.known_usage if None not in self._usages else None

    @property
    def _cost(self) -> float | None:
        """USD of all replies. None if there is no reply, or if the price of one is unknown."""
        return self.known_cost if self._costs and None not in self._costs else None

    def details(self) -> dict[str, Any]:
        """Return what is known of a failed call."""
        return {
            "model": self._model,
            "attempts": self.attempts,
            "response_id": self._response_id,
            "replies": len(self._usages) or None,
            **usage_details(self._usage, self._cost),
        }

    async def run(self) -> Judgement[T]:
        """Return the answer.

        Raises:
            JudgeError: there is no usable answer.
        """
        limit = self._judge.max_prompt_tokens
        if (size := _tokens(self._messages)) > limit:
            raise JudgeTooLargeError(f"the prompt has about {size:,.0f} tokens, and max_prompt_tokens is {limit:,}")
        prompt = "\n".join(message.content for message in self._messages)
        wrong: str | None = None
        problem = ""
        while True:
            reply = await self._reply(wrong, problem)
            try:
                value = parse_answer(reply.text, self._schema, nonce=self._nonce, prompt=prompt)
            except UnusableAnswerError as error:
                problem = error.problem
                # A server that enforces a schema writes JSON only. An empty answer says nothing about the mode.
                if not error.is_json and self._mode in _ENFORCED and reply.text.strip() and not self.repaired:
                    self._judge._capabilities.lower(self._mode)
            else:
                return Judgement(
                    value=value,
                    model=self._model,
                    usage=self._usage,
                    response_id=self._response_id,
                    cost=self._cost,
                    attempts=self.attempts,
                    mode=self._mode,
                    repaired=self.repaired,
                )
            if self.repaired:
                raise JudgeAnswerError(f"neither the answer nor its correction is usable: {problem}")
            if self._gate is not None and not self._gate.is_open:
                raise JudgeAnswerError(f"the answer is not usable, and the budget allows no second request: {problem}")
            self.repaired = True
            wrong = reply.text

    async def _reply(self, wrong: str | None, problem: str) -> JudgeReply:
        """Return a complete reply. ``wrong`` is the unusable answer that it corrects."""
        judge = self._judge
        adaptations = 0
        while True:
            request = self._request(wrong, problem)
            outcome = await self._send(request)
            if isinstance(outcome, JudgeReply):
                return self._checked(outcome)
            if adaptations < _MAX_ADAPTATIONS and judge._capabilities.learn_from_failure(
                outcome, request.mode, request.schema, request.parameters
            ):
                adaptations += 1
                continue
            gate_is_closed = self._gate is not None and not self._gate.is_open
            if not outcome.retry or self.retries >= judge.policy.max_retries or gate_is_closed:
                raise outcome.error
            # The upper half of each pause is random, so that callers do not retry together.
            longest = min(_LONGEST_BACKOFF_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(self.retries, 30))
            wait = judge._rate_limiter.paused + longest * (1 + judge._clock.random()) / 2
            if wait >= self._left():
                raise outcome.error
            await judge._clock.sleep(wait)
            # Other calls have failed in the meantime. This call reports its own failure and not the open circuit.
            if judge._breaker.state == "open":
                raise outcome.error
            self.retries += 1

    def _request(self, wrong: str | None, problem: str) -> JudgeRequest:
        judge = self._judge
        self._mode = judge._capabilities.mode(self._schema)
        messages = self._messages
        if self._mode not in _ENFORCED:
            messages = with_schema(messages, schema_json(self._schema))
        messages = self._nonce.ask_in(messages)
        if wrong is not None:
            messages = with_repair(messages, wrong, problem, self._nonce)
        return JudgeRequest(
            messages=messages,
            schema=self._schema,
            mode=self._mode,
            parameters=judge._capabilities.parameters(self._parameters),
            max_answer_bytes=judge.policy.max_answer_bytes,
            timeout=judge.policy.timeout,
        )

    async def _send(self, request: JudgeRequest) -> JudgeReply | CallFailure:
        """Send one request once the circuit, the budget and the limits per minute let it pass."""
        judge = self._judge
        judge._breaker.check()
        left, pause = self._left(), judge._rate_limiter.paused
        if left <= 0:
            raise JudgeUnavailableError(f"no usable answer within total_timeout={judge.policy.total_timeout:g} s")
        if pause > left:
            raise JudgeRateLimitedError(f"the server asked to wait another {pause:.0f} s (Retry-After)")
        async with nullcontext(Admission()) if self._gate is None else self._gate.request() as admission:
            reserved = judge._rate_limiter.reserve(_tokens(request.messages) + judge._answer_tokens)
            try:
                if (wait := reserved.start - judge._clock.monotonic()) > 0:
                    await judge._clock.sleep(wait)
                started = judge._breaker.enter()
            except BaseException:
                reserved.tokens = reserved.requests = 0
                raise
            if self._deadline is None:
                self._deadline = judge._clock.monotonic() + judge.policy.total_timeout
            self.attempts += 1
            admission.sent = True
            try:
                outcome = await self._attempt(request)
            except BaseException:  # cancelled
                judge._breaker.left(started)
                raise
            if isinstance(outcome, JudgeReply):
                admission.cost = self._note(outcome.usage, outcome.model, outcome.response_id)
                if outcome.usage is None:
                    admission.tokens = None
                else:
                    admission.tokens = reserved.tokens = outcome.usage.total_tokens
                judge._breaker.succeeded(started)
                return outcome
            # An answer that is too large was read in part, and has cost something.
            if isinstance(outcome.error, JudgeTooLargeError) and outcome.status is None:
                admission.cost = self._note(None, None, self._response_id)
            if outcome.broken:
                judge._breaker.failed(started, outcome.error.message)
            elif outcome.retry:
                judge._breaker.left(started)
            else:
                # The server works: it answered, even if with a refusal.
                judge._breaker.succeeded(started)
            return outcome

    async def _attempt(self, request: JudgeRequest) -> JudgeReply | CallFailure:
        judge = self._judge
        timeout = max(0.001, min(request.timeout, self._left()))
        try:
            reply = await quietly(judge._backend.send(replace(request, timeout=timeout)), timeout)
            # Lone surrogates can be encoded neither for the cache nor for a span.
            texts = {name: clean_text(value) for name, value in vars(reply).items() if isinstance(value, str)}
            return replace(reply, **texts)  # type: ignore[arg-type]  # only fields with texts
        except Exception as error:
            failure = classify_failure(
                error,
                where=judge._backend.where,
                timeout=timeout,
                clean=judge._clean,
                clock=judge._clock,
                prompt="\n".join(message.content for message in request.messages),
            )
        # The client's exception holds the request with its headers. It must not leave this method, not even as a cause.
        if failure.retry_after is not None:
            judge._rate_limiter.pause(min(failure.retry_after, _LONGEST_PAUSE_SECONDS))
        return failure

    def _left(self) -> float:
        """Return the seconds left for the question. Its time starts with its first request."""
        judge = self._judge
        return judge.policy.total_timeout if self._deadline is None else self._deadline - judge._clock.monotonic()

    def _note(self, usage: Usage | None, model: str | None, response_id: str | None) -> float | None:
        """Record a reply. Returns its cost in USD; None if the price is unknown."""
        judge = self._judge
        self._model, self._response_id = model or self._model, response_id
        cost = None if usage is None else judge._price(usage, self._model)
        if usage is not None:
            judge._answer_tokens += (usage.output_tokens - judge._answer_tokens) * _ANSWER_WEIGHT
        self._usages.append(usage)
        self._costs.append(cost)
        return cost

    def _checked(self, reply: JudgeReply) -> JudgeReply:
        """Return the reply, or raise if it is refused, filtered, cut off or too large."""
        judge = self._judge
        reason = (reply.finish_reason or "").lower()
        if reply.refusal:
            raise JudgeRefusedError("the model refused to answer", refusal=judge._clean(reply.refusal))
        if reason in _FILTERED:
            raise JudgeRefusedError(f"the answer was stopped by a content filter ({reason})")
        if reason in _CUT_OFF:
            raise JudgeTruncatedError(f"the answer was cut off at the token limit ({reason}): raise max_tokens")
        if len(reply.text.encode()) > judge.policy.max_answer_bytes:
            raise JudgeTooLargeError(f"the answer is larger than max_answer_bytes={judge.policy.max_answer_bytes}")
        return reply


def _tokens(messages: Iterable[Message]) -> float:
    return sum(estimated_tokens(message.content) for message in messages)
