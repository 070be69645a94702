"""What is understood of the files that people have."""

from __future__ import annotations

import bz2
import contextlib
import csv
import datetime
import gc
import gzip
import json
import lzma
import os
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks import ConfigurationError, Evaluation, Passage, Score, Skipped, Turn
from rageval_hooks.errors import TurnError
from rageval_hooks.exporters.jsonl import JsonlExporter
from rageval_hooks.offline.records import Record, read_records, write_records
from rageval_hooks.offline.records.formats import BadRow
from rageval_hooks.offline.records.reading import ReadOptions, read_items
from rageval_hooks.offline.testsets.testset import read_questions
from rageval_hooks.score import Failed
from tests.strategies import turns

QUERY = "When was the pier opened?"
RESPONSE = "It was opened in 2019."
PASSAGE = "The new pier was opened in September 2019."
REFERENCE = "In 2019."


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def write_csv(path: Path, rows: list[Mapping[str, Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path: Path, **options: Any) -> tuple[list[Record], list[BadRow]]:
    bad: list[BadRow] = []
    return list(read_records(path, on_bad=bad.append, **options)), bad


def core(record: Record) -> tuple[str, str, list[str], str | None]:
    turn = record.turn
    return turn.query, turn.response, [passage.text for passage in turn.passages], turn.reference


WANTED = (QUERY, RESPONSE, [PASSAGE], REFERENCE)

NAMES = {
    "ours": {"query": QUERY, "response": RESPONSE, "passages": [PASSAGE], "reference": REFERENCE},
    "ragas": {"user_input": QUERY, "retrieved_contexts": [PASSAGE], "response": RESPONSE, "reference": REFERENCE},
    "ragas 0.1": {"question": QUERY, "contexts": [PASSAGE], "answer": RESPONSE, "ground_truth": REFERENCE},
    "ragas 0.0": {"question": QUERY, "contexts": [PASSAGE], "answer": RESPONSE, "ground_truths": [REFERENCE]},
    "deepeval": {
        "input": QUERY,
        "actual_output": RESPONSE,
        "retrieval_context": [PASSAGE],
        "expected_output": REFERENCE,
        "context": ["the golden context"],
    },
    "deepeval's API": {
        "input": QUERY,
        "actualOutput": RESPONSE,
        "retrievalContext": [PASSAGE],
        "expectedOutput": REFERENCE,
    },
    "a spreadsheet": {
        "Question": QUERY,
        "Generated Answer": RESPONSE,
        "Contexts": [PASSAGE],
        "Ground Truth": REFERENCE,
    },
}


class TestNames:
    @pytest.mark.parametrize("row", NAMES.values(), ids=NAMES)
    def test_other_tools_names_are_accepted(self, row: dict[str, Any], tmp_path: Path) -> None:
        """In JSON Lines, in a JSON array, in CSV with lists as JSON or as Python writes them, and in Parquet."""
        import pyarrow
        import pyarrow.parquet

        as_json = {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()}
        as_python = {name: str(value) for name, value in row.items()}
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "a.parquet")
        (tmp_path / "a.json").write_text(json.dumps([row]))
        files = [
            write_lines(tmp_path / "a.jsonl", [row]),
            write_csv(tmp_path / "a.csv", [as_json]),
            write_csv(tmp_path / "b.csv", [as_python]),
            tmp_path / "a.json",
            tmp_path / "a.parquet",
        ]
        for file in files:
            [record] = read_records(file)
            assert core(record) == WANTED, file
            assert (record.id, record.run, record.turn.id) == ("1", 1, "1")

    def test_what_no_field_takes_is_metadata(self, tmp_path: Path) -> None:
        """Beside what the row calls its metadata; citations are kept there too."""
        row = {**NAMES["ours"], "category": "piers", "metadata": {"topic": 1}, "citations": ["p1"], "empty": None}
        [record] = read_records(write_lines(tmp_path / "a.jsonl", [row]))

        assert record.turn.metadata == {"topic": 1, "category": "piers", "citations": [{"id": "p1"}]}

    @pytest.mark.parametrize(
        ("passages", "expected"),
        [
            ({"text": "one", "id": "p1"}, [("p1", "one")]),
            ({"p1": "one", "p2": {"text": "two"}}, [("p1", "one"), ("p2", "two")]),
        ],
        ids=["one passage", "by id"],
    )
    def test_passages_in_one_object(self, passages: Any, expected: list[tuple[str, str]], tmp_path: Path) -> None:
        [record] = read_records(write_lines(tmp_path / "a.jsonl", [{**NAMES["ours"], "passages": passages}]))

        assert [(passage.id, passage.text) for passage in record.turn.passages] == expected

    def test_an_answer_that_is_a_date(self, tmp_path: Path) -> None:
        """Tables with types have it as one."""
        import pyarrow
        import pyarrow.parquet

        row = {**NAMES["ours"], "response": datetime.date(2019, 5, 1)}
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "a.parquet")
        [record] = read_records(tmp_path / "a.parquet")

        assert record.turn.response == "2019-05-01"

    def test_passages_are_texts_or_objects(self, tmp_path: Path) -> None:
        """With the names that frameworks have for their parts."""
        passages = [
            "plain",
            {"text": "ours", "id": "p1", "score": 0.5, "metadata": {"page": 3}},
            {"page_content": "LangChain's", "metadata": {"source": "a.md"}, "id": 7},
            {"content": "with more", "similarity": 1, "page": 2},
        ]
        [record] = read_records(write_lines(tmp_path / "a.jsonl", [{**NAMES["ours"], "passages": passages}]))

        assert record.turn.passages == (
            Passage(text="plain"),
            Passage(text="ours", id="p1", score=0.5, metadata={"page": 3}),
            Passage(text="LangChain's", id="7", metadata={"source": "a.md"}),
            Passage(text="with more", score=1.0, metadata={"page": 2}),
        )

    def test_a_single_text_is_one_passage(self, tmp_path: Path) -> None:
        """Also one that begins like a list."""
        rows = [{**NAMES["ours"], "passages": text} for text in ("one text", "[1] a note", "[not json")]
        records, bad = read(write_csv(tmp_path / "a.csv", rows))

        assert [[p.text for p in record.turn.passages] for record in records] == [
            ["one text"],
            ["[1] a note"],
            ["[not json"],
        ]
        assert not bad

    def test_texts_that_look_like_json(self, tmp_path: Path) -> None:
        """Stay what they are in JSON Lines, and in a table unless they are lists or objects of texts."""
        mapping, numbers = '{"a": 1}', "[1, 2]"
        rows = [
            {**NAMES["ours"], "response": text, "passages": [text], "reference": text} for text in (mapping, numbers)
        ]
        rows += [{**NAMES["ours"], "passages": text} for text in (mapping, numbers)]
        lines, bad = read(write_lines(tmp_path / "a.jsonl", rows))
        table, _ = read(write_csv(tmp_path / "a.csv", [{**row, "passages": row["passages"][0]} for row in rows[:2]]))

        assert not bad
        assert [core(record)[1:] for record in lines[:2]] == [
            (mapping, [mapping], mapping),
            (numbers, [numbers], numbers),
        ]
        assert [core(record)[2] for record in lines[2:]] == [[mapping], [numbers]]
        assert [core(record)[3] for record in table] == [mapping, numbers]

    @pytest.mark.parametrize("value", [False, 0, "False", "0", None, "", []])
    def test_an_error_column_that_says_there_was_none(self, value: Any, tmp_path: Path) -> None:
        """Makes no error of a turn."""
        [record] = read_records(write_lines(tmp_path / "a.jsonl", [{**NAMES["ours"], "error": value}]))
        assert (record.turn.status, record.turn.error) == ("ok", None)

    @pytest.mark.parametrize("suffix", ["jsonl", "csv"])
    def test_a_column_of_turn_numbers(self, suffix: str, tmp_path: Path) -> None:
        """Is metadata, as any other column."""
        row = {"question": QUERY, "answer": RESPONSE, "contexts": PASSAGE, "turn": 1}
        write = write_lines if suffix == "jsonl" else write_csv
        [record] = read_records(write(tmp_path / f"a.{suffix}", [row]))

        assert record.turn.query == QUERY
        assert str(record.turn.metadata["turn"]) == "1"

    def test_rows_without_an_id_among_others(self, tmp_path: Path) -> None:
        """Take none of theirs."""
        rows = [{**NAMES["ours"], "id": 2}, NAMES["ours"], {**NAMES["ours"], "id": 3}]
        records, bad = read(write_lines(tmp_path / "a.jsonl", rows))

        assert [record.id for record in records] == ["2", "row-2", "3"]
        assert not bad

    def test_a_conversation_asks_its_last_question(self, tmp_path: Path) -> None:
        """Ragas' multi-turn samples."""
        said = [
            {"content": "Hello", "type": "human"},
            {"content": "Hi", "type": "ai"},
            {"content": QUERY, "type": "human"},
        ]
        row = {"user_input": said, "retrieved_contexts": [PASSAGE], "response": RESPONSE}
        [record] = read_records(write_lines(tmp_path / "a.jsonl", [row]))

        assert record.turn.query == QUERY

    @pytest.mark.parametrize("column", ["messages", "conversation"])
    def test_a_question_and_its_answer_are_of_one_exchange(self, column: str, tmp_path: Path) -> None:
        """A log that ends with a question has no answer to it."""
        said = [
            {"role": "user", "content": QUERY},
            {"role": "assistant", "content": RESPONSE},
            {"role": "user", "content": "And who built the lighthouse?"},
        ]
        row = {column: said, "contexts": [PASSAGE]}
        [record] = read_records(write_lines(tmp_path / "a.jsonl", [row]))

        assert (record.turn.query, record.turn.response) == (QUERY, RESPONSE)

    def test_ids_and_runs_are_kept(self, tmp_path: Path) -> None:
        """Under their names in open-rag-eval too; numbers are fine."""
        rows = [{**NAMES["ours"], "query_id": 5, "query_run": run} for run in (1, 2)]
        assert [record.key for record in read_records(write_lines(tmp_path / "a.jsonl", rows))] == [("5", 1), ("5", 2)]

    def test_columns_as_lists(self, tmp_path: Path) -> None:
        """As ``Dataset.to_dict`` writes them."""
        (tmp_path / "a.json").write_text(json.dumps({name: [value, value] for name, value in NAMES["ragas"].items()}))
        assert [core(record) for record in read_records(tmp_path / "a.json")] == [WANTED, WANTED]


