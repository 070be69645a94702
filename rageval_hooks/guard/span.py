"""The span of a guard's decision: what the guard saw, the scores, and what it did."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, StatusCode, TracerProvider

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.attributes import Attributes, json_string
from rageval_hooks.exporters.otel.result_attributes import score_attributes
from rageval_hooks.exporters.otel.spans import Spans, span_context
from rageval_hooks.guard.options import GuardDecision, GuardOptions
from rageval_hooks.integrations.capture.runs import Recording
from rageval_hooks.integrations.capture.trace_context import span_reference
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.score import Result
from rageval_hooks.turn import Turn

__all__ = ["GuardSpans", "SpanPlace"]

_limited_log = RateLimitedLogger(logging.getLogger(__name__))

_NAME: Final = "apply_guardrail GroundingGuard"
# Drafts of the GenAI conventions: the operation has been renamed once already, so only this name is taken from them.
_OPERATION: Final = "apply_guardrail"


class SpanPlace:
    """Where and when a check began. Made on the caller's thread, in the caller's context.

    Args:
        recording: the turn that is being captured; None without one.
    """

    def __init__(self, recording: Recording | None) -> None:
        self.recording = recording
        self.started_at = time.time_ns()
        self._current = otel_context.get_current()

    def parent(self) -> Context:
        """Return the context of the application's current span; without one, that of the captured turn's span."""
        if trace.get_current_span(self._current).get_span_context().is_valid:
            return self._current
        # The span of a sampled-out turn is never written.
        if self.recording is None or not self.recording.selection.selected:
            return self._current
        found = span_context(span_reference(self.recording))
        if found is None:
            return self._current
        return trace.set_span_in_context(NonRecordingSpan(found), self._current)


class GuardSpans:
    """Writes the spans of one guard.

    Args:
        options: the guard's options.
        thresholds: the thresholds by score.
        provider: the tracer provider; None for that of the captured turn, else the application's global one.
        capture_content: see :class:`rageval_hooks.settings.Settings`. None for the setting of the captured turn, else
            that of the environment.
        environment_content: the environment's setting.
        privacy_of: returns what may leave of a captured turn.
    """

    def __init__(
        self,
        options: GuardOptions,
        thresholds: Mapping[str, float | None],
        provider: TracerProvider | None,
        capture_content: bool | None,
        environment_content: bool | None,
        privacy_of: Callable[[Recording | None], PrivacyPolicy],
    ) -> None:
        self._options = options
        self._thresholds = thresholds
        self._given = provider
        self._capture_content = capture_content
        self._environment_content = environment_content
        self._privacy_of = privacy_of
        self._spans: dict[int, Spans] = {}

    def write(self, decision: GuardDecision, turn: Turn | None, place: SpanPlace) -> None:
        """Write the span of a decision. Never raises.

        Args:
            decision: the decision.
            turn: what was checked; None if only the answer is known.
            place: where and when the check began.
        """
        try:
            tracer = self._writer_of(place.recording).tracer()
            if tracer is None:
                return
            attributes = self._attributes(decision, turn or Turn(), place.recording)
            span = tracer.start_span(_NAME, context=place.parent(), start_time=place.started_at, attributes=attributes)
            # A check without a result is a fault of the guard; a blocked answer is not.
            if decision.verdict == "unchecked":
                span.set_status(StatusCode.ERROR, decision.reason)
            span.end()
        except Exception as error:
            _limited_log.warn("guard span", "the span of a guard could not be written [RAGEVAL-704]", error=error)

    def _writer_of(self, recording: Recording | None) -> Spans:
        provider = self._given
        if provider is None and recording is not None:
            provider = recording.owner.tracer_provider
        spans = self._spans.get(id(provider))
        if spans is None:
            spans = self._spans[id(provider)] = Spans(provider, ContentPolicy(), "scores")
            # The spans of the last checks wait in a queue when the process ends.
            EXIT_DRAIN.add(spans.flush, "export")
            EXIT_DRAIN.register()
        return spans

    def _attributes(self, decision: GuardDecision, turn: Turn, recording: Recording | None) -> Attributes:
        content = self._capture_content
        if content is None:
            # A guard outside of an instrumented chain has only the environment's setting.
            content = self._environment_content if recording is None else recording.owner.settings.capture_content
        policy = ContentPolicy.build(content)
        privacy = self._privacy_of(recording)
        results: Iterable[Result] = decision.results
        if privacy.with_redacted_texts(turn) is not turn:
            results = privacy.results(results)
        turn = privacy.turn(turn)

        attributes = Attributes()
        attributes[semconv.SPAN_KIND] = "GUARDRAIL"
        attributes[semconv.OPERATION_NAME] = _OPERATION
        attributes[semconv.GUARD_VERDICT] = decision.verdict
        attributes[semconv.GUARD_ACTION] = decision.action
        if decision.reason:
            attributes[semconv.GUARD_REASON] = decision.reason
        for result in results:
            attributes.update(score_attributes(result, policy))
        for name, threshold in self._thresholds.items():
            attributes.put(semconv.GUARD_THRESHOLD.format(name=name), threshold)
        attributes[semconv.GUARD_ON_FAIL] = self._options.on_fail
        attributes[semconv.GUARD_ON_ERROR] = self._options.on_error
        attributes[semconv.GUARD_TIMEOUT] = float(self._options.timeout_ms)
        attributes[semconv.GUARD_ATTEMPT] = decision.attempt
        # What the guard saw, and what it handed on.
        passages = [
            {"id": passage.id, "text": policy.quote(passage.text, policy.documents)} for passage in turn.prompt_passages
        ]
        seen = {
            "question": policy.quote(turn.query, policy.inputs),
            "answer": policy.quote(privacy.text(decision.checked), policy.outputs),
            "passages": passages,
        }
        attributes[semconv.INPUT_VALUE] = json_string(seen)
        attributes[semconv.INPUT_MIME_TYPE] = semconv.JSON
        attributes[semconv.OUTPUT_VALUE] = policy.quote(privacy.text(decision.answer), policy.outputs)
        attributes[semconv.OUTPUT_MIME_TYPE] = semconv.TEXT
        attributes[semconv.PASSAGES] = len(turn.passages)
        return attributes
