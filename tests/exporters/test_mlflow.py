"""Scores on their way to MLflow: what is posted, and what happens when traces are late or the server is in trouble.

The real server is asked in tests/e2e; the one here has the same answers.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from rageval_hooks import Evaluation, Failed, Passage, Score, Skipped, Step, Target, Turn
from rageval_hooks.exporters.delivery_queue import TargetsMissingError
from rageval_hooks.exporters.mlflow import MlflowAutoExporter, MlflowExporter, mlflow_fault
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.turn import GuardOutcome, SpanReference, Timing
from tests.exporters.delivered import delivery_to
from tests.exporters.recording import Recorded, RecordingServer, Reply, recording_server, shaky

SPAN = "1234567890abcdef"
TRACE = "0" * 31 + "1"


class FakeMlflow:
    """The part of MLflow's API that assessments need.

    Attributes:
        version: what the server says of itself; None if it is something else.
        missing: ids of traces that have not arrived.
        stored: the assessments that it took, in order.
        experiments: ids by name.
    """

    def __init__(self) -> None:
        self.version: str | None = "3.17.2"
        self.missing: set[str] = set()
        self.stored: list[dict[str, Any]] = []
        self.experiments: dict[str, str] = {}
        self._lock = threading.Lock()

    def __call__(self, request: Recorded) -> Reply:
        if request.path == "/version":
            return Reply(body=self.version) if self.version else Reply(status=404, body="no such page")
        if request.path.endswith("/experiments/get-by-name"):
            found = self.experiments.get(request.query.removeprefix("experiment_name="))
            return Reply(body={"experiment": {"experiment_id": found}}) if found else Reply(status=404)
        if request.path.endswith("/experiments/create"):
            return Reply(body={"experiment_id": f"created for {request.body['name']}"})
        trace_id = request.path.removeprefix("/api/3.0/mlflow/traces/").removesuffix("/assessments")
        if trace_id in self.missing:
            return Reply(status=404, body={"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such trace"})
        with self._lock:
            if request.method == "POST":
                self.stored.append({**request.body["assessment"], "assessment_id": f"a-{len(self.stored)}"})
                return Reply()
            found = [item for item in self.stored if item["trace_id"] == trace_id]
        return Reply(body={"trace": {"trace_info": {"trace_id": trace_id, "assessments": found}}})


@pytest.fixture
def mlflow() -> FakeMlflow:
    return FakeMlflow()


@pytest.fixture
def server(mlflow: FakeMlflow, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[RecordingServer]:
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.mlflow/credentials
    with recording_server(mlflow) as server:
        yield server


@pytest.fixture
def exporter(server: RecordingServer) -> Iterator[MlflowExporter]:
    exporter = MlflowExporter(server.url)
    yield exporter
    exporter.shutdown(5)


def evaluation(*results: Any, trace_id: str = TRACE) -> Evaluation:
    passages = (Passage(text="The pier was opened in 2019.", id="d1"), Passage(text="The ferry is slow.", id="d2"))
    step = Step(id="r", kind="retriever", name="Store", started_at=0, ended_at=1, passages=passages)
    span = SpanReference(trace_id=trace_id, span_id=SPAN)
    turn = Turn(query="When?", response="In 2019.", passages=passages, steps=(step,), span=span)
    return Evaluation(turn=turn, results=results or (Score(name="faithfulness", value=0.9),))


def test_what_is_posted(mlflow: FakeMlflow, exporter: MlflowExporter) -> None:
    """What a person should see in the list, each as one column: a verdict, the main scores, and the user's own."""
    exporter.export(
        evaluation(
            Score(name="verdict", value=0.0, label="bad", explanation="a date", metric="verdict"),
            Score(name="faithfulness", value=0.4, label="fail", explanation="a date", version="3", metadata={"n": [1]}),
            Score(name="politeness", value=1.0, annotator="LLM", model="judge-model"),
            Failed(name="tone", error_type="rate_limited", message="too many requests", annotator="LLM"),
            Score(name="groundedness", value=0.4, label="fail"),
            Score(name="trace.adherence", value=1.0, annotator="LLM", model="judge-model", metric="trace"),
            Score(name="latency", value=3.0, unit="s", high=None),
        )
    )
    assert exporter.flush(10)

    stored = {item["assessment_name"]: item for item in mlflow.stored}
    assert set(stored) == {"verdict", "faithfulness", "politeness", "tone"}
    first = stored["faithfulness"]
    assert (first["trace_id"], first["span_id"]) == (f"tr-{TRACE}", SPAN)
    assert first["feedback"] == {"value": 0.4}
    assert first["rationale"] == "a date"
    assert first["source"] == {"source_type": "CODE", "source_id": "rageval-hooks"}
    assert {"label": "fail", "n": "[1]", "mlflow.assessment.scorerVersion": "3"}.items() <= first["metadata"].items()
    assert stored["politeness"]["source"] == {"source_type": "LLM_JUDGE", "source_id": "judge-model"}
    error = {"error_code": "rate_limited", "error_message": "too many requests"}
    assert stored["tone"]["feedback"] == {"error": error}


