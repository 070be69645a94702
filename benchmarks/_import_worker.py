"""A process of benchmarks/imports.py: imports one tool, attaches it, runs one turn, and reports the cost of each.

python _import_worker.py TOOL
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("DEEPEVAL_TELEMETRY_OPT_OUT", "1")
os.environ.setdefault("CONFIDENT_TRACE_VERBOSE", "0")


def _memory() -> float:
    """Return the memory that this process holds, in MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Laps:
    """Seconds and MiB from one mark to the next."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[float, float]] = {}
        self._time, self._size = time.perf_counter(), _memory()

    def mark(self, name: str) -> None:
        now, size = time.perf_counter(), _memory()
        self.found[name] = (now - self._time, size - self._size)
        self._time, self._size = time.perf_counter(), _memory()


def _import(tool: str) -> Any:
    if tool == "rageval-hooks":
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
        import rageval_hooks as module
    elif tool == "OpenInference":
        import openinference.instrumentation.langchain as module
    elif tool == "Langfuse":
        import langfuse as module
    elif tool == "DeepEval":
        import deepeval as module
    elif tool == "TruLens":
        import trulens.core as module
    else:
        return None
    return module


def _attach(tool: str, module: Any) -> tuple[Any, list[Any]]:
    """Attach a tool to LangChain, with an exporter that drops all; return the wrapper of a chain, and callbacks."""
    from _peer_tools import _null_exporter, _provider

    if tool == "rageval-hooks":
        provider, _ = _provider()
        module.instrument(metrics=[], tracer_provider=provider)
    elif tool == "OpenInference":
        provider, _ = _provider()
        module.LangChainInstrumentor().instrument(tracer_provider=provider)
    elif tool == "Langfuse":
        from langfuse.langchain import CallbackHandler

        module.Langfuse(
            public_key="pk-lf-benchmark", secret_key="sk-lf-benchmark", base_url="http://127.0.0.1:9",
            span_exporter=_null_exporter(),
        )  # fmt: skip
        return None, [CallbackHandler()]
    elif tool == "DeepEval":
        from deepeval.integrations.langchain import CallbackHandler as DeepEvalHandler

        return None, [DeepEvalHandler()]
    elif tool == "TruLens":
        from trulens.apps.langchain import TruChain
        from trulens.core import TruSession

        session = TruSession(database_url="sqlite:///:memory:")
        session.reset_database()
        return TruChain, []
    return None, []


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    tool = sys.argv[1]
    laps = Laps()
    module = _import(tool)
    laps.mark("import")
    import langchain_core.runnables  # noqa: F401 - what an application of LangChain has anyway
    from _overhead_worker import langchain_application

    application = langchain_application()
    laps.mark("application")
    wrapper, callbacks = _attach(tool, module)
    if wrapper is not None:
        recorder = wrapper(application.chain, app_name="benchmark", app_version="1")
    laps.mark("attach")
    if wrapper is not None:
        with recorder:
            application.chain.invoke("Who pays?")
    else:
        application.chain.invoke("Who pays?", {"callbacks": callbacks} if callbacks else {})
    laps.mark("first turn")
    for _ in range(20):
        application.chain.invoke("Who pays?", {"callbacks": callbacks} if callbacks else {})
    laps.mark("twenty more")
    print(json.dumps({"laps": laps.found, "memory": _memory(), "modules": len(sys.modules)}), file=answers, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
