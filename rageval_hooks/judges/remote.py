"""A judge that sends requests: retries, limits, what its server refuses, and the cache, around one client library.

A judge derives from :class:`RemoteJudge` and sends one request with its library. Retries are ours: those of clients and
of tenacity know neither the circuit breaker nor the limits that each request has to pass, and a repeated request is
often a different one, without a parameter that the server refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

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
    UnknownNameError,
)
from rageval_hooks.judges.answers import (
    Nonce,
    UnusableAnswerError,
    nonce_name,
    parse_answer,
    schema_json,
    strict_schema,
)
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
from rageval_hooks.judges.concurrency import PerLoop
from rageval_hooks.judges.failures import CallFailure, Capabilities, classify_failure, clean_message
from rageval_hooks.judges.prompts import correction, estimated_tokens, with_schema, without_system
from rageval_hooks.judges.throttling import CircuitBreaker, Clock, RateLimiter
from rageval_hooks.runtime.fork import ForkSafeLock, reset_in_child
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.runtime.suppression import quietly
from rageval_hooks.turn import Message, Usage

_logger = logging.getLogger(__name__)
T = TypeVar("T", bound=BaseModel)

AnyCache = JudgeCache | str | Path | None

_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_FILTERED = frozenset({"content_filter", "refusal", "safety", "prohibited_content", "recitation"})
_ENFORCED: frozenset[Mode] = frozenset({"json_schema", "structured"})
_FIRST_PAUSE_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 20.0
# A `Retry-After` of a day must not silence the judge for a day.
_MAX_PAUSE_SECONDS = 600.0
# An estimate, until the answer reports its tokens.
_ANSWER_TOKENS = 500.0
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


@dataclass(frozen=True, kw_only=True)
class JudgeRequest:
    """One request to a model.

    Attributes:
        messages: the prompt. In a mode that does not enforce the schema, it includes instructions about it.
        schema: the schema of the answer.
        mode: how the schema is enforced.
        parameters: additional fields of the request: sampling parameters and the user's own.
        timeout: seconds after which the caller cancels the request.
    """

    messages: tuple[Message, ...]
    schema: type[BaseModel]
    mode: Mode
    parameters: Mapping[str, Any]
    timeout: float


class JudgeReply(Data):
    """A model's reply. Lone surrogates in its texts are replaced: no cache and no span can encode them.

    Attributes:
        text: the answer; with structured output by tool call, the call's arguments.
        usage: tokens, if reported.
        model: the model that answered, if reported.
        response_id: the provider's id of the response.
        finish_reason: why the model stopped, as the provider names it.
        refusal: the model's text if it refused.
    """

    text: Text
    usage: Usage | None = None
    model: Text | None = None
    response_id: Text | None = None
    finish_reason: Text | None = None
    refusal: Text | None = None


class Throttle:
    """Lets requests pass: by the circuit breaker, the limits per minute, and the pauses that the server asks for.

    Args:
        policy: the limits.
        clock: the time and random numbers.
    """

    def __init__(self, policy: CallPolicy, clock: Clock) -> None:
        self.clock = clock
        self.breaker = CircuitBreaker(
            failures=policy.circuit_failures, cooldown=policy.circuit_cooldown, patience=policy.timeout, clock=clock
        )
        self._limiter = RateLimiter(requests=policy.requests_per_minute, tokens=policy.tokens_per_minute, clock=clock)
        self._total = policy.total_timeout

    def check(self, deadline: float) -> None:
        """Raise if no request can be sent and answered before the deadline.

        Raises:
            JudgeError: the circuit is open, the time is up, or the server has asked for a longer pause.
        """
        self.breaker.check()
        left, pause = deadline - self.clock.monotonic(), self._limiter.paused
        if left <= 0:
            raise JudgeUnavailableError(f"no usable answer within total_timeout={self._total:g} s")
        if pause > min(left, self._total):
            raise JudgeRateLimitedError(f"the server asked to wait another {pause:.0f} s (Retry-After)")

    async def enter(self, tokens: float) -> float:
        """Wait until a request may be sent. Returns the time, with which its outcome is reported."""
        if (wait := self._limiter.reserve(tokens) - self.clock.monotonic()) > 0:
            await self.clock.sleep(wait)
        return self.breaker.enter()

    def leave(self, started: float, outcome: JudgeReply | CallFailure | None, tokens: float) -> None:
        """Learn from the outcome of a request; None if it was cancelled."""
        if outcome is None:
            self.breaker.report(started, None)
        elif isinstance(outcome, JudgeReply):
            if outcome.usage is not None:
                self._limiter.give_back(tokens - outcome.usage.total_tokens)
            self.breaker.report(started, True)
        else:
            if outcome.retry_after is not None:
                self._limiter.pause(min(outcome.retry_after, _MAX_PAUSE_SECONDS))
            # A server that answers with a refusal works. A rate limit says nothing.
            works = False if outcome.broken else None if outcome.retry else True
            self.breaker.report(started, works, outcome.error.message)

    async def pause(self, retries: int, deadline: float) -> bool:
        """Wait before a retry. Returns False at once if there is no time for that."""
        # The upper half of each pause is random, so that callers do not retry together.
        longest = min(_MAX_BACKOFF_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(retries, 30))
        wait = self._limiter.paused + longest * (1 + self.clock.random()) / 2
        if wait >= deadline - self.clock.monotonic():
            return False
        await self.clock.sleep(wait)
        return True


class JudgeCounts:
    """What a judge was asked, and what that took. A forked process counts from zero."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Count from zero: what the parent has asked is in the parent's statistics."""
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._cost = 0.0

    def add(self, **amounts: int) -> None:
        """Count events by name."""
        with self._lock:
            self._counts.update(amounts)

    def add_failure(self, kind: str) -> None:
        """Count a question without an answer."""
        with self._lock:
            self._failures[kind] += 1

    def add_requests(self, question: Question[Any]) -> None:
        """Count what a question took. One that failed has cost something, too."""
        usage = Usage.sum(question.usages) or Usage(input_tokens=0, output_tokens=0)
        with self._lock:
            self._counts.update(
                requests=question.attempts,
                retries=question.retries,
                repairs=int(question.repaired),
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cache_read_tokens or 0,
            )
            self._cost += question.known_cost

    def as_data(self) -> dict[str, Any]:
        """Return the counts."""
        with self._lock:
            counts = {name: self._counts[name] for name in _COUNTERS}
            return {**counts, "failed": dict(self._failures), "cost": self._cost}


