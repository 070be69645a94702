"""Scores as W&B Weave's feedback: the scores of a call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Unpack
from urllib.parse import urlsplit

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.delivery import (
    DeliveryOptions,
    HttpApi,
    HttpDestination,
    Item,
    PostError,
    ScoreApiExporter,
    UnavailableError,
    as_secret,
    basic_auth,
    post_each,
    reveal,
    score_details,
    score_id,
    variable,
)
from rageval_hooks.exporters.otlp_places import OtlpPlace, otlp_places, resource_attributes
from rageval_hooks.score import Evaluation, Score
from rageval_hooks.turn import SpanReference

__all__ = ["WeaveAutoExporter", "WeaveExporter"]

_CLOUD = "https://trace.wandb.ai"
_URL_VARIABLE = "WF_TRACE_SERVER_URL"
_KEY = "WANDB_API_KEY"
_PROJECT = "WANDB_ENTITY and WANDB_PROJECT"
_PROJECT_HEADER = "project_id"
_CREATE = "feedback/create"
_QUERY = "feedback/query"

# An entity and a project, for example "harbour/ferry-bot".
_PROJECT_ID = re.compile(r"[^/\s]{1,100}/[^/\s]{1,100}")
# What the name of a scorer may not have, for example the sign in "precision@5".
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")

# W&B's SDK sends these fields too; a score has no values for them.
_UNUSED: Mapping[str, Any] = {
    "scorer_tags": [],
    "scorer_tag_reasons": {},
    "scorer_tag_confidences": {},
    "scorer_ratings": {},
    "scorer_rating_reasons": {},
    "scorer_rating_confidences": {},
    "span_agent_name": "",
    "span_agent_version": "",
    "span_status_code": "UNSET",
    "span_conversation_id": "",
    "span_trace_id": "",
    "scorer_trace_id": "",
}


class WeaveExporter(ScoreApiExporter):
    """Posts scores to Weave, each as the output of a scorer on the call that Weave makes of the turn's span.

    Metrics that failed or were skipped are not posted: a scorer's output is always a value.

    Args:
        project: the entity and the project, such as ``"harbour/ferry-bot"``; by default ``WANDB_ENTITY`` and
            ``WANDB_PROJECT``, else the project that the spans are sent to.
        api_key: by default ``WANDB_API_KEY``.
        url: the trace server; by default ``WF_TRACE_SERVER_URL``, else W&B's cloud.
        options: see :class:`rageval_hooks.exporters.delivery.ScoreApiExporter`.

    Raises:
        ConfigurationError: the key or the project is missing.
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "weave"
    backend: ClassVar[str] = "Weave"
    extra: ClassVar[str] = "weave"

    def __init__(
        self,
        project: str | None = None,
        *,
        api_key: str | SecretStr | None = None,
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
        found = self._project or _project_of_variables() or project_of_spans(self.provider)
        if found is None or not _PROJECT_ID.fullmatch(found):
            raise ConfigurationError(f"the exporter 'weave' needs an entity and a project: set {_PROJECT}")
        return found

    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterator[Item]:
        """Yield the feedback of a stage."""
        project = self.project_id()
        for score, span_id in self.placed_scores(evaluation, span):
            body = {"id": str(score_id(span, score)), **_UNUSED, **_feedback(project, span_id, score)}
            yield Item(route=_CREATE, target=span_id, body=body)

    def connect(self) -> WeaveApi:
        """Return the server."""
        return WeaveApi(reveal(self._url), self._login())

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the server takes spans."""
        headers = {"authorization": self._login(), _PROJECT_HEADER: self.project_id()}
        page = f"https://wandb.ai/{self.project_id()}/weave"
        return OtlpPlace(url=f"{reveal(self._url)}/otel/v1/traces", headers=headers, page=page)

    def _login(self) -> str:
        return basic_auth("api", reveal(self._api_key))


class WeaveAutoExporter(WeaveExporter):
    """Does the same where the spans go to Weave and its key is set, and nothing elsewhere."""

    name: ClassVar[str] = "weave-auto"
    automatic: ClassVar[bool] = True

    def applies(self) -> bool:
        """Return True if there is a key and the spans go to a project of Weave."""
        return bool(reveal(self._api_key)) and project_of_spans(self.provider) is not None


class WeaveApi(HttpDestination):
    """Weave's feedback API.

    Args:
        url: the base URL.
        login: the header ``Authorization``.
    """

    def __init__(self, url: str, login: str) -> None:
        headers = {"authorization": login}
        super().__init__(HttpApi(url, backend="Weave", credentials=_KEY, extra="weave", headers=headers))
        self._uncertain: set[str] = set()

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool) -> list[PostError | None]:
        """Send feedback, and return the error of each. It may come before its call."""
        return post_each(bodies, self._send)

    def _send(self, body: Mapping[str, Any]) -> None:
        own_id = body["id"]
        # It is not known that Weave replaces feedback with a known id. So it is asked before a repeat.
        if own_id in self._uncertain and self._has(body):
            self._uncertain.discard(own_id)
            return
        # Without an answer, or with a server error, the feedback may be stored or not.
        self._uncertain.add(own_id)
        answer = self._http.request("POST", _CREATE, body=body)
        if answer.status < 500:
            self._uncertain.discard(own_id)
        if not answer.ok:
            raise self._http.refusal(answer)

    def _has(self, body: Mapping[str, Any]) -> bool:
        """Return True if the server has the feedback.

        Raises:
            UnavailableError: it does not say.
        """
        same_id = {"$eq": [{"$getField": "id"}, {"$literal": body["id"]}]}
        query = {"project_id": body["project_id"], "fields": ["id"], "query": {"$expr": same_id}, "limit": 1}
        answer = self._http.request("POST", _QUERY, body=query)
        found = answer.json()
        if not answer.ok or not isinstance(found, dict):
            raise UnavailableError(f"answers {answer.status} to a query", answer.retry_after)
        return bool(found.get("result"))


def project_of_spans(provider: object) -> str | None:
    """Return the entity and the project of the Weave that gets the spans; None if they go elsewhere."""
    own_host = urlsplit(variable(_URL_VARIABLE)).hostname
    for place in otlp_places(provider):
        # For example https://trace.wandb.ai/otel/v1/traces. The header alone could be another backend's.
        host = urlsplit(place.url).hostname or ""
        if not host.endswith("wandb.ai") and host != own_host:
            continue
        attributes = resource_attributes(provider)
        of_resource = f"{attributes.get('wandb.entity', '')}/{attributes.get('wandb.project', '')}"
        found = place.headers.get(_PROJECT_HEADER) or of_resource
        if _PROJECT_ID.fullmatch(found):
            return found
    return None


def _project_of_variables() -> str | None:
    entity, project = variable("WANDB_ENTITY"), variable("WANDB_PROJECT")
    return f"{entity}/{project}" if entity and project else None


def _feedback(project: str, span_id: str, score: Score) -> dict[str, Any]:
    """Return the part of the feedback that says what is scored, and how good it is."""
    scorer = _NOT_IN_NAMES.sub("_", score.name)
    # The version of the metric is the version of the scorer. Weave's versions are hashes.
    digest = blake2b(score.version.encode(), digest_size=16).hexdigest()
    output = {"score": score.value, **score_details(score)}
    if score.explanation is not None:
        output["explanation"] = score.explanation
    return {
        "project_id": project,
        # Weave makes a call of each span, with the span's id.
        "weave_ref": f"weave:///{project}/call/{span_id}",
        "feedback_type": f"wandb.runnable.{scorer}",
        "payload": {"output": output},
        "runnable_ref": f"weave:///{project}/op/{scorer}:{digest}",
    }
