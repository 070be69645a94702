"""Scores as Phoenix's annotations: of the turn's span and trace, and of the documents that were retrieved."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self

from opentelemetry import trace
from pydantic import SecretStr

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.delivery import DeliveryQueue, DestinationAbsentError
from rageval_hooks.exporters.phoenix.annotations import AnnotatedScores, annotate
from rageval_hooks.exporters.phoenix.configs import AnnotationConfigs
from rageval_hooks.exporters.phoenix.discovery import DEFAULT_PLACE, is_phoenix, phoenix_places, project_of
from rageval_hooks.exporters.phoenix.server import PhoenixServer, require_httpx
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings, SpanSelection

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["PhoenixAutoExporter", "PhoenixExporter"]

_logger = logging.getLogger(__name__)

_ASK_AGAIN = 60.0


class PhoenixExporter(Exporter):
    """Posts scores to a Phoenix server, which draws annotations where it shows attributes only on request.

    The spans themselves go there by OTLP; this exporter works next to the exporter ``otel``. The main scores become
    annotations of the turn's span and of the trace, what failed first; scores of passages become annotations of their
    retriever's documents.

    Args:
        endpoint: the server's base URL. By default what ``PHOENIX_ENDPOINT``, ``PHOENIX_COLLECTOR_ENDPOINT`` or the
            variables of OTLP name, or where the provider's exporters send their spans; else http://localhost:6006.
        api_key: by default ``PHOENIX_API_KEY``. ``PHOENIX_CLIENT_HEADERS`` is read too.
        capture_content: see :class:`rageval_hooks.settings.Settings`.
        spans: which steps become spans; passages can be annotated only where their retriever has one.
        scores: ``main`` for up to five results per stage, without usage; ``all`` for every result.
        tracer_provider: where the spans go; the application's global one by default.

    Raises:
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "phoenix"

    def __init__(
        self,
        endpoint: str | SecretStr | None = None,
        *,
        api_key: str | SecretStr | None = None,
        capture_content: bool | None = None,
        spans: SpanSelection = "auto",
        scores: AnnotatedScores = "main",
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._require()
        self._endpoint = SecretStr(endpoint) if isinstance(endpoint, str) else endpoint
        self._api_key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self._policy = ContentPolicy.build(capture_content)
        self._spans = spans
        self._scores: AnnotatedScores = scores
        self._tracer_provider = tracer_provider
        self._configs = AnnotationConfigs()
        self._queue = DeliveryQueue("Phoenix", self._connect)

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
        return f"{type(self).__name__}({', '.join(map(safe_url, self._places()))})"

    def export(self, evaluation: Evaluation) -> None:
        """Queue the results of a stage."""
        items, unplaced = annotate(evaluation, self._policy, self._spans, self._scores)
        self._configs.note(evaluation.results)
        self._queue.count("unplaced", unplaced)
        self._queue.put(items)

    def flush(self, timeout: float) -> bool:
        """Wait until Phoenix has everything."""
        return self._queue.flush(timeout)

    def shutdown(self, timeout: float) -> bool:
        """Deliver what is queued; results for spans that are still on their way are left to Phoenix's own queue."""
        return self._queue.close(timeout)

    def stats(self) -> Mapping[str, int]:
        """Return the counters, in annotations.

        ``queued``: waiting for their spans or for the server; ``delivered``: stored; ``handed_over``: left to the
        server, because their spans had not arrived; ``rejected``: not accepted by the server; ``dropped``: the queue
        was full; ``lost``: the server could not be reached for too long, or at exit; ``unplaced``: scores of passages
        that no known span lists; ``errors``: requests that failed.
        """
        return self._queue.stats()

    def _require(self) -> None:
        require_httpx()

    def _provider(self) -> TracerProvider:
        return self._tracer_provider or trace.get_tracer_provider()

    def _places(self) -> list[str]:
        setting = None if self._endpoint is None else self._endpoint.get_secret_value()
        return phoenix_places(setting, self._provider())

    def _server(self, place: str) -> PhoenixServer:
        project = project_of(self._provider())
        return PhoenixServer(place, self._api_key, project=project, configs=self._configs)

    def _connect(self) -> PhoenixServer:
        places = self._places()
        if not places:
            _logger.warning(
                "rageval-hooks: it is not known where the Phoenix server is; scores go to %s. Set "
                "RAGEVAL_PHOENIX_ENDPOINT to its address",
                DEFAULT_PLACE,
            )
        return self._server((places or [DEFAULT_PLACE])[0])


class PhoenixAutoExporter(PhoenixExporter):
    """Does the same where the spans go to a Phoenix, and nothing elsewhere.

    The server is asked once, in the background, with the first turn. If it does not answer, it is asked again with a
    turn a minute later.
    """

    name: ClassVar[str] = "phoenix-auto"

    _told = False

    def export(self, evaluation: Evaluation) -> None:
        """Queue the results of a stage, if it is known where spans go."""
        if self._places():
            super().export(evaluation)
        # Once: an application without Phoenix should not read it with every turn.
        elif not self._told:
            self._told = True
            _logger.info(
                "rageval-hooks: it is not known where the spans go. If it is a Phoenix, set RAGEVAL_PHOENIX_ENDPOINT "
                "to its address: scores are then annotations, too"
            )

    def _require(self) -> None:
        pass

    def _connect(self) -> PhoenixServer:
        answers = []
        for place in self._places():
            # None means no answer: the server may still be starting.
            answers.append(is_phoenix(place))
            if not answers[-1]:
                continue
            try:
                server = self._server(place)
            except MissingDependencyError as error:
                _logger.warning("rageval-hooks: there is a Phoenix at %s, but %s", safe_url(place), error)
                raise DestinationAbsentError from None
            _logger.info("rageval-hooks: scores go to the Phoenix at %s as annotations, too", safe_url(place))
            return server
        raise DestinationAbsentError(_ASK_AGAIN if None in answers else math.inf)
