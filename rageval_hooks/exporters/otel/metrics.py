"""Scores, turns, the judge's work, model calls and queues as OpenTelemetry metrics."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation
from opentelemetry.util.types import AttributeValue

from rageval_hooks.exporters.otel.providers import SCHEMA_URL, SCOPE, OtelSignal, QueuedExporter
from rageval_hooks.exporters.otel.spans import Spans
from rageval_hooks.exporters.otel.turn_attributes import is_agent, provider_name, turn_operation
from rageval_hooks.runtime.queues import PROCESS_TOTALS
from rageval_hooks.runtime.tracing import global_meter_provider
from rageval_hooks.score import VERDICT, Evaluation, Failed, Result, Score, judge_details, label_of, metric_of
from rageval_hooks.turn import Turn
from rageval_hooks.version import __version__

# Most scores are shares, and thresholds lie between 0.3 and 0.9; others count or grade.
_SCORE_BUCKETS = (0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1, 2, 3, 5, 10, 20, 50, 100, 1000)
_SECONDS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)
_TOKENS_BUCKETS = (1, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_USD_BUCKETS = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)
_INLINE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
# Those of the GenAI conventions.
_CALL_SECONDS_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TURN_SECONDS_BUCKETS: Mapping[str, Sequence[float]] = {
    "invoke_workflow": (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200),
    "invoke_agent": (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6),
}
_CALL_TOKENS_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

_OTHER = "other"
"""Replaces a value once an attribute has too many."""

_MAX_VALUES = 100
_MAX_VALUE_LENGTH = 100

# Amounts differ from turn to turn: "2,048" in "more than 2,048 passages", "0.5" in "after 0.5 seconds".
_NUMBER = re.compile(r"\d[\d.,]*\d|\d")

_OPERATIONS = {"llm": "chat", "embedding": "embeddings"}

# Instrumentors that emit the GenAI client metrics: OpenTelemetry's and OpenLLMetry's. OpenInference's emit none.
# For example "opentelemetry.instrumentation.openai_v2" and "opentelemetry.instrumentation.genai.langchain".
_MEASURING = re.compile(
    r"opentelemetry\.instrumentation\.(genai|openai|anthropic|bedrock|cohere|google|vertexai|mistralai|groq|ollama|"
    r"together|watsonx|sagemaker|litellm|langchain|llamaindex|haystack|crewai|agno)"
)


class Metrics(OtelSignal[MeterProvider, "Instruments"]):
    """Records metrics. The trace of a turn is their exemplar.

    Args:
        given: the meter provider; None for the application's global one.
        spans: knows the spans that are evaluated.
    """

    what: ClassVar[str] = "metric exports"
    variable: ClassVar[str] = "METRICS"
    otlp_exporter: ClassVar[tuple[str, str]] = ("metric_exporter", "OTLPMetricExporter")
    queue: ClassVar[str] = "otlp-metrics"

    def __init__(self, given: MeterProvider | None, spans: Spans) -> None:
        super().__init__(given)
        self._spans = spans
        # The first values of each attribute.
        self._seen: dict[str, set[str]] = {}

    def prepare(self) -> None:
        """Also report the counts of the process from now on: perhaps every turn is sampled out."""
        provider = self.provider()
        if provider is not None:
            instruments_of(provider)

    def export(self, evaluation: Evaluation) -> bool:
        """Record the results of an evaluation."""
        made = self.writer()
        if made is None:
            return False
        # The SDK makes exemplars of what is recorded in the context of a sampled span.
        context = self._spans.context_of(evaluation.turn)
        for record, amount, attributes in _measurements(made, evaluation):
            record(amount, self._bounded(attributes), context=context)
        return True

    def flush(self, timeout: float) -> bool:
        """Flush our own provider.

        A provider of the application holds nothing back: it collects when its owner wants. A flush would collect at
        another time, and OpenTelemetry's Prometheus exporter then reports every value twice at the next scrape.
        """
        return super().flush(timeout) if self._own is not None else True

    def _bounded(self, attributes: Mapping[str, str | None]) -> dict[str, AttributeValue]:
        """Return attributes with at most 100 values each, without those that are None.

        Each combination is a time series that a backend keeps. Names of scores come from metrics, and models from
        replies: an application may have any number of them. The first values stay, the others become ``other``.
        """
        bounded: dict[str, AttributeValue] = {}
        for name, value in attributes.items():
            if value is None:
                continue
            seen, shown = self._seen.setdefault(name, set()), value[:_MAX_VALUE_LENGTH]
            if len(seen) < _MAX_VALUES:
                seen.add(shown)
            bounded[name] = shown if shown in seen else _OTHER
        return bounded

    def _global_provider(self) -> MeterProvider | None:
        return global_meter_provider()

    def _make_provider(self, sent: QueuedExporter) -> Any:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        # A reader takes these two from its exporter.
        reading: Any = sent
        reading._preferred_temporality = sent.exporter._preferred_temporality
        reading._preferred_aggregation = sent.exporter._preferred_aggregation
        return MeterProvider([PeriodicExportingMetricReader(reading)], shutdown_on_exit=False)

    def _make_writer(self, provider: MeterProvider) -> Instruments:
        return instruments_of(provider)


Measurement = tuple[Callable[..., None], float, Mapping[str, str | None]]
"""The ``add`` or ``record`` of an instrument, an amount, and its attributes."""


def _measurements(made: Instruments, evaluation: Evaluation) -> Iterator[Measurement]:
    """Yield what is measured of an evaluation."""
    turn = evaluation.turn
    if evaluation.stage == "inline":
        of_turn = {
            "rageval.turn.status": turn.status,
            "rageval.turn.kind": "rag" if turn.is_rag else "other",
            "rageval.framework": turn.framework,
        }
        yield made.turns.add, 1, of_turn
        # Nothing ran if the turn was not RAG, or if all metrics need a judge: a zero would lower the percentiles.
        if evaluation.durations:
            yield made.inline_duration.record, evaluation.duration, {}
        # Another instrumentor may record these.
        if not _others_measure():
            yield from _of_operations(made, turn)
    for result in evaluation.results:
        yield from _of_result(made, result, turn)
    # Counted once per metric: all results of a metric have the details of the same judgement.
    judged = {metric_of(result): result for result in evaluation.results if judge_details(result)}
    for metric, result in judged.items():
        yield from _of_judgement(made, metric, result)


def _of_operations(made: Instruments, turn: Turn) -> Iterator[Measurement]:
    """Yield the GenAI metrics of a turn, its tools and its model calls."""
    if turn.timing is not None:
        about = {
            "gen_ai.agent.name" if is_agent(turn) else "gen_ai.workflow.name": turn.name,
            "error.type": None if turn.error is None else turn.error.type,
        }
        yield made.turn_durations[turn_operation(turn)].record, turn.timing.total, about
    for step in turn.steps:
        if _MEASURING.match(step.span_tracer or ""):
            continue
        error = {"error.type": None if step.error is None else step.error.type}
        seconds = (step.ended_at - step.started_at) / 1e9
        if step.kind == "tool":
            yield made.tool_duration.record, seconds, {"gen_ai.tool.name": step.name, **error}
        if step.kind not in _OPERATIONS:
            continue
        attributes = {
            "gen_ai.operation.name": _OPERATIONS[step.kind],
            "gen_ai.provider.name": provider_name(step.provider),
            "gen_ai.request.model": step.request_model,
            "gen_ai.response.model": step.model,
        }
        yield made.call_duration.record, seconds, {**attributes, **error}
        if step.time_to_first_token is not None:
            yield made.first_chunk.record, step.time_to_first_token, attributes
        # The conventions want no estimates.
        if step.usage is not None and not step.usage.estimated:
            yield made.call_tokens.record, step.usage.input_tokens, {**attributes, "gen_ai.token.type": "input"}
            yield made.call_tokens.record, step.usage.output_tokens, {**attributes, "gen_ai.token.type": "output"}


def _others_measure() -> bool:
    """Return True if an instrumentor of a model's client is active, which records these metrics itself."""
    instrumentor = sys.modules.get("opentelemetry.instrumentation.instrumentor")
    if instrumentor is None:
        return False
    # Each kind of instrumentor has one object. Without the private name, calls might be counted twice.
    made = (getattr(kind, "_instance", None) for kind in instrumentor.BaseInstrumentor.__subclasses__())
    return any(
        getattr(one, "is_instrumented_by_opentelemetry", False)
        for one in made
        if one is not None and _MEASURING.match(type(one).__module__)
    )


