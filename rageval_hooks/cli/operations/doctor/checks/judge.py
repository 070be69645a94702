"""The judge: one tiny real request, and its error in words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from rageval_hooks.budgets import BudgetUsedUpError
from rageval_hooks.cli.operations.doctor.base import Check, Finding, note, ok, problem
from rageval_hooks.cli.operations.doctor.setup import Setup
from rageval_hooks.errors import ConfigurationError, JudgeError
from rageval_hooks.judges.base import Judge, Judgement, resolve_judge
from rageval_hooks.online.build import within_budget

__all__ = ["JudgeCheck"]

_QUESTION = "Which whole number comes after 6? Give it in the field `number`."


class Answer(BaseModel):
    """The answer to the question of the check."""

    number: int = Field(description="the number")


class JudgeCheck(Check):
    """Asks the configured judge one question, without retries and without its cache."""

    name: ClassVar[str] = "judge"
    order: ClassVar[int] = 40

    def seconds(self, setup: Setup) -> float:
        """Return the time for the answer, and for importing the client's package."""
        return setup.options.seconds * 2 + 30

    def run(self, setup: Setup) -> Iterator[Finding]:
        """Yield whether the judge answers."""
        if setup.settings.judge is None:
            yield note("no judge: metrics that ask one do not run")
            return
        try:
            judge = _judge(setup)
        except ConfigurationError as error:
            yield problem(str(error), "set what the message names")
            return
        if not setup.options.asks_judge:
            yield note(f"{setup.settings.judge}: not asked (--no-judge)")
            return
        started = time.monotonic()
        try:
            judgement = asyncio.run(_ask(judge, setup.options.seconds))
        except TimeoutError:
            reason = f"{setup.settings.judge}: no answer within {setup.options.seconds:g} seconds"
            yield problem(reason, "check base_url and the network, or give a longer --timeout")
        except JudgeError as error:
            yield problem(f"{setup.settings.judge}: {error.kind}: {error.message}", advice_for(error))
        else:
            yield _answered(setup, judgement, time.monotonic() - started)


def _judge(setup: Setup) -> Judge:
    settings = setup.settings
    options = settings.judge_options
    try:
        # A retry after a failure would only delay the report of that failure.
        judge = resolve_judge(settings.judge, **{**options, "max_retries": 0, "cache": None})
    except ConfigurationError:
        # A judge of the user's may not take these two. If the error has another cause, it comes again.
        judge = resolve_judge(settings.judge, **options)
    return within_budget(judge, settings)


async def _ask(judge: Judge, seconds: float) -> Judgement[Answer]:
    try:
        return await asyncio.wait_for(judge.complete([("user", _QUESTION)], Answer), seconds)
    finally:
        await judge.aclose()


def _answered(setup: Setup, judgement: Judgement[Answer], seconds: float) -> Finding:
    usage = judgement.usage
    details = [f"{seconds:.1f} s", f"answers as {judgement.mode}"]
    if usage is not None:
        details.append(f"{usage.input_tokens} + {usage.output_tokens} tokens")
    if judgement.cost is not None:
        details.append(f"{judgement.cost:.6f} USD")
    if judgement.repaired:
        details.append("after a correction")
    return ok(f"{setup.settings.judge}: {judgement.model} answered ({', '.join(details)})")


_BY_STATUS: dict[Any, str] = {
    401: "set the key of the provider, such as OPENAI_API_KEY, to a valid one",
    402: "add credit to the account",
    403: "use a key that may use this model",
    404: "correct the model's name in judge, and base_url",
    429: "wait, or raise the limit at the provider; requests_per_minute in judge_options keeps below it",
}
_BY_TEXT = (
    ("is not known", "correct the host in base_url, or the DNS of this machine"),
    ("certificate", "pass ca_bundle in judge_options, or set SSL_CERT_FILE to the file with the certificates"),
    ("TLS", "the server does not speak TLS, or is old: begin base_url with http:// if that is meant"),
    ("no connection", "start the server, or correct base_url; a proxy is set by HTTPS_PROXY"),
    ("within", "check base_url and the network, or set a longer timeout in judge_options"),
    ("redirects", "set base_url to the final URL"),
)
_BY_KIND = {
    "invalid_answer": "use a model that follows a JSON schema, or set structured=json_object in judge_options",
    "refused": "use another model: this one refuses a harmless question",
    "truncated": "raise max_tokens in judge_options: reasoning counts too",
    "rate_limited": _BY_STATUS[429],
    "unavailable": "check that the server runs and that base_url is its address",
}


def advice_for(error: JudgeError) -> str:
    """Return what to do about a failure of the judge."""
    if isinstance(error, BudgetUsedUpError):
        return "wait until the period ends, or raise judge_budget"
    by_status = _BY_STATUS.get(error.details.get("status"))
    if by_status is not None:
        return by_status
    by_text = (advice for text, advice in _BY_TEXT if text in error.message)
    return next(by_text, _BY_KIND.get(error.kind, "see docs/judge.md"))
