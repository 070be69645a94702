"""Where spans go, as an exporter to a score API finds out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from rageval_hooks.exporters.otlp_places import otlp_places


@pytest.mark.parametrize(
    ("make", "url"),
    [
        (lambda: HttpExporter("http://backend:5000/v1/traces", headers={"X-Team": "harbour"}), "http://backend:5000"),
        (lambda: GrpcExporter("http://backend:4317", headers=(("x-team", "harbour"),)), "backend:4317"),
    ],
    ids=["http", "grpc"],
)
def test_endpoint_and_headers_in_the_code(make: Callable[[], Any], url: str) -> None:
    """Of the exporters of a provider."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(make()))
    [place] = otlp_places(provider, {})
    provider.shutdown()

    assert place.url.removesuffix("/v1/traces") == url
    assert place.headers["x-team"] == "harbour"
    assert "harbour" not in repr(place)


def test_endpoint_and_headers_of_variables() -> None:
    """Those for traces go before those for every signal."""
    places = otlp_places(
        None,
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://every:4318",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:5000/v1/traces",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "X-Team=the%20harbour",
        },
    )

    assert [place.url for place in places] == ["http://traces:5000/v1/traces", "http://every:4318"]
    assert places[0].headers == {"x-team": "the harbour"}
