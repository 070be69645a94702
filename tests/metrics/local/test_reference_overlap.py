"""Answers against reference answers, without a judge."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rageval_hooks import Turn, evaluate
from rageval_hooks.offline.report import build_report
from rageval_hooks.privacy import REDACTED
from tests.offline.scored import record, write


def overlap(response: str, reference: str | None) -> dict[str, float]:
    turn = Turn(query="When?", response=response, reference=reference)
    found = evaluate(turn, metrics="reference_overlap", models="lexical")
    return {score.name.removeprefix("reference_overlap."): score.value for score in found.scores}


@pytest.mark.parametrize(
    ("response", "f1", "recall", "exact", "rouge_l"),
    [
        ("The pier was opened in 2019.", 1, 1, 1, 1),
        ("a pier was opened, in 2019", 1, 1, 1, 5 / 6),  # articles make a difference to ROUGE-L only
        ("In 2019 the pier was opened.", 1, 1, 0, 2 / 3),  # the longest common subsequence is "the pier was opened"
        ("It was 2019.", 0.5, 0.4, 0, 4 / 9),  # 2 of 3 words are in the reference, 2 of its 5 words are there
        ("Ask the office", 0, 0, 0, 2 / 9),
        ("2019 2019 2019", 0.25, 0.2, 0, 2 / 9),  # a word counts as often as the reference has it
    ],
)
def test_the_scores(response: str, f1: float, recall: float, exact: float, rouge_l: float) -> None:
    """As SQuAD and ROUGE-L define them."""
    found = overlap(response, "The pier was opened in 2019.")
    assert found == pytest.approx({"f1": f1, "recall": recall, "exact_match": exact, "rouge_l": rouge_l})


def test_rouge_l_is_that_of_rouge_score() -> None:
    """With articles, numbers and endings: other tools compute the same number."""
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    reference, response = "The cat is on the mat, it's 5.", "A cat is on a mat number 5."
    expected = rouge_scorer.RougeScorer(["rougeL"]).score(reference, response)["rougeL"].fmeasure
    assert overlap(response, reference)["rouge_l"] == expected


def test_scripts_without_spaces_have_words() -> None:
    """rouge-score reads the letters a to z only, so ROUGE-L is skipped."""
    found = overlap("码头于年开放。", "码头于年开放。")
    assert found == {"f1": 1, "recall": 1, "exact_match": 1}


def test_an_answer_with_less_than_half_of_the_words_fails() -> None:
    """The explanation says what is missing."""
    turn = Turn(query="When?", response="It was 2019.", reference="The pier was opened in 2019.")
    score = evaluate(turn, metrics="reference_overlap", models="lexical").score("reference_overlap.recall")
    assert score is not None
    assert (score.label, score.explanation) == ("fail", "the response lacks: pier, opened, in")


@pytest.mark.parametrize(
    ("words", "is_installed", "reason"),
    [(3_000, True, "the texts are too long for ROUGE-L"), (5, False, "rageval-hooks[offline]")],
)
def test_without_rouge_the_other_scores_remain(
    words: int, is_installed: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason says what is wrong."""
    if not is_installed:
        monkeypatch.setitem(sys.modules, "rouge_score", None)
    text = "pier " * words
    found = evaluate(Turn(query="When?", response=text, reference=text), metrics="reference_overlap", models="lexical")
    assert {score.value for score in found.scores} == {1.0}
    [skipped] = found.skipped
    assert skipped.name == "reference_overlap.rouge_l"
    assert reason in skipped.reason


def test_without_a_reference_it_is_skipped() -> None:
    """With the reason; likewise for a reference without words."""
    for reference, reason in ((None, "the turn has no reference answer"), ("…", "the reference answer has no words")):
        turn = Turn(query="When?", response="It was 2019.", reference=reference)
        found = evaluate(turn, metrics="reference_overlap", models="lexical")
        assert found.scores == ()
        assert found.skipped[0].reason.startswith(reason)


class TestReport:
    def test_a_report_computes_them_for_files_with_references(self, tmp_path: Path) -> None:
        """Of answered questions; a question that is marked as unanswerable has no right words."""
        rows = [
            record("q1", scores={"cost": 1}, response="In 2019", reference="2019"),
            record("q2", scores={"cost": 1}, error="TimeoutError", response="", reference="2019"),
            record("q3", scores={"cost": 1}, response="In 2018", reference="2019").model_copy(
                update={"answerable": False}
            ),
        ]
        [file] = build_report([write(tmp_path / "a.jsonl", rows)]).files
        row = file.score("reference_overlap.f1")
        assert row is not None
        assert row.spread is not None
        assert (row.spread.count, row.spread.mean) == (1, pytest.approx(2 / 3))

    @pytest.mark.parametrize("hidden", [{"response": REDACTED}, {"reference": REDACTED}])
    def test_texts_that_were_not_recorded_have_no_words(self, tmp_path: Path, hidden: dict[str, str]) -> None:
        """The marker in their place is neither an answer nor a reference."""
        rows = [record("q1", scores={"cost": 1}, **{"response": "In 2019", "reference": "2019", **hidden})]
        [file] = build_report([write(tmp_path / "a.jsonl", rows)]).files
        assert file.score("reference_overlap.recall") is None

    def test_scores_of_the_file_come_first(self, tmp_path: Path) -> None:
        """It may have been scored with another reference."""
        rows = [
            record(f"q{k}", scores={"reference_overlap.f1": 0.3}, response="In 2019", reference="2019")
            for k in range(3)
        ]
        [file] = build_report([write(tmp_path / "a.jsonl", rows)]).files
        row = file.score("reference_overlap.f1")
        assert row is not None
        assert row.spread is not None
        assert row.spread.mean == 0.3
        assert file.score("reference_overlap.recall") is None
