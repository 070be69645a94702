"""Forks and event loops: each process delivers everything and never hangs. For exits, see tests/e2e/online."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.online.processes import FORKED_QUESTIONS, FORKED_WORKERS, questions, run


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

        assert sorted(questions(evaluations)) == ["question", "streamed"]
        assert errors == ""
