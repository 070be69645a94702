"""Files in the shapes of other tools: they are read as they are, or the message says the --map that would do."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rageval_hooks import Passage, Turn
from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.reading import ReadOptions, columns_of, read_items, read_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.testsets.testset import read_questions

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
    "Ragas, several turns": [
        {
            "user_input": [{"content": Q, "type": "human"}, {"content": A, "type": "ai"}],
            "retrieved_contexts": [C],
            "reference": G,
        }
    ],
    "ShareGPT": [
        {"conversations": [{"from": "human", "value": Q}, {"from": "gpt", "value": A}], "context": C, "reference": G}
    ],
    "Langfuse traces": {
        "data": [
            {
                "id": "t",
                "input": [{"role": "user", "content": Q}],
                "output": {"role": "assistant", "content": A},
                "metadata": {"contexts": [C]},
                "expectedOutput": {"answer": G},
            }
        ]
    },
    "MLflow traces": [
        {
            "trace_id": "t",
            "request": json.dumps({"messages": [{"role": "user", "content": Q}]}),
            "response": json.dumps({"choices": [{"message": {"role": "assistant", "content": A}}]}),
            "response_preview": A,
            "expectations": {"expected_response": G},
            "context": [C],
        }
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
        assert "Columns of the first 1 row, with a value of each:\n  kunden_frage: When" in str(caught.value)

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
        with pytest.raises(TurnError, match="Columns of the first 100 rows"):
            list(read_records(tmp_path / "a.jsonl", mapping={"reference": "gold.texts[0]"}))

    def test_of_a_function_that_does_not_suit_a_row(self, tmp_path: Path) -> None:
        """The row has no value."""
        rows = [{"question": Q, "parts": ["In", "2019."]}, {"question": Q, "parts": None}]
        (tmp_path / "a.json").write_text(json.dumps(rows))
        records = read_records(tmp_path / "a.json", mapping={"response": "join(' ', parts[])"})
        assert [record.turn.response for record in records] == [A, ""]

    @pytest.mark.parametrize(
        ("mapping", "error", "message"),
        [
            ({"answer": "x"}, ConfigurationError, "unknown field of --map"),
            ({"query": "a[."}, TurnError, r"nothing is under 'a\[\.', which --map names for the query"),
        ],
    )
    def test_that_is_wrong(self, mapping: dict[str, str], error: type[Exception], message: str, tmp_path: Path) -> None:
        """Is said before anything is computed."""
        (tmp_path / "a.jsonl").write_text(json.dumps(self.ROW))
        with pytest.raises(error, match=message):
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
        ({"Antwort": G, "Ausgabe": A}, "'Antwort', 'Ausgabe'"),
        ({"Risposta": G, "Uscita del sistema": A}, "'Risposta', 'Uscita del sistema'"),
        ({"答案": G, "模型输出": A}, "'答案', '模型输出'"),
        ({"answer": G, "qwen": f"{A} It is new."}, "'answer', 'qwen'"),
        *(({"answer": G, name: A}, f"'answer', '{name}'") for name in ("actual", "ans", "chain_result", "final")),
        ({"answer": "2019", "Bot Answer": "2018"}, "'answer', 'Bot Answer'"),
        ({"answer": 2019, "gpt4_answer": 2018}, "'answer', 'gpt4_answer'"),
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
        [(_, record)] = read_items(path, options=ReadOptions(columns=ColumnMap({"response": name})))
        assert isinstance(record, Record)
        assert record.turn.response in (A, G, "x", *map(str, row.values()))


@pytest.mark.parametrize(
    "others",
    [
        {"comment": "The answer of the model is right."},
        {"answer_explanation": "The passage says it."},
        {"model": "gpt-5"},
        {"reference_answer": G},
        {"answer_relevance.reason": "it is about the pier"},
        {"category": "piers of the north"},
        {"answer_rating": 4, "answer_confidence": 0.9, "answer_length": 9},
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
    [(_, record)] = read_items(
        tmp_path / "a.jsonl", options=ReadOptions(columns=ColumnMap({}, ignored=["gpt4_answer"]))
    )
    assert isinstance(record, Record)
    assert (record.turn.response, dict(record.turn.metadata)) == (A, {})


def test_answers_of_several_systems_in_one_document(tmp_path: Path) -> None:
    """The array that was taken is said, and the others; ``--sheet`` names one."""
    rows = [{"question": Q, "answer": A}]
    document = {"questions": [{"question": Q}], "first": rows, "more": {"second": [{"question": Q, "answer": G}]}}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    said: list[str] = []
    [(_, record)] = read_items(path, note=said.append)
    assert isinstance(record, Record)
    assert record.turn.response == A
    assert said == [f"read is 'first' of {path}, not 'questions', 'more.second': --sheet names another"]

    [record] = read_records(path, sheet="more.second")
    assert record.turn.response == G
    with pytest.raises(TurnError, match=r"no table 'third' \(--sheet\)\. It has questions, first, more\.second"):
        list(read_records(path, sheet="third"))


def test_worksheets(tmp_path: Path) -> None:
    """The one with questions and answers is read, and the others are said; ``--sheet`` names one."""
    import openpyxl

    path = tmp_path / "a.xlsx"
    book = openpyxl.Workbook()
    book.active.title = "Cover"
    for title, answer in (("Means", None), ("Rows", A), ("Old rows", G)):
        sheet = book.create_sheet(title)
        sheet.append(["question", "answer"] if answer else ["metric", "mean"])
        sheet.append([Q, answer] if answer else ["groundedness", 0.5])
    book.save(path)
    said: list[str] = []
    [(_, record)] = read_items(path, note=said.append)
    assert isinstance(record, Record)
    assert record.turn.response == A
    assert said == [f"read is 'Rows' of {path}, not 'Means', 'Old rows': --sheet names another"]

    [record] = read_records(path, sheet="Old rows")
    assert record.turn.response == G


@pytest.mark.parametrize(
    ("row", "reference"),
    [
        ({"inputs": {"question": Q}, "outputs": {"answer": G}, "dataset_id": "d"}, "LangSmith"),
        ({"example_id": "e", "input": {"question": Q}, "output": {"answer": G}, "metadata": {}}, "Phoenix"),
        ({"id": "e", "node_id": "n", "input": {"question": Q}, "output": {"answer": G}, "splits": []}, "Phoenix 20"),
        ({"id": "e", "input.question": Q, "output.answer": G, "splits": "[]"}, "CSV of Phoenix 20"),
        ({"question": Q, "answer": G, "supporting_facts": [["Pier", 0]], "context": [["Pier", [C]]]}, "HotpotQA"),
        ({"input": Q, "actual_output": None, "expected_output": G, "context": [C]}, "DeepEval"),
        ({"input": {"question": Q}, "expectedOutput": {"answer": G}, "sourceTraceId": None}, "Langfuse"),
    ],
)
def test_data_sets_have_no_answers_of_a_system(row: dict[str, Any], reference: str, tmp_path: Path) -> None:
    """What examples call their output is what the application should answer."""
    (tmp_path / "a.json").write_text(json.dumps([row] * 2))
    with pytest.raises(TurnError, match="there is no column for the response") as caught:
        list(read_records(tmp_path / "a.json"))
    assert "ask your application first: rageval-hooks run" in str(caught.value), reference


@pytest.mark.parametrize(
    ("row", "output"),
    [
        ({"inputs": {"question": Q}, "outputs": {"answer": G}, "metadata": {}}, "outputs.answer"),
        ({"id": "e", "input": {"question": Q}, "output": {"answer": G}}, "output.answer"),
    ],
)
def test_an_output_that_may_be_the_golden_answer(row: dict[str, Any], output: str, tmp_path: Path) -> None:
    """Nothing next to it says whether the file has a data set or answers of a system, so the user chooses."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([row]))
    with pytest.raises(TurnError, match=f"Choose with --map response={output} or --map reference={output}"):
        list(read_records(path))

    [record] = read_records(path, mapping={"response": output})
    assert (record.turn.response, record.turn.reference) == (G, None)
    with pytest.raises(TurnError, match="there is no column for the response"):
        list(read_records(path, mapping={"reference": output}))


