"""Scores as MLflow's assessments of the turn's trace.

``httpx`` and not the package ``mlflow``: importing it takes seconds, and no application should have to bear that for
one POST request. The address and the login come from the same variables.
"""

from __future__ import annotations

import configparser
import json
import logging
import math
import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Unpack
from urllib.parse import urlsplit

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError, ExportError, MissingDependencyError
from rageval_hooks.exporters.delivery import (
    DeliveryOptions,
    Destination,
    DestinationAbsentError,
    HttpAnswer,
    HttpApi,
    HttpDestination,
    Item,
    PlacedResult,
    PostError,
    ScoreApiExporter,
    TargetsMissingError,
    UnavailableError,
    as_secret,
    asks_version,
    basic_auth,
    evaluated_at,
    iso_time,
    post_each,
    reveal,
    score_details,
    score_id,
)
from rageval_hooks.exporters.otlp_places import OtlpPlace, otlp_places
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation, Failed, Score, metric_of
from rageval_hooks.turn import SpanReference

__all__ = ["EXPERIMENT_HEADER", "MlflowAutoExporter", "MlflowExporter", "mlflow_fault"]

_logger = logging.getLogger(__name__)

EXPERIMENT_HEADER = "x-mlflow-experiment-id"
_WORKSPACE_HEADER = "x-mlflow-workspace"
_DEFAULT_URL = "http://localhost:5000"
_VERSION = re.compile(rb"\d{1,9}\.\d{1,9}\.\d{1,9}\S{0,64}")  # for example b"3.17.2"

_TRACES = "api/3.0/mlflow/traces"
_EXPERIMENTS = "api/2.0/mlflow/experiments"
_REQUEST_TIMEOUT = 408
_WORKERS = 4
_TIMEOUT = 60.0
"""Seconds. The first request after a start sets up the database, which took 20 seconds on a busy machine."""

_ASK_AGAIN = 60.0

_ID_KEY = "rageval.id"
"""In an assessment's metadata: tells whether it is stored already."""

_LABEL = ".label"
_CODE_SOURCE = "rageval-hooks"
_SOURCE_TYPES = {"CODE": "CODE", "LLM": "LLM_JUDGE", "HUMAN": "HUMAN"}

# MLflow's own names.
_SCORER_NAME = "mlflow.assessment.scorerName"
_SCORER_VERSION = "mlflow.assessment.scorerVersion"


@dataclass(frozen=True, kw_only=True)
class MlflowPlace:
    """A server. Not in its repr: both fields may hold secrets.

    Attributes:
        url: the base URL.
        headers: the login, and the workspace if there are several.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


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
        placed = list(self.placed_results(evaluation, span))
        # MLflow's colours would say that a good answer is a bad one.
        if self.scores == "main":
            placed = [place for place in placed if not _is_share_of_errors(place.result)]
        for position, place in enumerate(placed):
            yield from _assessments(place, evaluation, span, position)

    def connect(self) -> Destination:
        """Return the server."""
        place = self._place()
        if place is None:
            _logger.warning(
                "rageval-hooks: it is not known where the MLflow server is; scores go to %s. Set MLFLOW_TRACKING_URI "
                "to its address [RAGEVAL-110]",
                _DEFAULT_URL,
            )
        return MlflowServer(place or MlflowPlace(url=_DEFAULT_URL))

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the server takes spans: of ``MLFLOW_EXPERIMENT_ID``, or of the experiment with this name."""
        place = self._place() or MlflowPlace(url=_DEFAULT_URL)
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
        """Return the server that the user or ``MLFLOW_TRACKING_URI`` names, else the one that spans go to."""
        url = reveal(self._uri) or os.environ.get("MLFLOW_TRACKING_URI", "").strip()
        if _is_http(url):
            return MlflowPlace(url=url.rstrip("/"), headers=_login_headers(self._token))
        return _place_of_spans(self.provider)


