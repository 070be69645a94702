"""One judge call: requests, retries and at most one repair, until there is an answer or a final failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from rageval_hooks.errors import (
    JudgeAnswerError,
    JudgeError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeTooLargeError,
    JudgeTruncatedError,
    JudgeUnavailableError,
)
from rageval_hooks.judges.base import Judgement, Mode, usage_details
from rageval_hooks.judges.client.admission import Admission, Gate
from rageval_hooks.judges.client.backend import Backend, Reply, Request
from rageval_hooks.judges.client.backoff import Backoff
from rageval_hooks.judges.client.breaker import CircuitBreaker
from rageval_hooks.judges.client.capabilities import Capabilities
from rageval_hooks.judges.client.failures import CallFailure, classify_failure
from rageval_hooks.judges.client.policy import CallPolicy
from rageval_hooks.judges.client.rate_limit import RateLimiter
from rageval_hooks.judges.client.redaction import Redactor
from rageval_hooks.judges.prompts.instructions import with_repair, with_schema
from rageval_hooks.judges.prompts.nonce import Nonce
from rageval_hooks.judges.prompts.parsing import UnusableAnswerError, parse_answer
from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.selecting import entries_not_none, not_none
from rageval_hooks.runtime.suppression import quietly
from rageval_hooks.turn import Message, Usage

__all__ = ["CallContext", "JudgeCall", "JudgeQuestion"]

T = TypeVar("T", bound=BaseModel)

_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_FILTERED = frozenset({"content_filter", "refusal", "safety", "prohibited_content", "recitation"})
_ENFORCED: frozenset[Mode] = frozenset({"json_schema", "structured"})
_JSON_ONLY: frozenset[Mode] = frozenset({*_ENFORCED, "json_object"})
# Requests repeated without something that the server refused. Each removes one parameter or lowers the mode, so the
# bound is reached only by a server that contradicts itself.
_MAX_ADAPTATIONS = 40
# A `Retry-After` of a day must not silence the judge for a day.
_LONGEST_PAUSE_SECONDS = 600.0
# English has about four characters per token. Other scripts have fewer, but take more bytes per character.
_BYTES_PER_TOKEN = 4
_FIRST_ANSWER_TOKENS = 500.0
# Weight of the newest answer in the running mean of answer sizes.
_ANSWER_WEIGHT = 1 / 8


@dataclass
class CallContext:
    """The collaborators that all calls of one judge share.

    Attributes:
        backend: sends requests.
        policy: timeouts and limits.
        capabilities: which parameters and modes the server refuses.
        breaker: the circuit breaker.
        rate_limiter: decides when the next request may be sent.
        redact: masks secrets in messages.
        clock: the time and random numbers.
        backoff: pauses before retries.
        model: the requested model.
        answer_tokens: running mean of the tokens of an answer.
    """

    backend: Backend
    policy: CallPolicy
    capabilities: Capabilities
    breaker: CircuitBreaker
    rate_limiter: RateLimiter
    redact: Redactor
    clock: Clock
    backoff: Backoff
    model: str
    answer_tokens: float = _FIRST_ANSWER_TOKENS

    def cost(self, usage: Usage, model: str) -> float | None:
        """Return the price of some tokens in USD: at the user's rate, else the backend's; None if it is unknown."""
        if self.policy.price_per_1k is not None:
            return usage.total_tokens / 1000 * self.policy.price_per_1k
        return self.backend.cost(usage, model)


@dataclass(frozen=True)
class JudgeQuestion(Generic[T]):
    """The prompt, the schema of the answer, and the sampling parameters."""

    messages: tuple[Message, ...]
    schema: type[T]
    parameters: Mapping[str, Any]


class JudgeCall(Generic[T]):
    """The requests for one question.

    The loop is our own. The client's retries and tenacity know neither a total deadline nor the circuit breaker nor
    the limits per minute, which every single request has to pass. A repeated request is also often a different one:
    without a parameter that the server refused.

    Args:
        context: what the judge's calls share.
        question: the question.
        gate: admits each request; None for no limit.

    Attributes:
        attempts: number of requests sent.
        retries: number of requests sent after a temporary failure.
        repaired: True if the model was asked to correct its answer.
        model: the model that answered last, or the requested one.
    """

    def __init__(self, context: CallContext, question: JudgeQuestion[T], gate: Gate | None = None) -> None:
        self._context = context
        self._question = question
        self._gate = gate
        self._nonce = Nonce.new(question.schema)
        self._deadline: float | None = None
        self.attempts = 0
        self.retries = 0
        self.repaired = False
        self.model = context.model
        self._usages: list[Usage | None] = []
        self._costs: list[float | None] = []
        self._response_id: str | None = None
        self._mode: Mode = "text"

    @property
    def usage(self) -> Usage | None:
        """Tokens of all replies so far. None if there is no reply, or if one did not report its tokens."""
        return self.known_usage if None not in self._usages else None

    @property
    def known_usage(self) -> Usage | None:
        """Tokens of the replies that reported them."""
        return Usage.sum(self._usages)

    @property
    def cost(self) -> float | None:
        """USD of all replies so far. None if there is no reply, or if the price of one is unknown."""
        return self.known_cost if self._costs and None not in self._costs else None

    @property
    def known_cost(self) -> float:
        """USD of the replies whose price is known."""
        return sum(not_none(self._costs))

    async def run(self) -> Judgement[T]:
        """Return the answer.

        Raises:
            JudgeError: there is no usable answer. Its details say what was spent.
        """
        failure: JudgeError
        try:
            return await self._run()
        except JudgeError as error:
            failure = error
        failure.details.update(entries_not_none(self._details()))
        # Raised outside of the handler: inside, the client's exception would stay in the chain and could hold secrets.
        raise failure

    async def _run(self) -> Judgement[T]:
        reply = await self._reply(self._question.messages)
        try:
            value = self._parse(reply, alone=self._mode in _JSON_ONLY)
            self._learn(reply)
            return self._judgement(value)
        except UnusableAnswerError as error:
            problem = error.problem
            self._learn(reply, error)
        if self._gate is not None and not self._gate.is_open:
            raise JudgeAnswerError(f"the answer is not usable, and the budget allows no second request: {problem}")
        self.repaired = True
        reply = await self._reply(self._question.messages, reply.text, problem)
        # Some servers ignore the mode and always write text around the JSON. There, such text proves nothing.
        alone = self._mode in _JSON_ONLY and self._context.capabilities.has_answered_cleanly(self._mode)
        try:
            return self._judgement(self._parse(reply, alone=alone))
        except UnusableAnswerError as error:
            problem = error.problem
        raise JudgeAnswerError(f"neither the answer nor its correction is usable: {problem}")

    def _parse(self, reply: Reply, *, alone: bool) -> T:
        question = self._question
        prompt = "\n".join(message.content for message in question.messages)
        return parse_answer(reply.text, question.schema, alone=alone, nonce=self._nonce, prompt=prompt)

    def _learn(self, reply: Reply, error: UnusableAnswerError | None = None) -> None:
        """Use another mode from now on if the server accepts the mode but ignores it.

        A server that enforces JSON writes JSON only. Only first answers are evidence: a correction was asked for in
        words to be JSON only.
        """
        capabilities = self._context.capabilities
        if self._mode in _JSON_ONLY and (error is None or error.in_words):
            capabilities.learn_from_answer(self._mode, wordy=error is not None)
            return
        if error is None or error.is_json:
            return
        # An empty answer says nothing about the mode.
        if self._mode in _ENFORCED and reply.text.strip():
            capabilities.lower(self._mode)

    def _judgement(self, value: T) -> Judgement[T]:
        return Judgement(
            value=value,
            model=self.model,
            usage=self.usage,
            response_id=self._response_id,
            cost=self.cost,
            attempts=self.attempts,
            mode=self._mode,
            repaired=self.repaired,
        )

    def _details(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "attempts": self.attempts,
            "response_id": self._response_id,
            "replies": len(self._usages) or None,
            **usage_details(self.usage, self.cost),
        }

    async def _reply(self, messages: tuple[Message, ...], wrong: str | None = None, problem: str = "") -> Reply:
        """Return a complete reply to a prompt. ``wrong`` is the unusable answer that it corrects."""
        adaptations = 0
        while True:
            request = self._request(messages, wrong, problem)
            outcome = await self._send(request)
            if isinstance(outcome, Reply):
                return self._complete(outcome)
            if adaptations < _MAX_ADAPTATIONS and self._context.capabilities.learn_from_failure(outcome, request):
                adaptations += 1
                continue
            await self._before_retry(outcome)

    def _request(self, messages: tuple[Message, ...], wrong: str | None, problem: str) -> Request:
        context, schema = self._context, self._question.schema
        self._mode = context.capabilities.mode(schema)
        if self._mode not in _ENFORCED:
            messages = with_schema(messages, schema)
        messages = self._nonce.ask_in(messages)
        if wrong is not None:
            messages = with_repair(messages, wrong, problem, self._nonce)
        return Request(
            messages=messages,
            schema=schema,
            mode=self._mode,
            parameters=context.capabilities.parameters(self._question.parameters),
            max_answer_bytes=context.policy.max_answer_bytes,
            timeout=context.policy.timeout,
        )

    async def _send(self, request: Request) -> Reply | CallFailure:
        self._context.breaker.check()
        self._check_time()
        async with self._admitted() as admission:
            return await self._send_now(request, admission)

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[Admission]:
        if self._gate is None:
            yield Admission()
            return
        async with self._gate.request() as admission:
            yield admission

    async def _send_now(self, request: Request, admission: Admission) -> Reply | CallFailure:
        context = self._context
        ticket = context.rate_limiter.reserve(self._estimate(request))
        try:
            if ticket.wait > 0:
                await context.clock.sleep(ticket.wait)
            permit = context.breaker.enter()
        except BaseException:
            ticket.give_back()
            raise
        with permit:
            if self._deadline is None:
                self._deadline = context.clock.monotonic() + context.policy.total_timeout
            self.attempts += 1
            admission.sent = True
            outcome = await self._attempt(request)
            admission.cost = self._note(outcome)
            if isinstance(outcome, Reply):
                admission.tokens = None if outcome.usage is None else outcome.usage.total_tokens
                if outcome.usage is not None:
                    ticket.settle(outcome.usage.total_tokens)
                permit.succeeded()
            elif outcome.broken:
                permit.failed(outcome.error.message)
            elif not outcome.retry:
                # The server works: it answered, even if with a refusal.
                permit.succeeded()
        return outcome

    async def _attempt(self, request: Request) -> Reply | CallFailure:
        context = self._context
        timeout = max(0.001, min(request.timeout, self._left()))
        try:
            reply = await quietly(context.backend.send(replace(request, timeout=timeout)), timeout)
            return reply.cleaned()
        except Exception as error:
            failure = classify_failure(
                error,
                where=context.backend.where,
                timeout=timeout,
                redact=context.redact,
                clock=context.clock,
                prompt="\n".join(message.content for message in request.messages),
            )
        # The client's exception holds the request with its headers. It must not leave this method, not even as a cause.
        if failure.retry_after is not None:
            context.rate_limiter.pause(min(failure.retry_after, _LONGEST_PAUSE_SECONDS))
        return failure

    def _left(self) -> float:
        """Return the seconds left for the question. Its time starts with its first request."""
        policy = self._context.policy
        return policy.total_timeout if self._deadline is None else self._deadline - self._context.clock.monotonic()

    def _check_time(self) -> None:
        left, pause = self._left(), self._context.rate_limiter.paused
        if left <= 0:
            raise JudgeUnavailableError(
                f"no usable answer within total_timeout={self._context.policy.total_timeout:g} s"
            )
        if pause > left:
            raise JudgeRateLimitedError(f"the server asked to wait another {pause:.0f} s (Retry-After)")

    async def _before_retry(self, failure: CallFailure) -> None:
        """Wait before the next attempt, or raise the failure if there must not be one."""
        context = self._context
        if not failure.retry or self.retries >= context.policy.max_retries:
            raise failure.error
        if self._gate is not None and not self._gate.is_open:
            raise failure.error
        wait = context.rate_limiter.paused + context.backoff.pause(self.retries, context.clock)
        if wait >= self._left():
            raise failure.error
        await context.clock.sleep(wait)
        # Other calls have failed in the meantime. This call reports its own failure and not the open circuit.
        if context.breaker.state == "open":
            raise failure.error
        self.retries += 1

    def _note(self, outcome: Reply | CallFailure) -> float | None:
        """Record the usage of a reply.

        Returns:
            Its cost in USD: 0 if there is no reply, None if the price is unknown.
        """
        context = self._context
        usage = cost = None
        if isinstance(outcome, Reply):
            self.model = outcome.model or self.model
            self._response_id = outcome.response_id
            usage = outcome.usage
        elif outcome.status is not None or not isinstance(outcome.error, JudgeTooLargeError):
            return 0.0
        if usage is not None:
            context.answer_tokens += (usage.output_tokens - context.answer_tokens) * _ANSWER_WEIGHT
            cost = context.cost(usage, self.model)
        self._usages.append(usage)
        self._costs.append(cost)
        return cost

    def _complete(self, reply: Reply) -> Reply:
        """Return the reply, or raise if it is refused, filtered, cut off or too large."""
        context = self._context
        reason = (reply.finish_reason or "").lower()
        if reply.refusal:
            raise JudgeRefusedError("the model refused to answer", refusal=context.redact(reply.refusal))
        if reason in _FILTERED:
            raise JudgeRefusedError(f"the answer was stopped by a content filter ({reason})")
        if reason in _CUT_OFF:
            raise JudgeTruncatedError(f"the answer was cut off at the token limit ({reason}): raise max_tokens")
        if len(reply.text.encode()) > context.policy.max_answer_bytes:
            raise JudgeTooLargeError(f"the answer is larger than max_answer_bytes={context.policy.max_answer_bytes}")
        return reply

    def _estimate(self, request: Request) -> float:
        size = sum(len(message.content.encode()) for message in request.messages)
        return size / _BYTES_PER_TOKEN + self._context.answer_tokens
