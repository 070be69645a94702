"""``stores``: an exporter asks its backend whether a score is there, as ``rageval-hooks doctor`` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks.errors import ExportError
from rageval_hooks.exporters.datadog import DatadogExporter
from rageval_hooks.exporters.jsonl import JsonlExporter
from rageval_hooks.exporters.langfuse import LangfuseExporter
from rageval_hooks.exporters.langsmith import LangsmithExporter
from rageval_hooks.exporters.mlflow import MlflowExporter
from rageval_hooks.exporters.phoenix import PhoenixExporter
from rageval_hooks.exporters.score_api import ScoreApiExporter
from rageval_hooks.turn import SpanReference
from tests.exporters.recording import Recorded, Reply, recording_server
from tests.exporters.scored_turns import RESULTS, evaluation

EVALUATION = evaluation(RESULTS[1])
ID = "rageval.id"


def langfuse(url: str) -> ScoreApiExporter:
    return LangfuseExporter(url, public_key="public", secret_key="secret")


def langsmith(url: str) -> ScoreApiExporter:
    return LangsmithExporter(url, api_key="key")


def lists(body: Any, path: str) -> Callable[[Recorded], Reply]:
    """Return a server that has a list at one path."""
    return lambda request: Reply(body=body) if request.path == path else Reply(status=404)


def sent(exporter: ScoreApiExporter) -> dict[str, Any]:
    assert EVALUATION.turn.span is not None
    return dict(next(iter(exporter.items(EVALUATION, EVALUATION.turn.span))).body)


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_langfuse_is_asked_for_the_scores_of_the_trace(version: str) -> None:
    """Older servers have the older path only."""
    with recording_server() as server:
        exporter = langfuse(server.url)
        server.respond = lists({"data": [{"id": sent(exporter)["id"]}]}, f"/api/public/{version}/scores")
        assert exporter.stores(EVALUATION) is True
        server.respond = lists({"data": []}, f"/api/public/{version}/scores")
        assert exporter.stores(EVALUATION) is False


def test_langsmith_is_asked_for_the_feedback() -> None:
    with recording_server() as server:
        exporter = langsmith(server.url)
        server.respond = lists({}, f"/feedback/{sent(exporter)['id']}")
        assert exporter.stores(EVALUATION) is True
        server.respond = lists({}, "/feedback/another")
        assert exporter.stores(EVALUATION) is False


def test_phoenix_is_asked_for_the_annotations_of_the_span() -> None:
    with recording_server() as server:
        exporter = PhoenixExporter(server.url)
        path = "/v1/projects/default/span_annotations"
        server.respond = lists({"data": [{"name": sent(exporter)["name"]}]}, path)
        assert exporter.stores(EVALUATION) is True
        server.respond = lists({"data": [{"name": "another"}]}, path)
        assert exporter.stores(EVALUATION) is False


def test_mlflow_is_asked_for_the_assessments_of_the_trace() -> None:
    with recording_server() as server:
        exporter = MlflowExporter(server.url)
        body = sent(exporter)
        found = {"trace": {"trace_info": {"assessments": [{"metadata": {ID: body["id"]}}]}}}
        server.respond = lists(found, f"/api/3.0/mlflow/traces/{body['trace_id']}")
        assert exporter.stores(EVALUATION) is True
        server.respond = lambda _: Reply(status=404, body={"error_code": "RESOURCE_DOES_NOT_EXIST"})
        assert exporter.stores(EVALUATION) is False


@pytest.mark.parametrize("make", [langfuse, langsmith, PhoenixExporter, MlflowExporter])
def test_a_key_that_is_not_accepted_is_an_error(make: Callable[[str], ScoreApiExporter]) -> None:
    """And not the answer that nothing is there."""
    with recording_server(lambda _: Reply(status=401)) as server, pytest.raises(ExportError, match="401"):
        make(server.url).stores(EVALUATION)


def test_a_file_is_read_for_the_trace(tmp_path: Path) -> None:
    """A turn without a span has none."""
    exporter = JsonlExporter(tmp_path / "turns.jsonl")
    exporter.export(EVALUATION)
    assert exporter.stores(EVALUATION) is True

    for span in (SpanReference(trace_id="a" * 32, span_id="b" * 16), None):
        turn = EVALUATION.turn.model_copy(update={"span": span})
        assert exporter.stores(EVALUATION.model_copy(update={"turn": turn})) is False


def test_a_backend_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DD_API_KEY", "key")

    assert DatadogExporter().stores(EVALUATION) is None


def test_a_turn_without_a_span_is_not_looked_for() -> None:
    """Its scores have no place in a backend."""
    turn = EVALUATION.turn.model_copy(update={"span": None})

    assert langfuse("http://127.0.0.1:9").stores(EVALUATION.model_copy(update={"turn": turn})) is None
