"""UMBRELA: a grade per passage, in one call, and what judges get wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks import ConfigurationError, Evaluation, Passage, Score, Turn, evaluate
from rageval_hooks.errors import JudgeTruncatedError, JudgeUnavailableError
from rageval_hooks.metrics.judged.umbrela import Umbrela
from rageval_hooks.testing import FakeJudge
from tests.judges.server import answer, picky
from tests.metrics.good_judge import by_schema, long_turn, served


def turn(count: int = 3, **fields: Any) -> Turn:
    return long_turn(count, **fields)


def grades(*values: int, start: int = 0) -> dict[str, Any]:
    return {"intent": "to know", "grades": [entry(start + n, value) for n, value in enumerate(values)]}


def entry(passage: int, grade: int, **others: Any) -> dict[str, Any]:
    return {"passage": passage, "grade": grade, "match": grade, "trustworthiness": 3, **others}


def judged(answer: Any, count: int = 3, **settings: Any) -> tuple[Evaluation, FakeJudge]:
    judge = FakeJudge([answer])
    return evaluate(turn(count), metrics=[Umbrela(**settings)], judge=judge), judge


def by_passage(evaluation: Evaluation) -> dict[int | None, float]:
    return {score.target.index: score.value for score in evaluation.scores if score.target.kind == "passage"}


class TestScores:
    def test_a_grade_per_passage_and_their_mean(self) -> None:
        """The passage is named by place and id; the judge's model and the meaning of the grade are there too."""
        evaluation, judge = judged(grades(3, 0, 1))
        first = evaluation.scores[1]

        assert len(judge.calls) == 1
        assert evaluation["umbrela.mean"] == pytest.approx(4 / 3)
        assert by_passage(evaluation) == {0: 3.0, 1: 0.0, 2: 1.0}
        assert (first.name, first.target.kind, first.target.id) == ("umbrela", "passage", "p0")
        assert (first.annotator, first.model, first.metric) == ("LLM", "fake", "umbrela")
        assert first.explanation == "dedicated, exact answer (intent: to know)"
        assert first.metadata["match"] == 3
        assert not evaluation.failed
        assert not evaluation.skipped

    @pytest.mark.parametrize("thought", ["high", 2.5, None, True, [3]])
    def test_only_the_grade_counts(self, thought: Any) -> None:
        """What the judge thought of first may have any form: no grade is lost for it."""
        evaluation, _ = judged({"intent": "", "grades": [entry(0, 3), {**entry(1, 2), "match": thought}, entry(2, 0)]})

        assert by_passage(evaluation) == {0: 3.0, 1: 2.0, 2: 0.0}
        assert [score.metadata["match"] for score in evaluation.scores if score.name == "umbrela"] == [3, None, 0]

    def test_the_mean_explains_itself(self) -> None:
        """How many passages have which grade."""
        evaluation, _ = judged(grades(3, 0, 0))
        mean = evaluation.score("umbrela.mean")

        assert mean is not None
        assert mean.explanation == "grades: 1 x 3, 0 x 2, 0 x 1, 2 x 0"
        assert mean.metadata["grades"] == [3, 0, 0]

    def test_only_the_integer_counts(self) -> None:
        """What the judge thinks of match and trust before it may be missing."""
        evaluation, _ = judged({"intent": "", "grades": [{"passage": n, "grade": 2} for n in range(3)]})

        assert by_passage(evaluation) == {0: 2.0, 1: 2.0, 2: 2.0}

    def test_the_sampling_parameters_of_the_paper(self) -> None:
        """Go with the call."""
        _, judge = judged(grades(1, 1, 1))

        assert judge.calls[0].parameters == {
            "temperature": 0,
            "top_p": 1,
            "seed": 42,
            "presence_penalty": 0.5,
            "frequency_penalty": 0,
        }

    def test_a_model_that_takes_none_of_them(self) -> None:
        """Gets the call again without, and its grades count."""
        reply = picky(answer(grades(3, 2, 1)), parameters=["seed", "presence_penalty", "temperature"])
        with served(reply) as (server, judge):
            evaluation = evaluate(turn(), metrics=["umbrela"], judge=judge)
        first, *_, last = [request.body for request in server.requests]

        assert evaluation["umbrela.mean"] == 2.0
        assert (first["presence_penalty"], first["seed"], first["top_p"]) == (0.5, 42, 1)
        assert not {"seed", "presence_penalty", "temperature"} & last.keys()
        assert last["frequency_penalty"] == 0


