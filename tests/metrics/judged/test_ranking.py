"""precision@k, ap@k, mrr and the rank of a known target."""

from __future__ import annotations

from typing import Any

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks import ConfigurationError, Passage, evaluate
from rageval_hooks.errors import JudgeUnavailableError
from rageval_hooks.metrics.judged.ranking import (
    Ranking,
    average_precision_at,
    precision_at,
    reciprocal_rank,
)
from rageval_hooks.metrics.judged.trace import Trace
from rageval_hooks.metrics.judged.umbrela import Umbrela
from rageval_hooks.settings import Settings
from rageval_hooks.testing import FakeJudge
from tests.metrics.good_judge import by_schema, long_turn

T, F = True, False

TABLE: list[tuple[list[bool], dict[str, float]]] = [
    ([T], {"P@1": 1, "AP@1": 1, "AP@5": 1, "RR": 1}),
    ([F], {"P@1": 0, "AP@1": 0, "AP@5": 0, "RR": 0}),
    ([F, T, F, T, F], {"P@1": 0, "P@3": 1 / 3, "P@5": 2 / 5, "AP@3": 1 / 2, "AP@5": 1 / 2, "RR": 1 / 2}),
    ([T, F, T, F, T], {"P@3": 2 / 3, "P@5": 3 / 5, "AP@3": 5 / 6, "AP@5": (1 + 2 / 3 + 3 / 5) / 3, "RR": 1}),
    ([F, F, F, F, F, T], {"P@5": 0, "AP@5": 0, "RR": 1 / 6}),
    ([T, T, T], {"P@3": 1, "AP@3": 1, "AP@5": 1, "RR": 1}),
    ([F, F, F], {"P@3": 0, "AP@3": 0, "AP@5": 0, "RR": 0}),
]


def value(measure: str, relevant: list[bool]) -> float:
    name, _, k = measure.partition("@")
    if name == "RR":
        return reciprocal_rank(relevant)
    return {"P": precision_at, "AP": average_precision_at}[name](relevant, int(k))


@pytest.mark.parametrize(("relevant", "expected"), TABLE)
def test_the_formulas(relevant: list[bool], expected: dict[str, float]) -> None:
    """By hand."""
    assert {measure: value(measure, relevant) for measure in expected} == pytest.approx(expected)


@given(grades=st.lists(st.integers(0, 3), min_size=1, max_size=12), k=st.sampled_from([1, 3, 5, 10]))
def test_they_agree_with_ir_measures(grades: list[int], k: int) -> None:
    """P@k and RR as they are. AP@k, whose recall base is here what the first k hold, with judgements of these alone."""
    relevant = [grade >= 2 for grade in grades]
    run = [ir_measures.ScoredDoc("q", f"d{n}", float(-n)) for n in range(len(grades))]
    qrels = [ir_measures.Qrel("q", f"d{n}", grade) for n, grade in enumerate(grades)]

    def theirs(measure: Any, judged: list[Any]) -> float:
        return float(ir_measures.calc_aggregate([measure], judged, run)[measure])

    assert precision_at(relevant, k) == pytest.approx(theirs(ir_measures.P(rel=2) @ k, qrels))
    assert reciprocal_rank(relevant) == pytest.approx(theirs(ir_measures.RR(rel=2), qrels))
    assert average_precision_at(relevant, k) == pytest.approx(theirs(ir_measures.AP(rel=2) @ k, qrels[:k]))


@given(relevant=st.lists(st.booleans(), min_size=1, max_size=10), k=st.integers(1, 10), at=st.integers(0, 9))
def test_ranges_and_monotonicity(relevant: list[bool], k: int, at: int) -> None:
    """Scores are in 0..1. One more relevant passage, or a better rank, lowers no score."""
    at %= len(relevant)
    more = [*relevant[:at], True, *relevant[at + 1 :]]
    for measure in (f"P@{k}", f"AP@{k}", "RR"):
        assert 0 <= value(measure, relevant) <= 1
        if not measure.startswith("AP"):
            assert value(measure, more) >= value(measure, relevant)
    if at and relevant[at] and not relevant[at - 1]:
        up = relevant.copy()
        up[at - 1], up[at] = True, False
        assert value(f"P@{k}", up) >= value(f"P@{k}", relevant)
        assert value("RR", up) >= value("RR", relevant)
        assert average_precision_at(up, len(up)) >= average_precision_at(relevant, len(relevant))


def grades(*values: int) -> dict[str, Any]:
    return {"intent": "", "grades": [{"passage": n, "grade": value} for n, value in enumerate(values)]}