class MlflowAutoExporter(MlflowExporter):
    """Does the same where the spans go to an MLflow, and nothing elsewhere.

    Spans for MLflow carry the header ``x-mlflow-experiment-id``. Before the first score, the server is asked in the
    background whether it is an MLflow: spans may go through a collector.
    """

    name: ClassVar[str] = "mlflow-auto"
    automatic: ClassVar[bool] = True

    def applies(self) -> bool:
        """Return True if spans carry MLflow's header."""
        return _endpoint_of_spans(self.provider) is not None

    def connect(self) -> Destination:
        """Return the server that the spans go to."""
        place = self._place()
        # The application may set its provider later.
        if place is None:
            raise DestinationAbsentError(_ASK_AGAIN)
        answer = _is_mlflow(place.url)
        # None means no answer: the server may still be starting.
        if not answer:
            raise DestinationAbsentError(math.inf if answer is False else _ASK_AGAIN)
        _logger.info(
            "rageval-hooks: scores go to the MLflow at %s as assessments, too [RAGEVAL-113]", safe_url(place.url)
        )
        return MlflowServer(place)

    def _place(self) -> MlflowPlace | None:
        return _place_of_spans(self.provider)


class MlflowServer(HttpDestination):
    """A server's REST API, as far as assessments need it.

    Args:
        place: where it is.

    Raises:
        MissingDependencyError: httpx is not installed.
        ConfigurationError: the login cannot be sent.
    """

    def __init__(self, place: MlflowPlace) -> None:
        super().__init__(
            HttpApi(
                place.url,
                backend="MLflow",
                extra="mlflow",
                credentials="MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN,",
                headers=place.headers,
                verify=_certificates(),
                timeout=_TIMEOUT,
            )
        )
        # Ids of assessments whose post had no answer, or a server error: they may be stored all the same.
        self._unsure: set[str] = set()

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool) -> list[PostError | None]:
        """Store assessments, one per request, several requests at a time, and return the error of each."""
        return post_each(bodies, self._post, workers=_WORKERS)

    def _post(self, body: Mapping[str, Any]) -> None:
        # The server stores what it gets twice as two assessments, so what may be a repeat looks first.
        may_be_stored = body["look_first"] or body["id"] in self._unsure
        if may_be_stored and body["id"] in self._stored_ids(body["trace_id"]):
            self._unsure.discard(body["id"])
            return
        self._unsure.add(body["id"])
        path = f"{_TRACES}/{body['trace_id']}/assessments"
        answer = self._http.request("POST", path, body={"assessment": body["assessment"]})
        if answer.status < 500 and answer.status != _REQUEST_TIMEOUT:
            self._unsure.discard(body["id"])
        if not answer.ok:
            raise self._error(answer, body["trace_id"])

    def has(self, item: Item) -> bool:
        """Return True if the server lists an assessment of a trace."""
        try:
            return item.body["id"] in self._stored_ids(item.body["trace_id"])
        except TargetsMissingError:
            return False

    def experiment_id(self, name: str) -> str:
        """Return the id of the experiment with this name; a missing one is created.

        Raises:
            ExportError: the server cannot be asked.
        """
        found = self._http.request("GET", f"{_EXPERIMENTS}/get-by-name", params={"experiment_name": name})
        if found.ok:
            return str(found.json()["experiment"]["experiment_id"])
        made = self._http.request("POST", f"{_EXPERIMENTS}/create", body={"name": name})
        if not made.ok:
            raise self._http.refusal(made)
        return str(made.json()["experiment_id"])

    def has_experiment(self, experiment_id: str) -> bool:
        """Return False if the server says that there is no such experiment.

        Raises:
            ExportError: the server cannot be asked.
        """
        answer = self._http.request("GET", f"{_EXPERIMENTS}/get", params={"experiment_id": experiment_id})
        return answer.status != 404

    def _stored_ids(self, trace_id: str) -> set[str]:
        """Return our ids of the assessments that a trace has."""
        answer = self._http.request("GET", f"{_TRACES}/{trace_id}")
        if not answer.ok:
            raise self._error(answer, trace_id)
        try:
            assessments = answer.json()["trace"]["trace_info"].get("assessments", ())
            return {item.get("metadata", {}).get(_ID_KEY) for item in assessments}
        except (TypeError, KeyError, AttributeError):
            # Without a list, posting again might make a second assessment.
            raise UnavailableError("does not list the assessments of a trace") from None

    def _error(self, answer: HttpAnswer, trace_id: str) -> PostError:
        said = answer.json() if answer.status == 404 else None
        if isinstance(said, dict) and said.get("error_code") == "RESOURCE_DOES_NOT_EXIST":
            return TargetsMissingError(frozenset({trace_id}))
        return self._http.refusal(answer)