class TestCalls:
    def test_one_per_passage_as_in_the_paper(self) -> None:
        """On request; each asks about one passage."""
        judge = by_schema()
        evaluation = evaluate(turn(4), metrics=[Umbrela(per_passage=True)], judge=judge)

        assert sorted(call.messages[-1].content.split("Grade ")[1].split(",")[0] for call in judge.calls) == [
            f"only passage {n}" for n in range(4)
        ]
        assert by_passage(evaluation) == {0: 1.0, 1: 2.0, 2: 3.0, 3: 1.0}

    def test_long_lists_are_cut_into_batches(self) -> None:
        """Of 20; their grades come together."""
        judge = by_schema()
        evaluation = evaluate(turn(45), metrics=["umbrela"], judge=judge)

        assert len(judge.calls) == 3
        assert by_passage(evaluation) == {n: 1.0 + n % 3 for n in range(45)}

    def test_a_failing_batch_fails_its_own_passages(self) -> None:
        """The others have their grades, and the mean says how many it lacks."""

        def fail_second(call: Any) -> Any:
            if "passages 2, 3." in call.prompt.replace(", each by itself", "."):
                return JudgeUnavailableError("the server is down")
            numbers = [0, 1] if "passages 0, 1" in call.prompt else [4]
            return {"intent": "", "grades": [entry(n, 2) for n in numbers]}

        evaluation = evaluate(turn(5), metrics=[Umbrela(batch=2)], judge=by_schema({"PassageGrades": fail_second}))
        [failed] = evaluation.failed
        mean = evaluation.score("umbrela.mean")

        assert by_passage(evaluation) == {0: 2.0, 1: 2.0, 4: 2.0}
        assert (failed.name, failed.error_type) == ("umbrela", "unavailable")
        assert failed.message == "the server is down: passage p2, p3"
        assert mean is not None
        assert mean.explanation is not None
        assert mean.explanation.endswith("; without a grade: 2 of 5")
        assert mean.metadata["left_out"] == 2

    def test_batches_that_fail_differently_are_one_failure(self) -> None:
        """With all reasons: a span has one place for it. The passages without text stay skipped."""
        errors = iter([JudgeUnavailableError("the server is down"), JudgeTruncatedError("cut off")])
        judge = by_schema({"PassageGrades": lambda _: next(errors)})
        passages = [*(Passage(text="Some text.", id=f"p{n}") for n in range(4)), Passage(text=" ", id="p4")]
        evaluation = evaluate(long_turn(passages), metrics=[Umbrela(batch=2)], judge=judge)
        mean, failed = sorted(evaluation.failed, key=lambda result: result.name, reverse=True)

        assert [result.name for result in evaluation.results] == ["umbrela.mean", "umbrela", "umbrela"]
        assert evaluation.results[-1].status == "failed"
        assert mean.message == "the server is down; cut off"
        assert failed.message == "the server is down: passage p0, p1; cut off: passage p2, p3"
        assert failed.metadata["passages"] == [0, 1, 2, 3]

    @pytest.mark.parametrize("batch", [0, -1])
    def test_an_empty_batch_is_refused(self, batch: int) -> None:
        """At construction."""
        with pytest.raises(ConfigurationError, match="batch of umbrela must be at least 1"):
            Umbrela(batch=batch)


