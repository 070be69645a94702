"""Local metrics in worker processes, which are fresh interpreters: the same file as without them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks import metric
from rageval_hooks.offline.records import read_records
from rageval_hooks.offline.scoring.score_file import score_file
from rageval_hooks.offline.scoring.workers import WorkerError
from rageval_hooks.testing import FakeJudge
from tests.offline.records.test_readers import write_lines
from tests.offline.scoring.test_scoring import pipeline, rows, words
from tests.online.test_judge_stage import LABELS


@metric(requires=["response"], high=None)
def fatal_without_a_marker(turn: Any) -> int:
    """Ends the process for one question, until a file is there."""
    if turn.id == "q30" and not Path(turn.metadata["marker"]).exists():
        os._exit(3)
    return 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    marked = [{**row, "metadata": {"marker": str(tmp_path / "marker")}} for row in rows(40)]
    return write_lines(tmp_path / "in.jsonl", marked)


def test_the_same_file_as_without_workers(path: Path) -> None:
    """Byte for byte: with metrics that only this process has, and a judge that is asked in this process only."""

    @metric(requires=["response"])
    def here_only(turn: Any) -> int:
        """Exists in this test only."""
        return 1

    outputs = []
    for workers in (1, 2):
        judge = FakeJudge(lambda call: LABELS)
        output = path.parent / f"{workers}.jsonl"
        score_file(path, [output], pipeline(judge, (words, here_only, "unsupported_facts")), workers=workers)
        assert len(judge.calls) == 40
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]


def test_a_worker_that_dies_is_an_error_and_the_run_is_resumed(path: Path) -> None:
    """What is finished is kept."""
    output = path.parent / "out.jsonl"
    with pytest.raises(WorkerError, match="ended with status 3"):
        score_file(path, [output], pipeline(None, (fatal_without_a_marker,)), workers=2)

    (path.parent / "marker").touch()
    scored = score_file(path, [output], pipeline(None, (fatal_without_a_marker,)), workers=1)
    assert (scored.counts.turns, scored.counts.results["scored"]) == (40, 40)
    assert [record.id for record in read_records(output)] == [f"q{number}" for number in range(40)]