# --------------------------------------------------------------------------- assessments


def _is_share_of_errors(result: Score | Failed) -> bool:
    """Return True for a share of which less is better. MLflow would draw a good 0.1 in red: it has no directions."""
    return isinstance(result, Score) and result.direction == "lower" and result.high == 1


def _assessments(placed: PlacedResult, evaluation: Evaluation, span: SpanReference, position: int) -> Iterator[Item]:
    """Yield the assessments of a result: its value, and its label as one more.

    MLflow filters and charts numbers; it colours labels such as ``fail`` and counts how many passed. An assessment has
    only one of the two.

    Args:
        placed: the result, whose texts are shown, and its span.
        evaluation: the stage.
        span: the turn's span.
        position: of the result in the stage, from 0.
    """
    result, span_id = placed
    trace_id = f"tr-{span.trace_id}"
    own_id = str(score_id(span, result))
    if isinstance(result, Failed):
        error = {"error_code": result.error_type, "error_message": result.message}
        values: dict[str, tuple[str, dict[str, Any]]] = {result.name: (own_id, {"error": error})}
    else:
        values = {result.name: (own_id, {"value": result.value})}
        if result.label is not None:
            values[result.name + _LABEL] = (own_id + _LABEL, {"value": result.label})
    model = result.model if isinstance(result, Score) else None
    for number, (name, (item_id, feedback)) in enumerate(values.items()):
        # MLflow lists the newest first, by milliseconds: main scores stay first, and a label follows its value.
        earlier = (2 * position + number) * 1_000_000
        time = iso_time(evaluated_at(evaluation.turn) - earlier).replace("+00:00", "Z")
        assessment = {
            "assessment_name": name,
            "trace_id": trace_id,
            "span_id": span_id,
            "source": {"source_type": _SOURCE_TYPES[result.annotator], "source_id": model or _CODE_SOURCE},
            "feedback": feedback,
            "rationale": result.explanation if isinstance(result, Score) else None,
            "metadata": _metadata(result, item_id),
            "create_time": time,
            "last_update_time": time,
            "valid": True,
        }
        # Late results may be delivered a second time, by another process, from a spool that survived a crash.
        late = evaluation.stage == "background"
        body = {"name": name, "id": item_id, "trace_id": trace_id, "look_first": late, "assessment": assessment}
        yield Item(route="assessments", target=trace_id, body=body)


def _metadata(result: Score | Failed, item_id: str) -> dict[str, str]:
    """Return the details, all as text: MLflow takes nothing else."""
    details = score_details(result) if isinstance(result, Score) else dict(result.metadata)
    details[_ID_KEY] = item_id
    details[_SCORER_NAME] = metric_of(result)
    if isinstance(result, Score):
        details[_SCORER_VERSION] = result.version
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in details.items()}


# --------------------------------------------------------------------------- where the server is, and how to log in


