"""Interrupted and killed: long commands end with one message, without orphans, and resume to the same file."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.cli.test_cli import COMMAND, run

# Each test starts several processes, on a machine that may be busy.
pytestmark = pytest.mark.timeout(900)

_PATIENCE = 300.0
_WORDS = "pier ferry island harbour lighthouse keeper mayor bridge storm crowns quay town valley engineer".split()


def texts(seed: random.Random, number: int) -> str:
    sentences = (" ".join(seed.choices(_WORDS, k=12)) + f" in {seed.randint(1900, 2020)}." for _ in range(number))
    return " ".join(map(str.capitalize, sentences))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Enough work for some seconds."""
    seed, path = random.Random(5), tmp_path / "in.jsonl"
    made = [
        {"id": f"q{n}", "query": texts(seed, 1), "response": texts(seed, 3), "passages": [texts(seed, 6)] * 4}
        for n in range(600)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def wait_for_lines(path: Path, number: int) -> None:
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= number)


def score_arguments(rows: Path, output: Path) -> list[str]:
    return ["score", str(rows), "--models", "lexical", "--workers", "2", "-o", str(output)]


def test_control_c_during_score_with_workers(rows: Path) -> None:
    """One message, status 130, no process left, and the resumed file is that of an uninterrupted run."""
    output, whole = rows.with_name("out.jsonl"), rows.with_name("whole.jsonl")
    process = start(*score_arguments(rows, output))
    wait_for_lines(rows.with_name("out.jsonl.partial.jsonl"), 40)
    workers = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=_PATIENCE)

    assert process.returncode == 130
    assert errors.startswith("rageval-hooks: interrupted.")
    assert len(errors.splitlines()) == 1
    assert len(workers) == 2
    assert not any(worker.is_running() for worker in workers)
    assert not output.exists()
    assert "before an interruption" in run(*score_arguments(rows, output)).stdout
    run(*score_arguments(rows, whole))
    assert output.read_bytes() == whole.read_bytes()


def test_a_worker_that_is_killed(rows: Path) -> None:
    """As the kernel does when memory runs out: the message says so, the other worker ends, and nothing is lost."""
    output = rows.with_name("out.jsonl")
    process = start(*score_arguments(rows, output))
    wait_for_lines(rows.with_name("out.jsonl.partial.jsonl"), 40)
    workers = psutil.Process(process.pid).children()
    os.kill(workers[0].pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=_PATIENCE)

    assert process.returncode == 2
    assert "a worker process ended with status -9, probably because memory ran out" in errors
    assert "memory" in errors
    assert "Traceback" not in errors
    assert not any(worker.is_running() for worker in workers)
    run(*score_arguments(rows, output))
    assert len(output.read_bytes().splitlines()) == 600


def test_workers_end_with_a_killed_parent(rows: Path) -> None:
    """Nothing is printed: the reader of the pipe is gone."""
    process = start(*score_arguments(rows, rows.with_name("out.jsonl")))
    wait_for_lines(rows.with_name("out.jsonl.partial.jsonl"), 40)
    workers = psutil.Process(process.pid).children()
    process.kill()
    _, errors = process.communicate(timeout=_PATIENCE)
    assert len(workers) == 2
    wait_until(lambda: not any(worker.is_running() for worker in workers))
    assert "Traceback" not in errors


def test_control_c_during_run(tmp_path: Path) -> None:
    """What was answered is kept, and the resumed file has every answer."""
    (tmp_path / "app.py").write_text(
        "import time\n\n\ndef ask(question):\n    time.sleep(0.05)\n    return f'It is {question}', ['a passage']\n"
    )
    data, output = tmp_path / "set.jsonl", tmp_path / "out.jsonl"
    data.write_text("".join(json.dumps({"question": f"Which is number {n}?"}) + "\n" for n in range(80)))
    arguments = ["run", str(data), "--app", "app:ask", "-o", str(output), "--concurrency", "2"]
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    wait_for_lines(tmp_path / "out.jsonl.partial.jsonl", 10)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=_PATIENCE)

    assert process.returncode == 130
    assert errors.startswith("rageval-hooks: interrupted.")
    assert len(errors.splitlines()) == 1
    subprocess.run([*COMMAND, *arguments], check=True, capture_output=True, cwd=tmp_path)
    answers = [json.loads(line)["turn"]["response"] for line in output.read_text().splitlines()]
    assert answers == [f"It is Which is number {n}?" for n in range(80)]
