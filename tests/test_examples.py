"""The examples run as they stand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.warm import run_warm_script

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

EXPECTED: dict[str, str] = {
    "quickstart": "no passage has: September 2018",
    "plain_python": "no passage has: September 2018",
    "llama_index_quickstart": "no passage has: September 2018",
    "agent": "rag LangGraph",
    "fastapi_streaming": "latency.time_to_first_token",
    "fastapi_feedback": "It was 2019.",
    "no_code": "The pier was opened in September 2018",  # with its scores: tests/zero_code
}


@pytest.mark.parametrize(("name", "text"), EXPECTED.items(), ids=EXPECTED.keys())
def test_an_example_shows_scores(name: str, text: str, tmp_path: Path) -> None:
    """Without a key, a network or any other set-up."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_"))}
    script = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    result = run_warm_script(script, EXAMPLES / f"{name}.py", folder=tmp_path, environment=clean)

    assert text in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
