"""Where log events and metrics go, what turns them off, and what they never say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks import Evaluation, Failed, Score, Skipped, Step, Turn, Usage
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.turn import ErrorInfo, SpanReference, Timing
from tests.exporters.collector import http_collector, silent_server
from tests.exporters.delivered import delivery_to
from tests.exporters.test_providers import run
from tests.integrations.langchain.fakes import lcel

SPAN = SpanReference(trace_id="ab" * 16, span_id="cd" * 8)


class Backend:
    """Providers of an application that keep what they get."""

    def __init__(self) -> None:
        self.log_exporter = InMemoryLogRecordExporter()
        self.logs = LoggerProvider(shutdown_on_exit=False)
        self.logs.add_log_record_processor(SimpleLogRecordProcessor(self.log_exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)

    def exporter(self, **options: Any) -> OtelExporter:
        return OtelExporter(TracerProvider(), logger_provider=self.logs, meter_provider=self.meters, **options)

    def events(self) -> list[dict[str, Any]]:
        """Return the attributes of the log events, and what a line of a log viewer shows of each."""
        records = [record.log_record for record in self.log_exporter.get_finished_logs()]
        return [{**(record.attributes or {}), "body": record.body} for record in records]

    def metrics(self) -> dict[str, list[Any]]:
        """Return the points of each metric."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.logs.shutdown()
    backend.meters.shutdown()


def evaluation(*results: Any) -> Evaluation:
    return Evaluation(
        turn=Turn(id="1", query="When?", response="In 2019.", span=SPAN, name="handbook"), results=results
    )


class TestSwitches:
    def test_log_events_can_be_turned_off(self, backend: Backend) -> None:
        backend.exporter(log_events=False).export(evaluation(Score(name="groundedness", value=0.5)))
        assert backend.events() == []
        assert backend.metrics()["rageval.score"]

    def test_metrics_can_be_turned_off(self, backend: Backend) -> None:
        backend.exporter(score_metrics=False).export(evaluation(Score(name="groundedness", value=0.5)))
        assert backend.metrics() == {}
        assert len(backend.events()) == 1

    def test_by_a_variable_each(self) -> None:
        """RAGEVAL_LOG_EVENTS and RAGEVAL_SCORE_METRICS turn our own providers off too: nothing is connected."""
        with http_collector() as collector:
            run(
                "rageval_hooks.instrument(metrics=['latency'])\nlcel().invoke('When?')",
                OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
                OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=f"{collector.url}/v1/logs",
                OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{collector.url}/v1/metrics",
                RAGEVAL_EXPORTERS="otel",
                RAGEVAL_LOG_EVENTS="false",
                RAGEVAL_SCORE_METRICS="false",
            )
        assert set(collector.paths) == {"/v1/traces"}

    def test_an_endpoint_for_all_signals_gets_traces_only(self) -> None:
        """What listens there is often a Phoenix or a Jaeger, which refuse logs and metrics."""
        with http_collector() as collector:
            run(
                "rageval_hooks.instrument(metrics=['latency'])\nlcel().invoke('When?')",
                OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
                RAGEVAL_EXPORTERS="otel",
            )
        assert set(collector.paths) == {"/v1/traces"}

    def test_azure_events_are_marked_when_asked(self, backend: Backend) -> None:
        backend.exporter(azure_events=True).export(evaluation(Score(name="groundedness", value=0.5)))
        [event] = backend.events()
        assert event["microsoft.custom_event.name"] == "gen_ai.evaluation.result"


