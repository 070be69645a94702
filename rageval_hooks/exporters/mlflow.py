"""Scores as MLflow's assessments of the turn's trace.

``httpx`` and not the package ``mlflow``: importing it takes seconds, and no application should have to bear that for
one POST request. The address and the login come from the same variables.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, Unpack
from urllib.parse import urlsplit

from pydantic import SecretStr

from rageval_hooks.errors import ExportError, MissingDependencyError
from rageval_hooks.exporters.credentials import Secret, as_secret, basic_auth, reveal, variable
from rageval_hooks.exporters.delivery_queue import Item, Outcomes, PostError, TargetsMissingError
from rageval_hooks.exporters.otlp_places import OtlpPlace, otlp_places
from rageval_hooks.exporters.score_api import (
    GUARD,
    PEOPLE,
    DeliveryOptions,
    PlacedResult,
    ScoreApiExporter,
    ScoreServer,
    asks_version,
    find_server,
    iso_time,
)
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import ANNOTATED_BY, VERDICT, Evaluation, Failed, Score, annotator_of, metric_of
from rageval_hooks.turn import NO_SPAN, SpanReference, Turn

_logger = logging.getLogger(__name__)

_EXPERIMENT_HEADER = "x-mlflow-experiment-id"
_WORKSPACE_HEADER = "x-mlflow-workspace"
_DEFAULT_URL = "http://localhost:5000"
TRACES = "api/3.0/mlflow/traces"
EXPERIMENTS = "api/2.0/mlflow/experiments"

ID_KEY = "rageval.id"
"""In an assessment's metadata: tells whether it is stored already."""

SESSION_KEY = "mlflow.trace.session"
"""In the metadata of a trace, and of an assessment that is about the whole session."""

_SCORER_KEY = "mlflow.assessment.scorerName"
VERSION_KEY = "mlflow.assessment.scorerVersion"

_JUDGED = ".LLM"
"""Ends the id of the judge's verdict, which else is that of the local one."""

_SOURCE_TYPES = {"CODE": "CODE", "LLM": "LLM_JUDGE", "HUMAN": "HUMAN"}
_PASS_OR_FAIL = {"good": "pass", "bad": "fail"}
"""MLflow draws these words green and red, and every other label of a verdict without a colour."""