def test_what_a_guard_did_has_a_column(mlflow: FakeMlflow, exporter: MlflowExporter) -> None:
    """Unless it let the answer pass."""
    verdict = Score(name="verdict", value=0.0, label="bad", metric="verdict")
    for action, blocked in (("replaced", "In 2018."), ("passed", None)):
        given = evaluation(verdict)
        outcome = GuardOutcome(
            action=action, verdict="unsupported", reason="the verdict is bad", blocked_answer=blocked
        )
        exporter.export(given.model_copy(update={"turn": given.turn.model_copy(update={"guard": outcome})}))
        assert exporter.flush(10)

    stored = [(item["assessment_name"], item["feedback"]["value"], item["rationale"]) for item in mlflow.stored]
    assert sorted(stored) == [
        ("guard", "replaced", "the verdict is bad"),
        ("verdict", "fail", None),
        ("verdict", "fail", None),
    ]


@pytest.mark.parametrize(
    ("verdict", "value"),
    [
        (Score(name="verdict", value=1.0, label="good"), "pass"),
        (Score(name="verdict", value=0.0, label="bad"), "fail"),
        (Score(name="verdict", value=0.5, label="doubtful"), "doubtful"),
        (Skipped(name="verdict", label="declined", reason="the response declines to answer"), "declined"),
    ],
)
def test_the_verdict_is_the_first_assessment(
    mlflow: FakeMlflow, exporter: MlflowExporter, verdict: Any, value: str
) -> None:
    """MLflow lists the newest first, and colours these two words."""
    exporter.export(evaluation(Score(name="groundedness", value=0.4, label="fail"), verdict))
    assert exporter.flush(10)

    newest, *_ = sorted(mlflow.stored, key=lambda item: str(item["create_time"]), reverse=True)
    assert (newest["assessment_name"], newest["feedback"]) == ("verdict", {"value": value})
    assert len([item for item in mlflow.stored if item["assessment_name"].startswith("verdict")]) == 1


@pytest.mark.parametrize("stage", ["inline", "background"])
def test_a_label_replaces_no_number(mlflow: FakeMlflow, server: RecordingServer, stage: Any) -> None:
    """Also of a late score, of which the server may have a part already. Nor does one verdict replace itself."""
    exporter = MlflowExporter(server.url, scores="all")
    scores = [Score(name=name, value=0.4, label="fail") for name in ("faithfulness", "relevance")]
    verdict = Score(name="verdict", value=0.0, label="bad", metric="verdict")
    for _ in range(2):
        exporter.export(evaluation(verdict, *scores).model_copy(update={"stage": stage}))
        assert exporter.flush(10)
    exporter.shutdown(5)

    assert {item["assessment_name"] for item in mlflow.stored if "." in item["assessment_name"]}
    assert [item["assessment_name"] for item in mlflow.stored if item.get("overrides")] == []


