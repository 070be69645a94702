"""Scores as evaluation metrics of Datadog's LLM Observability."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Unpack
from urllib.parse import urlsplit

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.delivery import (
    DeliveryOptions,
    HttpApi,
    HttpDestination,
    Item,
    ScoreApiExporter,
    as_secret,
    evaluated_at,
    reveal,
    score_details,
    variable,
)
from rageval_hooks.exporters.otlp_places import OtlpPlace, otlp_places, resource_attributes
from rageval_hooks.score import Evaluation
from rageval_hooks.turn import SpanReference

__all__ = ["DatadogAutoExporter", "DatadogExporter"]

_KEY = "DD_API_KEY"
_PATH = "api/intake/llm-obs/v2/eval-metric"
_AGENT_PATH = f"evp_proxy/v2/{_PATH}"
_AGENT_PORT = "8126"
_DEFAULT_SITE = "datadoghq.com"
_KEY_HEADER = "dd-api-key"
_SOURCE_HEADER = "dd-otlp-source"
_LONGEST_LABEL = 200

# The sites' hosts, for example "otlp.us3.datadoghq.com", "trace.agent.datadoghq.eu", "otlp.ap1.datadoghq.com".
_SITE = re.compile(r"(?:^|\.)((?:[a-z]{2}\d\.)?(?:datadoghq\.(?:com|eu)|ddog-gov\.com))$")

# What a label may not have, for example the dot in "trace.adherence".
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_]")


class DatadogExporter(ScoreApiExporter):
    """Posts scores to Datadog as evaluations of the turn's span, whose ids they have.

    With ``DD_API_KEY`` they go to the site ``DD_SITE``. Without a key, or with ``DD_LLMOBS_AGENTLESS_ENABLED=false``,
    they go through the Datadog agent at ``DD_TRACE_AGENT_URL``, or ``DD_AGENT_HOST`` and ``DD_TRACE_AGENT_PORT``.
    Metrics that failed or were skipped are not posted: an evaluation of Datadog is always a value.

    Args:
        url: the base URL of the intake, in place of the site; by default ``DD_LLMOBS_OVERRIDE_ORIGIN``.
        api_key: by default ``DD_API_KEY``, or the header ``dd-api-key`` with which the spans are sent.
        ml_app: the application's name; by default ``DD_LLMOBS_ML_APP``, else the service of the spans' resource.
        options: see :class:`rageval_hooks.exporters.delivery.ScoreApiExporter`.

    Raises:
        ConfigurationError: there is neither a key nor an agent.
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "datadog"
    backend: ClassVar[str] = "Datadog"
    extra: ClassVar[str] = "datadog"

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | SecretStr | None = None,
        ml_app: str | None = None,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        super().__init__(**options)
        self._url = url or variable("DD_LLMOBS_OVERRIDE_ORIGIN")
        self._api_key = as_secret(api_key, _KEY)
        self._ml_app = ml_app
        if not self.automatic and not self._key() and agent_url() is None:
            raise ConfigurationError(f"the exporter 'datadog' needs a key or an agent: set {_KEY} or DD_AGENT_HOST")

    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterator[Item]:
        """Yield the evaluations of a stage."""
        ml_app = self._ml_app or application_name(self.provider)
        for score, span_id in self.placed_scores(evaluation, span):
            body: dict[str, Any] = {
                "event_kind": "evaluation",
                "join_on": {"span": {"span_id": _decimal(span_id), "trace_id": _decimal(span.trace_id)}},
                "label": _label(score.name),
                "metric_type": "score",
                # Part of what identifies an evaluation: a repeat has the same.
                "timestamp_ms": evaluated_at(evaluation.turn) // 1_000_000,
                "score_value": score.value,
                "ml_app": ml_app,
                # Datadog then waits until it has converted the span.
                "tags": [f"ml_app:{ml_app}", "source:otel"],
                "eval_scope": "span",
                "metadata": score_details(score),
            }
            if score.label in ("pass", "fail"):
                body["assessment"] = score.label
            if score.explanation:
                body["reasoning"] = score.explanation
            yield Item(route=_PATH, target=span_id, body=body)

    def connect(self) -> DatadogApi:
        """Return the intake or the agent."""
        key = self._key()
        if self._url:
            return DatadogApi(self._url, key)
        agent = agent_url()
        if agent is not None and not (key and _is_agentless()):
            return DatadogApi(agent, None)
        return DatadogApi(f"https://api.{self._site()}", key)

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the site takes spans; the service name decides the application."""
        if not self._key():
            raise ConfigurationError(f"spans for Datadog need a key: set {_KEY}")
        site = self._site()
        headers = {_KEY_HEADER: self._key(), _SOURCE_HEADER: "llmobs"}
        return OtlpPlace(url=f"https://otlp.{site}/v1/traces", headers=headers, page=f"https://app.{site}/llm/traces")

    def _key(self) -> str:
        if key := reveal(self._api_key):
            return key
        place = datadog_place(self.provider)
        return "" if place is None else place.headers.get(_KEY_HEADER, "")

    def _site(self) -> str:
        if site := variable("DD_SITE"):
            return site
        place = datadog_place(self.provider)
        return (None if place is None else _site_of(place)) or _DEFAULT_SITE


class DatadogAutoExporter(DatadogExporter):
    """Does the same where the spans go to Datadog's LLM Observability, and nothing elsewhere."""

    name: ClassVar[str] = "datadog-auto"
    automatic: ClassVar[bool] = True

    def applies(self) -> bool:
        """Return True if the spans go to Datadog."""
        return datadog_place(self.provider) is not None