class TestProviders:
    def test_the_applications_providers_serve_also_when_set_late(self) -> None:
        """The global ones, and they stay the application's."""
        result = run("""
from opentelemetry import _logs, metrics
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

handle = rageval_hooks.instrument(metrics=["latency"])
app, exporter = provider()
trace.set_tracer_provider(app)
events, reader = InMemoryLogRecordExporter(), InMemoryMetricReader()
logs = LoggerProvider()
logs.add_log_record_processor(SimpleLogRecordProcessor(events))
_logs.set_logger_provider(logs)
metrics.set_meter_provider(MeterProvider([reader]))
lcel().invoke("When?")
handle.flush(10)
handle.shutdown()
scope = reader.get_metrics_data().resource_metrics[0].scope_metrics[0]
print(json.dumps({
    "events": [record.log_record.attributes["gen_ai.evaluation.name"] for record in events.get_finished_logs()],
    "scope": [scope.scope.name, scope.scope.schema_url],
    "metrics": sorted(metric.name for metric in scope.metrics),
}))
""")
        found = json.loads(result.stdout)
        assert found["events"] == ["latency", "latency.retrieval", "latency.generation"]
        assert found["scope"][0] == "rageval_hooks"
        assert found["scope"][1].startswith("https://opentelemetry.io/schemas/")
        assert {"rageval.score.duration", "rageval.turns", "rageval.queue.depth"} <= set(found["metrics"])

    def test_without_any_provider_nothing_is_written_and_nothing_warned(self) -> None:
        """Besides the summary on the console, which stands for the spans."""
        result = run("""
with rageval_hooks.instrument(metrics=["latency"], exporters=["otel"]) as handle:
    lcel().invoke("When?")
    assert handle.flush(10)
""")
        assert result.stderr.count("rageval-hooks:") == 1  # says that evaluations are printed
        assert "latency.retrieval" in result.stderr

    def test_providers_need_not_be_hashable(self, backend: Backend) -> None:
        """Logfire's are data classes with an equality of their own."""

        class Wrapper:
            __hash__ = None  # type: ignore[assignment]

            def __init__(self, provider: Any) -> None:
                self.provider = provider

            def __getattr__(self, name: str) -> Any:
                return getattr(self.provider, name)

        spans = InMemorySpanExporter()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(spans))
        wrapped: dict[str, Any] = {
            "logger_provider": Wrapper(backend.logs),
            "meter_provider": Wrapper(backend.meters),
        }
        provider: Any = Wrapper(tracers)
        exporter = OtelExporter(provider, **wrapped)
        with rageval_hooks.instrument(metrics=["latency"], exporters=[exporter], tracer_provider=provider) as handle:
            lcel().invoke("When?")
            assert handle.flush(10)
        assert "rag RunnableSequence" in {span.name for span in spans.get_finished_spans()}
        assert len(backend.events()) == 3
        assert backend.metrics()["rageval.turns"]

    @pytest.mark.skipif(find_spec("logfire") is None, reason='no Logfire: pip install "rageval-hooks[compat]"')
    def test_logfire_gets_all_three(self) -> None:
        """``logfire.configure`` sets all providers, here after ``instrument()``."""
        result = run("""
import logfire
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

spans, events, reader = InMemorySpanExporter(), InMemoryLogRecordExporter(), InMemoryMetricReader()
handle = rageval_hooks.instrument(metrics=["latency"], exporters=["otel"])
logfire.configure(
    send_to_logfire=False,
    console=False,
    additional_span_processors=[SimpleSpanProcessor(spans)],
    metrics=logfire.MetricsOptions(additional_readers=[reader]),
    advanced=logfire.AdvancedOptions(log_record_processors=[SimpleLogRecordProcessor(events)]),
)
lcel().invoke("When?")
handle.flush(10)
[turn] = [span for span in spans.get_finished_spans() if span.name == "rag RunnableSequence"]
records = [record.log_record for record in events.get_finished_logs()]
scopes = reader.get_metrics_data().resource_metrics[0].scope_metrics
print(json.dumps({
    "same span": {record.span_id for record in records} == {turn.context.span_id},
    "metrics": [metric.name for scope in scopes for metric in scope.metrics],
}))
""")
        found = json.loads(result.stdout)
        assert found["same span"]
        assert "rageval.score.duration" in found["metrics"]

    def test_two_exporters_share_the_instruments_of_a_provider(self, backend: Backend) -> None:
        """Otherwise the provider would report the counts of the process twice."""
        for exporter in (backend.exporter(), backend.exporter(capture_content=False)):
            exporter.export(evaluation(Score(name="groundedness", value=0.5)))
        [point] = backend.metrics()["rageval.turns"]
        assert point.value == 2
        assert len(backend.metrics()["rageval.turns.sampled_out"]) == 2  # one for each reason

    def test_turns_that_are_sampled_out_are_counted_before_any_is_evaluated(self, backend: Backend) -> None:
        def sampled_out() -> int:
            points = backend.metrics()["rageval.turns.sampled_out"]
            return next(p.value for p in points if p.attributes == {"rageval.reason": "sample_rate"})

        with rageval_hooks.instrument(metrics=[], exporters=[backend.exporter()], sample_rate=0):
            before = sampled_out()
            lcel().invoke("When?")
            lcel().invoke("When?")
            assert sampled_out() - before == 2

    def test_our_own_providers_say_what_was_not_delivered(self) -> None:
        """A flush is False if the collector refuses log events or metrics, and the counts say how many."""
        with http_collector() as collector, http_collector() as traces:
            collector.status = 400
            result = run(
                """
handle = rageval_hooks.instrument(metrics=["latency"], exporters=["otel"])
lcel().invoke("When?")
print(json.dumps([handle.flush(10), handle.stats()["exporters"]["otel"]]))
""",
                OTEL_EXPORTER_OTLP_ENDPOINT=traces.url,
                OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=f"{collector.url}/v1/logs",
                OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{collector.url}/v1/metrics",
            )
        flushed, stats = json.loads(result.stdout)
        assert flushed is False
        assert stats["rejected"] == 0
        assert stats["log_events_rejected"] == 3
        assert stats["metric_exports_rejected"] == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_beside_another_tracer_events_are_in_the_context_of_its_spans(backend: Backend) -> None:
    """Of its turn and its retriever: there are no spans of ours to refer to."""
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    other = LangChainInstrumentor()
    other.instrument(tracer_provider=tracers)
    ours = OtelExporter(tracers, logger_provider=backend.logs, meter_provider=backend.meters)
    try:
        with rageval_hooks.instrument(
            metrics=["context_relevance"], models="lexical", exporters=[ours], tracer_provider=tracers
        ) as handle:
            lcel().invoke("When was the pier opened?")
            assert handle.flush(10)
    finally:
        other.uninstrument()
    theirs = {span.context.span_id: span for span in exporter.get_finished_spans() if span.context}
    records = [record.log_record for record in backend.log_exporter.get_finished_logs()]
    by_target = {(record.attributes or {}).get("rageval.target.kind", "turn"): record for record in records}
    assert theirs[by_target["turn"].span_id].parent is None
    assert theirs[by_target["passage"].span_id].name == "ScriptedRetriever"


