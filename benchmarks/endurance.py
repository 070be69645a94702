"""Many turns through one process: does memory grow, is a score lost, do the statistics add up?

    .venv/bin/python benchmarks/endurance.py [--turns 200000] [--scored 20000]

First a chain of LangChain with the metrics off and spans on; then, in a new process, with the lexical metrics and every
hundredth turn judged by a server on loopback. Every turn has a different question; its passages are drawn from a
handbook of 300. Memory is what the process holds (resident), read after the work in the background is done; growth
counts from a tenth of the turns on, when every cache has seen the handbook. Prints one table.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _environments import HERE, ROOT, describe_machine, table

sys.path.insert(0, str(ROOT))

CHECKS = 20
JUDGED = 0.01


def resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def chain() -> Any:
    """Return a chain of LangChain: a retriever of five passages, a prompt and a model that answers at once."""
    from langchain_core.documents import Document
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnablePassthrough
    from scoring import HANDBOOK, Texts

    texts = Texts(seed=3)
    handbook = [texts.passage() for _ in range(HANDBOOK)]
    chance = random.Random(5)

    class Model(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "fake"

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
            written = AIMessage(
                "The North Line sails from Ardwell to Hallay six times a day. It was opened in 2019.",
                usage_metadata={"input_tokens": 1000, "output_tokens": 30, "total_tokens": 1030},
            )
            return ChatResult(generations=[ChatGeneration(message=written)])

    class Retriever(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            found = chance.sample(range(HANDBOOK), 5)
            return [Document(page_content=handbook[number], id=str(number)) for number in found]

    prompt = ChatPromptTemplate.from_messages([("system", "Answer from these.\n\n{context}"), ("human", "{question}")])
    return {"context": Retriever(), "question": RunnablePassthrough()} | prompt | Model() | StrOutputParser()


class Counted:
    """Counts evaluations and results by stage and status. Keeps nothing else."""

    def __init__(self) -> None:
        self.evaluations: Counter[str] = Counter()
        self.results: Counter[str] = Counter()
        self.names: Counter[str] = Counter()

    def exporter(self) -> Any:
        from rageval_hooks.exporters.base import Exporter

        counted = self

        class Counting(Exporter):
            name = "counting"

            def export(self, evaluation: Any) -> None:
                counted.evaluations[evaluation.stage] += 1
                for result in evaluation.results:
                    counted.results[result.status] += 1
                    if getattr(result, "target", None) is None or result.target.kind == "turn":
                        counted.names[result.name] += 1

        return Counting()


def run(turns: int, scored: bool) -> dict[str, Any]:
    """Run the turns in this process, and return the counts."""
    from _peer_tools import _provider

    import rageval_hooks
    from rageval_hooks.judges.openai import OpenAIJudge

    provider, spans = _provider()
    from rageval_hooks.exporters.otel import OtelExporter

    counted = Counted()
    settings: dict[str, Any] = {"exporters": [OtelExporter(provider), counted.exporter()], "metrics": []}
    server = None
    if scored:
        server = subprocess.Popen(
            [sys.executable, HERE / "_judge_server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        settings |= {
            "metrics": None,
            "models": "lexical",
            "judge": OpenAIJudge("judge-model", base_url=url, api_key="sk-benchmark"),
            "judge_sample_rate": JUDGED,
            "inline_budget_ms": 60_000,
        }
    handle = rageval_hooks.instrument(**settings)
    rag = chain()
    sizes = []
    started = time.perf_counter()
    for number in range(turns):
        rag.invoke(f"How often does the North Line sail, and when was it opened? Asked by passenger {number}.")
        if (number + 1) % max(1, turns // CHECKS) == 0:
            handle.flush(120)
            provider.force_flush()
            gc.collect()
            sizes.append(resident())
    took = time.perf_counter() - started
    flushed = handle.flush(120)
    stats = handle.stats()
    requests = 0
    if server is not None:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("\n")
        server.stdin.flush()
        requests = int(server.stdout.readline())
    handle.shutdown()
    if server is not None:
        server.communicate()
    return {
        "turns": turns, "took": took, "sizes": sizes, "flushed": flushed, "stats": stats, "requests": requests,
        "evaluations": dict(counted.evaluations), "results": dict(counted.results), "names": dict(counted.names),
        "spans": spans(),
    }  # fmt: skip


def faults(found: dict[str, Any], scored: bool) -> list[str]:
    """Return the counts that do not add up; empty if all do."""
    stats, turns = found["stats"], found["turns"]
    names = {name: count for name, count in found["names"].items() if not name.startswith("trace.")}
    judged = found["evaluations"].get("background", 0)
    checks = {
        "everything was delivered": found["flushed"],
        "every turn counts": stats["turns"] == stats["evaluated"] == found["evaluations"].get("inline") == turns,
        "the results that were counted came out": all(
            stats[status] == found["results"].get(status, 0) for status in ("scored", "skipped", "failed")
        ),
        "nothing failed": stats["failed"] == stats["internal_errors"] == stats["export_errors"] == 0,
        "every metric has a result for every turn": all(count == turns for count in names.values()),
        "the queues took everything and are empty": all(
            queue["dropped"] == queue["pending"] == queue["failed"] == 0 for queue in stats["queues"].values()
        )
        and stats["queues"]["export"]["accepted"] == turns,
        "nothing is left open": stats["open_runs"] == stats["given_up"] == 0,
        "three spans for each turn, one for each judgement": found["spans"] == 3 * turns + judged,
    }
    if scored:
        checks["metrics ran"] = len(names) >= 10
        checks["every judged turn has its scores"] = (
            judged == found["requests"] == stats["deferred_metrics"] == found["names"].get("trace.adherence", 0)
            and 0.5 * JUDGED * turns < judged < 2 * JUDGED * turns
        )
    return [name for name, holds in checks.items() if not holds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=200_000, help="with the metrics off; 0 to leave it out")
    parser.add_argument("--scored", type=int, default=20_000, help="with metrics and a judge; 0 to leave it out")
    parser.add_argument("--child", choices=["off", "scored"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(run(given.turns, given.child == "scored")))
        return
    rows = []
    bad = 0
    for name, turns in (("off", given.turns), ("scored", given.scored)):
        if not turns:
            continue
        command = [sys.executable, Path(__file__), "--child", name, "--turns", str(turns)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        wrong = faults(found, name == "scored")
        bad += len(wrong)
        sizes = found["sizes"]
        warm = sizes[max(1, len(sizes) // 10) - 1]
        stats = found["stats"]
        rows.append(
            [
                "metrics off" if name == "off" else f"lexical metrics, {JUDGED:.0%} judged",
                f"{turns:,}",
                f"{found['took'] / turns * 1e3:.2f}",
                f"{warm:.1f}",
                f"{sizes[-1]:.1f}",
                f"{sizes[-1] - warm:+.1f}",
                f"{stats['scored']:,} / {stats['skipped']:,} / {stats['failed']:,}",
                f"{found['requests']:,}",
                "; ".join(wrong) or "yes",
            ]
        )
        if wrong:
            print(json.dumps(found), file=sys.stderr)
    print(describe_machine(), end="\n\n")
    header = ["turns through one process", "turns", "ms a turn", "MiB after warm-up", "MiB at the end", "growth MiB"]
    print(table([*header, "scored / skipped / failed", "requests to the judge", "adds up"], rows))
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
