"""Scores in Weave: the same JSON as from W&B's SDK, and never twice."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.weave import WeaveExporter
from tests.exporters.recording import Recorded, RecordingServer, Reply, recording_server
from tests.exporters.score_backends import SECRET, Backend
from tests.exporters.scored_turns import RESULTS, SPAN, deliver

BACKEND = Backend(
    name="weave",
    variables={"WANDB_API_KEY": SECRET, "WANDB_ENTITY": "harbour", "WANDB_PROJECT": "ferry-bot"},
    address="WF_TRACE_SERVER_URL",
    place=("https://trace.wandb.ai/otel/v1/traces", "project_id=harbour/ferry-bot"),
    scores=lambda body: [body] if "feedback_type" in body else [],
    identity=lambda score: score["id"],
    bad_filter='`scorers.verdict.output.label` = "bad"',
    filtered=lambda body: [
        (
            score["feedback_type"].removeprefix("wandb.runnable."),
            score["payload"]["output"].get("label") == "bad",
            score["payload"]["output"].get("explanation", ""),
        )
        for score in ([body] if "feedback_type" in body else [])
    ],
    replaces=False,  # or so it must be assumed
)

# Recorded from weave 0.54.0: RemoteHTTPTraceServer.feedback_create with the parameters that its client sends.
RECORDED = {
    "project_id": "harbour/ferry-bot",
    "weave_ref": f"weave:///harbour/ferry-bot/call/{SPAN}",
    "feedback_type": "wandb.runnable.groundedness",
    "payload": {
        "output": {
            "score": 0.123456,
            "explanation": "no passage has: 2019",
            "label": "fail",
            "annotator": "CODE",
            "version": "3",
            "probability": 1.0,
        }
    },
    "runnable_ref": "weave:///harbour/ferry-bot/op/groundedness:c3585b60b755fb13e6e65a16d20f1230",
    "scorer_tags": [],
    "scorer_tag_reasons": {},
    "scorer_tag_confidences": {},
    "scorer_ratings": {},
    "scorer_rating_reasons": {},
    "scorer_rating_confidences": {},
    "span_agent_name": "",
    "span_agent_version": "",
    "span_status_code": "UNSET",
    "span_conversation_id": "",
    "span_trace_id": "",
    "scorer_trace_id": "",
}

# The SDK takes seconds to import, and sends telemetry.
SDK = """
import json, os, sys
os.environ["WANDB_ERROR_REPORTING"] = "false"
from weave.trace.feedback import feedback_create_params
from weave.trace_server_bindings.remote_http_trace_server import RemoteHTTPTraceServer
score = json.loads(sys.argv[2])
server = RemoteHTTPTraceServer(sys.argv[1], username="api", password="key")
named = ("project_id", "weave_ref", "feedback_type", "payload", "runnable_ref")
server.feedback_create(feedback_create_params(**{name: score[name] for name in named}))
"""


def send(server: RecordingServer, *results: Any) -> WeaveExporter:
    exporter = WeaveExporter("harbour/ferry-bot", api_key="key", url=server.url)
    deliver(exporter, *results)
    return exporter


def test_the_json_is_that_of_weaves_sdk() -> None:
    """As it was recorded, with an id of ours."""
    with recording_server() as server:
        send(server, *RESULTS)

    by_type = {body["feedback_type"]: body for body in server.posted("/feedback/create")}
    assert set(by_type) == {"wandb.runnable.groundedness", "wandb.runnable.trace.adherence"}
    ours = dict(by_type["wandb.runnable.groundedness"])
    assert ours.pop("id")
    # The SDK's fields for ratings and agents are left out: none of them has a value.
    assert ours == {name: value for name, value in RECORDED.items() if value not in ("", "UNSET", [], {})}
    assert server.requests[0].headers["authorization"] == "Basic YXBpOmtleQ=="


@pytest.mark.skipif(find_spec("weave") is None, reason="needs the package weave")
def test_the_recorded_json_is_that_of_the_installed_sdk() -> None:
    """It is asked to send the same score."""
    answer = {"id": "1", "created_at": "2026-11-22T16:00:00Z", "wb_user_id": "", "payload": {}}
    with recording_server(lambda _: Reply(body=answer)) as server:
        subprocess.run([sys.executable, "-c", SDK, server.url, json.dumps(RECORDED)], check=True, timeout=240)

    [request] = [found for found in server.requests if found.path.endswith("/feedback/create")]
    assert request.body == RECORDED
    assert request.headers["authorization"] == "Basic YXBpOmtleQ=="


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_repeat_asks_first_whether_the_score_is_there(took_effect: bool) -> None:
    """The answer to the first attempt was lost."""
    created: list[Any] = []

    def respond(request: Recorded) -> Reply:
        if request.path.endswith("/query"):
            return Reply(body={"result": [{"id": found["id"]} for found in created]})
        first = len(server.posted("/create")) == 1
        if took_effect or not first:
            created.append(request.body)
        return Reply(status=0 if first else 200)

    with recording_server(respond) as server:
        exporter = send(server)

    assert len(created) == 1
    assert exporter.stats()["delivered"] == 1


def test_without_a_project_the_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project without its entity is no place."""
    monkeypatch.delenv("WANDB_ENTITY", raising=False)
    monkeypatch.setenv("WANDB_PROJECT", "ferry-bot")

    with pytest.raises(ConfigurationError, match="needs an entity and a project: set WANDB_ENTITY and WANDB_PROJECT"):
        WeaveExporter(api_key="key").connect()