class TestProcesses:
    def test_the_last_turn_arrives_before_the_applications_providers_are_closed(self) -> None:
        """They are closed by exit handlers of their own, in the order that Python runs them."""
        with http_collector() as collector:
            run(
                """
from opentelemetry import _logs, metrics
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

rageval_hooks.instrument(metrics=["latency"], exporters=["otel"], inline_budget_ms=0)
app, _ = provider()
trace.set_tracer_provider(app)
logs = LoggerProvider()
logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
_logs.set_logger_provider(logs)
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())]))
lcel().invoke("When?")
""",
                OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            )
        assert len(collector.log_records) == 3
        assert collector.metrics["rageval.turns"].sum.data_points[0].as_int == 1

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
    def test_a_forked_child_has_log_events_and_metrics_of_its_own(self) -> None:
        """As in a server that instruments before it forks its workers."""
        with http_collector() as collector:
            run(
                """
import os, warnings
warnings.simplefilter("ignore")
handle = rageval_hooks.instrument(metrics=["latency"], exporters=["otel"])
child = os.fork()
if child == 0:
    lcel().invoke("When?")
    os._exit(0 if handle.flush(20) and handle.shutdown(20) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""",
                **endpoints(collector.url),
            )
        assert len(collector.log_records) == 3
        assert "rageval.score.duration" in collector.metrics

    def test_a_disabled_sdk_writes_nothing(self) -> None:
        """OTEL_SDK_DISABLED is OpenTelemetry's own switch."""
        with http_collector() as collector:
            run(
                """
with rageval_hooks.instrument(metrics=["latency"], exporters=["otel"]) as handle:
    lcel().invoke("When?")
    handle.flush(10)
    assert handle.stats()["export_errors"] == 0
""",
                OTEL_SDK_DISABLED="true",
                **endpoints(collector.url),
            )
        assert (collector.spans, collector.log_records, collector.metrics) == ([], [], {})

    def test_an_endpoint_that_never_answers_delays_no_call(self) -> None:
        with silent_server() as url:
            result = run(
                """
import time
handle = rageval_hooks.instrument(metrics=["latency"], exporters=["otel"], drain_timeout=0.5)
lcel().invoke("warm up")
started = time.monotonic()
lcel().invoke("When?")
print(time.monotonic() - started < 8)  # OpenTelemetry's own limit is 10 seconds
""",
                **endpoints(url),
            )
        assert result.stdout.strip() == "True"


