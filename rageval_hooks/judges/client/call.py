"""One question: requests, retries and at most one repair, until there is an answer or no hope for one."""

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
from rageval_hooks.judges.client.capabilities import Learned
from rageval_hooks.judges.client.failures import CallFailure, trouble_from
from rageval_hooks.judges.client.policy import CallPolicy
from rageval_hooks.judges.client.rate_limit import Throttle
from rageval_hooks.judges.client.redaction import Redactor
from rageval_hooks.judges.prompts.instructions import with_repair, with_schema
from rageval_hooks.judges.prompts.parsing import UnusableAnswerError, parse_answer
from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.quiet_calls import quietly
from rageval_hooks.turn import Message, Usage

__all__ = ["Exchange", "Question", "Rules"]

T = TypeVar("T", bound=BaseModel)

_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_FILTERED = frozenset({"content_filter", "refusal", "safety", "prohibited_content", "recitation"})
_ENFORCED: frozenset[Mode] = frozenset({"json_schema", "structured"})
_JSON_ONLY: frozenset[Mode] = frozenset({*_ENFORCED, "json_object"})
_MAX_LESSONS = 40
_LONGEST_PAUSE = 600.0  # seconds that a server can silence a judge for at a time
_BYTES_PER_TOKEN = 4  # about, in English and, since other scripts take more bytes, elsewhere too
_FIRST_GUESS = 500.0


@dataclass
class Rules:
    """What all questions to one judge share.

    Attributes:
        backend: sends requests.
        policy: times and limits.
        learned: what the model cannot do.
        breaker: whether it works at all.
        throttle: when the next request may be sent.
        redact: masks keys.
        clock: tells the time.
        backoff: how long to wait before a retry.
        model: the model that is asked for.
        answer_tokens: tokens of a usual answer, as seen so far.
    """

    backend: Backend
    policy: CallPolicy
    learned: Learned
    breaker: CircuitBreaker
    throttle: Throttle
    redact: Redactor
    clock: Clock
    backoff: Backoff
    model: str
    answer_tokens: float = _FIRST_GUESS


@dataclass(frozen=True)
class Question(Generic[T]):
    """What is asked: the prompt, the form of the answer, and the parameters that are wanted."""

    messages: tuple[Message, ...]
    schema: type[T]
    parameters: Mapping[str, Any]


