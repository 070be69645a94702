"""The files that come out: whole or not at all, and with the columns that other tools read."""

from __future__ import annotations

import csv
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks import Passage, Score, Skipped, Turn
from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records import read_records, write_records
from rageval_hooks.offline.records.record import Record, TargetText
from rageval_hooks.offline.records.writing import atomic_file, write_output
from rageval_hooks.score import Failed, Result, Target
from rageval_hooks.turn import ErrorInfo


def record(id: str = "q1", run: int = 1, results: tuple[Result, ...] = (), **fields: Any) -> Record:
    turn = Turn(
        id=id,
        query='When, "exactly"?',
        response="In 2019,\nsays the sign.",
        passages=(Passage(text="In 2019.", id="p1"), Passage(text="In May.")),
    )
    return Record(id=id, run=run, turn=turn, results=results, **fields)


def table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class TestAtomic:
    def test_nothing_is_there_until_the_end(self, tmp_path: Path) -> None:
        """And then all of it, and nothing else."""
        path = tmp_path / "a.jsonl"
        path.write_text("old")

        def records() -> Iterator[Record]:
            yield record()
            assert path.read_text() == "old"

        write_records(path, records())

        assert list(read_records(path)) == [record()]
        assert list(tmp_path.iterdir()) == [path]

    def test_lines_are_short_and_lose_nothing(self, tmp_path: Path) -> None:
        """What most records have in common is not written; the number of records is returned."""
        records = [record(), record("q2", answerable=False, more_targets=(TargetText(id="p9", text="In May."),))]
        path = tmp_path / "a.jsonl"

        assert write_records(path, records) == 2
        assert list(read_records(path)) == records
        assert {"answerable", "more_targets"}.isdisjoint(json.loads(path.read_text().splitlines()[0]))

    def test_a_failure_leaves_what_was_there(self, tmp_path: Path) -> None:
        """Without a trace of the attempt."""
        path = tmp_path / "a.jsonl"
        path.write_text("old")

        def records() -> Any:
            yield record()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_records(path, records())
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_permissions_and_links_stay(self, tmp_path: Path) -> None:
        """Only its owner may read a new file: it holds texts."""
        real, link, new = tmp_path / "real", tmp_path / "link", tmp_path / "new"
        real.write_text("old")
        real.chmod(0o640)
        link.symlink_to(real)
        for path in (link, new):
            with atomic_file(path) as file:
                file.write(b"text")

        assert link.is_symlink()
        assert real.read_text() == "text"
        assert stat.S_IMODE(real.stat().st_mode) == 0o640
        assert stat.S_IMODE(new.stat().st_mode) == 0o600

    @pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        """Is the system's own error."""
        tmp_path.chmod(0o500)
        with pytest.raises(PermissionError):
            write_records(tmp_path / "a.jsonl", [])


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\t=1", "'=1+1", "'tis", "-5"],
)
def test_no_text_is_a_formula_in_a_spreadsheet(tmp_path: Path, text: str) -> None:
    """It is written with an apostrophe before it, which reading removes; numbers stay."""
    path = tmp_path / "a.csv"
    found = record()
    written = found.model_copy(update={"turn": found.turn.model_copy(update={"query": text})})
    write_output(path, [written])
    [row] = table(path)

    assert row["query"] == "-5" or row["query"].startswith("'")
    [again] = read_records(path)
    assert again.turn.query == text


RESULTS: tuple[Result, ...] = (
    Score(name="umbrela", value=3.0, target=Target(kind="passage", index=0, id="p1"), metric="umbrela"),
    Score(name="umbrela", value=1.0, target=Target(kind="passage", index=1), metric="umbrela"),
    Score(name="umbrela.mean", value=2.0, metric="umbrela"),
    Score(name="precision@1", value=1.0),
    Score(name="ap@1", value=1.0),
    Score(name="mrr", value=1.0),
    Score(name="nuggets.vital", value=0.5),
    Score(name="nuggets.all", value=0.25),
    Score(name="citation.f1", value=0.8),
    Score(name="no_answer", value=1.0, label="answered"),
    Score(name="hhem", value=0.9),
)


