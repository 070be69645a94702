"""Files in the shapes of other tools: they are read as they are, or the message says the --map that would do."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rageval_hooks import Passage, Turn
from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.reading import read_items, read_records
from rageval_hooks.offline.records.record import Record

Q, A, G, C = "When was it opened?", "In 2019.", "2019", "The pier opened in 2019."

DOCUMENTS: dict[str, Any] = {
    "MLflow table": {"columns": ["inputs", "outputs", "ground_truth", "context"], "data": [[Q, A, G, C]]},
    "MLflow agent": [
        {"request": Q, "response": A, "expected_response": G, "retrieved_context": [{"content": C, "doc_uri": "u"}]}
    ],
    "MLflow expectations": [
        {"inputs": {"question": Q}, "outputs": A, "expectations": {"expected_response": G}, "context": C}
    ],
    "LangSmith": [
        {
            "inputs": {"question": Q},
            "outputs": {"answer": A, "contexts": [C]},
            "reference_outputs": {"answer": G},
        }
    ],
    "Langfuse": {"data": [{"input": {"query": Q, "context": [C]}, "output": A, "expectedOutput": G}]},
    "Phoenix experiment": [
        {
            "example_id": "e",
            "repetition_number": 1,
            "input": {"question": Q},
            "output": {"answer": A, "documents": [C]},
            "reference_output": {"answer": G},
            "error": None,
        }
    ],
    "Ragas": [{"user_input": Q, "response": A, "retrieved_contexts": [C], "reference": G, "reference_contexts": [C]}],
    "RAGChecker": {
        "results": [
            {
                "query_id": "1",
                "query": Q,
                "gt_answer": G,
                "response": A,
                "retrieved_context": [{"doc_id": "d", "text": C}],
            }
        ]
    },
    "DeepEval": {"testCases": [{"input": Q, "actualOutput": A, "expectedOutput": G, "retrievalContext": [C]}]},
    "promptfoo": {
        "results": {"results": [{"vars": {"question": Q, "context": C}, "response": {"output": A}, "expected": G}]}
    },
    "DPR": [
        {"question": Q, "prediction": A, "answers": [G], "ctxs": [{"id": "7", "title": "t", "text": C, "score": "1"}]}
    ],
    "data frame": {"question": {"0": Q}, "answer": {"0": A}, "contexts": {"0": [C]}, "ground_truth": {"0": G}},
    "by id": {
        "q1": {"question": Q, "answer": A, "contexts": [[C]], "ground_truth": G},
        "q2": {"question": Q, "answer": A, "contexts": [[C]], "ground_truth": G},
    },
    "search hits": [
        {"question": Q, "answer": A, "ground_truth": G, "chunks": [{"score": 0.5, "payload": {"text": C}}]}
    ],
    "quoted hits": {
        "samples": 1,
        "per_sample": [
            {"question": Q, "answer": A, "ground_truth": G, "hits": [{"chunk_id": "c", "quote": C, "rank": 1}]}
        ],
    },
    "RetrievalQA": [
        {"question": Q, "answer": str({"query": Q, "result": A}), "contexts": [C], "ground_truth": G},
    ],
    "AutoRAG": [
        {"qid": "1", "query": Q, "generation_gt": [G], "retrieved_contents": [C], "generated_texts": A},
    ],
    "PubMedQA": [
        {"question": Q, "context": {"contexts": [C], "labels": ["A", "B"]}, "long_answer": G, "predicted_answer": A}
    ],
    "OpenAI evals": [{"item": {"question": Q, "context": C, "ideal": G}, "sample": {"output_text": A}}],
    "Giskard": [{"question": Q, "reference_answer": G, "agent_answer": A, "contexts": [C], "conversation_history": []}],
    "by split": {
        "train": [{"question": Q, "answer": A, "contexts": [C], "ground_truth": G}],
        "test": [{"question": Q, "answer": A, "contexts": [C], "ground_truth": G}],
    },
    "scored pairs": [{"question": Q, "answer": A, "ground_truth": G, "docs": [[C, 0.5]]}],
    "chat": [
        {
            "messages": [
                {"role": "user", "content": Q},
                {"role": "assistant", "content": [{"type": "text", "text": A}]},
            ],
            "contexts": [C],
            "reference": G,
        }
    ],
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_documents_of_other_tools(document: Any, tmp_path: Path) -> None:
    """Have question, answer, passages and reference."""
    (tmp_path / "a.json").write_text(json.dumps(document))
    record = next(read_records(tmp_path / "a.json"))
    turn = record.turn
    assert (turn.query, turn.response, turn.reference) == (Q, A, G)
    assert [passage.text for passage in turn.passages] == [C]


@pytest.mark.parametrize("pair", [[C, 0.7], [0.7, C], [{"text": C}, 0.7]], ids=str)
def test_a_pair_of_passage_and_score(pair: list[Any], tmp_path: Path) -> None:
    """As ``similarity_search_with_score`` returns it."""
    (tmp_path / "a.json").write_text(json.dumps([{"question": Q, "answer": A, "docs": [pair, pair]}]))
    [record] = read_records(tmp_path / "a.json")
    assert [(passage.text, passage.score) for passage in record.turn.passages] == [(C, 0.7)] * 2


def test_a_record_of_trulens(tmp_path: Path) -> None:
    """Its data frame has the passages only within the recorded calls, so that there are none."""
    row = {
        "app_name": "a",
        "record_id": "r1",
        "input": Q,
        "output": A,
        "record_json": '{"calls": []}',
        "Groundedness": 1,
    }
    (tmp_path / "a.json").write_text(json.dumps([row]))
    [record] = read_records(tmp_path / "a.json")
    assert (record.id, record.turn.query, record.turn.response, record.turn.passages) == ("r1", Q, A, ())


TABLES = {
    "semicolons": (f"question;answer;contexts;ground_truth\n{Q};{A};\"['{C}']\";{G}\n", "csv"),
    "bars": (f"question|answer|contexts|ground_truth\n{Q}|{A}|{C}|{G}\n", "csv"),
    "tabs": (f"Query\tContext\tAnswer\tground_truth\n{Q}\t{C}\t{A}\t{G}\n", "tsv"),
    "LangChain documents": (
        f"question,answer,ground_truth,contexts\n{Q},{A},{G},\"[Document(metadata={{'a': 1}}, page_content='{C}')]\"\n",
        "csv",
    ),
    "Spanish": (f"Pregunta;Respuesta;Respuesta esperada;Contexto\n{Q};{A};{G};{C}\n", "csv"),
    "French": (f"Question;Réponse;Réponse attendue;Contexte\n{Q};{A};{G};{C}\n", "csv"),
    "LangSmith columns": (f"inputs.question,outputs.answer,reference_outputs.answer,context\n{Q},{A},{G},{C}\n", "csv"),
}


@pytest.mark.parametrize(("text", "suffix"), TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tables_of_other_tools(text: str, suffix: str, encoding: str, tmp_path: Path) -> None:
    """In any dialect and encoding."""
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(text.encode(encoding))
    [record] = read_records(path)
    assert (record.turn.query, record.turn.response, record.turn.reference) == (Q, A, G)
    assert [passage.text for passage in record.turn.passages] == [C]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"question": Q, "answer": A}] * 2, indent=2),
        "\n".join([json.dumps({"question": Q, "answer": A})] * 2),
    ],
    ids=["array", "lines"],
)
def test_lines_under_the_name_of_a_document(text: str, tmp_path: Path) -> None:
    """Are read as lines; a document under the name of lines says what its name should be."""
    (tmp_path / "a.json").write_text(text)
    assert [record.turn.response for record in read_records(tmp_path / "a.json")] == [A, A]
    if text.startswith("["):
        (tmp_path / "a.jsonl").write_text(json.dumps(json.loads(text)))
        with pytest.raises(TurnError, match=r"not a JSON object: the name of a file with one document should end in"):
            list(read_records(tmp_path / "a.jsonl"))


def test_compressed_files_and_workbooks(tmp_path: Path) -> None:
    """Are read as what is in them."""
    import openpyxl

    row = {"question": Q, "answer": A, "contexts": f"['{C}']"}
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps(row).encode()))
    book = openpyxl.Workbook()
    book.active.append(list(row))
    book.active.append(list(row.values()))
    book.save(tmp_path / "a.xlsx")
    for name in ("a.jsonl.gz", "a.xlsx"):
        [record] = read_records(tmp_path / name)
        assert [passage.text for passage in record.turn.passages] == [C]


class TestMap:
    ROW: ClassVar = {"kunden_frage": Q, "chatgpt_reply": A, "found": {"hits": [{"inhalt": C}]}}

    def test_names_columns_and_paths(self, tmp_path: Path) -> None:
        """Also into lists."""
        (tmp_path / "a.jsonl").write_text(json.dumps(self.ROW))
        mapping = {"query": "kunden_frage", "response": "chatgpt_reply", "passages": "found.hits[].inhalt"}
        [record] = read_records(tmp_path / "a.jsonl", mapping=mapping)
        assert (record.turn.query, record.turn.response) == (Q, A)
        assert [passage.text for passage in record.turn.passages] == [C]

    def test_records_of_ours_are_read_as_they_are(self, tmp_path: Path) -> None:
        """They may be in one file with rows of other tools."""
        ours = Record(id="q1", turn=Turn(query=Q, response=A, passages=(Passage(text=C, id="c7"),)))
        (tmp_path / "a.jsonl").write_text("\n".join([json.dumps(self.ROW), ours.model_dump_json()]))
        mapping = {"query": "kunden_frage", "response": "chatgpt_reply", "passages": "found.hits[].inhalt"}
        _, second = read_records(tmp_path / "a.jsonl", mapping=mapping)
        assert (second.id, second.turn.response, second.turn.passages[0].id) == ("q1", A, "c7")

    def test_of_a_field_that_the_file_does_not_have(self, tmp_path: Path) -> None:
        """An empty name switches off a column that was taken wrongly; it becomes metadata."""
        (tmp_path / "a.jsonl").write_text(json.dumps({"question": Q, "answer": A, "expected": "as usual"}))
        [record] = read_records(tmp_path / "a.jsonl", mapping={"reference": ""})
        assert (record.turn.reference, record.turn.metadata) == (None, {"expected": "as usual"})
        [record] = read_records(tmp_path / "a.jsonl")
        assert record.turn.reference == "as usual"

    @pytest.mark.parametrize("column", ["chatgpt_replay", "found.hits[].inhalte"])
    def test_that_names_nothing(self, column: str, tmp_path: Path) -> None:
        """Is an error: a misspelled column would be empty in every row."""
        (tmp_path / "a.jsonl").write_text(json.dumps(self.ROW))
        mapping = {"query": "kunden_frage", "response": column}
        with pytest.raises(TurnError, match="which --map names for the response") as caught:
            list(read_records(tmp_path / "a.jsonl", mapping=mapping))
        assert "Found in the first 1 row: kunden_frage, chatgpt_reply, found" in str(caught.value)

    def test_of_several_columns(self, tmp_path: Path) -> None:
        """Numbered columns are a list; empty cells are no passages."""
        row = f"question,answer,retrieved_doc1,retrieved_cont1,retrieved_cont2\n{Q},{A},a.pdf,{C},\n"
        (tmp_path / "a.csv").write_text(row)
        [record] = read_records(tmp_path / "a.csv", mapping={"passages": "[retrieved_cont1, retrieved_cont2]"})
        assert [passage.text for passage in record.turn.passages] == [C]

    def test_of_a_column_of_some_rows(self, tmp_path: Path) -> None:
        """Only some rows have references; a column that none of the first hundred has is an error."""
        rows: list[dict[str, Any]] = [{"question": Q, "answer": A}] * 90
        lines = [json.dumps(row) for row in [*rows, {"question": Q, "answer": A, "gold": {"texts": [G]}}]]
        (tmp_path / "a.jsonl").write_text("\n".join(lines))
        records = list(read_records(tmp_path / "a.jsonl", mapping={"reference": "gold.texts[0]"}))
        assert [record.turn.reference for record in records[89:]] == [None, G]

        (tmp_path / "a.jsonl").write_text("\n".join([lines[0]] * 100 + lines[90:]))
        with pytest.raises(TurnError, match="Found in the first 100 rows: question, answer"):
            list(read_records(tmp_path / "a.jsonl", mapping={"reference": "gold.texts[0]"}))

    def test_of_a_function_that_does_not_suit_a_row(self, tmp_path: Path) -> None:
        """The row has no value."""
        rows = [{"question": Q, "parts": ["In", "2019."]}, {"question": Q, "parts": None}]
        (tmp_path / "a.json").write_text(json.dumps(rows))
        records = read_records(tmp_path / "a.json", mapping={"response": "join(' ', parts[])"})
        assert [record.turn.response for record in records] == [A, ""]

    @pytest.mark.parametrize(("mapping", "message"), [({"answer": "x"}, "--map"), ({"query": "a[."}, "is not a path")])
    def test_that_is_wrong(self, mapping: dict[str, str], message: str, tmp_path: Path) -> None:
        """Is said before anything is read."""
        (tmp_path / "a.jsonl").write_text(json.dumps(self.ROW))
        with pytest.raises(ConfigurationError, match=message):
            list(read_records(tmp_path / "a.jsonl", mapping=mapping))


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"response": A, "completion": "x"}, "'response', 'completion'"),
        ({"answer": G, "Bot Answer": A}, "'answer', 'Bot Answer'"),
        ({"answer": G, "gpt4_answer": A}, "'answer', 'gpt4_answer'"),
        ({"answer": G, "my_rag_output": A}, "'answer', 'my_rag_output'"),
        ({"answer": G, "prediction": {"answer": A}}, "'answer', 'prediction.answer'"),
        ({"answer": G, "result_of_mistral": f"{A} It is new."}, "'answer', 'result_of_mistral'"),
        ({"Antwort": G, "Antwort des Systems": A}, "'Antwort', 'Antwort des Systems'"),
        ({"Respuesta": G, "Respuesta modelo": A}, "'Respuesta', 'Respuesta modelo'"),
        (
            {"answer": "The pier was opened in May 2019.", "Column C": "The pier was opened in May 2018."},
            "'answer', 'Column C'",
        ),
    ],
)
def test_two_columns_that_may_be_the_response(row: dict[str, Any], columns: str, tmp_path: Path) -> None:
    """One of them may be the golden answer, so the user chooses."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": Q, **row}))
    with pytest.raises(TurnError, match=re.escape(f"several columns may hold the response: {columns}.")):
        list(read_items(path))

    for name in columns.replace("'", "").split(", "):
        [(_, record)] = read_items(path, mapping=ColumnMap({"response": name}))
        assert isinstance(record, Record)
        assert record.turn.response in (A, G, "x", *(value for value in row.values() if isinstance(value, str)))


