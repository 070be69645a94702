"""A judge in whole processes: threads, event loops, pre-fork servers. Every score is delivered.

How scripts end is tested in tests/e2e/online/test_judged_exits.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.judges.server import JudgeServer, answer
from tests.online.processes import FORKED_QUESTIONS, FORKED_WORKERS, questions, run
from tests.online.test_judge_stage import LABELS


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        server.otherwise(answer(LABELS))
        yield server


def environment(server: JudgeServer) -> dict[str, str]:
    """By a name that has to be looked up: at the interpreter's exit the standard pool for that is gone."""
    return {
        "OPENAI_BASE_URL": server.url.replace("127.0.0.1", "localhost"),
        "OPENAI_API_KEY": "sk-test",
        "RAGEVAL_JUDGE": "openai:judge-model",
        "RAGEVAL_METRICS": "latency,trace",
        "RAGEVAL_DRAIN_TIMEOUT": "60",
        "NO_PROXY": "*",
    }


def check(evaluations: list[dict[str, Any]], expected: list[str]) -> None:
    """Every turn is there once, and judged once."""
    assert sorted(questions(evaluations)) == sorted(expected)
    judged = [evaluation for evaluation in evaluations if evaluation["stage"] == "background"]
    assert sorted(questions(judged, "background")) == sorted(expected)
    for evaluation in judged:
        assert {result["status"] for result in evaluation["results"]} == {"scored"}, evaluation["results"]


def test_threads(server: JudgeServer, tmp_path: Path) -> None:
    """Turns of many threads, which end before the main thread does."""
    evaluations, errors = run(
        """
rageval_hooks.instrument()
threads = [threading.Thread(target=lcel().invoke, args=(f"question {n}",)) for n in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()  # LangChain cannot start its own threads any more once the main thread has ended
""",
        tmp_path,
        **environment(server),
    )

    check(evaluations, [f"question {number}" for number in range(20)])
    assert errors == ""


def test_an_event_loop_that_ends(server: JudgeServer, tmp_path: Path) -> None:
    """The judge's loop is not the application's."""
    evaluations, errors = run(
        """
async def main():
    rageval_hooks.instrument()
    await asyncio.gather(*(lcel().ainvoke(f"question {number}") for number in range(20)))
asyncio.run(main())
""",
        tmp_path,
        **environment(server),
    )

    check(evaluations, [f"question {number}" for number in range(20)])
    assert errors == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_pre_fork_server(server: JudgeServer, tmp_path: Path) -> None:
    """Instrumented and used before the fork, as with a preloaded application; each worker has a judge that works."""
    script = """
handle = rageval_hooks.instrument()
lcel().invoke("parent before")
handle.flush(60)
"""
    evaluations, errors = run(script + FORKED_WORKERS, tmp_path, **environment(server))

    check(evaluations, FORKED_QUESTIONS)
    assert "Traceback" not in errors
