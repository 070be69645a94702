"""A Phoenix server's REST API, as far as annotations need it.

``httpx`` and not the package ``arize-phoenix-client``: in an environment that has the server's package too, importing
the client imports the server (8 seconds and 350 MiB, measured with arize-phoenix 20.26), which no application should
have to bear for two POST requests. The key and the headers come from the same variables.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError, MissingDependencyError
from rageval_hooks.exporters.delivery import RejectedError, TargetsMissingError, UnavailableError
from rageval_hooks.exporters.phoenix.configs import AnnotationConfigs
from rageval_hooks.runtime.urls import safe_url

if TYPE_CHECKING:
    from types import ModuleType

    import httpx

__all__ = ["PhoenixServer", "require_httpx"]

_logger = logging.getLogger(__name__)

# Ids in the text of an error: 16 hex digits of a span, 32 of a trace.
_ID = re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{16})\b")
_MOST_READ = 1 << 20
_LONGEST_REASON = 200
_BUSY = frozenset({408, 425, 429})
_FAULTY_DATA = frozenset({400, 413, 422})


class PhoenixServer:
    """Posts annotations to one server.

    Args:
        url: its base URL.
        api_key: for the header ``Authorization``; ``PHOENIX_API_KEY`` by default.
        project: the project that the spans are in, for its annotation configs.
        configs: the configs of the scores; None to register none.
        timeout: seconds to connect, and seconds between two parts of an answer.

    Raises:
        MissingDependencyError: httpx is not installed.
        ConfigurationError: the key or a header cannot be sent.
    """

    def __init__(
        self,
        url: str,
        api_key: SecretStr | None = None,
        *,
        project: str = "default",
        configs: AnnotationConfigs | None = None,
        timeout: float = 15.0,
    ) -> None:
        self._shown_url = safe_url(url)
        self._project = project
        self._configs = configs
        headers = _headers(None if api_key is None else api_key.get_secret_value(), os.environ)
        try:
            self._http: httpx.Client = require_httpx().Client(base_url=url, headers=headers, timeout=timeout)
        except UnicodeEncodeError:
            raise ConfigurationError(
                "PHOENIX_API_KEY or PHOENIX_CLIENT_HEADERS has letters beyond ASCII: set a key as Phoenix shows it"
            ) from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown_url!r})"

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool) -> None:
        """Send annotations. The server keeps one per target, name and identifier: a repeat replaces the first.

        Args:
            route: ``span_annotations``, ``trace_annotations`` or ``document_annotations``.
            bodies: as the API expects them.
            confirmed: True to have them stored before the server answers, which needs their spans to be there. False
                to leave them to the server's queue: it looks for a missing span every 10 seconds, 60 times, and drops
                without notice what does not fit.

        Raises:
            TargetsMissingError: spans have not arrived yet (only with ``confirmed``).
            RejectedError: the server does not accept what was sent.
            UnavailableError: the server cannot be reached, does not work, or wants another key.
        """
        status, text, retry_after = self._send(f"v1/{route}", bodies, {"sync": "true"} if confirmed else {})
        if status == 200:
            self._register_configs(str(body["name"]) for body in bodies)
            return
        targets = {str(body.get("trace_id") or body.get("span_id")) for body in bodies}
        missing = targets.intersection(_ID.findall(text))
        if status == 404 and missing:
            raise TargetsMissingError(frozenset(missing))
        raise _refusal(status, text, retry_after)

    def _send(
        self, path: str, bodies: Sequence[Mapping[str, Any]], params: dict[str, str]
    ) -> tuple[int, str, float | None]:
        """Return the answer's status, its text and the pause that it asks for.

        There is no text if the answer is JSON, which may quote what was sent, or a page.
        """
        httpx = require_httpx()
        try:
            with self._http.stream("POST", path, json={"data": list(bodies)}, params=params) as response:
                content = _beginning(response.iter_bytes())
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            # Only a connection error's own message: others may quote a header.
            why = f": {error}" if isinstance(error, httpx.ConnectError) else ""
            raise UnavailableError(f"cannot be reached ({type(error).__name__}{why})") from None
        except ValueError as error:
            raise RejectedError(f"cannot be sent ({type(error).__name__})") from None
        plain = response.headers.get("content-type", "").startswith("text/plain")
        text = content.decode(errors="replace") if plain else ""
        return response.status_code, text, _seconds(response.headers.get("retry-after"))

    def _register_configs(self, names: Iterable[str]) -> None:
        """Register the configs of new scores. They only add colours, so a failure is not worth a warning."""
        # Only after a post succeeded, so that the project exists.
        if self._configs is None:
            return
        for config in self._configs.take(names):
            path = f"v1/projects/{quote(self._project, safe='')}/annotation_configs/{quote(config['name'], safe='')}"
            try:
                self._http.post("v1/annotation_configs", json=config)  # 409 if the name exists: the user's own stays
                self._http.put(path)
            except Exception as error:
                _logger.debug("rageval-hooks: no annotation config for %s: %s", config["name"], type(error).__name__)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _refusal(status: int, text: str, retry_after: float | None) -> RejectedError | UnavailableError:
    """Return the error for a status other than 200."""
    if status in _FAULTY_DATA:
        reason = " ".join(text.split())[:_LONGEST_REASON]
        return RejectedError(f"answers {status}: {reason}" if reason else f"answers {status}")
    # Anything else may be repaired, by waiting or by the user: the scores are kept for a while.
    if status in (401, 403):
        return UnavailableError(f"answers {status}: set PHOENIX_API_KEY (or PHOENIX_CLIENT_HEADERS) to a valid key")
    if status >= 500 or status in _BUSY:
        return UnavailableError(f"answers {status}", retry_after)
    return UnavailableError(f"answers {status}: is this the address of a Phoenix?")


def _seconds(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header; None if it has none or is a date."""
    try:
        return max(0.0, float(header or ""))
    except ValueError:
        return None


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


def _beginning(chunks: Iterable[bytes]) -> bytes:
    """Return the first part of an answer: a server that sends without end must not fill the memory."""
    content = b""
    for chunk in chunks:
        content += chunk
        if len(content) >= _MOST_READ:
            break
    return content


def _headers(api_key: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the headers as Phoenix's own client has them: ``PHOENIX_CLIENT_HEADERS``, then ``PHOENIX_API_KEY``."""
    headers = _header_variable(environment.get("PHOENIX_CLIENT_HEADERS", ""))
    if api_key:
        headers["authorization"] = f"Bearer {api_key.strip()}"
    elif key := environment.get("PHOENIX_API_KEY", "").strip():
        headers.setdefault("authorization", f"Bearer {key}")
    return headers


def _header_variable(text: str) -> dict[str, str]:
    """Return headers by name, for example of ``"api_key=abc,X-Team=search%20team"``."""
    headers: dict[str, str] = {}
    for number, part in enumerate(text.split(","), 1):
        name, equals, value = part.partition("=")
        if equals and name.strip():
            headers[unquote(name).strip().lower()] = unquote(value).strip()
        elif part.strip():  # it may be a key, so the message gives its place only
            _logger.warning("rageval-hooks: PHOENIX_CLIENT_HEADERS: part %d is not of the form name=value", number)
    return headers
