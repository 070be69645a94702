"""Scores as Phoenix's annotations: on the turn's span, and on the documents that were retrieved."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, ClassVar

from opentelemetry import trace

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.phoenix.annotations import annotate
from rageval_hooks.exporters.phoenix.discovery import DEFAULT_PLACE, is_phoenix, phoenix_places, shown_url
from rageval_hooks.exporters.phoenix.outbox import Outbox
from rageval_hooks.exporters.phoenix.server import AbsentError, PhoenixServer, require_httpx
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings, SpanSelection

if TYPE_CHECKING:
    from typing import Self

    from opentelemetry.trace import TracerProvider

__all__ = ["PhoenixAutoExporter", "PhoenixExporter"]

_logger = logging.getLogger(__name__)

_ASK_AGAIN = 60.0


class PhoenixExporter(Exporter):
    """Posts scores to a Phoenix server, which shows annotations where it shows span attributes only when asked to.

    The spans themselves go there as all spans do, by OTLP: this comes beside the exporter ``otel``. A skipped or failed
    metric becomes an annotation without a score, with its reason.

    Args:
        endpoint: the server's base URL. By default what ``PHOENIX_ENDPOINT``, ``PHOENIX_COLLECTOR_ENDPOINT`` or the
            variables of OTLP name, or where the application's ``phoenix.otel.register`` sends its spans; else
            http://localhost:6006.
        api_key: by default ``PHOENIX_API_KEY``. ``PHOENIX_CLIENT_HEADERS`` is read too.
        capture_content: see :class:`rageval_hooks.settings.Settings`.
        spans: which steps become spans; passages can be annotated only where their retriever has one.
        tracer_provider: where the spans go; the application's global one by default.

    Raises:
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "phoenix"

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        api_key: str | None = None,
        capture_content: bool | None = None,
        spans: SpanSelection = "rag",
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._require()
        self._endpoint = endpoint
        self._api_key = api_key
        self._policy = ContentPolicy.build(capture_content)
        self._spans = spans
        self._tracer_provider = tracer_provider
        self._outbox = Outbox(self._connect)

    @classmethod
    def from_settings(cls, settings: Settings, tracer_provider: TracerProvider | None) -> Self:
        """Make the exporter from the plain settings."""
        return cls(
            settings.phoenix_endpoint,
            capture_content=settings.capture_content,
            spans=settings.spans,
            tracer_provider=tracer_provider,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(shown_url, self._places()))})"

    def export(self, evaluation: Evaluation) -> None:
        """Queue the results of a stage."""
        annotations, unplaced = annotate(evaluation, self._policy, self._spans)
        self._outbox.count("unplaced", unplaced)
        self._outbox.put(annotations)

    def flush(self, timeout: float) -> bool:
        """Wait until Phoenix has everything; returns False if that takes longer than ``timeout`` seconds."""
        return self._outbox.flush(timeout)

    def shutdown(self, timeout: float) -> bool:
        """Deliver what is queued; results for spans that are still on their way are left to Phoenix's own queue."""
        return self._outbox.close(timeout)

    def stats(self) -> dict[str, int]:
        """Return what was counted, in results of metrics.

        ``queued``: waiting for their spans or for the server; ``delivered``: stored; ``handed_over``: left to the
        server, because their spans had not arrived; ``rejected``: not taken by the server; ``dropped``: the queue was
        full; ``lost``: the server could not be reached for too long, or at exit; ``unplaced``: about something that has
        no span; ``errors``: requests that failed.
        """
        return self._outbox.stats()

    def _require(self) -> None:
        require_httpx()

    def _places(self) -> list[str]:
        return phoenix_places(self._endpoint, self._tracer_provider or trace.get_tracer_provider())

    def _connect(self) -> PhoenixServer:
        return PhoenixServer((self._places() or [DEFAULT_PLACE])[0], self._api_key)


class PhoenixAutoExporter(PhoenixExporter):
    """Does the same where the spans go to a Phoenix, and nothing elsewhere.

    The server is asked what it is, once, in the background, with the first turn. If nobody answers, it is asked again
    with a turn a minute later.
    """

    name: ClassVar[str] = "phoenix-auto"

    def export(self, evaluation: Evaluation) -> None:
        """Queue the results of a stage, if spans go anywhere."""
        if self._places():
            super().export(evaluation)

    def _require(self) -> None:
        pass

    def _connect(self) -> PhoenixServer:
        answers = []
        for place in self._places():
            answers.append(is_phoenix(place))
            if not answers[-1]:
                continue
            try:
                server = PhoenixServer(place, self._api_key)
            except MissingDependencyError as error:
                _logger.warning("rageval-hooks: there is a Phoenix at %s, but %s", shown_url(place), error)
                raise AbsentError from None
            _logger.info("rageval-hooks: scores go to the Phoenix at %s as annotations, too", shown_url(place))
            return server
        raise AbsentError(_ASK_AGAIN if None in answers else math.inf)