@pytest.mark.parametrize(
    "others",
    [
        {"comment": "The answer of the model is right."},
        {"answer_explanation": "The passage says it."},
        {"model": "gpt-5"},
        {"reference_answer": G},
        {"answer_relevance.reason": "it is about the pier"},
        {"category": "piers of the north"},
    ],
)
def test_what_is_no_second_response(others: dict[str, Any], tmp_path: Path) -> None:
    """Comments, explanations, names of models, references and reasons of scores."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"question": Q, "answer": A, **others}))
    [record] = read_records(tmp_path / "a.jsonl")
    assert record.turn.response == A


def test_a_column_that_is_ignored(tmp_path: Path) -> None:
    """``--ignore``: it is neither a second response nor metadata."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"question": Q, "answer": A, "gpt4_answer": G}))
    [(_, record)] = read_items(tmp_path / "a.jsonl", mapping=ColumnMap({}, ignored=["gpt4_answer"]))
    assert isinstance(record, Record)
    assert (record.turn.response, dict(record.turn.metadata)) == (A, {})


def test_answers_of_several_systems_in_one_document(tmp_path: Path) -> None:
    """The list of rows that was taken is said, and the others; a list without answers does not count."""
    rows = [{"question": Q, "answer": A}]
    document = {"first": rows, "questions": [{"question": Q}], "more": {"second": rows}}
    (tmp_path / "a.json").write_text(json.dumps(document))
    said: list[str] = []
    records = list(read_items(tmp_path / "a.json", note=said.append))
    assert len(records) == 1
    assert said == ["the rows are those of 'first', not of 'more.second': write each into a separate file"]


