"""Log events and metrics as a collector receives them, from an application that sets nothing but the endpoints."""

from __future__ import annotations

import os
from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.exporters.collector import Collector, grpc_collector, http_collector
from tests.judges.server import JudgeServer, answer
from tests.online.test_judge_stage import LABELS
from tests.warm import run_warm_script

APPLICATION = """
import rageval_hooks
from rageval_hooks import Failed, Skipped, metric
from tests.integrations.langchain.fakes import lcel

@metric(name="broken")
def broken(turn):
    raise RuntimeError("no such table")

@metric(name="absent")
def absent(turn):
    return Skipped(name="absent", reason="the turn has only 2 passages: 5 are needed")

metrics = ["groundedness", "context_relevance", "latency", "trace", broken, absent]
rageval_hooks.instrument(metrics=metrics, models="lexical", judge="openai:judge-model", sample_rate=1)
lcel().invoke("When was the pier opened?")
"""


@pytest.fixture(scope="module", params=["http/protobuf", "grpc"])
def collector(request: pytest.FixtureRequest) -> Collector:
    """What a collector got from an application in another process, which ends at once after its one turn."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_"))}
    grpc = request.param == "grpc"
    with grpc_collector() if grpc else http_collector() as collector, JudgeServer() as judge:
        judge.otherwise(answer(LABELS))
        variables = {
            **clean,
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": judge.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": collector.url if grpc else f"{collector.url}/v1/logs",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": collector.url if grpc else f"{collector.url}/v1/metrics",
            "OTEL_EXPORTER_OTLP_PROTOCOL": request.param,
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
            "RAGEVAL_EXPORTERS": "otel",
            "RAGEVAL_THRESHOLDS": "groundedness=0.5",
            "RAGEVAL_INLINE_BUDGET_MS": "20000",
            "RAGEVAL_DRAIN_TIMEOUT": "60",
        }
        run_warm_script(APPLICATION, environment=variables)
    return collector


def attributes(holder: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in holder.attributes}


def span_named(collector: Collector, name: str) -> Span:
    [span] = [span for span in collector.spans if span.name == name]
    return span


def events(collector: Collector, name: str) -> list[LogRecord]:
    return [record for record in collector.log_records if attributes(record)["gen_ai.evaluation.name"] == name]


def points(collector: Collector, metric: str, **wanted: str) -> list[Any]:
    """Return the points of a metric whose attributes have some values; ``__`` stands for a dot."""
    data = getattr(collector.metrics[metric], collector.metrics[metric].WhichOneof("data"))
    expected = {name.replace("__", "."): value for name, value in wanted.items()}
    return [point for point in data.data_points if expected.items() <= attributes(point).items()]


class TestLogEvents:
    def test_every_result_is_one_event(self, collector: Collector) -> None:
        """Inline and late, of the turn and of passages, skipped and failed; each once."""
        assert {record.event_name for record in collector.log_records} == {"gen_ai.evaluation.result"}
        events = [attributes(record) for record in collector.log_records]
        names = [event["gen_ai.evaluation.name"] for event in events if "rageval.target.kind" not in event]
        assert len(names) == len(set(names))
        assert {"groundedness", "context_relevance", "trace.adherence", "broken", "absent"} <= set(names)

    @pytest.mark.parametrize("name", ["groundedness", "trace.adherence", "broken", "absent"])
    def test_a_result_about_the_turn_is_in_the_turns_context(self, collector: Collector, name: str) -> None:
        """Local or late: a backend finds the event from the span."""
        turn = span_named(collector, "rag RunnableSequence")
        [event] = events(collector, name)
        assert (event.trace_id, event.span_id) == (turn.trace_id, turn.span_id)
        assert event.flags & 1

    def test_a_passages_score_is_in_its_retrievers_context(self, collector: Collector) -> None:
        retriever = span_named(collector, "retrieval ScriptedRetriever")
        of_passages = [
            event
            for event in events(collector, "context_relevance")
            if attributes(event).get("rageval.target.kind") == "passage"
        ]
        assert {event.span_id for event in of_passages} == {retriever.span_id}
        assert sorted(attributes(event)["rageval.target.document_position"] for event in of_passages) == [0, 1]

    def test_a_score(self, collector: Collector) -> None:
        """Value, label, what was evaluated and by what, in the names of the conventions and of pydantic_evals."""
        [event] = events(collector, "groundedness")
        found = attributes(event)
        assert isinstance(found["gen_ai.evaluation.score.value"], float)
        assert found["gen_ai.evaluation.score.label"] == "pass"
        assert found["gen_ai.evaluation.target"] == "RunnableSequence"
        assert found["gen_ai.evaluation.evaluator.source"].startswith('{"name":"groundedness","arguments":')
        assert found["gen_ai.evaluation.evaluator.version"]
        assert found["rageval.sampling.probability"] == 1.0
        assert event.severity_number == SeverityNumber.SEVERITY_NUMBER_INFO
        assert event.body.string_value.startswith("groundedness=")
        assert "microsoft.custom_event.name" not in found

    def test_a_failed_score_is_a_warning(self, collector: Collector) -> None:
        [event] = events(collector, "broken")
        assert event.severity_number == SeverityNumber.SEVERITY_NUMBER_WARN
        found = attributes(event)
        assert found["error.type"] == "RuntimeError"
        assert found["gen_ai.evaluation.explanation"] == "RuntimeError: no such table"
        assert "gen_ai.evaluation.score.value" not in found

    def test_a_skipped_score_has_its_reason(self, collector: Collector) -> None:
        [event] = events(collector, "absent")
        assert event.severity_number == SeverityNumber.SEVERITY_NUMBER_INFO
        assert attributes(event)["gen_ai.evaluation.score.label"] == "skipped"
        assert "only 2 passages" in attributes(event)["gen_ai.evaluation.explanation"]


class TestMetrics:
    def test_a_histogram_of_the_scores(self, collector: Collector) -> None:
        [point] = points(collector, "rageval.score", rageval__score__name="groundedness")
        [event] = events(collector, "groundedness")
        assert point.sum == pytest.approx(attributes(event)["gen_ai.evaluation.score.value"])
        found = attributes(point)
        assert found["rageval.score.label"] == "pass"
        assert found["gen_ai.response.model"] == "scripted-1-2026"
        assert found["rageval.target.kind"] == "turn"
        assert 0.5 in point.explicit_bounds

    def test_late_scores_are_in_it(self, collector: Collector) -> None:
        [point] = points(collector, "rageval.score", rageval__score__name="trace.adherence")
        assert (point.count, point.sum) == (1, 1.0)

    def test_scores_with_a_unit_have_their_own_histogram(self, collector: Collector) -> None:
        """Seconds would not fit the buckets of shares."""
        assert points(collector, "rageval.score.duration", rageval__score__name="latency")
        assert collector.metrics["rageval.score.duration"].unit == "s"
        assert not points(collector, "rageval.score", rageval__score__name="latency")

    @pytest.mark.parametrize("name", ["groundedness", "trace.adherence"])
    def test_the_exemplar_is_the_trace(self, collector: Collector, name: str) -> None:
        turn = span_named(collector, "rag RunnableSequence")
        [point] = points(collector, "rageval.score", rageval__score__name=name)
        [exemplar] = point.exemplars
        assert (exemplar.trace_id, exemplar.span_id) == (turn.trace_id, turn.span_id)

    def test_turns(self, collector: Collector) -> None:
        [point] = points(collector, "rageval.turns")
        assert point.as_int == 1
        assert attributes(point) == {
            "rageval.turn.status": "ok",
            "rageval.turn.kind": "rag",
            "rageval.framework": "langchain",
        }

    def test_missing_scores_by_reason(self, collector: Collector) -> None:
        """Without the numbers in a reason: each would be a time series."""
        [failed] = points(collector, "rageval.scores.failed")
        assert attributes(failed) == {"rageval.score.name": "broken", "error.type": "RuntimeError"}
        [skipped] = points(collector, "rageval.scores.skipped")
        assert attributes(skipped) == {
            "rageval.score.name": "absent",
            "rageval.reason": "the turn has only N passages",
        }

    def test_the_judge(self, collector: Collector) -> None:
        [calls] = points(collector, "rageval.judge.calls")
        assert calls.as_int == 1
        assert attributes(calls)["rageval.metric"] == "trace"
        assert attributes(calls)["rageval.judge.result"] == "answered"
        tokens = points(collector, "rageval.judge.tokens")
        by_type = {attributes(point)["gen_ai.token.type"]: point.as_int for point in tokens}
        assert set(by_type) == {"input", "output"}
        assert all(amount > 0 for amount in by_type.values())

    def test_queues(self, collector: Collector) -> None:
        """Depth and capacity of each, and what was dropped: zeros too, so that a rate can be computed."""
        names = {attributes(point)["rageval.queue"] for point in points(collector, "rageval.queue.depth")}
        assert {"export", "evaluate", "otlp-spans", "otlp-logs"} <= names
        capacities = {attributes(p)["rageval.queue"]: p.as_int for p in points(collector, "rageval.queue.capacity")}
        assert capacities["evaluate"] == 2048
        assert {point.as_int for point in points(collector, "rageval.dropped")} == {0}

    def test_what_is_counted_goes_up_only(self, collector: Collector) -> None:
        for name in ("rageval.turns", "rageval.turns.sampled_out", "rageval.dropped", "rageval.errors"):
            total = collector.metrics[name].sum
            assert total.is_monotonic
            assert total.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE

    def test_time_that_the_local_metrics_took(self, collector: Collector) -> None:
        [point] = points(collector, "rageval.inline.duration")
        assert point.count == 1
        assert 0 < point.sum < 30