@pytest.mark.parametrize("answers", [[G, "In May 2019."], [G], str([G, "In May"])], ids=str)
def test_a_list_of_answers_may_be_golden(answers: Any, tmp_path: Path) -> None:
    """As in NQ and TriviaQA, so the user chooses; next to a reference the list is the application's."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"question": Q, "answer": answers}]))
    choices = "Choose with --map response='answer[0]' or --map reference=answer"
    with pytest.raises(TurnError, match=re.escape(choices)):
        list(read_records(path))

    [record] = read_records(path, mapping={"response": "answer[0]"})
    assert (record.turn.response, record.turn.reference) == (G, None)
    with pytest.raises(TurnError, match="ask your application first: rageval-hooks run"):
        list(read_records(path, mapping={"reference": "answer"}))
    [question], _ = read_questions(path)
    assert question.reference is not None
    assert question.reference.startswith(G)

    path.write_text(json.dumps([{"question": Q, "answer": [A], "ground_truth": G}]))
    [record] = read_records(path)
    assert (record.turn.response, record.turn.reference) == (A, G)


def test_texts_that_are_json(tmp_path: Path) -> None:
    """Tables of Langfuse 2 have texts and objects as JSON in JSON. A text in quotation marks stays as it is."""
    path = tmp_path / "a.csv"
    for query, answer in ((Q, A), ({"question": Q}, {"answer": A})):
        cells = [query, answer] if isinstance(query, str) else [json.dumps(query), json.dumps(answer)]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["id", "timestamp", "input", "output"], ["t", "1", *map(json.dumps, cells)]])
        [record] = read_records(path)
        assert (record.turn.query, record.turn.response) == (Q, A)

    (tmp_path / "a.json").write_text(json.dumps([{"question": Q, "answer": f'"{A}"'}]))
    [record] = read_records(tmp_path / "a.json")
    assert record.turn.response == f'"{A}"'


def test_a_column_with_brackets_in_its_name(tmp_path: Path) -> None:
    """As promptfoo's tables have it: it is a name, not a path."""
    path = tmp_path / "a.csv"
    path.write_text(f"question,[gpt-5] Answer {{{{question}}}}\n{Q},{A}\n")
    [record] = read_records(path, mapping={"response": "[gpt-5] Answer {{question}}"})
    assert (record.turn.query, record.turn.response) == (Q, A)