def endpoints(url: str) -> dict[str, str]:
    """Return the variables that send each signal to a collector."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"{url}/v1/logs",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{url}/v1/metrics",
    }


class TestContent:
    RESULTS = (
        Score(name="groundedness", value=0.5, explanation="The answer quotes SECRET."),
        Failed(name="trace", error_type="JudgeAnswerError", message="The judge wrote SECRET."),
        Skipped(name="umbrela", reason="there are no passages"),
    )

    def test_explanations_are_hidden_with_the_texts(self, backend: Backend) -> None:
        """Wherever an event might show them: in its attributes and in its body."""
        delivery_to(backend.exporter(capture_content=False)).export(evaluation(*self.RESULTS))
        assert "SECRET" not in json.dumps(backend.events())
        groundedness, failed, skipped = backend.events()
        assert groundedness["gen_ai.evaluation.explanation"] == "__REDACTED__"
        assert failed["body"] == "trace failed: JudgeAnswerError: __REDACTED__"
        assert skipped["gen_ai.evaluation.explanation"] == "there are no passages"

    def test_metrics_never_have_texts(self, backend: Backend) -> None:
        backend.exporter().export(evaluation(*self.RESULTS))
        assert "SECRET" not in str(backend.metrics())


BAD = Score(name="verdict", value=0.0, label="bad", explanation="no passage has: 2019")
JUDGED_GOOD = Score(name="verdict", value=1.0, label="good", annotator="LLM", metric="trace")
DECLINED = Skipped(name="verdict", label="declined", reason="the response declines to answer")


class TestVerdict:
    def test_only_a_bad_one_is_a_warning(self, backend: Backend) -> None:
        """Other low scores are not: what is low depends on the application."""
        backend.exporter().export(evaluation(BAD, JUDGED_GOOD, DECLINED, Score(name="tone", value=0.0, label="bad")))
        severities = [found.log_record.severity_text for found in backend.log_exporter.get_finished_logs()]
        assert severities == ["WARN", "INFO", "INFO", "INFO"]
        assert [event["body"] for event in backend.events()] == [
            "verdict=0 (bad)",
            "verdict=1 (good)",
            "verdict declined: the response declines to answer",
            "tone=0 (bad)",
        ]
        labels = [event["gen_ai.evaluation.score.label"] for event in backend.events()]
        assert labels == ["bad", "good", "declined", "bad"]

    def test_one_series_by_verdict_and_annotator(self, backend: Backend) -> None:
        """A turn that was judged has two."""
        for results in ((BAD,), (BAD,), (JUDGED_GOOD,), (DECLINED,), (Failed(name="verdict", error_type="OSError"),)):
            backend.exporter().export(evaluation(*results))
        points = backend.metrics()["rageval.verdicts"]
        found = {(p.attributes["rageval.verdict"], p.attributes["rageval.annotator"]): p.value for p in points}
        assert found == {("bad", "CODE"): 2, ("good", "LLM"): 1, ("declined", "CODE"): 1}


class TestCardinality:
    def test_an_attribute_has_a_hundred_values_at_most(self, backend: Backend) -> None:
        """Each combination is a time series that the backend keeps and bills."""
        exporter = backend.exporter()
        for number in range(300):
            exporter.export(evaluation(Score(name=f"score{number}", value=0.5)))
        names = {point.attributes["rageval.score.name"] for point in backend.metrics()["rageval.score"]}
        assert len(names) == 101
        assert "other" in names

    @pytest.mark.parametrize("unit", ["", "facts", "grade", "km/h", "µs"])
    def test_scores_of_quality_are_in_one_histogram_whatever_their_unit(self, backend: Backend, unit: str) -> None:
        """A dashboard of ``rageval.score`` shows counts and grades too; its buckets fit shares and small counts."""
        for value in (0.0, 0.04, 0.85, 1.0, 2.0, 7.0):
            backend.exporter().export(evaluation(Score(name="custom", value=value, unit=unit, high=None)))
        [point] = backend.metrics()["rageval.score"]
        assert point.sum == pytest.approx(10.89)
        assert max(point.bucket_counts) == 1  # each value has a bucket of its own

    @pytest.mark.parametrize(
        ("reason", "kept"),
        [
            ("the queue is full: 2048 turns wait for evaluation", "the queue is full"),
            ("more than 1,000 passages: 1,024", "more than N passages"),
            ("no result after 0.5 seconds", "no result after N seconds"),
            ("the query has no concepts", "the query has no concepts"),
        ],
    )
    def test_reasons_lose_their_details(self, backend: Backend, reason: str, kept: str) -> None:
        backend.exporter().export(evaluation(Skipped(name="groundedness", reason=reason)))
        [point] = backend.metrics()["rageval.scores.skipped"]
        assert point.attributes["rageval.reason"] == kept


CALL = Step(
    id="1",
    kind="llm",
    name="chat",
    started_at=0,
    ended_at=1_500_000_000,
    model="gpt-5-mini-2026",
    request_model="gpt-5-mini",
    provider="openai",
    usage=Usage(input_tokens=100, output_tokens=20),
)


class TestModelCalls:
    """The GenAI client metrics, where no other instrumentor records them."""

    def recorded(self, backend: Backend, **changes: Any) -> dict[str, list[Any]]:
        turn = evaluation().turn.model_copy(update={"steps": (CALL.model_copy(update=changes),)})
        backend.exporter().export(Evaluation(turn=turn))
        found = backend.metrics()
        return {name: found.get(f"gen_ai.client.{name}", []) for name in ("operation.duration", "token.usage")}

    def test_duration_and_tokens(self, backend: Backend) -> None:
        found = self.recorded(backend)
        named = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.response.model": "gpt-5-mini-2026",
        }
        [duration] = found["operation.duration"]
        assert (duration.sum, duration.attributes) == (1.5, named)
        assert {point.attributes["gen_ai.token.type"]: point.sum for point in found["token.usage"]} == {
            "input": 100,
            "output": 20,
        }

    def test_the_time_to_the_first_chunk_of_a_stream(self, backend: Backend) -> None:
        turn = evaluation().turn.model_copy(update={"steps": (CALL.model_copy(update={"time_to_first_token": 0.25}),)})
        backend.exporter().export(Evaluation(turn=turn))
        [point] = backend.metrics()["gen_ai.client.operation.time_to_first_chunk"]
        assert (point.sum, point.attributes["gen_ai.request.model"]) == (0.25, "gpt-5-mini")

    @pytest.mark.parametrize(
        ("kinds", "operation", "named"),
        [
            (["retriever", "llm"], "invoke_workflow", "gen_ai.workflow.name"),
            (["tool", "llm"], "invoke_agent", "gen_ai.agent.name"),
        ],
    )
    def test_the_duration_of_turns_and_tools(
        self, backend: Backend, kinds: list[Any], operation: str, named: str
    ) -> None:
        steps = tuple(CALL.model_copy(update={"kind": kind, "name": f"the {kind}"}) for kind in kinds)
        timing = Timing(started_at=0, ended_at=2_000_000_000)
        changes = {"steps": steps, "timing": timing, "name": "harbour", "error": ErrorInfo(type="TimeoutError")}
        backend.exporter().export(Evaluation(turn=evaluation().turn.model_copy(update=changes)))
        found = backend.metrics()
        [turn] = found[f"gen_ai.{operation}.duration"]
        tools = [(point.sum, dict(point.attributes)) for point in found.get("gen_ai.execute_tool.duration", [])]
        assert (turn.sum, turn.attributes) == (2.0, {named: "harbour", "error.type": "TimeoutError"})
        assert tools == [(1.5, {"gen_ai.tool.name": "the tool"})] * ("tool" in kinds)

    def test_a_failed_call_has_its_error(self, backend: Backend) -> None:
        [duration] = self.recorded(backend, error=ErrorInfo(type="TimeoutError"))["operation.duration"]
        assert duration.attributes["error.type"] == "TimeoutError"

    def test_estimated_tokens_are_not_recorded(self, backend: Backend) -> None:
        """The conventions want counts of the provider."""
        usage = Usage(input_tokens=100, output_tokens=20, source="tiktoken")
        assert self.recorded(backend, usage=usage)["token.usage"] == []

    @pytest.mark.parametrize(
        ("tracer", "points"),
        [("openinference.instrumentation.langchain", 1), ("opentelemetry.instrumentation.genai.langchain", 0)],
    )
    def test_not_next_to_a_tracer_that_records_them(self, backend: Backend, tracer: str, points: int) -> None:
        """OpenInference's instrumentors do not."""
        found = self.recorded(backend, span_id="1234567890abcdef", span_tracer=tracer)
        assert len(found["operation.duration"]) == points

    def test_not_next_to_an_instrumentor_of_a_models_client(self, backend: Backend) -> None:
        """It is unknown to the framework and to us, but OpenTelemetry knows that it is active."""

        class OpenAIInstrumentor(BaseInstrumentor):  # type: ignore[misc]
            __module__ = "opentelemetry.instrumentation.openai_v2"

            def instrumentation_dependencies(self) -> list[str]:
                return []

            def _instrument(self, **kwargs: Any) -> None:
                pass

            def _uninstrument(self, **kwargs: Any) -> None:
                pass

        instrumentor = OpenAIInstrumentor()
        instrumentor.instrument()
        try:
            assert self.recorded(backend)["operation.duration"] == []
        finally:
            instrumentor.uninstrument()
        assert len(self.recorded(backend)["operation.duration"]) == 1