def _endpoint_of_spans(provider: object) -> OtlpPlace | None:
    """Return the endpoint of an MLflow that spans go to; None if they go elsewhere.

    MLflow refuses spans without the header ``x-mlflow-experiment-id``, and nothing else has it.
    """
    for place in otlp_places(provider):
        if EXPERIMENT_HEADER in place.headers and _is_http(place.url):
            return place
    return None


def _place_of_spans(provider: object) -> MlflowPlace | None:
    """Return the MLflow that spans go to, with its login; None if they go elsewhere."""
    endpoint = _endpoint_of_spans(provider)
    if endpoint is None:
        return None
    base = endpoint.url.rstrip("/").removesuffix("/v1/traces").rstrip("/")
    # What logs in with the spans logs in with their scores.
    login = {name: value for name, value in endpoint.headers.items() if name in ("authorization", _WORKSPACE_HEADER)}
    return MlflowPlace(url=base, headers={**_login_headers(None), **login})


def mlflow_fault(provider: object = None) -> str | None:
    """Return why the MLflow that gets the spans does not take them; None if no reason is found. Asks the server.

    For ``rageval-hooks doctor``. MLflow answers with 422 or 404 and does not say that it is about the experiment.
    """
    for place in otlp_places(provider):
        base = place.url.rstrip("/").removesuffix("/v1/traces").rstrip("/")
        if not _is_http(base) or not _is_mlflow(base):
            continue
        experiment = place.headers.get(EXPERIMENT_HEADER)
        if experiment is None:
            return (
                f"MLflow takes spans with the header {EXPERIMENT_HEADER} only: add {EXPERIMENT_HEADER}=0 to the headers"
            )
        try:
            server = MlflowServer(_place_of_spans(provider) or MlflowPlace(url=base))
        except (ConfigurationError, MissingDependencyError):
            return None
        try:
            if not server.has_experiment(experiment):
                return (
                    f"MLflow has no experiment with the id {experiment!r}, which the header {EXPERIMENT_HEADER} names"
                )
        except ExportError:
            return None
        finally:
            server.close()
    return None


def _login_headers(token: SecretStr | None) -> dict[str, str]:
    """Return the headers that MLflow's client sends: a user name and a password go before a token."""
    headers = {}
    if workspace := os.environ.get("MLFLOW_WORKSPACE", "").strip():
        headers[_WORKSPACE_HEADER] = workspace
    if token is not None:
        return {**headers, "authorization": f"Bearer {token.get_secret_value().strip()}"}
    stored = _credentials_file()
    user = os.environ.get("MLFLOW_TRACKING_USERNAME") or stored.get("mlflow_tracking_username")
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD") or stored.get("mlflow_tracking_password")
    if user and password:
        headers["authorization"] = basic_auth(user, password)
    elif given := os.environ.get("MLFLOW_TRACKING_TOKEN", "").strip():
        headers["authorization"] = f"Bearer {given}"
    return headers


def _credentials_file() -> Mapping[str, str]:
    """Return the section ``[mlflow]`` of the credentials file; empty without a readable file."""
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read(Path.home() / ".mlflow" / "credentials")
    except (OSError, RuntimeError, UnicodeError, configparser.Error):
        return {}
    return dict(config["mlflow"]) if "mlflow" in config else {}


def _certificates() -> ssl.SSLContext | bool:
    """Return how certificates are checked, by ``MLFLOW_TRACKING_INSECURE_TLS`` and the ``…_CERT_PATH`` variables."""
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").strip().lower() in ("true", "1"):
        return False
    server = os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
    client = os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH")
    if not server and not client:
        return True
    context = ssl.create_default_context(cafile=server or None)
    if client:
        context.load_cert_chain(client)
    return context


def _is_mlflow(url: str) -> bool | None:
    """Ask a server whether it is an MLflow; None if there is no answer."""
    # A gateway in front may want a login for every page: then the header alone decides.
    return asks_version(f"{url}/version", _VERSION, locked=True)


def _is_http(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")
