"""Exit, fork, threads and event loops: whole processes that must deliver everything and never hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PRELUDE = """
import asyncio, json, logging, os, sys, threading, time
logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
import rageval_hooks
from tests.integrations.langchain.fakes import lcel, FACTS
out = sys.argv[1]
"""

# A pre-fork server such as gunicorn, with an application that was loaded and used before: all processes answer.
FORKED_WORKERS = """
children = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        for number in range(5):
            lcel().invoke(f"child {child} {number}")
        sys.exit(0)
    children.append(pid)
for pid in children:
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
lcel().invoke("parent after")
"""
FORKED_QUESTIONS = ["parent before", "parent after"] + [f"child {c} {n}" for c in range(3) for n in range(5)]


def run(script: str, tmp_path: Path, timeout: float = 240, **environment: str) -> tuple[list[dict[str, Any]], str]:
    """Run a script in a fresh interpreter; return the evaluations that it wrote, and its standard error."""
    out = tmp_path / "out.jsonl"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_"))}
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, str(out)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={
            **clean,
            "RAGEVAL_JSONL_PATH": str(out),
            "RAGEVAL_EXPORTERS": "jsonl",
            "RAGEVAL_INLINE_BUDGET_MS": "20000",
            **environment,
        },
    )
    assert result.returncode == 0, result.stderr
    lines = out.read_text().splitlines() if out.exists() else []
    return [json.loads(line) for line in lines], result.stderr


def questions(evaluations: list[dict[str, Any]], stage: str = "inline") -> list[str]:
    return [evaluation["turn"]["query"] for evaluation in evaluations if evaluation["stage"] == stage]


class TestExit:
    def test_a_script_that_ends_at_once_loses_nothing(self, tmp_path: Path) -> None:
        """No flush, no shutdown: the drain at exit delivers what is queued, late scores included."""
        evaluations, errors = run(
            """
rageval_hooks.instrument(metrics=["latency"], inline_budget_ms=0)
for number in range(50):
    lcel().invoke(f"question {number}")
""",
            tmp_path,
        )

        assert sorted(questions(evaluations)) == sorted(f"question {number}" for number in range(50))
        assert sorted(questions(evaluations, "background")) == sorted(questions(evaluations))
        assert errors == ""

    def test_an_exporter_that_hangs_does_not_hold_up_the_exit(self, tmp_path: Path) -> None:
        """There is a deadline, and a line that says how much was left."""
        evaluations, errors = run(
            """
class Hanging(rageval_hooks.Exporter):
    name = "hanging"
    def export(self, evaluation):
        threading.Event().wait()
rageval_hooks.instrument(metrics=[], exporters=[Hanging()], drain_timeout=0.2)
for number in range(3):
    lcel().invoke(f"question {number}")
""",
            tmp_path,
            timeout=240,
        )

        assert evaluations == []
        assert "the interpreter exits with 3 background jobs undone" in errors

    def test_models_that_are_still_loading_do_not_hold_up_the_exit(self, tmp_path: Path) -> None:
        """A script of a second is not made one of ten."""
        _, errors = run(
            """
import rageval_hooks.models
rageval_hooks.models._LOADERS["embedder"] = lambda settings: threading.Event().wait()
rageval_hooks.instrument(metrics=["semantic_grounding"], drain_timeout=0.2)
lcel().invoke("question")
""",
            tmp_path,
            timeout=240,
        )

        # On a busy machine the thread that drains may itself be late; the exit then says that it did not wait.
        assert "background jobs undone" in errors or "the exit does not wait for Worker" in errors

    def test_an_exit_by_exception_delivers(self, tmp_path: Path) -> None:
        """A script that ends with sys.exit inside of a turn."""
        evaluations, _ = run(
            """
from langchain_core.runnables import RunnableLambda
rageval_hooks.instrument(metrics=[])
lcel().invoke("question")
try:
    (RunnableLambda(lambda x: sys.exit(0))).invoke("bye")
finally:
    pass
""",
            tmp_path,
        )

        assert "question" in questions(evaluations)

    def test_a_stream_that_is_open_when_the_interpreter_ends(self, tmp_path: Path) -> None:
        """The interpreter closes it last, when no thread works any more: the process ends all the same."""
        evaluations, errors = run(
            """
