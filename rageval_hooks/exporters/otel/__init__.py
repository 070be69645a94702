"""The exporter ``otel``: turns and scores as OpenTelemetry spans, log events and metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from opentelemetry._logs import LoggerProvider
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.console import ConsoleExporter
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.log_events import LogEvents
from rageval_hooks.exporters.otel.metrics import Metrics
from rageval_hooks.exporters.otel.providers import OtelSignal
from rageval_hooks.exporters.otel.spans import Spans, add_scores
from rageval_hooks.plugins import Option
from rageval_hooks.runtime.time_limit import remaining
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import YES_OR_NO, Flag, Settings, SpanSelection

__all__ = ["OtelExporter"]

_logger = logging.getLogger(__name__)


class OtelExporter(Exporter):
    """Writes OpenTelemetry spans, log events and metrics.

    Each signal goes to the application's global provider, which may be set later, or else through a provider of our own
    to the OTLP endpoint that the standard variables name. Without either, log events and metrics are not written, and
    the console gets a summary instead of spans. A global provider is never set.

    Args:
        tracer_provider: where the spans go; None for the global provider.
        logger_provider: the same for log events.
        meter_provider: the same for metrics.
        capture_content: False to get no texts; see :class:`rageval_hooks.settings.Settings`.
        spans: which steps become spans; None for the setting of this name, as for those below.
        log_events: False to write no log events.
        azure_events: True to mark log events for Azure Monitor.
        score_metrics: False to record no metrics.
    """

    name: ClassVar[str] = "otel"
    traces: ClassVar[bool] = True
    buffers: ClassVar[bool] = True
    options: ClassVar = {
        "log_events": Option(
            keyword="log_events",
            type=Flag,
            default=True,
            about="True to write each result as an OpenTelemetry log event `gen_ai.evaluation.result` too, if the "
            "application has a LoggerProvider or `OTEL_EXPORTER_OTLP_LOGS_ENDPOINT` is set.",
            valid=YES_OR_NO,
        ),
        "azure_events": Option(
            keyword="azure_events",
            type=Flag,
            default=False,
            about="True to mark these log events for Azure Monitor, which shows them as custom events.",
            valid=YES_OR_NO,
        ),
        "score_metrics": Option(
            keyword="score_metrics",
            type=Flag,
            default=True,
            about="True to record OpenTelemetry metrics of scores, turns, the judge and queues, if the application has "
            "a MeterProvider or `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` is set.",
            valid=YES_OR_NO,
        ),
    }

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        logger_provider: LoggerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        capture_content: bool | None = None,
        spans: SpanSelection | None = None,
        log_events: bool | None = None,
        azure_events: bool | None = None,
        score_metrics: bool | None = None,
    ) -> None:
        self.content = ContentPolicy.of_exporter(capture_content)
        self.spans = spans
        self.log_events = log_events
        self.azure_events = azure_events
        self.score_metrics = score_metrics
        self._given_provider = _checked(tracer_provider)
        self._spans = Spans(tracer_provider)
        self._log_events = LogEvents(logger_provider, self._spans)
        self._metrics = Metrics(meter_provider, self._spans)
        self._console: ConsoleExporter | None = None
        self._apply(self.spans or "auto")

    def bind(self, settings: Settings, tracer_provider: TracerProvider | None) -> None:
        """Take the options that were not given from the settings, and the provider from the pipeline."""
        super().bind(settings, tracer_provider)
        self._spans.use(self._given_provider or _checked(tracer_provider))
        self._apply(self.spans or settings.spans)
        for signal in self._signals:
            signal.prepare()

    @property
    def provider(self) -> TracerProvider | None:
        """Where the spans go: the provider of the application, or else one of our own; None without either."""
        provider: TracerProvider | None = self._spans.provider()
        return provider

    def _apply(self, spans: SpanSelection) -> None:
        self._spans.selection = spans
        self._log_events.for_azure = bool(self.azure_events)
        # Log events and exemplars refer to spans, which are therefore written first.
        self._signals: list[OtelSignal[Any, Any]] = [self._spans]
        if self.log_events is not False:
            self._signals.append(self._log_events)
        if self.score_metrics is not False:
            self._signals.append(self._metrics)

    def export(self, evaluation: Evaluation) -> None:
        """Write an evaluation as every signal that has a destination."""
        written = [signal.export(evaluation) for signal in self._signals]
        # Without a place for spans, a first user sees the scores on the terminal.
        if not written[0]:
            if self._console is None:
                self._console = ConsoleExporter()
                _logger.warning(
                    "rageval-hooks: no OpenTelemetry TracerProvider is set and no OTEL_EXPORTER_OTLP_ENDPOINT; "
                    'evaluations are printed. To send traces: pip install "rageval-hooks[otlp]" and set '
                    "OTEL_EXPORTER_OTLP_ENDPOINT, for example http://localhost:4318 [RAGEVAL-101]"
                )
            self._console.export(evaluation)

    def annotate(self, evaluation: Evaluation) -> None:
        """Set the main scores on the turn's span of another tracer, if that is still open."""
        add_scores(evaluation)

    def flush(self, timeout: float) -> bool:
        """Flush the providers.

        Returns:
            With our own providers, True if everything since the last flush was delivered. For a provider of the
            application only the deadline is known: it does not say what became of what it took.
        """
        deadline = time.monotonic() + timeout
        # A list: unlike `all`, it does not stop at the first that is False.
        return False not in [signal.flush(remaining(deadline)) for signal in self._signals]

    def shutdown(self, timeout: float) -> bool:
        """Shut our own providers down. Those of the application stay open: their owner closes them.

        Returns:
            False if something that our own providers sent was lost or rejected since the last flush.
        """
        deadline = time.monotonic() + timeout
        return False not in [signal.shutdown(remaining(deadline)) for signal in self._signals]

    def stats(self) -> Mapping[str, int]:
        """Return the counts of what our own providers sent; empty for providers of the application.

        ``queued``: spans that wait; ``delivered``; ``rejected``: refused by the collector (HTTP 4xx; gRPC does not
        say); ``lost``: the collector could not be reached; ``dropped``: the queue was full. The same for log events
        and for exports of metrics, as ``log_events_queued`` and so on.
        """
        stats: dict[str, int] = {}
        for signal in self._signals:
            prefix = "" if signal is self._spans else f"{signal.what.replace(' ', '_')}_"
            stats.update({prefix + name: count for name, count in signal.stats().items()})
        return stats


def _checked(provider: TracerProvider | None) -> TracerProvider | None:
    if provider is not None and not hasattr(provider, "get_tracer"):
        raise ConfigurationError(f"tracer_provider is not an OpenTelemetry TracerProvider: {provider!r}")
    return provider
