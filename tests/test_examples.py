"""The examples run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

EXPECTED: dict[str, str] = {
    "quickstart": "no passage has: September 2018",
    "plain_python": "no passage has: September 2018",
    "llama_index_quickstart": "no passage has: September 2018",
    "agent": "rag LangGraph",
    "fastapi_streaming": "latency.time_to_first_token",
    "no_code": "The pier was opened in September 2018",  # with its scores: tests/zero_code
}


@pytest.mark.parametrize(("name", "text"), EXPECTED.items(), ids=EXPECTED.keys())
def test_an_example_shows_scores(name: str, text: str, tmp_path: Path) -> None:
    """Without a key, a network or any other set-up."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_"))}
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=clean,
    )

    assert result.returncode == 0, result.stderr
    assert text in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
