"""Results as OpenTelemetry log events ``gen_ai.evaluation.result``, in the context of the span that was evaluated."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from opentelemetry import trace
from opentelemetry._logs import Logger, LoggerProvider, LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.own_provider import LOGS, OtlpSignal, OwnProvider, own_logger_provider
from rageval_hooks.exporters.otel.result_attributes import event_attributes, scored_place
from rageval_hooks.exporters.otel.signal import SCOPE, OtelSignal
from rageval_hooks.exporters.otel.span_attributes import is_agent
from rageval_hooks.exporters.otel.spans import Spans
from rageval_hooks.exporters.span_places import PassagePlace
from rageval_hooks.runtime.tracing import global_logger_provider
from rageval_hooks.score import Evaluation, Failed, Result, Score
from rageval_hooks.settings import SpanSelection
from rageval_hooks.version import __version__

__all__ = ["LogEvents"]


class LogEvents(OtelSignal[LoggerProvider]):
    """Writes log events.

    Args:
        given: the logger provider; None for the application's global one.
        spans: knows the spans that are evaluated.
        policy: what may be shown.
        selection: which steps become spans.
        for_azure: True to add the attribute by which Azure Monitor recognises custom events.
    """

    otlp: ClassVar[OtlpSignal] = LOGS
    what: ClassVar[str] = "log events"

    def __init__(
        self,
        given: LoggerProvider | None,
        spans: Spans,
        policy: ContentPolicy,
        selection: SpanSelection,
        *,
        for_azure: bool,
    ) -> None:
        super().__init__(given)
        self._spans = spans
        self._policy = policy
        self._selection = selection
        self._for_azure = for_azure
        self._logger: Logger | None = None

    def export(self, evaluation: Evaluation) -> bool:
        """Write one event for each result."""
        if not self.connected() or self._logger is None:
            return False
        turn = evaluation.turn
        # Log events may be later than their span, so they carry the true time, unlike the evaluation's span.
        now = time.time_ns()
        turn_context = self._spans.context_of(turn)
        for result in evaluation.results:
            place = scored_place(result, turn, self._selection)
            attributes = event_attributes(result, turn, self._policy, place)
            # Logfire tells evaluations of agents from others by this.
            if is_agent(turn):
                attributes[semconv.AGENT_NAME] = turn.name
            if self._for_azure:
                attributes[semconv.AZURE_EVENT_NAME] = semconv.EVALUATION_RESULT_EVENT
            # A low score is not a warning: what is low depends on the application.
            severity = SeverityNumber.WARN if isinstance(result, Failed) else SeverityNumber.INFO
            record = LogRecord(
                event_name=semconv.EVALUATION_RESULT_EVENT,
                context=_context_at(place, turn_context),
                timestamp=now,
                severity_number=severity,
                severity_text=severity.name,
                body=_summary(result, self._policy),
                attributes=attributes,
            )
            self._logger.emit(record)
        return True

    def _global_provider(self) -> LoggerProvider | None:
        return global_logger_provider()

    def _make_own(self) -> OwnProvider[Any] | None:
        return own_logger_provider()

    def _use(self, provider: LoggerProvider) -> None:
        self._logger = provider.get_logger(SCOPE, __version__, semconv.SCHEMA_URL)


def _context_at(place: PassagePlace | None, turn_context: Context) -> Context:
    """Return the context of the span that a result is about: a passage's retriever, otherwise the turn."""
    if place is None:
        return turn_context
    turn_span = trace.get_current_span(turn_context).get_span_context()
    retriever = SpanContext(
        turn_span.trace_id, int(place.span_id, 16), False, turn_span.trace_flags, turn_span.trace_state
    )
    return trace.set_span_in_context(NonRecordingSpan(retriever), turn_context)


def _summary(result: Result, policy: ContentPolicy) -> str:
    """Return a line for viewers that show no attributes, such as ``groundedness=0.83 (pass)``."""
    if not isinstance(result, Score):
        return f"{result.name} {result.status}: {policy.reason(result)}"
    label = "" if result.label is None else f" ({result.label})"
    return f"{result.name}={result.value:g}{label}"
