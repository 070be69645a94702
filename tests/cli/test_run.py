"""``rageval-hooks run``, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.warm import run_command, start_command

ROOT = Path(__file__).resolve().parents[2]

APP = """
import os
import threading
from pathlib import Path

HERE = Path(__file__).parent


def ask(question):
    with open(HERE / "asked.txt", "a") as file:
        file.write(question + "\\n")
    reached = HERE / "reached"
    if question == "c?" and reached.exists():
        reached.write_text("the test reads this from the pipe, and kills the process")
        threading.Event().wait()
    if question == "b?":
        raise LookupError("nothing found")
    return f"Blue {question[0]}.", ["a text", "another text"]


def chain():
    from tests.integrations.langchain.fakes import lcel

    return lcel()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "set.csv").write_text("question,chunk_id\n" + "".join(f"{name}?,d1\n" for name in "abcd"))
    return tmp_path


def environment() -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_"))}
    return {**clean, "PYTHONPATH": str(ROOT)}


def run(folder: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, status=status, folder=folder, environment=environment())


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_the_own_instrument_of_the_application_is_switched_off(folder: Path) -> None:
    """It loads no models, and evaluates nothing."""
    (folder / "app.py").write_text(
        "import rageval_hooks\n\n"
        'handle = rageval_hooks.instrument(models="lexical", exporters=[])\n\n\n'
        'def ask(question):\n    return f"enabled: {handle.pipeline.enabled}"\n'
    )
    run(folder, "run", "set.csv", "--app", "app:ask", "-o", "out.jsonl")

    assert {record["turn"]["response"] for record in records(folder)} == {"enabled: False"}


def test_a_chain_in_the_current_directory(folder: Path) -> None:
    """One record per question, with the rank of its chunk; plain output, exit status 0."""
    done = run(folder, "run", "set.csv", "--app", "app:chain", "-o", "out.jsonl")

    assert done.stdout.splitlines() == [
        "4 of 4 questions answered",
        "the chunk with the answer was retrieved for 4 of 4",
        "wrote out.jsonl",
    ]
    assert done.stderr == ""
    assert [(record["turn"]["query"], record["rank"]) for record in records(folder)] == [
        (f"{name}?", 1) for name in "abcd"
    ]


def test_a_killed_run_is_resumed(folder: Path) -> None:
    """Each question is asked once, but for the one that was under way; an error is a record and exit status 1.

    And the next command reads what came of it: what failed has no score.
    """
    arguments = ("run", "set.csv", "--app", "app:ask", "-o", "out.jsonl", "--concurrency", "1")
    asked = folder / "asked.txt"
    reached = folder / "reached"
    os.mkfifo(reached)
    with start_command(*arguments, folder=folder, environment=environment()) as process:
        reached.read_text()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (folder / "out.jsonl").exists()
    reached.unlink()
    done = run(folder, *arguments, status=1)

    assert asked.read_text().split() == ["a?", "b?", "c?", "c?", "d?"]
    assert done.stderr == "going on from out.jsonl.partial.jsonl\n"
    assert [record["turn"]["response"] for record in records(folder)] == ["Blue a.", "", "Blue c.", "Blue d."]
    assert records(folder)[1]["turn"]["error"] == {"type": "LookupError", "message": "nothing found"}
    assert not (folder / "out.jsonl.partial.jsonl").exists()

    run(folder, "score", "out.jsonl", "--models", "lexical", "--metrics", "groundedness", "-o", "scores.jsonl")
    scored = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert [record["results"][0]["status"] for record in scored] == ["scored", "skipped", "scored", "scored"]
    assert [record["id"] for record in scored] == [record["id"] for record in records(folder)]


def test_a_wrong_app_is_one_line(folder: Path) -> None:
    """With the name that may be meant, and exit status 2."""
    errors = run(folder, "run", "set.csv", "--app", "app:chian", "-o", "out.jsonl", status=2).stderr

    assert errors == "rageval-hooks: --app: app:chian names nothing: there is no 'chian'. Did you mean 'chain'?\n"


def test_an_app_that_changes_the_directory(folder: Path) -> None:
    """The files are written to the paths that were given."""
    (folder / "elsewhere").mkdir()
    (folder / "moving.py").write_text("import os\n\nos.chdir('elsewhere')\n\n\ndef ask(question):\n    return 'x'\n")
    done = run(folder, "run", "set.csv", "--app", "moving:ask", "-o", "out.jsonl")

    assert done.stdout.splitlines()[-1] == "wrote out.jsonl"
    assert len(records(folder)) == 4
    assert list((folder / "elsewhere").iterdir()) == []


def test_an_app_that_exits_when_it_is_imported(folder: Path) -> None:
    """Is a wrong one: one line, exit status 2."""
    (folder / "leaving.py").write_text("import sys\n\nsys.exit(0)\n")
    errors = run(folder, "run", "set.csv", "--app", "leaving:ask", "-o", "out.jsonl", status=2).stderr
    assert errors == "rageval-hooks: --app: leaving cannot be imported: SystemExit: 0\n"
