"""Where a Phoenix may be, and whether one is there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

from rageval_hooks.exporters.otlp_places import otlp_places
from rageval_hooks.runtime.tracing import sdk_provider

__all__ = ["DEFAULT_PLACE", "is_phoenix", "phoenix_places", "project_of"]

_DEFAULT_PORT = "6006"
DEFAULT_PLACE = f"http://localhost:{_DEFAULT_PORT}"

_VARIABLES = ("PHOENIX_ENDPOINT", "PHOENIX_COLLECTOR_ENDPOINT")
_PROJECT = "openinference.project.name"
_GRPC_PORT = 4317
_VERSION_PATH = "/arize_phoenix_version"
_VERSION = re.compile(rb"\d{1,9}\.\d{1,9}\.\d{1,9}\S{0,64}\s{0,64}")  # for example b"20.26.1"


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
    port = environment.get("PHOENIX_PORT", "").strip()
    if not port.isdecimal():
        port = _DEFAULT_PORT
    if setting:
        addresses = [setting]
    else:
        addresses = [environment.get(name, "").strip() for name in _VARIABLES]
        addresses += [place.url for place in otlp_places(provider, environment)]
    bases = [_base_url(address, port) for address in filter(None, addresses)]
    # Several variables often name the same server; a dictionary keeps the order.
    return list(dict.fromkeys(filter(None, bases)))


def project_of(provider: object) -> str:
    """Return the name of the project that Phoenix puts the provider's spans in."""
    resource = getattr(sdk_provider(provider), "resource", None)
    name = getattr(resource, "attributes", {}).get(_PROJECT)
    # A provider that is not the SDK's shows no resource; most of them read the variable too.
    return str(name or _resource_variable().get(_PROJECT) or "default")


def _resource_variable() -> dict[str, str]:
    """Return the resource attributes of the environment, for example ``service.name=shop,team=search``."""
    attributes: dict[str, str] = {}
    for part in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, _, value = part.partition("=")
        attributes.setdefault(name.strip(), value.strip())
    return attributes


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
    """Return the base URL of an address; None if it is not one of HTTP.

    Example:
        ``"phoenix:4317"`` becomes ``"http://phoenix:6006"``, ``"https://host/v1/traces"`` becomes ``"https://host"``.
    """
    # gRPC exporters have addresses without a scheme.
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        parts_port = parts.port
    except ValueError:  # for example a port that is not a number
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    netloc = parts.netloc
    if parts_port == _GRPC_PORT:  # REST is on the other port
        netloc = f"{netloc.rpartition(':')[0]}:{port}"
    path = parts.path.rstrip("/").removesuffix("/v1/traces").rstrip("/")
    return urlunsplit((parts.scheme, netloc, path, "", ""))