class MlflowExporter(ScoreApiExporter):
    """Posts scores to an MLflow server as assessments: a column each in the list of traces, and a panel in the trace.

    Args:
        tracking_uri: the server's base URL. By default ``MLFLOW_TRACKING_URI``, or where the spans go if they carry
            the header ``x-mlflow-experiment-id``; else http://localhost:5000.
        token: sent as a bearer token. By default ``MLFLOW_TRACKING_USERNAME`` and ``MLFLOW_TRACKING_PASSWORD``, or
            ``MLFLOW_TRACKING_TOKEN``.
        options: see :class:`rageval_hooks.exporters.score_api.ScoreApiExporter`. ``scores="main"`` posts the same few
            scores of every turn, since each gets a column: :data:`rageval_hooks.exporters.content.MAIN_SCORES` and
            those of your own metrics. ``scores="all"`` posts every result, and each label as one more.

    Raises:
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "mlflow"
    backend: ClassVar[str] = "MLflow"
    takes_failures: ClassVar[bool] = True
    takes_traces: ClassVar[bool] = True
    few_scores: ClassVar[bool] = True

    def __init__(
        self, tracking_uri: Secret = None, *, token: Secret = None, **options: Unpack[DeliveryOptions]
    ) -> None:
        super().__init__(**options)
        self._uri = as_secret(tracking_uri)
        self._token = as_secret(token)

    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterator[Item]:
        """Yield the assessments of a stage."""
        for position, placed in enumerate(self.placed_results(evaluation, span)):
            # MLflow lists the newest first, by milliseconds: the verdict stays first, and the judge's before the local.
            at = placed.evaluated_at + 2_000_000 * ((placed.replaces is not None) - position)
            is_late = evaluation.stage == "background"
            yield from _assessments(placed, f"tr-{span.trace_id}", at, is_late=is_late, labels=self.scores == "all")

    def session_items(self, session_id: str, score: Score, first: Turn) -> Iterator[Item]:
        """Yield an assessment of the first trace. MLflow shows it on the session that its metadata names."""
        if first.span is None:
            return
        at = time.time_ns()
        placed = PlacedResult(
            result=score.model_copy(update={"version": str(at)}),  # what another version found is replaced
            span_id=NO_SPAN,
            id=f"{session_id} {at}",
            replaces=None,
            evaluated_at=at,
            details={**score.metadata, SESSION_KEY: session_id},
        )
        yield from _assessments(placed, f"tr-{first.span.trace_id}", at, is_late=True, labels=False)

    def connect(self) -> MlflowServer:
        """Return the server."""
        place = self._place()
        if not place.url:
            _logger.warning(
                "rageval-hooks: it is not known where the MLflow server is; scores go to %s. Set MLFLOW_TRACKING_URI "
                "to its address [RAGEVAL-110]",
                _DEFAULT_URL,
            )
        return MlflowServer(place.url or _DEFAULT_URL, place.headers)

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the server takes spans: of ``MLFLOW_EXPERIMENT_ID``, or of the experiment with this name."""
        place = self._place()
        server = MlflowServer(place.url or _DEFAULT_URL, place.headers)
        # MLflow takes spans only with the id of an experiment, which people know by its name.
        try:
            experiment = variable("MLFLOW_EXPERIMENT_ID") or server.experiment_id(project)
        finally:
            server.close()
        url = place.url or _DEFAULT_URL
        page = f"{safe_url(url)}/#/experiments/{experiment}/traces"
        return OtlpPlace(url=f"{url}/v1/traces", headers={**place.headers, _EXPERIMENT_HEADER: experiment}, page=page)

    def gets(self, place: OtlpPlace) -> bool:
        """Return True for an MLflow: it refuses spans without this header, and nothing else has it."""
        return _EXPERIMENT_HEADER in place.headers and _is_http(place.url)

    def _place(self) -> OtlpPlace:
        """Return base URL and login of the server that the user names, else of the one that spans go to, if any."""
        url = reveal(self._uri) or variable("MLFLOW_TRACKING_URI")
        if not self.automatic and _is_http(url):
            return OtlpPlace(url=url.rstrip("/"), headers=_login_headers(self._token))
        return _base_of(self.place_of_spans())


class MlflowAutoExporter(MlflowExporter):
    """Does the same where the spans go to an MLflow, and nothing elsewhere.

    Spans for MLflow carry the header ``x-mlflow-experiment-id``. Before the first score, the server is asked in the
    background whether it is an MLflow: spans may go through a collector.
    """

    name: ClassVar[str] = "mlflow-auto"
    automatic: ClassVar[bool] = True

    def connect(self) -> MlflowServer:
        """Return the server that the spans go to."""
        place = self._place()
        find_server([place.url], "version", locked=True)
        _logger.info(
            "rageval-hooks: scores go to the MLflow at %s as assessments, too [RAGEVAL-113]", safe_url(place.url)
        )
        return MlflowServer(place.url, place.headers)


