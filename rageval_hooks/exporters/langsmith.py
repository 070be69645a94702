"""Scores as LangSmith's feedback: on the LangChain run, or on the run that LangSmith makes of an OTLP span."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Unpack
from urllib.parse import urlsplit
from uuid import UUID

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.credentials import Secret, as_secret, reveal, variable
from rageval_hooks.exporters.delivery_queue import Item, Outcomes, TargetsMissingError
from rageval_hooks.exporters.otlp_places import OtlpPlace
from rageval_hooks.exporters.score_api import DeliveryOptions, ScoreApiExporter, ScoreServer, iso_time, known
from rageval_hooks.score import Evaluation, Failed
from rageval_hooks.turn import SpanReference, Turn

RunSelection = Literal["auto", "langchain", "otlp"]

_CLOUD = "https://api.smith.langchain.com"
_CLOUD_HOST = "smith.langchain.com"
_PROJECT_HEADER = "langsmith-project"
_KEY = "LANGSMITH_API_KEY"
_ROUTE = "feedback"
_DECIMALS = 4
"""The API rejects a score with more."""


class LangsmithExporter(ScoreApiExporter):
    """Posts scores to LangSmith as feedback. It never extends the retention of a trace, which LangSmith bills.

    Args:
        endpoint: by default ``LANGSMITH_ENDPOINT``, else where the spans go, else LangSmith's cloud.
        api_key: by default ``LANGSMITH_API_KEY``. ``LANGCHAIN_*`` is read for each variable of ``LANGSMITH_*``.
        project: the project with the runs; by default ``LANGSMITH_PROJECT``, or the one that the spans go to.
        runs: what gets the feedback: ``langchain`` for the root run of LangChain, as LangSmith's own tracer sends it;
            ``otlp`` for the run that LangSmith makes of the turn's span; ``auto`` for the first where that tracer is
            on, and for the second elsewhere.
        options: see :class:`rageval_hooks.exporters.score_api.ScoreApiExporter`.

    Raises:
        ConfigurationError: the key is missing.
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "langsmith"
    backend: ClassVar[str] = "LangSmith"
    takes_failures: ClassVar[bool] = True
    takes_traces: ClassVar[bool] = True

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        api_key: Secret = None,
        project: str | None = None,
        runs: RunSelection = "auto",
        **options: Unpack[DeliveryOptions],
    ) -> None:
        super().__init__(**options)
        # The URL may hold a password.
        self._endpoint = as_secret(endpoint)
        self._api_key = as_secret(api_key or _variable("API_KEY"))
        self._project = project
        self._runs: RunSelection = runs
        if not self.automatic and not reveal(self._api_key):
            raise ConfigurationError(f"the exporter 'langsmith' needs a key: set {_KEY}")

    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterator[Item]:
        """Yield the feedback of a stage."""
        in_langchain = self._langchain_run(evaluation.turn)
        # LangSmith's tracer knows LangChain only; other turns get there as spans, or not at all.
        if self.automatic and in_langchain is None and not self.place_of_spans().url:
            return
        for placed in self.placed_results(evaluation, span):
            result, time = placed.result, iso_time(placed.evaluated_at)
            # LangSmith gives the run of a span the span's id with zeros before it.
            # Its own tracer's root run has the id of the trace.
            run = placed.span_id.zfill(32) if span.is_known else span.trace_id
            by_otlp = {"run_id": str(UUID(hex=run)), "trace_id": str(UUID(hex=span.trace_id))}
            body = {
                "id": placed.shared_id,
                "created_at": time,
                "modified_at": time,
                **({"run_id": in_langchain} if in_langchain else by_otlp),
                "key": result.name,
                "score": None if result.value is None else round(result.value, _DECIMALS),
                "value": result.label,
                "comment": result.explanation,
                "error": True if isinstance(result, Failed) else None,
                "feedback_source": {
                    "type": "model" if result.annotator == "LLM" else "api",
                    "metadata": placed.details,
                },
                "extend_trace_retention": False,
            }
            yield Item(route=placed.route, target=str(body["run_id"]), name=result.name, body=known(body))

    def connect(self) -> LangsmithServer:
        """Return the server."""
        of_spans = self.place_of_spans().headers.get(_PROJECT_HEADER)
        # LangSmith's SDK reads these, and calls a project without a name "default".
        project = self._project or of_spans or _variable("PROJECT") or _variable("SESSION") or "default"
        return LangsmithServer(self._address(), self._headers(), project)

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where LangSmith takes spans."""
        headers = {**self._headers(), _PROJECT_HEADER: project}
        return OtlpPlace(url=f"{self._address()}/otel/v1/traces", headers=headers, page=f"https://{_CLOUD_HOST}")

    def applies(self) -> bool:
        """Return True if there is a key, and LangSmith gets runs of its tracer or spans."""
        return bool(reveal(self._api_key)) and (_langsmith_traces() or super().applies())

    def _headers(self) -> dict[str, str]:
        headers = {"x-api-key": reveal(self._api_key)}
        # A key of a whole organization needs to know the workspace.
        if workspace := _variable("WORKSPACE_ID"):
            headers["x-tenant-id"] = workspace
        return headers

    def _langchain_run(self, turn: Turn) -> str | None:
        """Return the id of the turn's run of LangChain; None if LangSmith gets spans instead."""
        if turn.framework != "langchain" or self._runs == "otlp":
            return None
        if self._runs == "auto" and not _langsmith_traces():
            return None
        try:
            return str(UUID(turn.id))
        except ValueError:
            return None

    def gets(self, place: OtlpPlace) -> bool:
        """Return True for LangSmith."""
        # For example https://eu.api.smith.langchain.com/otel; a server of the user is known by the header.
        return (urlsplit(place.url).hostname or "").endswith(_CLOUD_HOST) or _PROJECT_HEADER in place.headers

    def _address(self) -> str:
        of_spans = self.place_of_spans().url.partition("/otel")[0]
        return (reveal(self._endpoint) or _variable("ENDPOINT") or of_spans or _CLOUD).strip().strip("\"'").rstrip("/")


