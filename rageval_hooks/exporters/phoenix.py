"""Scores as Phoenix's annotations: of the turn's span, its trace and its session, and of the documents retrieved.

``httpx`` and not the package ``arize-phoenix-client``: in an environment that has the server's package too, importing
the client imports the server (8 seconds and 350 MiB, measured with arize-phoenix 20.26), which no application should
have to bear for two POST requests. The key and the headers come from the same variables.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Unpack
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import AfterValidator, SecretStr

from rageval_hooks.exporters.content import answering_span_id, evaluation_span_id, passage_place
from rageval_hooks.exporters.credentials import Secret, as_secret, reveal, variable
from rageval_hooks.exporters.delivery_queue import Item, PostError, TargetsMissingError
from rageval_hooks.exporters.otlp_places import OtlpPlace, header_variable, otlp_places, resource_attributes
from rageval_hooks.exporters.score_api import (
    GUARD,
    DeliveryOptions,
    ScoreApiExporter,
    ScoreServer,
    find_server,
    guard_results,
    known,
)
from rageval_hooks.plugins import Option
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import VERDICT, Evaluation, Result, Score, annotator_of, is_about_turn, label_of, with_cause
from rageval_hooks.turn import SpanReference, Turn

_logger = logging.getLogger(__name__)

IDENTIFIER = "rageval-hooks"
"""Phoenix keeps one annotation per target, name and identifier: without it, phoenix.evals' ``faithfulness`` and ours
would overwrite each other."""

_DEFAULT_PORT = "6006"
_DEFAULT_PLACE = f"http://localhost:{_DEFAULT_PORT}"
_PLACE_VARIABLES = ("PHOENIX_ENDPOINT", "PHOENIX_COLLECTOR_ENDPOINT")
_PROJECT = "openinference.project.name"
_GRPC_PORT = 4317

# For example "Spans with IDs 1234567890abcdef, fedcba0987654321 do not exist."
_MISSING = re.compile(r"with IDs (.+) do not exist")


def _http_url(value: SecretStr) -> SecretStr:
    url = value.get_secret_value().strip()
    if not url.lower().startswith(("http://", "https://")):
        raise ValueError("is not an http or https URL")  # it may hold a password, so no message quotes it
    return SecretStr(url)


class PhoenixExporter(ScoreApiExporter):
    """Posts scores to a Phoenix server, which draws annotations where it shows attributes only on request.

    Phoenix sorts annotations by name and its lists show the first, so the verdict is alone on the turn's span, on its
    trace and on its session. The other main scores are on the span ``evaluate``. Scores of passages become annotations
    of their retriever's documents.

    Args:
        endpoint: the server's base URL. By default the setting ``phoenix_endpoint``, or what ``PHOENIX_ENDPOINT``,
            ``PHOENIX_COLLECTOR_ENDPOINT`` or the variables of OTLP name, or where the provider's exporters send their
            spans; else http://localhost:6006.
        api_key: by default ``PHOENIX_API_KEY``. ``PHOENIX_CLIENT_HEADERS`` is read too.
        project: the project of the spans; by default what their resource or ``PHOENIX_PROJECT_NAME`` says.
        on_spans_of_turn: True if nobody writes spans of evaluations: the other main scores then are on the span of the
            model call that wrote the answer.
        options: see :class:`rageval_hooks.exporters.score_api.ScoreApiExporter`. ``scores="main"`` stands for the same
            few scores of every turn: :data:`rageval_hooks.exporters.content.MAIN_SCORES` and those of your own
            metrics. ``scores="all"`` annotates the turn's span with every result.

    Raises:
        MissingDependencyError: httpx is not installed.
    """

    name: ClassVar[str] = "phoenix"
    backend: ClassVar[str] = "Phoenix"
    takes_traces: ClassVar[bool] = True
    options: ClassVar = {
        "phoenix_endpoint": Option(
            keyword="endpoint",
            type=Annotated[SecretStr, AfterValidator(_http_url)] | None,
            about="base URL of a Phoenix server; by default the server that receives the spans.",
            valid="a URL, such as http://localhost:6006",
            is_secret=True,
        )
    }

    def __init__(
        self,
        endpoint: Secret = None,
        *,
        api_key: Secret = None,
        project: str | None = None,
        on_spans_of_turn: bool = False,
        **options: Unpack[DeliveryOptions],
    ) -> None:
        super().__init__(**options)
        self._project, self._on_spans_of_turn = project, on_spans_of_turn
        self.endpoint = None if endpoint is None else as_secret(endpoint)
        self._api_key = SecretStr(api_key) if isinstance(api_key, str) else api_key
        self._configs: dict[str, Mapping[str, Any]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(safe_url, self._places()))})"

    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterator[Item]:
        """Yield the annotations of a stage."""
        if people := [score for score in evaluation.scores if score.annotator == "HUMAN"]:
            yield from _feedback(people, span)
            return
        main = self.main_results(evaluation.results)
        has_verdict = not self._named_metrics or VERDICT in self._named_metrics
        has_verdict = has_verdict or self._on_spans_of_turn
        listed = [result for result in main if result.name == VERDICT] if has_verdict else main
        others = answering_span_id(evaluation.turn) if self._on_spans_of_turn else evaluation_span_id(evaluation, span)
        guard = guard_results(evaluation)
        on_span: Sequence[Result] = evaluation.results if self.scores == "all" else listed
        for result in filter(is_about_turn, (*guard, *on_span)):
            item = _annotation("span", span.span_id, result, IDENTIFIER)
            # Lists show the mean of the numbers, or else the label, and "bad" says more than "0.00". The annotation of
            # the trace has the number, for charts.
            if result.name == VERDICT:
                item.body["result"].pop("score", None)
            yield item
        if self.scores == "main":
            for result in main:
                if result not in listed:
                    yield _annotation("span", others, result, IDENTIFIER)
        # A trace and a session may have several turns, each with the same scores.
        for kind, target in (("trace", span.trace_id), ("session", evaluation.turn.session_id)):
            if target:
                for result in (*guard, *listed):
                    yield _annotation(kind, target, result, f"{IDENTIFIER} {span.span_id}")
        for score in evaluation.scores:
            self._configs.setdefault(score.name, _config(score))
            if is_about_turn(score):
                continue
            # Phoenix has no place for a sentence.
            place = passage_place(evaluation.turn, score.target, self.spans)
            # Phoenix refuses an annotation of a document that the span does not list.
            if place is None or not place.in_documents:
                self.queue.count("unplaced", 1)
            else:
                # Phoenix refuses an identifier here.
                yield _annotation("document", place.span_id, score, "", document_position=place.position)

    def session_items(self, session_id: str, score: Score, first: Turn) -> Iterator[Item]:
        """Yield an annotation of the session."""
        yield _annotation("session", session_id, score, IDENTIFIER)

    def connect(self) -> PhoenixServer:
        """Return the server where the spans go."""
        places = self._places()
        if not places:
            _logger.warning(
                "rageval-hooks: it is not known where the Phoenix server is; scores go to %s. Set "
                "RAGEVAL_PHOENIX_ENDPOINT to its address [RAGEVAL-109]",
                _DEFAULT_PLACE,
            )
        return self._server((places or [_DEFAULT_PLACE])[0])

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the server takes spans; the project is an attribute of their resource."""
        base = (self._places() or [_DEFAULT_PLACE])[0]
        page = f"{safe_url(base)}/redirects/projects/{quote(project, safe='')}"
        return OtlpPlace(url=f"{base}/v1/traces", headers=login_headers(self._api_key), page=page)

    def _places(self) -> list[str]:
        return phoenix_places(reveal(self.endpoint), self.provider)

    def _server(self, place: str) -> PhoenixServer:
        project = self._project or resource_attributes(self.provider).get(_PROJECT) or _project_variable() or "default"
        return PhoenixServer(place, self._api_key, project=str(project), configs=self._configs)


