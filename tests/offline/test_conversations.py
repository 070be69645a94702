"""The verdict of a conversation: from its turns, in a report by session, and of chat messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rageval_hooks import Score, Skipped, Turn, evaluate_conversation
from rageval_hooks.cli import app
from rageval_hooks.offline.conversations import ConversationSummary
from rageval_hooks.offline.records.record import Record
from rageval_hooks.score import Result
from rageval_hooks.turn import Timing


def verdict(label: str, metric: str = "verdict") -> Result:
    if label in ("declined", "not_evaluable"):
        return Skipped(name="verdict", metric=metric, reason="it declines", label=label)
    value = {"good": 1.0, "doubtful": 0.5, "bad": 0.0}[label]
    return Score(name="verdict", metric=metric, value=value, label=label)


def conversation(*turns: tuple[str, str]) -> ConversationSummary:
    """Return the verdict of questions with the labels of their answers."""
    found = [(Turn(query=query, response="Yes." if label else ""), label) for query, label in turns]
    return ConversationSummary.of((turn, [verdict(label)] if label else []) for turn, label in found)


OPENED = "When was the pier opened?"


@pytest.mark.parametrize(
    ("turns", "sentence"),
    [
        ([(OPENED, "good")], "1 of 1 answers good."),
        (
            [(OPENED, "good"), ("Who built it?", "bad"), ("How high is it?", "bad")],
            "1 of 3 answers good; the first bad",
        ),
        ([(OPENED, "doubtful"), ("The pier was opened when?", "good")], "the same question again in turn 2."),
        ([(OPENED, "good"), ("Who opened the pier?", "good")], "2 of 2 answers good."),
        ([("A ticket for 3 days?", "good"), ("A ticket for 4 days?", "good")], "2 of 2 answers good."),
        ([("And then?", "good"), ("And then?", "good")], "2 of 2 answers good."),
        ([("Wann öffnet die Mole?", "good"), ("wann öffnet die mole", "good")], "the same question again in turn 2."),
        ([("__REDACTED__", "good"), ("__REDACTED__", "good")], "2 of 2 answers good."),
        ([(OPENED, "declined"), ("Who built it?", "good")], "1 of 1 answers good."),
        ([(OPENED, "good"), ("Who built it?", "declined")], "1 of 1 answers good; unanswered at its end."),
        ([(OPENED, "good"), ("Who built it?", "")], "1 of 1 answers good; unanswered at its end."),
        ([(OPENED, "not_evaluable")], "0 of 0 answers good."),
    ],
)
def test_a_conversation_in_a_sentence(turns: list[tuple[str, str]], sentence: str) -> None:
    assert sentence in conversation(*turns).sentence()


def test_figures() -> None:
    found = conversation((OPENED, "good"), ("Who built it?", "bad"), (OPENED, "good"), ("Why?", "declined"))

    assert (found.turns, found.judged, found.good, found.first_bad) == (4, 3, 2, 2)
    assert (found.asked_again, found.unanswered) == ((3,), True)
    assert found.good_share == pytest.approx(2 / 3)
    assert conversation((OPENED, "not_evaluable")).good_share is None


def test_the_judge_comes_before_the_local_verdict() -> None:
    both = [verdict("good"), verdict("bad", "trace")]

    assert ConversationSummary.of([(Turn(query=OPENED, response="In 2019."), both)]).first_bad == 1


def test_a_report_by_session(tmp_path: Path) -> None:
    """In the order of time, whatever the order in the file; with the shares over all conversations."""
    path = tmp_path / "traffic.jsonl"
    turns = [
        ("ann", 3, "Who built it?", "declined"),
        ("ann", 1, OPENED, "good"),
        ("ann", 2, OPENED, "bad"),
        ("bob", 1, OPENED, "good"),
    ]
    with path.open("w") as file:
        for number, (session, at, query, label) in enumerate(turns):
            timing = Timing(started_at=at * 10**9, ended_at=at * 10**9)
            turn = Turn(id=str(number), query=query, response="So.", session_id=session, timing=timing)
            file.write(Record(id=str(number), turn=turn, results=(verdict(label),)).model_dump_json() + "\n")

    def report(*arguments: str) -> Any:
        done = CliRunner().invoke(app, ["report", str(path), *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    files = json.loads(report("--group-by", "session", "--format", "json"))["files"]
    found = {file["name"]: file["conversation"] for file in files}
    assert found["ann"] == {
        "turns": 3,
        "judged": 2,
        "good": 1,
        "first_bad": 2,
        "asked_again": [2],
        "unanswered": True,
    }
    assert found["bob"]["first_bad"] is None
    text = " ".join(report("--by", "session").split())
    assert "A bad answer is in 1 of 2 conversations; 1 end unanswered." in text
    assert "ann: 1 of 2 answers good; the first bad one in turn 2; the same question again in turn 2;" in text
    assert json.loads(report("--format", "json"))["files"][0]["conversation"] is None


def test_the_summary_of_chat_messages() -> None:
    messages = [
        {"role": "user", "content": OPENED},
        {"role": "assistant", "content": "The pier was opened in 2019."},
        {"role": "user", "content": "And when was the harbour opened?"},
    ]
    passages = ["The new pier was opened in September 2019."]
    open_one = evaluate_conversation(messages, [passages], models="lexical")
    closed = evaluate_conversation(messages[:2], [passages], models="lexical")

    assert [evaluation["unsupported_facts"] for evaluation in open_one] == [0.0]
    assert (open_one.summary.good, open_one.summary.unanswered) == (1, True)
    assert (closed.summary.good, closed.summary.unanswered) == (1, False)