@dataclass(kw_only=True)
class Question(Generic[T]):
    """One question to a judge: it sends requests until there is a usable answer, and knows what they have taken.

    Attributes:
        judge: the judge.
        messages: the prompt.
        schema: the schema of the answer.
        parameters: the fields of the request.
        gates: admit each request.
        nonce: the code that the answer repeats.
        model: the model that answered last, or the requested one.
        mode: how the last request enforced the schema.
        response_id: the provider's id of the last response.
        deadline: when its time is up, once its first request was sent.
        attempts: number of requests sent.
        retries: number of requests sent after a temporary failure.
        repaired: True if the model was asked to correct its answer.
        usages: the tokens of each reply; None for one that did not report them.
        costs: USD of each reply; None if its price is unknown.
    """

    judge: RemoteJudge
    messages: tuple[Message, ...]
    schema: type[T]
    parameters: Mapping[str, Any]
    gates: Sequence[RequestGate]
    nonce: Nonce
    model: str
    mode: Mode = "text"
    response_id: str | None = None
    deadline: float = math.inf
    attempts: int = 0
    retries: int = 0
    repaired: bool = False
    usages: list[Usage | None] = field(default_factory=list)
    costs: list[float | None] = field(default_factory=list)

    @property
    def known_cost(self) -> float:
        """USD of the replies whose price is known."""
        return sum(cost for cost in self.costs if cost is not None)

    def spent(self) -> tuple[Usage | None, float | None]:
        """Return tokens and USD of all replies; each is None without a reply, and if it is unknown for one."""
        usage = None if None in self.usages else Usage.sum(self.usages)
        return usage, self.known_cost if self.costs and None not in self.costs else None

    async def answer(self) -> Judgement[T]:
        """Send requests until there is a usable answer: retries after temporary failures, and at most one correction.

        Raises:
            JudgeError: there is none.
        """
        prompt = _text_of(self.messages)
        if (size := estimated_tokens(prompt)) > (limit := self.judge.max_prompt_tokens):
            raise JudgeTooLargeError(f"the prompt has about {size:,.0f} tokens, and max_prompt_tokens is {limit:,}")
        # An unusable answer, and the request to correct it.
        repair: tuple[Message, ...] = ()
        # What the call reports if no further request is admitted.
        problem: JudgeError | None = None
        is_retry = False
        while True:
            request = self._request(repair)
            try:
                outcome = await self._send_when_due(request)
            except JudgeError:
                # Not admitted: the circuit has opened meanwhile, the time is up, or the budget is used up.
                if problem is not None:
                    raise problem from None
                raise
            self.retries += is_retry
            self.repaired = bool(repair)
            is_retry = False
            if isinstance(outcome, CallFailure):
                # Each repetition lacks a parameter or a mode, so there is an end.
                if self.judge.capabilities.learn_from(outcome, request.mode, request.parameters):
                    continue
                problem, is_retry = outcome.error, True
                if not outcome.retry or self.retries >= self.judge.policy.max_retries:
                    raise problem
                if not await self.judge.throttle.pause(self.retries, self.deadline):
                    raise problem
                continue
            self.judge.check(outcome)
            try:
                value = parse_answer(outcome.text, self.schema, nonce=self.nonce, prompt=prompt)
            except UnusableAnswerError as error:
                if self.repaired:
                    raise JudgeAnswerError(f"neither the answer nor its correction is usable: {error}") from None
                # A server that enforces a schema writes JSON only. An empty answer says nothing about the mode.
                if not error.is_json and self.mode in _ENFORCED and outcome.text.strip():
                    self.judge.capabilities.lower(self.mode)
                repair = self.nonce.ask_in(correction(answer=outcome.text, problem=str(error)))
                problem = JudgeAnswerError(f"the answer is not usable, and no second request was possible: {error}")
                continue
            usage, cost = self.spent()
            return Judgement(
                value=value,
                model=self.model,
                usage=usage,
                response_id=self.response_id,
                cost=cost,
                attempts=self.attempts,
                mode=self.mode,
                repaired=self.repaired,
            )

    def _request(self, repair: tuple[Message, ...]) -> JudgeRequest:
        # Some schemas cannot be enforced.
        modes = [mode for mode in self.judge.capabilities.modes if mode != "json_schema" or strict_schema(self.schema)]
        self.mode = modes[0]
        messages = self.messages if self.judge.capabilities.takes_system else without_system(self.messages)
        if self.mode not in _ENFORCED:
            messages = with_schema(messages, schema_json(self.schema))
        return JudgeRequest(
            messages=(*self.nonce.ask_in(messages), *repair),
            schema=self.schema,
            mode=self.mode,
            parameters=self.judge.capabilities.parameters(self.parameters),
            timeout=self.judge.policy.timeout,
        )

    async def _send_when_due(self, request: JudgeRequest) -> JudgeReply | CallFailure:
        """Send one request once the circuit, the budget and the limits per minute let it pass.

        Raises:
            JudgeError: it was not admitted.
        """
        throttle = self.judge.throttle
        throttle.check(self.deadline)
        async with _admission(self.gates) as admission:
            estimate = estimated_tokens(_text_of(request.messages)) + _ANSWER_TOKENS
            started = await throttle.enter(estimate)
            # Waiting for a slot and for the limits does not count.
            self.deadline = min(self.deadline, throttle.clock.monotonic() + self.judge.policy.total_timeout)
            self.attempts += 1
            admission.sent = 1
            outcome = None
            try:
                outcome = await self._attempt(request)
            finally:
                throttle.leave(started, outcome, estimate)
            usage = None
            if isinstance(outcome, JudgeReply):
                usage = outcome.usage
                self.model, self.response_id = outcome.model or self.model, outcome.response_id
            # Only an answer costs something. One that is too large was read in part.
            elif not (isinstance(outcome.error, JudgeTooLargeError) and outcome.status is None):
                return outcome
            admission.cost = None if usage is None else self.judge.price(usage, self.model)
            admission.tokens = None if usage is None else usage.total_tokens
            self.usages.append(usage)
            self.costs.append(admission.cost)
            return outcome

    async def _attempt(self, request: JudgeRequest) -> JudgeReply | CallFailure:
        judge = self.judge
        timeout = max(0.001, min(request.timeout, self.deadline - judge.throttle.clock.monotonic()))
        try:
            return await quietly(judge.send(replace(request, timeout=timeout)), timeout)
        except Exception as error:
            prompt = _text_of(request.messages)
            return classify_failure(error, where=judge.where, timeout=timeout, secrets=judge.secrets, prompt=prompt)