class TestRanks:
    """The rank of the target is computed from the passages, unless a column states it."""

    def record(self, tmp_path: Path, **row: Any) -> Record:
        (tmp_path / "a.jsonl").write_text(json.dumps({"question": Q, "answer": A, **row}))
        [record] = read_records(tmp_path / "a.jsonl")
        return record

    @pytest.mark.parametrize(
        ("row", "rank", "missed"),
        [
            ({"target": "b", "contexts": [{"id": "a", "text": "x"}, {"id": "b", "text": "y"}]}, 2, False),
            ({"reference_contexts": [C], "contexts": ["x", f"Before. {C} After."]}, 2, False),
            ({"reference_contexts": [C], "contexts": ["x", "y"]}, None, True),
            ({"target": "b", "contexts": [{"id": "a", "text": "x"}]}, None, False),
            ({"target": "b", "contexts": []}, None, False),
            ({"target": "b", "rank": 3}, 3, False),
            ({"target": "b", "rank": -1}, None, True),
            ({"target": "b", "rank": 0}, None, True),
            ({"target": "b", "rank": "Missed"}, None, True),
        ],
        ids=[
            "by id",
            "by text",
            "missed",
            "ids that cannot match",
            "no passages",
            "column",
            "negative",
            "zero",
            "word",
        ],
    )
    def test_the_rank(self, row: dict[str, Any], rank: int | None, missed: bool, tmp_path: Path) -> None:
        """Is found, missed or unknown."""
        record = self.record(tmp_path, **row)
        assert (record.rank, record.missed) == (rank, missed)


