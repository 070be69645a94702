"""The clock of this machine against the Date header of the servers: traces of two clocks cannot be read."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import ClassVar, Final
from urllib.parse import urlsplit

from rageval_hooks.cli.operations.doctor.base import Check, Finding, note, ok, problem, warning
from rageval_hooks.cli.operations.doctor.setup import Setup
from rageval_hooks.exporters.otlp_places import otlp_places
from rageval_hooks.exporters.phoenix import phoenix_places

__all__ = ["ClockCheck"]

_SECONDS: Final = 3.0
_WORTH_A_LINE: Final = 5.0
_WRONG: Final = 60.0
"""Seconds. Beyond a minute, signed requests are refused and late scores seem to precede their turns."""

_ADDRESSES: Final = (
    "OPENAI_BASE_URL",
    "MLFLOW_TRACKING_URI",
    "LANGFUSE_BASE_URL",
    "LANGFUSE_HOST",
    "LANGSMITH_ENDPOINT",
)

_OPENAI: Final = "https://api.openai.com"


class ClockCheck(Check):
    """Asks each server that the settings name for its time. The request carries no key."""

    name: ClassVar[str] = "clock"
    order: ClassVar[int] = 60

    def seconds(self, setup: Setup) -> float:
        """Return the time for all servers."""
        return (2 * _SECONDS) * (len(_origins(setup)) + 1)

    def run(self, setup: Setup) -> Iterator[Finding]:
        """Yield the difference to each server that answers."""
        answered = False
        for origin in _origins(setup):
            skew = _skew(origin)
            if skew is not None:
                answered = True
                yield _finding(origin, skew)
        if not answered:
            yield note("no server that the settings name says what time it is")


def _finding(origin: str, skew: float) -> Finding:
    if abs(skew) < _WORTH_A_LINE:
        return ok(f"the clock agrees with {origin}")
    direction = "behind" if skew > 0 else "ahead of"
    message = f"the clock is {abs(skew):.0f} s {direction} {origin}"
    advice = "synchronise the clock of this machine, for example with chrony or systemd-timesyncd"
    return problem(message, advice) if abs(skew) > _WRONG else warning(message, advice)


def _origins(setup: Setup) -> list[str]:
    """Return the servers as scheme and host, without user names."""
    endpoint = setup.settings.phoenix_endpoint
    urls = [os.environ.get(name, "") for name in _ADDRESSES]
    urls.append(str(setup.settings.judge_options.get("base_url", "")))
    if (setup.settings.judge or "").startswith("openai:") and not any(urls):
        urls.append(_OPENAI)
    urls += [place.url for place in otlp_places()]
    urls += phoenix_places(None if endpoint is None else endpoint.get_secret_value())
    return list(dict.fromkeys(filter(None, map(_origin, urls))))


def _origin(url: str) -> str:
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:  # for example a port that is no number
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}:{port}" if port else f"{parts.scheme}://{name}"


def _skew(origin: str) -> float | None:
    """Return by how many seconds a server is ahead of this machine; None if it does not say."""
    parts = urlsplit(origin)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_SECONDS)
    try:
        sent = time.time()
        connection.request("HEAD", "/")
        header = connection.getresponse().getheader("Date")
        # The header has whole seconds, and was written somewhere between sending and receiving.
        here = (sent + time.time()) / 2
        return parsedate_to_datetime(header).timestamp() - here + 0.5 if header else None
    except (OSError, HTTPException, ValueError, ssl.SSLError):
        return None
    finally:
        connection.close()