class MlflowServer(ScoreServer):
    """A server's REST API, as far as assessments need it."""

    backend: ClassVar[str] = "MLflow"
    credentials: ClassVar[str] = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN,"
    # The first request after a start sets up the database, which took 20 seconds on a busy machine.
    timeout: ClassVar[float] = 60.0
    workers: ClassVar[int] = 4

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> Outcomes:
        """Send assessments: the verdicts of judges when the local ones, which they override, are stored."""
        if route == PEOPLE:
            return super().post(route, bodies)
        errors: dict[int, PostError | None] = {}
        for is_judged in (False, True):
            part = [body for body in bodies if bool(body["replaces"]) is is_judged]
            errors |= zip(map(id, part), super().post(route, part) or (), strict=True)
        return [errors[id(body)] for body in bodies]

    def post_one(self, body: MutableMapping[str, Any]) -> None:  # type: ignore[override]  # made below
        """Store an assessment."""
        assessment = dict(body["assessment"])

        def stored() -> bool:
            found = self._stored(body["trace_id"])
            ids = {item["metadata"][ID_KEY]: item.get("assessment_id", "") for item in found}
            if body["replaces"] in ids:
                assessment["overrides"] = ids[body["replaces"]]
            # What another version of the metric found is replaced. A verdict of any version has the same id.
            version = assessment["metadata"].get(VERSION_KEY)
            for item in found:
                other = item["metadata"].get(VERSION_KEY)
                if version and other and other != version and _subject(item) == _subject(assessment):
                    assessment["overrides"] = item["assessment_id"]
                    ids.pop(item["metadata"][ID_KEY], None)
            # A local verdict may come again after the judge's.
            return body["id"] in ids or body["id"] + _JUDGED in ids

        path = f"{TRACES}/{body['trace_id']}/assessments"
        try:
            self.post_once(path, {"assessment": assessment}, body["id"], stored, look_first=body["is_late"])
        except TargetsMissingError:
            # When the trace is there, the judge's verdict may be stored first: the local one then is not stored.
            body["is_late"] = True
            raise

    def refusal(self, answer: Any) -> PostError:
        """Return the error for an answer that is not a success: a trace that has not arrived, or a fault."""
        if answer.status_code == 404 and '"RESOURCE_DOES_NOT_EXIST"' in answer.text:
            return TargetsMissingError()
        return super().refusal(answer)

    def has(self, item: Item) -> bool:
        """Return True if the server lists an assessment of a trace."""
        try:
            return item.body["id"] in (found["metadata"][ID_KEY] for found in self._stored(item.body["trace_id"]))
        except TargetsMissingError:
            return False

    def experiment_id(self, name: str) -> str:
        """Return the id of the experiment with this name; a missing one is created.

        Raises:
            ExportError: the server cannot be asked.
        """
        params = {"experiment_name": name}
        found = self.request("GET", f"{EXPERIMENTS}/get-by-name", params=params, accept=(404,))
        if found.is_success:
            return str(found.json()["experiment"]["experiment_id"])
        return str(self.request("POST", f"{EXPERIMENTS}/create", json={"name": name}).json()["experiment_id"])

    def _stored(self, trace_id: str) -> list[dict[str, Any]]:
        """Return our assessments that a trace has, without those that were replaced."""
        answer = self.request("GET", f"{TRACES}/{trace_id}").json()
        found = answer["trace"]["trace_info"].get("assessments", ())
        return [item for item in found if ID_KEY in item.get("metadata", {}) and item.get("valid", True)]


# --------------------------------------------------------------------------- assessments


def _subject(assessment: Mapping[str, Any]) -> list[Any]:
    """Return what tells the assessments of a trace from each other, but for the version."""
    details = [assessment["metadata"].get(name) for name in (_SCORER_KEY, "passage", "sentence", ANNOTATED_BY)]
    return [assessment["assessment_name"], assessment.get("span_id"), *details]


