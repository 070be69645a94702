"""An HTTP server on loopback that records what it gets, answers as a test says, and can have bad days."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Recorded", "RecordingServer", "Reply", "recording_server", "shaky"]


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A request.

    Attributes:
        method: ``GET``, ``POST`` …
        path: without the query.
        query: as text.
        headers: by lower-case name.
        body: the JSON; None without one.
        content: the body as it came.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: Any
    content: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer. A status of 0 resets the connection instead."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


Respond = Callable[[Recorded], Reply]


class RecordingServer:
    """What a test sees of the server.

    Attributes:
        url: its base URL.
        requests: what came.
        respond: answers.
    """

    def __init__(self, url: str, respond: Respond) -> None:
        self.url = url
        self.requests: list[Recorded] = []
        self.respond = respond

    def posted(self, path: str = "") -> list[Any]:
        """Return the bodies of POST requests whose path ends with a text."""
        return [found.body for found in self.requests if found.method == "POST" and found.path.endswith(path)]


@contextmanager
def recording_server(respond: Respond = lambda _: Reply(), *, port: int = 0) -> Iterator[RecordingServer]:
    """Run a server, on a free port by default. A text in a reply is sent as plain text, anything else as JSON."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the client went away
                self.close_connection = True

        def answer(self) -> None:
            path, _, query = self.path.partition("?")
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = json.loads(content) if "json" in headers.get("content-type", "") else None
            about: dict[str, Any] = {"method": self.command, "path": path, "query": query, "headers": headers}
            request = Recorded(**about, body=body, content=content)
            server.requests.append(request)
            self.send(server.respond(request))

        def send(self, reply: Reply) -> None:
            if reply.status == 0:
                self.close_connection = True
                return
            is_text = isinstance(reply.body, str)
            content = (reply.body if is_text else json.dumps(reply.body)).encode()
            self.send_response(reply.status)
            self.send_header("content-type", "text/plain" if is_text else "application/json")
            self.send_header("content-length", str(len(content)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    http.daemon_threads = True
    server = RecordingServer(f"http://127.0.0.1:{http.server_port}", respond)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def shaky(respond: Respond, *, share: float = 0.2, seed: int = 0) -> Respond:
    """Make some requests fail with a 5xx, a 429 or a reset; half of them after the request took effect."""
    chance = random.Random(seed)
    lock = threading.Lock()
    faults = (Reply(status=503), Reply(status=500), Reply(status=429, headers={"retry-after": "0"}), Reply(status=0))

    def answer(request: Recorded) -> Reply:
        with lock:
            fault = chance.choice(faults) if chance.random() < share else None
            took_effect = chance.random() < 0.5
        if fault is None:
            return respond(request)
        # A server that refuses with 429 has not done anything; the others may have.
        if took_effect and fault.status != 429:
            respond(request)
        return fault

    return answer
