"""The read and score APIs of Phoenix, MLflow and Langfuse in this process, as far as ``watch`` needs them."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

from rageval_hooks.exporters.langfuse import SPAN_KEY
from rageval_hooks.integrations.opentelemetry import TracedSpan
from tests.exporters.recording import Recorded, RecordingServer, Reply, recording_server
from tests.integrations.opentelemetry.recorded import ANSWER, PASSAGE, QUESTION
from tests.offline.watch.langfuse_api import PROJECT, observation, spans_of_otlp

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC).timestamp()
"""The time of the tests."""

_PAGE = 3
"""Rows of a page, so that there are several."""


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def rag_trace(
    number: int,
    at: float = NOW - 100,
    *,
    question: str = QUESTION,
    answer: str = ANSWER,
    root: bool = True,
    session: str = "",
) -> list[dict[str, Any]]:
    """Return the spans of a turn, three seconds long; its root comes last."""

    def one(position: int, name: str, kind: str, parent: int, **attributes: Any) -> dict[str, Any]:
        return {
            "name": name,
            "context": {"trace_id": f"{number:032x}", "span_id": f"{number * 16 + position:016x}"},
            "parent_id": f"{number * 16 + parent:016x}" if parent else None,
            "span_kind": kind,
            "start_time": iso(at + position / 10),
            "end_time": iso(at + 3 - position / 10),
            "status_code": "OK",
            "status_message": "",
            "attributes": attributes,
            "events": [],
        }

    documents = {
        "retrieval.documents.0.document.id": "canal-1",
        "retrieval.documents.0.document.content": PASSAGE,
    }
    model = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": f"{PASSAGE}\n\nQuestion: {question}",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
    }
    said = {"session.id": session} if session else {}
    spans = [
        one(2, "retrieve", "RETRIEVER", 1, **{"input.value": question, **documents}),
        one(3, "ChatModel", "LLM", 1, **model),
        one(1, "ask", "CHAIN", 0, **{"input.value": question, "output.value": answer, **said}),
    ]
    return spans if root else spans[:2]


class Store:
    """What a backend has.

    Attributes:
        spans: as Phoenix has them.
        observed: spans that came by OTLP.
        scores: what was posted; of scores with one identity the newest.
        posted: identities of all scores that were posted, in their order.
        refuses: True for the span of a score that the backend does not accept.
    """

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.observed: list[TracedSpan] = []
        self.scores: dict[tuple[str, ...], dict[str, Any]] = {}
        self.posted: list[tuple[str, ...]] = []
        self.refuses: Callable[[str], bool] = lambda _: False

    def add(self, *traces: Iterable[dict[str, Any]]) -> None:
        for trace in traces:
            self.spans += trace

    def traces(self, since: float, session: str | None = None) -> list[list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for span in self.spans:
            found.setdefault(span["context"]["trace_id"], []).append(span)
        traces = sorted(found.values(), key=lambda spans: min(span["start_time"] for span in spans))
        if session is not None:
            traces = [spans for spans in traces if any(one["attributes"].get("session.id") == session for one in spans)]
        return [spans for spans in traces if min(span["start_time"] for span in spans) >= iso(since)]

    def label(self, span: dict[str, Any], label: str, reference: str) -> None:
        """Add what a person says of a turn."""
        raise NotImplementedError

    def verdicts(self) -> list[tuple[str, str]]:
        """Return each turn's span with its verdict, in the order of the spans."""
        raise NotImplementedError

    def conversations(self) -> dict[str, tuple[float, str]]:
        """Return the share of good answers of each session, and the sentence about it."""
        raise NotImplementedError

    def respond(self, request: Recorded) -> Reply:
        raise NotImplementedError