class PhoenixAutoExporter(PhoenixExporter):
    """Does the same where the spans go to a Phoenix, and nothing elsewhere.

    The server is asked once, in the background, with the first turn. If it does not answer, it is asked again with a
    turn a minute later.
    """

    name: ClassVar[str] = "phoenix-auto"
    automatic: ClassVar[bool] = True

    _told = False

    def applies(self) -> bool:
        """Return True if it is known where spans go."""
        if self._places():
            return True
        # Once: an application without Phoenix should not read it with every turn.
        if not self._told:
            self._told = True
            _logger.info(
                "rageval-hooks: it is not known where the spans go. If it is a Phoenix, set RAGEVAL_PHOENIX_ENDPOINT "
                "to its address: scores are then annotations, too [RAGEVAL-111]"
            )
        return False

    def connect(self) -> PhoenixServer:
        """Return the first server that is a Phoenix."""
        place = find_server(self._places(), "arize_phoenix_version")
        _logger.info("rageval-hooks: scores go to the Phoenix at %s as annotations, too [RAGEVAL-112]", safe_url(place))
        return self._server(place)


def _annotation(kind: str, target: str, result: Result, identifier: str, **more: Any) -> Item:
    """Return a result as an annotation.

    Args:
        kind: ``span``, ``trace``, ``session`` or ``document``.
        target: the id of the span, trace or session.
        result: the result.
        identifier: tells the annotation from others with the same name and target.
        more: further fields.
    """
    # Phoenix takes an annotation without a score: it shows the label and does not count it in means.
    score = None if result.name == GUARD else result.value  # lists show "replaced", and not 1.00
    shown = {"score": score, "label": label_of(result), "explanation": with_cause(result).explanation}
    about = {name: getattr(result, name) for name in ("version", "probability", "model", "cause")}
    body = {
        "span_id" if kind == "document" else f"{kind}_id": target,
        "name": result.name,
        "annotator_kind": result.annotator,
        "identifier": identifier,
        "result": known(shown),
        "metadata": {**result.metadata, **known(about)},
        **more,
    }
    return Item(route=f"{kind}_annotations", target=target, name=result.name, body=body)


