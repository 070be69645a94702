"""Exporters and metrics are bound to the settings of a pipeline, whether they are named or given as objects."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, ValidationError

import rageval_hooks
from rageval_hooks import ConfigurationError, Evaluation, LocalMetric, Message, Passage, Score, Step, Turn
from rageval_hooks.exporters.base import ContentPolicy, Exporter, hide
from rageval_hooks.exporters.console import ConsoleExporter
from rageval_hooks.exporters.datadog import DatadogExporter
from rageval_hooks.exporters.jsonl import JsonlExporter
from rageval_hooks.exporters.langfuse import LangfuseExporter
from rageval_hooks.exporters.langsmith import LangsmithExporter
from rageval_hooks.exporters.mlflow import MlflowExporter
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.exporters.phoenix import PhoenixExporter
from rageval_hooks.exporters.score_api import ScoreApiExporter
from rageval_hooks.metrics.base import ScoreDefinition
from rageval_hooks.metrics.judged.ranking import Ranking
from rageval_hooks.metrics.judged.trace import Trace
from rageval_hooks.metrics.local.usage import Cost
from rageval_hooks.online.job import create_metric, describe_metric
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.testing import FakeJudge, InMemoryExporter
from rageval_hooks.turn import ErrorInfo, GuardOutcome, PromptTemplate, ToolCall
from tests.exporters.recording import RecordingServer, Reply, recording_server
from tests.integrations.langchain.fakes import lcel

SECRETS = ("Quillon", "Amsel", "in 1877")


class Sees(LocalMetric):
    """Quotes the turn in everything that a result can say."""

    name = "sees"
    scores = (ScoreDefinition(name="sees", description="1 if the texts are there"),)

    def evaluate(self, analysis: Any) -> Score:
        turn = analysis.turn
        text = f"{turn.query} {turn.response} {turn.passages[0].text}"
        return self.score(float(all(secret in text for secret in SECRETS)), explanation=text, metadata={"said": text})


class Mine(Exporter):
    """An exporter of the application, which knows nothing of settings."""

    name: ClassVar[str] = "mine"

    def __init__(self) -> None:
        self.got: list[Evaluation] = []

    def export(self, evaluation: Evaluation) -> None:
        self.got.append(evaluation)


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    with recording_server(lambda _: Reply(body={"trace": {"trace_info": {}}})) as server:
        yield server


@pytest.fixture
def spans() -> tuple[InMemorySpanExporter, TracerProvider]:
    memory, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return memory, provider


def ask() -> None:
    with rageval_hooks.start_turn("When did the Quillon open?") as turn:
        turn.add_passages([{"text": "The ferry to Amsel opened in 1877.", "id": "d1", "metadata": {"title": "Amsel"}}])
        turn.respond("The Quillon opened in 1877.")


HIDDEN: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "argument": ({"capture_content": False}, {}),
    "variable": ({}, {"RAGEVAL_CAPTURE_CONTENT": "false"}),
    "variable of GenAI": ({}, {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "NO_CONTENT"}),
}


@pytest.mark.parametrize("given", ["names", "objects"])
@pytest.mark.parametrize(("arguments", "environment"), HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("budget", [2000, 0], ids=["inline", "late"])
def test_hidden_texts_reach_no_exporter(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    server: RecordingServer,
    spans: tuple[InMemorySpanExporter, TracerProvider],
    capsys: pytest.CaptureFixture[str],
    given: str,
    arguments: dict[str, Any],
    environment: dict[str, str],
    budget: int,
) -> None:
    """Built in or the application's own, named or given as an object. Metrics and ``on_evaluation`` have the texts."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    path, memory, provider, mine, seen = tmp_path / "x.jsonl", *spans, Mine(), list[Evaluation]()
    exporters: list[Any] = ["otel", "phoenix", "mlflow", "jsonl", "console", mine]
    options: dict[str, Any] = {"phoenix_endpoint": server.url, "jsonl_path": str(path)}
    if given == "objects":
        objects = [OtelExporter(provider), PhoenixExporter(server.url), MlflowExporter(server.url)]
        exporters, options = [*objects, JsonlExporter(path), ConsoleExporter(), mine], {}
    with rageval_hooks.instrument(
        metrics=[Sees()],
        models="lexical",
        exporters=exporters,
        tracer_provider=provider,
        on_evaluation=seen.append,
        inline_budget_ms=budget,
        **arguments,
        **options,
    ) as handle:
        ask()
        handle.flush(10)

    found = {
        "spans": " ".join(span.to_json() for span in memory.get_finished_spans()),
        "posts": " ".join(str(request.body) for request in server.requests),
        "file": path.read_text(),
        "console": capsys.readouterr().err,
        "mine": " ".join(evaluation.model_dump_json() for evaluation in mine.got),
    }
    assert [(place, secret) for place, text in found.items() for secret in SECRETS if secret in text] == []
    assert all("sees" in text for text in found.values())
    assert [score.value for evaluation in seen for score in evaluation.scores] == [1.0]
    assert seen[0].turn.query == "When did the Quillon open?"


