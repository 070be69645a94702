"""Scores in LangSmith: the same JSON as from its own SDK, on the run that LangSmith has."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from langsmith import Client
from langsmith.integrations.otel import langsmith_run_id_from_otel_span_id

import rageval_hooks
from rageval_hooks import Score
from rageval_hooks.exporters.langsmith import LangsmithAutoExporter, LangsmithExporter
from tests.exporters.recording import Recorded, RecordingServer, Reply, recording_server
from tests.exporters.score_backends import SECRET, Backend
from tests.exporters.scored_turns import RESULTS, SPAN, TRACE, deliver, evaluation
from tests.integrations.langchain.fakes import lcel

BACKEND = Backend(
    name="langsmith",
    variables={"LANGSMITH_API_KEY": SECRET},
    address="LANGSMITH_ENDPOINT",
    place=("https://eu.api.smith.langchain.com/otel", ""),
    scores=lambda body: [body],
    identity=lambda score: score["id"],
    bad_filter="feedback score `verdict` < 0.5",
    filtered=lambda body: [(body["key"], body.get("score", 1) < 0.5, body.get("comment", ""))],
)

PROJECT = "7d0c3d9a-4c1e-4f0e-9d5f-3f0f3b3f0001"
RUN = "7d0c3d9a-4c1e-4f0e-9d5f-3f0f3b3f0002"
BATCHES_AS_JSON = {
    "use_multipart_endpoint": False,
    "scale_up_qsize_trigger": 1000,
    "scale_up_nthreads_limit": 1,
    "scale_down_nempty_trigger": 4,
    "size_limit": 100,
    "size_limit_bytes": 1_000_000,
}


def respond(request: Recorded) -> Reply:
    if request.path.endswith("/sessions"):
        return Reply(body=[{"id": PROJECT}] if "name=harbour" in request.query else [])
    return Reply(status=200)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingServer]:
    monkeypatch.setenv("LANGSMITH_PROJECT", "harbour")
    with recording_server(respond) as server:
        yield server


def feedback(server: RecordingServer) -> dict[str, dict[str, Any]]:
    return {body["key"]: body for body in server.posted("/feedback")}


def test_the_json_is_that_of_langsmiths_sdk(server: RecordingServer) -> None:
    """Scores, and metrics that failed. Scores have at most four decimals: the API rejects more."""
    deliver(LangsmithExporter(server.url, api_key="key"), *RESULTS)
    ours = feedback(server)
    server.requests.clear()
    sdk = Client(api_url=server.url, api_key="key", info={}, auto_batch_tracing=False)
    for result in (RESULTS[0], RESULTS[1], RESULTS[5]):
        sent = ours[result.name]
        sdk.create_feedback(
            run_id=langsmith_run_id_from_otel_span_id(int(SPAN, 16)),
            trace_id=UUID(TRACE),
            key=result.name,
            score=getattr(result, "value", None),
            value=getattr(result, "label", None),
            comment=sent.get("comment"),
            source_info=sent["feedback_source"]["metadata"],
            feedback_source_type=sent["feedback_source"]["type"],
            feedback_id=sent["id"],
            session_id=PROJECT,
            error=sent.get("error"),
            extend_trace_retention=False,
        )
    theirs = feedback(server)

    assert ours.keys() == theirs.keys() == {"groundedness", "trace.adherence", "umbrela"}
    for key, sent in ours.items():
        times = {"created_at": theirs[key]["created_at"], "modified_at": theirs[key]["modified_at"]}
        assert {**sent, **times} == theirs[key]
    assert ours["groundedness"]["score"] == 0.1235
    assert server.requests[-1].headers["x-api-key"] == "key"
    assert server.requests[-1].path == "/feedback"


def test_feedback_is_on_the_run_that_langsmiths_tracer_sends(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tracer is the real one."""
    sdk = Client(api_url=server.url, api_key="key", info={"batch_ingest_config": BATCHES_AS_JSON})
    monkeypatch.setattr("langsmith.run_trees._CLIENT", sdk)
    monkeypatch.setattr("langsmith._internal._context._GLOBAL_TRACING_ENABLED", True)
    exporter = LangsmithExporter(server.url, api_key="key")
    with rageval_hooks.instrument(
        metrics=["unsupported_facts"], models="lexical", exporters=["otel", exporter]
    ) as handle:
        lcel().invoke("When?")
        assert handle.flush(20)
    sdk.flush()
    sdk.cleanup()

    runs = [run for body in server.posted("/runs/batch") for run in body["post"]]
    [root] = {run["id"] for run in runs if run.get("parent_run_id") is None}
    assert feedback(server)["unsupported_facts"]["run_id"] == root


