"""Exports of traces, by the attributes of OpenInference and ours: OTLP-JSON, Phoenix's JSON, tables of its spans."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.values import is_missing
from rageval_hooks.runtime.jsonable import plain_mapping
from rageval_hooks.score import Score
from rageval_hooks.turn import ErrorInfo, Passage, SpanReference, Timing, Turn, Usage

_OTLP = "resourceSpans"
_TURN_ID = "rageval.turn.id"
"""Attribute of a span that this package wrote for a turn."""

_RETRIEVAL, _ROOTS = ("RETRIEVER", "RERANKER"), ("CHAIN", "AGENT")
_DOCUMENTS = {"RETRIEVER": "retrieval.documents", "RERANKER": "reranker.output_documents"}

# Names under which frameworks keep the question, the answer, and what is around either, the most likely first.
_ASKED = ("query", "question", "input", "user_input", "query_str", "query_bundle", "content", "text")
_SAID = ("answer", "response", "output", "result", "generated_answer", "content", "text")
_WRAPPERS = ("messages", "kwargs", "message")
_MOST_DEPTH = 12


@dataclass(frozen=True)
class ExportedSpan:
    """A span of an export.

    Attributes:
        trace_id: lower-case hex digits.
        span_id: lower-case hex digits.
        parent_id: of the span around it; empty for none.
        name: its name.
        kind: OpenInference's, in capitals; empty if the span has no kind.
        started_at: nanoseconds since the epoch; 0 if that is not known.
        ended_at: likewise.
        error: what its status says, if that is an error.
        attributes: flat, with dots in their names; parts of lists by number.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    started_at: int
    ended_at: int
    error: str | None
    attributes: Mapping[str, Any]

    def text(self, name: str) -> str:
        """Return an attribute as a text; empty if it is not there."""
        value = self.attributes.get(name)
        return "" if value is None else str(value)

    def below(self, prefix: str) -> dict[str, Any]:
        """Return the attributes with a prefix, by the rest of their names."""
        found = self.attributes.items()
        return {name.removeprefix(prefix): value for name, value in found if name.startswith(prefix)}


def is_export(row: Mapping[str, Any]) -> bool:
    """Return True if a row is a span, or an OTLP message with spans."""
    context = row.get("context")
    return _OTLP in row or "context.trace_id" in row or (isinstance(context, Mapping) and "trace_id" in context)


def spans_of(row: Mapping[str, Any]) -> Iterator[ExportedSpan]:
    """Yield the spans of a row: one of Phoenix, or those of an OTLP message, which get the form of Phoenix's JSON."""
    if _OTLP not in row:
        yield _span(row)
        return
    for resource in _mappings(row[_OTLP]):
        for span in chain.from_iterable(_mappings(scope.get("spans")) for scope in _mappings(resource["scopeSpans"])):
            status = span.get("status") or {}
            yield _span(
                {
                    "context": {"trace_id": span.get("traceId"), "span_id": span.get("spanId")},
                    "parent_id": span.get("parentSpanId"),
                    "name": span.get("name"),
                    "start_time": span.get("startTimeUnixNano"),
                    "end_time": span.get("endTimeUnixNano"),
                    # Protobuf's JSON has the number or the name.
                    "status_code": "ERROR" if status.get("code") in (2, "2", "STATUS_CODE_ERROR") else "",
                    "status_message": status.get("message"),
                    "attributes": _otlp_attributes(span.get("attributes")),
                }
            )


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _otlp_attributes(value: Any) -> dict[str, Any]:
    return {str(item.get("key")): _otlp_value(item.get("value")) for item in _mappings(value)}


