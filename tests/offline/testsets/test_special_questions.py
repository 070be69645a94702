"""Multi-hop and unanswerable questions: written from linked chunks, checked, marked, and scored for what they are."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.offline.records import read_records
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.reading import ReadOptions
from rageval_hooks.offline.report import build_report
from rageval_hooks.offline.report.tables import to_plain_text
from rageval_hooks.offline.scoring.score_file import score_file
from rageval_hooks.offline.testsets import Chunk, ChunkIndex, read_questions
from tests.command import invoke
from tests.judges.server import Received, Reply, answer, error
from tests.offline.scoring.test_scoring import pipeline
from tests.offline.testsets.test_generation import Bench, asked, bench, is_draft, writer

__all__ = ["bench"]

DOCUMENTS = {
    "pier.md": "The pier of Hallay was designed by the engineer Marta Lindqvist and opened in 2019.",
    "lindqvist.md": "Marta Lindqvist was born in the town of Skelby and studied in Oslo for five years.",
    "ferry.md": "The ferry to Quern takes 18 minutes and runs every hour from the northern quay.",
    "fares.md": "A ticket for the ferry to Quern costs 12 crowns, and bicycles travel without a charge.",
}
LINKED_GOOD = {"answered": True, "one_is_enough": False, "self_contained": True, "answer_supported": True}
OPEN_GOOD = {"answered": False, "self_contained": True, "on_topic": True}


def passages(request: Received) -> list[str]:
    return re.findall(r"<passage(?: \d+)? [0-9a-f]+>\n(.*?)\n</passage", request.prompt, re.DOTALL)


def kind_of(request: Received) -> str:
    if "can only be answered with both passages" in request.prompt or "one_is_enough" in request.prompt:
        return "multi-hop"
    is_open = "that the passages do not answer" in request.prompt or "on_topic" in request.prompt
    return "unanswerable" if is_open else "plain"


def special_writer(linked: Any = LINKED_GOOD, open_: Any = OPEN_GOOD) -> Any:
    """A judge that asks about the first words of the passages, and accepts what it is told to accept."""
    plain = writer()

    def reply(request: Received) -> Reply:
        kind = kind_of(request)
        if kind == "plain":
            return plain(request)
        if is_draft(request):
            about = " and ".join(
                " ".join(text.split()[:3]) for text in passages(request)[: 2 if kind != "plain" else 1]
            )
            if kind == "multi-hop":
                return answer({"pairs": [{"question": f"What connects {about}?", "answer": "Skelby"}]})
            return answer({"questions": [{"question": f"How heavy is {about}?", "missing": "the weight"}]})
        check = linked if kind == "multi-hop" else open_
        return answer({"checks": [{"number": 1, "reason": "", **check} for _ in asked(request)]})

    return reply


@pytest.fixture
def special(bench: Bench) -> Bench:
    for path in (bench.folder / "documents").iterdir():
        path.unlink()
    for name, text in DOCUMENTS.items():
        (bench.folder / "documents" / name).write_text(text)
    bench.server.otherwise(special_writer())
    return bench


SHARES = {"chunk_size": 200, "multi_hop": 0.5, "unanswerable": 0.25}


def test_shares_and_links(special: Bench) -> None:
    """Of four questions two need linked chunks of two documents, and one has no answer: it is marked."""
    assert special(**SHARES) == 0

    rows = special.rows
    assert sorted(row["style"] for row in rows) == ["factual", "multi-hop", "multi-hop", "unanswerable"]
    pairs = {frozenset(("pier.md", "lindqvist.md")), frozenset(("ferry.md", "fares.md"))}
    for row in rows:
        if row["style"] == "multi-hop":
            [other] = row["more_chunks"]
            assert frozenset((row["document"], other["document"])) in pairs
            assert other["text"] == DOCUMENTS[other["document"]]
    [row] = [row for row in rows if row["style"] == "unanswerable"]
    assert row["answerable"] is False
    assert {"ground_truth_answer", "chunk_id", "chunk"}.isdisjoint(row)
    assert special.said[1:3] == ["4 questions, 0 rejected", "  2 multi-hop, 1 unanswerable"]


def test_the_second_look_sees_the_nearest_chunks_of_the_whole_collection(special: Bench) -> None:
    """An answer may be in a chunk that the author of the question did not see, and that was not chosen."""
    special.server.otherwise(special_writer())
    assert special(chunk_size=200, unanswerable=1.0, limit=1) == 0

    look = next(request for request in special.server.requests if "on_topic" in request.prompt)
    name = special.rows[0]["document"]
    linked = {"pier.md": "lindqvist.md", "lindqvist.md": "pier.md", "ferry.md": "fares.md", "fares.md": "ferry.md"}
    assert {DOCUMENTS[name], DOCUMENTS[linked[name]]} <= set(passages(look))


@pytest.mark.parametrize(
    ("linked", "open_", "line"),
    [
        (
            {**LINKED_GOOD, "one_is_enough": True},
            OPEN_GOOD,
            "  2 multi-hop, but answered by one of",
        ),
        ({**LINKED_GOOD, "answered": False}, OPEN_GOOD, "  2 not answered by the chunk"),
        (LINKED_GOOD, {**OPEN_GOOD, "answered": True}, "  1 meant to be unanswerable, but answered by a chunk"),
        (LINKED_GOOD, {**OPEN_GOOD, "self_contained": False}, "  1 about “the text” itself, not understandable"),
        (LINKED_GOOD, {**OPEN_GOOD, "on_topic": False}, "  1 meant to be unanswerable, but not about the documents"),
    ],
)
def test_rejected_questions_are_counted(special: Bench, linked: Any, open_: Any, line: str) -> None:
    """By their reason."""
    special.server.otherwise(special_writer(linked, open_))
    assert special(**SHARES) == 0
    assert any(said.startswith(line) for said in special.said)


def test_a_dry_run_counts_the_calls_and_a_resumed_run_makes_the_rest(special: Bench) -> None:
    """What an interrupted run has paid for is not asked again, and the file is that of an uninterrupted run."""
    special(dry_run=True, **SHARES)
    assert special.said[1].startswith("8 requests to openai:writer")
    assert not special.server.requests
    special(**SHARES)
    whole = special.output.read_bytes()

    special.server.requests.clear()
    first = special_writer()
    checked: list[Received] = []

    def failing(request: Received) -> Reply:
        if is_draft(request):
            return first(request)
        checked.append(request)
        return first(request) if len(checked) == 1 else error(400)

    special.server.otherwise(failing)
    assert special(restart=True, **SHARES) == 1
    special(dry_run=True, **SHARES)
    assert special.said[1].startswith("3 requests")
    special.server.otherwise(special_writer())
    assert special(**SHARES) == 0
    assert special.output.read_bytes() == whole


def test_a_larger_limit_keeps_the_kinds(special: Bench) -> None:
    """Only the new chunks are paid for."""
    shares = {**SHARES, "limit": 2}
    assert special(**shares) == 0
    before = {row["id"]: row for row in special.rows}
    special.server.requests.clear()
    assert special(**{**SHARES, "limit": 4}) == 0
    assert before.items() <= {row["id"]: row for row in special.rows}.items()
    assert len(special.server.requests) == 4


def test_chunks_without_a_link_get_plain_questions(special: Bench) -> None:
    """And the command says so."""
    for name in ("lindqvist.md", "fares.md"):
        (special.folder / "documents" / name).unlink()
    (special.folder / "documents" / "ferry.md").write_text("Bees in Vaila make heather honey during the warm weeks.")
    assert special(**SHARES) == 0
    assert any("multi-hop questions about 0 chunks: the others share no rare word" in line for line in special.warned)


@pytest.mark.parametrize(
    "shares", [{"multi_hop": 1.5}, {"unanswerable": -0.1}, {"multi_hop": 0.7, "unanswerable": 0.4}]
)
def test_wrong_shares(special: Bench, shares: dict[str, float]) -> None:
    """They are refused before any work."""
    with pytest.raises(ConfigurationError, match="--"):
        special(**shares)
    assert not special.server.requests


def test_csv_and_jsonl_are_read_alike(special: Bench) -> None:
    """With the mark and the further chunks."""
    table = special.folder / "set.csv"
    special(special.output, table, **SHARES)
    with table.open(newline="") as file:
        assert {row["answerable"] for row in csv.DictReader(file)} == {"true", "false"}
    assert read_questions(table)[0] == read_questions(special.output)[0]


def test_rows_that_are_no_question(tmp_path: Path) -> None:
    """Each with its reason. Passages in an unknown form say nothing about the question, and are no error."""
    rows = [
        {"question": "How high is the pier?", "contexts": ["The pier is 9 m high."]},
        {"question": " "},
        {"question": "How old is it?", "more_chunks": 5},
        {"question": "How long is it?", "more_chunks": ["a"]},
        {"question": "How heavy is the pier?", "contexts": [{"title": "The pier", "pages": 9}]},
    ]
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions, bad = read_questions(path)

    chunks = [("How high is the pier?", "The pier is 9 m high."), ("How heavy is the pier?", None)]
    assert [(question.question, question.chunk) for question in questions] == chunks
    form = "more_chunks must be a list of objects with id, text and document"
    assert [(row.line, row.reason) for row in bad] == [(2, "the question is empty"), (3, form), (4, form)]

    records = [{"rageval_record": 1, "id": query, "turn": {"query": query}} for query in ("How wide is it?", "")]
    path.write_text("".join(json.dumps(row) + "\n" for row in records))
    [question], bad = read_questions(path)
    assert question.question == "How wide is it?"
    assert [(row.line, row.reason) for row in bad] == [(2, "the question is empty")]


@pytest.mark.parametrize("order", [1, -1])
def test_records_and_rows_in_one_test_set(tmp_path: Path, order: int) -> None:
    """Each is read as what it is: a team may add its own questions to a file of records."""
    rows = [
        {"rageval_record": 1, "id": "a", "turn": {"query": "How wide is it?", "reference": "9 m"}},
        {"question": "How high is it?", "ground_truth": "3 m"},
    ]
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[::order]))
    questions, bad = read_questions(path)

    expected = [("How wide is it?", "9 m"), ("How high is it?", "3 m")][::order]
    assert [(question.question, question.reference) for question in questions] == expected
    assert bad == []


def test_rows_behind_many_records(tmp_path: Path) -> None:
    """The first hundred rows decide on the columns: without a row of that kind among them, the reason says so."""
    records = [{"rageval_record": 1, "id": f"{n}", "turn": {"query": f"How wide is {n}?"}} for n in range(100)]
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (*records, {"question": "How high is it?"})))
    reason = "the first 100 rows are records, so its columns are not known: put such rows first, or give --map"

    questions, bad = read_questions(path)
    assert (len(questions), [(row.line, row.reason) for row in bad]) == (100, [(101, reason)])
    with pytest.raises(TurnError, match=f"line 101: {reason}"):
        list(read_records(path, required=["query"]))
    assert len(read_questions(path, ReadOptions(columns=ColumnMap({"query": "question"})))[0]) == 101


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("is_impossible", True, False),
        ("answerable", "no", False),
        ("unanswerable", 0, True),
        ("answerable", None, True),
    ],
)
def test_columns_of_other_test_sets(tmp_path: Path, column: str, value: Any, expected: bool) -> None:
    """SQuAD 2 and others mark such questions, too."""
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps({"question": "How heavy is the pier?", column: value}) + "\n")
    assert read_questions(path)[0][0].answerable is expected


REFUSAL = "I cannot answer this question based on the provided documents."


def respond(question: str) -> tuple[str, list[str]]:
    """Decline every second unanswerable question; answer the rest from two passages."""
    if "heavy" in question and "ferry" in question.lower():
        return REFUSAL, [DOCUMENTS["ferry.md"]]
    return "It weighs 40 tonnes.", [DOCUMENTS["ferry.md"], DOCUMENTS["pier.md"], DOCUMENTS["lindqvist.md"]]


def test_from_the_run_to_the_report(tmp_path: Path) -> None:
    """A refusal of an unanswerable question is right, an answer wrong; a multi-hop question needs all its passages."""
    questions = [
        {"id": "u1", "question": "How heavy is the ferry?", "answerable": False},
        {"id": "u2", "question": "How heavy is the pier?", "answerable": False},
        {
            "id": "m1",
            "question": "Where was the designer of the pier born?",
            "ground_truth_answer": "Skelby",
            "chunk": DOCUMENTS["pier.md"],
            "more_chunks": [{"text": DOCUMENTS["lindqvist.md"]}],
        },
        {
            "id": "m2",
            "question": "What does the way to Quern cost per minute?",
            "ground_truth_answer": "0.67",
            "chunk": DOCUMENTS["ferry.md"],
            "more_chunks": [{"text": DOCUMENTS["fares.md"]}],
        },
    ]
    data, answers, scores = (tmp_path / f"{name}.jsonl" for name in ("set", "answers", "scores"))
    data.write_text("".join(json.dumps(row) + "\n" for row in questions))
    done = invoke("run", data, app=f"{__name__}:respond", output=answers)
    assert done.exit_code == 0
    assert "the application declined 1 of 2 questions marked as unanswerable" in done.stdout

    outputs = []
    for workers in (1, 2):
        scores = tmp_path / f"scores{workers}.jsonl"
        local = pipeline(None, ("groundedness", "context_relevance", "answer_relevance"))
        score_file(answers, [scores], local, workers=workers)
        outputs.append(scores.read_bytes())
    assert outputs[0] == outputs[1]
    records = {record.id: record for record in read_records(scores)}
    # The second passage of m1 is the third that was retrieved; m2 lacks one of its two.
    assert (records["m1"].rank, records["m2"].rank, records["m2"].missed) == (3, None, True)
    reasons = {result.name: getattr(result, "reason", None) for result in records["u2"].results}
    assert reasons["context_relevance"] == reasons["answer_relevance"] == "the question is marked as unanswerable"

    report = build_report(scores)
    declined = report.files[0].score("declined")
    assert declined is not None
    assert declined.spread is not None
    assert (declined.count, declined.spread.mean) == (2, 0.5)
    assert report.files[0].score("context_relevance").count == 2
    assert "2 of 4 answers are to questions marked as unanswerable" in to_plain_text(report)


def test_metrics_that_need_an_answer() -> None:
    """A refusal would be a bad answer, and passages without the answer bad passages."""
    needing = {name for name, metric in REGISTRY.builtin().items() if metric.answerable_only}
    assert needing == {
        "answer_relevance",
        "answers_question",
        "concept_completeness",
        "context_relevance",
        "nuggets",
        "ranking",
        "trace",
        "umbrela",
    }


def test_a_word_that_many_chunks_have_links_none_of_them() -> None:
    """Only rare words say that two chunks belong together."""
    texts = [f"The harbour is near Place{number}." if number < 9 else f"Name{number} is here." for number in range(30)]
    texts += ["The lighthouse stands on Skerry.", "Skerry has a lighthouse."]
    chunks = [Chunk(id=str(number), text=text, document=str(number)) for number, text in enumerate(texts)]
    index = ChunkIndex(chunks)

    assert index.linked(chunks[0]) == []
    assert index.linked(chunks[30]) == [chunks[31]]
