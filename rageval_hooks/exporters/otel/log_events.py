"""Results as OpenTelemetry log events ``gen_ai.evaluation.result``, in the context of the span that was evaluated."""

from __future__ import annotations

import time
from typing import Any, ClassVar, cast

from opentelemetry import trace
from opentelemetry._logs import Logger, LoggerProvider, LogRecord, SeverityNumber
from opentelemetry.trace import NonRecordingSpan

from rageval_hooks.exporters.content import PassagePlace, passage_place
from rageval_hooks.exporters.otel.attributes import Attributes, json_string, result_line, written
from rageval_hooks.exporters.otel.providers import SCHEMA_URL, SCOPE, OtelSignal, QueuedExporter
from rageval_hooks.exporters.otel.spans import Spans, sibling
from rageval_hooks.exporters.otel.turn_attributes import is_agent
from rageval_hooks.runtime.tracing import global_logger_provider
from rageval_hooks.score import VERDICT, Evaluation, Failed, Result, Score, is_about_turn, label_of, metric_of
from rageval_hooks.turn import Turn
from rageval_hooks.version import __version__

_EVENT = "gen_ai.evaluation.result"


class LogEvents(OtelSignal[LoggerProvider, Logger]):
    """Writes log events.

    Args:
        given: the logger provider; None for the application's global one.
        spans: knows the spans that are evaluated.

    Attributes:
        for_azure: True to add the attribute by which Azure Monitor recognises custom events.
    """

    what: ClassVar[str] = "log events"
    variable: ClassVar[str] = "LOGS"
    otlp_exporter: ClassVar[tuple[str, str]] = ("_log_exporter", "OTLPLogExporter")
    queue: ClassVar[str] = "otlp-logs"
    capacity: ClassVar[str] = "OTEL_BLRP_MAX_QUEUE_SIZE"

    def __init__(self, given: LoggerProvider | None, spans: Spans) -> None:
        super().__init__(given)
        self._spans = spans
        self.for_azure = False

    def export(self, evaluation: Evaluation) -> bool:
        """Write one event for each result."""
        logger = self.writer()
        if logger is None:
            return False
        turn = evaluation.turn
        # Log events may be later than their span, so they carry the true time, unlike the evaluation's span.
        now = time.time_ns()
        turn_context = self._spans.context_of(turn)
        turn_span = trace.get_current_span(turn_context).get_span_context()
        for result in evaluation.results:
            place, context = passage_place(turn, result.target, self._spans.selection), turn_context
            if place is not None:  # a passage's score belongs to its retriever
                retriever = NonRecordingSpan(sibling(turn_span, place.span_id))
                context = trace.set_span_in_context(retriever, turn_context)
            # A verdict that a person should see, or a metric that failed. Another low score is not a warning: what is
            # low depends on the application.
            is_alarming = isinstance(result, Failed) or (result.name == VERDICT and result.label == "bad")
            severity = SeverityNumber.WARN if is_alarming else SeverityNumber.INFO
            # The body is for viewers that show no attributes, such as "groundedness=0.83 (pass)".
            reason = "" if isinstance(result, Score) else f": {result.reason}"
            record = LogRecord(
                event_name=_EVENT,
                context=context,
                timestamp=now,
                severity_number=severity,
                severity_text=severity.name,
                body=result_line(result) + reason,
                attributes=written(self._attributes(result, turn, place)),
            )
            logger.emit(record)
        return True

    def _attributes(self, result: Result, turn: Turn, place: PassagePlace | None) -> Attributes:
        # In the form of pydantic_evals: {"name": "trace", "arguments": null}. Logfire groups by it.
        arguments = None if result.model is None else {"model": result.model}
        attributes: Attributes = {
            "gen_ai.evaluation.name": result.name,
            "gen_ai.evaluation.score.label": label_of(result),
            "gen_ai.evaluation.score.value": result.value,
            "gen_ai.evaluation.explanation": result.explanation,
            "rageval.cause": result.cause,
            "gen_ai.evaluation.evaluator.version": result.version,
            # With sampling, a mean over all traffic weights each score by the inverse of this.
            "rageval.sampling.probability": result.probability,
            "rageval.annotator": "HUMAN" if result.annotator == "HUMAN" else None,
            "error.type": result.error_type if isinstance(result, Failed) else None,
            "gen_ai.response.id": turn.answer_id,
            "gen_ai.evaluation.target": turn.name,
            "rageval.turn.id": turn.id,
            "gen_ai.evaluation.evaluator.source": json_string({"name": metric_of(result), "arguments": arguments}),
            # Logfire tells evaluations of agents from others by this.
            "gen_ai.agent.name": turn.name if is_agent(turn) else None,
            "microsoft.custom_event.name": _EVENT if self.for_azure else None,
        }
        if not is_about_turn(result):
            attributes |= {f"rageval.target.{name}": value for name, value in result.target}
        if place is not None:
            attributes["rageval.target.span_id"] = place.span_id
            attributes["rageval.target.document_position"] = place.position
        return attributes

    def _global_provider(self) -> LoggerProvider | None:
        return global_logger_provider()

    def _make_provider(self, sent: QueuedExporter) -> Any:
        # Imported here, as for metrics: each is a part of the SDK that few applications use.
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

        provider = LoggerProvider(shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(cast("Any", sent)))
        return provider

    def _make_writer(self, provider: LoggerProvider) -> Logger:
        return provider.get_logger(SCOPE, __version__, SCHEMA_URL)