def test_other_runs_are_those_that_langsmith_makes_of_spans(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other frameworks, and of LangChain if LangSmith's tracer sends spans only."""
    monkeypatch.setattr("langsmith._internal._context._GLOBAL_TRACING_ENABLED", True)
    deliver(LangsmithExporter(server.url, api_key="key"), id=RUN, framework="llama_index")
    assert feedback(server)["groundedness"]["run_id"] == "00000000-0000-0000-1234-567890abcdef"

    monkeypatch.setenv("LANGSMITH_TRACING_MODE", "otel")
    deliver(LangsmithExporter(server.url, api_key="key"), id=RUN, framework="langchain")
    assert feedback(server)["groundedness"]["run_id"] == "00000000-0000-0000-1234-567890abcdef"


def test_not_by_itself_without_langsmiths_tracer(server: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key alone sends nothing, and LangSmith is not imported for it."""
    monkeypatch.delitem(sys.modules, "langsmith.utils")
    monkeypatch.setenv("LANGCHAIN_API_KEY", "key")
    monkeypatch.setenv("LANGCHAIN_ENDPOINT", server.url)
    deliver(LangsmithAutoExporter(), id=RUN, framework="langchain")
    assert server.requests == []
    assert "langsmith.utils" not in sys.modules


def test_by_itself_beside_langsmiths_tracer(server: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for what that tracer sends: LangChain's runs."""
    monkeypatch.setattr("langsmith._internal._context._GLOBAL_TRACING_ENABLED", True)
    monkeypatch.setenv("LANGCHAIN_API_KEY", "key")
    monkeypatch.setenv("LANGCHAIN_ENDPOINT", server.url)
    deliver(LangsmithAutoExporter(), id=RUN, framework="llama_index")
    assert server.requests == []

    deliver(LangsmithAutoExporter(), id=RUN, framework="langchain")
    assert feedback(server)["groundedness"]["run_id"] == RUN


def test_feedback_waits_for_its_run_and_an_earlier_attempt_counts(server: RecordingServer) -> None:
    """LangSmith answers 404 until it has the run, and 409 to feedback that it has already."""
    answers = iter([404, 404, 409])
    server.respond = lambda request: respond(request) if "sessions" in request.path else Reply(status=next(answers))
    exporter = LangsmithExporter(server.url, api_key="key")
    deliver(exporter)

    assert exporter.stats()["delivered"] == 1
    assert len({json.dumps(body) for body in server.posted("/feedback")}) == 1


@pytest.mark.parametrize("order", [("CODE", "LLM"), ("LLM", "CODE")])
def test_the_judges_verdict_replaces_the_local_one_whichever_comes_first(
    server: RecordingServer, order: tuple[Any, Any]
) -> None:
    """They have one id, and a post that failed may be repeated after the other."""
    stored: dict[str, Any] = {}

    def answer(request: Recorded) -> Reply:
        if request.method == "GET":
            return respond(request)
        found = stored.setdefault(request.body.get("id") or request.path.rpartition("/")[2], dict(request.body))
        if request.method == "PATCH":
            found.update(request.body)
        return Reply(status=409 if request.method == "POST" and found != request.body else 200)

    server.respond = answer
    exporter = LangsmithExporter(server.url, api_key="key")
    for annotator in order:
        label, metric = ("bad", "verdict") if annotator == "CODE" else ("good", "trace")
        verdict = Score(name="verdict", value=float(label == "good"), label=label, annotator=annotator, metric=metric)
        exporter.export(evaluation(verdict))
        assert exporter.flush(10)
    exporter.shutdown(5)

    assert [found["value"] for found in stored.values()] == ["good"]


def test_a_key_of_an_organization_names_its_workspace(server: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every request; LangSmith refuses it otherwise. Spans need it, too."""
    monkeypatch.setenv("LANGSMITH_WORKSPACE_ID", "w1")
    exporter = LangsmithExporter(server.url, api_key="key")
    deliver(exporter)

    assert {request.headers.get("x-tenant-id") for request in server.requests} == {"w1"}
    place = exporter.otlp_place("harbour")
    assert place.url == f"{server.url}/otel/v1/traces"
    assert place.headers == {"x-api-key": "key", "x-tenant-id": "w1", "langsmith-project": "harbour"}


def test_without_the_right_to_read_projects_feedback_has_none(server: RecordingServer) -> None:
    """LangSmith then finds the project by the run."""
    server.respond = lambda request: Reply(status=403 if "sessions" in request.path else 200)
    exporter = LangsmithExporter(server.url, api_key="key")
    for name in ("groundedness", "tone"):
        exporter.export(evaluation(Score(name=name, value=0.5)))
        assert exporter.flush(10)
    exporter.shutdown(5)

    assert [set(body) & {"session_id"} for body in feedback(server).values()] == [set(), set()]
    assert len([request for request in server.requests if "sessions" in request.path]) == 1  # it is asked once


def test_a_turn_without_a_run_of_langchain_is_found_by_its_span(server: RecordingServer) -> None:
    """A turn that the application made itself has an id of its own."""
    exporter = LangsmithExporter(server.url, api_key="key", runs="langchain")
    deliver(exporter, framework="langchain", id="answer 7")

    [body] = feedback(server).values()
    assert body["run_id"] == str(langsmith_run_id_from_otel_span_id(int(SPAN, 16)))
