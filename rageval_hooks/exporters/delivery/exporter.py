"""The base of exporters to score APIs: a subclass says what is sent and where, and nothing else."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Self

from opentelemetry import trace
from opentelemetry.trace import TracerProvider

from rageval_hooks.errors import ConfigurationError, MissingDependencyError
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.delivery.destination import Destination, DestinationAbsentError, Searchable
from rageval_hooks.exporters.delivery.http import require_httpx
from rageval_hooks.exporters.delivery.item import Item
from rageval_hooks.exporters.delivery.placing import PlacedScore, place_results
from rageval_hooks.exporters.delivery.queue import DeliveryQueue
from rageval_hooks.exporters.main_results import ScoreSelection
from rageval_hooks.exporters.masking import hide_result
from rageval_hooks.exporters.otlp_places import OtlpPlace
from rageval_hooks.score import Evaluation, Score
from rageval_hooks.settings import Settings, SpanSelection
from rageval_hooks.turn import SpanReference

__all__ = ["ScoreApiExporter"]

_logger = logging.getLogger(__name__)


class ScoreApiExporter(Exporter):
    """Posts scores to a backend's API, in the background, after their spans have arrived.

    The spans themselves go there by OTLP; this exporter works next to the exporter ``otel``.

    Args:
        capture_content: see :class:`rageval_hooks.settings.Settings`.
        spans: which steps become spans; scores of passages can be placed only where their retriever has one.
        scores: ``main`` for the results of quality about the turn; ``all`` adds latency, tokens, cost, and scores of
            passages and sentences.
        tracer_provider: where the spans go; the application's global one by default.

    Attributes:
        backend: the backend's name for log lines, such as ``"MLflow"``.
        extra: the extra of this package that brings httpx: the exporter's name.

    Raises:
        MissingDependencyError: httpx is not installed. Automatic exporters log it instead.
    """

    backend: ClassVar[str]
    extra: ClassVar[str]

    def __init__(
        self,
        *,
        capture_content: bool | None = None,
        spans: SpanSelection = "auto",
        scores: ScoreSelection = "main",
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        if not self.automatic:
            require_httpx(self.extra)
        self.policy = ContentPolicy.build(capture_content)
        self.spans: SpanSelection = spans
        self.scores: ScoreSelection = scores
        self._tracer_provider = tracer_provider
        self._used = False
        self.queue = DeliveryQueue(self.backend, self._connect)

    @classmethod
    def from_settings(cls, settings: Settings, tracer_provider: TracerProvider | None) -> Self:
        """Make the exporter from the plain settings. Credentials come from the variables of the backend's own SDK."""
        made = cls(capture_content=settings.capture_content, spans=settings.spans, tracer_provider=tracer_provider)
        return made.bounded(settings)

    def bounded(self, settings: Settings) -> Self:
        """Return the exporter, whose queue has the size of the settings."""
        self.queue.max_bytes = settings.queue_max_mb * 2**20
        return self

    @abstractmethod
    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterable[Item]:
        """Return what is posted for a stage.

        Args:
            evaluation: the stage. Its results have no text that may not be shown; the turn does, so that only its ids
                and places may be sent. :func:`rageval_hooks.exporters.main_results.select_results` chooses by
                :attr:`scores`, :func:`rageval_hooks.exporters.score_ids.score_id` gives a repeat the same id.
            span: the turn's span. It is sampled.
        """

    def placed_scores(self, evaluation: Evaluation, span: SpanReference) -> Iterator[PlacedScore]:
        """Yield the scores of a stage, each with its span, and count those without a known span as unplaced.

        For a backend whose scores are always values: metrics that failed or were skipped are not among them.
        """
        for result, span_id in place_results(evaluation, span, self.spans, self.scores):
            if not isinstance(result, Score):
                continue
            if span_id is None:
                self.queue.count("unplaced", 1)
            else:
                yield PlacedScore(result, span_id)

    @abstractmethod
    def connect(self) -> Destination:
        """Return the server. Runs on the queue's own thread, with the first item.

        Raises:
            DestinationAbsentError: there is no such server.
            ConfigurationError: a credential is missing or cannot be sent. The items are lost and counted.
        """

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the backend takes spans over OTLP/HTTP, by the same settings: ``demo --to`` sends them there.

        Args:
            project: the project, experiment or service that the spans are for, where the endpoint depends on it.

        Raises:
            ConfigurationError: a setting or credential is missing.
            ExportError: the server cannot be asked.
        """
        raise ConfigurationError(f"the exporter {self.name!r} does not say where {self.backend} takes spans")

    def applies(self) -> bool:
        """Return True if the backend is in use. Automatic exporters override this; it must be fast and not block."""
        return True

    @property
    def provider(self) -> TracerProvider:
        """Where the spans go."""
        return self._tracer_provider or trace.get_tracer_provider()

    def export(self, evaluation: Evaluation) -> None:
        """Queue the results of a stage."""
        if not self.applies():
            return
        self._used = True
        span = evaluation.turn.span
        # Spans that were not sampled never reach a server, so their scores would wait there in vain.
        if span is None or not span.sampled:
            self.queue.count("unplaced", len(evaluation.results))
            return
        if not self.policy.everything:
            shown = tuple(hide_result(result, self.policy) for result in evaluation.results)
            evaluation = evaluation.model_copy(update={"results": shown})
        self.queue.put(self.items(evaluation, span))

    def flush(self, timeout: float) -> bool:
        """Wait until the server has everything."""
        return self.queue.flush(timeout)

    def shutdown(self, timeout: float) -> bool:
        """Deliver what is queued and close the connections."""
        return self.queue.close(timeout)

    def stores(self, evaluation: Evaluation) -> bool | None:
        """Ask the server for the first item of an evaluation."""
        span = evaluation.turn.span
        items = [] if span is None else list(self.items(evaluation, span))
        if not items:
            return None
        server = self.connect()
        try:
            return server.has(items[0]) if isinstance(server, Searchable) else None
        finally:
            server.close()

    def stats(self) -> Mapping[str, int]:
        """Return the counters, in scores.

        ``queued``, ``queued_bytes``: waiting for their spans or for the server; ``delivered``: stored; ``handed_over``:
        left to the server's own queue, because their spans had not arrived; ``rejected``: not accepted by the server;
        ``dropped``: the queue was full, of these ``dropped_by_size`` by their size; ``lost``: the server could not be
        reached for too long or at exit, or never got their spans; ``unplaced``: scores that no known span can carry;
        ``errors``: requests that failed. Empty for an automatic exporter whose backend is not in use.
        """
        return self.queue.stats() if self._used or not self.automatic else {}

    def _connect(self) -> Destination:
        try:
            return self.connect()
        except MissingDependencyError as error:
            _logger.warning(
                "rageval-hooks: spans go to %s, but its scores cannot: %s [RAGEVAL-507]", self.backend, error
            )
            raise DestinationAbsentError from None
