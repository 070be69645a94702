"""What is attached depends on what is installed, attaching imports nothing heavy, and exits lose nothing.

Each test runs in a fresh interpreter.
"""

from __future__ import annotations

import subprocess
import sys

import pytest


def python(code: str) -> str:
    """Run a program in a new interpreter, and return what it printed."""
    program = [sys.executable, "-W", "error::RuntimeWarning", "-c", code]
    done = subprocess.run(program, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("hidden", "attached"),
    [
        (("langchain_core",), ("llama_index",)),
        (("llama_index", "llama_index_instrumentation"), ("langchain",)),
        (("llama_index_instrumentation",), ("langchain",)),
    ],
    ids=["no LangChain", "no LlamaIndex", "a LlamaIndex that is too old"],
)
def test_a_framework_that_cannot_be_imported_is_not_attached(
    hidden: tuple[str, ...], attached: tuple[str, ...]
) -> None:
    """The other framework is attached. A warning names the missing module, because the distribution is installed."""
    printed = python(
        "import sys, rageval_hooks\n"
        f"for name in {hidden!r}: sys.modules[name] = None\n"
        "print(rageval_hooks.instrument(metrics=[], exporters=['console']).frameworks)\n"
    )

    [missing] = {"langchain", "llama_index"}.difference(attached)
    assert repr(attached) in printed.splitlines()
    assert f"{missing} is not instrumented" in printed


def test_neither_is_installed() -> None:
    """The application can still mark its turns with ``start_turn``."""
    printed = python(
        "import sys, rageval_hooks\n"
        "for name in ('langchain_core', 'llama_index_instrumentation'): sys.modules[name] = None\n"
        "handle = rageval_hooks.instrument(metrics=[], exporters=['console'])\n"
        "print(handle.frameworks)\n"
        "with rageval_hooks.start_turn('When?') as turn: turn.respond('In 2019.')\n"
        "print(handle.stats()['turns'])\n"
    )

    assert [line for line in printed.splitlines() if line in ("()", "1")] == ["()", "1"]


def test_llama_index_itself_is_not_loaded() -> None:
    """Its import takes seconds, and an application may not use it. If it is imported later, it is captured."""
    printed = python(
        "import sys, rageval_hooks\n"
        "from rageval_hooks.testing import InMemoryExporter\n"
        "memory = InMemoryExporter()\n"
        "handle = rageval_hooks.instrument(metrics=[], exporters=[memory])\n"
        "print(sorted({'llama_index.core', 'workflows'} & sys.modules.keys()))\n"
        "from llama_index.core.llms import MockLLM\n"
        "MockLLM().complete('Hi')\n"
        "assert handle.flush(10)\n"
        "print([evaluation.turn.query for evaluation in memory.evaluations])\n"
    )

    assert printed.splitlines() == ["[]", "['Hi']"]


def test_a_turn_of_the_last_moment_is_delivered() -> None:
    """A turn that an event loop handed over is delivered although the interpreter exits right after it."""
    printed = python(
        "import asyncio, rageval_hooks\n"
        "from rageval_hooks.exporters.base import Exporter\n"
        "from llama_index.core.llms import MockLLM\n"
        "class Printing(Exporter):\n"
        "    name = 'printing'\n"
        "    def export(self, evaluation): print('exported', evaluation.turn.query)\n"
        "rageval_hooks.instrument(metrics=[], exporters=[Printing()], evaluate_without_retrieval=True,\n"
        "    on_evaluation=lambda evaluation: None)\n"
        "asyncio.run(MockLLM().acomplete('Hi'))\n"
    )

    assert printed.splitlines() == ["exported Hi"]


def test_streams_that_are_open_at_exit() -> None:
    """The interpreter exits without output. One stream is of an event loop, the other is not."""
    printed = python(
        "import asyncio, rageval_hooks\n"
        "from llama_index.core import get_response_synthesizer\n"
        "from llama_index.core.llms import MockLLM\n"
        "from llama_index.core.schema import NodeWithScore, TextNode\n"
        "from rageval_hooks.testing import InMemoryExporter\n"
        "rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()])\n"
        "synthesizer = get_response_synthesizer(llm=MockLLM(), streaming=True)\n"
        "nodes = [NodeWithScore(node=TextNode(text='text'))]\n"
        "async def main():\n"
        "    response = await synthesizer.asynthesize('When?', nodes)\n"
        "    await anext(response.response_gen)\n"
        "    return response\n"
        "asynchronous = asyncio.run(main())\n"
        "response = synthesizer.synthesize('When?', nodes)\n"
        "next(response.response_gen)\n"
    )

    assert printed == ""