class TestNative:
    def test_a_row_per_answer(self, tmp_path: Path) -> None:
        """A column per score of the whole turn; labels and reasons where there are some."""
        path = tmp_path / "a.csv"
        records = [
            record(
                results=(
                    Score(name="a", value=0.5, label="pass"),
                    Score(name="a", value=0.1, target=Target(kind="passage", index=0)),
                    Skipped(name="b", reason="no passages"),
                )
            ),
            record(run=2, results=(Failed(name="b", error_type="refused", message="the model refused"),), rank=2),
            record(id="q2", results=(Score(name="b", value=1.0),)),
        ]
        write_output(path, records)
        first, second, third = table(path)

        assert list(first) == ["id", "run", "query", "response", "rank", "a", "a.label", "b", "b.reason"]
        assert (first["query"], first["response"]) == ('When, "exactly"?', "In 2019,\nsays the sign.")
        assert (first["a"], first["a.label"], first["b"], first["b.reason"]) == (
            "0.5",
            "pass",
            "",
            "skipped: no passages",
        )
        assert (second["run"], second["rank"], second["a"]) == ("2", "2", "")
        assert second["b.reason"] == "failed: refused: the model refused"
        assert (third["id"], third["b"], third["b.reason"]) == ("q2", "1.0", "")

    def test_it_is_read_back(self, tmp_path: Path) -> None:
        """With its scores, labels, reasons, ranks and errors: report and plot take tables too."""
        path = tmp_path / "a.csv"
        failed = record(id="q2")
        error = {"status": "error", "error": ErrorInfo(type="TimeoutError", message="too slow")}
        records = [
            record(
                results=(
                    Score(name="a", value=0.5, label="pass"),
                    Skipped(name="b", reason="no"),
                    Failed(name="c", error_type="refused", message="it: refused"),
                ),
                rank=2,
                target="p1",
                document="a.md",
            ),
            failed.model_copy(update={"turn": failed.turn.model_copy(update=error)}),
        ]
        write_output(path, records)
        first, second = read_records(path)

        assert (first.key, first.rank, first.target, first.document) == (("q1", 1), 2, "p1", "a.md")
        assert first.results == records[0].results
        assert second.results == ()
        assert second.turn.error is not None
        assert "too slow" in second.turn.error.message

    def test_scores_of_other_metrics_are_read_back(self, tmp_path: Path) -> None:
        """Scores are recognized by the column next to them, whatever their names."""
        path = tmp_path / "a.csv"
        results = (
            Score(name="year", value=3.0),
            Score(name="answer", value=1.0),
            Score(name="x.probability", value=2.0),
        )
        write_output(path, [record(results=results)])

        [read] = read_records(path)
        assert read.results == results
        assert read.turn.response == record().turn.response

    def test_the_probability_of_a_sampled_turn(self, tmp_path: Path) -> None:
        """Is a column where there are some: the report weighs by it."""
        path = tmp_path / "a.csv"
        sampled = (Score(name="groundedness", value=0.5, probability=0.1), Score(name="hhem", value=0.5))
        records = [record(results=sampled), record(id="q2", results=(Score(name="groundedness", value=1.0),))]
        write_output(path, records)

        assert [row["groundedness.probability"] for row in table(path)] == ["0.1", ""]
        assert "hhem.probability" not in table(path)[0]
        assert [item.results for item in read_records(path)] == [item.results for item in records]


