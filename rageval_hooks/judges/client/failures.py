"""Classify the exceptions of client libraries: what happened, and whether a retry makes sense."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from rageval_hooks.errors import (
    JudgeAnswerError,
    JudgeError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeRejectedError,
    JudgeTooLargeError,
    JudgeTruncatedError,
    JudgeUnavailableError,
)
from rageval_hooks.judges.client.backoff import retry_after
from rageval_hooks.judges.client.redaction import Redactor
from rageval_hooks.runtime.clock import Clock
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.runtime.selecting import instances

E = TypeVar("E", bound=BaseException)

__all__ = ["CallFailedError", "CallFailure", "StatusError", "classify_failure"]


@dataclass(frozen=True)
class CallFailure:
    """A failed request.

    Attributes:
        error: the error that the caller receives if no retry follows.
        retry: True if the same request may succeed later.
        broken: True if the judge as a whole does not work. The circuit breaker counts these.
        retry_after: seconds that the server asks to wait.
        status: the HTTP status, if there was a response.
        parameter: the request's field that the server named, or ``""``.
        text: the server's message, with secrets masked. It may quote the prompt; the error's message does not.
        unsupported: True if the model does not support this mode at all.
    """

    error: JudgeError
    retry: bool = False
    broken: bool = False
    retry_after: float | None = None
    status: int | None = None
    parameter: str = ""
    text: str = ""
    unsupported: bool = False


class CallFailedError(Exception):
    """Carries a failure that the backend has classified itself.

    Args:
        failure: the failure.
    """

    def __init__(self, failure: CallFailure) -> None:
        super().__init__(failure.error.message)
        self.failure = failure


class StatusError(Exception):
    """An HTTP error that the client library did not raise, for example an error object in a response with status 200.

    Args:
        status_code: the status.
        body: the error object, in OpenAI's form.
    """

    def __init__(self, status_code: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code
        self.body = body


# For example "This model's maximum context length is 8192 tokens".
_TOO_LONG = re.compile(
    r"context.{0,3}(?:length|window|size)|maximum context|too many (?:input )?tokens|prompt is too long|"
    r"input is too long|(?:input|prompt) tokens? (?:count )?exceed|reduce the length of the (?:messages|prompt)",
    re.IGNORECASE,
)
# For example "The response was filtered due to Azure's content management policy".
_FILTERED = re.compile(r"content.?(?:filter|policy|management)|safety system|responsible.?ai", re.IGNORECASE)
# For example "You exceeded your current quota, please check your plan and billing details".
_NO_QUOTA = re.compile(
    r"insufficient.?(?:quota|balance|funds)|exceeded your current quota|credit balance", re.IGNORECASE
)
_STATUSES = range(300, 600)
"""HTTP statuses of requests that did not succeed."""

_WHAT = {
    401: "the API key was not accepted",
    402: "the account has no credit",
    403: "access was denied",
    404: "no such model or URL",
}


def classify_failure(
    error: BaseException, *, where: str, timeout: float, redact: Redactor, clock: Clock, prompt: str = ""
) -> CallFailure:
    """Classify an exception of a client library.

    It uses what such exceptions have in common (``status_code``, ``response.headers``, class names), so that it works
    for every library without importing one.

    Args:
        error: the exception.
        where: the server or the model, for messages.
        timeout: the request's timeout in seconds.
        redact: masks secrets in the server's message.
        clock: the clock that HTTP dates are compared with.
        prompt: the text that was sent. Messages quote nothing of it.
    """
    if isinstance(error, CallFailedError):
        return error.failure
    if isinstance(error, JudgeError):
        return CallFailure(error)
    status = _status(error)
    if status is not None:
        return _from_status(error, status, where, redact, clock, prompt)
    names = {kind.__name__ for cause in _causes(error) for kind in type(cause).__mro__}
    if "LengthFinishReasonError" in names:
        return CallFailure(JudgeTruncatedError("the answer was cut off at the limit of tokens"))
    if names & {"ContentFilterFinishReasonError", "OpenAIRefusalError"}:
        return CallFailure(JudgeRefusedError("the model or its content filter refused to answer"))
    return _from_connection(error, names, where, timeout) or _unexpected(error, names, redact, prompt)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    candidates = (
        getattr(error, "status_code", None),
        getattr(response, "status_code", None),
        # Google's libraries name the HTTP status "code".
        getattr(error, "code", None),
    )
    for found in candidates:
        if isinstance(found, int) and found in _STATUSES:
            return int(found)
    return None


def _from_status(
    error: BaseException, status: int, where: str, redact: Redactor, clock: Clock, prompt: str
) -> CallFailure:
    body = _body(error)
    said = redact(_message(body))
    about = f"{said} {body.get('code') or ''} {body.get('type') or ''}"
    facts: dict[str, Any] = {"status": status, "parameter": str(body.get("param") or ""), "text": said}
    headers = getattr(getattr(error, "response", None), "headers", None)
    wait = retry_after(mapping_or_empty(headers), clock)
    tail = _quotation(body, said, redact, prompt)
    if status < 400:
        # Redirects are not followed: the other host would receive the key and the prompt.
        problem = _error(JudgeRejectedError, status, f"{where} redirects elsewhere: set base_url to the final URL")
        return CallFailure(problem, broken=True, **facts)
    # Other errors about the request name the length only in their text.
    is_too_long = status in (400, 422) and _TOO_LONG.search(about)
    if status == 413 or is_too_long:
        return CallFailure(_error(JudgeTooLargeError, status, f"the question is too large{tail}"), **facts)
    if status in (400, 403) and _FILTERED.search(about):
        return CallFailure(_error(JudgeRefusedError, status, f"the content filter refused the question{tail}"), **facts)
    # A quota that is used up does not come back in seconds, as a rate limit does.
    if status == 429 and _NO_QUOTA.search(about):
        problem = _error(JudgeRateLimitedError, status, f"the quota is used up{tail}")
        return CallFailure(problem, broken=True, **facts)
    if status == 429:
        problem = _error(JudgeRateLimitedError, status, f"too many requests{tail}")
        return CallFailure(problem, retry=True, retry_after=wait, **facts)
    if status >= 500 or status in (408, 409, 425):
        problem = _error(JudgeUnavailableError, status, f"the server failed{tail}")
        # A server that has not implemented something (501) will not have it a moment later.
        return CallFailure(problem, retry=status != 501, broken=True, retry_after=wait, **facts)
    what = _WHAT.get(status, "the request was not accepted")
    if status == 404:
        what += f" at {where}"
    problem = _error(JudgeRejectedError, status, f"{what}{tail}")
    return CallFailure(problem, broken=status in _WHAT, **facts)


def _quotation(body: Mapping[str, Any], said: str, redact: Redactor, prompt: str) -> str:
    """Return the server's message as the end of ours, without words of the prompt; empty without a message."""
    if not said:
        return ""
    return f": {redact(_message(body), prompt=prompt)}"


