"""Scores as Langfuse's scores: of the trace, or of the observation if the turn is a part of a larger trace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Unpack

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.credentials import Secret, as_secret, basic_auth, reveal, variable
from rageval_hooks.exporters.delivery_queue import Item, RejectedError
from rageval_hooks.exporters.otlp_places import OtlpPlace, resource_attributes
from rageval_hooks.exporters.score_api import DeliveryOptions, ScoreApiExporter, ScoreServer, iso_time, known
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import VERDICT, Evaluation, Score
from rageval_hooks.turn import SpanReference, Turn

_CLOUD = "https://cloud.langfuse.com"
_OTLP_PATH = "/api/public/otel"
_KEYS = "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"
_ROUTE = "api/public/scores"

SPAN_KEY = "rageval.span"
"""In a score's metadata: ``0x`` and the id of the turn's span, also where the score is one of the trace."""

# As Langfuse reads them from the resource of OTLP.
_ENVIRONMENT_ATTRIBUTES = ("langfuse.environment", "deployment.environment.name", "deployment.environment")
# For example "staging" or "eu-1"; the API rejects a score with any other name.
_ENVIRONMENT = re.compile(r"(?!langfuse)[a-z0-9_-]{1,40}")


class LangfuseExporter(ScoreApiExporter):
    """Posts scores to Langfuse, which does not read them from spans.

    A turn that is a whole trace gets scores of the trace. A turn below another span gets scores of its observation.
    The verdict is a categorical score, the others are numeric. Metrics that failed or were skipped are not posted: a
    score of Langfuse is always a value.

    Args:
        base_url: by default ``LANGFUSE_BASE_URL`` or ``LANGFUSE_HOST``, else where the spans go, else Langfuse's cloud.
        public_key: by default ``LANGFUSE_PUBLIC_KEY``.
        secret_key: by default ``LANGFUSE_SECRET_KEY``.
        options: see :class:`rageval_hooks.exporters.score_api.ScoreApiExporter`.

    Raises:
        ConfigurationError: a key is missing.
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "langfuse"
    backend: ClassVar[str] = "Langfuse"
    takes_traces: ClassVar[bool] = True

    def __init__(
        self,
        base_url: str | None = None,
        *,
        public_key: str | None = None,
        secret_key: Secret = None,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        super().__init__(**options)
        # The URL may hold a password.
        self._base_url = as_secret(base_url)
        self._public_key = public_key or variable("LANGFUSE_PUBLIC_KEY")
        self._secret_key = as_secret(secret_key, "LANGFUSE_SECRET_KEY")
        if not self.automatic and not self._has_keys:
            raise ConfigurationError(f"the exporter 'langfuse' needs the keys of a project: set {_KEYS}")

    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterator[Item]:
        """Yield the scores of a stage."""
        environment = self._environment()
        for placed in self.placed_results(evaluation, span):
            result, by_label = placed.result, placed.result.name == VERDICT
            is_whole_trace = placed.span_id == span.span_id and span.parent_span_id is None
            body = {
                "id": placed.shared_id,
                "traceId": span.trace_id,
                "observationId": None if is_whole_trace else placed.span_id,
                "name": result.name,
                "value": result.label if by_label else result.value,
                "dataType": "CATEGORICAL" if by_label else "NUMERIC",
                "comment": result.explanation,
                # Without 0x, Langfuse would read an id of digits as a number.
                "metadata": {**placed.details, SPAN_KEY: f"0x{span.span_id}"},
                "environment": environment,
                # Langfuse replaces a score that comes with the same id and time, so a repeat must keep both.
                "timestamp": iso_time(placed.evaluated_at),
            }
            yield Item(target=span.trace_id, name=result.name, body=known(body))

    def session_items(self, session_id: str, score: Score, first: Turn) -> Iterator[Item]:
        """Yield a score of the session."""
        body = {
            "id": f"{score.name} {session_id}",
            "sessionId": session_id,
            "name": score.name,
            "value": score.value,
            "dataType": "NUMERIC",
            "comment": score.explanation,
            "metadata": score.metadata,
            "environment": self._environment(),
            "timestamp": iso_time(0 if first.timing is None else first.timing.ended_at),  # for a repeat, as above
        }
        yield Item(target=session_id, name=score.name, body=known(body))

    def connect(self) -> LangfuseServer:
        """Return the server."""
        return LangfuseServer(self._address(), {"authorization": self._login()})

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the server takes spans; the keys decide the project."""
        address = self._address()
        headers = {"authorization": self._login(), "x-langfuse-ingestion-version": "4"}
        return OtlpPlace(url=f"{address}{_OTLP_PATH}/v1/traces", headers=headers, page=safe_url(address))

    def gets(self, place: OtlpPlace) -> bool:
        """Return True for a Langfuse."""
        # For example https://cloud.langfuse.com/api/public/otel/v1/traces: no other backend has this path.
        return _OTLP_PATH in place.url

    def applies(self) -> bool:
        """Return True if the keys are set and the spans go to a Langfuse."""
        return self._has_keys and super().applies()

    @property
    def _has_keys(self) -> bool:
        return bool(self._public_key and reveal(self._secret_key))

    def _environment(self) -> str | None:
        """Return the environment that Langfuse gives the spans, so that scores are in the same."""
        attributes = resource_attributes(self.provider)
        names = [variable("LANGFUSE_TRACING_ENVIRONMENT")]
        names += [str(attributes.get(name, "")) for name in _ENVIRONMENT_ATTRIBUTES]
        environment = next(filter(None, names), "")
        return environment if _ENVIRONMENT.fullmatch(environment) else None

    def _login(self) -> str:
        return basic_auth(self._public_key, reveal(self._secret_key))

    def _address(self) -> str:
        named = reveal(self._base_url) or variable("LANGFUSE_BASE_URL", "LANGFUSE_HOST")
        of_spans = self.place_of_spans().url.partition(_OTLP_PATH)[0]
        return (named or of_spans or _CLOUD).strip().rstrip("/")


class LangfuseAutoExporter(LangfuseExporter):
    """Does the same where the spans go to a Langfuse and its keys are set, and nothing elsewhere."""

    name: ClassVar[str] = "langfuse-auto"
    automatic: ClassVar[bool] = True


class LangfuseServer(ScoreServer):
    """Langfuse's scores API. Scores may come before their traces; one with a known id replaces the first."""

    backend: ClassVar[str] = "Langfuse"
    credentials: ClassVar[str] = _KEYS

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> None:
        """Send a list of scores. Older servers reject it, and get one score per request: the queue sends its halves."""
        answer = self.request("POST", _ROUTE, json=bodies[0] if len(bodies) == 1 else list(bodies))
        # Ids are stable, so the faulty scores are found by sending parts again.
        if answer.status_code == 207:
            raise RejectedError("answers 207: some of the scores are not accepted")

    def has(self, item: Item) -> bool:
        """Return True if the server lists a score."""
        params = {"traceId": item.target, "limit": "100"}
        answer = self.request("GET", "api/public/v3/scores", params=params, accept=(404,))
        if answer.status_code == 404:  # before 3.179
            answer = self.request("GET", "api/public/v2/scores", params=params)
        return any(score.get("id") == item.body["id"] for score in answer.json().get("data", ()))
