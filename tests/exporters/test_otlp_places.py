"""Where spans go, as an exporter to a score API finds out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import SpanProcessor, SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter

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
    [place] = otlp_places(provider)
    provider.shutdown()

    assert place.url.removesuffix("/v1/traces") == url
    assert place.headers["x-team"] == "harbour"
    assert "harbour" not in repr(place)


def test_endpoint_and_headers_of_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for traces go before those for every signal."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://every:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:5000/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "X-Team=the%20harbour")
    places = otlp_places()

    assert [place.url for place in places] == ["http://traces:5000/v1/traces", "http://every:4318"]
    assert places[0].headers == {"x-team": "the harbour"}


class _Exporter(SpanExporter):
    """Somebody's exporter, which has no endpoint; counts how often its attributes are read."""

    def __init__(self) -> None:
        self.reads = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "_endpoint":
            self.reads += 1
        return super().__getattribute__(name)


def test_a_provider_is_searched_once() -> None:
    """The exporters for score APIs ask with every turn; an exporter without an endpoint is no reason to search on."""
    exporter = _Exporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    for _ in range(100):
        assert otlp_places(provider) == []

    assert exporter.reads == 1


def test_processors_that_come_later_are_found() -> None:
    """An application may add its exporter after it has called ``instrument()``."""
    provider = TracerProvider(shutdown_on_exit=False)
    before = otlp_places(provider)
    provider.add_span_processor(SimpleSpanProcessor(HttpExporter("http://backend:5000/v1/traces")))
    after = otlp_places(provider)
    provider.shutdown()

    assert before == []
    assert [place.url for place in after] == ["http://backend:5000/v1/traces"]


class _Wrapper(SpanProcessor):
    """A processor around another one, as Logfire has them."""

    def __init__(self, processor: SpanProcessor) -> None:
        self.processor = processor


def test_exporters_in_nested_processors_are_found() -> None:
    """Logfire keeps several processors in one, below its own wrappers."""
    several = SynchronousMultiSpanProcessor()
    several.add_span_processor(SimpleSpanProcessor(_Exporter()))
    several.add_span_processor(BatchSpanProcessor(HttpExporter("http://backend:5000/v1/traces")))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(_Wrapper(several))
    [place] = otlp_places(provider)
    several.shutdown()

    assert place.url == "http://backend:5000/v1/traces"


def test_an_exporter_that_has_every_attribute_ends_the_search() -> None:
    """A mock in an application's test suite."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(MagicMock()))

    assert otlp_places(provider) == []


def test_an_exporter_whose_headers_are_something_else() -> None:
    """Its endpoint is known all the same."""
    made = HttpExporter("http://backend:5000/v1/traces")
    made._headers = [7]  # type: ignore[assignment]
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(made))
    [place] = otlp_places(provider)
    made._headers = {}
    provider.shutdown()

    assert (place.url.removesuffix("/v1/traces"), place.headers) == ("http://backend:5000", {})
