"""Where an application sends its spans: the endpoints of OTLP's variables and of the provider's exporters.

This module holds every private name of exporters of spans and of the processors around them. Tested with
opentelemetry-exporter-otlp 1.45 and Langfuse 5. Without the names, only endpoints of variables are found.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from opentelemetry.sdk.resources import OTELResourceDetector
from opentelemetry.sdk.trace import TracerProvider

from rageval_hooks.runtime.tracing import processors_of, sdk_provider

_logger = logging.getLogger(__name__)

# How the SDK, phoenix.otel, Logfire and Langfuse nest processors and exporters.
_NESTED = ("span_exporter", "_exporter", "exporter", "wrapped_exporter", "processor", "_batch_processor")
_MAX_SEARCHED = 100


@dataclass(frozen=True, kw_only=True)
class OtlpPlace:
    """An endpoint that gets spans. Not in its repr: URL and headers may hold secrets.

    Attributes:
        url: as it was given, with or without the path ``/v1/traces``; over gRPC also ``host:port``.
        headers: sent with the spans, by lower-case name.
        page: the address at which a person sees the spans; empty if it is not known.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    page: str = ""


def otlp_places(provider: object = None) -> list[OtlpPlace]:
    """Return where spans go: by the standard variables, then by the exporters of a tracer provider."""
    variables = os.environ
    headers = variables.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or variables.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    urls = filter(None, (variables.get(name, "").strip() for name in names))
    return [*(OtlpPlace(url=url, headers=header_variable(headers)) for url in urls), *_of_provider(provider)]


def uses_grpc(signal: str) -> bool:
    """Return True if the standard variables choose OTLP over gRPC for ``TRACES``, ``LOGS`` or ``METRICS``."""
    names = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    return next(filter(None, map(os.environ.get, names)), "").strip() == "grpc"


_TRACES_PATH = "/v1/traces"
_GRPC_PORT = 4317


def otlp_fault() -> str | None:
    """Return what is wrong with the standard variables for spans, and what to do; None if nothing is found.

    For ``rageval-hooks doctor``: each of these mistakes loses every span.
    """
    name = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    base_only = not os.environ.get(name)
    if base_only:
        name = "OTEL_EXPORTER_OTLP_ENDPOINT"
    url = os.environ.get(name, "").strip()
    if not url or uses_grpc("TRACES"):
        return None
    if not url.startswith(("http://", "https://")):
        return f"{name} has no scheme: set it to http://{url.rpartition('://')[2]}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"{name} has a port that is not a number"
    if port == _GRPC_PORT:
        return (
            f"{name} has port {_GRPC_PORT}, which speaks gRPC, and spans are sent over HTTP: use port 4318 "
            "(Phoenix: 6006), or set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
        )
    path = parts.path.rstrip("/")
    if base_only and path.endswith(_TRACES_PATH):
        return f"{name} ends with {_TRACES_PATH}, which the exporter adds itself, so it is there twice: remove it"
    if path.endswith(_TRACES_PATH * 2):
        return f"{name} has {_TRACES_PATH} twice: remove one"
    if not base_only and not path:
        return f"{name} has no path, and nothing is added to it: append {_TRACES_PATH}"
    return None


def resource_attributes(provider: object) -> Mapping[str, object]:
    """Return the attributes of the resource of the spans, such as ``service.name``.

    Args:
        provider: the tracer provider. If it is not the SDK's, spans have what the standard variables say.
    """
    sdk = sdk_provider(provider)
    resource = OTELResourceDetector().detect() if sdk is None else sdk.resource
    return resource.attributes


def header_variable(text: str, *, warn_as: str | None = None) -> dict[str, str]:
    """Return headers by lower-case name, for example of ``"api_key=abc,X-Team=search%20team"``.

    Args:
        text: the variable's value.
        warn_as: the variable's name; None to skip wrong parts without a warning.
    """
    headers: dict[str, str] = {}
    for number, part in enumerate(text.split(","), 1):
        name, equals, value = part.partition("=")
        if equals and name.strip():
            headers[unquote(name).strip().lower()] = unquote(value).strip()
        elif part.strip() and warn_as:  # it may be a key, so the message gives its place only
            _logger.warning("rageval-hooks: %s: part %d is not of the form name=value [RAGEVAL-114]", warn_as, number)
    return headers


# By provider: its processors when they were looked at, and where they send spans.
_known: WeakKeyDictionary[TracerProvider, tuple[object, tuple[OtlpPlace, ...]]] = WeakKeyDictionary()


def _of_provider(provider: object) -> tuple[OtlpPlace, ...]:
    """Return where the exporters of a provider send spans. The SDK has no public way to ask for it.

    Several exporters ask with every turn, so a provider is searched again only when a processor was added to it.
    """
    sdk = sdk_provider(provider)
    if sdk is None:
        return ()
    processors = processors_of(sdk)  # the same tuple until a processor is added
    seen_processors, places = _known.get(sdk, (None, ()))
    if seen_processors is not processors:
        places = tuple(_places_in(processors))
        _known[sdk] = (processors, places)
    return places


def _places_in(processors: Iterable[object]) -> Iterator[OtlpPlace]:
    """Yield the endpoints of the exporters that processors hold, perhaps several wrappers deep."""
    waiting = deque(processors)
    searched: dict[int, object] = {}  # the objects too, so that no id is used again
    # Bounded, because a mock has every attribute.
    while waiting and len(searched) < _MAX_SEARCHED:
        thing = waiting.popleft()
        if id(thing) in searched:
            continue
        searched[id(thing)] = thing
        url = getattr(thing, "_endpoint", None)
        if isinstance(url, str):
            yield OtlpPlace(url=url, headers=_headers_of(thing))
            continue
        waiting += [inner for name in _NESTED if (inner := getattr(thing, name, None)) is not None]
        waiting += getattr(thing, "_span_processors", ())


def _headers_of(exporter: object) -> dict[str, str]:
    """Return an exporter's headers: a mapping over HTTP, pairs over gRPC."""
    # The exporter for HTTP had them itself before it had a client (opentelemetry-exporter-otlp 1.45).
    client = getattr(exporter, "_client", None)
    headers = getattr(exporter, "_headers", None) or getattr(client, "_headers", None) or {}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return {str(name).lower(): str(value) for name, value in pairs}
    except (TypeError, ValueError):  # another exporter keeps something else under this name
        return {}
