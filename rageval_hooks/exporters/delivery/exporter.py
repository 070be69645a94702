"""The base of exporters to score APIs: a subclass says what is sent and where, and nothing else."""

from __future__ import annotations

import json
import logging
import os
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypedDict
from uuid import UUID

from opentelemetry import trace
from opentelemetry.trace import TracerProvider
from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError, MissingDependencyError
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.content import ContentPolicy, hide_result
from rageval_hooks.exporters.delivery.queue import DeliveryQueue, DestinationAbsentError, Item
from rageval_hooks.exporters.delivery.server import ScoreServer, require_httpx
from rageval_hooks.exporters.main_results import ScoreSelection, quality_results
from rageval_hooks.exporters.otlp_places import OtlpPlace, otlp_places
from rageval_hooks.exporters.span_places import passage_place
from rageval_hooks.runtime.tracing import provider_of_span
from rageval_hooks.score import VERDICT, Evaluation, Failed, Result, Score, Skipped
from rageval_hooks.settings import Settings, SpanSelection
from rageval_hooks.turn import SpanReference, Turn

_logger = logging.getLogger(__name__)


class DeliveryOptions(TypedDict, total=False):
    """The options of :class:`ScoreApiExporter`, which its subclasses pass on."""

    capture_content: bool | None
    spans: SpanSelection
    scores: ScoreSelection
    tracer_provider: TracerProvider | None