def _assessments(placed: PlacedResult, trace_id: str, at: int, *, is_late: bool, labels: bool) -> Iterator[Item]:
    """Yield the assessment of a result: its value, or the label of a verdict. An assessment has only one of the two.

    Args:
        placed: the result and its span.
        trace_id: MLflow's id of the turn's trace.
        at: when the value was computed, in nanoseconds since the epoch.
        is_late: True if it may have been delivered before, by another process, from a spool that survived a crash.
        labels: True to yield a label next to a value, as an assessment of its own.
    """
    result = placed.result
    metadata = {**placed.details, _SCORER_KEY: metric_of(result)}
    if result.version is not None:
        metadata[VERSION_KEY] = result.version
    feedback: dict[str, dict[str, Any]] = {}
    if isinstance(result, Failed):
        feedback[""] = {"error": {"error_code": result.error_type, "error_message": result.message}}
    elif result.name in (VERDICT, GUARD):
        feedback[""] = {"value": _PASS_OR_FAIL.get(result.label or "", result.label)}
    elif result.annotator == "HUMAN" and result.label is not None:
        feedback[""] = {"value": bool(result.value)}  # MLflow draws thumbs and yes or no in colours
    else:
        feedback[""] = {"value": result.value}
        if labels and result.label is not None:
            feedback[".label"] = {"value": result.label}
    own_id = placed.id if placed.replaces is None else placed.replaces + _JUDGED
    source_id = result.model or "rageval-hooks"
    if result.annotator == "HUMAN":
        # What the same person said before is replaced, as the value of another version.
        own_id, source_id = f"{own_id}@{result.version}", annotator_of(result) or "user"
    for number, (suffix, value) in enumerate(feedback.items()):
        # A label follows its value.
        when = iso_time(at - 1_000_000 * number).replace("+00:00", "Z")
        metadata[ID_KEY] = own_id + suffix
        assessment = {
            "assessment_name": result.name + suffix,
            "trace_id": trace_id,
            "span_id": None if placed.span_id == NO_SPAN else placed.span_id,
            "source": {"source_type": _SOURCE_TYPES[result.annotator], "source_id": source_id},
            "feedback": value,
            "rationale": None if isinstance(result, Failed) else result.explanation,
            # MLflow takes nothing but text.
            "metadata": {name: text if isinstance(text, str) else json.dumps(text) for name, text in metadata.items()},
            "create_time": when,
            "last_update_time": when,
            "valid": True,
        }
        body = {
            "id": own_id + suffix,
            "replaces": placed.replaces,
            "trace_id": trace_id,
            "is_late": is_late,
            "assessment": assessment,
        }
        yield Item(route=placed.route, target=trace_id, name=result.name, body=body)


# --------------------------------------------------------------------------- where the server is, and how to log in


def _base_of(place: OtlpPlace) -> OtlpPlace:
    """Return base URL and login of the server with an endpoint of spans."""
    # What logs in with the spans logs in with their scores.
    login = {name: text for name, text in place.headers.items() if name in ("authorization", _WORKSPACE_HEADER)}
    base = place.url.rstrip("/").removesuffix("/v1/traces").rstrip("/")
    return OtlpPlace(url=base, headers={**_login_headers(), **login} if base else {})


def mlflow_fault() -> str | None:
    """Return why the MLflow that gets the spans does not take them; None if no reason is found. Asks the server.

    For ``rageval-hooks doctor``. MLflow answers with 422 or 404 and does not say that it is about the experiment.
    """
    for place in otlp_places():
        found = _base_of(place)
        # A gateway in front may want a login for every page: then the header alone decides.
        if not _is_http(found.url) or not asks_version(f"{found.url}/version", locked=True):
            continue
        experiment = place.headers.get(_EXPERIMENT_HEADER)
        if experiment is None:
            header = _EXPERIMENT_HEADER
            return f"MLflow takes spans with the header {header} only: add {header}=0 to the headers"
        try:
            with closing(MlflowServer(found.url, found.headers)) as server:
                params = {"experiment_id": experiment}
                answer = server.request("GET", f"{EXPERIMENTS}/get", params=params, accept=(404,))
        except (MissingDependencyError, ExportError):
            return None
        if not answer.is_success:
            return f"MLflow has no experiment with the id {experiment!r}, which the header {_EXPERIMENT_HEADER} names"
    return None


def _login_headers(token: SecretStr | None = None) -> dict[str, str]:
    """Return the headers that MLflow's client sends: a user name and a password go before a token."""
    headers = {}
    if workspace := variable("MLFLOW_WORKSPACE"):
        headers[_WORKSPACE_HEADER] = workspace
    user, password = variable("MLFLOW_TRACKING_USERNAME"), variable("MLFLOW_TRACKING_PASSWORD")
    bearer = reveal(token).strip() or ("" if user and password else variable("MLFLOW_TRACKING_TOKEN"))
    if bearer:
        headers["authorization"] = f"Bearer {bearer}"
    elif user and password:
        headers["authorization"] = basic_auth(user, password)
    return headers


def _is_http(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")