class DatadogApi(HttpDestination):
    """The intake of evaluation metrics.

    Args:
        url: the base URL of the intake or of the agent.
        key: the API key; None for the agent, which has its own.
    """

    def __init__(self, url: str, key: str | None) -> None:
        if key is None:
            self._path, headers = _AGENT_PATH, {"x-datadog-evp-subdomain": "api"}
        else:
            self._path, headers = _PATH, {_KEY_HEADER: key}
        super().__init__(HttpApi(url, backend="Datadog", credentials=_KEY, extra="datadog", headers=headers))

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool) -> None:
        """Send evaluations. They may come before their spans: Datadog joins them later.

        Raises:
            RejectedError: an evaluation is not accepted.
            UnavailableError: the server cannot be reached, does not work, or wants another key.
        """
        data = {"type": "evaluation_metric", "attributes": {"metrics": list(bodies)}}
        answer = self._http.request("POST", self._path, body={"data": data})
        if not answer.ok:
            raise self._http.refusal(answer)


def datadog_place(provider: object) -> OtlpPlace | None:
    """Return the endpoint of Datadog's LLM Observability that gets the spans; None if they go elsewhere."""
    for place in otlp_places(provider):
        # The header sends spans to LLM Observability, and no other backend reads it. Without it they are APM's only.
        if place.headers.get(_SOURCE_HEADER):
            return place
    return None


def agent_url() -> str | None:
    """Return the URL of the Datadog agent as ddtrace reads it; None if no variable names one.

    Raises:
        ConfigurationError: it is a Unix socket.
    """
    url = variable("DD_TRACE_AGENT_URL")
    if url.startswith("unix:"):
        raise ConfigurationError("the exporter 'datadog' speaks HTTP: set DD_AGENT_HOST instead of a Unix socket")
    if url:
        return url
    host = variable("DD_AGENT_HOST")
    if not host:
        return None
    port = variable("DD_TRACE_AGENT_PORT") or _AGENT_PORT
    return f"http://{host}:{port}"


def application_name(provider: object) -> str:
    """Return the name under which Datadog lists the application: for spans of OTLP, their service."""
    if name := variable("DD_LLMOBS_ML_APP"):
        return name
    service = str(resource_attributes(provider).get("service.name", ""))
    if service and not service.startswith("unknown_service"):
        return service
    return variable("DD_SERVICE") or "unnamed-ml-app"


def _is_agentless() -> bool:
    return variable("DD_LLMOBS_AGENTLESS_ENABLED").lower() not in ("0", "false")


def _site_of(place: OtlpPlace) -> str | None:
    found = _SITE.search(urlsplit(place.url).hostname or "")
    return None if found is None else found[1]


def _decimal(id: str) -> str:
    return str(int(id, 16))


def _label(name: str) -> str:
    """Return a name in the form of Datadog's labels: ``trace.adherence`` becomes ``trace_adherence``."""
    label = _NOT_IN_LABELS.sub("_", name)[:_LONGEST_LABEL]
    return label if label[:1].isalpha() else f"score_{label}"
