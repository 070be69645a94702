"""A Phoenix server's REST API, as far as annotations need it.

``httpx`` and not the package ``arize-phoenix-client``: in an environment that has the server's package too, importing
the client imports the server (8 seconds and 350 MiB, measured with arize-phoenix 20.26), which no application should
have to bear for two POST requests. The key and the headers come from the same variables.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from opentelemetry import context as otel_context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

from rageval_hooks.errors import ConfigurationError, ExportError, MissingDependencyError
from rageval_hooks.exporters.phoenix.annotations import Route
from rageval_hooks.exporters.phoenix.discovery import shown_url
from rageval_hooks.runtime.suppression import is_suppressed, suppress

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "AbsentError",
    "PhoenixServer",
    "RefusedError",
    "SpansMissingError",
    "UnreachableError",
    "quiet_context",
    "require_httpx",
]

_logger = logging.getLogger(__name__)

_SPAN_ID = re.compile(r"\b[0-9a-f]{16}\b")
_MOST_READ = 1 << 20
_BUSY = frozenset({408, 425, 429})
_FAULTY_DATA = frozenset({400, 413, 422})


class AbsentError(ExportError):
    """There is no Phoenix.

    Attributes:
        ask_again: seconds after which it may be worth asking again.
    """

    def __init__(self, ask_again: float = math.inf) -> None:
        super().__init__("there is no Phoenix")
        self.ask_again = ask_again


class SpansMissingError(ExportError):
    """Spans have not arrived yet; nothing of the request was taken.

    Attributes:
        span_ids: which.
    """

    def __init__(self, span_ids: frozenset[str]) -> None:
        super().__init__(f"{len(span_ids)} spans are missing")
        self.span_ids = span_ids


class RefusedError(ExportError):
    """The server does not take what was sent, and never will; nothing of the request was taken."""


class UnreachableError(ExportError):
    """Nobody answers, the server is in trouble, or it does not let us in: another time perhaps."""


class PhoenixServer:
    """Posts annotations to one server.

    Args:
        url: its base URL.
        api_key: for the header ``Authorization``; ``PHOENIX_API_KEY`` by default.
        timeout: seconds to connect, and seconds between two parts of an answer.

    Raises:
        MissingDependencyError: httpx is not installed.
        ConfigurationError: the key or a header cannot be sent.
    """

    def __init__(self, url: str, api_key: str | None = None, timeout: float = 15.0) -> None:
        self.url = url
        headers = _headers(api_key, os.environ)
        try:
            self._http = require_httpx().Client(base_url=url, headers=headers, timeout=timeout)
        except UnicodeEncodeError:
            raise ConfigurationError("PHOENIX_API_KEY or PHOENIX_CLIENT_HEADERS has letters beyond ASCII") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_url(self.url)!r})"

    def post(self, route: Route, annotations: Sequence[dict[str, Any]], *, sync: bool) -> None:
        """Send annotations. The server keeps one per span, name and identifier: sent again, they replace themselves.

        Args:
            route: which kind they are.
            annotations: as the API has them.
            sync: True to have them stored before the server answers, which needs their spans to be there. False to
                leave them to the server's queue: it looks for a missing span every 10 seconds, 60 times, and drops
                what does not fit without a word.

        Raises:
            SpansMissingError: spans have not arrived yet (only with ``sync``).
            RefusedError: the server rejects what was sent.
            UnreachableError: the server cannot be reached, or does not work, or wants another key.
        """
        status, said = self._send(f"v1/{route}", annotations, {"sync": "true"} if sync else {})
        if status == 200:
            return
        wanted = {annotation["span_id"] for annotation in annotations}
        if status == 404 and (missing := wanted.intersection(_SPAN_ID.findall(said))):
            raise SpansMissingError(frozenset(missing))
        if status in (401, 403):
            raise UnreachableError(f"answers {status}: set PHOENIX_API_KEY (or PHOENIX_CLIENT_HEADERS) to a valid key")
        if status in _FAULTY_DATA:
            said = " ".join(said.split())[:200]
            raise RefusedError(f"answers {status}{': ' * bool(said)}{said}")
        if status >= 500 or status in _BUSY:
            raise UnreachableError(f"answers {status}")
        raise UnreachableError(f"answers {status}: is the address that of a Phoenix?")

    def _send(self, path: str, annotations: Sequence[dict[str, Any]], params: dict[str, str]) -> tuple[int, str]:
        """Return the answer's status and text; no text if it is JSON, which may quote what was sent, or a page."""
        httpx = require_httpx()
        try:
            with self._http.stream("POST", path, json={"data": annotations}, params=params) as response:
                content = b""
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) >= _MOST_READ:
                        break
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Only what a connection says of itself: other messages may quote a header.
            why = f": {error}" if isinstance(error, httpx.ConnectError) else ""
            raise UnreachableError(f"cannot be reached ({type(error).__name__}{why})") from None
        except ValueError as error:
            raise RefusedError(f"cannot be sent ({type(error).__name__})") from None
        plain = response.headers.get("content-type", "").startswith("text/plain")
        return response.status_code, content.decode(errors="replace") if plain else ""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def require_httpx() -> ModuleType:
    """Return the module ``httpx``.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import httpx
    except ImportError as error:
        raise MissingDependencyError("httpx", "phoenix", "the exporter 'phoenix'") from error
    return httpx


def quiet_context() -> Context:
    """Return a context whose requests nobody sees: not other instrumentations, not the log of the HTTP client."""
    context = Context()
    context.run(_hush)
    return context


def _hush() -> None:
    suppress()
    current = otel_context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True)
    otel_context.attach(otel_context.set_value("suppress_instrumentation", True, current))  # older instrumentations
    logging.getLogger("httpx").addFilter(_own_requests)  # adds it once


class _OwnRequests(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING or not is_suppressed()


_own_requests = _OwnRequests()


def _headers(api_key: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the headers as Phoenix's own client has them: ``PHOENIX_CLIENT_HEADERS``, then ``PHOENIX_API_KEY``."""
    headers: dict[str, str] = {}
    for number, part in enumerate(environment.get("PHOENIX_CLIENT_HEADERS", "").split(","), 1):
        name, equals, value = part.partition("=")
        if equals and name.strip():
            headers[unquote(name).strip().lower()] = unquote(value).strip()
        elif part.strip():  # which may be a key: its place must do
            _logger.warning("rageval-hooks: PHOENIX_CLIENT_HEADERS: part %d is not of the form name=value", number)
    key = (api_key or environment.get("PHOENIX_API_KEY", "")).strip()
    if key and (api_key or "authorization" not in headers):
        headers["authorization"] = f"Bearer {key}"
    return headers