def test_the_judges_verdict_is_stored_after_the_local_one(mlflow: FakeMlflow, exporter: MlflowExporter) -> None:
    """Both may travel together, and requests go side by side."""
    for number in range(20):
        trace = f"{number + 1:032x}"
        local = Score(name="verdict", value=0.0, label="bad", metric="verdict")
        judged = Score(name="verdict", value=1.0, label="good", annotator="LLM", metric="trace")
        inline = evaluation(local, trace_id=trace)
        timed = inline.turn.model_copy(update={"timing": Timing(started_at=0, ended_at=10**18)})
        exporter.export(Evaluation(turn=timed, results=(judged,), stage="background"))
        exporter.export(Evaluation(turn=timed, results=(local,)))
    assert exporter.flush(20)

    assert len(mlflow.stored) == 40
    assert len([item for item in mlflow.stored if item.get("overrides")]) == 20
    # The judge's is the newest, which the panel shows first.
    newest = {item["trace_id"]: item for item in sorted(mlflow.stored, key=lambda item: str(item["create_time"]))}
    assert {item["source"]["source_type"] for item in newest.values()} == {"LLM_JUDGE"}


def test_the_judges_verdict_overrides_the_local_one(mlflow: FakeMlflow, exporter: MlflowExporter) -> None:
    """Also if it is delivered twice."""
    exporter.export(evaluation(Score(name="verdict", value=0.0, label="bad")))
    assert exporter.flush(10)
    judged = Score(name="verdict", value=1.0, label="good", annotator="LLM", metric="trace")
    for _ in range(2):
        exporter.export(evaluation(judged).model_copy(update={"stage": "background"}))
        assert exporter.flush(10)

    assert [(item["feedback"]["value"], item.get("overrides")) for item in mlflow.stored] == [
        ("fail", None),
        ("pass", "a-0"),
    ]


def test_a_local_verdict_that_waited_for_its_trace_is_not_stored_after_the_judges(
    mlflow: FakeMlflow, exporter: MlflowExporter
) -> None:
    """Both would be valid, and the trace would have two verdicts."""
    local = Score(name="verdict", value=0.0, label="bad")
    judged = Score(name="verdict", value=1.0, label="good", annotator="LLM", metric="trace")
    stages = [evaluation(local), evaluation(judged).model_copy(update={"stage": "background"})]
    first, second = (next(iter(exporter.items(stage, stage.turn.span))) for stage in stages if stage.turn.span)
    server = exporter.connect()
    mlflow.missing = {f"tr-{TRACE}"}
    with pytest.raises(TargetsMissingError):
        server.post_one(first.body)
    mlflow.missing = set()
    server.post_one(second.body)
    server.post_one(first.body)
    server.close()

    assert [item["source"]["source_type"] for item in mlflow.stored] == ["LLM_JUDGE"]


def test_the_assessments_of_a_turn_that_was_not_timed_have_one_time(
    mlflow: FakeMlflow, exporter: MlflowExporter
) -> None:
    """But for the milliseconds that keep the verdict first, however long the others take to write."""
    exporter.export(evaluation(*(Score(name=f"score{number}", value=0.5) for number in range(5))))
    assert exporter.flush(10)

    times = sorted(datetime.fromisoformat(item["create_time"]) for item in mlflow.stored)
    assert {(later - earlier).total_seconds() for earlier, later in pairwise(times)} == {0.002}


def test_all_results_if_asked(server: RecordingServer, mlflow: FakeMlflow) -> None:
    """Scores of passages are on the span of their retriever."""
    exporter = MlflowExporter(server.url, scores="all")
    passage = Target(kind="passage", index=1, id="d2")
    given = evaluation(Score(name="latency", value=3.0, unit="s"), Score(name="relevance", value=0.2, target=passage))
    exporter.export(given)
    assert exporter.flush(10)
    exporter.shutdown(5)

    stored = {item["assessment_name"]: item for item in mlflow.stored}
    assert stored["latency"]["span_id"] == SPAN
    assert stored["relevance"]["span_id"] == given.turn.step_span_id(given.turn.steps[0])
    assert stored["relevance"]["metadata"]["passage"] == "1"


