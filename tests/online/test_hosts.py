"""Unusual hosts, each in its own process: other event loops and child processes.

Patched threads, signals and hanging collectors need fresh interpreters: see tests/e2e/online/test_hosts.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.online.processes import questions, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")


class TestEventLoops:
    def test_uvloop(self, tmp_path: Path) -> None:
        """Calls on another kind of event loop."""
        pytest.importorskip("uvloop")
        evaluations, errors = run(
            """
import uvloop
async def main():
    with rageval_hooks.instrument(metrics=["latency"]):
        await asyncio.gather(*(lcel().ainvoke(f"question {number}") for number in range(20)))
        assert [chunk async for chunk in lcel().astream("streamed")]
uvloop.run(main())
""",
            tmp_path,
        )

        assert sorted(questions(evaluations)) == sorted([*(f"question {n}" for n in range(20)), "streamed"])
        assert errors == ""

    def test_nested_loops(self, tmp_path: Path) -> None:
        """nest_asyncio, as in notebooks: sync and async calls inside a running loop."""
        pytest.importorskip("nest_asyncio")
        evaluations, errors = run(
            """
import nest_asyncio
nest_asyncio.apply()
async def main():
    with rageval_hooks.instrument(metrics=["latency"]):
        lcel().invoke("plain")
        asyncio.get_running_loop().run_until_complete(lcel().ainvoke("nested"))
        await lcel().ainvoke("awaited")
asyncio.run(main())
""",
            tmp_path,
        )

        assert sorted(questions(evaluations)) == ["awaited", "nested", "plain"]
        assert "Traceback" not in errors


CHILDREN = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def ask(number):
    lcel().invoke(f"question {number}")
    return number
"""

WAYS = {
    "Process": """
children = [context.Process(target=ask, args=(number,)) for number in range(6)]
for child in children:
    child.start()
for child in children:
    child.join(60)
    assert child.exitcode == 0, child.exitcode
""",
    "Pool": """
with context.Pool(2) as pool:
    assert pool.map(ask, range(6), chunksize=1) == list(range(6))
""",
    "ProcessPoolExecutor": """
with ProcessPoolExecutor(2, mp_context=context) as pool:
    assert list(pool.map(ask, range(6))) == list(range(6))
""",
}


class TestChildProcesses:
    @pytest.mark.parametrize("way", WAYS)
    def test_turns_of_multiprocessing_children_arrive(self, way: str, tmp_path: Path) -> None:
        """Such children end without exit handlers, and a pool's children are terminated."""
        evaluations, errors = run(
            CHILDREN
            + """
rageval_hooks.instrument(metrics=["latency"])
context = multiprocessing.get_context("fork")
lcel().invoke("parent")
"""
            + WAYS[way],
            tmp_path,
        )

        assert sorted(questions(evaluations)) == sorted(["parent", *(f"question {number}" for number in range(6))])
        assert "Traceback" not in errors
