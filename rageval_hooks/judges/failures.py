"""What goes wrong with a request: what happened, whether a retry makes sense, and what the server refuses for good.

Messages of servers are shown without secrets and without words of the prompt: servers echo keys, and quote what they
refuse.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

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
from rageval_hooks.judges.base import Mode
from rageval_hooks.privacy.secrets import mask_secrets
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.text.formatting import shown, truncate

_MASK = "***"
_MIN_SECRET = 4
_MAX_MESSAGE_LENGTH = 300
# Characters that a message and the prompt must share to count as a quotation.
_MIN_QUOTE = 12
# Looking for quotations takes a scan of the prompt for each word of the message.
_MAX_PROMPT_LENGTH = 500_000


def clean_message(text: str, secrets: Iterable[str] = (), prompt: str = "", longest: int = _MAX_MESSAGE_LENGTH) -> str:
    """Prepare a server's message for logs and reasons: mask secrets, join the lines, and shorten it.

    Args:
        text: the message.
        secrets: known secrets. What looks like a key is masked in any case.
        prompt: a text of which nothing may be shown. Quotations of it are removed.
        longest: maximum length of the result, in characters.
    """
    if len(prompt) > _MAX_PROMPT_LENGTH:
        return "(not shown: it may quote the prompt)"
    text = shown(clean_text(text))  # logs are read on terminals
    # The longest first, since one secret may contain another.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_SECRET:
            text = text.replace(secret, _MASK)
    text = " ".join(mask_secrets(text[: longest * 20], _MASK, is_message=True).split())
    if prompt:
        text = _without_quotations(text[: longest * 5], " ".join(prompt.split()))
    return truncate(text, longest)


def _without_quotations(text: str, source: str) -> str:
    """Remove from a text what it quotes of another one."""
    kept: list[str] = []
    position = 0
    # The "H", the "4" and the "n" of "HTTP 404: no model"
    for word in re.finditer(r"\b\w", text):
        start = word.start()
        end = start + _MIN_QUOTE
        if start < position or end > len(text) or text[start:end] not in source:
            continue
        while end < len(text) and text[start : end + 1] in source:
            end += 1
        kept += [text[position:start], "[…]"]
        position = end
    return "".join([*kept, text[position:]])


@dataclass(eq=False)
class CallFailure(Exception):  # noqa: N818 - a value in most places: only backends raise it
    """A failed request. A judge may raise one that it has classified itself.

    Attributes:
        error: the error that the caller receives if no retry follows.
        retry: True if the same request may succeed later.
        broken: True if the judge as a whole does not work. The circuit breaker counts these.
        retry_after: seconds that the server asks to wait.
        status: the HTTP status, if there was a response.
        parameter: the request's field that the server named, or ``""``.
        text: the server's message, without secrets and without quotations of the prompt.
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


@dataclass(eq=False)
class StatusError(Exception):
    """A response with an error.

    Attributes:
        status_code: the status.
        body: the error object in OpenAI's form, or a text.
        headers: the headers of the response.
    """

    status_code: int
    body: Mapping[str, Any] | str
    headers: Mapping[str, str] = field(default_factory=dict)


# --------------------------------------------------------------------------- what happened

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
_WHAT: Final = {
    401: "the API key was not accepted",
    402: "the account has no credit",
    403: "access was denied",
    404: "no such model or URL",
}
# Classes of client libraries, by module. One that an exception has is imported.
_TIMEOUTS = (
    "openai:APITimeoutError anthropic:APITimeoutError httpx:TimeoutException httpx2:TimeoutException requests:Timeout "
    "botocore.exceptions:ReadTimeoutError botocore.exceptions:ConnectTimeoutError"
)
_CONNECTIONS = (
    "openai:APIConnectionError anthropic:APIConnectionError httpx:RequestError httpx2:RequestError "
    "requests:ConnectionError aiohttp:ClientConnectionError botocore.exceptions:HTTPClientError"
)
_CUT_OFF = "openai:LengthFinishReasonError"
_REFUSED = "openai:ContentFilterFinishReasonError langchain_openai.chat_models.base:OpenAIRefusalError"
_UNPARSED = "langchain_core.exceptions:OutputParserException"


