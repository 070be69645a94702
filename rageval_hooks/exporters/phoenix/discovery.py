"""Where a Phoenix may be, and whether one is there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

from rageval_hooks.runtime.tracers import sdk_provider

__all__ = ["DEFAULT_PLACE", "is_phoenix", "phoenix_places", "project_of"]

DEFAULT_PLACE = "http://localhost:6006"

_VARIABLES = (
    "PHOENIX_ENDPOINT",
    "PHOENIX_COLLECTOR_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
)
_PROJECT = "openinference.project.name"
_GRPC_PORT = 4317
_VERSION_PATH = "/arize_phoenix_version"
_VERSION = re.compile(rb"\d{1,9}\.\d{1,9}\.\d{1,9}\S{0,64}\s{0,64}")  # for example b"20.26.1"

# How the SDK, phoenix.otel, Logfire and Langfuse nest processors and exporters.
_NESTED = ("span_exporter", "_exporter", "exporter", "wrapped_exporter", "processor", "_batch_processor")
_DEEPEST = 6


def phoenix_places(
    setting: str | None, provider: object = None, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Return base URLs where spans go, most specific first; a Phoenix would have its REST API there.

    Args:
        setting: the user's own setting; then it alone counts.
        provider: the tracer provider; the endpoints of its exporters are read.
        environment: the environment variables; those of the process by default.
    """
    environment = os.environ if environment is None else environment
    given = [setting] if setting else [environment.get(name, "").strip() for name in _VARIABLES]
    if not setting:
        given += _endpoints(provider)
    port = environment.get("PHOENIX_PORT", "").strip()
    bases = (_base_url(address, port if port.isdecimal() else "6006") for address in given if address)
    return list(dict.fromkeys(base for base in bases if base is not None))


def project_of(provider: object) -> str:
    """Return the name of the project that Phoenix puts the provider's spans in."""
    resource = getattr(sdk_provider(provider), "resource", None)
    name = getattr(resource, "attributes", {}).get(_PROJECT)
    if not name:
        pairs = (part.split("=", 1) for part in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
        name = next((pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].strip() == _PROJECT), None)
    return str(name or "default")


def is_phoenix(url: str, timeout: float = 3.0) -> bool | None:
    """Ask a server whether it is a Phoenix; None if there is no answer.

    The request carries neither a key nor a header: the server may be anybody's. It uses the standard library, because
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
    """Yield where the exporters of a provider send spans. The SDK has no public way to ask for it."""
    active = getattr(sdk_provider(provider), "_active_span_processor", None)
    for processor in getattr(active, "_span_processors", ()):
        endpoint = _endpoint_in(processor)
        if endpoint is not None:
            yield endpoint


def _endpoint_in(thing: object, depth: int = 0) -> str | None:
    endpoint = getattr(thing, "_endpoint", None)
    if isinstance(endpoint, str):
        return endpoint
    if depth >= _DEEPEST:
        return None
    inner = (getattr(thing, name, None) for name in _NESTED)
    found = (_endpoint_in(part, depth + 1) for part in inner if part is not None)
    return next((endpoint for endpoint in found if endpoint is not None), None)