class TestJudge:
    def spent(self, backend: Backend, *results: Any) -> dict[str, float]:
        backend.exporter().export(evaluation(*results))
        names = ("rageval.judge.calls", "rageval.judge.tokens", "rageval.judge.cost")
        return {name: sum(point.value for point in backend.metrics().get(name, [])) for name in names}

    def test_several_scores_of_one_judgement_count_once(self, backend: Backend) -> None:
        details = {"judge": {"model": "small", "attempts": 2, "input_tokens": 100, "output_tokens": 10, "cost": 0.5}}
        scores = [
            Score(name=name, value=1, metric="trace", annotator="LLM", metadata=details)
            for name in ("trace.adherence", "trace.relevance")
        ]
        assert self.spent(backend, *scores) == {
            "rageval.judge.calls": 2,
            "rageval.judge.tokens": 110,
            "rageval.judge.cost": 0.5,
        }

    def test_a_local_score_is_no_call_of_a_judge(self, backend: Backend) -> None:
        score = Score(name="groundedness", value=0.5, metadata={"judge": "none"})
        assert set(self.spent(backend, score).values()) == {0}

    def test_a_cached_judgement_costs_nothing(self, backend: Backend) -> None:
        details = {"judge": {"model": "small", "cached": True, "input_tokens": 100, "output_tokens": 10}}
        score = Score(name="trace.adherence", value=1, metric="trace", annotator="LLM", metadata=details)
        assert set(self.spent(backend, score).values()) == {0}