def _of_result(made: Instruments, result: Result, turn: Turn) -> Iterator[Measurement]:
    if result.name == VERDICT and not isinstance(result, Failed):
        # With a judge, a turn has two verdicts: one series for each.
        attributes = {"rageval.verdict": label_of(result), "rageval.cause": result.cause}
        yield made.verdicts.add, 1, {**attributes, "rageval.annotator": result.annotator}
    if isinstance(result, Score):
        attributes = {
            "rageval.score.name": result.name,
            "rageval.score.label": result.label,
            "rageval.score.model": result.model,
            "rageval.target.kind": result.target.kind,
            # The model that was evaluated, so that a dashboard can compare two of them.
            "gen_ai.response.model": turn.model,
        }
        yield made.scores.get(result.unit, made.scores[""]).record, result.value, attributes
    elif isinstance(result, Failed):
        yield made.failed.add, 1, {"rageval.score.name": result.name, "error.type": result.error_type}
    else:
        # A reason without its details: "the queue is full: 2048 turns wait" becomes "the queue is full".
        reason = _NUMBER.sub("N", result.reason.split(":", 1)[0].strip())
        yield made.skipped.add, 1, {"rageval.score.name": result.name, "rageval.reason": reason}


def _of_judgement(made: Instruments, metric: str, result: Result) -> Iterator[Measurement]:
    """Yield what one judgement has cost. A cached one has cost nothing."""
    details = judge_details(result)
    if details.get("cached"):
        return
    # The model's name comes from a server, so the number of its values is bounded like that of all attributes.
    attributes = {"rageval.metric": metric, "rageval.judge.model": details.get("model")}
    outcome = "failed" if isinstance(result, Failed) else "answered"
    yield made.judge_calls.add, details.get("attempts", 1), {**attributes, "rageval.judge.result": outcome}
    for token_type in ("input", "output"):
        amount = details.get(f"{token_type}_tokens")
        if amount is not None:
            yield made.judge_tokens.add, amount, {**attributes, "gen_ai.token.type": token_type}
    if details.get("cost") is not None:
        yield made.judge_cost.add, details["cost"], attributes