class RemoteJudge(Judge):
    """The common part of :class:`OpenAIJudge` and the framework adapters.

    Connections and slots belong to one event loop. The limits per minute, the circuit breaker, the counters and what is
    known of the server are shared by all event loops and threads. A forked process starts with a copy of them.

    Args:
        model: the requested model.
        options: the fields of :class:`CallPolicy`.
        structured: the best mode that may be used; None for the best one of the class.
        parameters: fields of every request.
        cache: an answer cache, or its path; None for no cache.
        clock: the time and random numbers.

    Attributes:
        modes: the supported modes, the most reliable one first. The last is ``text``.

    Raises:
        ConfigurationError: an option is wrong, or the class does not have that mode.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("text",)

    def __init__(
        self,
        model: str,
        options: Mapping[str, Any],
        *,
        structured: Mode | None = None,
        parameters: Mapping[str, Any] | None = None,
        cache: AnyCache = None,
        clock: Clock | None = None,
    ) -> None:
        if structured is not None and structured not in self.modes:
            raise ConfigurationError(f"structured is one of {', '.join(self.modes)}, not {structured!r}")
        if unknown := sorted(options.keys() - CallPolicy.model_fields.keys()):
            raise UnknownNameError("judge option", unknown[0], CallPolicy.model_fields)
        try:
            self.policy = policy = CallPolicy(**options)
        except ValidationError as error:
            [item, *_] = error.errors(include_url=False, include_input=False)
            raise ConfigurationError(f"{item['loc'][0]}: {item['msg']}") from None
        self.model = model
        self.max_prompt_tokens = policy.max_prompt_tokens
        self._parameters = dict(parameters or {})
        self._cache = JudgeCache(cache) if isinstance(cache, (str, Path)) else cache
        # The judge lowers the mode if a server refuses it.
        self.capabilities = Capabilities(self.modes[self.modes.index(structured) if structured else 0 :])
        self.throttle = Throttle(policy, clock or Clock())
        self._slots = PerLoop(lambda: asyncio.Semaphore(policy.max_concurrency))
        self._counts = JudgeCounts()
        self._limited_log = RateLimitedLogger(_logger)

    # -- what a derived class says

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

    # -- what a user calls

    async def complete(
        self,
        messages: Iterable[AnyMessage],
        schema: type[T],
        *,
        parameters: Mapping[str, Any] | None = None,
        gates: Sequence[RequestGate] = (),
    ) -> Judgement[T]:
        """Ask one question; see :meth:`Judge.complete`.

        Args:
            messages: the prompt.
            schema: the schema of the answer.
            parameters: sampling parameters of this question.
            gates: admit or refuse each request. A cache hit is not a request.
        """
        prompt = as_messages(messages)
        wanted = {**self._parameters, **(parameters or {})}
        self._counts.add(calls=1)
        question = Question(
            judge=self,
            messages=prompt,
            schema=schema,
            parameters=wanted,
            gates=gates,
            nonce=Nonce.new(nonce_name(schema)),
            model=self.model,
        )
        if self._cache is None:
            return await self._ask(question)
        key = cache_key(identity=self.identity, messages=prompt, schema=schema, parameters=wanted)
        # The JSON schema is part of the key, but a validator in Python code may have changed.
        with suppress(ValueError):
            if (answer := await self._cache.get(key)) is not None:
                value = schema.model_validate_json(answer.value)
                self._counts.add(answered=1, cached=1)
                # A cached answer costs nothing: a report must not add up what the first one cost.
                nothing = Usage(input_tokens=0, output_tokens=0)
                return Judgement(
                    value=value,
                    model=answer.model,
                    usage=nothing,
                    response_id=answer.response_id,
                    cost=0.0,
                    attempts=0,
                    mode=answer.mode,
                    cached=True,
                )
        found = await self._ask(question)
        answer = CachedAnswer(
            value=found.value.model_dump_json(), model=found.model, response_id=found.response_id, mode=found.mode
        )
        await self._cache.put(key, answer)
        return found

    @property
    def has_known_price(self) -> bool:  # type: ignore[override]  # read only here
        """True if what its answers cost is known."""
        return self.price(Usage(input_tokens=1, output_tokens=1), self.model) is not None

    def stats(self) -> dict[str, Any]:
        """Return the counts of calls, answers, failures and requests, the tokens and cost, and the circuit's state."""
        return {
            "judge": str(self),
            **self._counts.as_data(),
            "circuit": self.throttle.breaker.stats(),
            "mode": self.capabilities.modes[0],
            "refused_parameters": self.capabilities.refused,
            "cache": self._cache.stats() if self._cache is not None else None,
        }

    # -- one question

    async def _ask(self, question: Question[T]) -> Judgement[T]:
        """Ask a question that is not in the cache, when it is its turn, and count what it took."""
        async with await self._slots.get():
            try:
                judgement = await question.answer()
                self._counts.add(answered=1)
                return judgement
            except JudgeError as error:
                failure = error
            finally:
                self._counts.add_requests(question)
        details = {
            "model": question.model,
            "attempts": question.attempts,
            "response_id": question.response_id,
            "replies": len(question.usages) or None,
            **usage_details(*question.spent()),
        }
        failure.details.update({name: fact for name, fact in details.items() if fact is not None})
        # A used-up budget says nothing about the judge.
        if not isinstance(failure, GateClosedError):
            self._counts.add_failure(failure.kind)
            self._limited_log.warn(
                failure.kind, "the judge %s: %s: %s [RAGEVAL-301]", self, failure.kind, failure.message
            )
        # Without a chain, and outside of the handler: the client's exception and the frames of its functions hold the
        # request with its headers.
        failure.__cause__ = failure.__context__ = failure.__traceback__ = None
        raise failure

    def check(self, reply: JudgeReply) -> None:
        """Raise if a reply is refused, filtered, cut off or too large."""
        reason = (reply.finish_reason or "").lower()
        if reply.refusal:
            refusal = clean_message(reply.refusal, self.secrets)
            raise JudgeRefusedError("the model refused to answer", refusal=refusal)
        if reason in _FILTERED:
            raise JudgeRefusedError(f"the answer was stopped by a content filter ({reason})")
        if reason in _CUT_OFF:
            raise JudgeTruncatedError(f"the answer was cut off at the token limit ({reason}): raise max_tokens")
        if len(reply.text.encode()) > self.policy.max_answer_bytes:
            raise JudgeTooLargeError(f"the answer is larger than max_answer_bytes={self.policy.max_answer_bytes}")

    def price(self, usage: Usage, model: str) -> float | None:
        """Return the price of some tokens in USD: at the user's rate, else the known one; None if it is unknown."""
        if self.policy.price_per_1k is not None:
            return usage.total_tokens / 1000 * self.policy.price_per_1k
        return self.cost(usage, model)


