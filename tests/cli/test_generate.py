"""``rageval-hooks generate``, as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.cli.test_cli import run
from tests.judges.server import Gate, JudgeServer, Received, Reply, held, nonce_of
from tests.offline.pdf import pdf
from tests.offline.testsets.test_generation import FACTS, is_draft, passage, writer
from tests.warm import start_command


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "isles.md").write_text("\n\n".join(FACTS[:2]))
    (folder / "keeper.pdf").write_bytes(pdf([FACTS[2]]))
    return folder


def environment(server: JudgeServer) -> dict[str, str]:
    return {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": server.url}


def test_from_documents_to_a_test_set(documents: Path, tmp_path: Path) -> None:
    """Markdown and PDF; plain output, exit status 0."""
    output = tmp_path / "set.csv"
    with JudgeServer() as server:
        server.otherwise(writer())
        arguments = ("generate", str(documents), "--judge", "openai:x", "-o", str(output), "--chunk-size", "70")
        done = run(*arguments, **environment(server))

    assert done.stdout.splitlines() == [
        "3 of 3 chunks of 2 documents",
        "3 questions, 0 rejected",
        f"wrote {output}",
    ]
    assert done.stderr == ""
    lines = output.read_text().splitlines()
    assert lines[0] == "question,ground_truth_answer,chunk_id,document,style,chunk"
    assert [row["document"] for row in csv.DictReader(lines)] == ["isles.md", "isles.md", "keeper.pdf"]


def test_what_is_wrong_is_one_line(documents: Path, tmp_path: Path) -> None:
    """With exit status 2, before anybody is asked."""
    output = str(tmp_path / "set.jsonl")

    assert run("generate", str(documents), "-o", output, status=2).stderr == (
        "rageval-hooks: --judge is required: it writes the questions. Give one such as openai:gpt-5-mini\n"
    )
    assert (
        "unknown style 'x'"
        in run("generate", str(documents), "-o", output, "--judge", "openai:x", "--style", "x", status=2).stderr
    )
    assert not Path(output).exists()


def test_a_killed_run_is_resumed(documents: Path, tmp_path: Path) -> None:
    """No answered request is repeated, and the file equals that of an uninterrupted run."""
    output = tmp_path / "set.jsonl"
    arguments = ["generate", str(documents), "--judge", "openai:x", "-o", str(output), "--chunk-size", "70"]
    arguments += ["--concurrency", "1"]
    never, reached = Gate(), threading.Event()

    def reply(request: Received) -> Reply:
        if not is_draft(request) and passage(request) == FACTS[1]:
            reached.set()
            return held(writer()(request), never)
        return writer()(request)

    with JudgeServer() as server:
        server.otherwise(reply)
        variables = {**os.environ, **environment(server)}
        with start_command(*arguments, environment=variables) as process:
            came_so_far = reached.wait(60)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert came_so_far
        assert not output.exists()
        before = len(server.requests)
        server.otherwise(writer())
        done = run(*arguments, **environment(server))
        # Each request has another nonce.
        requests = [request.content.replace(nonce_of(request.prompt).encode(), b"") for request in server.requests]

    assert done.stderr == f"going on from {output}.partial.jsonl\n"
    assert before == 4
    assert len(requests) == 7
    assert len(set(requests)) == 6, "only what was under way when it was killed is asked again"
    assert [json.loads(line)["chunk"] for line in output.read_text().splitlines()] == FACTS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents", "set.jsonl", "set.jsonl.done.jsonl"]


def test_an_interruption_says_how_to_resume(documents: Path, tmp_path: Path) -> None:
    """The exit status is that of an interruption, and finished answers are kept."""
    output = tmp_path / "set.jsonl"
    arguments = ["generate", str(documents), "--judge", "openai:x", "-o", str(output), "--concurrency", "1"]
    with JudgeServer() as server:
        never, reached = Gate(), threading.Event()

        def hold(request: Received) -> Reply:
            reached.set()
            return held(writer()(request), never)

        server.then(writer())
        server.otherwise(hold)
        with start_command(*arguments, environment={**os.environ, **environment(server)}) as process:
            came_so_far = reached.wait(60)
            process.send_signal(signal.SIGINT)
            status, errors = process.wait(), process.errors()
        assert came_so_far

    assert status == 130
    assert (
        f"interrupted. The results so far are in {output}.partial.jsonl: run the same command again to resume" in errors
    )
    assert "Traceback" not in errors


def test_the_budget_of_the_settings(documents: Path, tmp_path: Path) -> None:
    """Holds for `generate`, too. What was not asked is asked for once the budget has room again."""
    output = tmp_path / "set.jsonl"
    arguments = ["generate", str(documents), "--judge", "openai:x", "-o", str(output), "--chunk-size", "70"]
    arguments += ["--concurrency", "1"]
    with JudgeServer() as server:
        server.otherwise(writer())
        variables = {**environment(server), "RAGEVAL_JUDGE_BUDGET_STORE": str(tmp_path / "budget.db")}
        done = run(*arguments, status=1, **variables, RAGEVAL_JUDGE_BUDGET="calls_per_day=4")
        asked = len(server.requests)
        again = run(*arguments, **variables, RAGEVAL_JUDGE_BUDGET="calls_per_day=6")

    assert asked == 4
    assert "2 questions, 0 rejected" in done.stdout.splitlines()
    assert "run the same command again with a larger budget to resume" in done.stderr
    assert len(server.requests) == 6
    assert "3 questions, 0 rejected" in again.stdout.splitlines()