class TestWhatIsWrong:
    @pytest.mark.parametrize("suffix", ["csv", "jsonl", "json", "parquet"])
    def test_a_missing_column_is_said_at_once(self, suffix: str, tmp_path: Path) -> None:
        """Which one, which names are accepted, and which columns there are."""
        import pyarrow
        import pyarrow.parquet

        rows = [{"question": QUERY, "chat_reply": RESPONSE}] * 3
        path = tmp_path / f"a.{suffix}"
        if suffix == "csv":
            write_csv(path, rows)
        elif suffix == "parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        else:
            path.write_text(json.dumps(rows)) if suffix == "json" else write_lines(path, rows)

        with pytest.raises(TurnError) as caught:
            list(read_records(path, on_bad=lambda _: None))
        assert "no column for the response: accepted are response, actual_output, generated_answer" in str(caught.value)
        assert "Try --map response=chat_reply\nColumns of the first 3 rows, with a value of each:" in str(caught.value)

    def test_a_column_of_some_rows(self, tmp_path: Path) -> None:
        """Is there if one of the first hundred rows has it: only the rows without it cannot be used."""
        early = {"query": QUERY, "response": RESPONSE}
        path = write_lines(tmp_path / "a.jsonl", [early] * 90 + [NAMES["ours"]] * 2)
        records, bad = read(path, required=("query", "response", "passages"))

        assert [core(record) for record in records] == [WANTED, WANTED]
        assert [row.line for row in bad] == list(range(1, 91))
        assert "no column for the passages" in bad[0].reason

    @pytest.mark.parametrize("suffix", ["csv", "parquet"])
    def test_two_columns_of_one_name(self, suffix: str, tmp_path: Path) -> None:
        """Are an error: only one could be read."""
        import pyarrow
        import pyarrow.parquet

        path = tmp_path / f"a.{suffix}"
        names = ["query", "response", "response"]
        if suffix == "csv":
            path.write_text(f"{','.join(names)}\nq,first,second\n")
        else:
            pyarrow.parquet.write_table(pyarrow.table([pyarrow.array(["x"])] * 3, names=names), path)
        with pytest.raises(TurnError, match="has several columns 'response'"):
            list(read_records(path))

    def test_a_pipe(self, tmp_path: Path) -> None:
        """Is refused, not waited for."""
        os.mkfifo(tmp_path / "a.jsonl")
        with pytest.raises(ConfigurationError, match="is a pipe or a device"):
            list(read_records(tmp_path / "a.jsonl"))

    def test_a_required_field_can_be_added(self, tmp_path: Path) -> None:
        """Such as the reference answer that a metric needs."""
        path = write_lines(tmp_path / "a.jsonl", [{"query": QUERY, "response": RESPONSE, "passages": []}])
        with pytest.raises(TurnError, match="no column for the reference: accepted are reference, "):
            list(read_records(path, required=("query", "response", "reference")))

    BAD = (
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ({**NAMES["ours"], "query": None}, "the query is missing"),
        ({**NAMES["ours"], "query": " "}, "the query is missing"),
        ({**NAMES["ours"], "query": {"a": 1}}, "the query is an object, not a text"),
        ({**NAMES["ours"], "response": ["a", "b"]}, "the response is a list of 2 items"),
        ({**NAMES["ours"], "passages": 5}, "the passages are a number"),
        ({**NAMES["ours"], "passages": [5]}, "passage 1 is a number"),
        ({**NAMES["ours"], "passages": [{"title": "x"}]}, "passage 1 has no text: accepted are text, content"),
        (
            {**NAMES["ours"], "query": [{"role": "system", "content": "Be brief."}]},
            "a list without a message of the user",
        ),
        ({**NAMES["ours"], "run": 0}, "the run is 0: give a whole number from 1"),
        ({**NAMES["ours"], "rank": "first"}, "the rank is 'first', not a whole number"),
        ({**NAMES["ours"], "answerable": "perhaps"}, "answerable is 'perhaps': it must be true or false"),
        ({**NAMES["ours"], "metadata": [1]}, "the metadata is a list"),
        ({"query": QUERY, "passages": []}, "there is no column for the response"),
        ({"id": "x", "turn": {"query": 5}}, "turn.query"),
    )

    @pytest.mark.parametrize(("row", "reason"), BAD)
    def test_a_bad_row_is_reported_and_the_rest_goes_on(self, row: Any, reason: str, tmp_path: Path) -> None:
        """With its line, the reason, and the row."""
        path = write_lines(tmp_path / "a.jsonl", [NAMES["ours"], "", row, NAMES["ours"]])
        records, [bad] = read(path)

        assert [core(record) for record in records] == [WANTED, WANTED]
        assert bad.line == 3
        assert reason in bad.reason
        assert bad.raw == row

    def test_a_bad_row_is_an_error_where_nobody_listens(self, tmp_path: Path) -> None:
        """With the file and the line."""
        with pytest.raises(TurnError, match=r"a\.jsonl, line 2: not JSON"):
            list(read_records(write_lines(tmp_path / "a.jsonl", [NAMES["ours"], "{"])))

    def test_an_id_stands_once(self, tmp_path: Path) -> None:
        """The second row of the same id and run is bad."""
        path = write_lines(tmp_path / "a.jsonl", [{**NAMES["ours"], "id": "x"}] * 2)
        records, [bad] = read(path)

        assert len(records) == 1
        assert bad.reason == "the id 'x', run 1, is on line 1 already: give each row its own"

    def test_rows_of_a_table_have_the_headers_length(self, tmp_path: Path) -> None:
        """Lines are counted as an editor counts them: a cell may have several."""
        path = tmp_path / "a.csv"
        path.write_text('query,response,passages\n"a\nb",c,d\nq,r\nq,r,p\n')
        records, [bad] = read(path)

        assert [record.turn.query for record in records] == ["a\nb", "q"]
        assert (bad.line, bad.reason, bad.raw) == (4, "has 2 cells, the header has 3", ["q", "r"])

    def test_a_cell_that_is_too_long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of many short lines, as after a quotation mark without an end. The rows before it are read."""
        limit = csv.field_size_limit()
        monkeypatch.setattr("rageval_hooks.offline.records.formats.table_files.LINE", 100)
        path = tmp_path / "a.csv"
        path.write_text("query,response,passages\nq,r,p\n" + 'q,"' + ("a" * 60 + "\n") * 2 + '",p\n')
        records, bad = read(path)
        csv.field_size_limit(limit)

        assert len(records) == 1
        assert (bad[0].line, bad[0].reason) == (3, "not CSV: field larger than field limit (100)")

    def test_a_workbook_without_cells(self, tmp_path: Path) -> None:
        """It has no rows, as an empty file."""
        import openpyxl

        openpyxl.Workbook().save(tmp_path / "a.xlsx")
        assert read(tmp_path / "a.xlsx") == ([], [])

    def test_a_damaged_row_among_rows_with_one_passage_each(self, tmp_path: Path) -> None:
        """It is a bad row, and the others are joined."""
        row = {"query_id": "1", "query": QUERY, "query_run": 1, "passage": PASSAGE, "generated_answer": RESPONSE}
        path = write_lines(tmp_path / "a.jsonl", [row, {**row, "passage": "The pier."}, "{", {**row, "query_id": "2"}])
        records, [bad] = read(path)

        assert [len(record.turn.passages) for record in records] == [2, 1]
        assert (bad.line, bad.raw) == (3, "{")

    def test_what_is_not_utf8_is_a_bad_row(self, tmp_path: Path) -> None:
        """In tables and in JSON Lines, with the encoding that reads it; a byte order mark does no harm."""
        table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
        table.write_bytes(b"\xef\xbb\xbfquery,response,passages\nq,a caf\xe9,p\nq,r,p\n")
        lines.write_bytes(b'\xef\xbb\xbf{"query":"q","response":"r","passages":[]}\n{"query":"caf\xe9"}\n')

        for path, line in ((table, 2), (lines, 2)):
            records, [bad] = read(path)
            assert len(records) == 1
            assert bad.line == line
            assert bad.reason == "not UTF-8: --encoding cp1252 reads it"

    @pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
    def test_another_encoding_is_detected_and_said(self, suffix: str, tmp_path: Path) -> None:
        """Or the user names it."""
        row = {"question": "Où est le café ?", "answer": "À côté."}
        path = tmp_path / f"a.{suffix}"
        text = (
            ",".join(row) + "\n" + ",".join(row.values()) + "\n"
            if suffix == "csv"
            else json.dumps(row, ensure_ascii=False)
        )
        path.write_bytes(text.encode("cp1252"))
        notes: list[str] = []
        [(_, record)] = read_items(path, note=notes.append)
        assert isinstance(record, Record)
        assert record.turn.query == row["question"]
        assert notes == [f"{path} is read as cp1252: --encoding names another encoding"]
        assert read_questions(path, note=notes.append)[0][0].question == row["question"]
        assert notes[1:] == notes[:1]

        notes = []
        [(_, record)] = read_items(path, options=ReadOptions(encoding="latin-1"), note=notes.append)
        assert notes == []
        with pytest.raises(ConfigurationError, match="--encoding 'utf-9' is not known"):
            list(read_items(path, options=ReadOptions(encoding="utf-9")))

    def test_a_long_text_in_the_encoding_of_windows(self, tmp_path: Path) -> None:
        """Other encodings have the same letters for these bytes, but not for those that may follow."""
        path = tmp_path / "a.csv"
        row = "Wann wurde die Brücke über den Fluß eröffnet?,Die Brücke wurde im März 1874 eröffnet.\n"
        path.write_bytes(("question,answer\n" + row * 20).encode("cp1252"))
        notes: list[str] = []

        assert len(list(read_items(path, note=notes.append))) == 20
        assert notes == [f"{path} is read as cp1252: --encoding names another encoding"]

    def test_a_text_in_one_of_several_encodings(self, tmp_path: Path) -> None:
        """The message names those that may read a short Japanese text, the right one among them."""
        path = tmp_path / "a.csv"
        path.write_bytes(
            "question,contexts,response\n桟橋はいつ開きましたか,桟橋は2019年に開きました。,2019年です。\n".encode(
                "cp932"
            )
        )
        with pytest.raises(TurnError, match=r"--encoding names its encoding, perhaps .*cp932"):
            list(read_records(path))

    def test_a_document_that_is_not_utf8(self, tmp_path: Path) -> None:
        """The whole file cannot be read; the message says which encoding reads it."""
        path = tmp_path / "a.json"
        path.write_bytes('[{"question": "Où ?", "answer": "'.encode() + "À côté".encode("cp1252") + b'"}]')
        with pytest.raises(TurnError, match="is not UTF-8: --encoding cp1252 reads it"):
            list(read_records(path))

    @pytest.mark.parametrize(
        ("name", "content", "reason"),
        [
            ("a.docx", b"", "should end in one of .jsonl, .ndjson, .json, .csv, "),
            ("a.xlsx", b"PK", "cannot be read as Excel"),
            ("a.json", b"{", "is not JSON"),
            ("a.json", b"\xff", "is not (JSON|UTF-8)"),
            ("a.parquet", b"no", "cannot be read as Parquet"),
        ],
    )
    def test_a_file_that_is_something_else(self, name: str, content: bytes, reason: str, tmp_path: Path) -> None:
        """One sentence that says so."""
        (tmp_path / name).write_bytes(content)
        with pytest.raises((ConfigurationError, TurnError), match=reason):
            list(read_records(tmp_path / name))

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        """Or is a folder."""
        with pytest.raises(ConfigurationError, match="there is no file"):
            list(read_records(tmp_path / "a.jsonl"))
        with pytest.raises(ConfigurationError, match="is a folder"):
            list(read_records(tmp_path))

    def test_a_file_in_a_folder_that_was_deleted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The current folder has no name any more, so the message has none."""
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        with pytest.raises(ConfigurationError, match=r"there is no file a\.jsonl"):
            list(read_records(Path("a.jsonl")))

    @pytest.mark.parametrize(
        ("suffix", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]
    )
    @pytest.mark.parametrize("is_compressed", [False, True])
    def test_a_damaged_archive(
        self, suffix: str, compress: Callable[[bytes], bytes], is_compressed: bool, tmp_path: Path
    ) -> None:
        """One sentence that names the file, which does not stay open."""
        path = tmp_path / f"a.csv.{suffix}"
        table = b"question,answer\nq,a\n" * 1000
        path.write_bytes(compress(table)[:-20] if is_compressed else table)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(TurnError, match=rf"a\.csv\.{suffix} is damaged"):
                list(read_records(path))
            gc.collect()
        assert [str(warning.message) for warning in caught if warning.category is ResourceWarning] == []

    @given(st.binary(max_size=300))
    def test_junk_never_raises(self, tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
        """Each line is a record or a bad row; or the whole file lacks a column."""
        path = tmp_path_factory.mktemp("junk") / "a.jsonl"
        path.write_bytes(b'"\xc3\xa9"\n' + junk)  # the first line tells that it is UTF-8
        with contextlib.suppress(TurnError):
            records, bad = read(path)
            lines = sum(bool(line.removeprefix(b"\xef\xbb\xbf").strip()) for line in junk.split(b"\n"))
            assert len(records) + len(bad) == 1 + lines


class TestOpenRagEval:
    def test_rows_by_passage_become_turns(self, tmp_path: Path) -> None:
        """As its connectors write them: only the first row has the answer; markers say why an answer is missing."""

        def row(query: str, run: int, passage: int, answer: str = "") -> dict[str, Any]:
            return {
                "query_id": query,
                "query": f"{query}?",
                "query_run": run,
                "passage_id": f"[{passage}]",
                "passage": f"text {passage}",
                "generated_answer": answer,
            }

        rows = [
            row("a", 1, 1, "As it says [1]."),
            row("a", 1, 2),
            row("a", 2, 1, "NO_ANSWER"),
            {**row("b", 1, 0, "API_ERROR"), "passage": "", "passage_id": ""},
        ]
        first, second, third = read_records(
            write_csv(tmp_path / "a.csv", rows), required=("query", "response", "passages")
        )

        assert [record.key for record in (first, second, third)] == [("a", 1), ("a", 2), ("b", 1)]
        assert first.turn.response == "As it says [1]."
        assert [(p.id, p.text) for p in first.turn.passages] == [("[1]", "text 1"), ("[2]", "text 2")]
        assert (second.turn.response, second.turn.status) == ("", "ok")
        assert (third.turn.status, third.turn.passages) == ("error", ())


class TestOurOwn:
    def test_a_table_that_only_begins_like_ours(self, tmp_path: Path) -> None:
        """Its passages are read, and its other columns are no scores."""
        given = {"id": "a", "run": 1, "query": QUERY, "response": RESPONSE}
        with_passages = write_csv(tmp_path / "a.csv", [{**given, "contexts": PASSAGE, "reference": REFERENCE}])
        with_more = write_csv(tmp_path / "b.csv", [{**given, "model": "gpt-5", "year": 2024, "groundedness": 0.5}])
        [first], [second] = read_records(with_passages, required=("passages",)), read_records(with_more)

        assert core(first) == WANTED
        assert second.turn.metadata == {"model": "gpt-5", "year": "2024"}
        assert [(score.name, score.value) for score in second.scores()] == [("groundedness", 0.5)]

    def test_a_score_that_is_no_number(self, tmp_path: Path) -> None:
        """Its row cannot be used."""
        row = {"id": "a", "run": 1, "query": QUERY, "response": RESPONSE, "groundedness": "high"}
        _, [bad] = read(write_csv(tmp_path / "a.csv", [row]))
        assert bad.reason == "groundedness is 'high', not a number"

    @given(turn=turns)
    def test_records_come_back_as_they_were(self, tmp_path_factory: pytest.TempPathFactory, turn: Turn) -> None:
        """Whatever they hold."""
        path = tmp_path_factory.mktemp("records") / "a.jsonl"
        record = Record(id="1", turn=turn, results=(Score(name="a", value=0.5), Skipped(name="b", reason="no")))
        assert write_records(path, [record]) == 1
        assert list(read_records(path)) == [record]

    def test_evaluations_of_the_exporter_with_their_late_scores(self, tmp_path: Path) -> None:
        """A turn has several lines: one inline, and one for each metric that came later."""
        path = tmp_path / "a.jsonl"
        exporter = JsonlExporter(path)
        first, second = (Turn(id=name, query=QUERY, response=RESPONSE) for name in ("a", "b"))
        exporter.export(Evaluation(turn=first, results=(Score(name="early", value=1.0),)))
        exporter.export(Evaluation(turn=second, results=()))
        exporter.export(Evaluation(turn=second, stage="background", results=(Score(name="late", value=0.25),)))
        exporter.export(
            Evaluation(turn=first, stage="background", results=(Failed(name="late", error_type="refused"),))
        )
        records, bad = read(path)

        assert [(r.id, [result.name for result in r.results]) for r in records] == [
            ("a", ["early", "late"]),
            ("b", ["late"]),
        ]
        assert not bad

    def test_evaluations_that_cannot_be_read(self, tmp_path: Path) -> None:
        """Each is a bad row; the others are read."""
        turn = {"id": "a", "query": QUERY, "response": RESPONSE}
        rows = [{"stage": "inline", "turn": turn, "results": []}, "{", {"stage": "inline", "turn": {"query": 5}}]
        [record], bad = read(write_lines(tmp_path / "a.jsonl", rows))

        assert record.id == "a"
        assert [(row.line, row.reason.partition(":")[0]) for row in bad] == [(2, "not JSON"), (3, "turn.query")]

    def test_evaluations_without_ids_stay_apart(self, tmp_path: Path) -> None:
        """Turns that were made by hand may have none."""
        exporter = JsonlExporter(tmp_path / "a.jsonl")
        for number in range(3):
            exporter.export(Evaluation(turn=Turn(query=f"{QUERY} {number}", response=RESPONSE)))
        assert [record.turn.query[-1] for record in read_records(tmp_path / "a.jsonl")] == ["0", "1", "2"]


def test_a_large_file_streams(tmp_path: Path) -> None:
    """Ten times the rows take no more memory, but for their ids."""

    def peak(rows: int) -> int:
        path = write_lines(
            tmp_path / f"{rows}.jsonl", ({**NAMES["ours"], "passages": ["x" * 2000]} for _ in range(rows))
        )
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_records(path)) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak(300), peak(3000)
    assert large - small < 2700 * 400  # of 2,000 and more that a row has