def _feedback(scores: Iterable[Score], span: SpanReference) -> Iterator[Item]:
    """Yield what a person says, as annotations of the trace and of the turn's span. A later word replaces it."""
    for score in scores:
        identifier = " ".join(filter(None, (f"{IDENTIFIER} feedback", annotator_of(score))))
        if span.is_known:
            yield _annotation("span", span.span_id, score, identifier)
        yield _annotation("trace", span.trace_id, score, identifier)


def _config(score: Score) -> dict[str, Any]:
    """Return the annotation config: with direction and bounds, Phoenix colours a score and scales its chart."""
    return {
        "name": score.name,
        "type": "CONTINUOUS",
        "optimization_direction": "MAXIMIZE" if score.direction == "higher" else "MINIMIZE",
        "lower_bound": score.low,
        "upper_bound": score.high,
    }


class PhoenixServer(ScoreServer):
    """A server's REST API, as far as annotations need it.

    Args:
        url: its base URL.
        api_key: for the header ``Authorization``; ``PHOENIX_API_KEY`` by default.
        project: the project that the spans are in.
        configs: the annotation configs of scores, by name; they are registered with the project as scores arrive.

    Attributes:
        project: the project, quoted for a URL.
    """

    backend: ClassVar[str] = "Phoenix"
    credentials: ClassVar[str] = "PHOENIX_API_KEY (or PHOENIX_CLIENT_HEADERS)"

    def __init__(
        self, url: str, api_key: SecretStr | None, *, project: str, configs: Mapping[str, Mapping[str, Any]]
    ) -> None:
        super().__init__(url, login_headers(api_key))
        self.project = quote(project, safe="")
        self._configs = configs
        self._configured: set[str] = set()

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> None:
        """Send annotations, which needs their spans to be there.

        The server keeps one per target, name and identifier: a repeat replaces the first.
        """
        self.request("POST", f"v1/{route}", json={"data": list(bodies)}, params={"sync": "true"})
        self._register(str(body["name"]) for body in bodies)

    def hand_over(self, route: str, bodies: Sequence[Mapping[str, Any]]) -> bool:
        """Leave annotations to the server's queue.

        It looks for a missing span every 10 seconds, 60 times, and drops without notice what does not fit.
        """
        self.request("POST", f"v1/{route}", json={"data": list(bodies)})
        return True

    def refusal(self, answer: Any) -> PostError:
        """Return the error for an answer that is not a success: spans that have not arrived, or a fault."""
        missing = _MISSING.search(answer.text)
        # A 404 without any ids is that of a server without this API.
        if answer.status_code == 404 and missing:
            return TargetsMissingError(frozenset(missing[1].split(", ")))
        return super().refusal(answer)

    def has(self, item: Item) -> bool:
        """Return True if the server shows an annotation of a span, a trace or a session."""
        # For example span_annotations?span_ids=…
        params = {f"{item.route.removesuffix('_annotations')}_ids": item.target, "limit": "100"}
        # 404: the project is made when its first span arrives.
        answer = self.request("GET", f"v1/projects/{self.project}/{item.route}", params=params, accept=(404,))
        found = answer.json().get("data", ()) if answer.is_success else ()
        return any(annotation.get("name") == item.name for annotation in found)

    def _register(self, names: Iterable[str]) -> None:
        """Register the configs of new scores. They only add colours, so a failure is not worth a warning."""
        # Only after a post succeeded, so that the project exists.
        for name in names:
            if name in self._configured or name not in self._configs:
                continue
            self._configured.add(name)
            try:
                # 409 if the name exists: the user's own stays.
                self.request("POST", "v1/annotation_configs", json=self._configs[name], accept=(409,))
                self.request("PUT", f"v1/projects/{self.project}/annotation_configs/{quote(name, safe='')}")
            except PostError as error:
                _logger.debug("rageval-hooks: no annotation config for %s: %s", name, error)