def _error(kind: type[JudgeError], status: int, message: str) -> JudgeError:
    return kind(f"HTTP {status}: {message}", status=status)


def _body(error: BaseException) -> Mapping[str, Any]:
    """Return the error object of a response, in OpenAI's form or a similar one."""
    body = getattr(error, "body", None)
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):  # a deeply nested body must not end in an untyped error
            return {"message": body}
    if not isinstance(body, Mapping):
        return {"message": str(error) if body is None else body}
    inner = body.get("error", body)
    return inner if isinstance(inner, Mapping) else {"message": inner}


def _message(body: Mapping[str, Any]) -> str:
    for name in ("message", "detail", "error", "msg"):
        if found := body.get(name):
            return found if isinstance(found, str) else _as_json(found)
    return _as_json(dict(body)) if body else ""


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except (ValueError, RecursionError):  # nested too deeply, or a cycle
        return "(unreadable)"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen and len(seen) < 20:
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__


def _from_connection(error: BaseException, names: set[str], where: str, timeout: float) -> CallFailure | None:
    """Return the failure if there was no complete response, else None."""
    causes = list(_causes(error))
    # The order matters: a certificate error is also an SSLError, and each SSLError is also an OSError.
    certificate = _first_of(causes, ssl.SSLCertVerificationError)
    if certificate is not None:
        message = (
            f"the certificate of {where} is not trusted ({certificate.verify_message}): pass ca_bundle, set "
            "SSL_CERT_FILE, or pass an http_client"
        )
        # A retry would meet the same certificate.
        return CallFailure(JudgeRejectedError(message), broken=True)
    timed_out = isinstance(error, TimeoutError) or any("Timeout" in name for name in names)
    if timed_out:
        return _temporary(f"no answer from {where} within {timeout:g} s")
    if _first_of(causes, socket.gaierror):
        return _temporary(f"the host of {where} is not known")
    if _first_of(causes, ssl.SSLError):
        return _temporary(f"no TLS connection to {where}")
    # Client libraries have connection errors of their own, which do not derive from Python's.
    if names & _CONNECTION_NAMES or _first_of(causes, ConnectionError):
        return _temporary(f"no connection to {where}, or it broke")
    return None


def _first_of(causes: list[BaseException], kind: type[E]) -> E | None:
    return next(iter(instances(causes, kind)), None)


def _temporary(problem: str) -> CallFailure:
    return CallFailure(JudgeUnavailableError(problem), retry=True, broken=True)


_CONNECTION_NAMES = {"APIConnectionError", "TransportError", "NetworkError", "ProtocolError", "ClientConnectionError"}


def _unexpected(error: BaseException, names: set[str], redact: Redactor, prompt: str) -> CallFailure:
    kind = type(error).__name__
    # The messages of these exceptions quote the answer, so only their names are shown.
    if isinstance(error, ValidationError) or "OutputParserException" in names:
        return CallFailure(JudgeAnswerError(f"the answer does not fit the schema ({kind})"))
    said = redact(str(error), 200)
    problem = JudgeUnavailableError(f"{kind}: {redact(str(error), 200, prompt)}" if said else kind)
    return CallFailure(problem, text=said, unsupported=isinstance(error, NotImplementedError))
