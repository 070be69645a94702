"""Scores in Langfuse: the same JSON as from its own SDK, and what its servers answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langfuse import Langfuse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from rageval_hooks import Score
from rageval_hooks.exporters.langfuse import LangfuseExporter
from tests.exporters.recording import Recorded, RecordingServer, Reply, recording_server
from tests.exporters.score_backends import SECRET, Backend
from tests.exporters.scored_turns import RESULTS, SPAN, TRACE, deliver, evaluation

BACKEND = Backend(
    name="langfuse",
    variables={"LANGFUSE_PUBLIC_KEY": "pk-1", "LANGFUSE_SECRET_KEY": SECRET},
    address="LANGFUSE_BASE_URL",
    place=("https://cloud.langfuse.com/api/public/otel", ""),
    scores=lambda body: body if isinstance(body, list) else [body],
    identity=lambda score: (score["id"], score["timestamp"]),
    bad_filter="categorical score `verdict` is `bad`",
    filtered=lambda body: [
        (score["name"], (score["dataType"], score["value"]) == ("CATEGORICAL", "bad"), score.get("comment", ""))
        for score in body
    ],
)

PARENT = "00000000000000aa"


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    with recording_server(lambda _: Reply(status=202, body={"message": "Accepted"})) as server:
        yield server


def send(server: RecordingServer, *results: Any, flush: bool = True, **fields: Any) -> LangfuseExporter:
    exporter = LangfuseExporter(server.url, public_key="pk", secret_key="sk")
    deliver(exporter, *results, all_arrive=flush, **fields)
    return exporter


def test_the_json_is_that_of_langfuses_sdk(server: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Body, path and login; the SDK adds headers with its name and version."""
    monkeypatch.setenv("LANGFUSE_TRACING_ENVIRONMENT", "staging")
    send(server, *RESULTS, parent=PARENT)
    [ours] = server.requests
    server.requests.clear()
    # Without a provider, the SDK would set the process's own.
    provider = TracerProvider(shutdown_on_exit=False)
    sdk = Langfuse(public_key="pk", secret_key="sk", base_url=server.url, tracer_provider=provider)
    for score in ours.body:
        sdk.create_score(
            name=score["name"],
            value=score["value"],
            trace_id=TRACE,
            observation_id=SPAN,
            score_id=score["id"],
            data_type="NUMERIC",
            comment=score.get("comment"),
            metadata=score["metadata"],
        )
    sdk.flush()
    theirs = [score for request in server.requests for score in request.body]
    sdk.shutdown()

    assert [score["name"] for score in theirs] == ["groundedness", "trace.adherence"]
    assert [{**score, "timestamp": ""} for score in ours.body] == [{**score, "timestamp": ""} for score in theirs]
    assert ours.path == server.requests[0].path
    assert ours.headers["authorization"] == server.requests[0].headers["authorization"]


def test_a_turn_that_is_a_whole_trace_scores_the_trace(server: RecordingServer) -> None:
    """The list of traces shows and filters scores of traces. A passage's score is its retriever's."""
    exporter = LangfuseExporter(server.url, public_key="pk", secret_key="sk", scores="all")
    deliver(exporter, *RESULTS)

    by_name = {score["name"]: score for score in server.requests[0].body}
    assert "observationId" not in by_name["groundedness"]
    turn = evaluation().turn
    assert by_name["context_relevance"]["observationId"] == turn.step_span_id(turn.steps[0])


def test_scores_are_in_the_environment_of_the_spans(server: RecordingServer) -> None:
    """Langfuse reads it from the resource; a name that it does not accept is not sent."""
    for name, expected in (("staging", "staging"), ("Big City", None)):
        resource = Resource({"deployment.environment.name": name})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = LangfuseExporter(server.url, public_key="pk", secret_key="sk", tracer_provider=provider)
        exporter.export(evaluation())
        assert exporter.flush(10)
        exporter.shutdown(5)
        assert server.requests[-1].body.get("environment") == expected


def test_one_score_that_is_refused_does_not_take_others_with_it(server: RecordingServer) -> None:
    """The server answers 207 to a list if it refuses one of its scores."""

    def respond(request: Recorded) -> Reply:
        scores = request.body if isinstance(request.body, list) else [request.body]
        return Reply(status=207 if any(score["name"] == "bad" for score in scores) else 202)

    server.respond = respond
    exporter = send(server, *(Score(name=name, value=1.0) for name in ("a", "bad", "c")), flush=False)

    assert exporter.stats()["rejected"] == 1
    assert exporter.stats()["delivered"] == 2


def test_older_servers_get_one_score_per_request(server: RecordingServer) -> None:
    """They know no lists."""
    stored: list[str] = []

    def respond(request: Recorded) -> Reply:
        if isinstance(request.body, list):
            return Reply(status=400)
        stored.append(request.body["name"])
        return Reply(status=200)

    server.respond = respond
    send(server, *(Score(name=name, value=1.0) for name in "abc"))

    assert sorted(stored) == ["a", "b", "c"]
