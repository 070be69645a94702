"""The base of exporters to score APIs: a backend's file says where scores go and what a score looks like there.

``ScoreServer`` is the server over HTTP: errors that say what to do, no redirects, and no key in any message.
``ScoreApiExporter`` is the exporter, with a queue of :mod:`rageval_hooks.exporters.delivery_queue`.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from http.client import HTTPException
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import UUID

from opentelemetry import trace
from opentelemetry.trace import TracerProvider

from rageval_hooks.errors import ConfigurationError, MissingDependencyError, requires
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.content import MAIN_SCORES, ContentPolicy, importance, passage_place, quality_results
from rageval_hooks.exporters.credentials import basic_auth
from rageval_hooks.exporters.delivery_queue import (
    DeliveryQueue,
    DestinationAbsentError,
    Item,
    Outcomes,
    PostError,
    RejectedError,
    TargetsMissingError,
    UnavailableError,
)
from rageval_hooks.exporters.otlp_places import OtlpPlace, otlp_places
from rageval_hooks.metrics.base import REGISTRY as METRICS
from rageval_hooks.runtime.pool import DaemonPool
from rageval_hooks.runtime.tracing import provider_of_span
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import (
    VERDICT,
    Evaluation,
    Failed,
    Result,
    Score,
    Skipped,
    annotator_of,
    is_judged_verdict,
    metric_of,
    with_cause,
)
from rageval_hooks.settings import Settings, SpanSelection
from rageval_hooks.text.formatting import flat
from rageval_hooks.turn import SpanReference, Turn

if TYPE_CHECKING:
    import httpx

_logger = logging.getLogger(__name__)

_ASK_AGAIN = 60.0
_MAX_REASON = 200
_MAX_ANSWER_BYTES = 2 * 2**20
_MAX_DATA_BYTES = 512 * 2**20
_DATA_SECONDS = 120.0
_READ_HEADERS = ("content-type", "retry-after")
_BUSY = frozenset({408, 425, 429})
_FAULTY_DATA = frozenset({400, 409, 413, 415, 422})
_MAX_FAILURES = 2
"""Failures beyond the successes after which the rest of a batch is not tried: the server is down."""

GUARD = "guard"
"""The name of the result that says what a guard did: 1 if the user did not get the answer."""

PEOPLE = "people"
"""The route of what people say: one after the other, since a person may have changed their mind."""

ScoreSelection = Literal["main", "all"]
Body = Mapping[str, Any]

# --------------------------------------------------------------------------- the server


class ScoreServer:
    """A server with a score API. A subclass says how one score is posted, in ``post_one``, or many, in ``post``.

    Redirects are not followed: a key must not travel to another host, and a POST must not become a GET.

    Args:
        url: the base URL. A user name and password in it are sent as basic authentication, and shown nowhere.
        headers: sent with every request.

    Attributes:
        backend: the backend's name, such as ``"MLflow"``, for messages.
        credentials: the variables that hold the key, for messages: ``"MLFLOW_TRACKING_TOKEN"``.
        shown_url: the base URL without a password.
        timeout: seconds to connect, between two parts of an answer, and for its whole body.
        workers: requests at a time, where each takes one score. One by one, at 100 ms each, the ten scores of a turn
            would take a second.

    Raises:
        MissingDependencyError: httpx is not installed.
    """

    backend: ClassVar[str]
    credentials: ClassVar[str]
    timeout: ClassVar[float] = 15.0
    workers: ClassVar[int] = 8

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._httpx = require_httpx(self.backend.lower())
        self.shown_url = safe_url(url)
        self._unsure: set[str] = set()
        base = self._httpx.URL(url)
        login = {"authorization": basic_auth(base.username, base.password)} if base.userinfo else {}
        self._client: httpx.Client = self._httpx.Client(
            base_url=base.copy_with(userinfo=b""),  # httpx logs the URL of each request
            headers={**login, **(headers or {})},
            timeout=self.timeout,
            follow_redirects=False,
        )
        # A compressed answer can be a thousand times larger than what was read of it.
        self._client.headers["accept-encoding"] = "identity"

    def __repr__(self) -> str:
        return f"{self.backend}({self.shown_url!r})"

    def post(self, route: str, bodies: Sequence[Body]) -> Outcomes:
        """Send scores of one route.

        Returns:
            None if all are stored; else the error of each, or None.

        Raises:
            TargetsMissingError: spans have not arrived yet.
            RejectedError: the server does not accept the request as a whole: the queue sends its halves.
            UnavailableError: the server cannot be reached, is overloaded, or wants another key.
        """
        tally = Counter[str]()
        if route == PEOPLE:
            return [self._outcome(body, tally) for body in bodies]
        pool = DaemonPool(self.workers, "rageval-post")
        try:
            # In a copy of this thread's context, so that the requests are not traced.
            return [future.result() for future in [pool.submit(self._outcome, body, tally) for body in bodies]]
        finally:
            pool.shutdown()

    def _outcome(self, body: Body, tally: Counter[str]) -> PostError | None:
        """Send one score and return the error.

        Once the server seems to be down, the rest of the batch is not tried: each request might wait for a timeout.
        """
        if tally["refused"] or tally["failed"] > tally["taken"] + _MAX_FAILURES:
            return UnavailableError("cannot be reached")
        try:
            self.post_one(body)
        except UnavailableError as error:
            tally["failed"] += 1
            tally["refused"] += error.retry_after > 0  # it wants to be left alone
            return error
        except PostError as error:
            return error
        except Exception as error:
            # An answer of an unknown form, such as the page of a login, is about one score: the others of the batch,
            # which are stored, would count as lost, and the spool would deliver them again.
            return RejectedError(f"gives an answer that cannot be read ({type(error).__name__})")
        tally["taken"] += 1
        return None

    def hand_over(self, route: str, bodies: Sequence[Body]) -> bool:
        """Leave scores to the server whose spans have not arrived. Returns False if the server does not keep them.

        Raises:
            PostError: the server does not take them.
        """
        return False

    def post_one(self, body: Body) -> None:
        """Send one score.

        Raises:
            PostError: the server does not take it.
        """
        raise NotImplementedError

    def post_once(self, path: str, body: Any, own_id: str, stored: Callable[[], bool], *, look_first: bool) -> None:
        """Post to a server that stores what it gets twice as two: what may be a repeat looks first.

        Args:
            path: below the base URL.
            body: sent as JSON.
            own_id: tells the score from others.
            stored: returns True if the server has the score.
            look_first: True if another process may have posted it.
        """
        if (look_first or own_id in self._unsure) and stored():
            return
        # Without an answer, or with a server error, the score may be stored or not.
        self._unsure.add(own_id)
        try:
            self.request("POST", path, json=body)
        except (RejectedError, TargetsMissingError):
            self._unsure.discard(own_id)
            raise
        self._unsure.discard(own_id)

    def has(self, item: Item) -> bool | None:
        """Return True if the server shows a score that was posted; None if it cannot be asked.

        Raises:
            PostError: the server does not answer, or refuses.
        """
        return None

    def request(self, method: str, path: str, *, accept: Collection[int] = (), **options: Any) -> httpx.Response:
        """Send a request and return the answer. Its body is cut at some size and time: mostly the status is enough.

        Args:
            method: ``GET``, ``POST`` …
            path: below the base URL.
            accept: statuses beyond 2xx that are no error here.
            options: those of ``httpx.Client.request``, such as ``json``.

        Raises:
            UnavailableError: there is no answer, though the server may have received the request; or see `refusal`.
            RejectedError: the server does not accept the body.
        """
        return self._send(method, path, accept, options, size=_MAX_ANSWER_BYTES, seconds=self.timeout)

    def _send(
        self, method: str, path: str, accept: Collection[int], options: Any, *, size: int, seconds: float
    ) -> httpx.Response:
        library = self._httpx
        try:
            with self._client.stream(method, path, **options) as streamed:
                body, end = bytearray(), time.monotonic() + seconds
                for chunk in streamed.iter_raw():
                    body += chunk
                    if len(body) > size or time.monotonic() > end:
                        break
                headers = {name: text for name, text in streamed.headers.items() if name in _READ_HEADERS}
                answer: httpx.Response = library.Response(streamed.status_code, headers=headers, content=bytes(body))
        except (library.HTTPError, library.InvalidURL, OSError) as error:
            # Only a connection error's own message: others may quote a header.
            why = f": {flat(str(error))}" if isinstance(error, library.ConnectError) else ""
            raise UnavailableError(f"cannot be reached ({type(error).__name__}{why})") from None
        if not answer.is_success and answer.status_code not in accept:
            raise self.refusal(answer)
        return answer

    def read(self, method: str, path: str, *, accept: Collection[int] = (), **options: Any) -> httpx.Response:
        """Send a request for data, and return the whole answer; see :meth:`request`."""
        options |= {"timeout": _DATA_SECONDS}
        return self._send(method, path, accept, options, size=_MAX_DATA_BYTES, seconds=_DATA_SECONDS)

    def refusal(self, answer: httpx.Response) -> PostError:
        """Return the error for an answer that is not a success."""
        status = answer.status_code
        if status in _FAULTY_DATA:
            # Only plain text: JSON may quote what was sent, and pages say little.
            is_plain = answer.headers.get("content-type", "").startswith("text/plain")
            reason = flat(answer.text[:_MAX_REASON]) if is_plain else ""
            return RejectedError(f"answers {status}: {reason}" if reason else f"answers {status}")
        # Anything else may be repaired, by waiting or by the user: the scores are kept for a while.
        if status in (401, 403):
            return UnavailableError(f"answers {status}: set {self.credentials} to a valid key")
        if status >= 500 or status in _BUSY:
            # Seconds, such as "120"; a date is ignored.
            wanted = answer.headers.get("retry-after", "")
            pause = float(wanted) if wanted.isdecimal() else 0.0
            return UnavailableError(f"answers {status}", pause, by_server=status >= 500)
        return UnavailableError(f"answers {status}, which {self.backend} does not: check the address")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def asks_version(url: str, *, locked: bool = False) -> bool | None:
    """Ask a server for its version, and return whether the whole answer looks like one; None if there is no answer.

    The request carries neither a key nor a header: the server may be anybody's. It uses the standard library, because
    most processes that come here do not have the backend and need no HTTP client for it.

    Args:
        url: of the page that has the version; of HTTP.
        locked: what it means that the server wants a login for the page.
    """
    try:
        with urlopen(url, timeout=3.0) as response:  # noqa: S310 - http or https, see the callers
            # For example b"20.26.1". Servers answer unknown paths with their start page.
            return re.fullmatch(rb"\d{1,9}\.\d{1,9}\.\d{1,9}\S{0,64}", response.read(80).strip()) is not None
    except HTTPError as error:
        error.close()
        return True if locked and error.code in (401, 403) else None if error.code >= 500 else False
    except (OSError, HTTPException, ValueError):
        return None


def find_server(urls: Iterable[str], page: str, *, locked: bool = False) -> str:
    """Return the first of several base URLs whose server says its version on a page; see :func:`asks_version`.

    Raises:
        DestinationAbsentError: none does.
    """
    answers = []
    for url in urls:
        answers.append(asks_version(f"{url}/{page}", locked=locked))
        if answers[-1]:
            return url
    # None means no answer: the server may still be starting.
    raise DestinationAbsentError(_ASK_AGAIN if None in answers else math.inf)


def require_httpx(extra: str) -> ModuleType:
    """Return the module ``httpx``.

    Args:
        extra: the extra of this package that brings it; exporters have its name.

    Raises:
        MissingDependencyError: it is not installed.
    """
    with requires("httpx", extra, f"the exporter {extra!r}"):
        import httpx
    return httpx


# --------------------------------------------------------------------------- the exporter


@dataclass(frozen=True, kw_only=True)
class PlacedResult:
    """A result and its place, with what score APIs ask for.

    Attributes:
        result: a score, a metric that failed, or a verdict without a number; its explanation begins with its cause.
        span_id: the span that it belongs to: the turn's, or for a passage's score that of its retriever.
        id: one per turn, score, target and version of the metric, the same in every process, so that a score that is
            sent twice can be told from two scores.
        replaces: of the judge's verdict: the id of the local one. None for everything else.
        evaluated_at: nanoseconds since the epoch: the turn's end. A late score then is in the chart where its trace is,
            and a repeat from another process has the same time.
        details: what the API has no field for, as JSON-able data.
    """

    result: Result
    span_id: str
    id: str
    replaces: str | None
    evaluated_at: int
    details: dict[str, Any]

    @property
    def route(self) -> str:
        """The route of its item, where each request takes one score."""
        return PEOPLE if self.result.annotator == "HUMAN" else ""

    @property
    def shared_id(self) -> str:
        """The id for an API that replaces what comes with the same id: the verdicts of a turn have one."""
        return self.replaces or self.id


def guard_results(evaluation: Evaluation) -> list[Score]:
    """Return what a guard did with the answer as a result, which lists then show; none if the guard let it pass."""
    guard = evaluation.turn.guard
    if evaluation.stage != "inline" or guard is None or guard.action == "passed":
        return []
    blocked = float(guard.blocked_answer is not None)
    return [Score(name=GUARD, value=blocked, label=guard.action, explanation=guard.reason, direction="lower")]


def _placed(result: Result, span_id: str, turn_span: SpanReference, evaluated_at: int) -> PlacedResult:
    """Return a result of a turn in the form of score APIs."""
    fields = ("annotator", "version", "probability", "model", "label", "cause")
    details = {**result.metadata, **known({name: getattr(result, name) for name in fields})}
    identity: list[str | int | None] = [turn_span.trace_id, turn_span.span_id, result.name]
    if result.target.kind != "turn":
        details[result.target.kind] = result.target.index
    if isinstance(result, Score) and result.name != VERDICT:
        # A person may change their mind; another version of a metric is another score.
        made_by = annotator_of(result) if result.annotator == "HUMAN" else result.version
        identity += [result.target.kind, result.target.index, made_by]
    is_judged = is_judged_verdict(result)
    return PlacedResult(
        result=with_cause(result),
        span_id=span_id,
        id=_uuid([*identity, "LLM"] if is_judged else identity),
        replaces=_uuid(identity) if is_judged else None,
        evaluated_at=evaluated_at,
        details=details,
    )


def _uuid(identity: Sequence[str | int | None]) -> str:
    digest = blake2b(json.dumps(identity).encode(), digest_size=16).digest()
    return str(UUID(bytes=digest, version=4))  # some APIs accept no other version


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without those that are None."""
    return {name: value for name, value in values.items() if value is not None}