@dataclass(frozen=True)
class PlacedResult:
    """A result and its place, with what score APIs ask for.

    Attributes:
        result: a score, a metric that failed, or a verdict without a number.
        span_id: the span that it belongs to: the turn's, or for a passage's score that of its retriever.
        id: one per turn, score, target and version of the metric, the same in every process, so that a score that is
            sent twice can be told from two scores. The judge's verdict has the id of the local one: it replaces it.
        name: the score's name.
        value: the number; None for results without one.
        label: the label of a score, or of a verdict without a number.
        annotator: CODE, LLM or HUMAN.
        explanation: the explanation of the score, or the reason why it is missing.
        details: the other fields as JSON-able data.
    """

    result: Result
    span_id: str
    id: str
    name: str
    value: float | None
    label: str | None
    annotator: str
    explanation: str | None
    details: dict[str, Any]

    @classmethod
    def of(cls, result: Result, span_id: str, turn_span: SpanReference) -> Self:
        """Return a result in the form of score APIs.

        Args:
            result: the result.
            span_id: the span that it belongs to.
            turn_span: the turn's span.
        """
        annotator = "CODE" if isinstance(result, Skipped) else result.annotator
        label = None if isinstance(result, Failed) else result.label
        details = {**({} if isinstance(result, Skipped) else result.metadata), "annotator": annotator}
        value, why, target = None, None, list[str | int | None]()
        if isinstance(result, Score):
            value, why = result.value, result.explanation
            details.update(version=result.version, probability=result.probability)
            if result.model is not None:
                details["model"] = result.model
            if result.target.kind != "turn":
                details[result.target.kind] = result.target.index
            if result.name != VERDICT:
                target = [result.target.kind, result.target.index, result.version]
        else:
            why = result.reason
        if label is not None:
            details["label"] = label
        key = json.dumps([turn_span.trace_id, turn_span.span_id, result.name, *target])
        # Version 4 by its form: some APIs accept no other.
        own_id = str(UUID(bytes=blake2b(key.encode(), digest_size=16).digest(), version=4))
        return cls(result, span_id, own_id, result.name, value, label, annotator, why, details)


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
        backend: the backend's name for log lines, such as ``"MLflow"``. The extra of this package that brings httpx
            is named like it.

    Raises:
        MissingDependencyError: httpx is not installed. Automatic exporters log it instead.
    """

    backend: ClassVar[str]

    def __init__(
        self,
        *,
        capture_content: bool | None = None,
        spans: SpanSelection = "auto",
        scores: ScoreSelection = "main",
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        if not self.automatic:
            require_httpx(self.backend.lower())
        self.policy = ContentPolicy.build(capture_content)
        self.spans: SpanSelection = spans
        self.scores: ScoreSelection = scores
        self._tracer_provider = tracer_provider
        self._carrier: TracerProvider | None = None
        self._used = False
        self.queue = DeliveryQueue(self.backend, self._connect)

    @classmethod
    def from_settings(cls, settings: Settings, tracer_provider: TracerProvider | None) -> Self:
        """Make the exporter from the plain settings. Credentials come from the variables of the backend's own SDK."""
        made = cls(capture_content=settings.capture_content, spans=settings.spans, tracer_provider=tracer_provider)
        made.queue.max_bytes = settings.queue_max_mb * 2**20
        return made

    @abstractmethod
    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterable[Item]:
        """Return what is posted for a stage.

        Args:
            evaluation: the stage. Its results have no text that may not be shown; the turn does, so that only its ids
                and places may be sent. :meth:`placed_results` chooses by :attr:`scores`.
            span: the turn's span. It is sampled.
        """

    def placed_results(self, evaluation: Evaluation, span: SpanReference) -> Iterator[PlacedResult]:
        """Yield the results of a stage that the backend gets, the verdict and the main scores first.

        All results of quality about the turn, unless all results are wanted: backends draw a chart of each score.
        Results without a known span are counted as unplaced.
        """
        results: Iterable[Result] = evaluation.results if self.scores == "all" else quality_results(evaluation.results)
        for result in results:
            if isinstance(result, Skipped) and result.label is None:
                continue
            span_id: str | None = span.span_id
            if isinstance(result, Score) and result.target.kind == "passage":
                place = passage_place(evaluation.turn, result.target.index, self.spans)
                span_id = None if place is None else place.span_id
            if span_id is None:
                self.queue.count("unplaced", 1)
            else:
                yield PlacedResult.of(result, span_id, span)

    @abstractmethod
    def connect(self) -> ScoreServer:
        """Return the server. Runs on the queue's own thread, with the first item.

        Raises:
            DestinationAbsentError: there is no such server.
            ConfigurationError: a credential is missing. The items are lost and counted.
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

    def gets(self, place: OtlpPlace) -> bool:
        """Return True if an endpoint of spans is one of this backend."""
        return False

    def place_of_spans(self) -> OtlpPlace | None:
        """Return the endpoint of this backend that gets the spans; None if they go elsewhere."""
        return next(filter(self.gets, otlp_places(self.provider)), None)

    def applies(self) -> bool:
        """Return True if the spans go to this backend. Automatic exporters ask it; it must be fast and not block."""
        return self.place_of_spans() is not None

    @property
    def provider(self) -> TracerProvider:
        """Where the spans go: the provider of the latest turn's span, if another tracer made that with its own."""
        return self._carrier or self._tracer_provider or trace.get_tracer_provider()

    def export(self, evaluation: Evaluation) -> None:
        """Queue the results of a stage."""
        span = evaluation.turn.span
        if span is not None and span.live_span is not None:
            used = self._tracer_provider or trace.get_tracer_provider()
            self._carrier = provider_of_span(span.live_span, used)
        if self.automatic and not self.applies():
            return
        self._used = True
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
            return server.has(items[0])
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

    def _connect(self) -> ScoreServer:
        try:
            return self.connect()
        except MissingDependencyError as error:
            _logger.warning(
                "rageval-hooks: spans go to %s, but its scores cannot: %s [RAGEVAL-507]", self.backend, error
            )
            raise DestinationAbsentError from None


def evaluated_at(turn: Turn) -> int:
    """Return the time of a turn's scores, in nanoseconds since the epoch: the turn's end.

    A late score then is in the chart where its trace is, and a repeat from another process has the same time.
    """
    return time.time_ns() if turn.timing is None else turn.timing.ended_at


def iso_time(nanoseconds: int) -> str:
    """Return a time as text, for example ``2026-11-22T16:00:00.123000+00:00``."""
    return datetime.fromtimestamp(nanoseconds // 1000 / 1e6, UTC).isoformat(timespec="microseconds")


# --------------------------------------------------------------------------- credentials


def variable(*names: str) -> str:
    """Return the first environment variable that is set and not blank, without surrounding spaces; else empty."""
    values = (os.environ.get(name, "").strip() for name in names)
    return next(filter(None, values), "")


def as_secret(given: str | SecretStr | None, *names: str) -> SecretStr:
    """Return a key or a URL with a password so that no message and no traceback shows it.

    Args:
        given: the user's value.
        names: the environment variables for its default.
    """
    text = reveal(given) if isinstance(given, SecretStr) else given
    return SecretStr(text or variable(*names))


def reveal(secret: SecretStr | None) -> str:
    """Return the text of a secret; empty for None."""
    return "" if secret is None else secret.get_secret_value()