def test_scores_wait_for_their_trace(mlflow: FakeMlflow, exporter: MlflowExporter) -> None:
    """Those of other traces are not held up, and each is stored once."""
    late = "f" * 32
    mlflow.missing = {f"tr-{late}"}
    exporter.export(evaluation(trace_id=late))
    exporter.export(evaluation())
    for _ in range(100):
        assert not exporter.flush(0.3)
        if mlflow.stored:
            break
    assert [item["trace_id"] for item in mlflow.stored] == [f"tr-{TRACE}"]

    mlflow.missing = set()
    assert exporter.flush(10)
    assert [item["trace_id"] for item in mlflow.stored] == [f"tr-{TRACE}", f"tr-{late}"]


def test_a_server_on_a_bad_day_gets_every_score_once(
    server: RecordingServer, mlflow: FakeMlflow, exporter: MlflowExporter
) -> None:
    """It fails a fifth of the requests, half of those after it has stored the score."""
    server.respond = shaky(mlflow)
    for number in range(1, 31):
        exporter.export(evaluation(trace_id=f"{number:032x}"))
    assert exporter.flush(60)

    stored = Counter(item["trace_id"] for item in mlflow.stored)
    assert stored == {f"tr-{number:032x}": 1 for number in range(1, 31)}
    assert len(server.posted("/assessments")) > 30
    # The threads that sent them have ended.
    assert wait_until(lambda: not any(thread.name.startswith("rageval-post") for thread in threading.enumerate()), 10)


