"""HTTP as score APIs need it: bounded answers, no redirects, errors that say what to do, and no key in any message."""

from __future__ import annotations

import json
import re
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError
from urllib.request import urlopen

from rageval_hooks.errors import ConfigurationError, requires
from rageval_hooks.exporters.delivery.queue import PostError, RejectedError, UnavailableError
from rageval_hooks.runtime.urls import safe_url

if TYPE_CHECKING:
    from ssl import SSLContext
    from types import ModuleType

    import httpx

__all__ = ["HttpAnswer", "HttpApi", "HttpDestination", "asks_version", "basic_auth", "post_each", "require_httpx"]

_MOST_READ = 1 << 20
_LONGEST_REASON = 200
_BUSY = frozenset({408, 425, 429})
_FAULTY_DATA = frozenset({400, 409, 413, 415, 422})
_MOST_FAILURES = 2
"""Failures beyond the successes after which the rest of a batch is not tried: the server is down."""

Body = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class HttpAnswer:
    """The answer of a server.

    Attributes:
        status: the HTTP status.
        content: the first MiB of the body.
        content_type: for example ``application/json``.
        retry_after: seconds for which the server wants to be left alone; None if it does not say.
    """

    status: int
    content: bytes = b""
    content_type: str = ""
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """True if the request succeeded."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body if it is plain text; else empty, because JSON may quote what was sent, and pages say little."""
        return self.content.decode(errors="replace") if self.content_type.startswith("text/plain") else ""

    def json(self) -> Any:
        """Return the body as JSON; None if it is something else."""
        try:
            return json.loads(self.content)
        except ValueError:
            return None


