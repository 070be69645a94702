"""The commands with ``RAGEVAL_REDACT``: what they write, print and ask a judge is redacted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rageval_hooks.offline.records import read_records
from tests.cli.test_cli import run
from tests.judges.server import JudgeServer
from tests.offline.testsets.test_generation import FACTS, writer

MAIL = "jane@example.org"
APP = f"""
def ask(question):
    with open("asked.txt", "a") as file:
        file.write(question + "\\n")
    return "Mail {MAIL} before 2019.", ["Questions go to {MAIL}."]
"""


def texts_of(folder: Path, *inputs: str) -> str:
    return "".join(path.read_text() for path in folder.iterdir() if path.is_file() and path.name not in inputs)


def test_run_score_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application gets the original question, and scores are computed on what the file holds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "set.csv").write_text(f"question,chunk\nWho is {MAIL}?,Write to {MAIL}.\n\nAnd in 2018?,\n")
    environment = {"RAGEVAL_REDACT": "true", "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}

    run("run", "set.csv", "--app", "app:ask", "-o", "answers.jsonl", **environment)
    again = run("run", "set.csv", "--app", "app:ask", "-o", "answers.jsonl", **environment)
    score = ("score", "answers.jsonl", "-o", "scores.jsonl", "--models", "lexical", "--metrics", "unsupported_facts")
    run(*score, **environment)
    report = run("report", "scores.jsonl", "--format", "markdown", **environment).stdout

    assert "is finished already" in again.stderr
    assert sorted((tmp_path / "asked.txt").read_text().splitlines()) == ["And in 2018?", f"Who is {MAIL}?"]
    assert MAIL not in texts_of(tmp_path, "app.py", "set.csv", "asked.txt") + report
    first, _ = read_records(tmp_path / "scores.jsonl")
    assert first.turn.query == "Who is <EMAIL_ADDRESS>?"
    assert first.turn.response == "Mail <EMAIL_ADDRESS> before 2019."
    assert [result.status for result in first.results] == ["scored"]


def test_score_a_file_with_texts_that_must_not_leave(tmp_path: Path) -> None:
    """Rows, results and bad rows are redacted. A longer input gets the results that the output has."""
    data, output = tmp_path / "answers.jsonl", tmp_path / "scores.jsonl"
    row = f'{{"question": "Who is {MAIL}?", "answer": "Mail {MAIL} before 2019.", "contexts": ["{MAIL}, 2019"]}}\n'
    data.write_text(row + f'{{"question": "No answer, {MAIL}"}}\n')
    arguments = ("score", str(data), "-o", str(output), "--models", "lexical", "--metrics", "unsupported_facts")
    run(*arguments, status=1, RAGEVAL_REDACT="true")
    data.write_text(row + row.replace("Who", "What"))
    again = run(*arguments, RAGEVAL_REDACT="true")

    assert MAIL not in texts_of(tmp_path, "answers.jsonl")
    assert "1 " in again.stdout
    assert [record.turn.query for record in read_records(output)] == [
        "Who is <EMAIL_ADDRESS>?",
        "What is <EMAIL_ADDRESS>?",
    ]


def test_generate(tmp_path: Path) -> None:
    """The judge sees redacted chunks, so that the test set has redacted texts too."""
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "isles.md").write_text(f"{FACTS[0]} Write to {MAIL}.")
    output = tmp_path / "set.jsonl"
    with JudgeServer() as server:
        server.otherwise(writer())
        run(
            *("generate", str(tmp_path / "documents"), "--judge", "openai:x", "-o", str(output)),
            OPENAI_API_KEY="sk-test",
            OPENAI_BASE_URL=server.url,
            RAGEVAL_REDACT="true",
        )
        asked = str([request.body for request in server.requests])

    assert MAIL not in asked + output.read_text()
    assert "<EMAIL_ADDRESS>" in asked
    assert "<EMAIL_ADDRESS>" in output.read_text()