class PhoenixStore(Store):
    """A project of Phoenix."""

    name = "phoenix"

    def label(self, span: dict[str, Any], label: str, reference: str) -> None:
        about = {"span_id": span["context"]["span_id"], "name": "correct", "annotator_kind": "HUMAN"}
        body = {**about, "identifier": "", "result": {"label": label}, "metadata": {}}
        self.scores["span", about["span_id"], "correct", "", ""] = body

    def verdicts(self) -> list[tuple[str, str]]:
        found = [(key[1], body["result"]["label"]) for key, body in self.scores.items() if key[2] == "verdict"]
        return sorted(one for one in found if len(one[0]) == 16)

    def conversations(self) -> dict[str, tuple[float, str]]:
        found = {key[1]: body["result"] for key, body in self.scores.items() if key[2] == "good_answers"}
        return {session: (result["score"], result["explanation"]) for session, result in found.items()}

    def respond(self, request: Recorded) -> Reply:
        query = parse_qs(request.query)
        if request.method == "POST" and request.path.endswith("_annotations"):
            kind = request.path.rpartition("/")[2].removesuffix("_annotations")
            if any(self.refuses(body.get("span_id", "")) for body in request.body["data"]):
                return Reply(status=422)
            for body in request.body["data"]:
                target = body.get(f"{kind}_id") or body["span_id"]
                key = (kind, target, body["name"], body["identifier"], str(body.get("document_position", "")))
                self.scores[key] = body
                self.posted.append(key)
            return Reply()
        if "/projects/missing/" in request.path:
            return Reply(status=404)
        if request.path.endswith("/traces"):
            since = datetime.fromisoformat(query.get("start_time", [iso(0)])[0]).timestamp()
            traces = self.traces(since, query.get("session_identifier", [None])[0])
            return self._page(list(map(_phoenix_row, traces)), query)
        if request.path.endswith("/spans"):
            return self._page([one for one in self.spans if one["context"]["trace_id"] in query["trace_id"]], query)
        for kind in ("span", "trace"):
            if request.path.endswith(f"/{kind}_annotations"):
                ids = query[f"{kind}_ids"]
                rows = [body for key, body in self.scores.items() if key[0] == kind and key[1] in ids]
                return self._page(rows, query)
        return Reply()

    def _page(self, rows: list[dict[str, Any]], query: dict[str, list[str]]) -> Reply:
        start = int(query.get("cursor", ["0"])[0])
        after = str(start + _PAGE) if len(rows) > start + _PAGE else None
        return Reply(body={"data": rows[start : start + _PAGE], "next_cursor": after})


def _phoenix_row(spans: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "trace_id": spans[0]["context"]["trace_id"],
        "start_time": min(span["start_time"] for span in spans),
        "end_time": max(span["end_time"] for span in spans),
        "spans": [{"span_id": span["context"]["span_id"], "parent_id": span["parent_id"]} for span in spans],
    }


class MlflowStore(Store):
    """An experiment of MLflow, which stores what it gets twice as two."""

    name = "mlflow"

    def label(self, span: dict[str, Any], label: str, reference: str) -> None:
        trace_id = f"tr-{span['context']['trace_id']}"
        about = {"trace_id": trace_id, "source": {"source_type": "HUMAN"}}  # of the whole trace
        said = {"correct": {"feedback": {"value": label}}, "expected": {"expectation": {"value": reference}}}
        for name, value in said.items():
            self.scores[name,] = {**about, "assessment_name": name, **value}

    def verdicts(self) -> list[tuple[str, str]]:
        return sorted(
            (body["span_id"], body["feedback"]["value"])
            for body in self.scores.values()
            if body["assessment_name"] == "verdict" and body.get("valid", True)
        )

    def conversations(self) -> dict[str, tuple[float, str]]:
        valid = [one for one in self.scores.values() if one["assessment_name"] == "good_answers" and one["valid"]]
        found = {one["metadata"]["mlflow.trace.session"]: (one["feedback"]["value"], one["rationale"]) for one in valid}
        assert len(found) == len(valid)
        return found

    def respond(self, request: Recorded) -> Reply:
        query = parse_qs(request.query)
        if request.path.endswith("/experiments/get"):
            return Reply(body={"experiment": {"experiment_id": query["experiment_id"][0]}})
        if request.path.endswith("/get-by-name"):
            if query["experiment_name"] == ["missing"]:
                return Reply(status=404)
            return Reply(body={"experiment": {"experiment_id": "7"}})
        if request.path.endswith("/traces/search"):
            name, _, value = request.body["filter"].split()  # for example: timestamp_ms >= 1795867200000
            since, session = (0.0, value[1:-1]) if "session" in name else (int(value) / 1000, None)
            start = int(request.body.get("page_token", 0))
            rows = [self._info(spans) for spans in self.traces(since, session)]
            more = {"next_page_token": str(start + _PAGE)} if len(rows) > start + _PAGE else {}
            return Reply(body={"traces": rows[start : start + _PAGE], **more})
        if request.path.endswith("/traces/batchGet"):
            ids = {name.removeprefix("tr-") for name in query["trace_ids"]}
            found = [spans for spans in self.traces(0) if spans[0]["context"]["trace_id"] in ids]
            return Reply(body={"traces": [{"spans": list(map(_proto, spans))} for spans in found]})
        trace_id = request.path.partition("/traces/")[2].partition("/")[0]
        if request.method == "POST":
            body = request.body["assessment"]
            if self.refuses(body["span_id"]):
                return Reply(status=422)
            if replaced := body.get("overrides"):
                self.scores[(replaced,)]["valid"] = False
            identity = str(len(self.scores) + 1)
            self.scores[(identity,)] = {**body, "assessment_id": identity, "trace_id": trace_id}
            self.posted.append((trace_id, body["span_id"], body["assessment_name"]))
            return Reply()
        [spans] = [one for one in self.traces(0) if f"tr-{one[0]['context']['trace_id']}" == trace_id]
        return Reply(body={"trace": {"trace_info": self._info(spans)}})

    def _info(self, spans: list[dict[str, Any]]) -> dict[str, Any]:
        trace_id = f"tr-{spans[0]['context']['trace_id']}"
        began = min(span["start_time"] for span in spans)
        ended = max(datetime.fromisoformat(span["end_time"]) for span in spans)
        took = (ended - datetime.fromisoformat(began)).total_seconds()
        return {
            "trace_id": trace_id,
            "request_time": began,
            "execution_duration": f"{took}s",
            "state": "OK" if any(span["parent_id"] is None for span in spans) else "IN_PROGRESS",
            "trace_metadata": {"mlflow.trace.sizeStats": str(len(spans))},
            "assessments": [body for body in self.scores.values() if body["trace_id"] == trace_id],
        }


