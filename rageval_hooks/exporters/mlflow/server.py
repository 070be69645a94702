"""An MLflow server's REST API, as far as assessments need it.

``httpx`` and not the package ``mlflow``: importing it takes seconds, and no application should have to bear that for
one POST request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rageval_hooks.exporters.delivery import Answer, HttpApi, Item, TargetsMissingError, UnavailableError
from rageval_hooks.exporters.delivery.parallel import ParallelPosts
from rageval_hooks.exporters.mlflow.assessments import ID_KEY
from rageval_hooks.exporters.mlflow.connection import MlflowPlace, tls

__all__ = ["MlflowServer"]

_TRACES = "api/3.0/mlflow/traces"
_EXPERIMENTS = "api/2.0/mlflow/experiments"
_REQUEST_TIMEOUT = 408
_WORKERS = 4
_TIMEOUT = 60.0
"""Seconds. The first request after a start sets up the database, which took 20 seconds on a busy machine."""


class MlflowServer:
    """Posts assessments to one server.

    Args:
        place: where it is.

    Raises:
        MissingDependencyError: httpx is not installed.
        ConfigurationError: the login cannot be sent.
    """

    own_queue: ClassVar[bool] = False

    def __init__(self, place: MlflowPlace) -> None:
        self._http = HttpApi(
            place.url,
            backend="MLflow",
            extra="mlflow",
            credentials="MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN,",
            headers=place.headers,
            verify=tls(),
            timeout=_TIMEOUT,
        )
        # Ids of assessments whose post had no answer, or a server error: they may be stored all the same.
        self._unsure: set[str] = set()
        self._posts = ParallelPosts(self._post, workers=_WORKERS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._http.shown_url!r})"

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool) -> None:
        """Store assessments, one per request, several requests at a time.

        Raises:
            TargetsMissingError: a trace has not arrived yet.
            RejectedError: the server does not accept an assessment.
            UnavailableError: the server cannot be reached, does not work, or wants another login.
        """
        self._posts.post_all(bodies)

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

    def _stored_ids(self, trace_id: str) -> set[str]:
        """Return our ids of the assessments that a trace has."""
        answer = self._http.request("GET", f"{_TRACES}/{trace_id}")
        if not answer.ok:
            raise self._error(answer, trace_id)
        try:
            assessments = answer.json()["trace"]["trace_info"].get("assessments", ())
            return {item.get("metadata", {}).get(ID_KEY) for item in assessments}
        except (TypeError, KeyError, AttributeError):
            # Without a list, posting again might make a second assessment.
            raise UnavailableError("does not list the assessments of a trace") from None

    def _error(self, answer: Answer, trace_id: str) -> Exception:
        said = answer.json() if answer.status == 404 else None
        if isinstance(said, dict) and said.get("error_code") == "RESOURCE_DOES_NOT_EXIST":
            return TargetsMissingError(frozenset({trace_id}))
        return self._http.refusal(answer)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