@asynccontextmanager
async def _admission(gates: Sequence[RequestGate]) -> AsyncIterator[Admission]:
    """Admit a request that each gate admits, and tell them all what it took."""
    admission = Admission()
    async with AsyncExitStack() as stack:
        counted = [await stack.enter_async_context(gate.request()) for gate in gates]
        try:
            yield admission
        finally:
            for own in counted:
                own.sent, own.cost, own.tokens = admission.sent, admission.cost, admission.tokens


class GatedJudge(Judge):
    """Asks another judge as long as a gate admits requests.

    A judge of this package asks the gate for each request, retries and corrections included; answers from its cache
    cost nothing. Another judge is counted by its answers, and may exceed a budget by its own retries.

    Args:
        judge: the judge.
        gate: admits or refuses requests.
    """

    def __init__(self, judge: Judge, gate: RequestGate) -> None:
        self.judge: Judge = judge
        self.gates: tuple[RequestGate, ...] = (gate,)
        # A gate around another one would see answers only, not the single requests.
        if isinstance(judge, GatedJudge):
            self.judge, self.gates = judge.judge, (gate, *judge.gates)
        self.name = getattr(judge, "name", type(judge).__name__)
        self.model = getattr(judge, "model", "?")
        self.has_known_price = judge.has_known_price
        self.max_prompt_tokens = judge.max_prompt_tokens

    async def complete(
        self, messages: Iterable[AnyMessage], schema: type[T], *, parameters: Mapping[str, Any] | None = None
    ) -> Judgement[T]:
        """Ask one question; see :meth:`Judge.complete`.

        Raises:
            GateClosedError: no request is admitted.
        """
        # A subclass with its own `complete` may not know the gate.
        if isinstance(self.judge, RemoteJudge) and type(self.judge).complete is RemoteJudge.complete:
            return await self.judge.complete(messages, schema, parameters=parameters, gates=self.gates)
        async with _admission(self.gates) as admission:
            admission.sent = 1
            try:
                judgement = await self.judge.complete(messages, schema, parameters=parameters)
            except JudgeError as error:
                facts = error.details
                admission.sent = facts.get("attempts", 1)
                admission.cost = facts.get("cost", None if facts.get("replies") else 0.0)
                admission.tokens = (facts.get("input_tokens") or 0) + (facts.get("output_tokens") or 0)
                raise
            admission.sent, admission.cost = judgement.attempts, judgement.cost
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


def _text_of(messages: Iterable[Message]) -> str:
    return "\n".join(message.content for message in messages)
