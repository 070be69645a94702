"""Scores, turns and the judge's work as OpenTelemetry metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider, get_meter_provider
from opentelemetry.metrics._internal import _ProxyMeterProvider
from opentelemetry.util.types import AttributeValue

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.otel.cardinality import BoundedAttributes, reason_class
from rageval_hooks.exporters.otel.instruments import Instruments, instruments_of
from rageval_hooks.exporters.otel.own_providers import METRICS, OtlpSignal
from rageval_hooks.exporters.otel.signal import ProviderFactory, Signal
from rageval_hooks.exporters.otel.spans import Spans
from rageval_hooks.score import Evaluation, Failed, Result, Score, judge_details, metric_of
from rageval_hooks.turn import Turn

__all__ = ["ScoreMetrics"]


class ScoreMetrics(Signal[MeterProvider]):
    """Records metrics. The trace of a turn is their exemplar.

    Args:
        given: the meter provider; None for the application's global one.
        spans: knows the spans that are evaluated.
    """

    otlp: ClassVar[OtlpSignal] = METRICS
    what: ClassVar[str] = "metric exports"

    def __init__(self, given: MeterProvider | None, spans: Spans) -> None:
        super().__init__(given)
        self._spans = spans
        self._bounded = BoundedAttributes()
        self._instruments: Instruments | None = None

    def prepare(self) -> None:
        """Also report the counts of the process from now on: perhaps every turn is sampled out."""
        super().prepare()
        provider = self._find_provider()
        if provider is not None:
            instruments_of(provider)

    def export(self, evaluation: Evaluation) -> bool:
        """Record the results of an evaluation."""
        if not self.connected() or self._instruments is None:
            return False
        # The SDK makes exemplars of what is recorded in the context of a sampled span.
        context = self._spans.context_of(evaluation.turn)
        if evaluation.stage == "inline":
            self._record_turn(self._instruments, evaluation, context)
        for result in evaluation.results:
            self._record_result(self._instruments, result, evaluation.turn, context)
        for metric, result in _judged(evaluation).items():
            self._record_judge(self._instruments, metric, result, context)
        return True

    def flush(self, timeout: float) -> bool:
        """Flush our own provider.

        A provider of the application holds nothing back: it collects when its owner wants. A flush would collect at
        another time, and OpenTelemetry's Prometheus exporter then reports every value twice at the next scrape.
        """
        return super().flush(timeout) if self._own is not None else True

    def _record_turn(self, instruments: Instruments, evaluation: Evaluation, context: Context) -> None:
        turn = evaluation.turn
        attributes = {
            semconv.TURN_STATUS: turn.status,
            semconv.TURN_KIND: "rag" if turn.is_rag else "other",
            semconv.FRAMEWORK: turn.framework,
        }
        instruments.turns.add(1, self._bounded.of(attributes), context=context)
        # Without local metrics there is no duration, and 0 would lower the average.
        # Nothing ran if the turn was not RAG, or if all metrics need a judge: a zero would lower the percentiles.
        if evaluation.durations:
            instruments.inline_duration.record(evaluation.duration, context=context)

    def _record_result(self, instruments: Instruments, result: Result, turn: Turn, context: Context) -> None:
        if isinstance(result, Score):
            histogram = instruments.score(result.unit)
            histogram.record(result.value, self._score_attributes(result, turn), context=context)
        elif isinstance(result, Failed):
            named = {semconv.SCORE_NAME: result.name, semconv.ERROR_TYPE: result.error_type}
            instruments.failed.add(1, self._bounded.of(named), context=context)
        else:
            named = {semconv.SCORE_NAME: result.name, semconv.REASON: reason_class(result.reason)}
            instruments.skipped.add(1, self._bounded.of(named), context=context)

    def _score_attributes(self, score: Score, turn: Turn) -> Mapping[str, AttributeValue]:
        return self._bounded.of(
            {
                semconv.SCORE_NAME: score.name,
                semconv.SCORE_LABEL: score.label,
                semconv.SCORE_MODEL: score.model,
                semconv.TARGET_KIND: score.target.kind,
                # The model that was evaluated, so that a dashboard can compare two of them.
                semconv.RESPONSE_MODEL: turn.model,
            }
        )

    def _record_judge(self, instruments: Instruments, metric: str, result: Result, context: Context) -> None:
        """Record what one judgement has cost. A cached one has cost nothing."""
        details = judge_details(result)
        if details.get("cached"):
            return
        # The model's name comes from a server, so the number of its values is bounded like that of all attributes.
        attributes = {semconv.METRIC: metric, semconv.JUDGE_MODEL: details.get("model")}
        outcome = "failed" if isinstance(result, Failed) else "answered"
        called = self._bounded.of({**attributes, semconv.JUDGE_RESULT: outcome})
        instruments.judge_calls.add(details.get("attempts", 1), called, context=context)
        for token_type in ("input", "output"):
            amount = details.get(f"{token_type}_tokens")
            if amount is not None:
                counted = self._bounded.of({**attributes, semconv.TOKEN_TYPE: token_type})
                instruments.judge_tokens.add(amount, counted, context=context)
        if details.get("cost") is not None:
            instruments.judge_cost.add(details["cost"], self._bounded.of(attributes), context=context)

    def _global_provider(self) -> MeterProvider | None:
        provider = get_meter_provider()
        return None if isinstance(provider, (_ProxyMeterProvider, NoOpMeterProvider)) else provider

    @property
    def _make_own(self) -> ProviderFactory:
        from rageval_hooks.exporters.otel.own_providers.metrics import own_meter_provider

        return own_meter_provider

    def _use(self, provider: MeterProvider) -> None:
        self._instruments = instruments_of(provider)


def _judged(evaluation: Evaluation) -> Mapping[str, Result]:
    """Return, by metric, a result with the details of its judgement. All results of a metric have the same details."""
    # Counted once per metric: each of its scores carries the same details.
    found: dict[str, Result] = {}
    for result in evaluation.results:
        if judge_details(result):
            found.setdefault(metric_of(result), result)
    return found
