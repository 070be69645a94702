"""Scores as MLflow's assessments of the turn's trace."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from typing import ClassVar, Unpack

from pydantic import SecretStr

from rageval_hooks.exporters.delivery import (
    DeliveryOptions,
    Destination,
    DestinationAbsentError,
    Item,
    ScoreApiExporter,
    as_secret,
    reveal,
)
from rageval_hooks.exporters.delivery.placing import place_results
from rageval_hooks.exporters.mlflow.assessments import assessments
from rageval_hooks.exporters.mlflow.connection import (
    DEFAULT_URL,
    EXPERIMENT_HEADER,
    MlflowPlace,
    endpoint_of_spans,
    is_mlflow,
    place_of_spans,
    tracking_place,
)
from rageval_hooks.exporters.mlflow.server import MlflowServer
from rageval_hooks.exporters.otlp_places import OtlpPlace
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation, Failed, Score
from rageval_hooks.turn import SpanReference

__all__ = ["MlflowAutoExporter", "MlflowExporter"]

_logger = logging.getLogger(__name__)

_ASK_AGAIN = 60.0


class MlflowExporter(ScoreApiExporter):
    """Posts scores to an MLflow server as assessments: a column each in the list of traces, and a panel in the trace.

    Args:
        tracking_uri: the server's base URL. By default ``MLFLOW_TRACKING_URI``, or where the spans go if they carry
            the header ``x-mlflow-experiment-id``; else http://localhost:5000.
        token: sent as a bearer token. By default ``MLFLOW_TRACKING_USERNAME`` and ``MLFLOW_TRACKING_PASSWORD``, or
            ``MLFLOW_TRACKING_TOKEN``; ``~/.mlflow/credentials`` is read too.
        options: see :class:`rageval_hooks.exporters.delivery.ScoreApiExporter`. Only ``scores="all"`` posts shares of
            which less is better, such as ``hallucination``: MLflow colours them as if more were.

    Raises:
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "mlflow"
    backend: ClassVar[str] = "MLflow"
    extra: ClassVar[str] = "mlflow"

    def __init__(
        self,
        tracking_uri: str | SecretStr | None = None,
        *,
        token: str | SecretStr | None = None,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        super().__init__(**options)
        self._uri = as_secret(tracking_uri)
        self._token = SecretStr(token) if isinstance(token, str) else token

    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterator[Item]:
        """Yield the assessments of a stage."""
        placed = place_results(evaluation, span, self.spans, self.scores)
        # MLflow's colours would say that a good answer is a bad one.
        if self.scores == "main":
            placed = (place for place in placed if not _is_share_of_errors(place.result))
        for position, (result, span_id) in enumerate(placed):
            if span_id is None:
                self.queue.count("unplaced", 1)
            else:
                yield from assessments(result, evaluation, span, span_id, position)

    def connect(self) -> Destination:
        """Return the server."""
        place = self._place()
        if place is None:
            _logger.warning(
                "rageval-hooks: it is not known where the MLflow server is; scores go to %s. Set MLFLOW_TRACKING_URI "
                "to its address [RAGEVAL-110]",
                DEFAULT_URL,
            )
        return MlflowServer(place or MlflowPlace(url=DEFAULT_URL))

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the server takes spans: of ``MLFLOW_EXPERIMENT_ID``, or of the experiment with this name."""
        place = self._place() or MlflowPlace(url=DEFAULT_URL)
        server = MlflowServer(place)
        # MLflow takes spans only with the id of an experiment, which people know by its name.
        try:
            experiment = os.environ.get("MLFLOW_EXPERIMENT_ID") or server.experiment_id(project)
        finally:
            server.close()
        page = f"{safe_url(place.url)}/#/experiments/{experiment}/traces"
        return OtlpPlace(
            url=f"{place.url}/v1/traces", headers={**place.headers, EXPERIMENT_HEADER: experiment}, page=page
        )

    def _place(self) -> MlflowPlace | None:
        return tracking_place(reveal(self._uri), self._token) or place_of_spans(self.provider)


def _is_share_of_errors(result: Score | Failed) -> bool:
    """Return True for a share of which less is better. MLflow would draw a good 0.1 in red: it has no directions."""
    return isinstance(result, Score) and result.direction == "lower" and result.high == 1


class MlflowAutoExporter(MlflowExporter):
    """Does the same where the spans go to an MLflow, and nothing elsewhere.

    Spans for MLflow carry the header ``x-mlflow-experiment-id``. Before the first score, the server is asked in the
    background whether it is an MLflow: spans may go through a collector.
    """

    name: ClassVar[str] = "mlflow-auto"
    automatic: ClassVar[bool] = True

    def applies(self) -> bool:
        """Return True if spans carry MLflow's header."""
        return endpoint_of_spans(self.provider) is not None

    def connect(self) -> Destination:
        """Return the server that the spans go to."""
        place = self._place()
        # The application may set its provider later.
        if place is None:
            raise DestinationAbsentError(_ASK_AGAIN)
        answer = is_mlflow(place.url)
        # None means no answer: the server may still be starting.
        if not answer:
            raise DestinationAbsentError(math.inf if answer is False else _ASK_AGAIN)
        _logger.info(
            "rageval-hooks: scores go to the MLflow at %s as assessments, too [RAGEVAL-113]", safe_url(place.url)
        )
        return MlflowServer(place)

    def _place(self) -> MlflowPlace | None:
        return place_of_spans(self.provider)