rageval_hooks.instrument(metrics=["latency"])
stream = lcel().stream("question")
next(stream)
""",
            tmp_path,
            timeout=240,
        )

        assert evaluations == []
        assert errors == ""

    def test_turns_that_end_while_the_interpreter_goes_down(self, tmp_path: Path) -> None:
        """Neither an exception nor a hang."""
        evaluations, errors = run(
            """
import atexit
rageval_hooks.instrument(metrics=["latency"])
from tests.integrations.langchain.fakes import model, retriever
def late():
    (retriever() | str | model("answer")).invoke("late")
atexit.register(late)
""",
            tmp_path,
        )

        assert questions(evaluations) == ["late"]
        assert "Traceback" not in errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestFork:
    def test_children_of_a_pre_fork_server_deliver(self, tmp_path: Path) -> None:
        """Parent and children each deliver their own turns."""
        script = """
rageval_hooks.instrument(metrics=["latency", "groundedness"], models="lexical")
lcel().invoke("parent before")
"""
        evaluations, errors = run(script + FORKED_WORKERS, tmp_path)

        assert sorted(questions(evaluations)) == sorted(FORKED_QUESTIONS)
        assert "Traceback" not in errors

    def test_a_turn_that_was_queued_in_the_parent_is_not_delivered_twice(self, tmp_path: Path) -> None:
        """The child begins with an empty queue."""
        evaluations, _ = run(
            """
rageval_hooks.instrument(metrics=[])
for number in range(20):
    lcel().invoke(f"question {number}")
pid = os.fork()
if pid == 0:
    lcel().invoke("child")
    sys.exit(0)
os.waitpid(pid, 0)
""",
            tmp_path,
        )

        assert sorted(questions(evaluations)) == sorted(["child"] + [f"question {number}" for number in range(20)])

    def test_a_stream_across_a_fork(self, tmp_path: Path) -> None:
        """A turn that was under way in the parent is the parent's."""
        evaluations, _ = run(
            """
rageval_hooks.instrument(metrics=[])
stream = lcel().stream("parent")
next(stream)
pid = os.fork()
if pid == 0:
    from rageval_hooks.integrations.capture.recorder import shared_recorder
    assert len(shared_recorder()) == 0
    os._exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0
list(stream)
""",
            tmp_path,
        )

        assert questions(evaluations) == ["parent"]


class TestEventLoops:
    def test_the_loop_goes_on_while_scores_are_computed(self, tmp_path: Path) -> None:
        """A slow metric holds up its own answer only."""
        evaluations, _ = run(
            """
started, ticked = threading.Event(), threading.Event()
@rageval_hooks.metric
def slow(turn):
    "Takes as long as the loop needs for ten ticks."
    started.set()
    assert ticked.wait(30)
    return 1.0

async def tick():
    await asyncio.to_thread(started.wait, 30)
    for _ in range(10):
        await asyncio.sleep(0)
    ticked.set()

async def main():
    with rageval_hooks.instrument(metrics=[slow]):
        await asyncio.gather(lcel().ainvoke("question"), tick())

asyncio.run(main())
""",
            tmp_path,
            timeout=240,
        )

        [evaluation] = evaluations
        assert evaluation["results"][0]["value"] == 1.0

    def test_scores_are_there_when_an_awaited_call_returns(self, tmp_path: Path) -> None:
        """As where it is called without a loop."""
        run(
            """
seen = []
async def main():
    with rageval_hooks.instrument(metrics=["latency"], on_evaluation=seen.append):
        await lcel().ainvoke("question")
        assert [e.turn.query for e in seen] == ["question"]
        assert [chunk async for chunk in lcel().astream("streamed")]
        assert [e.turn.query for e in seen] == ["question", "streamed"]
asyncio.run(main())
""",
            tmp_path,
        )

    def test_a_plain_call_inside_a_loop(self, tmp_path: Path) -> None:
        """As in a notebook."""
        evaluations, errors = run(
            """
async def main():
    with rageval_hooks.instrument(metrics=["latency"]):
        lcel().invoke("question")
        "".join(lcel().stream("streamed"))
asyncio.run(main())
""",
            tmp_path,
        )

        assert questions(evaluations) == ["question", "streamed"]
        assert errors == ""