class TestWhatJudgesGetWrong:
    @pytest.mark.parametrize(
        ("entries", "expected", "dropped", "message"),
        [
            ([entry(0, 3), entry(2, 1)], {0: 3.0, 2: 1.0}, {}, "the judge said nothing: passage p1"),
            (
                [entry(0, 3), entry(1, 7), entry(2, 1)],
                {0: 3.0, 2: 1.0},
                {"out_of_range": 1},
                "the judge gave a value that is out of range: passage p1",
            ),
            (
                [entry(0, 3), entry(1, -1), entry(2, 1)],
                {0: 3.0, 2: 1.0},
                {"out_of_range": 1},
                "the judge gave a value that is out of range: passage p1",
            ),
            ([entry(0, 3), entry(1, 2), entry(2, 1), entry(3, 3), entry(-1, 3)], None, {"made_up": 2}, None),
            ([entry(0, 3), entry(1, 3), entry(1, 2), entry(2, 1)], None, {"repeated": 1}, None),
            ([entry(0, 3), entry(1, 2), entry(1, 3), entry(2, 1)], None, {"repeated": 1}, None),
            ([entry(0, 3), entry(1, 2), entry(1, 9), entry(2, 1)], None, {"repeated": 1, "out_of_range": 1}, None),
        ],
        ids=["missing", "too high", "too low", "made up", "repeated, lower last", "lower first", "repeated, junk"],
    )
    def test_it_is_dropped_and_counted(self, entries: Any, expected: Any, dropped: Any, message: str | None) -> None:
        """A missing grade is not guessed. Of two grades for one passage, the lower one counts."""
        evaluation, _ = judged({"intent": "", "grades": entries})
        mean = evaluation.score("umbrela.mean")

        assert by_passage(evaluation) == (expected or {0: 3.0, 1: 2.0, 2: 1.0})
        assert [failed.message for failed in evaluation.failed] == ([message] if message else [])
        assert mean is not None
        assert mean.metadata["dropped"] == dropped

    @pytest.mark.parametrize("answer", ["I will not grade.", {"intent": "x"}, grades(), grades(9, 9, 9)])
    def test_without_any_grade_there_is_no_mean(self, answer: Any) -> None:
        """Failures alone, with the judge as annotator."""
        evaluation, _ = judged(answer)

        assert evaluation.scores == ()
        assert {failed.name for failed in evaluation.failed} == {"umbrela", "umbrela.mean"}
        assert {failed.annotator for failed in evaluation.failed} == {"LLM"}

    def test_a_passage_without_text_is_not_asked_about(self) -> None:
        """It is skipped, and the mean leaves it out."""
        passages = (Passage(text="One."), Passage(text=" \n"), Passage(text="Three."))
        judge = FakeJudge([{"intent": "", "grades": [entry(0, 3), entry(1, 3), entry(2, 1)]}])
        evaluation = evaluate(long_turn(passages), metrics=["umbrela"], judge=judge)

        assert "Grade only the passages 0, 2," in judge.calls[0].prompt
        assert [skipped.reason for skipped in evaluation.skipped] == ["there is no text in passage number 2"]
        assert by_passage(evaluation) == {0: 3.0, 2: 1.0}
        assert evaluation["umbrela.mean"] == 2.0

    def test_what_is_missing_is_not_asked(self) -> None:
        """No query, no passages: no call."""
        for lacking in (turn(query=""), turn(0)):
            judge = FakeJudge()
            evaluation = evaluate(lacking, metrics=["umbrela"], judge=judge)
            assert [result.status for result in evaluation.results] == ["skipped"]
            assert judge.calls == []


@given(
    values=st.lists(st.integers(0, 3), min_size=1, max_size=8), data=st.data(), random=st.randoms(use_true_random=False)
)
def test_ranges_order_and_monotonicity(values: list[int], data: Any, random: Any) -> None:
    """The mean lies in 0..3, does not depend on the order of the entries, and does not fall when a grade rises."""
    given = grades(*values)
    evaluation, _ = judged(given, len(values))
    mean = evaluation["umbrela.mean"]
    random.shuffle(given["grades"])
    shuffled, _ = judged(given, len(values))
    raised = data.draw(st.integers(0, len(values) - 1))
    higher, _ = judged(grades(*(min(3, v + (n == raised)) for n, v in enumerate(values))), len(values))

    assert 0 <= mean <= 3
    assert mean == shuffled["umbrela.mean"] <= higher["umbrela.mean"]
    assert all(isinstance(result, Score) for result in evaluation.results)
