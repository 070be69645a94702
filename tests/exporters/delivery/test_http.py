"""HTTP for score APIs: what a server's answers become."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from rageval_hooks.exporters.delivery import HttpApi, RejectedError, UnavailableError
from tests.exporters.recording import Reply, recording_server


def api(url: str, **options: Any) -> HttpApi:
    return HttpApi(url, backend="Test", credentials="TEST_KEY", extra="phoenix", **options)


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
        client = api(server.url)
        error = client.refusal(client.request("POST", "v1/scores", body={}))
        client.close()

    assert type(error) is kind
    assert str(error) == message
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("in an hour", pytest.approx(3600, abs=60)),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("soon", None),
    ],
)
def test_the_pause_that_a_server_asks_for(header: str, seconds: float | None) -> None:
    """``Retry-After`` as seconds or as a date."""
    if header == "in an hour":
        header = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    with recording_server(lambda _: Reply(status=503, headers={"retry-after": header})) as server:
        client = api(server.url)
        error = client.refusal(client.request("GET", "v1/scores"))
        client.close()

    assert isinstance(error, UnavailableError)
    assert error.retry_after == seconds


def test_a_password_in_the_address_is_sent_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """httpx logs the URL of each request."""
    caplog.set_level(logging.DEBUG)
    with recording_server() as server:
        client = api(server.url.replace("//", "//user:s3cret@"))
        client.request("POST", "v1/scores", body={})
        client.close()

    assert server.requests[0].headers["authorization"] == "Basic dXNlcjpzM2NyZXQ="
    assert "s3cret" not in caplog.text + repr(client) + repr(vars(client))
