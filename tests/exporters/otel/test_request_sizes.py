"""Requests to collectors and proxies that take only so much: what is too large costs no other span."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

import grpc
import pytest
from langchain_core.documents import Document
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

import rageval_hooks
from tests.integrations.langchain.fakes import FACTS, lcel

Requests = list[ExportTraceServiceRequest]


@contextmanager
def over_http(limit: int) -> Iterator[tuple[str, Requests]]:
    """A proxy answers 413 to what is larger."""
    taken: Requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_zipped = self.headers.get("content-encoding") == "gzip"
            is_taken = len(body) <= limit
            if is_taken:
                taken.append(ExportTraceServiceRequest.FromString(gzip.decompress(body) if is_zipped else body))
            self.send_response(200 if is_taken else 413)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def over_grpc(limit: int) -> Iterator[tuple[str, Requests]]:
    """A collector answers RESOURCE_EXHAUSTED to what is larger."""
    taken: Requests = []

    class Servicer(TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
            taken.append(request)
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", limit)])
    add_TraceServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", taken
    finally:
        server.stop(None)


Server = Callable[[int], Any]


@pytest.fixture(params=[("http/protobuf", over_http), ("grpc", over_grpc)], ids=["http", "grpc"])
def serve(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    protocol, server = request.param
    import_module("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")  # as an application may have done before
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    # Also the deadline of each request: a busy machine takes more than a second.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    found: Server = server
    return found


def names(taken: Requests) -> list[str]:
    scopes = [scope for request in taken for resource in request.resource_spans for scope in resource.scope_spans]
    return [span.name for scope in scopes for span in scope.spans]


LARGE = [Document(page_content="The ferry is slow. " * 5_000)]


def test_only_the_spans_that_are_too_large_are_refused(serve: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to single ones: those of the other turns arrive, and each span has one outcome."""
    with serve(20_000) as (url, taken):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        with rageval_hooks.instrument(metrics=[], exporters=["otel"]) as handle:
            for number in range(6):
                lcel(documents=LARGE if number == 3 else FACTS).invoke("When?")
            delivered = handle.flush(60)
            counts = handle.stats()["exporters"]["otel"]

    found = Counter(names(taken))
    assert found["rag RunnableSequence"] == 6
    assert found["chat scripted-1-2026"] == found["retrieval ScriptedRetriever"] == 5
    assert not delivered
    assert (counts["delivered"], counts["rejected"] + counts["lost"], counts["queued"]) == (16, 2, 0)


def test_requests_are_bounded_by_bytes(serve: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve ordinary turns are more than a proxy takes at once by default."""
    with serve(2**20) as (url, taken):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        with rageval_hooks.instrument(metrics=[], exporters=["otel"]) as handle:
            for _ in range(12):
                lcel(documents=LARGE).invoke("When?")
            delivered = handle.flush(60)

    assert delivered
    assert len(names(taken)) == 36
    assert len(taken) > 2
    assert max(request.ByteSize() for request in taken) < 2**20