def test_the_strictest_of_exporter_and_settings_wins(tmp_path: Path) -> None:
    """Of every kind of text. Each exporter has its own view of the same evaluation."""
    shy = JsonlExporter(tmp_path / "shy.jsonl", policy=ContentPolicy(documents=False))
    output, mine = io.StringIO(), Mine()
    loud = ConsoleExporter(output, policy=ContentPolicy())
    for hidden in (False, True):
        with rageval_hooks.instrument(
            metrics=["latency"], exporters=[shy, loud, mine], capture_content=not hidden
        ) as handle:
            ask()
            handle.flush(10)

    first, second = (tmp_path / "shy.jsonl").read_text().splitlines()
    assert "Quillon" in first
    assert "Amsel" not in first
    assert "Quillon" not in second
    assert output.getvalue().count("When did the Quillon open?") == 1
    assert [evaluation.turn.query for evaluation in mine.got] == ["When did the Quillon open?", "__REDACTED__"]


SCORE_APIS: dict[str, Callable[[], ScoreApiExporter]] = {
    "phoenix": lambda: PhoenixExporter("http://localhost:1"),
    "mlflow": lambda: MlflowExporter("http://localhost:1"),
    "langfuse": lambda: LangfuseExporter("http://localhost:1", public_key="p", secret_key="s"),
    "langsmith": lambda: LangsmithExporter("http://localhost:1", api_key="k"),
    "datadog": lambda: DatadogExporter("http://localhost:1", api_key="k"),
}


@pytest.mark.parametrize("make", SCORE_APIS.values(), ids=SCORE_APIS)
def test_an_exporter_that_is_given_as_an_object_has_the_settings(
    make: Callable[[], ScoreApiExporter], spans: tuple[InMemorySpanExporter, TracerProvider]
) -> None:
    """And those of the next pipeline after that."""
    exporter, (_, provider) = make(), spans
    for selection, size in (("all", 3), ("rag", 128)):
        Pipeline.build(
            metrics=["latency"],
            exporters=[OtelExporter(), exporter],
            tracer_provider=provider,
            spans=selection,
            queue_max_mb=size,
        ).shutdown(5)
        assert (exporter.spans, exporter.queue.max_bytes, exporter.provider) == (selection, size * 2**20, provider)


@pytest.mark.parametrize("first", ["otel", OtelExporter], ids=["name", "class"])
def test_the_exporter_of_spans_is_the_same_as_an_object(
    spans: tuple[InMemorySpanExporter, TracerProvider], first: Any
) -> None:
    memory, provider = spans
    found = []
    for exporter in (first, OtelExporter(), OtelExporter(provider), OtelExporter(spans="rag")):
        memory.clear()
        with rageval_hooks.instrument(
            metrics=["latency"], exporters=[exporter], tracer_provider=provider, spans="all"
        ) as handle:
            lcel().invoke("When?")
            handle.flush(10)
        found.append(len(memory.get_finished_spans()))

    # The last one was given which spans it writes.
    assert found[0] == found[1] == found[2] > found[3]


