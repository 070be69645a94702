"""Where a Phoenix may be, and whether one is there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

__all__ = ["DEFAULT_PLACE", "is_phoenix", "phoenix_places", "shown_url"]

DEFAULT_PLACE = "http://localhost:6006"

_VARIABLES = (
    "PHOENIX_ENDPOINT",
    "PHOENIX_COLLECTOR_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
)
_GRPC_PORT = 4317
_VERSION_PATH = "/arize_phoenix_version"
_VERSION = re.compile(rb"\d+\.\d+\.\d+\S*\s*")


def phoenix_places(
    setting: str | None, provider: object = None, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Return base URLs where spans go, most specific first; a Phoenix would have its REST API there.

    Args:
        setting: the user's own setting; then it alone counts.
        provider: the tracer provider; read if it is one of ``phoenix.otel``.
        environment: the environment variables; those of the process by default.
    """
    environment = os.environ if environment is None else environment
    given = [setting] if setting else [environment.get(name, "").strip() for name in _VARIABLES]
    if not setting:
        given += _endpoints(provider)
    port = environment.get("PHOENIX_PORT", "").strip()
    bases = (_base_url(address, port if port.isdecimal() else "6006") for address in given if address)
    return list(dict.fromkeys(base for base in bases if base is not None))


def is_phoenix(url: str, timeout: float = 3.0) -> bool | None:
    """Ask a server whether it is a Phoenix; None if nobody answers.

    Neither a key nor a header goes with the question: the server may be anybody's. Standard library alone, because
    most processes that come here have no Phoenix and need no HTTP client for it.
    """
    try:
        with urlopen(url + _VERSION_PATH, timeout=timeout) as response:  # noqa: S310 - http or https, see _base_url
            # Phoenix answers other paths with its start page: what counts is that this is a version and nothing else.
            return _VERSION.fullmatch(response.read(64)) is not None
    except HTTPError as error:
        error.close()
        return None if error.code >= 500 else False
    except (OSError, HTTPException, ValueError):
        return None


def shown_url(url: str) -> str:
    """Return a URL as it may stand in a log: without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _base_url(address: str, port: str) -> str | None:
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
        netloc = parts.netloc
        if parts.port == _GRPC_PORT:  # REST is on the other port
            netloc = f"{netloc.rpartition(':')[0]}:{port}"
    except ValueError:
        return None
    path = parts.path.rstrip("/").removesuffix("/v1/traces").rstrip("/")
    return urlunsplit((parts.scheme, netloc, path, "", ""))


def _endpoints(provider: object) -> Iterator[str]:
    """Yield where a provider of ``phoenix.otel.register`` sends its spans, which it keeps to itself."""
    if not type(provider).__module__.startswith("phoenix.otel"):
        return
    processors: Any = getattr(getattr(provider, "_active_span_processor", None), "_span_processors", ())
    for processor in processors:
        endpoint = getattr(getattr(processor, "span_exporter", None), "_endpoint", None)
        if isinstance(endpoint, str):
            yield endpoint