def login_headers(api_key: SecretStr | None = None) -> dict[str, str]:
    """Return the headers as Phoenix's own client has them: ``PHOENIX_CLIENT_HEADERS``, then ``PHOENIX_API_KEY``."""
    headers = header_variable(variable("PHOENIX_CLIENT_HEADERS"), warn_as="PHOENIX_CLIENT_HEADERS")
    if api_key is not None:
        headers["authorization"] = f"Bearer {reveal(api_key).strip()}"
    elif key := variable("PHOENIX_API_KEY"):
        headers.setdefault("authorization", f"Bearer {key}")
    return headers


def phoenix_collector() -> OtlpPlace | None:
    """Return where spans go that have no other place, as with ``phoenix.otel``; None without Phoenix's variable."""
    base = _base_url(variable("PHOENIX_COLLECTOR_ENDPOINT"))
    return None if base is None else OtlpPlace(url=f"{base}/v1/traces", headers=login_headers())


def phoenix_resource() -> dict[str, str]:
    """Return the attribute that names the project, for the resource of spans that go to :func:`phoenix_collector`."""
    project = _project_variable()
    return {_PROJECT: project} if project and phoenix_collector() is not None else {}


def _project_variable() -> str:
    """Return the project that Phoenix's own packages read from the environment."""
    return variable("PHOENIX_PROJECT", "PHOENIX_PROJECT_NAME")


def phoenix_places(setting: str | None, provider: object = None) -> list[str]:
    """Return base URLs where spans go, most specific first; a Phoenix would have its REST API there.

    Args:
        setting: the user's own setting; then it alone counts.
        provider: the tracer provider; the endpoints of its exporters are read.
    """
    addresses = [setting] if setting else [variable(name) for name in _PLACE_VARIABLES]
    if not setting:
        addresses += [place.url for place in otlp_places(provider)]
    # Several variables often name the same server; a dictionary keeps the order.
    return list(dict.fromkeys(filter(None, map(_base_url, addresses))))


def _base_url(address: str) -> str | None:
    """Return the base URL of an address; None if it is not one of HTTP.

    Example:
        ``"phoenix:4317"`` becomes ``"http://phoenix:6006"``, ``"https://host/v1/traces"`` becomes ``"https://host"``.
    """
    if not address:
        return None
    # gRPC exporters have addresses without a scheme.
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        parts_port = parts.port
    except ValueError:  # for example a port that is not a number
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    netloc = parts.netloc
    if parts_port == _GRPC_PORT:  # REST is on the other port
        port = variable("PHOENIX_PORT")
        netloc = f"{netloc.rpartition(':')[0]}:{port if port.isdecimal() else _DEFAULT_PORT}"
    path = parts.path.rstrip("/").removesuffix("/v1/traces").rstrip("/")
    return urlunsplit((parts.scheme, netloc, path, "", ""))