def test_conversations_with_several_answers(tmp_path: Path) -> None:
    """The last is read, which is said."""
    turns = [("user", "Hi"), ("assistant", "Hello!"), ("user", Q), ("assistant", A)]
    (tmp_path / "a.json").write_text(json.dumps([{"messages": [{"role": r, "content": c} for r, c in turns]}]))
    notes: list[str] = []
    [(_, record)] = read_items(tmp_path / "a.json", note=notes.append)
    assert isinstance(record, Record)
    assert (record.turn.query, record.turn.response) == (Q, A)
    assert notes == ["the conversations in 'messages' have several answers: only the last is read"]


def test_the_golden_context_of_deepeval_is_no_passage(tmp_path: Path) -> None:
    """It is the text of the target."""
    row = {"input": Q, "actual_output": A, "retrieval_context": None, "context": [C]}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    [record] = read_records(tmp_path / "a.json")
    assert (record.turn.passages, record.target_text) == ((), C)


@pytest.mark.parametrize("value", ["N/A", "TODO", "{{answer}}", "<your answer>", "..."])
def test_a_placeholder_is_no_answer(value: str, tmp_path: Path) -> None:
    """A column that has nothing else is not the field's."""
    (tmp_path / "a.json").write_text(json.dumps([{"question": Q, "answer": value, "gpt_reply": A}] * 2))
    with pytest.raises(TurnError, match="Try --map response=gpt_reply"):
        list(read_records(tmp_path / "a.json"))


