"""Scores as Langfuse's scores: of the trace, or of the observation if the turn is a part of a larger trace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Unpack

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.delivery import (
    DeliveryOptions,
    HttpApi,
    HttpDestination,
    Item,
    PostError,
    RejectedError,
    ScoreApiExporter,
    as_secret,
    basic_auth,
    evaluated_at,
    iso_time,
    post_each,
    reveal,
    score_details,
    score_id,
    variable,
)
from rageval_hooks.exporters.otlp_places import OtlpPlace, otlp_places, resource_attributes
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation, Score
from rageval_hooks.turn import SpanReference

__all__ = ["LangfuseAutoExporter", "LangfuseExporter"]

_CLOUD = "https://cloud.langfuse.com"
_OTLP_PATH = "/api/public/otel"
_KEYS = "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"
_ROUTE = "api/public/scores"

# As Langfuse reads them from the resource of OTLP.
_ENVIRONMENT_ATTRIBUTES = ("langfuse.environment", "deployment.environment.name", "deployment.environment")
# For example "staging" or "eu-1"; the API rejects a score with any other name.
_ENVIRONMENT = re.compile(r"(?!langfuse)[a-z0-9_-]{1,40}")


class LangfuseExporter(ScoreApiExporter):
    """Posts scores to Langfuse, which does not read them from spans.

    A turn that is a whole trace gets scores of the trace. A turn below another span gets scores of its observation.
    Metrics that failed or were skipped are not posted: a score of Langfuse is always a value.

    Args:
        base_url: by default ``LANGFUSE_BASE_URL`` or ``LANGFUSE_HOST``, else where the spans go, else Langfuse's cloud.
        public_key: by default ``LANGFUSE_PUBLIC_KEY``.
        secret_key: by default ``LANGFUSE_SECRET_KEY``.
        options: see :class:`rageval_hooks.exporters.delivery.ScoreApiExporter`.

    Raises:
        ConfigurationError: a key is missing.
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "langfuse"
    backend: ClassVar[str] = "Langfuse"
    extra: ClassVar[str] = "langfuse"

    def __init__(
        self,
        base_url: str | None = None,
        *,
        public_key: str | None = None,
        secret_key: str | SecretStr | None = None,
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
        timestamp = iso_time(evaluated_at(evaluation.turn))
        environment = environment_of_spans(self.provider)
        for score, span_id in self.placed_scores(evaluation, span):
            body = _body(score, span_id, span)
            # Langfuse replaces a score that comes with the same id and time, so a repeat must keep both.
            body["timestamp"] = timestamp
            if environment is not None:
                body["environment"] = environment
            yield Item(route=_ROUTE, target=span.trace_id, body=body)

    def connect(self) -> LangfuseApi:
        """Return the server."""
        return LangfuseApi(self._address(), self._login())

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the server takes spans; the keys decide the project."""
        address = self._address()
        headers = {"authorization": self._login(), "x-langfuse-ingestion-version": "4"}
        return OtlpPlace(url=f"{address}{_OTLP_PATH}/v1/traces", headers=headers, page=safe_url(address))

    @property
    def _has_keys(self) -> bool:
        return bool(self._public_key and reveal(self._secret_key))

    def _login(self) -> str:
        return basic_auth(self._public_key, reveal(self._secret_key))

    def _address(self) -> str:
        named = reveal(self._base_url) or variable("LANGFUSE_BASE_URL", "LANGFUSE_HOST")
        return (named or langfuse_of_spans(self.provider) or _CLOUD).strip().rstrip("/")


class LangfuseAutoExporter(LangfuseExporter):
    """Does the same where the spans go to a Langfuse and its keys are set, and nothing elsewhere."""

    name: ClassVar[str] = "langfuse-auto"
    automatic: ClassVar[bool] = True

    def applies(self) -> bool:
        """Return True if the keys are set and the spans go to a Langfuse."""
        return self._has_keys and langfuse_of_spans(self.provider) is not None


class LangfuseApi(HttpDestination):
    """Langfuse's scores API.

    Args:
        url: the base URL.
        login: the header ``Authorization``.
    """

    def __init__(self, url: str, login: str) -> None:
        headers = {"authorization": login}
        super().__init__(HttpApi(url, backend="Langfuse", credentials=_KEYS, extra="langfuse", headers=headers))
        self._takes_lists = True

    def post(
        self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool
    ) -> list[PostError | None] | None:
        """Send scores. They may come before their traces; one with a known id replaces the first.

        Raises:
            RejectedError: a score is not accepted.
            UnavailableError: the server cannot be reached, does not work, or wants another key.
        """
        if not self._takes_lists:
            return post_each(bodies, lambda body: self._send(route, body))
        try:
            self._send(route, list(bodies))
        except RejectedError:
            # The queue asks again for each half, so in the end a single score decides.
            if len(bodies) > 1:
                raise
            # Older servers take one score per request, without a list around it.
            self._send(route, bodies[0])
            self._takes_lists = False
        return None

    def has(self, item: Item) -> bool:
        """Return True if the server lists a score."""
        # Servers before 3.179 have the second path only.
        for path in ("api/public/v3/scores", "api/public/v2/scores"):
            answer = self._http.request("GET", path, params={"traceId": item.target, "limit": "100"})
            if answer.status != 404:
                break
        if not answer.ok:
            raise self._http.refusal(answer)
        found = answer.json() or {}
        return any(score.get("id") == item.body["id"] for score in found.get("data", ()))

    def _send(self, route: str, body: Any) -> None:
        answer = self._http.request("POST", route, body=body)
        # 207: some scores of the list were accepted. Ids are stable, so the rest is found by sending parts again.
        if answer.status == 207:
            raise RejectedError("answers 207: some of the scores are not accepted")
        if not answer.ok:
            raise self._http.refusal(answer)


def langfuse_of_spans(provider: object) -> str | None:
    """Return the base URL of the Langfuse that gets the spans; None if they go elsewhere."""
    for place in otlp_places(provider):
        # For example https://cloud.langfuse.com/api/public/otel/v1/traces: no other backend has this path.
        base, found, _ = place.url.partition(_OTLP_PATH)
        if found:
            return base
    return None


def environment_of_spans(provider: object) -> str | None:
    """Return the environment that Langfuse gives the spans, so that scores are in the same; None for the default."""
    names = [variable("LANGFUSE_TRACING_ENVIRONMENT")]
    attributes = resource_attributes(provider)
    names += [str(attributes.get(name, "")) for name in _ENVIRONMENT_ATTRIBUTES]
    name = next(filter(None, names), "")
    return name if _ENVIRONMENT.fullmatch(name) else None


def _body(score: Score, span_id: str, span: SpanReference) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": str(score_id(span, score)),
        "traceId": span.trace_id,
        "name": score.name,
        "value": score.value,
        "dataType": "NUMERIC",
        "metadata": score_details(score),
    }
    is_of_trace = span_id == span.span_id and span.parent_span_id is None
    if not is_of_trace:
        body["observationId"] = span_id
    if score.explanation is not None:
        body["comment"] = score.explanation
    return body
