"""Where the demo sends its spans and scores: nowhere, to an OTLP endpoint, or to a backend by name."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from rageval_hooks.errors import ConfigurationError, ExportError, requires
from rageval_hooks.exporters.base import REGISTRY, Exporter
from rageval_hooks.exporters.delivery import ScoreApiExporter
from rageval_hooks.exporters.otlp_places import OtlpPlace
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.settings import Settings

__all__ = ["PROJECT", "DemoDestination", "destination"]

PROJECT = "rageval-demo"
"""The name of the service, of Phoenix's project and of MLflow's experiment."""

_TIMEOUT = 60
"""Seconds. A server that has just started may need half a minute for its first spans."""


class WatchedExporter(SpanExporter):
    """An exporter that remembers whether any export failed."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = self._exporter.export(spans)
        self.failed = self.failed or result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        """Close the exporter."""
        self._exporter.shutdown()


@dataclass(frozen=True, kw_only=True)
class DemoDestination:
    """Where spans and scores go.

    Attributes:
        exporters: for ``instrument()``.
        url: the OTLP endpoint; empty without one. May hold a password: :attr:`shown_url` does not.
        page: where a person sees the traces; empty if it is not known.
        watched: sends the spans.
    """

    exporters: tuple[str | Exporter, ...] = ("otel",)
    url: str = ""
    page: str = ""
    watched: WatchedExporter | None = None

    @property
    def shown_url(self) -> str:
        """The endpoint without user name and password."""
        return safe_url(self.url)

    @property
    def failed(self) -> bool:
        """True if spans could not be sent."""
        return self.watched is not None and self.watched.failed

    @property
    def phoenix_endpoint(self) -> str | None:
        """The address that is asked whether it is a Phoenix, in place of what variables name."""
        return self.url.removesuffix("/v1/traces") or None


def destination(to: str | None, otlp: str | None, provider: TracerProvider) -> DemoDestination:
    """Return the destination, after connecting the provider to it.

    Args:
        to: the name of a backend's exporter.
        otlp: the URL of an OTLP/HTTP endpoint.
        provider: gets a processor that sends spans there.

    Raises:
        ConfigurationError: both are given, the backend is unknown, or a setting of it is missing.
        MissingDependencyError: an exporter is not installed.
        ExportError: nothing answers there.
    """
    if to and otlp:
        raise ConfigurationError("--to and --otlp are both given: --to knows the address of the backend")
    if otlp:
        base = otlp.rstrip("/")
        url = base if base.endswith("/v1/traces") else f"{base}/v1/traces"
        # The defaults write scores to a backend's API where the endpoint turns out to be that backend.
        defaults = Settings.model_fields["exporters"].default
        return DemoDestination(exporters=defaults, url=url, watched=_connect(OtlpPlace(url=url), provider))
    if to:
        exporter = _backend(to, provider)
        place = exporter.otlp_place(PROJECT)
        return DemoDestination(
            exporters=("otel", exporter), url=place.url, page=place.page, watched=_connect(place, provider)
        )
    return DemoDestination()


def _backend(name: str, provider: TracerProvider) -> ScoreApiExporter:
    exporter = REGISTRY.create(name, lambda kind: kind.from_settings(Settings.build(), provider))
    if not isinstance(exporter, ScoreApiExporter):
        kinds = REGISTRY.builtin().values()
        valid = [kind.name for kind in kinds if issubclass(kind, ScoreApiExporter) and not kind.automatic]
        raise ConfigurationError(f"--to is {name!r}, which is not a backend with scores. Valid: {', '.join(valid)}")
    return exporter


def _connect(place: OtlpPlace, provider: TracerProvider) -> WatchedExporter:
    with requires("opentelemetry-exporter-otlp", "otlp", "--otlp or --to"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    _check_reachable(place.url)
    exporter = OTLPSpanExporter(endpoint=place.url, headers=_headers(place.headers), timeout=_TIMEOUT)
    watched = WatchedExporter(exporter)
    provider.add_span_processor(BatchSpanProcessor(watched))
    return watched


def _headers(headers: Mapping[str, str]) -> dict[str, str] | None:
    """Return the headers; None to use those of the variables."""
    return dict(headers) or None


def _check_reachable(endpoint: str) -> None:
    """Fail at once if nothing listens there; the exporter itself would retry for a minute."""
    try:
        address = urlsplit(endpoint)
        host, port = address.hostname, address.port or (443 if address.scheme == "https" else 80)
    except ValueError:
        host = None
    if not host or address.scheme not in ("http", "https"):
        raise ConfigurationError(f"--otlp is {endpoint!r}: give an address such as http://localhost:4318")
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        shown = safe_url(endpoint)
        raise ExportError(f"the spans cannot be sent to {shown}: {error}. Is there an OTLP/HTTP endpoint?") from None
