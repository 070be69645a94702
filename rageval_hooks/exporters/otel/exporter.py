"""The exporter ``otel``: turns and scores as OpenTelemetry spans."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Self

from opentelemetry import trace
from opentelemetry.trace import TracerProvider

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.console import ConsoleExporter
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.otel.own_provider import OwnProvider, own_provider
from rageval_hooks.exporters.otel.writer import SpanWriter
from rageval_hooks.runtime.time_limit import LimitedThread, remaining
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings, SpanSelection
from rageval_hooks.version import __version__

__all__ = ["OtelExporter"]

_logger = logging.getLogger(__name__)

_SCOPE = "rageval_hooks"


class OtelExporter(Exporter):
    """Writes OpenTelemetry spans.

    They go to the tracer provider that is given, or else to the application's global one, which may be set later. In an
    application without a provider, they go through our own provider to the OTLP endpoint that the standard variables
    name. Without an endpoint, the console gets a summary. The global provider is never set.

    Args:
        tracer_provider: where the spans go.
        capture_content: see :class:`rageval_hooks.settings.Settings`.
        spans: which steps become spans.
    """

    name: ClassVar[str] = "otel"
    traces: ClassVar[bool] = True

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        capture_content: bool | None = None,
        spans: SpanSelection = "rag",
    ) -> None:
        if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
            raise ConfigurationError(f"tracer_provider is not an OpenTelemetry TracerProvider: {tracer_provider!r}")
        self._given = tracer_provider
        self._policy = ContentPolicy.build(capture_content)
        self._selection = spans
        self._provider: TracerProvider | None = None
        self._own: OwnProvider | None = None
        self._undelivered = 0
        self._final_stats: Mapping[str, int] = {}
        self._flush_thread = LimitedThread("rageval-flush")
        self._writer: SpanWriter | None = None
        self._console: ConsoleExporter | None = None
        if tracer_provider is None and _global_provider() is None:
            own_provider()  # now: a short script may be exiting already when the first turn arrives

    @classmethod
    def from_settings(cls, settings: Settings, tracer_provider: TracerProvider | None) -> Self:
        """Make the exporter from the plain settings."""
        return cls(tracer_provider, capture_content=settings.capture_content, spans=settings.spans)

    def export(self, evaluation: Evaluation) -> None:
        """Write the turn's spans and the span of its results."""
        writer = self._find_writer()
        if writer is None:
            self._fallback().export(evaluation)
            return
        turn = evaluation.turn
        external = turn.span is not None and turn.span.external
        if evaluation.stage == "inline" and not external:
            writer.write_turn(turn, evaluation)
        writer.write_evaluation(evaluation)

    def flush(self, timeout: float) -> bool:
        """Flush the provider's span processors.

        Returns:
            With our own provider, True if every span since the last flush was delivered. For a provider of the
            application only the deadline is known: its processors do not say what became of the spans.
        """
        deadline = time.monotonic() + timeout
        flush = getattr(self._provider, "force_flush", None)
        if flush is None:
            return True
        milliseconds = max(1, int(timeout * 1000))
        # The SDK's batch processor ignores the timeout, so the deadline is kept here.
        in_time = self._in_time(lambda: flush(milliseconds), remaining(deadline))
        return in_time and (self._own is None or self._delivered_everything(self._own))

    def shutdown(self, timeout: float) -> bool:
        """Shut our own provider down. A provider of the application stays open: its owner closes it.

        Returns:
            False if spans of our own provider were lost or rejected since the last flush.
        """
        # Taken first: a second call then has nothing to do.
        own, self._own = self._own, None
        if own is None:
            return True
        self._provider = None
        own_provider.cache_clear()
        in_time = self._in_time(own.provider.shutdown, timeout)
        lost = own.give_up()
        self._final_stats = own.stats()
        if lost:
            _logger.warning("rageval-hooks: %d spans could not be delivered in time and are lost", lost)
        return in_time and self._delivered_everything(own)

    def stats(self) -> Mapping[str, int]:
        """Return what became of the spans of our own provider; empty for a provider of the application.

        ``queued``: waiting; ``delivered``; ``rejected``: refused by the collector (HTTP 4xx; gRPC does not say);
        ``lost``: the collector could not be reached; ``dropped``: the queue was full.
        """
        return self._final_stats if self._own is None else self._own.stats()

    def _delivered_everything(self, own: OwnProvider) -> bool:
        """Return True if nothing waits and nothing was lost since this was asked last."""
        stats = own.stats()
        undelivered = stats["rejected"] + stats["lost"] + stats["dropped"]
        new, self._undelivered = undelivered - self._undelivered, undelivered
        return stats["queued"] == 0 and new == 0

    def _in_time(self, call: Callable[[], object], timeout: float) -> bool:
        """Return True if a call of the provider ended in time and did not return False."""
        try:
            return self._flush_thread.within(call, timeout) is not False
        except TimeoutError:
            return False

    # -- providers

    def _find_writer(self) -> SpanWriter | None:
        provider = self._given or _global_provider()
        self._own = own_provider() if provider is None else None
        if self._own is not None:
            provider = self._own.provider
        if provider is None:
            return None
        self._flush_thread.start()
        # Applications set their provider late, and tests replace it.
        if provider is not self._provider:
            self._provider = provider
            tracer = provider.get_tracer(_SCOPE, __version__, semconv.SCHEMA_URL)
            self._writer = SpanWriter(tracer, self._policy, self._selection)
        return self._writer

    def _fallback(self) -> ConsoleExporter:
        if self._console is None:
            self._console = ConsoleExporter(policy=self._policy)
            _logger.warning(
                "rageval-hooks: no OpenTelemetry TracerProvider is set and no OTEL_EXPORTER_OTLP_ENDPOINT; evaluations "
                'are printed. To send traces: pip install "rageval-hooks[otlp]" and set OTEL_EXPORTER_OTLP_ENDPOINT, '
                "for example http://localhost:4318"
            )
        return self._console


def _global_provider() -> TracerProvider | None:
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider
