"""Kill ``rageval-hooks watch`` at random moments, and count the turns that have no verdict, or two.

    python benchmarks/watch_kills.py phoenix http://localhost:6006 --traces 500 --kills 10
    python benchmarks/watch_kills.py mlflow http://localhost:5000

Turns are sent by OTLP to a server that runs already, a part of them between the kills; a fifth began an hour ago. Each
kill is SIGKILL in the second after the start, or in that after the first new verdict. At the end one process scores
the rest. Exits with 1 if a turn has no verdict, or two.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
from _servers import SERVERS, stored
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import set_span_in_context

from rageval_hooks.cli import app

PROJECT = "watched"
SETTLE = 2


def send(url: str, headers: dict[str, str], numbers: range) -> list[tuple[str, str]]:
    """Send the spans of turns; return the ids of each trace and of its root."""
    provider = TracerProvider(resource=Resource({"openinference.project.name": PROJECT}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces", headers=headers, timeout=120)))
    tracer = provider.get_tracer("application")
    found = []
    for number in numbers:
        began = time.time_ns() - 10**9 * (3600 if number % 5 == 0 else 10)
        question = f"When was lock {number} rebuilt?"
        passage = f"Lock {number} was rebuilt in {1900 + number % 100}."
        answer = passage if number % 3 else f"Lock {number} was rebuilt in 1666."
        asked = {"openinference.span.kind": "CHAIN", "input.value": question, "output.value": answer}
        asked["session.id"] = f"session-{number // 6}"
        root = tracer.start_span("ask", start_time=began, attributes=asked)
        inside = set_span_in_context(root)
        search = {
            "openinference.span.kind": "RETRIEVER",
            "input.value": question,
            "retrieval.documents.0.document.content": passage,
        }
        tracer.start_span("search", inside, start_time=began + 10**6, attributes=search).end(began + 10**8)
        chat = {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": f"{passage}\n\nQuestion: {question}",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": answer,
        }
        tracer.start_span("chat", inside, start_time=began + 2 * 10**8, attributes=chat).end(began + 8 * 10**8)
        root.end(began + 10**9)
        context = root.get_span_context()
        found.append((f"{context.trace_id:032x}", f"{context.span_id:016x}"))
    provider.shutdown()
    return found


def start(arguments: list[str], log: Path) -> int:
    """Run the command in a forked process; return its id."""
    pid = os.fork()
    if pid:
        return pid
    with open(log, "a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        status = 1
        try:
            app(arguments, standalone_mode=False)
            status = 0
        except BaseException as error:
            status = getattr(error, "exit_code", 1)
            print(repr(error), file=sys.stderr)
        finally:
            sys.stdout.flush()
            os._exit(status)


def verdicts(backend: str, url: str, experiment: str, turns: list[tuple[str, str]]) -> Counter[str]:
    """Return how many verdicts each turn's span has."""
    spans, found = {span for _, span in turns}, stored(backend, url, experiment or PROJECT, turns)
    return Counter({one: count for (one, name), count in found.items() if name == "verdict" and one in spans})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=SERVERS)
    parser.add_argument("url")
    parser.add_argument("--traces", type=int, default=500)
    parser.add_argument("--kills", type=int, default=10)
    given = parser.parse_args()
    experiment, headers = "", {}
    if given.backend == "mlflow":
        body = {"name": PROJECT}
        made = httpx.post(f"{given.url}/api/2.0/mlflow/experiments/create", json=body, timeout=120).raise_for_status()
        experiment = made.json()["experiment_id"]
        headers = {"x-mlflow-experiment-id": experiment}
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        log = Path(name) / "log"
        common = [*("watch", given.backend, "--url", given.url, "--project", PROJECT, "--models", "lexical")]
        common += ["--settle", f"{SETTLE}s", "--checkpoint", "watch.db"]
        first = given.traces // 2
        turns = send(given.url, headers, range(first))
        time.sleep(SETTLE)

        def scored() -> int:
            return len(verdicts(given.backend, given.url, experiment, turns))

        share, scored_at_kills = (given.traces - first) // given.kills, []
        for kill in range(given.kills):
            pid = start([*common, "--since", "2h", "--every", "1s"], log)
            # While it starts and reads, or in the middle of its deliveries.
            before, end = scored(), time.monotonic() + 60
            while kill % 3 and scored() == before and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(random.uniform(0, 1))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            scored_at_kills.append(scored())
            begin = first + kill * share
            turns += send(given.url, headers, range(begin, given.traces if kill == given.kills - 1 else begin + share))
        time.sleep(2 * SETTLE)
        statuses = []
        for _ in range(2):
            _, status = os.waitpid(start([*common, "--since", "2h", "--once"], log), 0)
            statuses.append(os.waitstatus_to_exitcode(status))
        found = verdicts(given.backend, given.url, experiment, turns)
        figures = {
            "turns": len(turns),
            "scored at the kills": scored_at_kills,
            "exit statuses": statuses,
            "missed": sum(found[span] == 0 for _, span in turns),
            "doubled": sum(found[span] > 1 for _, span in turns),
        }
        print(json.dumps(figures))
        is_right = figures["missed"] == figures["doubled"] == 0 and statuses == [0, 0]
        if not is_right:
            print(log.read_text()[-4000:], file=sys.stderr)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