class Instruments:
    """The metrics of one meter provider.

    Args:
        meter: creates them.
    """

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, description: str, buckets: Iterable[float]) -> Histogram:
            boundaries = [float(bound) for bound in buckets]
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=boundaries)

        about = "Scores of evaluations"
        # By the scores' unit. Seconds, tokens and dollars need other buckets than shares, counts and grades.
        self.scores = {
            "": histogram("rageval.score", "1", about, _SCORE_BUCKETS),
            "s": histogram("rageval.score.duration", "s", about, _SECONDS_BUCKETS),
            "tokens": histogram("rageval.score.tokens", "{token}", about, _TOKENS_BUCKETS),
            "USD": histogram("rageval.score.cost", "USD", about, _USD_BUCKETS),
        }
        about = "Time that the local metrics of a turn took inline"
        self.inline_duration = histogram("rageval.inline.duration", "s", about, _INLINE_BUCKETS)
        about = "GenAI operation duration"
        self.call_duration = histogram("gen_ai.client.operation.duration", "s", about, _CALL_SECONDS_BUCKETS)
        about = "Time to the first chunk of a streamed answer"
        name = "gen_ai.client.operation.time_to_first_chunk"
        self.first_chunk = histogram(name, "s", about, _CALL_SECONDS_BUCKETS)
        about = "Duration of a tool execution"
        self.tool_duration = histogram("gen_ai.execute_tool.duration", "s", about, _CALL_SECONDS_BUCKETS)
        # By the operation.
        self.turn_durations = {
            operation: histogram(f"gen_ai.{operation}.duration", "s", "Duration of a turn", buckets)
            for operation, buckets in _TURN_SECONDS_BUCKETS.items()
        }
        about = "Number of input and output tokens used"
        self.call_tokens = histogram("gen_ai.client.token.usage", "{token}", about, _CALL_TOKENS_BUCKETS)
        self.verdicts = meter.create_counter("rageval.verdicts", "{turn}", "Turns by verdict")
        self.turns = meter.create_counter("rageval.turns", "{turn}", "Captured turns")
        self.skipped = meter.create_counter("rageval.scores.skipped", "{score}", "Scores that could not be computed")
        self.failed = meter.create_counter("rageval.scores.failed", "{score}", "Scores whose metric failed")
        self.judge_calls = meter.create_counter("rageval.judge.calls", "{call}", "Requests to the judge")
        self.judge_tokens = meter.create_counter("rageval.judge.tokens", "{token}", "Tokens of the judge")
        self.judge_cost = meter.create_counter("rageval.judge.cost", "USD", "Cost of the judge")
        # These are read when the provider collects: they cost the application's calls nothing.
        counter, gauge = meter.create_observable_counter, meter.create_observable_gauge
        counter("rageval.turns.sampled_out", [_sampled_out], "{turn}", "Turns not captured")
        counter("rageval.errors", [_errors], "{error}", "Errors of rageval-hooks itself")
        counter("rageval.guard.decisions", [_guard_decisions], "{decision}", "Decisions of guards")
        counter("rageval.dropped", [_dropped], "{item}", "Work that a full queue refused")
        gauge("rageval.queue.depth", [_depths], "{item}", "Items that wait in a queue")
        gauge("rageval.queue.capacity", [_capacities], "{item}", "Items that may wait")


