"""Where an application sends its spans: the endpoints of OTLP's variables and of the provider's exporters."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from opentelemetry.sdk.resources import OTELResourceDetector

from rageval_hooks.runtime.tracing import sdk_provider

__all__ = ["OtlpPlace", "header_variable", "otlp_places", "resource_attributes"]

_logger = logging.getLogger(__name__)

# How the SDK, phoenix.otel, Logfire and Langfuse nest processors and exporters.
_NESTED = ("span_exporter", "_exporter", "exporter", "wrapped_exporter", "processor", "_batch_processor")
_DEEPEST = 6


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


def otlp_places(provider: object = None, environment: Mapping[str, str] | None = None) -> list[OtlpPlace]:
    """Return where spans go: by the variables, then by the exporters of a provider.

    Args:
        provider: the tracer provider.
        environment: the environment variables; those of the process by default.
    """
    environment = os.environ if environment is None else environment
    headers = environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environment.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    urls = filter(None, (environment.get(name, "").strip() for name in names))
    by_variable = [OtlpPlace(url=url, headers=header_variable(headers)) for url in urls]
    return [*by_variable, *_of_provider(provider)]


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


def _of_provider(provider: object) -> Iterator[OtlpPlace]:
    """Yield where the exporters of a provider send spans. The SDK has no public way to ask for it."""
    active = getattr(sdk_provider(provider), "_active_span_processor", None)
    for processor in getattr(active, "_span_processors", ()):
        place = _place_in(processor)
        if place is not None:
            yield place


def _place_in(thing: object, depth: int = 0) -> OtlpPlace | None:
    url = getattr(thing, "_endpoint", None)
    if isinstance(url, str):
        return OtlpPlace(url=url, headers=_headers_of(thing))
    if depth >= _DEEPEST:
        return None
    for name in _NESTED:
        found = _place_in(getattr(thing, name, None), depth + 1)
        if found is not None:
            return found
    return None


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
