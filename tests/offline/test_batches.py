"""``ScoreBatches``: the function that Ray, Spark and Dask call; see tests/e2e/test_ray.py for these."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pandas
import pyarrow
import pytest

import rageval_hooks
from rageval_hooks.errors import JudgeUnavailableError
from rageval_hooks.testing import FakeJudge

ROWS: dict[str, list[Any]] = {
    "question": ["When was the pier opened?", "When?", 3],
    "answer": ["In 2018.", "In 2019.", None],
    "contexts": [["It was opened in 2019."], ["It was opened in 2019."], None],
    "mine": [1, 2, 3],
}


@pytest.fixture(scope="module")
def score() -> rageval_hooks.ScoreBatches:
    return rageval_hooks.ScoreBatches(metrics="groundedness,unsupported_facts", models="lexical")


def test_a_batch_keeps_its_rows_and_gets_the_scores_of_score_dataset(score: rageval_hooks.ScoreBatches) -> None:
    frame = pandas.DataFrame(ROWS, index=[7, 8, 9])
    scored = score(frame)
    local = rageval_hooks.score_dataset(
        frame, metrics="groundedness,unsupported_facts", models="lexical", bad_rows="keep", progress=False
    )
    assert list(scored.index) == [7, 8, 9]
    assert list(scored["mine"]) == [1, 2, 3]
    for name in ("groundedness", "unsupported_facts", "groundedness.label", "unsupported_facts.label"):
        assert list(scored[name].dropna()) == list(local[name].dropna())
    assert list(scored["unsupported_facts"][:2]) == [1, 0]
    results = json.loads(scored["rageval_results"][7])
    assert [result["name"] for result in results] == ["groundedness", "unsupported_facts"]
    assert "2018" in results[1]["explanation"]


def test_every_batch_has_the_same_columns(score: rageval_hooks.ScoreBatches) -> None:
    """Also an empty one, and after pickling: clusters need the schema before they see a row."""
    frame = pandas.DataFrame(ROWS)
    types = score(frame).dtypes
    assert list(types.index) == [*ROWS, *score.columns]
    assert list(score.columns)[:3] == ["groundedness", "groundedness.label", "groundedness.reason"]
    for batch in (frame.head(0), frame.tail(1), frame.head(1)):
        found = pickle.loads(pickle.dumps(score))(batch).dtypes
        assert list(found.index) == list(types.index)
        assert found[score.columns.keys()].equals(types[score.columns.keys()])
    assert {kind for name, kind in score.columns.items() if str(types[name]) == "float64"} == {"double"}


def test_batches_are_frames_dicts_or_arrow_tables(score: rageval_hooks.ScoreBatches) -> None:
    columns = {name: values[:2] for name, values in ROWS.items()}
    expected = list(score(pandas.DataFrame(columns))["groundedness"])
    assert list(score(columns)["groundedness"]) == expected
    assert list(score(pyarrow.table(columns))["groundedness"]) == expected


def test_rows_that_cannot_be_used_say_why(score: rageval_hooks.ScoreBatches) -> None:
    """Also if they are all rows of the batch: the next batch may be better."""
    batch = pandas.DataFrame(
        {"question": ["Why?", "When?"], "answer": ["Because.", "In 2018."], "contexts": [["x"]] * 2}
    )
    batch["run"] = ["zero", 1]
    scored = score(batch)
    assert scored["rageval_error"][0] == "the run is 'zero': give a whole number from 1"
    assert scored["rageval_results"].notna().tolist() == scored["groundedness"].notna().tolist() == [False, True]
    assert score(batch.head(1))["rageval_error"].notna().all()


def test_a_judge_object_and_wrong_names_are_errors() -> None:
    with pytest.raises(rageval_hooks.ConfigurationError, match="judge must be a name"):
        rageval_hooks.ScoreBatches(judge=object())  # type: ignore[arg-type]
    with pytest.raises(rageval_hooks.ConfigurationError, match="groundednes"):
        rageval_hooks.ScoreBatches(metrics="groundednes")


DOWN = FakeJudge(lambda call: JudgeUnavailableError("no connection"))


def test_a_judge_that_does_not_work_is_an_error() -> None:
    """Also next to local scores: a cluster should not write a million rows without judgements."""
    score = rageval_hooks.ScoreBatches(metrics="groundedness,trace", models="lexical", judge=f"{__name__}:DOWN")
    with pytest.raises(JudgeUnavailableError, match="no connection"):
        score({name: values[:1] for name, values in ROWS.items()})
