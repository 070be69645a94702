"""The span of a guard's decision: what the guard saw, the scores, and what it did."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, StatusCode, TracerProvider

from rageval_hooks.exporters.content import ContentPolicy, hide
from rageval_hooks.exporters.otel.attributes import Attributes, json_string, score_attributes, written
from rageval_hooks.exporters.otel.spans import Spans, span_context
from rageval_hooks.guard.options import GuardDecision, GuardOptions
from rageval_hooks.integrations.capture.recorder import Recording
from rageval_hooks.integrations.capture.trace_context import span_reference
from rageval_hooks.privacy import PrivacyPolicy, Redact
from rageval_hooks.runtime.at_exit import EXIT_DRAIN
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.score import Evaluation, Result
from rageval_hooks.settings import Settings
from rageval_hooks.turn import Turn

_limited_log = RateLimitedLogger(logging.getLogger(__name__))

# Of an open draft of the GenAI conventions, which may change:
# https://github.com/open-telemetry/semantic-conventions-genai/pull/427
_OPERATION: Final = "run_guardrail"
_NAME: Final = "GroundingGuard"
_OUTCOMES: Final = {"supported": "allow", "refusal": "allow", "no_claims": "allow", "unsupported": "deny"}
_ACTIONS: Final = {
    "passed": "allow",
    "flagged": "warn",
    "replaced": "block",
    "raised": "block",
    "regenerated": "modify",
}


class GuardSpans:
    """Writes the spans of decisions, and knows what may leave the process.

    What the guard is not given comes from the turn that is being captured, and outside of one from the environment.

    Args:
        options: the options of the guard.
        thresholds: the thresholds of its scores.
        settings: the settings of the environment.
        provider: where the spans go; None for the captured turn's provider, else the global one.
        capture_content: False keeps texts off the spans.
        redact: what is removed from texts.
    """

    def __init__(
        self,
        options: GuardOptions,
        thresholds: Mapping[str, float | None],
        settings: Settings,
        provider: TracerProvider | None,
        capture_content: bool | None,
        redact: Redact | bool | None,
    ) -> None:
        self._options = options
        self._thresholds = thresholds
        self._provider = provider
        self._capture_content = capture_content
        self._settings = settings
        self._privacy = None if redact is None else PrivacyPolicy.of(settings, redact)
        self._privacy_outside = PrivacyPolicy.of(settings)
        self._spans: dict[TracerProvider | None, Spans] = {}

    def privacy_of(self, recording: Recording | None) -> PrivacyPolicy:
        """Return what may leave the process of a captured turn; None for an answer outside of one."""
        return self._privacy or (self._privacy_outside if recording is None else recording.owner.privacy)

    def write(
        self, decision: GuardDecision, turn: Turn, recording: Recording | None, context: Context, started_at: int
    ) -> None:
        """Write the span of a decision. Never raises.

        Args:
            decision: the decision.
            turn: what was checked; an empty one if only the answer is known.
            recording: the turn that is being captured; None without one.
            context: that of the caller when the check began.
            started_at: when that was, in nanoseconds since the epoch.
        """
        try:
            provider = self._provider
            if provider is None and recording is not None:
                provider = recording.owner.tracer_provider
            if provider not in self._spans:
                spans = self._spans[provider] = Spans(provider)
                # The spans of the last checks wait in a queue when the process ends.
                EXIT_DRAIN.add(spans.flush, "export")
                EXIT_DRAIN.register()
            tracer = self._spans[provider].tracer()
            if tracer is None:
                return
            attributes = written(self._attributes(decision, turn, recording))
            parent = _parent(context, recording)
            name = f"{_OPERATION} {_NAME}"
            span = tracer.start_span(name, context=parent, start_time=started_at, attributes=attributes)
            # A check without a result is a fault of the guard; a blocked answer is not.
            if decision.verdict == "unchecked":
                span.set_status(StatusCode.ERROR, decision.reason)
            span.end()
        except Exception as error:
            _limited_log.warn("guard span", "the span of a guard could not be written [RAGEVAL-704]", error=error)

    def _attributes(self, decision: GuardDecision, turn: Turn, recording: Recording | None) -> Attributes:
        outside = ContentPolicy.of_settings(self._settings.capture_content)
        own = ContentPolicy.of_exporter(self._capture_content)
        policy = (outside if recording is None else recording.owner.content) & own
        privacy = self.privacy_of(recording)
        results: Iterable[Result] = decision.results
        if privacy.with_redacted_texts(turn) is not turn:
            results = privacy.results(results)
        shown = hide(Evaluation(turn=privacy.turn(turn), results=tuple(results)), policy)
        turn = shown.turn

        # What the guard saw, and what it handed on.
        seen = {
            "question": turn.query,
            "answer": policy.quote(privacy.text(decision.checked), policy.outputs),
            "passages": [{"id": passage.id, "text": passage.text} for passage in turn.prompt_passages],
        }
        attributes: Attributes = {
            "openinference.span.kind": "GUARDRAIL",
            "gen_ai.operation.name": _OPERATION,
            "gen_ai.security.guardrail.name": _NAME,
            "gen_ai.security.verdict.type": _OUTCOMES.get(decision.verdict),
            "gen_ai.security.verdict.reason": decision.reason or None,
            "gen_ai.security.action.type": _ACTIONS[decision.action],
            "rageval.guard.verdict": decision.verdict,
            "rageval.guard.cause": decision.cause,
            "rageval.guard.action": decision.action,
            "rageval.guard.reason": decision.reason or None,
        }
        for result in shown.results:
            attributes |= score_attributes(result)
        attributes |= {f"rageval.guard.threshold.{name}": bound for name, bound in self._thresholds.items()}
        attributes |= {
            "rageval.guard.on_fail": self._options.on_fail,
            "rageval.guard.on_error": self._options.on_error,
            "rageval.guard.timeout_ms": self._options.timeout_ms,
            "rageval.guard.attempt": decision.attempt,
            "input.value": json_string(seen),
            "input.mime_type": "application/json",
            "output.value": policy.quote(privacy.text(decision.answer), policy.outputs),
            "output.mime_type": "text/plain",
            "rageval.passages.count": len(turn.passages),
        }
        return attributes


def _parent(context: Context, recording: Recording | None) -> Context:
    """Return the context of the application's current span; without one, that of the captured turn's span."""
    is_current = trace.get_current_span(context).get_span_context().is_valid
    # The span of a sampled-out turn is never written.
    if is_current or recording is None or not recording.selection.selected:
        return context
    found = span_context(span_reference(recording))
    return context if found is None else trace.set_span_in_context(NonRecordingSpan(found), context)