class LangsmithAutoExporter(LangsmithExporter):
    """Does the same where LangSmith's tracer is on or the spans go to LangSmith, and nothing elsewhere."""

    name: ClassVar[str] = "langsmith-auto"
    automatic: ClassVar[bool] = True


class LangsmithServer(ScoreServer):
    """LangSmith's feedback API.

    Args:
        url: the base URL.
        headers: sent with every request.
        project: the name of the project with the runs.
    """

    backend: ClassVar[str] = "LangSmith"
    credentials: ClassVar[str] = f"{_KEY} (and LANGSMITH_WORKSPACE_ID for a key of a whole organization)"

    def __init__(self, url: str, headers: Mapping[str, str], project: str) -> None:
        super().__init__(url, headers)
        self._project = project
        self._project_id: str | None = None

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> Outcomes:
        """Send feedback, one per request, with the id of its project, which LangSmith wants."""
        if self._project_id is None:
            self._find_project()
        if self._project_id:
            bodies = [{**body, "session_id": self._project_id} for body in bodies]
        return super().post(route, bodies)

    def post_one(self, body: Mapping[str, Any]) -> None:
        """Send one feedback."""
        answer = self.request("POST", _ROUTE, json=body, accept=(404, 409))
        # 409: it is stored. Either an earlier attempt had arrived, though its answer was lost, or one of two verdicts
        # comes after the other: the judge's replaces the local one, and never the other way around. A person may have
        # changed their mind.
        source = body["feedback_source"]
        if answer.status_code == 409 and (source["type"] == "model" or source["metadata"]["annotator"] == "HUMAN"):
            changed = {name: body.get(name) for name in ("score", "value", "comment")}
            answer = self.request("PATCH", f"{_ROUTE}/{body['id']}", json=changed, accept=(404,))
        if answer.status_code == 404:
            raise TargetsMissingError

    def has(self, item: Item) -> bool:
        """Return True if the server shows a feedback."""
        return self.request("GET", f"{_ROUTE}/{item.body['id']}", accept=(404,)).is_success

    def _find_project(self) -> None:
        """Look up the project's id; empty if the key may not read projects, and feedback is sent without one."""
        params = {"limit": "1", "name": self._project, "include_stats": "false"}
        answer = self.request("GET", "sessions", params=params, accept=(403, 404))
        # The project is made when its first run arrives; until then the runs are missing too.
        if answer.status_code == 403:
            self._project_id = ""
        elif answer.is_success and (found := answer.json()):
            self._project_id = str(found[0]["id"])


def _langsmith_traces() -> bool:
    """Return True if LangSmith's own tracer sends the runs of LangChain, and not only as spans."""
    # Not imported here: an application without LangSmith must not load it.
    utils = sys.modules.get("langsmith.utils")
    if utils is None:
        return False
    only_spans = _variable("TRACING_MODE").lower() == "otel" or _variable("OTEL_ONLY").lower() in ("true", "1")
    return bool(utils.tracing_is_enabled()) and not only_spans


def _variable(name: str) -> str:
    """Return a variable as LangSmith's SDK reads it, for example ``LANGSMITH_API_KEY``, else ``LANGCHAIN_API_KEY``."""
    return variable(f"LANGSMITH_{name}", f"LANGCHAIN_{name}").strip("\"'")
