"""The score APIs, as far as a test or benchmark that runs against all of them must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rageval_hooks.exporters.datadog import DatadogAutoExporter, DatadogExporter
from rageval_hooks.exporters.langfuse import LangfuseAutoExporter, LangfuseExporter
from rageval_hooks.exporters.langsmith import LangsmithAutoExporter, LangsmithExporter
from rageval_hooks.exporters.score_api import ScoreApiExporter
from rageval_hooks.exporters.weave import WeaveAutoExporter, WeaveExporter
from tests.exporters.recording import Recorded, Reply

__all__ = ["BACKENDS", "SECRET", "Backend", "Store"]

SECRET = "sk-do-not-show"


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A score API, as far as these tests differ.

    Attributes:
        exporter: the exporter's class.
        automatic: the one that is on by itself.
        variables: the credentials, as the vendor's SDK reads them.
        address: the variable with the server's URL.
        place: where spans go that it recognises, and with which headers.
        scores: the scores of a request's body.
        identity: what tells a score from any other, for that backend.
        replaces: True if the backend replaces a score by one with the same identity.
    """

    exporter: type[ScoreApiExporter]
    automatic: type[ScoreApiExporter]
    variables: dict[str, str]
    address: str
    place: tuple[str, str]
    scores: Callable[[Any], list[dict[str, Any]]]
    identity: Callable[[dict[str, Any]], Any]
    replaces: bool = True


class Store:
    """What a backend has stored.

    Attributes:
        taken: how often it took each score, by what identifies it.
    """

    def __init__(self, backend: Backend) -> None:
        self.taken: Counter[Any] = Counter()
        self._backend = backend

    def respond(self, request: Recorded) -> Reply:
        """Take scores, and say which ones are there."""
        if request.path.endswith("/query"):
            [_, literal] = request.body["query"]["$expr"]["$eq"]
            return Reply(body={"result": [{"id": literal["$literal"]}] if literal["$literal"] in self.taken else []})
        if request.method == "POST":
            self.taken.update(self._backend.identity(score) for score in self._backend.scores(request.body))
        return Reply(status=202)

    @property
    def doubled(self) -> int:
        """How many scores are there more than once."""
        return 0 if self._backend.replaces else sum(times > 1 for times in self.taken.values())


BACKENDS = {
    "langfuse": Backend(
        exporter=LangfuseExporter,
        automatic=LangfuseAutoExporter,
        variables={"LANGFUSE_PUBLIC_KEY": "pk-1", "LANGFUSE_SECRET_KEY": SECRET},
        address="LANGFUSE_BASE_URL",
        place=("https://cloud.langfuse.com/api/public/otel", ""),
        scores=lambda body: body if isinstance(body, list) else [body],
        identity=lambda score: (score["id"], score["timestamp"]),
    ),
    "langsmith": Backend(
        exporter=LangsmithExporter,
        automatic=LangsmithAutoExporter,
        variables={"LANGSMITH_API_KEY": SECRET},
        address="LANGSMITH_ENDPOINT",
        place=("https://eu.api.smith.langchain.com/otel", ""),
        scores=lambda body: [body],
        identity=lambda score: score["id"],
    ),
    "datadog": Backend(
        exporter=DatadogExporter,
        automatic=DatadogAutoExporter,
        variables={"DD_API_KEY": SECRET},
        address="DD_LLMOBS_OVERRIDE_ORIGIN",
        place=("https://otlp.us3.datadoghq.com/v1/traces", "dd-otlp-source=llmobs"),
        scores=lambda body: body["data"]["attributes"]["metrics"],
        identity=lambda score: (score["join_on"]["span"]["span_id"], score["label"], score["timestamp_ms"]),
    ),
    "weave": Backend(
        exporter=WeaveExporter,
        automatic=WeaveAutoExporter,
        variables={"WANDB_API_KEY": SECRET, "WANDB_ENTITY": "harbour", "WANDB_PROJECT": "ferry-bot"},
        address="WF_TRACE_SERVER_URL",
        place=("https://trace.wandb.ai/otel/v1/traces", "project_id=harbour/ferry-bot"),
        scores=lambda body: [body] if "feedback_type" in body else [],
        identity=lambda score: score["id"],
        replaces=False,  # or so it must be assumed
    ),
}