def _sampled_out(_: CallbackOptions) -> Iterable[Observation]:
    yield Observation(PROCESS_TOTALS["sampled_out"], {"rageval.reason": "sample_rate"})
    yield Observation(PROCESS_TOTALS["unsampled_traces"], {"rageval.reason": "unsampled_trace"})


def _errors(_: CallbackOptions) -> Iterable[Observation]:
    for kind in ("export", "callback", "internal"):
        yield Observation(PROCESS_TOTALS[f"{kind}_errors"], {"error.type": kind})


def _guard_decisions(_: CallbackOptions) -> Iterable[Observation]:
    for (action, verdict, cause), amount in PROCESS_TOTALS.guard_decisions().items():
        attributes = {"rageval.guard.action": action, "rageval.guard.verdict": verdict}
        yield Observation(amount, attributes if cause is None else {**attributes, "rageval.guard.cause": cause})


def _dropped(_: CallbackOptions) -> Iterable[Observation]:
    return [Observation(amount, {"rageval.queue": queue}) for queue, amount in PROCESS_TOTALS.dropped().items()]


def _depths(_: CallbackOptions) -> Iterable[Observation]:
    return [Observation(pending, {"rageval.queue": queue}) for queue, (pending, _) in PROCESS_TOTALS.queues().items()]


def _capacities(_: CallbackOptions) -> Iterable[Observation]:
    return [Observation(capacity, {"rageval.queue": queue}) for queue, (_, capacity) in PROCESS_TOTALS.queues().items()]


_made: list[tuple[weakref.ref[Any], Instruments]] = []


def instruments_of(provider: MeterProvider) -> Instruments:
    """Return the instruments of a provider, always the same.

    A provider calls every callback that was ever registered with it: a second set of instruments would report the
    counts of the process twice.
    """
    # A list and not a weak dictionary: Logfire's providers are not hashable. An application has one or two.
    _made[:] = [(made_for, made) for made_for, made in _made if made_for() is not None]
    for made_for, made in _made:
        if made_for() is provider:
            return made
    made = Instruments(provider.get_meter(SCOPE, __version__, SCHEMA_URL))
    _made.append((weakref.ref(provider), made))
    return made