OPTIONS: list[tuple[Any, dict[str, Any], str, Any]] = [
    (Cost(), {"cost_rate": 2.0}, "rate_per_1k", 2.0),
    (Cost(1.0), {"cost_rate": 2.0}, "rate_per_1k", 1.0),
    (Cost(0.0), {"cost_rate": 2.0}, "rate_per_1k", 0.0),
    (Ranking(), {"k_values": "2, 10"}, "ks", (2, 10)),
    (Ranking(ks=(1, 3, 5)), {"k_values": (2,)}, "ks", (1, 3, 5)),
    (Trace(), {"trace_formulas": "fixed20"}, "formulas", "fixed20"),
    (Trace("ragbench"), {"trace_formulas": "fixed20"}, "formulas", "ragbench"),
    (Trace, {"trace_formulas": "fixed20"}, "formulas", "fixed20"),
    ("cost", {"cost_rate": 2.0}, "rate_per_1k", 2.0),
]


@pytest.mark.parametrize(("given", "settings", "name", "expected"), OPTIONS, ids=map(str, range(len(OPTIONS))))
@pytest.mark.parametrize("in_environment", [False, True], ids=["argument", "variable"])
def test_a_metric_takes_the_options_that_it_was_not_given(
    monkeypatch: pytest.MonkeyPatch,
    given: Any,
    settings: dict[str, Any],
    name: str,
    expected: Any,
    in_environment: bool,
) -> None:
    """Also where it is computed elsewhere. What it was given wins, even if that is the default."""
    if in_environment:
        [(setting, value)] = settings.items()
        text = value if isinstance(value, str) else ",".join(map(str, value)) if isinstance(value, tuple) else value
        monkeypatch.setenv(f"RAGEVAL_{setting.upper()}", str(text))
        settings = {}
    judge = None if given in ("cost", OPTIONS[0][0]) or isinstance(given, Cost) else FakeJudge()
    pipeline = Pipeline.build(metrics=[given], exporters=[], judge=judge, **settings)
    [metric] = pipeline.metrics
    elsewhere = create_metric(describe_metric(metric))

    assert getattr(metric, name) == expected
    assert tuple(getattr(elsewhere, name)) == expected if name == "ks" else getattr(elsewhere, name) == expected
    assert [score.name for score in elsewhere.scores] == [score.name for score in metric.scores]


def test_a_metric_that_two_pipelines_use_keeps_their_settings_apart() -> None:
    cost = Cost()
    one, two = (Pipeline.build(metrics=[cost], exporters=[], cost_rate=rate) for rate in (1.0, 2.0))
    usage = rageval_hooks.Usage(input_tokens=1000, output_tokens=0)
    turn = Turn(query="When?", passages=(Passage(text="It opened."),), response="In 1877.", usage=usage)

    assert [pipeline.evaluate(turn)["cost"] for pipeline in (one, two)] == [1.0, 2.0]
    assert cost.rate_per_1k is None


USELESS = [
    ({"phoenix_endpoint": "http://localhost:6006", "exporters": ["console"]}, "phoenix_endpoint", "phoenix"),
    ({"jsonl_path": "x.jsonl", "exporters": [InMemoryExporter()]}, "jsonl_path", "jsonl"),
    ({"azure_events": True, "exporters": ["console"]}, "azure_events", "otel"),
    ({"score_metrics": True, "exporters": []}, "score_metrics", "otel"),
    ({"cost_rate": 2.0, "metrics": ["latency"], "exporters": []}, "cost_rate", "cost"),
    ({"k_values": (1, 2), "metrics": ["latency"], "exporters": []}, "k_values", "ranking"),
    ({"trace_formulas": "fixed20", "exporters": []}, "trace_formulas", "trace"),
]


@pytest.mark.parametrize(("arguments", "name", "owner"), USELESS, ids=[name for _, name, _ in USELESS])
def test_an_option_of_what_is_not_in_use_is_an_error(arguments: dict[str, Any], name: str, owner: str) -> None:
    """It would do nothing, without a word."""
    with pytest.raises(ConfigurationError, match=f"^{name} is an option of '{owner}', which is not in use: add it"):
        rageval_hooks.instrument(models="lexical", **arguments)


def test_an_option_in_the_environment_may_be_for_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGEVAL_K_VALUES", "1, 2")
    monkeypatch.setenv("RAGEVAL_PHOENIX_ENDPOINT", "http://localhost:6006")

    assert Pipeline.build(metrics=["latency"], exporters=[]).settings.options["k_values"] == (1, 2)


