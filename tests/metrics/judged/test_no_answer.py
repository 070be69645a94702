"""no_answer: whether the system answered, and what the other metrics make of a refusal."""

from __future__ import annotations

from typing import Any

import pytest

import rageval_hooks
from rageval_hooks import Turn, evaluate
from rageval_hooks.errors import JudgeUnavailableError
from rageval_hooks.metrics.judged.no_answer import NoAnswer
from rageval_hooks.testing import FakeJudge, InMemoryExporter
from tests.integrations.langchain.fakes import lcel
from tests.metrics.good_judge import DECLINED, SUITE, by_schema, long_turn

REFUSED = long_turn(3, response="I am sorry, the passages do not say [1].", reference="It is a disease.")
ANSWERED = {"explanation": "It tries, wrongly.", "attempted": True}
SILENT = {
    "trace.completeness",
    "trace.adherence",
    "trace.supported_share",
    "trace.average",
    "trace.rmse",
    "trace.consistency",
    "nuggets.all",
    "nuggets.vital",
    "nuggets.weighted",
    "nuggets.all_strict",
    "nuggets.vital_strict",
    "nuggets.weighted_strict",
    "citation.precision",
    "citation.recall",
    "citation.f1",
    "reference.completeness",
    "reference.conciseness",
}


class TestTheScore:
    @pytest.mark.parametrize(
        ("answer", "value", "label"),
        [(ANSWERED, 1.0, "answered"), (DECLINED, 0.0, "declined")],
        ids=["answered, even if wrong", "declined"],
    )
    def test_higher_is_answered(self, answer: Any, value: float, label: str) -> None:
        """1 for an attempt, 0 for none; the label says it in a word, the explanation why."""
        evaluation = evaluate(REFUSED, metrics=["no_answer"], judge=FakeJudge([answer]))
        score = evaluation.score("no_answer")

        assert score is not None
        assert (score.value, score.label, score.explanation) == (value, label, f"{label}: {answer['explanation']}")
        assert (score.annotator, score.metric) == ("LLM", "no_answer")

    def test_its_direction_is_stated(self) -> None:
        """The name would let one think otherwise."""
        [definition] = NoAnswer.scores

        assert definition.direction == "higher"
        assert definition.description.startswith("1 if the response attempts an answer")

    def test_the_response_is_in_the_prompt(self) -> None:
        """In its frame, with the task behind it."""
        judge = FakeJudge([DECLINED])
        evaluate(REFUSED, metrics=["no_answer"], judge=judge)
        task = judge.calls[0].messages[-1].content

        assert "the passages do not say [1]." in task
        assert task.index("</answer") < task.index("Task:")

    @pytest.mark.parametrize("answer", ["yes", {"attempted": "perhaps", "explanation": ""}, {}])
    def test_an_unusable_answer_is_a_failure(self, answer: Any) -> None:
        """And no 0."""
        evaluation = evaluate(REFUSED, metrics=["no_answer"], judge=FakeJudge([answer]))

        assert evaluation.scores == ()
        assert [failed.error_type for failed in evaluation.failed] == ["invalid_answer"]

    def test_no_response_is_no_refusal(self) -> None:
        """There is nothing to judge."""
        judge = FakeJudge()
        evaluation = evaluate(long_turn(response=""), metrics=["no_answer"], judge=judge)

        assert [skipped.reason for skipped in evaluation.skipped] == ["the turn has no response"]
        assert judge.calls == []


class TestARefusal:
    METRICS = (*SUITE, "ranking", "reference")

    def run(self, attempt: Any, turn: Turn = REFUSED, metrics: Any = METRICS) -> tuple[Any, list[str]]:
        judge = by_schema({"AnswerAttempt": attempt})
        evaluation = evaluate(turn, metrics=list(metrics), judge=judge)
        return evaluation, [call.schema.__name__ for call in judge.calls]

    def test_is_not_scored_as_an_unsupported_or_incomplete_answer(self) -> None:
        """What judges the response is skipped and says why; what judges the retrieval stands."""
        evaluation, _ = self.run(DECLINED)
        skipped = {result.name: result.reason for result in evaluation.skipped}

        assert {name for name in skipped if not name.startswith("precision@")} == SILENT | {"verdict"}
        assert [result.label for result in evaluation.skipped if result.name == "verdict"] == ["declined"]
        assert {skipped[name] for name in SILENT} == {"the system declined to answer (see no_answer)"}
        assert {"trace.context_relevance", "trace.context_utilization", "umbrela.mean", "mrr"} <= {
            score.name for score in evaluation.scores
        }
        assert not evaluation.failed

    def test_the_judges_words_are_in_no_reason(self) -> None:
        """A reason is shown where texts are hidden, and the judge may quote them."""
        quoting = {"explanation": "It says that Mrs Ada Quill is not its concern.", "attempted": False}
        evaluation, _ = self.run(quoting)
        reasons = " ".join(result.reason for result in evaluation.skipped)

        assert len(evaluation.skipped) >= len(SILENT)
        assert "Quill" not in reasons

    def test_costs_no_further_calls(self) -> None:
        """Nuggets, citations and the reference are not asked about."""
        _, asked = self.run(DECLINED)

        assert sorted(asked) == ["AnswerAttempt", "PassageGrades", "TraceLabels"]

    def test_an_answer_is_scored(self) -> None:
        """The metrics that are skipped for a refusal have scores."""
        evaluation, _ = self.run(ANSWERED)

        assert {score.name for score in evaluation.scores} >= SILENT
        assert {result.name for result in evaluation.skipped} == {"precision@5"}

    def test_counts_only_where_no_answer_runs(self) -> None:
        """No other metric asks the question. Without an answer to it, the rules decide whether "trace" asks at all."""
        evaluation, asked = self.run(DECLINED, metrics=["trace", "citation"])

        assert {"AnswerAttempt", "TraceLabels"}.isdisjoint(asked)
        assert "citation.f1" in {score.name for score in evaluation.scores}
        assert "trace" in {result.name for result in evaluation.skipped}

    def test_if_that_is_not_known_the_response_is_judged(self) -> None:
        """A failing call fails its own score and nothing else."""
        evaluation, _ = self.run(JudgeUnavailableError("down"))

        assert [(failed.name, failed.error_type) for failed in evaluation.failed] == [("no_answer", "unavailable")]
        assert {score.name for score in evaluation.scores} >= SILENT

    def test_in_an_instrumented_application(self) -> None:
        """Likewise, in the background."""
        exporter = InMemoryExporter()
        judge = by_schema({"AnswerAttempt": DECLINED})
        with rageval_hooks.instrument(metrics=list(SUITE), judge=judge, exporters=[exporter]) as handle:
            lcel().invoke("When was the pier opened?")
            assert handle.flush(30)
        [no_answer] = exporter.results("no_answer")
        [adherence] = exporter.results("trace.adherence")

        assert (no_answer.status, getattr(no_answer, "label", None)) == ("scored", "declined")
        assert adherence.status == "skipped"
        assert "TraceLabels" in [call.schema.__name__ for call in judge.calls]
        assert "NuggetAssignments" not in [call.schema.__name__ for call in judge.calls]
