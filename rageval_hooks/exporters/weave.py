"""Scores as W&B Weave's feedback: the scores of a call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, Unpack
from urllib.parse import urlsplit

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.credentials import Secret, as_secret, basic_auth, reveal, variable
from rageval_hooks.exporters.delivery_queue import Item
from rageval_hooks.exporters.otlp_places import OtlpPlace, resource_attributes
from rageval_hooks.exporters.score_api import DeliveryOptions, ScoreApiExporter, ScoreServer, known
from rageval_hooks.score import Evaluation
from rageval_hooks.turn import SpanReference

_CLOUD = "https://trace.wandb.ai"
_URL_VARIABLE = "WF_TRACE_SERVER_URL"
_KEY = "WANDB_API_KEY"
_PROJECT_HEADER = "project_id"
_CREATE = "feedback/create"

# An entity and a project, for example "harbour/ferry-bot".
_PROJECT_ID = re.compile(r"[^/\s]{1,100}/[^/\s]{1,100}")
# What the name of a scorer may not have, for example the sign in "precision@5".
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")


class WeaveExporter(ScoreApiExporter):
    """Posts scores to Weave, each as the output of a scorer on the call that Weave makes of the turn's span.

    Metrics that failed or were skipped are not posted: a scorer's output is always a value. A judge's verdict is a
    second output of the scorer ``verdict``.

    Args:
        project: the entity and the project, such as ``"harbour/ferry-bot"``; by default ``WANDB_ENTITY`` and
            ``WANDB_PROJECT``, else the project that the spans are sent to.
        api_key: by default ``WANDB_API_KEY``.
        url: the trace server; by default ``WF_TRACE_SERVER_URL``, else W&B's cloud.
        options: see :class:`rageval_hooks.exporters.score_api.ScoreApiExporter`.

    Raises:
        ConfigurationError: the key or the project is missing.
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "weave"
    backend: ClassVar[str] = "Weave"

    def __init__(
        self,
        project: str | None = None,
        *,
        api_key: Secret = None,
        url: str | None = None,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        super().__init__(**options)
        self._project = project
        self._api_key = as_secret(api_key, _KEY)
        self._url = SecretStr((url or variable(_URL_VARIABLE) or _CLOUD).rstrip("/"))
        if self.automatic:
            return
        if not reveal(self._api_key):
            raise ConfigurationError(f"the exporter 'weave' needs a key: set {_KEY}")
        self.project_id()

    def project_id(self) -> str:
        """Return the entity and the project.

        Raises:
            ConfigurationError: they are not known.
        """
        of_variables = f"{variable('WANDB_ENTITY')}/{variable('WANDB_PROJECT')}"
        for found in (self._project, of_variables, self._project_of_spans()):
            if found and _PROJECT_ID.fullmatch(found):
                return found
        raise ConfigurationError(
            "the exporter 'weave' needs an entity and a project: set WANDB_ENTITY and WANDB_PROJECT"
        )

    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterator[Item]:
        """Yield the feedback of a stage."""
        project = self.project_id()
        for placed in self.placed_results(evaluation, span):
            result, scorer = placed.result, _NOT_IN_NAMES.sub("_", placed.result.name)
            # The version of the metric is the version of the scorer. Weave's versions are hashes.
            digest = blake2b((result.version or "").encode(), digest_size=16).hexdigest()
            output = {"score": result.value, **placed.details, "explanation": result.explanation}
            body = {
                "id": placed.id,
                "project_id": project,
                # Weave makes a call of each span, with the span's id.
                "weave_ref": f"weave:///{project}/call/{placed.span_id}",
                "feedback_type": f"wandb.runnable.{scorer}",
                "payload": {"output": known(output)},
                "runnable_ref": f"weave:///{project}/op/{scorer}:{digest}",
            }
            yield Item(target=placed.span_id, name=result.name, body=body)

    def connect(self) -> WeaveServer:
        """Return the server."""
        return WeaveServer(reveal(self._url), {"authorization": self._login()})

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the server takes spans."""
        headers = {"authorization": self._login(), _PROJECT_HEADER: self.project_id()}
        page = f"https://wandb.ai/{self.project_id()}/weave"
        return OtlpPlace(url=f"{reveal(self._url)}/otel/v1/traces", headers=headers, page=page)

    def gets(self, place: OtlpPlace) -> bool:
        """Return True for a server of Weave."""
        # For example https://trace.wandb.ai/otel/v1/traces. The header alone could be another backend's.
        host = urlsplit(place.url).hostname or ""
        return host.endswith("wandb.ai") or host == urlsplit(variable(_URL_VARIABLE)).hostname

    def applies(self) -> bool:
        """Return True if there is a key and the spans go to a project of Weave."""
        return bool(reveal(self._api_key)) and bool(self._project_of_spans())

    def _login(self) -> str:
        return basic_auth("api", reveal(self._api_key))

    def _project_of_spans(self) -> str:
        """Return the entity and the project of the Weave that gets the spans; empty if they go elsewhere."""
        place, attributes = self.place_of_spans(), resource_attributes(self.provider)
        of_resource = f"{attributes.get('wandb.entity', '')}/{attributes.get('wandb.project', '')}"
        found = (place.headers.get(_PROJECT_HEADER) or of_resource) if place.url else ""
        return found if _PROJECT_ID.fullmatch(found) else ""


class WeaveAutoExporter(WeaveExporter):
    """Does the same where the spans go to Weave and its key is set, and nothing elsewhere."""

    name: ClassVar[str] = "weave-auto"
    automatic: ClassVar[bool] = True


class WeaveServer(ScoreServer):
    """Weave's feedback API. Feedback may come before its call."""

    backend: ClassVar[str] = "Weave"
    credentials: ClassVar[str] = _KEY

    def post_one(self, body: Mapping[str, Any]) -> None:
        """Send one feedback. It is not known that Weave replaces feedback with a known id."""
        self.post_once(_CREATE, body, body["id"], lambda: self._stores(body), look_first=False)

    def _stores(self, body: Mapping[str, Any]) -> bool:
        same_id = {"$eq": [{"$getField": "id"}, {"$literal": body["id"]}]}
        query = {"project_id": body["project_id"], "fields": ["id"], "query": {"$expr": same_id}, "limit": 1}
        return bool(self.request("POST", "feedback/query", json=query).json().get("result"))
