"""An OTLP collector on loopback that keeps the traces, logs and metrics it receives: HTTP/protobuf, and gRPC."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import (
    LogsServiceServicer,
    add_LogsServiceServicer_to_server,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Collector", "grpc_collector", "http_collector", "silent_server", "values"]


def values(holder: Any) -> dict[str, Any]:
    """Return the attributes of a span, an event or a resource by name."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in holder.attributes}


class Collector:
    """What came.

    Attributes:
        url: where it listens.
        paths: of the requests over HTTP.
        requests: with traces, decoded with the classes of opentelemetry-proto.
        log_requests: with logs.
        metric_requests: with metrics.
        status: of the answers over HTTP.
        answer: body of the answers over HTTP.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: list[str] = []
        self.requests: list[ExportTraceServiceRequest] = []
        self.log_requests: list[ExportLogsServiceRequest] = []
        self.metric_requests: list[ExportMetricsServiceRequest] = []
        self.status = 200
        self.answer = b""

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def log_records(self) -> list[LogRecord]:
        """All log records so far."""
        return [
            record
            for request in self.log_requests
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    @property
    def metrics(self) -> dict[str, Metric]:
        """The latest value of each metric, by name."""
        return {
            metric.name: metric
            for request in self.metric_requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def take(self, path: str, body: bytes) -> None:
        """Keep a request over HTTP."""
        self.paths.append(path)
        if path.endswith("/logs"):
            self.log_requests.append(ExportLogsServiceRequest.FromString(body))
        elif path.endswith("/metrics"):
            self.metric_requests.append(ExportMetricsServiceRequest.FromString(body))
        else:
            self.requests.append(ExportTraceServiceRequest.FromString(body))


@contextmanager
def http_collector() -> Iterator[Collector]:
    """Listen for OTLP over HTTP, binary protobuf."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["content-type"] == "application/x-protobuf"
            collector.take(self.path, body)
            self.send_response(collector.status)
            self.send_header("content-length", str(len(collector.answer)))
            self.end_headers()
            self.wfile.write(collector.answer)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """Listen for OTLP over gRPC."""

    class Traces(TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
            collector.requests.append(request)
            return ExportTraceServiceResponse()

    class Logs(LogsServiceServicer):
        def Export(self, request: ExportLogsServiceRequest, context: Any) -> ExportLogsServiceResponse:
            collector.log_requests.append(request)
            return ExportLogsServiceResponse()

    class Metrics(MetricsServiceServicer):
        def Export(self, request: ExportMetricsServiceRequest, context: Any) -> ExportMetricsServiceResponse:
            collector.metric_requests.append(request)
            return ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(Traces(), server)
    add_LogsServiceServicer_to_server(Logs(), server)
    add_MetricsServiceServicer_to_server(Metrics(), server)
    collector = Collector(f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


@contextmanager
def silent_server() -> Iterator[str]:
    """Accept connections and never answer; yields the URL."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
