"""Traces that a backend has: which there are, their spans, and the scores that they have already."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from base64 import b64decode
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NamedTuple

from rageval_hooks.errors import ExportError
from rageval_hooks.exporters.content import answering_span_id
from rageval_hooks.exporters.credentials import variable
from rageval_hooks.exporters.delivery_queue import PostError
from rageval_hooks.exporters.langfuse import SPAN_KEY, LangfuseExporter
from rageval_hooks.exporters.mlflow import EXPERIMENTS, ID_KEY, SESSION_KEY, TRACES, VERSION_KEY, MlflowExporter
from rageval_hooks.exporters.phoenix import IDENTIFIER, PhoenixExporter
from rageval_hooks.exporters.score_api import ScoreApiExporter, known
from rageval_hooks.integrations.opentelemetry import TracedSpan
from rageval_hooks.integrations.opentelemetry.conventions import KINDS
from rageval_hooks.integrations.opentelemetry.facts import parsed_text
from rageval_hooks.metrics.base import VERDICT_VALUES
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.narrowing import is_number, mapping_or_empty
from rageval_hooks.score import ANNOTATED_BY, VERDICT, Result, Score, Skipped
from rageval_hooks.turn import Turn

_PAGE = 500
_NOT_FOUND = 404
_LANGFUSE_PAGE = 100
_MAX_TRACE_SECONDS = 600.0
"""How long before a time a trace may have begun that has spans after it, where spans are listed and not traces."""
_KINDS = frozenset(name for name, _ in KINDS)
_OTEL_IDS = re.compile(r"[0-9a-f]{32} [0-9a-f]{16}")


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
        probability: with which the turn was selected for it.
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
    probability: float = 1.0

    @property
    def result(self) -> Result | None:
        """The score as a result; None if it has neither a number nor a verdict."""
        about = {"name": self.name, "label": self.label, "cause": self.cause, "annotator": self.annotator}
        text = (self.explanation or "").removeprefix(f"{self.cause}: ")
        value = VERDICT_VALUES.get(self.label or "") if self.name == VERDICT else self.value
        if is_number(value):
            more = {"value": value, "explanation": text or None, "version": self.version or "1", "metric": self.name}
            return Score.model_validate({**about, **more, "probability": self.probability})
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

    @abstractmethod
    def session(self, session_id: str) -> Iterable[StoredTrace]:
        """Return the traces of a session, the oldest first."""

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
        for row in self._pages("traces", {**which, "order": "asc", "include_spans": "true"}):
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
        return map(TracedSpan.of, self._pages("spans", {"trace_id": [trace.id for trace in traces]}))

    def scores(self, traces: Iterable[StoredTrace], turns: Iterable[Turn]) -> Collection[StoredScore]:
        """Ask for the annotations of the turns' spans and of their answering models."""
        spans = set(chain.from_iterable(map(spans_of, turns)))
        rows = self._pages("span_annotations", {"span_ids": sorted(spans)}) if spans else ()
        return [_annotation(row) for row in rows]

    def said_of(self, traces: Iterable[StoredTrace]) -> Collection[StoredScore]:
        """Ask for the annotations of traces. Those of programs repeat what spans have."""
        rows = self._pages("trace_annotations", {"trace_ids": [trace.id for trace in traces]})
        return [_annotation(row) for row in rows if row.get("annotator_kind") == "HUMAN"]

    def page(self, trace_id: str) -> str:
        """Return an address that leads to the trace, whatever its project is."""
        return f"{self.server.shown_url}/redirects/traces/{trace_id}"

    def _pages(self, what: str, about: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        about, path = {**about, "limit": _PAGE}, f"v1/projects/{self.server.project}/{what}"
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


class LangfuseBackend(Backend):
    """The project of Langfuse's keys, by its public API: that of Langfuse 4, else that of Langfuse 3.

    Observations that did not come from OpenTelemetry, such as those of Langfuse's SDK 2, are left out.
    """

    def __init__(self, url: str | None, project: str | None) -> None:
        self.exporter = LangfuseExporter(url)
        self._named = project

    @property
    def project(self) -> str:
        """The name of the project."""
        return str(self._found["name"])

    def traces(self, since: float) -> Iterator[StoredTrace]:
        """Yield traces with the number of their observations, of which Langfuse lists the newest first."""
        about = {"fromStartTime": _iso(since - _MAX_TRACE_SECONDS)}
        return (trace for trace in self._traces(about) if trace.started_at >= since)

    def session(self, session_id: str) -> Iterable[StoredTrace]:
        """Return the traces of a session; none in Langfuse 3, which does not list them."""
        return self._traces(_filter("sessionId", [session_id])) if self._is_langfuse_4 else ()

    def _traces(self, which: Mapping[str, Any]) -> Iterator[StoredTrace]:
        found = defaultdict[str, list[tuple[float, float, bool]]](list)
        for row in self._observations({**which, "fields": "core,basic", "limit": 1000}):
            began, ended = row["startTime"], row.get("endTime") or row["startTime"]
            is_root = row.get("isRootObservation") or not row.get("parentObservationId")
            found[row["traceId"]].append((_seconds(began), _seconds(ended), bool(is_root)))
        for trace_id, times in sorted(found.items(), key=lambda one: min(one[1])):
            yield StoredTrace(
                id=trace_id,
                started_at=min(times)[0],
                ended_at=max(ended for _, ended, _ in times),
                has_root=any(is_root for *_, is_root in times),
                mark=str(len(times)),
            )

    def spans(self, traces: Iterable[StoredTrace]) -> Iterator[TracedSpan]:
        """Yield spans with the attributes that Langfuse keeps, and with those of its own SDK."""
        rows = self._observations({"fields": "core,basic,io,metadata,model,usage"}, traces)
        # Until the server merges them, an observation that came twice is listed twice.
        yield from {span.span_id: span for span in map(_observation, rows)}.values()

    def scores(self, traces: Iterable[StoredTrace], turns: Iterable[Turn]) -> Collection[StoredScore]:
        """Ask for the scores of the traces and of their observations."""
        ids = [trace.id for trace in traces]
        path, queries = "v2/scores", [{"traceId": trace_id} for trace_id in ids]
        if self._is_langfuse_4 and ids:
            path, queries = "v3/scores", [{"traceId": ",".join(ids), "fields": "details,subject,annotation"}]
        return list(map(_langfuse_score, self._pages(path, queries)))

    def page(self, trace_id: str) -> str:
        """Return the address of the trace in its project."""
        return f"{self.server.shown_url}/project/{self._found['id']}/traces/{trace_id}"

    @cached_property
    def _found(self) -> Mapping[str, Any]:
        for project in self._read("GET", "api/public/projects").get("data", ()):
            if self._named in (None, project["id"], project["name"]):
                return dict(project)
        raise ExportError(f"{self.server!r} has no project {self._named or ''!r} for these keys")

    @cached_property
    def _is_langfuse_4(self) -> bool:
        return bool(self._read("GET", "api/public/v2/observations", params={"limit": 1}))

    def _observations(
        self, about: Mapping[str, Any], traces: Iterable[StoredTrace] | None = None
    ) -> Iterator[Mapping[str, Any]]:
        ids = None if traces is None else [trace.id for trace in traces]
        if self._is_langfuse_4:
            path, queries = "v2/observations", [about if ids is None else {**about, **_filter("traceId", ids)}]
        else:
            about = {"fromStartTime": about.get("fromStartTime")}
            path, queries = "observations", [{**about, "traceId": one} for one in ids] if ids else [about]
        rows = self._pages(path, queries)
        return (row for row in rows if _OTEL_IDS.fullmatch(f"{row['traceId']} {row['id']}"))

    def _pages(self, path: str, queries: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of all pages: Langfuse 4 has cursors, Langfuse 3 has numbers."""
        for query in queries:
            about = known({"limit": _LANGFUSE_PAGE, **query})
            while about:
                answer = self._read("GET", f"api/public/{path}", params=about)
                if not answer:
                    raise ExportError(f"{self.server!r} has no /api/public/{path}")
                yield from answer["data"]
                cursor, number = answer["meta"].get("cursor"), answer["meta"].get("page", 1)
                if cursor is not None:
                    about["cursor"] = cursor
                elif number < answer["meta"].get("totalPages", 0):
                    about["page"] = number + 1
                else:
                    about = {}


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
        probability=float(metadata.get("probability") or 1),
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
                probability=float(metadata.get("probability") or 1),
            )


def _filter(column: str, values: Sequence[str]) -> dict[str, str]:
    """Return the parameter of Langfuse 4 for the observations with one of several values."""
    condition = {"type": "stringOptions", "column": column, "operator": "any of", "value": values}
    return {"filter": json.dumps([condition])}


def _observation(row: Mapping[str, Any]) -> TracedSpan:
    """Return an observation of Langfuse as the span that it was.

    Langfuse keeps the attributes as metadata, except for inputs and outputs, of whatever convention, which it moves to
    fields of its own. They come back under the names of its SDK.
    """
    held = mapping_or_empty(row.get("metadata"))
    # Langfuse 3 has {"attributes": {"llm.system": …}}, Langfuse 4 {"attributes.llm.system": …}.
    columns = {name.removeprefix("attributes."): held[name] for name in held if name.startswith("attributes.")}
    attributes = {**mapping_or_empty(held.get("attributes")), **columns}
    scope = str(held.get("scope.name") or mapping_or_empty(held.get("scope")).get("name") or "")
    usage = mapping_or_empty(row.get("usageDetails"))
    # The span's own attributes say more, and what Langfuse does not know is a SPAN, such as a request to a server.
    has_type = scope.startswith("langfuse-sdk") or (row["type"] != "SPAN" and _KINDS.isdisjoint(attributes))
    ours = {
        "langfuse.observation.type": row["type"] if has_type else None,
        "langfuse.observation.input": row.get("input"),
        "langfuse.observation.output": row.get("output"),
        "gen_ai.request.model": row.get("providedModelName") or row.get("model"),
        "gen_ai.usage.input_tokens": usage.get("input"),
        "gen_ai.usage.output_tokens": usage.get("output"),
        "session.id": row.get("sessionId"),
        "user.id": row.get("userId"),
    }
    about = {
        "span_id": row["id"],
        "parent_id": row.get("parentObservationId"),
        "scope": scope,
        "start_time": row["startTime"],
        "end_time": row.get("endTime") or row["startTime"],
        "status_code": row.get("level"),
        "status_message": row.get("statusMessage"),
        "attributes": {name: _plain(value) for name, value in {**attributes, **known(ours)}.items()},
    }
    return TracedSpan.of({**row, **about})


def _plain(value: Any) -> Any:
    """Return an attribute of Langfuse as it was. It parses whatever is JSON, and MLflow writes each text as JSON."""
    if isinstance(value, str):
        return parsed_text(value) if value.startswith('"') else value
    return value if isinstance(value, (int, float)) else json.dumps(value, ensure_ascii=False)


def _langfuse_score(row: Mapping[str, Any]) -> StoredScore:
    metadata, subject = mapping_or_empty(row.get("metadata")), mapping_or_empty(row.get("subject"))
    # Langfuse 3 has the place and words in fields of their own.
    ids = {"trace": row.get("traceId"), "observation": row.get("observationId"), subject.get("kind"): subject.get("id")}
    # What a person writes without a choice is a note.
    special = {"TEXT": None, "BOOLEAN": bool(row.get("value"))}
    value = special.get(row["dataType"], row.get("stringValue") or row.get("value"))
    kind = "HUMAN" if row["source"] == "ANNOTATION" else str(metadata.get("annotator") or "CODE")
    is_ours = SPAN_KEY in metadata and kind != "HUMAN"
    turn = str(metadata[SPAN_KEY]).removeprefix("0x") if is_ours else ""
    return StoredScore(
        ids["observation"] or turn or str(ids["trace"]),
        row["name"],
        str(metadata.get("version", "")),
        is_ours=is_ours,
        annotator=kind,
        value=value,
        label=metadata.get("label") or (value if isinstance(value, str) else None),
        cause=metadata.get("cause"),
        explanation=row.get("comment"),
        is_reference=row["dataType"] == "CORRECTION",
        who=str(metadata.get(ANNOTATED_BY) or row.get("authorUserId") or ""),
        probability=float(metadata.get("probability") or 1),
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


BACKENDS: Mapping[str, type[Backend]] = {
    "phoenix": PhoenixBackend,
    "mlflow": MlflowBackend,
    "langfuse": LangfuseBackend,
}
