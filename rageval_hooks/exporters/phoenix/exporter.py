"""Scores as Phoenix's annotations: of the turn's span and trace, and of the documents that were retrieved."""

from __future__ import annotations

import logging
import math
from typing import ClassVar, Self, Unpack
from urllib.parse import quote

from opentelemetry.trace import TracerProvider
from pydantic import SecretStr

from rageval_hooks.exporters.delivery import (
    DeliveryOptions,
    DestinationAbsentError,
    Item,
    ScoreApiExporter,
    as_secret,
    reveal,
)
from rageval_hooks.exporters.otlp_places import OtlpPlace
from rageval_hooks.exporters.phoenix.annotations import annotate
from rageval_hooks.exporters.phoenix.configs import AnnotationConfigs
from rageval_hooks.exporters.phoenix.discovery import DEFAULT_PLACE, is_phoenix, phoenix_places, project_of
from rageval_hooks.exporters.phoenix.server import PhoenixServer, login_headers
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings
from rageval_hooks.turn import SpanReference

__all__ = ["PhoenixAutoExporter", "PhoenixExporter"]

_logger = logging.getLogger(__name__)

_ASK_AGAIN = 60.0


class PhoenixExporter(ScoreApiExporter):
    """Posts scores to a Phoenix server, which draws annotations where it shows attributes only on request.

    The main scores become annotations of the turn's span and of the trace, what failed first; scores of passages become
    annotations of their retriever's documents.

    Args:
        endpoint: the server's base URL. By default what ``PHOENIX_ENDPOINT``, ``PHOENIX_COLLECTOR_ENDPOINT`` or the
            variables of OTLP name, or where the provider's exporters send their spans; else http://localhost:6006.
        api_key: by default ``PHOENIX_API_KEY``. ``PHOENIX_CLIENT_HEADERS`` is read too.
        options: see :class:`rageval_hooks.exporters.delivery.ScoreApiExporter`. With ``scores="main"`` there are up to
            five results per stage.

    Raises:
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "phoenix"
    backend: ClassVar[str] = "Phoenix"
    extra: ClassVar[str] = "phoenix"

    def __init__(
        self,
        endpoint: str | SecretStr | None = None,
        *,
        api_key: str | SecretStr | None = None,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        super().__init__(**options)
        self._endpoint = as_secret(endpoint)
        self._api_key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self._configs = AnnotationConfigs()

    @classmethod
    def from_settings(cls, settings: Settings, tracer_provider: TracerProvider | None) -> Self:
        """Make the exporter from the plain settings."""
        made = cls(
            settings.phoenix_endpoint,
            capture_content=settings.capture_content,
            spans=settings.spans,
            tracer_provider=tracer_provider,
        )
        return made.bounded(settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(safe_url, self._places()))})"

    def items(self, evaluation: Evaluation, span: SpanReference) -> list[Item]:
        """Return the annotations of a stage."""
        items, unplaced = annotate(evaluation, span, self.spans, self.scores)
        self._configs.note(evaluation.results)
        self.queue.count("unplaced", unplaced)
        return items

    def connect(self) -> PhoenixServer:
        """Return the server where the spans go."""
        places = self._places()
        if not places:
            _logger.warning(
                "rageval-hooks: it is not known where the Phoenix server is; scores go to %s. Set "
                "RAGEVAL_PHOENIX_ENDPOINT to its address [RAGEVAL-109]",
                DEFAULT_PLACE,
            )
        return self._server((places or [DEFAULT_PLACE])[0])

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the server takes spans; the project is an attribute of their resource."""
        base = (self._places() or [DEFAULT_PLACE])[0]
        page = f"{safe_url(base)}/redirects/projects/{quote(project, safe='')}"
        return OtlpPlace(url=f"{base}/v1/traces", headers=login_headers(self._api_key), page=page)

    def _places(self) -> list[str]:
        return phoenix_places(reveal(self._endpoint), self.provider)

    def _server(self, place: str) -> PhoenixServer:
        return PhoenixServer(place, self._api_key, project=project_of(self.provider), configs=self._configs)


class PhoenixAutoExporter(PhoenixExporter):
    """Does the same where the spans go to a Phoenix, and nothing elsewhere.

    The server is asked once, in the background, with the first turn. If it does not answer, it is asked again with a
    turn a minute later.
    """

    name: ClassVar[str] = "phoenix-auto"
    automatic: ClassVar[bool] = True

    _told = False

    def applies(self) -> bool:
        """Return True if it is known where spans go."""
        if self._places():
            return True
        # Once: an application without Phoenix should not read it with every turn.
        if not self._told:
            self._told = True
            _logger.info(
                "rageval-hooks: it is not known where the spans go. If it is a Phoenix, set RAGEVAL_PHOENIX_ENDPOINT "
                "to its address: scores are then annotations, too [RAGEVAL-111]"
            )
        return False

    def connect(self) -> PhoenixServer:
        """Return the first server that is a Phoenix."""
        answers = []
        for place in self._places():
            # None means no answer: the server may still be starting.
            answers.append(is_phoenix(place))
            if answers[-1]:
                server = self._server(place)
                _logger.info(
                    "rageval-hooks: scores go to the Phoenix at %s as annotations, too [RAGEVAL-112]", safe_url(place)
                )
                return server
        raise DestinationAbsentError(_ASK_AGAIN if None in answers else math.inf)
