"""Traces that a backend has: which there are, their spans, and the scores that they have already."""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64decode
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from rageval_hooks.errors import ExportError
from rageval_hooks.exporters.content import answering_span_id
from rageval_hooks.exporters.credentials import variable
from rageval_hooks.exporters.delivery_queue import PostError
from rageval_hooks.exporters.mlflow import EXPERIMENTS, ID_KEY, SESSION_KEY, TRACES, VERSION_KEY, MlflowExporter
from rageval_hooks.exporters.phoenix import IDENTIFIER, PhoenixExporter
from rageval_hooks.exporters.score_api import ScoreApiExporter
from rageval_hooks.integrations.opentelemetry import TracedSpan
from rageval_hooks.metrics.base import VERDICT_VALUES
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.narrowing import is_number
from rageval_hooks.score import ANNOTATED_BY, VERDICT, Result, Score, Skipped
from rageval_hooks.turn import Turn

_PAGE = 500
_NOT_FOUND = 404


class StoredScore(NamedTuple):
    """A score that the backend has, or what a person says.

    Attributes:
        span_id: the span that it is on; the id of the trace if it is on none.
        name: its name.
        version: the version of its metric; empty if it has no number.
        is_ours: True if this package has written it.
        annotator: ``CODE``, ``LLM`` or ``HUMAN``.
        value: its number, or what a person has entered.
        label: its label.
        cause: that of a verdict.
        explanation: why.
        is_reference: True if the value is the right answer.
        who: the person, if it is known which one.
    """

    span_id: str
    name: str
    version: str
    is_ours: bool = True
    annotator: str = "CODE"
    value: Any = None
    label: str | None = None
    cause: str | None = None
    explanation: str | None = None
    is_reference: bool = False
    who: str = ""

    @property
    def result(self) -> Result | None:
        """The score as a result; None if it has neither a number nor a verdict."""
        about = {"name": self.name, "label": self.label, "cause": self.cause, "annotator": self.annotator}
        text = (self.explanation or "").removeprefix(f"{self.cause}: ")
        value = VERDICT_VALUES.get(self.label or "") if self.name == VERDICT else self.value
        if is_number(value):
            more = {"value": value, "explanation": text or None, "version": self.version or "1", "metric": self.name}
            return Score.model_validate({**about, **more})
        return Skipped.model_validate({**about, "reason": text, "metric": VERDICT}) if self.name == VERDICT else None


@dataclass(frozen=True, kw_only=True)
class StoredTrace:
    """A trace in the list of a backend.

    Attributes:
        id: 32 hex digits.
        started_at: seconds since the epoch.
        ended_at: the end of the last span that has arrived, likewise.
        has_root: True if its outermost span has arrived.
        mark: changes when further spans arrive.
        scores: those that the list has.
    """

    id: str
    started_at: float
    ended_at: float
    has_root: bool
    mark: str
    scores: tuple[StoredScore, ...] = ()


class Backend(ABC):
    """The traces of one project, and the exporter that writes scores back.

    Args:
        url: base URL of the server; None for what the variables of the backend say.
        project: as people name it; None likewise.

    Attributes:
        exporter: writes scores back.
    """

    exporter: ScoreApiExporter

    @property
    @abstractmethod
    def project(self) -> str:
        """The project or experiment."""

    @abstractmethod
    def __init__(self, url: str | None, project: str | None) -> None: ...

    @cached_property
    def server(self) -> Any:
        """The server. It is looked for when it is first asked: the exporter then has its settings."""
        return self.exporter.connect()

    @abstractmethod
    def traces(self, since: float) -> Iterator[StoredTrace]:
        """Yield the traces that began at a time or later, in seconds since the epoch, the oldest first."""

    def session(self, session_id: str) -> Iterable[StoredTrace]:
        """Return the traces of a session, the oldest first; none where the backend has no sessions."""
        return ()

    @abstractmethod
    def spans(self, traces: Iterable[StoredTrace]) -> Iterator[TracedSpan]:
        """Yield all spans of some traces."""

    @abstractmethod
    def scores(self, traces: Iterable[StoredTrace], turns: Iterable[Turn]) -> Collection[StoredScore]:
        """Return the scores and labels that turns of some traces have."""

    def said_of(self, traces: Iterable[StoredTrace]) -> Collection[StoredScore]:
        """Return what people say of whole traces, where :meth:`scores` does not have it."""
        return ()

    @abstractmethod
    def page(self, trace_id: str) -> str:
        """Return the address of the page of a trace."""

    def spans_by_trace(self, traces: Iterable[StoredTrace]) -> Mapping[str, list[TracedSpan]]:
        """Return all spans of some traces, by the id of the trace."""
        found = defaultdict[str, list[TracedSpan]](list)
        for span in self.spans(traces):
            found[span.trace_id].append(span)
        return found

    def close(self) -> None:
        """Close the connections."""
        self.server.close()

    def _read(self, method: str, path: str, **options: Any) -> Mapping[str, Any]:
        """Return the JSON of an answer; empty if there is no such thing.

        Raises:
            ExportError: the server cannot be reached, refuses, or answers something else.
        """
        try:
            answer = self.server.read(method, path, accept=(_NOT_FOUND,), **options)
            return {} if answer.status_code == _NOT_FOUND else dict(answer.json())
        except PostError as error:
            raise ExportError(f"{self.server!r} {error}") from None
        except ValueError:
            raise ExportError(f"{self.server!r} gives an answer that cannot be read") from None