def test_a_turn_without_texts_knows_where_its_passages_and_its_answer_come_from() -> None:
    """Passages without ids are told apart by their texts, and the answering call by what it wrote."""
    times = {"started_at": 0, "ended_at": 1}
    texts = [(Passage(text="one"), Passage(text="two")), (Passage(text="three"),)]
    steps = [Step(id=str(n), kind="retriever", name="R", passages=found, **times) for n, found in enumerate(texts)]
    calls = [
        Step(id="a", kind="llm", name="M", output="The answer.", response_id="answering", **times),
        Step(
            id="f",
            kind="llm",
            name="M",
            output="More?",
            response_id="follow-up",
            messages=(Message(role="user", content="Ask about 1877."),),
            tool_calls=(ToolCall(name="t", arguments='{"year": 1877}'),),
            **times,
        ),
    ]
    turn = Turn(response="The answer.", passages=(*texts[1], *texts[0][::-1]), steps=(*steps, *calls))
    hidden = hide(Evaluation(turn=turn), ContentPolicy.of_settings(False)).turn

    def places(turn: Turn) -> list[Any]:
        return [found and (found[0].id, found[1]) for found in map(turn.locate_passage, range(4))]

    assert places(hidden) == places(turn) == [("1", 0), ("0", 1), ("0", 0), None]
    assert hidden.answer_id == turn.answer_id == "answering"
    assert not [word for word in ("one", "three", "answer.", "More", "1877") if word in hidden.model_dump_json()]


SHOWN = {
    "Turn": {"id", "name", "framework", "model", "session_id", "user_id", "missing"},
    "Step": {"id", "parent_id", "name", "finish_reason", "model", "request_model", "response_id", "provider", "call_id"}
    | {"data_source", "span_tracer", "left_out"},
    "Passage": {"id", "from_turn"},
    "Message": {"role", "name", "tool_call_id"},
    "ToolCall": {"name", "id"},
    "ErrorInfo": {"type"},
    "GuardOutcome": {"action", "verdict", "reason", "cause"},
}
"""Names, ids and reasons that quote nothing. Every other field may hold a text of the application."""


PARTS: dict[str, type[BaseModel]] = {
    "passages": Passage,
    "prompt": Message,
    "messages": Message,
    "tool_calls": ToolCall,
    "steps": Step,
    "template": PromptTemplate,
    "error": ErrorInfo,
    "guard": GuardOutcome,
}
BARE: dict[type[BaseModel], dict[str, Any]] = {
    Step: {"id": "1", "kind": "llm", "name": "n", "started_at": 0, "ended_at": 1},
    Passage: {"text": "t"},
    Message: {"role": "r", "content": "c"},
    ToolCall: {"name": "n"},
    ErrorInfo: {"type": "t"},
    GuardOutcome: {"action": "a", "verdict": "v"},
    PromptTemplate: {"text": "t"},
}


def filled(kind: type[BaseModel]) -> BaseModel:
    """Return an object in which every field that takes a text says which one it is."""
    made = kind.model_validate(BARE.get(kind, {}))
    for name in kind.model_fields:
        text = f"<{kind.__name__}.{name}>"
        part = [filled(PARTS[name])] if name in PARTS else []
        is_mapping = "dict" in str(kind.model_fields[name].annotation)
        for value in (*part, tuple(part), {"key": text} if is_mapping else text, (text,)):
            with contextlib.suppress(ValidationError):
                made = kind.model_validate({**dict(made), name: value})
                if value:
                    break
    return made


@pytest.mark.parametrize("kind", ["llm", "tool", "retriever", "chain"])
def test_no_field_of_a_turn_is_forgotten(kind: str) -> None:
    """One that is added later has to be hidden, or named here."""
    turn = filled(Turn)
    assert isinstance(turn, Turn)
    turn = turn.model_copy(update={"steps": tuple(step.model_copy(update={"kind": kind}) for step in turn.steps)})
    before = turn.model_dump_json()
    hidden = hide(Evaluation(turn=turn), ContentPolicy.of_settings(False)).turn.model_dump_json()

    found = {*re.findall(r"<\w+\.\w+>", before)}
    assert {"<Turn.query>", "<Step.input>", "<Message.content>", "<Passage.metadata>"} <= found
    allowed = {f"<{name}.{field}>" for name, fields in SHOWN.items() for field in fields}
    assert {*re.findall(r"<\w+\.\w+>", hidden)} - allowed == set()
