"""Scores on their way to score APIs that fail often: is one lost or stored twice?

    .venv/bin/python benchmarks/score_apis.py [BACKEND ...] [--turns 1000] [--rate 25] [--share 0.2]
    .venv/bin/python benchmarks/score_apis.py phoenix mlflow     # real servers, behind a proxy that fails

A server on loopback answers as each backend does, but a fifth of the requests gets a 5xx, a 429 or a reset, half of
them after they took effect. In the middle of the turns it is stopped, and started again. What it has stored survives.
Two scores are the same if the backend identifies them so. MLflow's server is the command in ``MLFLOW_COMMAND``, or the
one that ``make e2e`` installs. Prints one table.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from _common import ROOT, describe_machine, table
from _servers import SERVERS, serve, stored

sys.path.insert(0, str(ROOT))

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from rageval_hooks import Evaluation, Score, Turn
from rageval_hooks.exporters.mlflow import MlflowExporter
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.exporters.phoenix import PhoenixExporter
from rageval_hooks.turn import SpanReference, Timing
from tests.exporters.recording import Recorded, Reply, recording_server, shaky
from tests.exporters.score_backends import NAMES, Store, backend_of

DOWN = 2.0
"""Seconds for which the server on loopback is stopped. A real one takes some to start."""

# Scores of own metrics: of the built-in ones, a trace has the main ones only.
SCORES = tuple(Score(name=name, value=0.5, label="pass") for name in ("tone", "brevity", "coverage"))
PROJECT = "bad-day"


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the scores of a run go.

    Attributes:
        exporter: sends them.
        restart: stops the server and starts it again.
        requests: returns how many requests there were.
        stored: returns how often the server has each score.
        per_score: how many the server gets of one score.
    """

    exporter: Any
    restart: Callable[[], Any]
    requests: Callable[[], int]
    stored: Callable[[], Counter[Any]]
    per_score: int = 1


@contextmanager
def loopback(name: str, share: float, _: list[Turn]) -> Iterator[Target]:
    """Run a server that answers as a backend does."""
    backend = backend_of(name)
    store = Store(backend)
    respond = shaky(store.respond, share=share)
    with ExitStack() as running:
        servers = [running.enter_context(recording_server(respond))]
        os.environ |= {**backend.variables, backend.address: servers[0].url}

        def restart() -> None:
            running.close()
            time.sleep(DOWN)
            port = urlsplit(servers[0].url).port or 0
            servers.append(running.enter_context(recording_server(respond, port=port)))

        yield Target(
            exporter=backend.exporter(),
            restart=restart,
            requests=lambda: sum(len(server.requests) for server in servers),
            stored=lambda: Counter(set(store.taken)) if backend.replaces else store.taken,
        )


@contextmanager
def real(name: str, share: float, turns: list[Turn]) -> Iterator[Target]:
    """Run a real server, which has the spans of all turns, behind a proxy."""
    is_phoenix = name == "phoenix"
    provider = TracerProvider(resource=Resource({"openinference.project.name": PROJECT}), shutdown_on_exit=False)
    with tempfile.TemporaryDirectory(prefix=f"rageval-{name}-") as folder, ExitStack() as running:
        url = running.enter_context(serve(name, Path(folder)))
        headers = None if is_phoenix else {"x-mlflow-experiment-id": "0"}
        sender = OTLPSpanExporter(f"{url}/v1/traces", headers=headers, timeout=120)
        provider.add_span_processor(BatchSpanProcessor(sender))
        spans = OtelExporter(provider, log_events=False, score_metrics=False)
        for number, turn in enumerate(turns, 1):
            spans.export(Evaluation(turn=turn))
            # The processor's queue drops what is more than it holds.
            if number % 200 == 0:
                provider.force_flush(120_000)
        provider.force_flush(120_000)

        def restart() -> None:
            running.close()
            running.enter_context(serve(name, Path(folder), urlsplit(url).port))

        ids = [(turn.span.trace_id, turn.span.span_id) for turn in turns if turn.span is not None]
        kind = PhoenixExporter if is_phoenix else MlflowExporter
        with recording_server(shaky(forward_to(url), share=share)) as proxy:
            yield Target(
                exporter=kind(proxy.url, tracer_provider=provider, scores="all"),
                restart=restart,
                requests=lambda: len(proxy.requests),
                stored=lambda: stored(name, url, PROJECT if is_phoenix else "0", ids),
                per_score=1 if is_phoenix else 2,  # MLflow has them on the trace, too
            )
        provider.shutdown()


def forward_to(url: str) -> Callable[[Recorded], Reply]:
    """Return a function that passes a request on, and answers 502 while the server is down."""
    client = httpx.Client(base_url=url, timeout=60)

    def forward(request: Recorded) -> Reply:
        path = f"{request.path}?{request.query}" if request.query else request.path
        try:
            response = client.request(request.method, path, json=request.body)
        except httpx.HTTPError:
            return Reply(status=502)
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return Reply(status=response.status_code, body=response.json() if is_json else response.text)

    return forward


def make_turns(amount: int) -> list[Turn]:
    """Return turns, each in a separate trace."""
    now = time.time_ns()
    timing = Timing(started_at=now - 10**9, ended_at=now)
    spans = [SpanReference(trace_id=f"{number:032x}", span_id=f"{number:016x}") for number in range(1, amount + 1)]
    return [Turn(query="When?", response="In 2019.", span=span, timing=timing) for span in spans]


def measure(name: str, turns: list[Turn], rate: float, share: float) -> list[str]:
    """Return a line of the table."""
    with (real if name in SERVERS else loopback)(name, share, turns) as target:
        exporter, started = target.exporter, time.monotonic()
        for number, turn in enumerate(turns):
            exporter.export(Evaluation(turn=turn, results=SCORES))
            time.sleep(max(0.0, started + number / rate - time.monotonic()))
            if number == len(turns) // 2:
                target.restart()
        complete = exporter.flush(600)
        took = time.monotonic() - started
        exporter.shutdown(10)
        found = target.stored()
    expected, stats = len(turns) * len(SCORES) * target.per_score, exporter.stats()
    return [
        name, str(expected), str(target.requests()), str(stats["errors"]), str(expected - len(found)),
        str(found.total() - len(found)), str(stats["delivered"]), str(complete), f"{took:.1f}",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help=f"{', '.join(NAMES)} (default); phoenix, mlflow")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=25, help="turns in a second")
    parser.add_argument("--share", type=float, default=0.2, help="of requests that fail")
    given = parser.parse_args()
    turns = make_turns(given.turns)
    print(describe_machine(), end="\n\n")
    header = ["backend", "scores", "requests", "failed posts", "lost", "doubled", "delivered", "flush", "seconds"]
    print(table(header, [measure(name, turns, given.rate, given.share) for name in given.backends or NAMES]))


if __name__ == "__main__":
    main()
