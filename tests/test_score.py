"""The rules of a score, and the reasons why a score is missing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from pydantic import TypeAdapter, ValidationError

from rageval_hooks import Evaluation, Failed, Passage, Result, Score, Skipped, Target, Turn
from tests import strategies


@given(strategies.results)
def test_a_result_goes_to_json_and_back(result: Result) -> None:
    """As what it was: a score, a skip or a failure."""
    adapter: TypeAdapter[Result] = TypeAdapter(Result)

    again = adapter.validate_json(adapter.dump_json(result))

    assert again == result
    assert type(again) is type(result)


@given(strategies.evaluations)
def test_an_evaluation_goes_to_json_and_back(evaluation: Evaluation) -> None:
    """In UTF-8, without loss."""
    assert Evaluation.model_validate_json(evaluation.model_dump_json().encode()) == evaluation


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), None, "x"])
def test_only_a_finite_number_is_a_score(value: Any) -> None:
    """What could not be computed is skipped or failed."""
    with pytest.raises(ValidationError, match="value"):
        Score(name="a", value=value)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"probability": 0.0},
        {"probability": 1.1},
        {"annotator": "GUESS"},
        {"target": {"kind": "book"}},
        {"target": {"kind": "passage", "index": -1}},
        {"reason": "x"},
    ],
)
def test_invalid_scores_are_rejected(fields: dict[str, Any]) -> None:
    """An empty name, an impossible probability, an unknown annotator or target, or an unknown field is an error."""
    with pytest.raises(ValidationError):
        Score.model_validate({"name": "a", "value": 1, **fields})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["duration", "durations"])
def test_durations_are_finite(field: str, value: float) -> None:
    """They would not come back from JSON."""
    with pytest.raises(ValidationError, match=field):
        Evaluation(turn=Turn(), **{field: {"a": value} if field == "durations" else value})


@pytest.mark.parametrize(
    "result",
    [
        Score(name="\ud800", value=1, label="\ud800", explanation="\ud800", model="\ud800", target=Target(id="\ud800")),
        Skipped(name="\ud800", reason="\ud800"),
        Failed(name="\ud800", error_type="\ud800", message="\ud800"),
    ],
    ids=["score", "skipped", "failed"],
)
def test_no_text_of_a_result_can_break_an_exporter(result: Any) -> None:
    """A lone surrogate is replaced."""
    assert result.name == "\ufffd"
    result.model_dump_json().encode()


EVALUATION = Evaluation(
    turn=Turn(),
    results=(
        Score(name="relevance", value=0.25, target=Target(kind="passage", index=0)),
        Score(name="relevance", value=0.5),
        Skipped(name="completeness", reason="the turn has no query"),
        Failed(name="adherence", error_type="TimeoutError", message="too slow"),
    ),
)


def test_an_evaluation_sorts_its_results() -> None:
    """By what became of them."""
    assert [score.value for score in EVALUATION.scores] == [0.25, 0.5]
    assert [skipped.name for skipped in EVALUATION.skipped] == ["completeness"]
    assert [failed.name for failed in EVALUATION.failed] == ["adherence"]
    assert [score.value for score in EVALUATION.turn_scores()] == [0.5]


def test_a_score_is_found_by_its_name() -> None:
    """That of the whole turn, not of one of its passages."""
    assert EVALUATION["relevance"] == 0.5
    assert EVALUATION.score("relevance") is EVALUATION.results[1]
    assert EVALUATION.score("completeness") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("completeness", "completeness was skipped: the turn has no query"),
        ("adherence", "adherence failed: TimeoutError: too slow"),
        ("relevnce", "no score named 'relevnce'; there are: relevance"),
    ],
)
def test_a_missing_score_says_why(name: str, message: str) -> None:
    """Skipped, failed, or never asked for."""
    with pytest.raises(KeyError) as raised:
        EVALUATION[name]

    assert raised.value.args == (message,)


def test_an_evaluation_without_scores_says_so() -> None:
    """Rather than listing nothing."""
    with pytest.raises(KeyError, match=r"there are: \(none\)"):
        Evaluation(turn=Turn())["a"]


def test_a_score_of_a_metric_that_was_skipped_says_why() -> None:
    """Also where the metric as a whole was skipped."""
    evaluation = Evaluation(turn=Turn(), results=(Skipped(name="reference", reason="no reference answer"),))

    with pytest.raises(KeyError, match=r"reference\.completeness was skipped: no reference answer"):
        evaluation["reference.completeness"]


def test_a_list_of_evaluations_prints_a_line_each() -> None:
    """A notebook would show 100 lines."""
    results = (Score(name="a", value=0.5), Skipped(name="b", reason="c"))
    evaluation = Evaluation(turn=Turn(query="When?"), results=results)

    assert repr([evaluation]) == "[Evaluation('When?': a=0.5)]"


def test_a_notebook_shows_the_verdict_and_marks_what_is_unsupported() -> None:
    """Every text is escaped; a long one is cut; passages say whether the prompt had them."""
    sentence = "It was built by <Carl>."
    bad = Score(name="verdict", value=0.0, label="bad", explanation="“It was built by <Carl>.”: no passage has Carl")
    evidence = {"sentences": [{"text": sentence, "score": 0.1}], "missing": [{"text": "It was"}, {"text": "1978"}]}
    passages = (Passage(text="The <pier>.", id="p1", score=0.5, in_prompt=False),)
    turn = Turn(query="Who & when?", response=f"{sentence} In 1978. Yes.", reference="Berg", passages=passages)
    html = Evaluation(turn=turn, results=(bad, Score(name="g", value=0.123456, metadata=evidence)))._repr_html_()

    assert "Who &amp; when?" in html
    assert re.findall(r"<mark[^>]*>(.*?)</mark>", html) == ["It was built by &lt;Carl&gt;.", "1978"]
    name, value = r"<td[^>]*left[^>]*>verdict</td>", r"<td[^>]*right[^>]*>0</td>"
    assert re.search(rf"{name}{value}<td[^>]*left[^>]*><span[^>]*>bad</span></td>", html)
    assert "0.1235" in html
    assert "<b>Reference:</b> Berg" in html
    assert re.search(r"<b>1 p1, 0.5, not in the prompt</b> The &lt;pier&gt;\.", html)


def test_a_notebook_shows_what_a_judge_does_not_support() -> None:
    """In the answer, by the judge's words, and which passages are those of earlier turns."""
    first, second = "It was built by Carl.", "It is red."
    judged = [{"text": first, "fully_supported": True}, {"text": second, "fully_supported": False}]
    score = Score(name="grounded", value=0.5, label="fail", metadata={"sentences": judged})
    turn = Turn(response=f"{first} {second}", passages=(Passage(text="Carl built it.", from_turn="t0"),))
    html = Evaluation(turn=turn, results=(score,))._repr_html_()

    assert re.findall(r"<mark[^>]*>(.*?)</mark>", html) == [second]
    assert "<b>1, of an earlier turn</b> Carl built it." in html


def test_a_notebook_says_that_an_answer_declines() -> None:
    """Not only that the verdict was skipped."""
    declined = Skipped(name="verdict", label="not_evaluable", reason="no passages")
    html = Evaluation(turn=Turn(), results=(declined, Failed(name="x", error_type="OSError")))._repr_html_()
    assert re.search(r">not evaluable</td><td[^>]*><div[^>]*>no passages<", html)
    assert re.search(r">failed</td><td[^>]*><div[^>]*>OSError<", html)