def test_a_question_that_several_systems_answer(tmp_path: Path) -> None:
    """Rows with the id and the question of another row, and another answer, are runs of that question."""
    rows = [{"id": "x", "question": Q, "answer": answer, "model": "m"} for answer in (A, "In 2018.", "In 2017.")]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    assert [(record.id, record.run) for record in read_records(tmp_path / "a.json")] == [("x", 1), ("x", 2), ("x", 3)]


def test_a_row_that_failed_needs_no_answer(tmp_path: Path) -> None:
    """A row with an error needs no answer. Empty rows of a spreadsheet are skipped."""
    (tmp_path / "a.jsonl").write_text('{"question": "q?", "answer": "a"}\n{"question": "r?", "error": "timed out"}\n')
    assert [record.turn.status for record in read_records(tmp_path / "a.jsonl")] == ["ok", "error"]
    (tmp_path / "a.csv").write_text("question,answer\nq?,a\n,\n , \nr?,b\n")
    assert [record.turn.query for record in read_records(tmp_path / "a.csv")] == ["q?", "r?"]


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        # The only text that is left.
        ({"question": Q, "chat_reply": A}, "Try --map response=chat_reply"),
        # References and inputs are no answers of a system.
        ({"question": Q, "true_responses_of_people": G, "gpt_text": A}, "Try --map response=gpt_text"),
        ({"question": Q, "responseOK": G, "golden_text": G, "gpt_text": A}, "Try --map response=gpt_text"),
        ({"question": Q, "input_text": G, "gold_text": G}, "Name it with --map response=COLUMN"),
        # Where in an object the text is, the user says.
        (
            {"question": Q, "TEST DATA": {"gpt_reply": A}},
            "Name it with --map response=COLUMN, or COLUMN.KEY for a value in it",
        ),
        ({"question": Q, "dataset": "kiwi", "model1": {"reply": A}}, "COLUMN.KEY for a value in it; the response"),
        ({"question": Q, "No RAG": A}, "Try --map response='No RAG'"),
        ({"question": Q, "replies": [A, "No."]}, "Try --map response=replies"),
        # Numbers and names of files are no texts.
        ({"question": Q, "f1": 0.71, "Relevancy": "0,91", "file": "answers/pier.md"}, "--map response=COLUMN"),
        # The title of a document is no answer.
        ({"title": "Piers", "question": Q, "gpt_text": A}, "Try --map response=gpt_text"),
        # Of several texts the user chooses.
        (
            {"question": Q, "our_reply": A, "vanilla": A, "f1": 0.3},
            "in it; the response may be our_reply, vanilla",
        ),
        (
            {"section": "1", "frage_des_kunden": Q, "gpt_reply": A},
            "--map response=COLUMN, or COLUMN.KEY for a value in it; the query may be frage_des_kunden, gpt_reply; the",
        ),
        ({"question": Q, "expected": G}, "ask your application first: rageval-hooks run"),
    ],
)
def test_a_missing_column_has_a_hint(row: dict[str, Any], hint: str, tmp_path: Path) -> None:
    """The message lists the columns, and says what to write."""
    (tmp_path / "a.json").write_text(json.dumps([row]))
    with pytest.raises(TurnError) as caught:
        list(read_records(tmp_path / "a.json"))
    message = str(caught.value)
    assert hint in message
    assert f"found: {', '.join(row)}" in message