def iso_time(nanoseconds: int) -> str:
    """Return a time as text, for example ``2026-11-22T16:00:00.123000+00:00``."""
    return datetime.fromtimestamp(nanoseconds // 1000 / 1e6, UTC).isoformat(timespec="microseconds")


class DeliveryOptions(TypedDict, total=False):
    """The options of :class:`ScoreApiExporter`, which its subclasses pass on."""

    capture_content: bool | None
    spans: SpanSelection | None
    scores: ScoreSelection
    tracer_provider: TracerProvider | None


class ScoreApiExporter(Exporter):
    """Posts scores to a backend's API, in the background, after their spans have arrived.

    The spans themselves go there by OTLP; this exporter works next to the exporter ``otel``.

    Args:
        capture_content: False to get no texts; see :class:`rageval_hooks.settings.Settings`.
        spans: which steps become spans; scores of passages can be placed only where their retriever has one. None for
            the setting ``spans``.
        scores: ``main`` for the results of quality about the turn; ``all`` adds latency, tokens, cost, and scores of
            passages and sentences.
        tracer_provider: where the spans go; that of the pipeline, or the application's global one by default.

    Attributes:
        backend: the backend's name for log lines, such as ``"MLflow"``. The extra of this package that brings httpx
            is named like it.
        takes_failures: True if the backend has a form for a metric that failed. Where a score is always a value,
            the failure is on the span only.
        takes_traces: True if the backend takes a score of a trace whose spans are not known, as of feedback.
        few_scores: True if ``scores="main"`` stands for what :meth:`main_results` chooses, and not for all of quality.

    Raises:
        MissingDependencyError: httpx is not installed. Automatic exporters log it instead.
    """

    backend: ClassVar[str]
    buffers: ClassVar[bool] = True
    takes_failures: ClassVar[bool] = False
    takes_traces: ClassVar[bool] = False
    few_scores: ClassVar[bool] = False

    def __init__(
        self,
        *,
        capture_content: bool | None = None,
        spans: SpanSelection | None = None,
        scores: ScoreSelection = "main",
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        if not self.automatic:
            require_httpx(self.backend.lower())
        self.content = ContentPolicy.of_exporter(capture_content)
        self.scores: ScoreSelection = scores
        self._given = spans, tracer_provider
        self.spans: SpanSelection = "auto"
        self._tracer_provider = tracer_provider
        self._carrier: TracerProvider | None = None
        self._used = False
        self._named_metrics: tuple[str, ...] = ()
        # Looked up now: this imports their modules, which should not happen between two forks.
        self._builtin_metrics: Collection[str] = METRICS.builtin()
        self.queue = DeliveryQueue(self.backend, self._connect)

    def bind(self, settings: Settings, tracer_provider: TracerProvider | None) -> None:
        """Take the size of the queue and the names of the metrics from the settings, and what was not given."""
        super().bind(settings, tracer_provider)
        spans, provider = self._given
        self.spans, self._tracer_provider = spans or settings.spans, provider or tracer_provider
        self._named_metrics = settings.metrics or ()
        self.queue.max_bytes = settings.queue_max_mb * 2**20

    @abstractmethod
    def items(self, evaluation: Evaluation, span: SpanReference) -> Iterable[Item]:
        """Return what is posted for a stage.

        Args:
            evaluation: the stage. :meth:`placed_results` chooses by :attr:`scores`.
            span: the turn's span. It is sampled.
        """

    def session_items(self, session_id: str, score: Score, first: Turn) -> Iterable[Item]:
        """Return what is posted for a score of a whole session; nothing where the backend has no place for it.

        Args:
            session_id: the session.
            score: the score. It replaces an earlier one.
            first: the first turn of the session.
        """
        return ()

    def placed_results(self, evaluation: Evaluation, span: SpanReference) -> Iterator[PlacedResult]:
        """Yield the results of a stage that the backend gets, the verdict and the main scores first.

        All results of quality about the turn, or the few main ones, unless all are wanted: backends draw a chart of
        each score. Results without a known span are counted as unplaced.
        """
        timing = evaluation.turn.timing
        evaluated_at = time.time_ns() if timing is None else timing.ended_at
        choose = tuple if self.scores == "all" else self.main_results if self.few_scores else quality_results
        for result in (*choose(evaluation.results), *guard_results(evaluation)):
            if isinstance(result, Skipped) and result.label is None:
                continue
            if isinstance(result, Failed) and not self.takes_failures:
                continue
            place = passage_place(evaluation.turn, result.target, self.spans)
            if place is None and result.target.kind == "passage":
                self.queue.count("unplaced", 1)
            else:
                yield _placed(result, span.span_id if place is None else place.span_id, span, evaluated_at)

    def main_results(self, results: Iterable[Result]) -> list[Result]:
        """Return the few results about the whole turn that a person should see, in the order of importance.

        These are the main scores and those of the user's own metrics, and the ones of these that failed. If the user
        has named metrics and none of them gives a main score, all of them do.
        """
        named = self._named_metrics
        has_no_main_score = bool(named) and set(MAIN_SCORES).isdisjoint(named)
        return [
            result
            for result in quality_results(results)
            if importance(result) < len(MAIN_SCORES)
            or metric_of(result) not in self._builtin_metrics
            or (has_no_main_score and metric_of(result) in named)
        ]

    @abstractmethod
    def connect(self) -> ScoreServer:
        """Return the server. Runs on the queue's own thread, with the first item.

        Raises:
            DestinationAbsentError: there is no such server.
            ConfigurationError: a credential is missing. The items are lost and counted.
        """

    def otlp_place(self, project: str) -> OtlpPlace:
        """Return where the backend takes spans over OTLP/HTTP, by the same settings: ``demo --to`` sends them there.

        Args:
            project: the project, experiment or service that the spans are for, where the endpoint depends on it.

        Raises:
            ConfigurationError: a setting or credential is missing.
            ExportError: the server cannot be asked.
        """
        raise ConfigurationError(f"the exporter {self.name!r} does not say where {self.backend} takes spans")

    def gets(self, place: OtlpPlace) -> bool:
        """Return True if an endpoint of spans is one of this backend."""
        return False

    def place_of_spans(self) -> OtlpPlace:
        """Return the endpoint of this backend that gets the spans; without a URL if they go elsewhere."""
        return next(filter(self.gets, otlp_places(self.provider)), OtlpPlace(url=""))

    def applies(self) -> bool:
        """Return True if the spans go to this backend. Automatic exporters ask it; it must be fast and not block."""
        return bool(self.place_of_spans().url)

    @property
    def provider(self) -> TracerProvider:
        """Where the spans go: the provider of the latest turn's span, if another tracer made that with its own."""
        return self._carrier or self._tracer_provider or trace.get_tracer_provider()

    def export(self, evaluation: Evaluation) -> None:
        """Queue the results of a stage."""
        if not evaluation.results:  # spares most turns without retrieval the search for the place of the spans
            return
        span = evaluation.turn.span
        if span is not None and span.live_span is not None:
            used = self._tracer_provider or trace.get_tracer_provider()
            self._carrier = provider_of_span(span.live_span, used)
        if self.automatic and not self.applies():
            return
        self._used = True
        # Spans that were not sampled never reach a server, so their scores would wait there in vain.
        if span is None or not span.sampled or not (span.is_known or self.takes_traces):
            self.queue.count("unplaced", len(evaluation.results))
            return
        items = list(self.items(evaluation, span))
        for item in items:
            item.trace_id = span.trace_id
        self.queue.put(items)

    def flush(self, timeout: float) -> bool:
        """Wait until the server has everything."""
        return self.queue.flush(timeout)

    def shutdown(self, timeout: float) -> bool:
        """Deliver what is queued and close the connections."""
        return self.queue.close(timeout)

    def stores(self, evaluation: Evaluation) -> bool | None:
        """Ask the server for the first item of an evaluation."""
        span = evaluation.turn.span
        item = None if span is None else next(iter(self.items(evaluation, span)), None)
        if item is None:
            return None
        server = self.connect()
        try:
            return server.has(item)
        finally:
            server.close()

    def stats(self) -> Mapping[str, int]:
        """Return the counters, in scores.

        ``queued``, ``queued_bytes``: waiting for their spans or for the server; ``delivered``: stored; ``handed_over``:
        left to the server's own queue, because their spans had not arrived; ``rejected``: not accepted by the server;
        ``dropped``: the queue was full, of these ``dropped_by_size`` by their size; ``lost``: the server could not be
        reached for too long or at exit, or never got their spans; ``unplaced``: scores that no known span can carry;
        ``errors``: requests that failed. Empty for an automatic exporter whose backend is not in use.
        """
        return self.queue.stats() if self._used or not self.automatic else {}

    def _connect(self) -> ScoreServer:
        try:
            return self.connect()
        except MissingDependencyError as error:
            _logger.warning(
                "rageval-hooks: spans go to %s, but its scores cannot: %s [RAGEVAL-507]", self.backend, error
            )
            raise DestinationAbsentError from None