class PhoenixBackend(Backend):
    """A project of Phoenix, by its REST API."""

    def __init__(self, url: str | None, project: str | None) -> None:
        self.exporter = PhoenixExporter(url, project=project, on_spans_of_turn=True)

    @property
    def project(self) -> str:
        """The name of the project."""
        return str(self.server.project)

    def traces(self, since: float) -> Iterator[StoredTrace]:
        """Yield traces with the number of their spans."""
        return self._traces({"start_time": _iso(since)})

    def session(self, session_id: str) -> Iterator[StoredTrace]:
        """Yield the traces of a session."""
        return self._traces({"session_identifier": session_id})

    def _traces(self, which: Mapping[str, str]) -> Iterator[StoredTrace]:
        for row in self._pages("traces", {**which, "order": "asc", "include_spans": "true"}, _PAGE):
            spans = row["spans"]
            yield StoredTrace(
                id=row["trace_id"],
                started_at=_seconds(row["start_time"]),
                ended_at=_seconds(row["end_time"]),
                has_root=any(span["parent_id"] is None for span in spans),
                mark=str(len(spans)),
            )

    def spans(self, traces: Iterable[StoredTrace]) -> Iterator[TracedSpan]:
        """Yield spans as Phoenix has them: with OpenInference's attributes."""
        return map(TracedSpan.of, self._pages("spans", {"trace_id": [trace.id for trace in traces]}, _PAGE))

    def scores(self, traces: Iterable[StoredTrace], turns: Iterable[Turn]) -> Collection[StoredScore]:
        """Ask for the annotations of the turns' spans and of their answering models."""
        spans = set(chain.from_iterable(map(spans_of, turns)))
        rows = self._pages("span_annotations", {"span_ids": sorted(spans)}, _PAGE) if spans else ()
        return [_annotation(row) for row in rows]

    def said_of(self, traces: Iterable[StoredTrace]) -> Collection[StoredScore]:
        """Ask for the annotations of traces. Those of programs repeat what spans have."""
        rows = self._pages("trace_annotations", {"trace_ids": [trace.id for trace in traces]}, _PAGE)
        return [_annotation(row) for row in rows if row.get("annotator_kind") == "HUMAN"]

    def page(self, trace_id: str) -> str:
        """Return an address that leads to the trace, whatever its project is."""
        return f"{self.server.shown_url}/redirects/traces/{trace_id}"

    def _pages(self, what: str, about: Mapping[str, Any], size: int) -> Iterator[Mapping[str, Any]]:
        about, path = {**about, "limit": size}, f"v1/projects/{self.server.project}/{what}"
        while True:
            page = self._read("GET", path, params=about)
            if not page:
                raise ExportError(f"{self.server!r} has no project {self.server.project!r} yet")
            yield from page["data"]
            about["cursor"] = page.get("next_cursor")
            if about["cursor"] is None:
                return


