"""HTTP for score APIs: what a server's answers become."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from rageval_hooks.exporters.delivery_queue import PostError, RejectedError, UnavailableError
from rageval_hooks.exporters.score_api import ScoreServer
from tests.exporters.recording import Reply, recording_server


class TestServer(ScoreServer):
    __test__ = False
    backend: ClassVar[str] = "Test"
    credentials: ClassVar[str] = "TEST_KEY"


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (400, RejectedError, "answers 400: no"),
        (422, RejectedError, "answers 422: no"),
        (401, UnavailableError, "answers 401: set TEST_KEY to a valid key"),
        (403, UnavailableError, "answers 403: set TEST_KEY to a valid key"),
        (404, UnavailableError, "answers 404, which Test does not: check the address"),
        (307, UnavailableError, "answers 307, which Test does not: check the address"),
        (429, UnavailableError, "answers 429"),
        (503, UnavailableError, "answers 503"),
    ],
)
def test_a_status_becomes_an_error_that_says_what_to_do(status: int, kind: type[Exception], message: str) -> None:
    """Faulty data is not sent again; everything else may be repaired. Redirects are not followed."""
    headers = {"location": "http://127.0.0.1:9/elsewhere"} if status == 307 else {}
    with recording_server(lambda _: Reply(status=status, body="no", headers=headers)) as server:
        client = TestServer(server.url)
        with pytest.raises(PostError) as raised:
            client.request("POST", "v1/scores", json={})
        assert client.request("POST", "v1/scores", json={}, accept=(status,)).status_code == status
        client.close()

    assert type(raised.value) is kind
    assert str(raised.value) == message
    assert len(server.requests) == 2


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("Thu, 01 Jan 2026 00:00:00 GMT", 0.0), ("soon", 0.0)])
def test_the_pause_that_a_server_asks_for(header: str, seconds: float) -> None:
    """``Retry-After`` in seconds; after a date, our own pauses are kept."""
    with recording_server(lambda _: Reply(status=503, headers={"retry-after": header})) as server:
        client = TestServer(server.url)
        with pytest.raises(UnavailableError) as raised:
            client.request("GET", "v1/scores")
        client.close()

    assert raised.value.retry_after == seconds


def test_a_password_in_the_address_is_sent_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """httpx logs the URL of each request."""
    caplog.set_level(logging.DEBUG)
    with recording_server() as server:
        client = TestServer(server.url.replace("//", "//user:s3cret@"))
        client.request("POST", "v1/scores", json={})
        client.close()

    assert server.requests[0].headers["authorization"] == "Basic dXNlcjpzM2NyZXQ="
    assert "s3cret" not in caplog.text + repr(client) + repr(vars(client))


def test_an_answer_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may be anybody's. What was sent counts as stored by the status alone."""
    monkeypatch.setattr("rageval_hooks.exporters.score_api._MAX_ANSWER_BYTES", 100_000)
    with recording_server(lambda _: Reply(body="x" * 3_000_000)) as server:
        client = TestServer(server.url)
        answer = client.request("POST", "v1/scores", json={})
        client.close()

    assert answer.is_success
    assert 100_000 <= len(answer.content) < 200_000
    assert server.requests[0].headers["accept-encoding"] == "identity"


def test_data_is_read_as_a_whole() -> None:
    """It comes in many pieces, and half of it would be no JSON."""
    with recording_server(lambda _: Reply(body={"traces": ["x" * 1_000_000] * 3})) as server:
        client = TestServer(server.url)
        answer = client.read("GET", "v1/traces")
        client.close()

    assert len(answer.json()["traces"]) == 3


def test_an_answer_that_never_ends_is_cut_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its parts comes in time, so that no timeout between them helps."""
    monkeypatch.setattr(TestServer, "timeout", 0.5)
    with dripping_server() as url:
        client = TestServer(url)
        answer = client.request("POST", "v1/scores", json={})
        client.close()

    assert answer.is_success


def test_a_servers_words_cannot_control_a_terminal() -> None:
    """Nor begin a line of their own in a log."""
    with recording_server(lambda _: Reply(status=422, body="bad\x1b[2J\nFORGED")) as server:
        client = TestServer(server.url)
        with pytest.raises(RejectedError, match=r"^answers 422: bad␛\[2J FORGED$"):
            client.request("POST", "v1/scores", json={})
        client.close()


@contextmanager
def dripping_server() -> Iterator[str]:
    """Answer with a body of which a byte comes every twentieth of a second, until the client has gone."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            with suppress(OSError):
                while not ended.wait(0.05):
                    self.wfile.write(b"1\r\n \r\n")

        def log_message(self, *arguments: object) -> None:
            """Keep the output of the tests clean."""

    ended = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