class HttpApi:
    """A client for one server.

    Redirects are not followed: a key must not travel to another host, and a POST must not become a GET.

    Args:
        url: the base URL. A user name and password in it are sent as basic authentication, and shown nowhere.
        backend: the backend's name, such as ``"MLflow"``, for messages.
        credentials: the variables that hold the key, for messages: ``"MLFLOW_TRACKING_TOKEN"``.
        extra: the extra of this package that brings httpx.
        headers: sent with every request.
        verify: how certificates are checked; False to accept any.
        timeout: seconds to connect, and seconds between two parts of an answer.

    Raises:
        MissingDependencyError: httpx is not installed.
        ConfigurationError: a header cannot be sent.
    """

    def __init__(
        self,
        url: str,
        *,
        backend: str,
        credentials: str,
        extra: str,
        headers: Mapping[str, str] | None = None,
        verify: SSLContext | bool = True,
        timeout: float = 15.0,
    ) -> None:
        self.backend = backend
        self.shown_url = safe_url(url)
        self._httpx = require_httpx(extra)
        self._credentials = credentials
        self._timeout = timeout
        base = self._httpx.URL(url)
        login = {"authorization": basic_auth(base.username, base.password)} if base.userinfo else {}
        try:
            self._client: httpx.Client = self._httpx.Client(
                base_url=base.copy_with(userinfo=b""),  # httpx logs the URL of each request
                headers={**login, **(headers or {})},
                verify=verify,
                timeout=timeout,
                follow_redirects=False,
            )
        except UnicodeEncodeError:
            raise ConfigurationError(
                f"{credentials} has letters beyond ASCII: set a key as {backend} shows it"
            ) from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown_url!r})"

    def request(
        self, method: str, path: str, *, body: Any = None, params: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """Send a request and return the answer, whatever its status.

        Args:
            method: ``GET``, ``POST`` …
            path: below the base URL.
            body: sent as JSON.
            params: of the query.

        Raises:
            UnavailableError: there is no answer. The server may have received the request all the same.
            RejectedError: the body cannot be written as JSON.
        """
        httpx = self._httpx
        try:
            with self._client.stream(method, path, json=body, params=params) as response:
                # A server that sends without end must hold neither memory nor the thread.
                end = time.monotonic() + self._timeout
                content = b""
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) >= _MOST_READ or time.monotonic() > end:
                        break
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Only a connection error's own message: others may quote a header.
            why = f": {error}" if isinstance(error, httpx.ConnectError) else ""
            raise UnavailableError(f"cannot be reached ({type(error).__name__}{why})") from None
        except ValueError as error:
            raise RejectedError(f"cannot be sent ({type(error).__name__})") from None
        return HttpAnswer(
            status=response.status_code,
            content=content[:_MOST_READ],
            content_type=response.headers.get("content-type", ""),
            retry_after=_seconds(response.headers.get("retry-after")),
        )

    def refusal(self, answer: HttpAnswer) -> RejectedError | UnavailableError:
        """Return the error for an answer that is not a success."""
        status = answer.status
        if status in _FAULTY_DATA:
            reason = " ".join(answer.text.split())[:_LONGEST_REASON]
            return RejectedError(f"answers {status}: {reason}" if reason else f"answers {status}")
        # Anything else may be repaired, by waiting or by the user: the scores are kept for a while.
        if status in (401, 403):
            return UnavailableError(f"answers {status}: set {self._credentials} to a valid key")
        if status >= 500 or status in _BUSY:
            return UnavailableError(f"answers {status}", answer.retry_after)
        return UnavailableError(f"answers {status}: is this the address of {self.backend}?")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class HttpDestination:
    """A destination with one HTTP client; a subclass adds ``post``.

    Args:
        http: the client.
    """

    own_queue: ClassVar[bool] = False

    def __init__(self, http: HttpApi) -> None:
        self._http = http

    def __repr__(self) -> str:
        return f"{self._http.backend}({self._http.shown_url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def post_each(bodies: Sequence[Body], post: Callable[[Body], None], *, workers: int = 8) -> list[PostError | None]:
    """Post items with one request each, several at a time, and return the error of each.

    One by one, at 100 ms each, the ten scores of a turn would take a second. Once the server seems to be down, the
    remaining items get the last error without a request, each of which might wait for a timeout.

    Args:
        bodies: the items.
        post: sends one item, and raises a PostError if the server does not take it.
        workers: requests at a time.
    """
    errors: list[PostError | None] = [None] * len(bodies)
    waiting = deque(range(len(bodies)))
    failures: list[UnavailableError] = []
    faults: list[Exception] = []
    successes: list[int] = []

    def work() -> None:
        while not faults:
            try:
                number = waiting.popleft()
            except IndexError:
                return
            if failures and (failures[-1].retry_after or len(failures) > len(successes) + _MOST_FAILURES):
                errors[number] = failures[-1]
                continue
            try:
                post(bodies[number])
                successes.append(number)
            except PostError as error:
                errors[number] = error
                if isinstance(error, UnavailableError):
                    failures.append(error)
            except Exception as error:  # a fault of ours; raised below, on the queue's thread
                faults.append(error)

    helpers = []
    for _ in range(min(workers, len(bodies)) - 1):
        # With this thread's context, so that the requests are not traced.
        helper = threading.Thread(target=copy_context().run, args=(work,), name="rageval-post", daemon=True)
        try:
            helper.start()
        except RuntimeError:  # the interpreter is exiting: this thread does all of it
            break
        helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    if faults:
        raise faults[0]
    return errors


def asks_version(url: str, pattern: re.Pattern[bytes], *, locked: bool = False, timeout: float = 3.0) -> bool | None:
    """Ask a server for its version, and return whether the whole answer looks like one; None if there is no answer.

    The request carries neither a key nor a header: the server may be anybody's. It uses the standard library, because
    most processes that come here do not have the backend and need no HTTP client for it.

    Args:
        url: of the page that has the version; of HTTP.
        pattern: the version.
        locked: what it means that the server wants a login for the page.
        timeout: seconds.
    """
    try:
        with urlopen(url, timeout=timeout) as response:  # noqa: S310 - http or https, see the callers
            # Servers answer unknown paths with their start page, so the whole answer must be a version.
            return pattern.fullmatch(response.read(80).strip()) is not None
    except HTTPError as error:
        error.close()
        return True if locked and error.code in (401, 403) else None if error.code >= 500 else False
    except (OSError, HTTPException, ValueError):
        return None


def require_httpx(extra: str) -> ModuleType:
    """Return the module ``httpx``.

    Args:
        extra: the extra of this package that brings it; exporters have its name.

    Raises:
        MissingDependencyError: it is not installed.
    """
    with requires("httpx", extra, f"the exporter {extra!r}"):
        import httpx
    return httpx


def basic_auth(user: str, password: str) -> str:
    """Return the value of the header ``Authorization`` for a user name and a password."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def _seconds(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header: ``"120"`` or ``"Sun, 22 Nov 2026 16:00:00 GMT"``."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    # A date without a zone, "-0000", is meant as UTC.
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
