"""A server that stands for every vendor: it keeps the spans that it receives, and accepts everything else."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

LOGFIRE = {"project_name": "compat", "project_url": "http://127.0.0.1"}
"""What Logfire's client wants to know about its token. Other clients ignore it."""


class ReceivedSpan:
    """A span as it arrived.

    Attributes:
        name: its name.
        scope: the name of the tracer that made it.
        trace_id: its trace.
        span_id: its id.
        parent_id: the id of its parent; empty for a root.
        attributes: by name.
        events: the attributes of its events.
    """

    def __init__(self, span: Any, scope: str) -> None:
        self.name: str = span.name
        self.scope = scope
        self.trace_id: bytes = span.trace_id
        self.span_id: bytes = span.span_id
        self.parent_id: bytes = span.parent_span_id
        self.attributes = _values(span.attributes)
        self.events = [_values(event.attributes) for event in span.events]


def _values(attributes: Any) -> dict[str, Any]:
    found = {}
    for item in attributes:
        kind = item.value.WhichOneof("value")
        found[item.key] = getattr(item.value, kind) if kind else None
    return found


class Recorder:
    """The spans that arrived.

    Attributes:
        url: where the server listens.
        spans: the spans, as soon as they have ended.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[ReceivedSpan] = []

    def take(self, body: bytes) -> None:
        """Keep the spans of a request."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    received = ReceivedSpan(span, scope.scope.name)
                    # Logfire announces a span when it starts.
                    if received.attributes.get("logfire.span_type") != "pending_span":
                        self.spans.append(received)


@contextmanager
def recorder() -> Iterator[Recorder]:
    """Listen on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(json.dumps(LOGFIRE).encode(), "application/json")

        def do_POST(self) -> None:
            body = self._body()
            if self.path.endswith("/traces"):
                recording.take(body)
                self._answer(b"", "application/x-protobuf")
            else:
                self._answer(b"{}", "application/json")

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
            return gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    recording = Recorder(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield recording
    finally:
        server.shutdown()
        server.server_close()
