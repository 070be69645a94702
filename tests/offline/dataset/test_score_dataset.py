"""score_dataset and evaluate: data frames, lists, dicts and files in, a data frame out."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest

import rageval_hooks
from rageval_hooks import ConfigurationError, Passage, Turn, TurnError
from rageval_hooks.offline.records import Record
from rageval_hooks.testing import FakeJudge
from tests.online.test_judge_stage import LABELS

ROWS: list[dict[str, Any]] = [
    {"question": "When was it opened?", "answer": "It was opened in 2019.", "contexts": ["It was opened in 2019."]},
    {
        "question": "Who built <it>?",
        "answer": "Then <b>Carl Carlsson</b> built it in 1978.",
        "contexts": ["It is a pier."],
    },
]
score = partial(rageval_hooks.score_dataset, models="lexical", metrics="groundedness,unsupported_facts", progress=False)


def jsonl(folder: Path) -> Path:
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def turns() -> list[Turn]:
    return [
        Turn(query=row["question"], response=row["answer"], passages=tuple(Passage(text=t) for t in row["contexts"]))
        for row in ROWS
    ]


SOURCES: dict[str, Any] = {
    "dicts": lambda folder: ROWS,
    "turns": lambda folder: turns(),
    "turns as dicts": lambda folder: [turn.model_dump() for turn in turns()],
    "evaluations": lambda folder: score(ROWS).evaluations,
    "lines of scored files": lambda folder: [{"turn": turn.model_dump(), "results": []} for turn in turns()],
    "records": lambda folder: [Record(id=f"q{number}", turn=turn) for number, turn in enumerate(turns())],
    "path": jsonl,
    "pandas": lambda folder: pandas.DataFrame(ROWS, index=["a", "b"]),
    "arrow": lambda folder: pyarrow.Table.from_pylist(ROWS),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_any_source(source: Any, tmp_path: Path) -> None:
    """Gives the same scores, in the order of the rows."""
    frame = score(source(tmp_path))
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["unsupported_facts"]) == [0, 2]
    assert list(frame["groundedness.label"]) == ["pass", "fail"]
    assert frame.evaluations[1]["unsupported_facts"] == 2


def test_a_data_frame_keeps_its_columns_and_its_index() -> None:
    """Scores are added; other libraries read the result by the Arrow protocol."""
    given = pandas.DataFrame([{**row, "model": "m"} for row in ROWS], index=["a", "b"])
    frame = score(given)
    assert list(frame.index) == ["a", "b"]
    assert list(frame.columns[:4]) == ["question", "answer", "contexts", "model"]
    assert "groundedness" not in given.columns
    assert pyarrow.table(frame[["model", "groundedness"]]).num_rows == 2


TYPES = {
    "votes": [2**62 + 1, None],
    "flag": [True, None],
    "when": [datetime(2020, 1, 1, 12), None],
    "day": [date(2020, 1, 1), None],
    "meta": [{"a": 1, "tags": ["x"]}, {"a": None, "tags": []}],
}


def test_polars_and_back() -> None:
    """Every column keeps its type, and the scores are added."""
    polars = pytest.importorskip("polars")
    given = polars.DataFrame({name: [row[name] for row in ROWS] for name in ROWS[0]} | TYPES)
    given = given.with_columns(polars.Series("source", ["a", "b"], dtype=polars.Categorical))
    frame = score(given)
    assert list(frame["unsupported_facts"]) == [0, 2]
    back = polars.DataFrame(frame)
    assert back.select(given.columns).equals(given)
    assert back.select(given.columns).schema == given.schema
    assert back["groundedness"].dtype == polars.Float64


def test_arrow_and_back() -> None:
    """Likewise, with the nulls of whole numbers."""
    given = pyarrow.table({name: [row[name] for row in ROWS] for name in ROWS[0]} | TYPES)
    back = pyarrow.table(score(given)).select(given.column_names)
    assert back.schema.types == given.schema.types
    assert back.to_pylist() == given.to_pylist()


def test_a_judge_and_a_running_event_loop() -> None:
    """As in a notebook; the asynchronous twin gives the same."""
    judge = FakeJudge(lambda call: LABELS)

    async def cell() -> tuple[Any, Any]:
        return (
            score(ROWS, metrics="trace", judge=judge),
            await rageval_hooks.ascore_dataset(ROWS, metrics="trace", judge=judge, progress=False),
        )

    one, other = asyncio.run(cell())
    assert list(one["trace.adherence"]) == list(other["trace.adherence"]) == [1, 1]


def test_one_turn_and_a_running_event_loop() -> None:
    """The asynchronous twin of ``evaluate`` gives the same, also from a judge that belongs to no loop."""
    judge = FakeJudge(lambda call: LABELS)
    [row, *_] = ROWS

    found = asyncio.run(rageval_hooks.aevaluate(row, metrics="trace", judge=judge))

    assert found["trace.adherence"] == rageval_hooks.evaluate(row, metrics="trace", judge=judge)["trace.adherence"] == 1


class Interrupting(FakeJudge):
    """Never answers, and interrupts the main thread as Ctrl-C does."""

    was_cancelled = False

    async def complete(self, *arguments: Any, **options: Any) -> Any:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled = True


def test_an_interrupted_cell_asks_no_more() -> None:
    judge = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        score(ROWS, metrics="trace", judge=judge, concurrency=1)
    assert judge.was_cancelled


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"question": "q?", "gpt_reply": "It is a long reply."}], r"no column for the response.*'gpt_reply'"),
        (
            [*ROWS, {"question": "q?", "answer": ["a", "b"]}],
            r"1 of 3 rows cannot be used: row 2: the response.*'keep'",
        ),
        ([], "there are no rows"),
        (7, "data is a int"),
        (ROWS[0], "data is a dict"),
        ([*ROWS, 7], "1 of 3 rows cannot be used: row 2: it is a int, neither a dict nor a turn"),
        ([*ROWS, *["x"] * 4], r"4 of 6 rows .*row 2: .*row 3: .*row 4: [^:]* …\."),
    ],
)
def test_what_is_wrong_is_one_error(data: Any, message: str) -> None:
    """It names the row and says what to do."""
    with pytest.raises(TurnError, match=message):
        score(data)


def test_without_tqdm_there_is_no_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert len(score(ROWS, metrics="unsupported_facts", progress=True)) == len(ROWS)
    assert capsys.readouterr().err == ""


def test_a_wrong_choice_for_bad_rows() -> None:
    """Before anything is scored."""
    with pytest.raises(ConfigurationError, match="bad_rows is 'drop': it must be 'raise' or 'keep'"):
        score(ROWS, bad_rows="drop")


def test_columns_of_a_list() -> None:
    """Its ids, texts and reference answers, then values and labels. A reason for every row is no column."""
    rows = [{**ROWS[0], "id": "q7", "ground_truth": "In 2019."}, {**ROWS[1], "id": "q8"}]
    frame = score(rows, metrics="groundedness,hhem")
    assert list(frame.columns) == [
        "id",
        "query",
        "response",
        "passages",
        "reference",
        "groundedness",
        "groundedness.label",
    ]
    assert list(frame.iloc[0])[:5] == ["q7", ROWS[0]["question"], ROWS[0]["answer"], ROWS[0]["contexts"], "In 2019."]
    assert list(frame.attrs["skipped"]) == ["hhem"]
    assert frame.attrs["skipped"]["hhem"].startswith("skipped: ")
    assert "reference" not in score(ROWS).columns


def test_other_columns_and_bad_rows() -> None:
    """A mapping names the columns; rows that cannot be used may stay, without scores."""
    rows = [{"ask": row["question"], "reply": row["answer"], "found": {"hits": row["contexts"]}} for row in ROWS]
    mapping = {"query": "ask", "response": "reply", "passages": "found.hits"}
    frame = score([*rows, {"ask": "q?", "reply": ["a", "b"]}], mapping=mapping, bad_rows="keep")
    assert list(frame["unsupported_facts"])[:2] == [0, 2]
    assert pandas.isna(frame["unsupported_facts"][2])
    assert frame["error"][2].startswith("the response is a list of 2 items")


def test_answers_without_questions() -> None:
    """Metrics that compare an answer with its passages need no question; others say what is missing."""
    rows = [{"answer": row["answer"], "contexts": row["contexts"]} for row in ROWS]
    assert list(score(rows)["unsupported_facts"]) == [0, 2]
    assert list(score([{**row, "question": None} for row in rows])["unsupported_facts"]) == [0, 2]
    assert rageval_hooks.evaluate(rows[1], metrics="unsupported_facts", models="lexical")["unsupported_facts"] == 2
    with pytest.raises(TurnError, match="no column for the query"):
        score(rows, metrics="unsupported_facts,answer_relevance")
    with pytest.raises(TurnError, match="no column for the query"):
        rageval_hooks.evaluate(rows[1], models="lexical")


def test_a_notebook_shows_the_worst_answer_first() -> None:
    """With its unsupported sentences marked; texts are escaped, and parts of the frame are plain frames."""
    frame = score(ROWS)
    html = frame._repr_html_()
    assert html.index("Who built &lt;it&gt;?") < html.index("When was it opened?")
    assert "Then &lt;b&gt;Carl Carlsson&lt;/b&gt; built it in 1978.</mark>" in html
    assert "<b>Carl" not in html
    assert type(frame.head(1)) is pandas.DataFrame


def test_of_answers_without_labels_the_lowest_score_is_the_worst() -> None:
    """In either order of the rows."""
    off_topic = {**ROWS[0], "question": "Who sells ferry tickets?", "answer": "A bakery is near the old lighthouse."}
    for rows in ([ROWS[0], off_topic], [off_topic, ROWS[0]]):
        frame = score(rows, metrics="answer_relevance")
        assert frame["answer_relevance"][rows.index(off_topic)] < 1
        assert off_topic["question"] in frame._repr_html_().partition("</summary>")[0]


def test_a_dict_is_evaluated() -> None:
    """Under any of the names that `score` accepts; what is missing is said."""
    evaluation = rageval_hooks.evaluate(ROWS[1], metrics="unsupported_facts", models="lexical")
    assert evaluation["unsupported_facts"] == 2
    assert "<mark" in evaluation._repr_html_()
    for wrong, message in (
        ({"question": "q?"}, "no column for the response"),
        ({"question": "q?", "answer": "a", "rank": "first"}, "the rank is .first., not a whole number"),
        (7, "the turn is a int: pass a"),
    ):
        with pytest.raises(TurnError, match=message):
            rageval_hooks.evaluate(wrong, models="lexical")  # type: ignore[arg-type]
