"""A backend's score API over HTTP: errors that say what to do, no redirects, and no key in any message."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError
from urllib.request import urlopen

from rageval_hooks.errors import requires
from rageval_hooks.exporters.delivery.queue import Item, PostError, RejectedError, UnavailableError
from rageval_hooks.runtime.pool import DaemonPool
from rageval_hooks.runtime.urls import safe_url

if TYPE_CHECKING:
    from ssl import SSLContext
    from types import ModuleType

    import httpx


_LONGEST_REASON = 200
_BUSY = frozenset({408, 425, 429})
_FAULTY_DATA = frozenset({400, 409, 413, 415, 422})
_MOST_FAILURES = 2
"""Failures beyond the successes after which the rest of a batch is not tried: the server is down."""

Body = Mapping[str, Any]


class ScoreServer:
    """A server with a score API. A subclass says how one score is posted, in ``post_one``, or many, in ``post``.

    Redirects are not followed: a key must not travel to another host, and a POST must not become a GET.

    Args:
        url: the base URL. A user name and password in it are sent as basic authentication, and shown nowhere.
        headers: sent with every request.
        verify: how certificates are checked; False to accept any.

    Attributes:
        backend: the backend's name, such as ``"MLflow"``, for messages.
        credentials: the variables that hold the key, for messages: ``"MLFLOW_TRACKING_TOKEN"``.
        own_queue: True if the server itself keeps scores whose spans have not arrived.
        timeout: seconds to connect, and seconds between two parts of an answer.
        workers: requests at a time, where each takes one score. One by one, at 100 ms each, the ten scores of a turn
            would take a second.

    Raises:
        MissingDependencyError: httpx is not installed.
    """

    backend: ClassVar[str]
    credentials: ClassVar[str]
    own_queue: ClassVar[bool] = False
    timeout: ClassVar[float] = 15.0
    workers: ClassVar[int] = 8

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, *, verify: SSLContext | bool = True) -> None:
        self._httpx = require_httpx(self.backend.lower())
        self._shown_url = safe_url(url)
        self._unsure: set[str] = set()
        base = self._httpx.URL(url)
        login = {"authorization": basic_auth(base.username, base.password)} if base.userinfo else {}
        self._client: httpx.Client = self._httpx.Client(
            base_url=base.copy_with(userinfo=b""),  # httpx logs the URL of each request
            headers={**login, **(headers or {})},
            verify=verify,
            timeout=self.timeout,
            follow_redirects=False,
        )

    def __repr__(self) -> str:
        return f"{self.backend}({self._shown_url!r})"

    def post(self, route: str, bodies: Sequence[Body], *, confirmed: bool) -> Sequence[PostError | None] | None:
        """Send scores of one route.

        Args:
            route: the kind of request.
            bodies: the scores.
            confirmed: True to learn whether they were stored, which needs their spans to be there. False, only with
                ``own_queue``: leave them to the server.

        Returns:
            None if all are stored; else the error of each, or None.

        Raises:
            TargetsMissingError: spans have not arrived yet.
            RejectedError: the server does not accept the request as a whole: the queue sends its halves.
            UnavailableError: the server cannot be reached, is overloaded, or wants another key.
        """
        pool, tally = DaemonPool(self.workers, "rageval-post"), Counter[str]()
        try:
            # In a copy of this thread's context, so that the requests are not traced.
            return [future.result() for future in [pool.submit(self._outcome, body, tally) for body in bodies]]
        finally:
            pool.shutdown()

    def _outcome(self, body: Body, tally: Counter[str]) -> PostError | None:
        """Send one score and return the error.

        Once the server seems to be down, the rest of the batch is not tried: each request might wait for a timeout.
        """
        if tally["refused"] or tally["failed"] > tally["taken"] + _MOST_FAILURES:
            return UnavailableError("cannot be reached")
        try:
            self.post_one(body)
        except UnavailableError as error:
            tally["failed"] += 1
            tally["refused"] += error.retry_after > 0  # it wants to be left alone
            return error
        except PostError as error:
            return error
        except Exception as error:  # a fault of ours, or an answer of an unknown form
            return RejectedError(f"cannot be posted ({type(error).__name__})")
        tally["taken"] += 1
        return None

    def post_one(self, body: Body) -> None:
        """Send one score.

        Raises:
            PostError: the server does not take it.
        """
        raise NotImplementedError

    def post_once(self, path: str, body: Any, own_id: str, stored: Callable[[], bool], *, look_first: bool) -> None:
        """Post to a server that stores what it gets twice as two: what may be a repeat looks first.

        Args:
            path: below the base URL.
            body: sent as JSON.
            own_id: tells the score from others.
            stored: returns True if the server has the score.
            look_first: True if another process may have posted it.
        """
        if not ((look_first or own_id in self._unsure) and stored()):
            self._unsure.add(own_id)
            answer = self.request("POST", path, json=body)
            # Without an answer, or with a server error, the score may be stored or not.
            if answer.status_code < 500 and answer.status_code != 408:
                self._unsure.discard(own_id)
            if not answer.is_success:
                raise self.refusal(answer)

    def has(self, item: Item) -> bool | None:
        """Return True if the server shows a score that was posted; None if it cannot be asked.

        Raises:
            UnavailableError: the server does not answer.
        """
        return None

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request and return the answer, whatever its status.

        Args:
            method: ``GET``, ``POST`` …
            path: below the base URL.
            options: those of ``httpx.Client.request``, such as ``json``.

        Raises:
            UnavailableError: there is no answer. The server may have received the request all the same.
            RejectedError: the body cannot be written as JSON.
        """
        httpx = self._httpx
        try:
            return self._client.request(method, path, **options)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Only a connection error's own message: others may quote a header.
            why = f": {error}" if isinstance(error, httpx.ConnectError) else ""
            raise UnavailableError(f"cannot be reached ({type(error).__name__}{why})") from None
        except ValueError as error:
            raise RejectedError(f"cannot be sent ({type(error).__name__})") from None

    def refusal(self, answer: httpx.Response) -> RejectedError | UnavailableError:
        """Return the error for an answer that is not a success."""
        status = answer.status_code
        if status in _FAULTY_DATA:
            # Only plain text: JSON may quote what was sent, and pages say little.
            is_plain = answer.headers.get("content-type", "").startswith("text/plain")
            reason = " ".join(answer.text.split())[:_LONGEST_REASON] if is_plain else ""
            return RejectedError(f"answers {status}: {reason}" if reason else f"answers {status}")
        # Anything else may be repaired, by waiting or by the user: the scores are kept for a while.
        if status in (401, 403):
            return UnavailableError(f"answers {status}: set {self.credentials} to a valid key")
        if status >= 500 or status in _BUSY:
            # Seconds, such as "120"; a date is ignored.
            wanted = answer.headers.get("retry-after", "")
            return UnavailableError(f"answers {status}", float(wanted) if wanted.isdecimal() else 0.0)
        return UnavailableError(f"answers {status}: is this the address of {self.backend}?")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def asks_version(url: str, *, locked: bool = False) -> bool | None:
    """Ask a server for its version, and return whether the whole answer looks like one; None if there is no answer.

    The request carries neither a key nor a header: the server may be anybody's. It uses the standard library, because
    most processes that come here do not have the backend and need no HTTP client for it.

    Args:
        url: of the page that has the version; of HTTP.
        locked: what it means that the server wants a login for the page.
    """
    try:
        with urlopen(url, timeout=3.0) as response:  # noqa: S310 - http or https, see the callers
            # For example b"20.26.1". Servers answer unknown paths with their start page.
            return re.fullmatch(rb"\d{1,9}\.\d{1,9}\.\d{1,9}\S{0,64}", response.read(80).strip()) is not None
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
