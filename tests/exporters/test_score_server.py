"""HTTP for score APIs: what a server's answers become."""

from __future__ import annotations

import logging
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
        (404, UnavailableError, "answers 404: is this the address of Test?"),
        (307, UnavailableError, "answers 307: is this the address of Test?"),
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