LONG = "The new pier was opened in 2019 by the mayor of the town."


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"Document": LONG}, "passages=Document"),
        ({"kb_articles": LONG, "f1": 0.5}, "passages=kb_articles"),
        ({"context_1": LONG, "context_2": "It is long."}, "passages='[context_1, context_2]'"),
        ({"evidences": [{"content": LONG}]}, "passages='evidences[].content'"),
        ({"comment": LONG}, "passages=COLUMN"),
    ],
)
def test_long_texts_that_are_not_used(columns: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Are said, with the column that may have the passages."""
    (tmp_path / "a.json").write_text(json.dumps([{"question": Q, "answer": A, **columns}]))
    notes: list[str] = []
    list(read_items(tmp_path / "a.json", note=notes.append))
    unused, passages = notes
    assert unused.startswith(f"not used, although with long texts: '{next(iter(columns))}")
    assert passages == f"no column is known for the passages: name it with --map {said}"


@pytest.mark.parametrize(
    "cell",
    [
        "['The pier opened.' 'It cost 41 million.']",
        "['a'\n \"it's b\"]",
        "[{'text': 'a'} {'text': 'b'}]",
        "array(['a', 'b'], dtype=object)",
        f"[Document(metadata={{'a': 1}}, page_content='{C}')]",
        "['The list of a cell that a spreadsheet has cut off at its lim",
    ],
)
def test_lists_that_cannot_be_read(cell: str, tmp_path: Path) -> None:
    """Prints of numpy and of objects, and what is cut off: a wrong passage would be worse."""
    row = json.dumps({"question": Q, "answer": A, "contexts": cell})
    (tmp_path / "a.jsonl").write_text(row)
    with pytest.raises(TurnError, match="the passages begin like a list, which is neither JSON nor a list of Python"):
        list(read_records(tmp_path / "a.jsonl"))


def test_a_question_in_messages_in_a_cell(tmp_path: Path) -> None:
    """Its text is that of the user. A question that begins with a bracket is a question."""
    path = tmp_path / "a.csv"
    path.write_text(f'query,response\n"[{{""role"": ""user"", ""content"": ""{Q}""}}]",{A}\n[1] Who?,{A}\n')
    assert [record.turn.query for record in read_records(path)] == [Q, "[1] Who?"]


def test_a_map_that_is_kept(tmp_path: Path) -> None:
    """``--map-file``: the columns that were found and named, as JSON."""
    path, kept = tmp_path / "a.jsonl", tmp_path / "map.json"
    path.write_text(json.dumps({"question": Q, "gpt_reply": A, "notes": "x"}))
    options = ReadOptions(columns=ColumnMap.parse(["response=gpt_reply"], ["notes"]))
    columns_of(path, ("query", "response"), options).write(kept)
    assert json.loads(kept.read_text()) == {"query": "question", "response": "gpt_reply", "ignore": ["notes"]}

    [(_, record)] = read_items(path, options=ReadOptions(columns=ColumnMap.parse([], [], kept)))
    assert isinstance(record, Record)
    assert (record.turn.query, record.turn.response) == (Q, A)
    with pytest.raises(ConfigurationError, match="--map 'gpt_reply' should be FIELD=COLUMN"):
        ColumnMap.parse(["gpt_reply"])
    kept.write_text("[]")
    with pytest.raises(ConfigurationError, match="is not a JSON object of columns"):
        ColumnMap.parse([], [], kept)


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
        # The only text with a name for an answer.
        ({"question": Q, "chat_reply": A, "f1": 0.5}, "Try --map response=chat_reply\n"),
        # References and inputs are no answers of a system.
        ({"question": Q, "true_responses_of_people": G, "gpt_text": A}, "Try --map response=gpt_text\n"),
        ({"question": Q, "responseOK": G, "golden_text": G, "gpt_text": A}, "Try --map response=gpt_text\n"),
        ({"question": Q, "No RAG": A}, "Try --map response='No RAG'\n"),
        ({"title": "Piers", "question": Q, "gpt_text": A}, "Try --map response=gpt_text\n"),
        ({"Frage des Kunden": Q, "gpt_text": A}, "Try --map query='Frage des Kunden' --map response=gpt_text\n"),
        ({"question": Q, "answer": {"by_the_model": A, "tokens": 5}}, "Try --map response=answer.by_the_model\n"),
        # Nothing is certain.
        ({"question": Q, "input_text": G, "gold_text": G}, "Name it with --map response=COLUMN;"),
        ({"question": Q, "replies": [A, "No."]}, "Name it with --map response=COLUMN;"),
        ({"question": Q, "model1": {"reply": A}, "model2": {"reply": A}}, "Name it with --map response=COLUMN;"),
        ({"question": Q, "f1": 0.71, "Relevancy": "0,91", "file": "answers/pier.md"}, "--map response=COLUMN;"),
        ({"question": Q, "our_reply": A, "model_text": A}, "Name it with --map response=COLUMN;"),
        ({"question": Q, "response_a": A, "response_b": G, "winner": "a"}, "Name it with --map response=COLUMN;"),
        ({"question": Q, "actual": A}, "Name it with --map response=COLUMN;"),
        # Golden answers, and the name of a model.
        ({"question": Q, "best_answer": G}, "Name it with --map response=COLUMN;"),
        ({"example_id": "e", "input_question": Q, "output_answer": G}, "query=input_question --map response=COLUMN;"),
        ({"question": Q, "sample_model": "gpt-5"}, "Name it with --map response=COLUMN;"),
        ({"Fråga": Q, "Svar": A}, "Name it with --map query='Fråga' --map response=COLUMN;"),
        # The title of a document is no question.
        ({"title": "Piers", "paragraphs": [{"context": C}], "answer": A}, "Name it with --map query=COLUMN;"),
        ({"question": Q, "expected": G}, "ask your application first: rageval-hooks run"),
    ],
)
def test_a_missing_column_has_a_hint(row: dict[str, Any], hint: str, tmp_path: Path) -> None:
    """The message shows the columns with a value of each, and proposes only what is certain."""
    (tmp_path / "a.json").write_text(json.dumps([row]))
    with pytest.raises(TurnError) as caught:
        list(read_records(tmp_path / "a.json"))
    message = str(caught.value)
    assert hint in message
    for column in row:
        assert f"\n  {column}" in message


def test_a_proposal_suits_every_row(tmp_path: Path) -> None:
    """A column that is empty in some rows is not proposed."""
    rows = [{"question": Q, "chat_reply": A}, {"question": Q, "chat_reply": ""}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    with pytest.raises(TurnError, match="Name it with --map response=COLUMN;"):
        list(read_records(tmp_path / "a.json"))


def test_what_is_proposed_can_be_read(tmp_path: Path) -> None:
    """In a list of answers, the first is named by the column's own name."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"question": Q, "true_answers": [G, "In May"], "predicted_answers": [A, "In 2018."]}))
    with pytest.raises(TurnError, match=r"a list of 2 items, not a text: --map response='predicted_answers\[0\]'"):
        list(read_records(path))
    [record] = read_records(path, mapping={"response": "predicted_answers[0]"})
    assert (record.turn.response, record.turn.reference) == (A, f"{G}\nIn May")


@pytest.mark.parametrize(
    ("answer", "proposed", "text"),
    [
        (
            [{"sentence": "It is old.", "label": "x"}, {"sentence": "It is long.", "label": "y"}],
            "join(' ', answer[].sentence)",
            "It is old. It is long.",
        ),
        ([{"text": "It is old.", "tokens": 3}], "answer[0].text", "It is old."),
    ],
)
def test_objects_in_place_of_a_text(answer: Any, proposed: str, text: str, tmp_path: Path) -> None:
    """The message says how to name the text in them."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"question": Q, "answer": answer}]))
    with pytest.raises(TurnError, match="a list of objects, not a text: try --map response=") as caught:
        list(read_records(path))
    assert proposed in str(caught.value)
    assert "or --map reference='answer[]." in str(caught.value)
    [record] = read_records(path, mapping={"response": proposed})
    assert record.turn.response == text


def test_the_columns_of_a_message_are_paths(tmp_path: Path) -> None:
    """What is in lists and objects can be named as it is shown."""
    hits = [{"document": {"body_of_it": C}, "rank_of_it": 1}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"question": Q, "said": A, "hits": hits}]))
    with pytest.raises(TurnError, match="there is no column for the response") as caught:
        list(read_records(path))
    assert f"\n  hits[].document.body_of_it: {C}" in str(caught.value)
    mapping = {"response": "said", "passages": "hits[].document.body_of_it"}
    [record] = read_records(path, mapping=mapping)
    assert [passage.text for passage in record.turn.passages] == [C]


def test_objects_in_place_of_passages(tmp_path: Path) -> None:
    """The message says how to name their texts."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"question": Q, "answer": A, "evidence": [{"evidence_text": C, "doc_name": "a"}]}]))
    with pytest.raises(TurnError, match=r"Try --map passages='evidence\[\]\.evidence_text'"):
        list(read_records(path))
    [record] = read_records(path, mapping={"passages": "evidence[].evidence_text"})
    assert record.turn.passages[0].text == C


@pytest.mark.parametrize(
    "sources",
    [
        *(5, "5", "a.pdf | https://example.com/b", ["Report 2023.pdf", "notes.md#3"], [1, 2], True),
        *(["doc_12", "doc_15"], "chunk-3; chunk-4", ["3f2b8c1e-5d60-4b7e-9a51-0c2a7d1f4e77"]),
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