def classify_failure(
    error: BaseException, *, where: str, timeout: float, secrets: Sequence[str], prompt: str
) -> CallFailure:
    """Classify an exception of a client library.

    It uses what such exceptions have in common (``status_code``, ``response.headers``), and the classes of libraries
    that are imported.

    Args:
        error: the exception.
        where: the server or the model, for messages.
        timeout: the request's timeout in seconds.
        secrets: masked in the server's message.
        prompt: the text that was sent. Messages quote nothing of it.
    """
    # openai 2 wraps what a hook of its HTTP client raises.
    if isinstance(error.__cause__, StatusError):
        error = error.__cause__
    if isinstance(error, CallFailure):
        return error
    if isinstance(error, JudgeError):
        return CallFailure(error)
    response = getattr(error, "response", None)
    # Google's libraries name the HTTP status "code".
    for holder, name in ((error, "status_code"), (response, "status_code"), (error, "code")):
        status = getattr(holder, name, None)
        if isinstance(status, int) and 300 <= status < 600:
            headers = getattr(error, "headers", None) or getattr(response, "headers", None)
            failure = _from_status(_error_object(error), status, where, secrets, prompt)
            if failure.retry and isinstance(headers, Mapping):
                failure.retry_after = _retry_after(headers)
            return failure
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) and cause not in causes and len(causes) < 20:
        causes.append(cause)
    if _are_any(causes, _CUT_OFF):
        return CallFailure(JudgeTruncatedError("the answer was cut off at the limit of tokens"))
    if _are_any(causes, _REFUSED):
        return CallFailure(JudgeRefusedError("the model or its content filter refused to answer"))
    # A certificate error is also an SSLError, and each SSLError is also an OSError. A retry would meet the same one.
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            message = (
                f"the certificate of {where} is not trusted ({cause.verify_message}): pass ca_bundle, set "
                "SSL_CERT_FILE, or pass an http_client"
            )
            return CallFailure(JudgeRejectedError(message), broken=True)
    problem = None
    if isinstance(error, TimeoutError) or _are_any(causes, _TIMEOUTS):
        problem = f"no answer from {where} within {timeout:g} s"
    elif any(isinstance(cause, socket.gaierror) for cause in causes):
        problem = f"the host of {where} is not known"
    elif any(isinstance(cause, ssl.SSLError) for cause in causes):
        problem = f"no TLS connection to {where}"
    # Client libraries have connection errors of their own, which do not derive from Python's.
    elif _are_any(causes, _CONNECTIONS) or any(isinstance(cause, ConnectionError) for cause in causes):
        problem = f"no connection to {where}, or it broke"
    if problem:
        return CallFailure(JudgeUnavailableError(problem), retry=True, broken=True)
    kind = type(error).__name__
    # The messages of these exceptions quote the answer, so only their names are shown.
    if isinstance(error, ValidationError) or _are_any(causes, _UNPARSED):
        return CallFailure(JudgeAnswerError(f"the answer does not fit the schema ({kind})"))
    said = clean_message(str(error), secrets, prompt, longest=200)
    unexpected = JudgeUnavailableError(f"{kind}: {said}" if said else kind)
    return CallFailure(unexpected, text=said, unsupported=isinstance(error, NotImplementedError))


def _are_any(errors: Iterable[BaseException], classes: str) -> bool:
    """Return True if an exception has one of some classes, such as ``"openai:APITimeoutError httpx:RequestError"``."""
    places = [name.partition(":") for name in classes.split()]
    found = [getattr(sys.modules.get(module), name, None) for module, _, name in places]
    return any(isinstance(error, tuple(kind for kind in found if isinstance(kind, type))) for error in errors)


def _from_status(body: Mapping[str, Any], status: int, where: str, secrets: Sequence[str], prompt: str) -> CallFailure:
    message = _message(body)
    about = f"{clean_message(message, secrets)} {body.get('code') or ''} {body.get('type') or ''}"
    kind: type[JudgeError] = JudgeRejectedError
    retry = broken = False
    if status < 400:
        # Redirects are not followed: the other host would receive the key and the prompt.
        what, message, broken = f"{where} redirects elsewhere: set base_url to the final URL", "", True
    # Other errors about the request name the length only in their text.
    elif status == 413 or (status in (400, 422) and _TOO_LONG.search(about)):
        kind, what = JudgeTooLargeError, "the question is too large"
    elif status in (400, 403) and _FILTERED.search(about):
        kind, what = JudgeRefusedError, "the content filter refused the question"
    # A quota that is used up does not come back in seconds, as a rate limit does.
    elif status == 429 and _NO_QUOTA.search(about):
        kind, what, broken = JudgeRateLimitedError, "the quota is used up", True
    elif status == 429:
        kind, what, retry = JudgeRateLimitedError, "too many requests", True
    elif status >= 500 or status in (408, 409, 425):
        # A server that has not implemented something (501) will not have it a moment later.
        kind, what, retry, broken = JudgeUnavailableError, "the server failed", status != 501, True
    else:
        what, broken = _WHAT.get(status, "the request was not accepted"), status in _WHAT
        what += f" at {where}" if status == 404 else ""
    said = clean_message(message, secrets, prompt)
    error = kind(f"HTTP {status}: {what}: {said}" if said else f"HTTP {status}: {what}", status=status)
    parameter = str(body.get("param") or "")
    return CallFailure(error, retry=retry, broken=broken, status=status, parameter=parameter, text=said)