def _otlp_value(value: Any) -> Any:
    """Return a value of OTLP-JSON, which names the type of each: ``{"intValue": "5"}`` is 5."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    [(kind, found)] = value.items()
    if kind == "intValue":
        return int(found)  # JSON has no 64-bit integers, so that protobuf writes them as text
    if kind == "arrayValue":
        return [_otlp_value(item) for item in found.get("values") or ()]
    return _otlp_attributes(found.get("values")) if kind == "kvlistValue" else found


def _span(row: Mapping[str, Any]) -> ExportedSpan:
    """Return a span of Phoenix. JSON has its ids and attributes in objects, a table has a column for each."""
    context, nested = row.get("context"), row.get("attributes")
    ids = context if isinstance(context, Mapping) else row
    prefix = "" if ids is context else "context."
    table = {name.removeprefix("attributes."): row[name] for name in row if name.startswith("attributes.")}
    attributes = _flat({**table, **(nested if isinstance(nested, Mapping) else {})})
    has_failed = str(row.get("status_code")).upper() == "ERROR"
    return ExportedSpan(
        trace_id=_hex(ids.get(f"{prefix}trace_id")),
        span_id=_hex(ids.get(f"{prefix}span_id")),
        parent_id=_hex(row.get("parent_id")),
        name=str(row.get("name") or ""),
        kind=str(row.get("span_kind") or attributes.get("openinference.span.kind", "")).upper(),
        started_at=_nanoseconds(row.get("start_time")),
        ended_at=_nanoseconds(row.get("end_time")),
        error=str(row.get("status_message") or "error") if has_failed else None,
        attributes=attributes,
    )


def _hex(value: Any) -> str:
    return "" if is_missing(value) else str(value).strip().lower().removeprefix("0x")


def _nanoseconds(value: Any) -> int:
    """Return a time, given as ISO 8601, or as nanoseconds or milliseconds since the epoch; 0 if unknown."""
    try:
        if isinstance(value, str) and not value.isdigit():
            moment = datetime.datetime.fromisoformat(value)
            # Times without a zone are UTC: tracing tools have no local time.
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
            return round(moment.timestamp() * 1e6) * 1000
        number = int(value or 0)
    except (TypeError, ValueError):
        return 0
    # Today is 1.7e18 ns in OTLP, and 1.7e12 ms in the JSON of a data frame.
    return number if number > 1e16 else number * 1_000_000


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested attributes with dotted names. Lists of plain values stay what they are."""
    # Phoenix's tables have documents and messages as JSON.
    if isinstance(value, str) and value.startswith("[{"):
        found = _parsed(value)
        value = value if found is None else found
    if isinstance(value, Mapping):
        parts: Iterable[tuple[Any, Any]] = value.items()
    elif _mappings(value):
        parts = enumerate(value)
    else:
        return {} if value is None else {prefix: value}
    flat: dict[str, Any] = {}
    for name, part in parts:
        flat.update(_flat(part, f"{prefix}.{name}" if prefix else str(name)))
    return flat


def records_of(spans: Iterable[ExportedSpan]) -> Iterator[Record]:
    """Yield the turns of a trace, by their start: spans of ours, or else the outermost chains that retrieve.

    A trace without a turn has none: nothing was retrieved, or nothing was answered from it.

    Args:
        spans: the spans of one trace. Parents may be missing from an export.

    Raises:
        ValidationError: a value does not fit its field.
    """
    by_id = {span.span_id: span for span in spans}
    children: dict[str, list[ExportedSpan]] = {}
    for span in sorted(by_id.values(), key=lambda span: span.started_at):
        children.setdefault(span.parent_id, []).append(span)

    def below(root: ExportedSpan, stop: Sequence[str] = ()) -> list[ExportedSpan]:
        """Return the spans inside a span, outer ones first; nothing inside spans of the kinds where it stops."""
        # An export may name a span as its own ancestor.
        seen = {root.span_id}
        found = [root]
        for outer in found:
            if outer is root or outer.kind not in stop:
                new = [child for child in children.get(outer.span_id, ()) if child.span_id not in seen]
                seen.update(child.span_id for child in new)
                found += new
        return found[1:]

    roots = [span for span in by_id.values() if _TURN_ID in span.attributes]
    if not roots:
        tops = [span for span in by_id.values() if span.parent_id not in by_id]
        # The request of a web server, for example, is around the chain.
        chains = ([top] if top.kind in _ROOTS else _of_kinds(below(top, _ROOTS), _ROOTS) for top in tops)
        roots = [root for root in chain.from_iterable(chains) if _of_kinds(below(root), _RETRIEVAL)]
    for root in sorted(roots, key=lambda span: span.started_at):
        yield _record(root, below(root), _of_kinds(below(root, _RETRIEVAL), _RETRIEVAL))


def _of_kinds(spans: Iterable[ExportedSpan], kinds: Sequence[str]) -> list[ExportedSpan]:
    return sorted((span for span in spans if span.kind in kinds), key=lambda span: span.started_at)


def _record(root: ExportedSpan, inside: Sequence[ExportedSpan], retrievers: Sequence[ExportedSpan]) -> Record:
    models = [span for span in inside if span.kind == "LLM"]
    # If the root has no input, it is what the first retriever looked for; without an output, what the last model wrote.
    asked = [root.text("input.value")]
    asked += [span.text("input.value") or span.text("reranker.query") for span in retrievers[:1]]
    said = [root.text("output.value")]
    for model in models[-1:]:
        said += [model.text("llm.output_messages.0.message.content"), model.text("output.value")]
    metadata = root.attributes.get("metadata")
    turn = Turn(
        id=root.text(_TURN_ID) or root.span_id,
        query=next(filter(None, (_text(value, _ASKED) for value in asked)), ""),
        response=next(filter(None, (_text(value, _SAID) for value in said)), ""),
        passages=tuple(_passages(retrievers)),
        usage=Usage.sum(map(_usage, models)),
        model=next(filter(None, (span.text("llm.model_name") for span in reversed(models))), None),
        timing=_timing(root, retrievers, models),
        span=SpanReference(trace_id=root.trace_id, span_id=root.span_id, external=_TURN_ID not in root.attributes),
        name=root.name or "turn",
        framework=root.text("rageval.framework") or None,
        session_id=root.text("session.id") or None,
        user_id=root.text("user.id") or None,
        metadata=plain_mapping(_object(metadata)),
        status="ok" if root.error is None else "error",
        error=None if root.error is None else ErrorInfo(type="Error", message=root.error),
    )
    # The spans of evaluations have every score, the turn's own only the main ones.
    scored = [*(span for span in inside if span.kind == "EVALUATOR"), root]
    return Record(id=turn.id, turn=turn, results=tuple(_scores(scored)))