class Exchange(Generic[T]):
    """The requests for one question.

    An own loop, and neither the client's retries nor tenacity: those know nothing of a total deadline, the circuit
    breaker and the limits per minute, which each single request has to pass; and what is tried again here is often not
    the same request, but one without a parameter that was refused.

    Args:
        rules: of the judge.
        question: what is asked.
        gate: lets each request through; None for no limit.

    Attributes:
        attempts: requests that were sent.
        retries: those after a passing failure.
        repaired: whether the answer had to be asked for again.
        model: who answered last, or is asked.
    """

    def __init__(self, rules: Rules, question: Question[T], gate: Gate | None = None) -> None:
        self._rules = rules
        self._question = question
        self._gate = gate
        self._deadline: float | None = None
        self.attempts = 0
        self.retries = 0
        self.repaired = False
        self.model = rules.model
        self._usages: list[Usage | None] = []
        self._costs: list[float | None] = []
        self._response_id: str | None = None
        self._mode: Mode = "text"

    @property
    def usage(self) -> Usage | None:
        """Tokens so far, of all replies; None if one of them does not say, or there is none."""
        return self.known_usage if None not in self._usages else None

    @property
    def known_usage(self) -> Usage | None:
        """Tokens so far, of those replies that say."""
        return Usage.sum(self._usages)

    @property
    def cost(self) -> float | None:
        """USD so far; None if a price is not known, or nothing is known to have been spent."""
        return self.known_cost if self._costs and None not in self._costs else None

    @property
    def known_cost(self) -> float:
        """USD so far, of those replies whose price is known."""
        return sum(cost for cost in self._costs if cost is not None)

    async def run(self) -> Judgement[T]:
        """Return the answer.

        Raises:
            JudgeError: there is none; its details say what was spent.
        """
        failure: JudgeError
        try:
            return await self._run()
        except JudgeError as error:
            failure = error
        failure.details.update({name: value for name, value in self._details().items() if value is not None})
        raise failure  # out here: an exception raised in the handler would drag others along

    async def _run(self) -> Judgement[T]:
        reply = await self._reply(self._question.messages)
        try:
            value = parse_answer(reply.text, self._question.schema, alone=self._mode in _JSON_ONLY)
            self._learn(reply)
            return self._judgement(value)
        except UnusableAnswerError as error:
            problem = error.problem
            self._learn(reply, error)
        if self._gate is not None and not self._gate.is_open:
            raise JudgeAnswerError(f"the answer cannot be used, and no second one may be asked for: {problem}")
        self.repaired = True
        reply = await self._reply(self._question.messages, reply.text, problem)
        # A server that has always written words, in the mode of this request, may know no other way.
        alone = self._mode in _JSON_ONLY and self._rules.learned.was_clean(self._mode)
        try:
            return self._judgement(parse_answer(reply.text, self._question.schema, alone=alone))
        except UnusableAnswerError as error:
            problem = error.problem
        raise JudgeAnswerError(f"the answer cannot be used, nor can the second one: {problem}")

    def _learn(self, reply: Reply, error: UnusableAnswerError | None = None) -> None:
        """Ask in another way if the server takes requests and ignores the form: who enforces it writes JSON alone.

        First answers tell that, and second ones do not: these were told to be JSON alone.
        """
        learned = self._rules.learned
        if self._mode in _JSON_ONLY and (error is None or error.in_words):
            learned.from_answer(self._mode, wordy=error is not None)
        elif error is not None and not error.is_json and reply.text.strip() and self._mode in _ENFORCED:
            learned.lower(self._mode)

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
        """Return a complete reply to a prompt; ``wrong`` is the answer that it shall replace."""
        lessons = 0
        while True:
            request = self._request(messages, wrong, problem)
            outcome = await self._send(request)
            if isinstance(outcome, Reply):
                return self._complete(outcome)
            if lessons < _MAX_LESSONS and self._rules.learned.from_trouble(outcome, request):
                lessons += 1
                continue
            await self._before_retry(outcome)

    def _request(self, messages: tuple[Message, ...], wrong: str | None, problem: str) -> Request:
        rules, schema = self._rules, self._question.schema
        self._mode = rules.learned.mode(schema)
        if self._mode not in _ENFORCED:
            messages = with_schema(messages, schema)
        if wrong is not None:
            messages = with_repair(messages, wrong, problem)
        return Request(
            messages=messages,
            schema=schema,
            mode=self._mode,
            parameters=rules.learned.parameters(self._question.parameters),
            max_answer_bytes=rules.policy.max_answer_bytes,
            timeout=rules.policy.timeout,
        )

    async def _send(self, request: Request) -> Reply | CallFailure:
        self._rules.breaker.check()
        self._check_time()
        async with self._let_through() as admission:
            return await self._send_now(request, admission)

    @asynccontextmanager
    async def _let_through(self) -> AsyncIterator[Admission]:
        if self._gate is None:
            yield Admission()
            return
        async with self._gate.request() as admission:
            yield admission

    async def _send_now(self, request: Request, admission: Admission) -> Reply | CallFailure:
        rules = self._rules
        ticket = rules.throttle.reserve(self._estimate(request))
        try:
            if ticket.wait > 0:
                await rules.clock.sleep(ticket.wait)
            permit = rules.breaker.enter()
        except BaseException:
            ticket.give_back()
            raise
        with permit:
            if self._deadline is None:
                self._deadline = rules.clock.monotonic() + rules.policy.total_timeout
            self.attempts += 1
            admission.sent = True
            outcome = await self._attempt(request)
            admission.cost = self._note(outcome)
            if isinstance(outcome, Reply):
                if outcome.usage is not None:
                    ticket.settle(outcome.usage.total_tokens)
                permit.succeeded()
            elif outcome.broken:
                permit.failed(outcome.error.message)
            elif not outcome.retry:
                permit.succeeded()  # it answered, if only to say no
        return outcome

    async def _attempt(self, request: Request) -> Reply | CallFailure:
        rules = self._rules
        timeout = max(0.001, min(request.timeout, self._left()))
        try:
            return await quietly(rules.backend.send(replace(request, timeout=timeout)), timeout)
        except Exception as error:
            trouble = trouble_from(
                error,
                where=rules.backend.where,
                timeout=timeout,
                redact=rules.redact,
                clock=rules.clock,
                prompt="\n".join(message.content for message in request.messages),
            )
        # The client's exception, which holds the request with its headers, ends here and is in no chain.
        if trouble.retry_after is not None:
            rules.throttle.pause(min(trouble.retry_after, _LONGEST_PAUSE))
        return trouble

    def _left(self) -> float:
        """Return the seconds left for the question; its time begins with its first request."""
        policy = self._rules.policy
        return policy.total_timeout if self._deadline is None else self._deadline - self._rules.clock.monotonic()

    def _check_time(self) -> None:
        left, pause = self._left(), self._rules.throttle.paused
        if left <= 0:
            raise JudgeUnavailableError(f"no usable answer within {self._rules.policy.total_timeout:g} s in all")
        if pause > left:
            raise JudgeRateLimitedError(f"the server wants no requests for another {pause:.0f} s")

    async def _before_retry(self, trouble: CallFailure) -> None:
        """Wait for the moment of the next try, or raise the failure if there is none."""
        rules = self._rules
        if not trouble.retry or self.retries >= rules.policy.max_retries:
            raise trouble.error
        if self._gate is not None and not self._gate.is_open:
            raise trouble.error
        wait = rules.throttle.paused + rules.backoff.pause(self.retries, rules.clock)
        if wait >= self._left():
            raise trouble.error
        await rules.clock.sleep(wait)
        if rules.breaker.state == "open":  # others have failed meanwhile: this one says what happened to itself
            raise trouble.error
        self.retries += 1

    def _note(self, outcome: Reply | CallFailure) -> float | None:
        """Note what a reply tells; returns what it costs: 0 if there is none, None if that is not known."""
        rules = self._rules
        usage = cost = None
        if isinstance(outcome, Reply):
            self.model = outcome.model or self.model
            self._response_id = outcome.response_id
            usage = outcome.usage
        elif outcome.status is not None or not isinstance(outcome.error, JudgeTooLargeError):
            return 0.0
        if usage is not None:
            rules.answer_tokens += (usage.output_tokens - rules.answer_tokens) / 8
            cost = rules.backend.cost(usage, self.model)
        self._usages.append(usage)
        self._costs.append(cost)
        return cost

    def _complete(self, reply: Reply) -> Reply:
        """Refuse a reply that is not an answer."""
        rules = self._rules
        reason = (reply.finish_reason or "").lower()
        if reply.refusal:
            raise JudgeRefusedError("the model refused to answer", refusal=rules.redact(reply.refusal))
        if reason in _FILTERED:
            raise JudgeRefusedError(f"the answer was stopped by a filter ({reason})")
        if reason in _CUT_OFF:
            raise JudgeTruncatedError(f"the answer was cut off at the limit of tokens ({reason})")
        if len(reply.text.encode()) > rules.policy.max_answer_bytes:
            raise JudgeTooLargeError(f"the answer is larger than {rules.policy.max_answer_bytes} bytes")
        return reply

    def _estimate(self, request: Request) -> float:
        size = sum(len(message.content.encode()) for message in request.messages)
        return size / _BYTES_PER_TOKEN + self._rules.answer_tokens