def test_an_answer_that_cannot_be_read_costs_one_score(
    mlflow: FakeMlflow, server: RecordingServer, exporter: MlflowExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """A late score is looked for first, and the page of a login comes back. The others are delivered."""
    server.respond = lambda request: Reply(body="<p>Log in</p>") if request.method == "GET" else mlflow(request)
    exporter.export(evaluation(Score(name="first", value=1), Score(name="second", value=1)))
    exporter.export(evaluation(Score(name="late", value=1)).model_copy(update={"stage": "background"}))
    assert not exporter.flush(10)

    stats = exporter.stats()
    assert (stats["delivered"], stats["rejected"], stats["lost"]) == (2, 1, 0)
    assert "MLflow does not accept the score late: it gives an answer that cannot be read" in caplog.text


def test_a_late_score_that_is_delivered_again_is_stored_once(mlflow: FakeMlflow, server: RecordingServer) -> None:
    """By another process, from a spool that survived a crash."""
    late = evaluation().model_copy(update={"stage": "background"})
    for _ in range(2):
        exporter = MlflowExporter(server.url)
        exporter.export(late)
        assert exporter.shutdown(10)

    assert len(mlflow.stored) == 1


@pytest.mark.parametrize(
    ("variables", "header"),
    [
        ({"MLFLOW_TRACKING_TOKEN": "ml-secret"}, "Bearer ml-secret"),
        ({"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "ml-secret"}, "Basic YW5uOm1sLXNlY3JldA=="),
    ],
)
def test_logins_of_mlflows_own_client(
    server: RecordingServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    header: str,
) -> None:
    """With its address; they appear in no log and no repr."""
    caplog.set_level(logging.DEBUG)
    for name, value in {**variables, "MLFLOW_TRACKING_URI": server.url, "MLFLOW_WORKSPACE": "team"}.items():
        monkeypatch.setenv(name, value)
    exporter = MlflowExporter()
    exporter.export(evaluation())
    assert exporter.flush(10)
    exporter.shutdown(5)

    headers = server.requests[-1].headers
    assert (headers["authorization"], headers["x-mlflow-workspace"]) == (header, "team")
    assert "ml-secret" not in caplog.text + repr(exporter) + repr(vars(exporter))


@pytest.mark.parametrize(
    ("experiments", "variables", "expected"),
    [({"harbour": "7"}, {}, "7"), ({}, {}, "created for harbour"), ({}, {"MLFLOW_EXPERIMENT_ID": "12"}, "12")],
    ids=["known", "new", "named by the variable"],
)
def test_the_demo_sends_its_spans_to_an_experiment(
    mlflow: FakeMlflow,
    server: RecordingServer,
    monkeypatch: pytest.MonkeyPatch,
    experiments: dict[str, str],
    variables: dict[str, str],
    expected: str,
) -> None:
    """Where they are recognized, and with the page to open."""
    mlflow.experiments = experiments
    for name, value in {**variables, "MLFLOW_TRACKING_TOKEN": "ml-secret"}.items():
        monkeypatch.setenv(name, value)
    exporter = MlflowExporter(server.url)
    place = exporter.otlp_place("harbour")

    headers = {"authorization": "Bearer ml-secret", "x-mlflow-experiment-id": expected}
    assert (place.url, place.headers) == (f"{server.url}/v1/traces", headers)
    assert place.page == f"{server.url}/#/experiments/{expected}/traces"
    assert exporter.gets(place)


def test_without_an_address_the_demo_looks_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "12")

    assert MlflowExporter().otlp_place("harbour").url == "http://localhost:5000/v1/traces"


def test_without_an_address_scores_go_to_this_machine(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the variable."""
    MlflowExporter().connect().close()
    assert "scores go to http://localhost:5000. Set MLFLOW_TRACKING_URI to its address [RAGEVAL-110]" in caplog.text


def test_hidden_content_is_not_posted(server: RecordingServer, mlflow: FakeMlflow) -> None:
    """Explanations, messages and details may quote texts."""
    exporter = MlflowExporter(server.url, capture_content=False)
    delivery_to(exporter).export(
        evaluation(
            Score(name="faithfulness", value=0.5, explanation="no passage has: pier", metadata={"sentence": "pier"}),
            Failed(name="odd", error_type="ValueError", message="pier"),
        )
    )
    assert exporter.flush(10)
    exporter.shutdown(5)

    assert "pier" not in json.dumps(mlflow.stored)
    assert len(mlflow.stored) == 2


class TestOnItsOwn:
    """With the default exporters: scores go to an MLflow where the spans go to one, and nowhere else."""

    @pytest.fixture
    def export(self, server: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, int]]:
        def export(headers: str) -> dict[str, int]:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
            exporter = MlflowAutoExporter()
            exporter.export(evaluation())
            assert exporter.flush(10)
            exporter.shutdown(5)
            return dict(exporter.stats())

        return export

    def test_an_mlflow_is_recognised(self, mlflow: FakeMlflow, export: Callable[[str], dict[str, int]]) -> None:
        """By the header that its spans need, and by what it says of itself."""
        assert export("x-mlflow-experiment-id=1")["delivered"] == 1
        assert len(mlflow.stored) == 1

    def test_spans_without_its_header_go_elsewhere(
        self, server: RecordingServer, export: Callable[[str], dict[str, int]]
    ) -> None:
        """No request at all."""
        assert not any(export("x-team=harbour").values())
        assert server.requests == []

    def test_a_collector_in_between_gets_nothing(
        self, server: RecordingServer, mlflow: FakeMlflow, export: Callable[[str], dict[str, int]]
    ) -> None:
        """No request beyond the question who it is."""
        mlflow.version = None

        assert set(export("x-mlflow-experiment-id=1").values()) == {0}
        assert [request.path for request in server.requests] == ["/version"]


@pytest.mark.parametrize("answer", ["nothing", "another server", "a login", "no experiments"])
def test_without_an_answer_no_fault_is_named(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`doctor` does not blame the experiment if the server is another one, or says nothing about it."""

    def respond(request: Recorded) -> Reply:
        if request.path == "/version" and answer != "another server":
            return Reply(body="3.17.0")
        return Reply(status={"a login": 403, "no experiments": 400}.get(answer, 404))

    with recording_server(respond) as server:
        url = "http://127.0.0.1:9" if answer == "nothing" else server.url
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-mlflow-experiment-id=1")
        assert mlflow_fault() is None