def _text(value: str, names: Sequence[str]) -> str:
    """Return the question or the answer, which a framework may have wrapped in JSON: ``{"query": "..."}``."""
    return _inner(_parsed(value), names, 0) or value if value.startswith(("{", "[")) else value


def _inner(value: Any, names: Sequence[str], depth: int) -> str:
    """Return the text under one of the names, at any level of lists, messages and LangChain's ``kwargs``."""
    if isinstance(value, str):
        return value
    if depth > _MOST_DEPTH:
        return ""
    parts: list[Any] = []
    if isinstance(value, list):
        parts = value[::-1]  # the last message is the newest
    elif isinstance(value, Mapping):
        parts = [value[name] for name in (*names, *_WRAPPERS) if name in value]
    return next(filter(None, (_inner(part, names, depth + 1) for part in parts)), "")


def _parsed(text: str) -> Any:
    """Return the value that a text holds as JSON; None if it holds none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object(value: Any) -> Mapping[str, Any]:
    """Return the object that an attribute holds, mostly as JSON; empty for anything else."""
    found = _parsed(value) if isinstance(value, str) else value
    return found if isinstance(found, Mapping) else {}


def _passages(retrievers: Sequence[ExportedSpan]) -> list[Passage]:
    """Return the context: the output of the last reranker, or else that of all retrievers."""
    # A reranker receives what the retrievers found, and its output is what the prompt has.
    rerankers = [span for span in retrievers if span.kind == "RERANKER"]
    found: dict[tuple[str | None, str], Passage] = {}
    for span in rerankers[-1:] or retrievers:
        # Documents are numbered: "retrieval.documents.0.document.content".
        for number in count():
            fields = span.below(f"{_DOCUMENTS[span.kind]}.{number}.document.")
            if not fields:
                break
            # Metadata is one attribute with JSON in OTLP, and several attributes in tables.
            metadata = dict(_object(fields.get("metadata")))
            metadata |= {
                name.removeprefix("metadata."): fields[name] for name in fields if name.startswith("metadata.")
            }
            identity = fields.get("id")
            passage = Passage(
                text=str(fields.get("content") or ""),
                id=None if identity is None else str(identity),
                score=fields.get("score"),
                in_prompt=metadata.pop("rageval.document.in_prompt", None),
                prompt_share=metadata.pop("rageval.document.prompt_share", None),
                metadata=plain_mapping(metadata),
            )
            # Several retrievers may find the same document.
            found.setdefault((passage.id, passage.text), passage)
    return list(found.values())


def _usage(span: ExportedSpan) -> Usage | None:
    read, written = (span.attributes.get(f"llm.token_count.{name}") for name in ("prompt", "completion"))
    # Half of the usage would make a wrong price.
    return None if read is None or written is None else Usage(input_tokens=int(read), output_tokens=int(written))


def _timing(root: ExportedSpan, retrievers: Sequence[ExportedSpan], models: Sequence[ExportedSpan]) -> Timing | None:
    if not root.started_at or not root.ended_at:
        return None
    return Timing(
        started_at=root.started_at,
        ended_at=root.ended_at,
        retrieval=_together(retrievers),
        generation=_together(models),
        time_to_first_token=root.attributes.get("rageval.timing.time_to_first_token"),
        waiting=root.attributes.get("rageval.timing.waiting"),
    )


def _together(spans: Iterable[ExportedSpan]) -> float | None:
    """Return the seconds during which at least one of the spans ran."""
    times = sorted((span.started_at, span.ended_at) for span in spans if span.started_at and span.ended_at)
    if not times:
        return None
    total = until = 0
    for start, end in times:
        # Only what is after the end of the spans before it is counted: retrievers run concurrently.
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total / 1e9


def _scores(spans: Iterable[ExportedSpan]) -> list[Score]:
    """Return the scores of the whole turn that we wrote onto spans; of each the first."""
    found: dict[str, Score] = {}
    for span in spans:
        for name, value in span.below("rageval.score.").items():
            if isinstance(value, (int, float)) and name not in found:
                about = {
                    "label": span.text(f"rageval.label.{name}") or None,
                    "explanation": span.text(f"rageval.explanation.{name}") or None,
                    "annotator": span.text("rageval.annotator") or "CODE",
                    "metric": span.text("rageval.metric") or None,
                }
                found[name] = Score.model_validate({"name": name, "value": value, **about})
    return list(found.values())
