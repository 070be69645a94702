"""Redaction with a spool: scores are computed on the original texts, and the file has redacted ones only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rageval_hooks import Score, metric
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.testing import InMemoryExporter
from tests.online.spool.test_spool import Graded, late, make_pipeline, turns, unreachable


@metric(name="has_secret", requires=("response",))
def has_secret(turn: Any) -> float:
    return float("471-SECRET-NUMBER-11" in turn.response)


def redact(text: str) -> str:
    return text.replace("471-SECRET-NUMBER-11", "<NUMBER>")


def test_late_local_scores_are_computed_on_the_original_texts(tmp_path: Path) -> None:
    """For more turns than this process remembers, while the judge cannot be reached."""
    path, exporter = tmp_path / "spool.db", InMemoryExporter()
    pipeline = make_pipeline(
        path, unreachable, exporter, metrics=[has_secret, Graded()], inline_budget_ms=0, redact=redact
    )
    for turn in turns(100):
        pipeline.submit(EndedTurn.of(turn.model_copy(update={"response": "The number is 471-SECRET-NUMBER-11."})))
    pipeline.flush(30)
    stats = pipeline.stats()["spool"]
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    pipeline.shutdown(10)

    scores = [result for evaluation in late(exporter) for result in evaluation.results]
    assert [result.value for result in scores if isinstance(result, Score)] == [1.0] * 100
    assert {evaluation.turn.response for evaluation in late(exporter)} == {"The number is <NUMBER>."}
    assert stats["stored"] == 100
    assert b"471-SECRET-NUMBER-11" not in content


def test_a_job_that_another_process_has_stored_without_redaction(tmp_path: Path) -> None:
    """It leaves this process redacted."""
    first = make_pipeline(tmp_path / "spool.db", unreachable, InMemoryExporter())
    first.submit(EndedTurn.of(turns(1)[0].model_copy(update={"response": "The number is 471-SECRET-NUMBER-11."})))
    first.flush(30)
    first.shutdown(10)

    exporter = InMemoryExporter()
    second = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.5}, exporter, redact=redact)
    while not late(exporter):
        second.flush(0.1)
    second.shutdown(10)

    [evaluation] = late(exporter)
    assert evaluation.turn.response == "The number is <NUMBER>."
