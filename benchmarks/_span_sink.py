"""A server that takes spans over HTTP and gRPC and drops them. Prints its two ports, and ends with its input."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Grpc(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")


def main() -> None:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Http)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Grpc()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(http.server_port, port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