class TestOpenRagEval:
    def test_a_row_per_question(self, tmp_path: Path) -> None:
        """With the columns that Open RAG Eval lists."""
        path = tmp_path / "a.csv"
        write_output(path, [record(results=RESULTS)], "open-rag-eval")
        [row] = table(path)

        assert (row["query_id"], row["query"]) == ("q1", 'When, "exactly"?')
        assert json.loads(row["run_1_retrieval_score_umbrela_scores"]) == {"p1": 3, "2": 1}
        assert float(row["run_1_retrieval_score_mean_umbrela_score"]) == 2.0
        assert float(row["run_1_generation_score_vital_nuggetizer_score"]) == 0.5
        assert float(row["run_1_generation_score_hallucination_score"]) == 0.9
        assert float(row["run_1_generation_score_citation_f1_score"]) == 0.8
        assert json.loads(row["run_1_generation_score_no_answer_score"]) == {"query_answered": "yes"}
        assert json.loads(row["run_1_retrieval_score_precision_metrics"]) == {
            "precision@": {"1": 1.0},
            "AP@": {"1": 1.0},
            "MRR": 1.0,
        }
        assert json.loads(row["run_1_retrieved_passages"]) == {"p1": "In 2019.", "2": "In May."}

    def test_runs_stand_side_by_side(self, tmp_path: Path) -> None:
        """A question has one row, wherever its runs are in the file."""
        path = tmp_path / "a.csv"
        declined = (Score(name="no_answer", value=0.0), Skipped(name="hhem", reason="no model"))
        records = [record(results=RESULTS), record(id="q2", results=RESULTS), record(run=2, results=declined)]
        write_output(path, records, "open-rag-eval")
        rows = {row["query_id"]: row for row in table(path)}

        assert list(rows) == ["q1", "q2"]
        assert list(rows["q1"])[:3] == ["query_id", "query", "run_1_retrieved_passages"]
        assert float(rows["q1"]["run_1_generation_score_hallucination_score"]) == 0.9
        assert rows["q1"]["run_2_generation_score_hallucination_score"] == ""
        assert json.loads(rows["q1"]["run_2_generation_score_no_answer_score"]) == {"query_answered": "no"}
        assert rows["q2"]["run_2_generated_answer"] == ""

    def test_its_names_and_its_consistency(self, tmp_path: Path) -> None:
        """Of nuggets, citations and repeated scores, as open-rag-eval 0.3.0 writes them."""
        path = tmp_path / "a.csv"
        nuggets = [
            {"text": "opened in 2019", "importance": "vital", "support": "support"},
            {"text": "in May", "importance": "okay", "support": "not_support"},
        ]
        results = (
            Score(name="nuggets.all_strict", value=0.5, metadata={"nuggets": nuggets}),
            Score(name="citation.precision", value=0.25),
            Score(name="citation.f1", value=0.5),
        )
        other = (Score(name="citation.f1", value=0.9),)
        write_output(path, [record(results=results), record(run=2, results=other)], "open-rag-eval")
        [row] = table(path)

        assert json.loads(row["run_1_generation_score_autonugget_scores"]) == {
            "nuggetizer_scores": {"All Strict": 0.5},
            "nuggets": ["opened in 2019", "in May"],
            "labels": ["vital", "okay"],
            "assignments": ["support", "not_support"],
        }
        assert json.loads(row["run_1_generation_score_citation_scores"]) == {"weighted_precision": 0.25, "f1": 0.5}
        found = json.loads(row["consistency_citation_f1_score"])
        assert found["values"] == [0.5, 0.9]
        assert found["stats"] == pytest.approx(
            {
                "mean": 0.7,
                "median": 0.7,
                "std": 0.2,
                "max_min": 0.4,
                "iqr": 0.2,
                "consistency_adjusted_index": 0.7 / 1.2,
            }
        )
        assert row["consistency_hallucination_score"] == ""

    def test_the_similarity_of_repeated_answers(self, tmp_path: Path) -> None:
        """ROUGE-L, one value per pair of answers, as that tool's plots read them."""
        path = tmp_path / "a.csv"
        texts = ["The pier opened in 1869.", "The pier opened.", "The pier opened in 1869."]
        records = [
            given.model_copy(update={"turn": given.turn.model_copy(update={"response": text})})
            for run, text in enumerate(texts, 1)
            for given in [record(run=run)]
        ]
        write_output(path, records, "open-rag-eval")
        [row] = table(path)

        rouge = json.loads(row["consistency_rouge_score"])
        assert rouge["values"] == pytest.approx([0.75, 1.0, 0.75])
        assert rouge["stats"]["median"] == pytest.approx(0.75)

    @pytest.mark.parametrize("runs", [1, 2])
    def test_its_plots_loader_reads_it(self, runs: int, tmp_path: Path) -> None:
        """By its rules: numbers of a column with the plain name or that of the first run, empty cells ignored; the
        share of questions answered from the objects in the column of the no-answer score."""
        import pandas

        path = tmp_path / "a.csv"
        nothing = (Skipped(name="hhem", reason="no model"), Skipped(name="no_answer", reason="no response"))
        records = [record(id=f"q{n}", run=run, results=RESULTS) for n in range(3) for run in range(1, runs + 1)]
        records.append(record(id="empty", results=nothing))
        records.append(record(id="declined", results=(Score(name="no_answer", value=0.0),)))
        write_output(path, records, "open-rag-eval")
        frame = pandas.read_csv(path)

        def column(name: str) -> str:
            return name if name in frame.columns else f"run_1_{name}"

        values = {name: frame[column(name)].dropna().tolist() for name in PLOTTED}
        answers = [json.loads(cell) for cell in frame[column("generation_score_no_answer_score")].dropna()]
        assert values == {name: [value] * 3 for name, value in PLOTTED.items()}
        assert [answer["query_answered"] for answer in answers] == ["yes", "yes", "yes", "no"]

    def test_its_viewer_reads_it(self, tmp_path: Path) -> None:
        """Its viewer takes the grades for an object, without a check, in every run that any question has."""
        path = tmp_path / "a.csv"
        records = [record(results=()), record(run=2, results=RESULTS), record(id="q2", results=RESULTS)]
        write_output(path, records, "open-rag-eval")
        grades = [
            [json.loads(row[f"run_{run}_retrieval_score_umbrela_scores"]) for run in (1, 2)] for row in table(path)
        ]

        grade = {"p1": 3, "2": 1}
        assert grades == [[{}, grade], [grade, {}]]

    def test_it_is_not_read_back(self, tmp_path: Path) -> None:
        """The error lists its columns: reports are made from the ``.jsonl`` output."""
        path = tmp_path / "a.csv"
        write_output(path, [record(results=RESULTS)], "open-rag-eval")
        with pytest.raises(TurnError, match=r"(?s)no column for the response.*run_1_generated_answer"):
            list(read_records(path))

    def test_passages_with_one_id(self, tmp_path: Path) -> None:
        """Are all there, with their grades."""
        path = tmp_path / "a.csv"
        passages = (
            Passage(text="one", id="d"),
            Passage(text="two"),
            Passage(text="three", id="d"),
            Passage(text="4", id="2"),
        )
        grades = tuple(Score(name="umbrela", value=n, target=Target(kind="passage", index=n)) for n in range(4))
        given = record(results=grades)
        turn = given.turn.model_copy(update={"passages": passages})
        write_output(path, [given.model_copy(update={"turn": turn})], "open-rag-eval")

        [row] = table(path)
        assert json.loads(row["run_1_retrieved_passages"]) == {"d": "one", "2-2": "two", "d-2": "three", "2": "4"}
        assert json.loads(row["run_1_retrieval_score_umbrela_scores"]) == {"d": 0, "2-2": 1, "d-2": 2, "2": 3}


PLOTTED = {
    "retrieval_score_mean_umbrela_score": 2.0,
    "generation_score_vital_nuggetizer_score": 0.5,
    "generation_score_hallucination_score": 0.9,
    "generation_score_citation_f1_score": 0.8,
}
"""The plot shows these by default, in addition to the number of answered questions."""