def test_what_is_proposed_can_be_read(tmp_path: Path) -> None:
    """In a list of answers, the first is named by the column's own name."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": Q, "true_answers": [G, "In May"], "predicted_answers": [A, "In 2018."]}))
    with pytest.raises(TurnError, match=r"a list of 2 items, not a text: --map response='predicted_answers\[0\]'"):
        list(read_records(path))
    [record] = read_records(path, mapping={"response": "predicted_answers[0]"})
    assert (record.turn.response, record.turn.reference) == (A, f"{G}\nIn May")


def test_an_object_in_place_of_a_text(tmp_path: Path) -> None:
    """The message says how to name the place of the text in it."""
    row = {"question": Q, "answer": {"by_the_model": A, "tokens": 5}}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    with pytest.raises(TurnError, match=r"the response is an object, not a text: --map response=COLUMN\.KEY"):
        list(read_records(tmp_path / "a.json"))


@pytest.mark.parametrize(
    "sources",
    [
        *(5, "5", "a.pdf | https://example.com/b", ["Report 2023.pdf", "notes.md#3"], [1, 2], True),
        [{"title": "The pier of Hallay", "url": "https://example.com/b"}],
    ],
)
def test_sources_without_texts_are_no_passages(tmp_path: Path, sources: object) -> None:
    """An answer is not compared with a number of sources, or with the name of a file."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"question": "What?", "answer": "It is a pier.", "sources": sources}]))
    [record] = read_records(path)
    assert record.turn.passages == ()
    assert record.turn.metadata["sources"] == sources


def test_the_array_with_questions_and_answers_is_taken(tmp_path: Path) -> None:
    """Next to one with questions only, and one of something else; answers by their ids may nest their sources."""
    rows = [{"question": "How far?", "answer": "Far.", "contexts": ["It is far."]}]
    parts = {"models": [{"name": "m"}] * 3, "retrieval": {"per_question": [{"question": "How far?"}] * 2}}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**parts, "generation": {"per_question": rows}}))
    assert [record.turn.response for record in read_records(path)] == ["Far."]

    by_id = {
        f"q{number}": {"question": "How far?", "answer": "Far.", "trace": {"sources": [{"content": "It is far."}]}}
        for number in (1, 2)
    }
    path.write_text(json.dumps(by_id))
    assert [record.id for record in read_records(path)] == ["q1", "q2"]
