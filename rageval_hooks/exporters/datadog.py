"""Scores as evaluation metrics of Datadog's LLM Observability."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Unpack
from urllib.parse import urlsplit

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.credentials import Secret, as_secret, reveal, variable
from rageval_hooks.exporters.delivery_queue import Item
from rageval_hooks.exporters.otlp_places import OtlpPlace, resource_attributes
from rageval_hooks.exporters.score_api import DeliveryOptions, ScoreApiExporter, ScoreServer, known
from rageval_hooks.score import VERDICT, Evaluation
from rageval_hooks.turn import SpanReference

_KEY = "DD_API_KEY"
_PATH = "api/intake/llm-obs/v2/eval-metric"
_AGENT_PORT = "8126"
_DEFAULT_SITE = "datadoghq.com"
_KEY_HEADER = "dd-api-key"
_SOURCE_HEADER = "dd-otlp-source"

# The sites' hosts, for example "otlp.us3.datadoghq.com", "trace.agent.datadoghq.eu", "otlp.ap1.datadoghq.com".
_SITE = re.compile(r"(?:^|\.)((?:[a-z]{2}\d\.)?(?:datadoghq\.(?:com|eu)|ddog-gov\.com))$")

# Labels have letters, digits and underscores only: not the dot in "trace.adherence".
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_]")

_ASSESSMENTS = {"pass": "pass", "fail": "fail", "good": "pass", "bad": "fail"}


class DatadogExporter(ScoreApiExporter):
    """Posts scores to Datadog as evaluations of the turn's span, whose ids they have.

    With ``DD_API_KEY`` they go to the site ``DD_SITE``. Without a key, or with ``DD_LLMOBS_AGENTLESS_ENABLED=false``,
    they go through the Datadog agent at ``DD_TRACE_AGENT_URL``, or ``DD_AGENT_HOST`` and ``DD_TRACE_AGENT_PORT``.
    The verdict is a categorical evaluation, the others are scores. Metrics that failed or were skipped are not posted:
    an evaluation of Datadog is always a value.

    Args:
        url: the base URL of the intake, in place of the site; by default ``DD_LLMOBS_OVERRIDE_ORIGIN``.
        api_key: by default ``DD_API_KEY``, or the header ``dd-api-key`` with which the spans are sent.
        ml_app: the application's name; by default ``DD_LLMOBS_ML_APP``, else the service of the spans' resource.
        options: see :class:`rageval_hooks.exporters.score_api.ScoreApiExporter`.

    Raises:
        ConfigurationError: there is neither a key nor an agent.
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "datadog"
    backend: ClassVar[str] = "Datadog"

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: Secret = None,
        ml_app: str | None = None,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        super().__init__(**options)
        self._url = url or variable("DD_LLMOBS_OVERRIDE_ORIGIN")
        self._api_key = as_secret(api_key, _KEY)
        self._ml_app = ml_app
        if not self.automatic and not self._key() and _agent_url() is None:
            raise ConfigurationError(f"the exporter 'datadog' needs a key or an agent: set {_KEY} or DD_AGENT_HOST")

    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterator[Item]:
        """Yield the evaluations of a stage."""
        # The name under which Datadog lists the application: for spans of OTLP, their service.
        service = str(resource_attributes(self.provider).get("service.name", ""))
        service = "" if service.startswith("unknown_service") else service
        of_variable = variable("DD_LLMOBS_ML_APP")
        ml_app = self._ml_app or of_variable or service or variable("DD_SERVICE") or "unnamed-ml-app"
        for placed in self.placed_results(evaluation, span):
            result, by_label = placed.result, placed.result.name == VERDICT
            body = {
                "event_kind": "evaluation",
                "join_on": {"span": {"span_id": str(int(placed.span_id, 16)), "trace_id": str(int(span.trace_id, 16))}},
                "label": _NOT_IN_LABELS.sub("_", result.name),
                "metric_type": "categorical" if by_label else "score",
                # Part of what identifies an evaluation: a repeat has the same.
                "timestamp_ms": placed.evaluated_at // 1_000_000,
                "categorical_value" if by_label else "score_value": result.label if by_label else result.value,
                "ml_app": ml_app,
                # Datadog then waits until it has converted the span.
                "tags": [f"ml_app:{ml_app}", "source:otel"],
                "eval_scope": "span",
                "assessment": _ASSESSMENTS.get(result.label or ""),
                "reasoning": result.explanation or None,
                "metadata": placed.details,
            }
            yield Item(target=placed.span_id, name=result.name, body=known(body))

    def connect(self) -> DatadogServer:
        """Return the intake or the agent."""
        key, agent = self._key(), _agent_url()
        is_agentless = variable("DD_LLMOBS_AGENTLESS_ENABLED").lower() not in ("0", "false")
        if not self._url and agent is not None and not (key and is_agentless):
            return DatadogServer(agent, {"x-datadog-evp-subdomain": "api"}, path=f"evp_proxy/v2/{_PATH}")
        return DatadogServer(self._url or f"https://api.{self._site()}", {_KEY_HEADER: key}, path=_PATH)

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the site takes spans; the service name decides the application."""
        if not self._key():
            raise ConfigurationError(f"spans for Datadog need a key: set {_KEY}")
        site = self._site()
        headers = {_KEY_HEADER: self._key(), _SOURCE_HEADER: "llmobs"}
        return OtlpPlace(url=f"https://otlp.{site}/v1/traces", headers=headers, page=f"https://app.{site}/llm/traces")

    def gets(self, place: OtlpPlace) -> bool:
        """Return True for Datadog's LLM Observability."""
        # The header sends spans there, and no other backend reads it. Without it they are APM's only.
        return bool(place.headers.get(_SOURCE_HEADER))

    def _key(self) -> str:
        return reveal(self._api_key) or self.place_of_spans().headers.get(_KEY_HEADER, "")

    def _site(self) -> str:
        of_spans = _SITE.search(urlsplit(self.place_of_spans().url).hostname or "")
        return variable("DD_SITE") or (_DEFAULT_SITE if of_spans is None else of_spans[1])


class DatadogAutoExporter(DatadogExporter):
    """Does the same where the spans go to Datadog's LLM Observability, and nothing elsewhere."""

    name: ClassVar[str] = "datadog-auto"
    automatic: ClassVar[bool] = True


class DatadogServer(ScoreServer):
    """The endpoint for evaluation metrics: Datadog's intake, or an agent, which sends its own key.

    Args:
        url: the base URL.
        headers: sent with every request.
        path: of the intake.
    """

    backend: ClassVar[str] = "Datadog"
    credentials: ClassVar[str] = _KEY

    def __init__(self, url: str, headers: Mapping[str, str], *, path: str) -> None:
        super().__init__(url, headers)
        self._path = path

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> None:
        """Send evaluations. They may come before their spans: Datadog joins them later."""
        data = {"type": "evaluation_metric", "attributes": {"metrics": list(bodies)}}
        self.request("POST", self._path, json={"data": data})


def _agent_url() -> str | None:
    """Return the URL of the Datadog agent as ddtrace reads it; None if no variable names one.

    Raises:
        ConfigurationError: it is a Unix socket.
    """
    url = variable("DD_TRACE_AGENT_URL")
    if url.startswith("unix:"):
        raise ConfigurationError("the exporter 'datadog' speaks HTTP: set DD_AGENT_HOST instead of a Unix socket")
    host = variable("DD_AGENT_HOST")
    if url or not host:
        return url or None
    return f"http://{host}:{variable('DD_TRACE_AGENT_PORT') or _AGENT_PORT}"
