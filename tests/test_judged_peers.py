"""The scripted judge of benchmarks/judged_peers.py."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks import score_dataset
from rageval_hooks.judges.openai import OpenAIJudge

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("_scripted_judge")


def test_scripted_answers_give_the_scores_of_the_rows(scripted: Any) -> None:
    """Two of three sentences are supported; the first and third of five passages are relevant."""
    data = scripted.rows(2)
    with scripted.ScriptedJudge(data, latency=0.0, at_once=2) as server:
        frame = score_dataset(
            [{"question": row["question"], "answer": row["answer"], "contexts": row["passages"]} for row in data],
            metrics=["trace", "ranking", "no_answer"],
            models="lexical",
            judge=OpenAIJudge("scripted", base_url=server.url, api_key="none"),
            progress=False,
        )
        assert server.counts.calls == 3 * len(data)
        assert server.counts.unknown == 0
    assert frame["trace.supported_share"].tolist() == pytest.approx([2 / 3] * 2)
    assert frame["trace.context_relevance"].tolist() == pytest.approx([0.4] * 2)
    assert frame["ap@5"].tolist() == pytest.approx([(1 + 2 / 3) / 2] * 2)
    assert frame["no_answer"].tolist() == [1.0, 1.0]
