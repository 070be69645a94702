"""How much of each result the output file has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rageval_hooks import Skipped
from rageval_hooks.offline.records import read_records
from rageval_hooks.offline.scoring.score_file import score_file
from tests.offline.records.test_readers import write_lines
from tests.offline.scoring.test_scoring import pipeline, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in.jsonl", rows(1))


@pytest.mark.parametrize(("details", "kept"), [("none", False), ("failed", False), ("all", True)])
def test_details(path: Path, details: Any, kept: bool) -> None:
    """The option `details` removes explanations and evidence from the file; scores and reasons stay."""
    output = path.parent / "out.jsonl"
    score_file(path, [output], pipeline(None, ("groundedness", "latency")), details=details)
    groundedness, latency = next(read_records(output)).results
    assert (groundedness.label, bool(groundedness.metadata)) == ("pass", kept)
    assert isinstance(latency, Skipped)
    assert latency.reason


def test_details_of_what_fails(path: Path) -> None:
    """``failed`` keeps the explanation and the evidence of a score that fails."""
    write_lines(path, [{**rows(1)[0], "response": "It was built by Carl in 1978."}])
    output = path.parent / "out.jsonl"
    score_file(path, [output], pipeline(None, ("groundedness",)), details="failed")
    [groundedness] = next(read_records(output)).results
    assert (groundedness.label, bool(groundedness.metadata)) == ("fail", True)
