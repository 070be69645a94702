"""Scores on their way to the real servers of Phoenix and MLflow, which fail often: is one lost or stored twice?

    .venv/bin/python benchmarks/score_servers.py [phoenix] [mlflow] [--turns 1000] [--share 0.2]

The spans of all turns go to the server. Their scores go through a proxy that answers a fifth of the requests with a
5xx, a 429 or a reset, half of them after the server has taken the request. In the middle of the turns the server is
stopped, and started again with the same database. Then the server is asked what it has. MLflow's server is the command
in ``MLFLOW_COMMAND``, or the one that ``make e2e`` installs. Prints one table.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from _common import ROOT, describe_machine, table

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
from tests.e2e.mlflow_server import mlflow_command, serve_mlflow
from tests.e2e.phoenix_server import serve_phoenix
from tests.exporters.recording import Recorded, Reply, recording_server, shaky

# Scores of own metrics: of the built-in ones, a trace has the main ones only.
SCORES = tuple(Score(name=name, value=0.5) for name in ("tone", "brevity", "coverage"))
PROJECT = "bad-day"


@dataclass(frozen=True, kw_only=True)
class Server:
    """A backend with a real server.

    Attributes:
        serve: runs it with a folder and a port (None for a free one), and yields its URL.
        exporter: makes our exporter for a URL.
        headers: sent with spans.
        stored: returns the scores that it has, each as the turn, the score's name and what it is about.
        per_score: how many the backend gets of one score.
    """

    serve: Callable[[Path, int | None], AbstractContextManager[str]]
    exporter: Callable[[str, TracerProvider], Any]
    headers: dict[str, str]
    stored: Callable[[str, list[Turn]], Iterator[tuple[str, ...]]]
    per_score: int


@contextmanager
def phoenix_server(folder: Path, port: int | None) -> Iterator[str]:
    with serve_phoenix(folder, port=port) as server:
        yield server.url


@contextmanager
def mlflow_server(folder: Path, port: int | None) -> Iterator[str]:
    command = mlflow_command()
    if command is None:
        sys.exit("no MLflow server: make e2e installs it, or set MLFLOW_COMMAND")
    with serve_mlflow(command, folder, port) as url:
        yield url


def in_phoenix(url: str, turns: list[Turn]) -> Iterator[tuple[str, ...]]:
    """Yield the annotations of spans and of traces."""
    references = [turn.span for turn in turns if turn.span is not None]
    yield from annotations(url, "span", [span.span_id for span in references])
    yield from annotations(url, "trace", [span.trace_id for span in references])


def annotations(url: str, kind: str, ids: list[str]) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(ids), 50):
        cursor = None
        while True:
            params: dict[str, Any] = {f"{kind}_ids": ids[start : start + 50], "limit": 1000}
            params |= {"cursor": cursor} if cursor else {}
            response = httpx.get(f"{url}/v1/projects/{PROJECT}/{kind}_annotations", params=params, timeout=120)
            page = response.raise_for_status().json()
            yield from ((kind, item[f"{kind}_id"], item["name"]) for item in page["data"])
            cursor = page.get("next_cursor")
            if not cursor:
                break


def in_mlflow(url: str, _turns: list[Turn]) -> Iterator[tuple[str, ...]]:
    """Yield the assessments of the default experiment."""
    place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}
    body: dict[str, Any] = {"locations": [place], "max_results": 200}
    while True:
        page = httpx.post(f"{url}/api/3.0/mlflow/traces/search", json=body, timeout=120).raise_for_status().json()
        for trace in page.get("traces", ()):
            yield from (("trace", trace["trace_id"], item["assessment_name"]) for item in trace.get("assessments", ()))
        body["page_token"] = page.get("next_page_token")
        if not body["page_token"]:
            break


SERVERS = {
    "phoenix": Server(
        serve=phoenix_server,
        exporter=lambda url, provider: PhoenixExporter(url, tracer_provider=provider, scores="all"),
        headers={},
        stored=in_phoenix,
        per_score=2,
    ),
    "mlflow": Server(
        serve=mlflow_server,
        exporter=lambda url, provider: MlflowExporter(url, tracer_provider=provider, scores="all"),
        headers={"x-mlflow-experiment-id": "0"},
        stored=in_mlflow,
        per_score=1,
    ),
}


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


def send_spans(provider: TracerProvider, turns: Iterable[Turn]) -> None:
    exporter = OtelExporter(provider, log_events=False, score_metrics=False)
    for number, turn in enumerate(turns, 1):
        exporter.export(Evaluation(turn=turn))
        # The processor's queue drops what is more than it holds.
        if number % 200 == 0:
            provider.force_flush(120_000)
    provider.force_flush(120_000)


def measure(name: str, turns: list[Turn], share: float) -> list[str]:
    """Return a line of the table."""
    kind = SERVERS[name]
    with tempfile.TemporaryDirectory(prefix=f"rageval-{name}-") as directory:
        folder = Path(directory)
        provider = TracerProvider(resource=Resource({"openinference.project.name": PROJECT}), shutdown_on_exit=False)
        with kind.serve(folder, None) as url:
            sender = OTLPSpanExporter(f"{url}/v1/traces", headers=kind.headers, timeout=120)
            provider.add_span_processor(BatchSpanProcessor(sender))
            send_spans(provider, turns)
            proxy_context = recording_server(shaky(forward_to(url), share=share))
            proxy = proxy_context.__enter__()
            exporter = kind.exporter(proxy.url, provider)
            started = time.monotonic()
            export(exporter, turns[: len(turns) // 2])
            # Half of these are on their way when the server stops.
            wait_until(lambda: exporter.stats()["delivered"] >= len(turns) * len(SCORES) * kind.per_score // 4)
        export(exporter, turns[len(turns) // 2 :])
        with kind.serve(folder, urlsplit(url).port) as url:
            complete = exporter.flush(600)
            took = time.monotonic() - started
            exporter.shutdown(10)
            proxy_context.__exit__(None, None, None)
            found = Counter(kind.stored(url, turns))
        provider.shutdown()
    expected = len(turns) * len(SCORES) * kind.per_score
    stats = exporter.stats()
    doubled = sum(found.values()) - len(found)
    return [
        name, str(expected), str(len(proxy.requests)), str(expected - len(found)), str(doubled),
        str(stats["delivered"]), str(stats["errors"]), str(complete), f"{took:.0f}",
    ]  # fmt: skip


def export(exporter: Any, turns: Iterable[Turn]) -> None:
    for turn in turns:
        exporter.export(Evaluation(turn=turn, results=SCORES))


def wait_until(done: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"all by default: {', '.join(SERVERS)}")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.2, help="of requests that fail")
    given = parser.parse_args()
    # Spans arrive before their scores here, so that a restart loses no span.
    os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "500"
    lines = [measure(name, make_turns(given.turns), given.share) for name in given.servers or SERVERS]
    header = ["backend", "scores", "requests", "lost", "doubled", "delivered", "failed posts", "flush", "seconds"]
    print(describe_machine(), end="\n\n")
    print(table(header, lines))


if __name__ == "__main__":
    main()