class TestTheMetric:
    def test_from_umbrelas_grades(self) -> None:
        """Relevant is a grade of 2 or more."""
        evaluation = evaluate(long_turn(5), metrics=["ranking"], judge=FakeJudge([grades(1, 2, 0, 3, 1)]))

        assert {score.name: round(score.value, 4) for score in evaluation.scores} == {
            "precision@1": 0.0,
            "precision@3": 0.3333,
            "precision@5": 0.4,
            "ap@1": 0.0,
            "ap@3": 0.5,
            "ap@5": 0.5,
            "mrr": 0.5,
        }
        assert {(s.annotator, s.model, s.metric) for s in evaluation.scores} == {("LLM", "fake", "ranking")}

    def test_the_grades_are_asked_for_once(self) -> None:
        """The passages are graded once for all metrics that use the grades, with the options of umbrela."""
        judge = by_schema()
        evaluate(long_turn(5), metrics=["ranking", "umbrela"], judge=judge)
        apart = by_schema()
        evaluate(long_turn(5), metrics=["ranking", Umbrela(per_passage=True)], judge=apart)

        assert len(judge.calls) == 1
        assert len(apart.calls) == 5

    def test_fewer_passages_than_k(self) -> None:
        """No precision there; the others have their meaning."""
        evaluation = evaluate(long_turn(2), metrics=["ranking"], judge=FakeJudge([grades(0, 3)]))

        assert {skipped.name: skipped.reason for skipped in evaluation.skipped} == {
            "precision@3": "the turn has only 2 passages",
            "precision@5": "the turn has only 2 passages",
        }
        assert (evaluation["ap@5"], evaluation["mrr"]) == (0.5, 0.5)

    def test_another_threshold_and_other_ranks(self) -> None:
        """By parameters; the definitions follow."""
        metric = Ranking(3, ks=(2,))
        evaluation = evaluate(long_turn(3), metrics=[metric], judge=FakeJudge([grades(2, 3, 0)]))

        assert [score.name for score in metric.scores] == ["precision@2", "ap@2", "mrr"]
        assert {s.name: s.value for s in evaluation.scores} == {"precision@2": 0.5, "ap@2": 0.5, "mrr": 0.5}
        assert [score.name for score in Ranking.scores][:3] == ["precision@1", "precision@3", "precision@5"]

    @pytest.mark.parametrize("settings", [{"relevant": 0}, {"relevant": 4}, {"ks": ()}, {"ks": (0,)}])
    def test_wrong_settings(self, settings: Any) -> None:
        """Are refused at construction."""
        with pytest.raises(ConfigurationError):
            Ranking(**settings)

    def test_a_missing_grade_fails_the_scores_that_need_it(self) -> None:
        """And nothing else: the first relevant passage stands before it."""
        answer = grades(0, 3, 9, 1, 1)
        evaluation = evaluate(long_turn(5), metrics=["ranking"], judge=FakeJudge([answer]))

        assert {failed.name for failed in evaluation.failed} == {"precision@3", "precision@5", "ap@3", "ap@5"}
        assert evaluation.failed[0].message == "no grade at rank 3: the judge gave a value that is out of range"
        assert (evaluation["precision@1"], evaluation["mrr"]) == (0.0, 0.5)

    def test_a_failing_judge_fails_all(self) -> None:
        """With its reason, also where a passage without text needs no grade."""
        turn = long_turn(passages=(Passage(text=" "), Passage(text="Some text.")))
        evaluation = evaluate(turn, metrics=["ranking"], judge=FakeJudge([JudgeUnavailableError("down")]))

        assert evaluation.scores == ()
        assert {(f.name, f.error_type, f.message) for f in evaluation.failed} == {
            (score.name, "unavailable", "down") for score in Ranking.scores
        }

    def test_a_passage_without_text_is_not_relevant(self) -> None:
        """An ungraded passage keeps its rank."""
        turn = long_turn(passages=(Passage(text=" "), Passage(text="Some text.")))
        answer = {"intent": "", "grades": [{"passage": 1, "grade": 3}]}
        evaluation = evaluate(turn, metrics=["ranking"], judge=FakeJudge([answer]))

        assert (evaluation["precision@1"], evaluation["mrr"]) == (0.0, 0.5)


def test_ranks_and_formulas_are_settings() -> None:
    """So that a command and the environment can choose them."""
    settings = Settings.build(k_values="2, 10", trace_formulas="fixed20")

    assert [score.name for score in Ranking().bound(settings).scores][:2] == ["precision@2", "precision@10"]
    assert Trace().bound(settings).formulas == "fixed20"
