"""``rageval-hooks doctor`` against a real Phoenix: the marked trace is sent, and its score is found there."""

from __future__ import annotations

from rageval_hooks.demo.phoenix import Phoenix
from tests.cli.test_cli import run


def test_the_marked_score_is_found_in_phoenix(phoenix: Phoenix) -> None:
    """The server says itself that it is a Phoenix, and shows the annotation; its clock is this machine's."""
    said = run("doctor", OTEL_EXPORTER_OTLP_ENDPOINT=phoenix.url, RAGEVAL_MODELS="lexical").stdout

    assert "phoenix-auto: a marked trace was sent to Phoenix and found again" in said
    assert f"the clock agrees with {phoenix.url}" in said
    assert "no problems" in said