@pytest.mark.parametrize("suffix", ["parquet", "xlsx"])
def test_binary_files_have_no_encoding_that_is_guessed(tmp_path: Path, suffix: str) -> None:
    """Their bytes are not text: no note proposes --encoding."""
    import openpyxl
    import pyarrow.parquet

    path = tmp_path / f"a.{suffix}"
    rows = [{"question": f"When did pier {number} open?", "answer": "In 2019."} for number in range(300)]
    if suffix == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        book = openpyxl.Workbook()
        book.active.append(["question", "answer"])
        for row in rows:
            book.active.append(list(row.values()))
        book.save(path)
    notes: list[str] = []

    assert len(list(read_items(path, note=notes.append))) == 300
    assert notes == []


LIMIT = 64 << 20


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_line_that_is_too_long(suffix: str, tmp_path: Path) -> None:
    """A small compressed file cannot fill the memory: it is an error that says so."""
    header = b"" if suffix == "jsonl" else b"question,answer\n"
    good = b'{"question": "q?", "answer": "a"}\n' if suffix == "jsonl" else b"q?,a\n"
    long = b'{"question": "' + b"x" * (2 * LIMIT) + b'"}\n' if suffix == "jsonl" else b"x" * (2 * LIMIT) + b",a\n"
    path = tmp_path / f"a.{suffix}.gz"
    path.write_bytes(gzip.compress(header + good + long + good, 1))
    del long
    tracemalloc.start()
    try:
        with pytest.raises(TurnError, match=r"a line that is longer than 64 MiB"):
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 8 * LIMIT  # the module csv takes four bytes for a character


@pytest.mark.parametrize(("name", "limit"), [("a.xlsx", "WORKBOOK"), ("a.parquet", "ROW_GROUP")])
def test_a_table_that_is_too_large(name: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is read."""
    import openpyxl
    import pyarrow
    import pyarrow.parquet

    book = openpyxl.Workbook()
    for row in (("question", "answer"), (QUERY, RESPONSE)):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([NAMES["ours"]]), tmp_path / "a.parquet")
    assert len(list(read_records(tmp_path / name))) == 1

    monkeypatch.setattr(f"rageval_hooks.offline.records.formats.table_files.{limit}", 20)
    with pytest.raises(TurnError, match=rf"{name} (is larger than|has row groups of more than) .* MiB"):
        list(read_records(tmp_path / name))


def test_a_document_that_is_too_large(tmp_path: Path) -> None:
    """The message says what to write instead."""
    path = tmp_path / "a.json.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b'[{"question": "')
        for _ in range(257):
            file.write(b"x" * (1 << 20))
    with pytest.raises(TurnError, match=r"larger than 256 MiB \(unpacked\): write it as JSON Lines"):
        list(read_records(path))