def _with_kind(span: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span as they were sent: Phoenix has the kind in a field of its own."""
    return {"openinference.span.kind": span["span_kind"], **span["attributes"]}


def _proto(span: dict[str, Any]) -> dict[str, Any]:
    """Return a span as MLflow writes it: protobuf's JSON, with the names of protobuf."""

    def encoded(digits: str | None) -> str:
        return b64encode(bytes.fromhex(digits or "")).decode()

    return {
        "trace_id": encoded(span["context"]["trace_id"]),
        "span_id": encoded(span["context"]["span_id"]),
        "parent_span_id": encoded(span["parent_id"]),
        "name": span["name"],
        "start_time_unix_nano": int(datetime.fromisoformat(span["start_time"]).timestamp() * 1e9),
        "end_time_unix_nano": int(datetime.fromisoformat(span["end_time"]).timestamp() * 1e9),
        "attributes": [{"key": key, "value": {"string_value": value}} for key, value in _with_kind(span).items()],
        "status": {"code": "STATUS_CODE_OK"},
    }


class LangfuseStore(Store):
    """A project of Langfuse 4, whose keys decide which one it is.

    Attributes:
        version: of Langfuse.
        page: rows of a page.
    """

    name = "langfuse"
    version = 4
    page = _PAGE

    def label(self, span: dict[str, Any], label: str, reference: str) -> None:
        about = {"traceId": span["context"]["trace_id"], "source": "ANNOTATION", "authorUserId": "", "comment": None}
        said = {"correct": ("CATEGORICAL", label), "output": ("CORRECTION", reference), "note": ("TEXT", "Look!")}
        for name, (kind, text) in said.items():
            self.scores[name,] = {**about, "id": name, "name": name, "dataType": kind, "value": text, "metadata": {}}

    def verdicts(self) -> list[tuple[str, str]]:
        return sorted(
            (body["metadata"][SPAN_KEY].removeprefix("0x"), body["value"])
            for body in self.scores.values()
            if body["name"] == "verdict"
        )

    def conversations(self) -> dict[str, tuple[float, str]]:
        found = [body for body in self.scores.values() if "sessionId" in body]
        return {body["sessionId"]: (body["value"], body["comment"]) for body in found}

    def respond(self, request: Recorded) -> Reply:
        query = {name: values[0] for name, values in parse_qs(request.query).items()}
        path = request.path.removeprefix("/api/public/")
        assert int(query.get("limit", 0)) <= (1000 if path == "v2/observations" else 100)
        if request.method == "POST" and path == "scores":
            return self._take(request.body if isinstance(request.body, list) else [request.body])
        if request.method == "POST" and path == "otel/v1/traces":
            is_zipped = request.headers.get("content-encoding") == "gzip"
            for span in spans_of_otlp(gzip.decompress(request.content) if is_zipped else request.content):
                self.observed.append(span)
            return Reply()
        if path == "projects":
            return Reply(body={"data": [{"id": PROJECT, "name": "canal"}]})
        if path == ("v2/observations" if self.version == 4 else "observations"):
            return self._page(self._observations(query), query, whole="io" in query.get("fields", "io"))
        if path == ("v3/scores" if self.version == 4 else "v2/scores"):
            traces = query["traceId"].split(",") if self.version == 4 else [query["traceId"]]
            rows = [body for body in self.scores.values() if body.get("traceId") in traces]
            return self._page(list(map(self._score, rows)), query)
        return Reply(status=404, body={"message": "This endpoint is not available"})

    def _take(self, bodies: list[dict[str, Any]]) -> Reply:
        if any(self.refuses(body["metadata"].get(SPAN_KEY, "").removeprefix("0x")) for body in bodies):
            return Reply(status=207 if len(bodies) > 1 else 400)
        for body in bodies:
            self.scores[body["id"],] = {"source": "API", "authorUserId": None, **body}
            place = body.get("sessionId") or body["traceId"]
            self.posted.append((place, body["metadata"].get(SPAN_KEY, ""), body["name"]))
        return Reply(status=202)

    def _observations(self, query: dict[str, str]) -> list[dict[str, Any]]:
        column, wanted = "traceId", [query["traceId"]] if "traceId" in query else None
        if self.version == 4 and "filter" in query:
            [condition] = json.loads(query["filter"])
            assert (condition["type"], condition["operator"]) == ("stringOptions", "any of")
            column, wanted = condition["column"], condition["value"]
        since = datetime.fromisoformat(query.get("fromStartTime", "1970-01-01T00:00:00Z")).timestamp() * 1e9
        spans = [TracedSpan.of({**one, "attributes": _with_kind(one)}) for one in self.spans] + self.observed
        newest_first = sorted((one for one in spans if one.started_at >= since), key=lambda one: -one.started_at)
        rows = [observation(span, self.version) for span in newest_first]
        return [row for row in rows if wanted is None or row[column] in wanted]

    def _score(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a score as it is listed: what of its metadata is JSON comes back parsed."""
        metadata = {name: int(text) if str(text).isdigit() else text for name, text in body["metadata"].items()}
        places = ("traceId", "observationId")
        shown = {name: value for name, value in body.items() if name not in (*places, "value")}
        if self.version == 4:
            on = body.get("observationId")
            subject = {"kind": "observation", "id": on} if on else {"kind": "trace", "id": body["traceId"]}
            return {**shown, "value": body["value"], "metadata": metadata, "subject": subject}
        said, is_text = body["value"], isinstance(body["value"], str)
        value = {"stringValue": str(said) if is_text or isinstance(said, bool) else None}
        value["value"] = 0 if is_text else float(said)
        return {**shown, **value, "metadata": metadata, **{name: body.get(name) for name in places}}

    def _page(self, rows: list[dict[str, Any]], query: dict[str, str], whole: bool = True) -> Reply:
        if not whole:
            texts = ("input", "output", "metadata", "usageDetails")
            rows = [{name: value for name, value in row.items() if name not in texts} for row in rows]
        if self.version == 4:
            start = int(query.get("cursor", 0))
            meta: dict[str, Any] = {"cursor": str(start + self.page)} if len(rows) > start + self.page else {}
        else:
            start = (int(query.get("page", 1)) - 1) * self.page
            meta = {"page": start // self.page + 1, "totalPages": -(-len(rows) // self.page)}
        return Reply(body={"data": rows[start : start + self.page], "meta": meta})


class Langfuse3Store(LangfuseStore):
    """A project of Langfuse 3."""

    version = 3


STORES = (PhoenixStore, MlflowStore, LangfuseStore)


@contextmanager
def serve(store: Store) -> Iterator[RecordingServer]:
    """Serve what a store has, while the block runs."""
    with recording_server(store.respond) as server:
        yield server
