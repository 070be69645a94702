"""Scores on their way to Phoenix: what is posted, what happens when spans are late or the server is in trouble.

The real server is asked in tests/e2e; the one here has the same answers, and the faults of a real one on a bad day.
"""

from __future__ import annotations

import gzip
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import rageval_hooks
from rageval_hooks import ConfigurationError, Evaluation, Failed, Passage, Score, Skipped, Step, Target, Turn
from rageval_hooks.exporters.phoenix import PhoenixAutoExporter, PhoenixExporter
from rageval_hooks.metrics.base import REGISTRY as METRICS
from rageval_hooks.settings import Settings
from rageval_hooks.turn import GuardOutcome, SpanReference
from tests.exporters.collector import Collector
from tests.exporters.delivered import delivery_to
from tests.integrations.langchain.fakes import lcel

SPAN = "1234567890abcdef"


class Server:
    """A server on loopback with Phoenix's paths.

    Attributes:
        url: its base URL.
        version: what it says of itself; None if it is something else.
        answers: what the next posts get, each a status and a text; afterwards 200.
        missing: ids of spans that have not arrived.
        posts: what came: path, query, headers, annotations.
        stored: the annotations of spans and documents that it took.
        traces: the annotations of traces that it took.
        sessions: the annotations of sessions that it took.
        configs: the annotation configs that it took.
        unlisted: positions of documents that a span does not list, by its id.
        collector: keeps the spans that it takes; then it has no others.
    """

    def __init__(self) -> None:
        self.url = ""
        self.version: str | None = "20.26.1"
        self.answers: list[tuple[int, str]] = []
        self.missing: set[str] = set()
        self.posts: list[tuple[str, str, dict[str, str], list[dict[str, Any]]]] = []
        self.stored: list[dict[str, Any]] = []
        self.traces: list[dict[str, Any]] = []
        self.sessions: list[dict[str, Any]] = []
        self.configs: list[dict[str, Any]] = []
        self.unlisted: dict[str | None, set[int]] = {}
        self.collector: Collector | None = None
        self.config_status = 200

    def get(self) -> tuple[int, str]:
        return (200, self.version) if self.version else (404, "no such page")

    def post(self, path: str, query: str, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        if path == "/v1/traces" and self.collector is not None:
            self.collector.take(path, gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body)
            return 200, ""
        if path == "/v1/annotation_configs":
            self.configs.append(json.loads(body))
            return self.config_status, "{}"
        annotations = json.loads(body)["data"]
        self.posts.append((path, query, headers, annotations))
        if self.answers:
            return self.answers.pop(0)
        if any(item.get("document_position", 0) in self.unlisted.get(item.get("span_id"), ()) for item in annotations):
            return 422, "Document position 0 is out of bounds"
        if path == "/v1/document_annotations" and any(item["identifier"] for item in annotations):
            return 422, "Non-empty identifier is not supported"
        targets = {item.get("span_id") or item["trace_id"] for item in annotations if "session_id" not in item}
        absent = targets & self.missing
        if self.collector is not None:
            here = self.collector.spans
            absent = targets.difference(*({span.span_id.hex(), span.trace_id.hex()} for span in here))
        if absent and "sync=true" in query:
            return 404, f"Spans with IDs {', '.join(sorted(absent))} do not exist."
        stored = [{"path": path, **item} for item in annotations if item.get("span_id") not in absent]
        self.stored += [item for item in stored if "span_id" in item]
        self.traces += [item for item in stored if "trace_id" in item]
        self.sessions += [item for item in stored if "session_id" in item]
        return 200, "{}"


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(*server.get())

        def do_PUT(self) -> None:
            server.configs.append({"path": self.path})
            self._answer(200, "{}")

        def do_POST(self) -> None:
            path, _, query = self.path.partition("?")
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer(*server.post(path, query, headers, self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("content-type", "text/plain")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as server:
        yield server


@pytest.fixture
def exporter(server: Server) -> Iterator[PhoenixExporter]:
    exporter = PhoenixExporter(server.url)
    yield exporter
    exporter.shutdown(5)


def turn(span_id: str = SPAN, **fields: Any) -> Turn:
    passages = (Passage(text="The pier was opened in 2019.", id="d1"), Passage(text="The ferry is slow.", id="d2"))
    step = Step(id="r", kind="retriever", name="Store", started_at=0, ended_at=1, passages=passages)
    span = SpanReference(trace_id="0" * 31 + "1", span_id=span_id)
    return Turn(query="When?", response="In 2019.", passages=passages, steps=(step,), span=span, **fields)


GOOD = Score(name="verdict", value=1.0, label="good", explanation="every sentence is in a passage")


def evaluation(*results: Any, **fields: Any) -> Evaluation:
    return Evaluation(turn=turn(**fields), results=results or (GOOD,))


def elsewhere(server: Server) -> list[dict[str, Any]]:
    """Return the annotations of spans that are neither the turn's nor the retriever's: of ``evaluate``."""
    known = (SPAN, turn().step_span_id(turn().steps[0]))
    return [item for item in server.stored if item["path"] == "/v1/span_annotations" and item["span_id"] not in known]


def named(annotations: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in annotations}


def test_what_is_posted(server: Server, exporter: PhoenixExporter) -> None:
    """The verdict alone on the turn's span and trace, main scores on "evaluate", passages' scores on documents."""
    passage = Target(kind="passage", index=1, id="d2")
    exporter.export(
        evaluation(
            Score(name="verdict", value=0.0, label="bad", explanation="no passage has: 2019", model="m", version="3"),
            Score(name="groundedness", value=0.4, label="fail"),
            Score(name="faithfulness", value=0.9, label="pass"),
            Score(name="context_relevance", value=0.25, target=passage, annotator="LLM"),
            Skipped(name="unsupported_facts", reason="the response names nothing"),
            Failed(name="trace", error_type="rate_limited", message="too many requests", annotator="LLM"),
            Score(name="latency", value=3.0, unit="s", high=None),
        )
    )
    assert exporter.flush(10)

    of_turn = [item for item in server.stored if item.get("span_id") == SPAN]
    [document] = [item for item in server.stored if "document_position" in item]
    [verdict] = of_turn
    assert verdict == {
        "path": "/v1/span_annotations",
        "name": "verdict",
        "span_id": SPAN,
        "identifier": "rageval-hooks",  # phoenix.evals may have a score with the same name and no identifier
        "annotator_kind": "CODE",
        # Without the number, lists show the label.
        "result": {"label": "bad", "explanation": "no passage has: 2019"},
        "metadata": {"model": "m", "version": "3", "probability": 1.0},
    }
    assert (document["path"], document["document_position"]) == ("/v1/document_annotations", 1)
    assert document["span_id"] == turn().step_span_id(turn().steps[0])
    [of_trace] = server.traces
    assert of_trace["name"] == "verdict"
    assert of_trace["result"] == {"score": 0.0, "label": "bad", "explanation": "no passage has: 2019"}
    others = named(elsewhere(server))
    assert set(others) == {"faithfulness", "trace"}
    assert others["trace"]["result"] == {"label": "failed", "explanation": "rate_limited: too many requests"}


def test_a_verdict_without_a_number_has_its_label(server: Server, exporter: PhoenixExporter) -> None:
    exporter.export(evaluation(Skipped(name="verdict", label="declined", reason="the answer declines")))
    assert exporter.flush(10)

    for found in (server.stored, server.traces):
        [item] = found
        assert item["result"] == {"label": "declined", "explanation": "the answer declines"}


def test_the_judges_verdict_replaces_the_local_one(server: Server, exporter: PhoenixExporter) -> None:
    """Phoenix keeps one annotation per target, name and identifier."""
    judged = GOOD.model_copy(update={"annotator": "LLM", "value": 0.0, "label": "bad", "metric": "trace"})
    exporter.export(evaluation())
    exporter.export(evaluation(judged).model_copy(update={"stage": "background"}))
    assert exporter.flush(10)

    for found in (server.stored, server.traces):
        assert len(found) == 2
        assert (
            len({(item["name"], item["identifier"], item.get("span_id"), item.get("trace_id")) for item in found}) == 1
        )


def test_the_trace_and_the_session_have_the_verdict_alone(server: Server, exporter: PhoenixExporter) -> None:
    """Told apart by the turn's span, as both may have several turns. Their lists show one annotation."""
    exporter.export(evaluation(GOOD, Score(name="faithfulness", value=0.9), session_id="monday"))
    assert exporter.flush(10)

    assert [item["name"] for item in server.traces] == ["verdict"]
    [of_session] = server.sessions
    assert (of_session["session_id"], of_session["name"]) == ("monday", "verdict")
    assert {item["identifier"] for item in (of_session, *server.traces)} == {f"rageval-hooks {SPAN}"}
    assert {item["trace_id"] for item in server.traces} == {"0" * 31 + "1"}


def test_lists_show_what_a_guard_did(server: Server, exporter: PhoenixExporter) -> None:
    """Before the verdict, so that a blocked answer is told from one that the user got."""
    given = evaluation(GOOD, session_id="monday")
    outcome = GuardOutcome(action="replaced", verdict="unsupported", reason="why", blocked_answer="In 2018.")
    exporter.export(given.model_copy(update={"turn": given.turn.model_copy(update={"guard": outcome})}))
    assert exporter.flush(10)

    for found in (server.stored, server.traces, server.sessions):
        assert sorted(item["name"] for item in found) == ["guard", "verdict"]
        # Without a number, lists show the label.
        assert named(found)["guard"]["result"] == {"label": "replaced", "explanation": "why"}
    assert "In 2018." not in json.dumps([server.stored, server.traces])


LOCAL = [Score(name=name, value=0.9, label="pass") for name in ("groundedness", "faithfulness", "unsupported_facts")]
LATE = [Score(name=name, value=0.1, label="fail") for name in ("answer_relevance", "hallucination", "factual_accuracy")]


@pytest.mark.parametrize("late", [[], LATE, [*LOCAL[1:], *LATE]], ids=["fast", "slow", "slower"])
def test_the_choice_of_scores_does_not_depend_on_load_or_values(
    server: Server, exporter: PhoenixExporter, late: list[Score]
) -> None:
    """A mean of what was annotated only in slow turns, or only when it failed, would be wrong."""
    inline = [score for score in (*LOCAL, *LATE) if score not in late]
    exporter.export(evaluation(*inline))
    exporter.export(evaluation(*late).model_copy(update={"stage": "background", "results": tuple(late)}))
    assert exporter.flush(10)

    assert sorted(item["name"] for item in elsewhere(server)) == ["faithfulness", "unsupported_facts"]
    assert server.traces == []


def test_scores_of_the_users_own_metrics_are_annotated(server: Server, exporter: PhoenixExporter) -> None:
    """The most important ones come first."""
    exporter.export(evaluation(Score(name="tone", value=0.3), *LATE, *LOCAL))
    assert exporter.flush(10)

    assert [item["name"] for item in elsewhere(server)] == ["faithfulness", "unsupported_facts", "tone"]


def test_other_scores_of_the_packages_own_metrics_are_not(server: Server, exporter: PhoenixExporter) -> None:
    """They are on the span ``evaluate``. This holds for a metric that is added to the package, too."""
    kinds = [kind for kind in METRICS.builtin().values() if kind.scores]
    exporter.export(
        evaluation(
            *(
                Score(name=definition.name, value=0, high=None, metric=kind.name)
                for kind in kinds
                for definition in kind.scores
            )
        )
    )
    assert exporter.flush(10)

    assert [item["name"] for item in elsewhere(server)] == ["faithfulness", "unsupported_facts"]
    assert [item["name"] for item in server.traces] == ["verdict"]


def test_a_judge_that_failed_is_shown(server: Server, exporter: PhoenixExporter) -> None:
    """Else it would look like one that was not asked."""
    failed = Failed(name="trace", error_type="timeout", annotator="LLM", metric="trace")
    exporter.export(evaluation(Score(name="faithfulness", value=0.5), failed))
    assert exporter.flush(10)

    assert [item["name"] for item in elsewhere(server)] == ["trace", "faithfulness"]


def test_metrics_that_the_user_has_named_are_annotated_if_no_main_one_is_named(server: Server) -> None:
    """Else an application that runs only these would have no annotation. There is no verdict, so the span has them."""
    exporter = PhoenixExporter()
    exporter.bind(Settings.build(phoenix_endpoint=server.url, metrics="answer_relevance,latency"), None)
    exporter.export(evaluation(*LATE[:2], Score(name="latency", value=3.0, unit="s", high=None)))
    assert exporter.flush(10)
    exporter.shutdown(5)

    assert [item["name"] for item in server.stored] == ["answer_relevance"]


@pytest.mark.parametrize(
    ("tracer", "posted"),
    [("openinference.instrumentation.langchain", 1), ("opentelemetry.instrumentation.langchain", 0)],
)
def test_passage_scores_are_posted_where_the_retrievers_span_lists_documents(
    server: Server, exporter: PhoenixExporter, tracer: str, posted: int
) -> None:
    """Phoenix refuses the others: spans of GenAI's conventions and of OpenLLMetry have no list that it reads."""
    other = "00000000000000aa"
    server.unlisted = {} if posted else {other: {0, 1}}
    found = turn()
    step = found.steps[0].model_copy(update={"span_id": other, "span_tracer": tracer})
    score = Score(name="context_relevance", value=0.25, target=Target(kind="passage", index=1))
    exporter.export(Evaluation(turn=found.model_copy(update={"steps": (step,)}), results=(score,)))
    assert exporter.flush(10)

    assert [item["span_id"] for item in server.stored] == [other] * posted
    assert exporter.stats()["rejected"] == exporter.stats()["errors"] == 0
    assert exporter.stats()["unplaced"] == 1 - posted


def test_all_results_if_asked(server: Server) -> None:
    """Usage and skipped metrics too."""
    exporter = PhoenixExporter(server.url, scores="all")
    exporter.export(
        evaluation(Score(name="latency", value=3.0, unit="s", high=None), Skipped(name="entities", reason="none"))
    )
    assert exporter.flush(10)
    exporter.shutdown(5)

    stored = {item["name"]: item for item in server.stored}
    assert stored["entities"]["result"] == {"label": "skipped", "explanation": "none"}
    assert stored["latency"]["result"]["score"] == 3.0


def test_scores_of_sentences_have_no_place(server: Server) -> None:
    """They are counted; under the name of the turn's score they would replace it."""
    exporter = PhoenixExporter(server.url, scores="all")
    sentence = Score(name="tone", value=0.2, target=Target(kind="sentence", index=1))
    exporter.export(evaluation(Score(name="tone", value=0.9), sentence))
    assert exporter.flush(10)
    exporter.shutdown(5)

    assert [item["result"]["score"] for item in server.stored] == [0.9]
    assert exporter.stats()["unplaced"] == 1


def test_configs_say_direction_and_bounds(server: Server, exporter: PhoenixExporter) -> None:
    """Once per score: so they are coloured."""
    score = Score(name="unsupported_facts", value=1, direction="lower", high=None, label="fail")
    exporter.export(evaluation(score))
    assert exporter.flush(10)
    exporter.export(evaluation(score))
    assert exporter.flush(10)

    assert server.configs == [
        {
            "name": "unsupported_facts",
            "type": "CONTINUOUS",
            "optimization_direction": "MINIMIZE",
            "lower_bound": 0.0,
            "upper_bound": None,
        },
        {"path": "/v1/projects/default/annotation_configs/unsupported_facts"},
    ]


def test_many_scores_travel_in_few_requests(server: Server, exporter: PhoenixExporter) -> None:
    """Batched by span and kind."""
    for number in range(150):
        exporter.export(evaluation(span_id=f"{number + 1:016x}"))
    assert exporter.flush(10)

    assert len(server.stored) == 150
    assert len(server.posts) <= 10


def test_scores_wait_for_spans_that_are_on_their_way(server: Server, exporter: PhoenixExporter) -> None:
    """Those whose spans are there are not held up by the others, and each is stored once."""
    late = "00000000000000ff"
    server.missing = {late}
    exporter.export(evaluation())
    exporter.export(evaluation(span_id=late))
    for _ in range(100):
        assert not exporter.flush(0.3)
        if exporter.stats()["queued"] == 1:
            break
    assert [item["span_id"] for item in server.stored] == [SPAN]
    assert exporter.stats()["queued"] == 1  # the trace is there, by the other turn's span

    server.missing = set()
    assert exporter.flush(10)
    assert [item["span_id"] for item in server.stored] == [SPAN, late]


def test_what_has_no_span_at_the_end_is_left_to_the_server(server: Server, exporter: PhoenixExporter) -> None:
    """It looks for missing spans on its own when it is asked to."""
    server.missing = {SPAN}
    exporter.export(evaluation())
    exporter.shutdown(5)

    assert "sync=true" not in server.posts[-1][1]
    assert exporter.stats()["handed_over"] >= 1


@pytest.mark.parametrize("status", [429, 500, 503, 401])
def test_an_unavailable_server_gets_the_scores_later(
    server: Server, exporter: PhoenixExporter, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No score is lost, and one log line names the problem."""
    server.answers = [(status, "no")]
    exporter.export(evaluation())
    assert exporter.flush(10)

    assert len(server.stored) == 1
    assert exporter.stats()["errors"] == 1
    assert f"answers {status}" in caplog.text
    assert len(caplog.records) == 1


def test_one_score_that_is_refused_does_not_take_others_with_it(server: Server, exporter: PhoenixExporter) -> None:
    """The request is split until the culprit is alone."""

    def post(path: str, query: str, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        if any(item["name"] == "bad" for item in json.loads(body).get("data", ())):
            return 422, "invalid"
        return Server.post(server, path, query, headers, body)

    server.post = post  # type: ignore[method-assign]
    scores = [Score(name=name, value=1.0) for name in ("a", "b", "bad", "c", "d")]
    exporter.export(evaluation(*scores))
    assert not exporter.flush(10)

    assert sorted(item["name"] for item in elsewhere(server)) == ["a", "b", "c", "d"]
    assert exporter.stats()["rejected"] == 1


def test_an_absent_server(caplog: pytest.LogCaptureFixture) -> None:
    """The application is not affected. Scores that are lost at the end are counted and logged."""
    exporter = PhoenixExporter("http://127.0.0.1:9")
    exporter.export(evaluation())
    assert not exporter.flush(0.7)
    assert not exporter.shutdown(2)

    assert exporter.stats()["lost"] == 2  # of the span and of the trace
    assert "cannot be reached" in caplog.text
    assert "2 scores could not be delivered to Phoenix in time and are lost" in caplog.text


def test_without_an_address(caplog: pytest.LogCaptureFixture) -> None:
    """Scores and the demo's spans go to this machine, and the log names the setting."""
    exporter = PhoenixExporter()
    assert exporter.otlp_place("harbour").url == "http://localhost:6006/v1/traces"

    exporter.connect().close()
    assert "Set RAGEVAL_PHOENIX_ENDPOINT to its address [RAGEVAL-109]" in caplog.text


def test_a_server_that_takes_no_configs(server: Server, exporter: PhoenixExporter) -> None:
    """They only add colours: the scores are delivered all the same."""
    server.config_status = 403
    exporter.export(evaluation())
    assert exporter.flush(20)
    exporter.export(evaluation())
    assert exporter.flush(20)

    stats = exporter.stats()
    assert (stats["delivered"], stats["errors"], stats["lost"]) == (4, 0, 0)


def test_keys_and_headers(server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """From Phoenix's own variables; they appear on the wire, and in no log and no repr."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("PHOENIX_API_KEY", "px-secret")
    monkeypatch.setenv("PHOENIX_CLIENT_HEADERS", "x-team=the%20harbour,forgotten-name,")
    server.answers = [(401, "no")]
    exporter = PhoenixExporter(server.url)
    exporter.export(evaluation())
    assert exporter.flush(10)
    exporter.shutdown(5)

    headers = server.posts[-1][2]
    assert (headers["authorization"], headers["x-team"]) == ("Bearer px-secret", "the harbour")
    assert "PHOENIX_CLIENT_HEADERS: part 2 is not of the form name=value [RAGEVAL-114]" in caplog.text
    assert "px-secret" not in caplog.text + repr(exporter)
    assert "forgotten-name" not in caplog.text  # it may be a key


def test_hidden_content_is_not_posted(server: Server) -> None:
    """Explanations and details may quote texts."""
    exporter = PhoenixExporter(server.url, capture_content=False)
    delivery_to(exporter).export(
        evaluation(
            Score(name="verdict", value=0.5, explanation="no passage has: pier", metadata={"sentence": "pier"}),
            Failed(name="odd", error_type="ValueError", message="pier"),
        )
    )
    assert exporter.flush(10)
    exporter.shutdown(5)

    assert "pier" not in json.dumps(server.stored + server.traces)
    assert [item["name"] for item in server.stored + server.traces] == ["verdict", "odd", "verdict"]


class TestOnItsOwn:
    """With the default exporters: scores go to a Phoenix where the spans go to one, and nowhere else."""

    @pytest.fixture
    def run(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_SDK_DISABLED", "false")

        def run() -> dict[str, Any]:
            exporters = ["jsonl", PhoenixAutoExporter()]
            monkeypatch.setenv("RAGEVAL_JSONL_PATH", "/dev/null")
            with rageval_hooks.instrument(metrics=["unsupported_facts"], exporters=exporters) as handle:
                lcel().invoke("When?")
                assert handle.flush(10)
                stats: dict[str, Any] = handle.stats()["exporters"]["phoenix-auto"]
                return stats

        return run

    def test_a_phoenix_is_recognised(self, server: Server, run: Callable[[], dict[str, Any]]) -> None:
        """By what it says of itself."""
        assert run()["delivered"] > 0
        assert "unsupported_facts" in {item["name"] for item in server.traces}

    def test_something_else_gets_nothing(self, server: Server, run: Callable[[], dict[str, Any]]) -> None:
        """No request beyond the question who it is; nothing is counted as lost."""
        server.version = None

        assert set(run().values()) == {0}
        assert server.posts == []


@pytest.mark.parametrize(
    ("environment", "places"),
    [
        ({}, ""),
        ({"PHOENIX_COLLECTOR_ENDPOINT": "http://p:6006"}, "http://p:6006"),
        ({"PHOENIX_COLLECTOR_ENDPOINT": "http://p:6006/v1/traces"}, "http://p:6006"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://p:4317"}, "http://p:6006"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://p:4317", "PHOENIX_PORT": "7007"}, "http://p:7007"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://p/s/mine/v1/traces"}, "https://p/s/mine"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "unix:///tmp/x"}, ""),
        ({"PHOENIX_ENDPOINT": "http://a:1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://b:2"}, "http://a:1, http://b:2"),
    ],
)
def test_where_a_phoenix_may_be(environment: dict[str, str], places: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the variables of Phoenix and of OTLP; REST has the port of its pages."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    exporter = PhoenixAutoExporter()

    assert repr(exporter) == f"PhoenixAutoExporter({places})"
    assert exporter.applies() == bool(places)


def test_an_endpoint_that_was_given_in_code_is_found(server: Server) -> None:
    """In the exporters of the provider's processors. Annotation configs go to the project of its resource."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource({"openinference.project.name": "harbour"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{server.url}/v1/traces")))
    exporter = PhoenixAutoExporter(tracer_provider=provider)
    exporter.export(evaluation())
    assert exporter.flush(10)
    exporter.shutdown(5)
    provider.shutdown()

    assert [item["name"] for item in server.stored] == ["verdict"]
    assert server.configs[-1]["path"] == "/v1/projects/harbour/annotation_configs/verdict"


def test_secrets_are_in_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    """Neither of the settings, nor of the exporter and its fields."""
    endpoint = "http://user:px-secret@127.0.0.1:9"
    settings = Settings.build(phoenix_endpoint=endpoint)
    exporter = PhoenixExporter()
    exporter.bind(settings, None)
    keyed = PhoenixExporter(endpoint, api_key="px-secret")
    keyed.export(evaluation())
    keyed.flush(0.7)
    keyed.shutdown(0)

    shown = (settings, settings.model_dump(), settings.model_dump_json(), exporter, vars(exporter), keyed, vars(keyed))
    assert "px-secret" not in repr(shown) + caplog.text


def test_a_wrong_address_is_an_error_at_once() -> None:
    """And the message shows a right one."""
    with pytest.raises(ConfigurationError, match="http://localhost:6006"):
        rageval_hooks.instrument(phoenix_endpoint="localhost 6006", exporters=["phoenix"])