def _error_object(error: BaseException) -> Mapping[str, Any]:
    """Return the error object of a response, in OpenAI's form or a similar one."""
    body = getattr(error, "body", None)
    if isinstance(body, str | bytes):
        # A deeply nested body must not end in an untyped error.
        with suppress(ValueError, RecursionError):
            body = json.loads(body)
    if isinstance(body, Mapping):
        body = body.get("error", body)
    return body if isinstance(body, Mapping) else {"message": str(error) if body is None else str(body)}


def _message(body: Mapping[str, Any]) -> str:
    found = next((found for name in ("message", "detail", "error", "msg") if (found := body.get(name))), dict(body))
    if isinstance(found, str):
        return found
    try:
        return json.dumps(found, default=str) if found else ""
    except (ValueError, RecursionError):  # nested too deeply, or a cycle
        return "(unreadable)"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait; None if it does not say. A date, which is rare, is ignored."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        with suppress(ValueError):
            seconds = float(headers.get(name) or "") * unit
            return seconds if 0 <= seconds < float("inf") else None
    return None


# --------------------------------------------------------------------------- what a server refuses for good

# Words for the answer's format, for example "response_format", "json schema" or "grammar".
_FORMAT = re.compile(
    r"response_?format|json.?schema|json.?object|json.?mode|structured.?output|guided|grammar|tool_?choice|\btools?\b",
    re.IGNORECASE,
)
# "System role not supported", "'messages[0].role' does not support 'system' with this model", "Conversation roles must
# alternate user/assistant"
_NO_SYSTEM = re.compile(
    r"\bsystem\b.{0,80}\b(?:un)?support|\b(?:un)?support.{0,80}\bsystem\b|roles must alternate",
    re.IGNORECASE | re.DOTALL,
)
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class Capabilities:
    """Remembers which parameters a server refuses and which mode it supports, so that each refusal costs one request.

    Args:
        modes: the modes, best first.

    Attributes:
        modes: the modes that did not fail, best first.
        takes_system: False if the model's prompt template has no system role.
    """

    def __init__(self, modes: tuple[Mode, ...]) -> None:
        self.modes = modes
        self.takes_system = True
        self._lock = ForkSafeLock()
        self._refused: dict[str, str | None] = {}

    @property
    def refused(self) -> list[str]:
        """The parameters that the server refused, sorted."""
        return sorted(dict(self._refused))

    def parameters(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters without the refused ones, under the names that the server accepts."""
        names = {name: self._refused.get(name, name) for name in wanted}
        return {name: wanted[asked] for asked, name in names.items() if name is not None}

    def learn_from(self, failure: CallFailure, mode: Mode, parameters: Mapping[str, Any]) -> bool:
        """Learn from a refused request.

        Args:
            failure: how it failed.
            mode: the mode of the request.
            parameters: its parameters.

        Returns:
            True if the request should be repeated without what was refused.
        """
        if failure.status in (400, 422) and (sent := _named_parameter(failure, parameters)):
            with self._lock:
                # Left out from now on, or sent under its other name if it has one.
                asked = next((asked for asked, name in self._refused.items() if name == sent), sent)
                self._refused[asked] = _OTHER_NAME.get(sent) if asked == sent else None
            return True
        if self.takes_system and failure.status in (400, 422) and _NO_SYSTEM.search(failure.text):
            self.takes_system = False
            return True
        # Some servers answer a refused format with a status that usually means something else.
        is_about_format = failure.status in (400, 404, 422, 500, 501) and _FORMAT.search(
            f"{failure.parameter} {failure.text}"
        )
        if mode == self.modes[-1] or not (failure.unsupported or is_about_format):
            return False
        self.lower(mode)
        return True

    def lower(self, mode: Mode) -> None:
        """Never use a mode again that the server does not support, unless it is the last one."""
        with self._lock:
            if mode != self.modes[-1]:
                self.modes = tuple(other for other in self.modes if other != mode)


def _named_parameter(failure: CallFailure, parameters: Mapping[str, Any]) -> str | None:
    """Return the request's parameter that a refusal names.

    Quotations of the prompt are not part of its text: a judged text must not change how the judge is asked.
    """
    named = failure.parameter.removeprefix("body.").partition(".")[0]
    if named in parameters or _FORMAT.search(named):
        return named if named in parameters else None
    # The longest name first: "max_tokens" is a part of other names.
    for name in sorted(parameters, key=len, reverse=True):
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", failure.text):
            return name
    return None
