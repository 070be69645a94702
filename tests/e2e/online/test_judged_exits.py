"""Scripts with a judge that end at once: every score is delivered, or the exit says what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.judges.server import Gate, JudgeServer, answer, held
from tests.online.processes import questions, run_fresh
from tests.online.test_judge_processes import check, environment
from tests.online.test_judge_stage import LABELS


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        server.otherwise(answer(LABELS))
        yield server


def test_a_script_that_ends_at_once(server: JudgeServer, tmp_path: Path) -> None:
    """What is queued is judged before the interpreter is gone."""
    evaluations, errors = run_fresh(
        """
rageval_hooks.instrument()
for number in range(20):
    lcel().invoke(f"question {number}")
""",
        tmp_path,
        **environment(server),
    )

    check(evaluations, [f"question {number}" for number in range(20)])
    assert errors == ""


def test_a_hanging_judge_does_not_block_the_exit(tmp_path: Path) -> None:
    """The exit has a deadline; unfinished work is counted and logged."""
    gate = Gate()
    with JudgeServer() as hanging:
        hanging.otherwise(held(answer(LABELS), gate))
        evaluations, errors = run_fresh(
            """
rageval_hooks.instrument()
for number in range(3):
    lcel().invoke(f"question {number}")
""",
            tmp_path,
            **{**environment(hanging), "RAGEVAL_DRAIN_TIMEOUT": "0.5"},
        )
        gate.set()

    assert sorted(questions(evaluations)) == sorted(f"question {number}" for number in range(3))
    # On a busy machine the step itself is left behind.
    undone = "the interpreter exits with 3 background jobs undone"
    assert undone in errors or "the exit does not wait for Worker.drain any longer" in errors