class MlflowBackend(Backend):
    """An experiment of MLflow, by its REST API."""

    def __init__(self, url: str | None, project: str | None) -> None:
        self.exporter = MlflowExporter(url)
        self._project = project or variable("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME") or "0"

    @property
    def project(self) -> str:
        """The name or the id of the experiment."""
        return self._project

    def traces(self, since: float) -> Iterator[StoredTrace]:
        """Yield traces with the assessments that they have."""
        return self._traces(f"timestamp_ms >= {int(since * 1000)}")

    def session(self, session_id: str) -> Iterator[StoredTrace]:
        """Yield the traces of a session."""
        quote = '"' if "'" in session_id else "'"
        return self._traces(f"metadata.`{SESSION_KEY}` = {quote}{session_id}{quote}")

    def _traces(self, condition: str) -> Iterator[StoredTrace]:
        place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self._experiment_id}}
        body: dict[str, Any] = {
            "locations": [place],
            "filter": condition,
            "order_by": ["timestamp_ms ASC"],
            "max_results": _PAGE,
        }
        while True:
            page = self._read("POST", f"{TRACES}/search", json=body)
            for row in page.get("traces", ()):
                began, took = _seconds(row["request_time"]), float(str(row.get("execution_duration", "0s"))[:-1])
                sizes = row.get("trace_metadata", {}).get("mlflow.trace.sizeStats")
                yield StoredTrace(
                    id=row["trace_id"].removeprefix("tr-"),
                    started_at=began,
                    ended_at=began + took,
                    has_root=row.get("state") != "IN_PROGRESS",
                    mark=f"{row.get('state')} {took} {sizes}",
                    scores=tuple(_assessments(row)),
                )
            if not page.get("next_page_token"):
                return
            body["page_token"] = page["next_page_token"]

    def spans(self, traces: Iterable[StoredTrace]) -> Iterator[TracedSpan]:
        """Yield spans, which MLflow has as protobuf's JSON."""
        params = {"trace_ids": [f"tr-{trace.id}" for trace in traces]}
        for trace in self._read("GET", f"{TRACES}/batchGet", params=params).get("traces", ()):
            for row in trace.get("spans", ()):
                ids = {name: b64decode(row.get(name, "")).hex() for name in ("trace_id", "span_id", "parent_span_id")}
                yield TracedSpan.of({**row, **ids})

    def scores(self, traces: Iterable[StoredTrace], turns: Iterable[Turn]) -> Collection[StoredScore]:
        """Return those of the list."""
        return [score for trace in traces for score in trace.scores]

    def page(self, trace_id: str) -> str:
        """Return the address of the trace in the list of its experiment."""
        page = f"{self.server.shown_url}/#/experiments/{self._experiment_id}/traces"
        return f"{page}?selectedEvaluationId=tr-{trace_id}"

    @cached_property
    def _experiment_id(self) -> str:
        how, params = "get", {"experiment_id": self._project}
        if not self._project.isdecimal():
            how, params = "get-by-name", {"experiment_name": self._project}
        found = self._read("GET", f"{EXPERIMENTS}/{how}", params=params)
        if not found:
            raise ExportError(f"{self.server!r} has no experiment {self._project!r} yet")
        return str(found["experiment"]["experiment_id"])


def spans_of(turn: Turn) -> tuple[str, str]:
    """Return the ids of the spans that carry the scores of a turn: its own, and that of the model that answered."""
    return "" if turn.span is None else turn.span.span_id, answering_span_id(turn)


def _annotation(row: Mapping[str, Any]) -> StoredScore:
    result, metadata = row.get("result") or {}, row.get("metadata") or {}
    return StoredScore(
        row.get("span_id") or row["trace_id"],
        row["name"],
        str(metadata.get("version", "")),
        is_ours=row.get("identifier") == IDENTIFIER,
        annotator=row.get("annotator_kind", "CODE"),
        value=result.get("score"),
        label=result.get("label"),
        cause=metadata.get("cause"),
        explanation=result.get("explanation"),
        who=str(metadata.get(ANNOTATED_BY) or row.get("user_id") or ""),
    )


def _assessments(trace: Mapping[str, Any]) -> Iterator[StoredScore]:
    for row in trace.get("assessments", ()):
        metadata, feedback = row.get("metadata") or {}, row.get("feedback") or {}
        # One about a session is on its first trace.
        if row.get("valid", True) and SESSION_KEY not in metadata:
            kind = row.get("source", {}).get("source_type", "CODE")
            yield StoredScore(
                row.get("span_id") or trace["trace_id"].removeprefix("tr-"),
                row["assessment_name"],
                metadata.get(VERSION_KEY, ""),
                is_ours=ID_KEY in metadata and kind != "HUMAN",
                annotator="LLM" if kind == "LLM_JUDGE" else kind,
                value=(row.get("expectation") or feedback).get("value"),
                label=metadata.get("label"),
                cause=metadata.get("cause"),
                explanation=row.get("rationale"),
                is_reference="expectation" in row,
                who=str(metadata.get(ANNOTATED_BY) or row.get("source", {}).get("source_id", "")),
            )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


BACKENDS: Mapping[str, type[Backend]] = {"phoenix": PhoenixBackend, "mlflow": MlflowBackend}
