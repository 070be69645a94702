"""Results as OpenTelemetry log events ``gen_ai.evaluation.result``, in the context of the span that was evaluated."""

from __future__ import annotations

import time
from typing import ClassVar

from opentelemetry import trace
from opentelemetry._logs import Logger, LoggerProvider, LogRecord, SeverityNumber
from opentelemetry.trace import NonRecordingSpan, SpanContext

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.attributes import Attributes, json_string
from rageval_hooks.exporters.otel.own_provider import LOGS, OtlpSignal
from rageval_hooks.exporters.otel.result_attributes import evaluated_response_id, label_of, result_line
from rageval_hooks.exporters.otel.signal import SCOPE, OtelSignal
from rageval_hooks.exporters.otel.span_attributes import is_agent
from rageval_hooks.exporters.otel.spans import Spans
from rageval_hooks.exporters.span_places import PassagePlace, passage_place
from rageval_hooks.score import VERDICT, Evaluation, Failed, Result, Score, is_about_turn, metric_of
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import Turn
from rageval_hooks.version import __version__


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
        turn_span = trace.get_current_span(turn_context).get_span_context()
        for result in evaluation.results:
            place = None
            if isinstance(result, Score) and result.target.kind == "passage":
                place = passage_place(turn, result.target.index, self._selection)
            context = turn_context
            if place is not None:  # a passage's score belongs to its retriever
                retriever = SpanContext(
                    turn_span.trace_id, int(place.span_id, 16), False, turn_span.trace_flags, turn_span.trace_state
                )
                context = trace.set_span_in_context(NonRecordingSpan(retriever), turn_context)
            severity = SeverityNumber.WARN if _is_alarming(result) else SeverityNumber.INFO
            record = LogRecord(
                event_name=semconv.EVALUATION_RESULT_EVENT,
                context=context,
                timestamp=now,
                severity_number=severity,
                severity_text=severity.name,
                body=self._summary(result),
                attributes=self._attributes(result, turn, place),
            )
            self._logger.emit(record)
        return True

    def _attributes(self, result: Result, turn: Turn, place: PassagePlace | None) -> Attributes:
        policy = self._policy
        attributes = Attributes()
        attributes[semconv.EVALUATION_NAME] = result.name
        attributes.put(semconv.EVALUATION_SCORE_LABEL, label_of(result))
        if isinstance(result, Score):
            attributes[semconv.EVALUATION_SCORE_VALUE] = result.value
            attributes.put(semconv.EVALUATION_EXPLANATION, policy.quote(result.explanation, policy.everything))
            attributes[semconv.EVALUATOR_VERSION] = result.version
            # With sampling, a mean over all traffic weights each score by the inverse of this.
            attributes[semconv.PROBABILITY] = result.probability
        else:
            attributes[semconv.EVALUATION_EXPLANATION] = policy.reason(result)
        if isinstance(result, Failed):
            attributes[semconv.ERROR_TYPE] = result.error_type
        attributes.put(semconv.RESPONSE_ID, evaluated_response_id(turn))
        attributes[semconv.EVALUATION_TARGET] = turn.name
        attributes[semconv.TURN_ID] = turn.id
        # In the form of pydantic_evals: {"name": "trace", "arguments": null}.
        model = result.model if isinstance(result, Score) else None
        arguments = None if model is None else {"model": model}
        attributes[semconv.EVALUATOR_SOURCE] = json_string({"name": metric_of(result), "arguments": arguments})
        if isinstance(result, Score) and not is_about_turn(result):
            attributes[semconv.TARGET.format(name="kind")] = result.target.kind
            attributes.put(semconv.TARGET.format(name="index"), result.target.index)
            attributes.put(semconv.TARGET.format(name="id"), result.target.id)
        if place is not None:
            attributes[semconv.TARGET.format(name="span_id")] = place.span_id
            attributes[semconv.TARGET.format(name="document_position")] = place.position
        # Logfire tells evaluations of agents from others by this.
        if is_agent(turn):
            attributes[semconv.AGENT_NAME] = turn.name
        if self._for_azure:
            attributes[semconv.AZURE_EVENT_NAME] = semconv.EVALUATION_RESULT_EVENT
        return attributes

    def _summary(self, result: Result) -> str:
        """Return a line for viewers that show no attributes, such as ``groundedness=0.83 (pass)``."""
        line = result_line(result)
        return line if isinstance(result, Score) else f"{line}: {self._policy.reason(result)}"

    def _use(self, provider: LoggerProvider) -> None:
        self._logger = provider.get_logger(SCOPE, __version__, semconv.SCHEMA_URL)


def _is_alarming(result: Result) -> bool:
    """Return True for a verdict that a person should see, and for a metric that failed.

    Another low score is not a warning: what is low depends on the application.
    """
    return isinstance(result, Failed) or (result.name == VERDICT and result.label == "bad")
