"""``rageval-hooks doctor`` with a real Phoenix, and with endpoints that refuse or hang."""

from __future__ import annotations

import time

from tests.cli.test_cli import run
from tests.e2e.phoenix_server import Phoenix
from tests.exporters.collector import silent_server

SECRET = "hunter-2222-secret"


def test_the_marked_score_is_found_in_phoenix(phoenix: Phoenix) -> None:
    """The server says itself that it is a Phoenix, and shows the annotation; its clock is this machine's."""
    said = run("doctor", OTEL_EXPORTER_OTLP_ENDPOINT=phoenix.url, RAGEVAL_MODELS="lexical").stdout

    assert "phoenix-auto: a marked trace was sent to Phoenix and found again" in said
    assert f"the clock agrees with {phoenix.url}" in said
    assert "no problems" in said


def test_an_endpoint_that_refuses_is_a_problem_with_its_reason() -> None:
    """The reason is the client's own, which quotes the URL: what is secret in it is not shown."""
    place = f"http://user:{SECRET}@127.0.0.1:1/v1/traces?api_key={SECRET}"
    variables = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": place, "RAGEVAL_MODELS": "lexical"}
    done = run("doctor", "--timeout", "3", status=1, **variables)

    assert "the marked trace was not delivered to http://127.0.0.1:1/v1/traces: " in done.stdout
    assert "Connection refused" in done.stdout
    assert SECRET not in done.stdout + done.stderr


def test_an_endpoint_that_hangs_costs_a_bounded_time() -> None:
    with silent_server() as url:
        started = time.monotonic()
        said = run("doctor", "--timeout", "1", status=1, OTEL_EXPORTER_OTLP_ENDPOINT=url, RAGEVAL_MODELS="lexical")

    assert "the marked trace was not delivered" in said.stdout
    assert time.monotonic() - started < 60
