"""Exports of traces, by the attributes of OpenInference and ours: OTLP-JSON, Phoenix's JSON, tables of its spans."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Annotated, Any

from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, Field

from rageval_hooks.integrations.capture.passages import unique_passages
from rageval_hooks.integrations.capture.turns import busy_seconds
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.values import unpacked
from rageval_hooks.runtime.narrowing import is_missing, is_number, items_or_empty, mapping_or_empty, mappings_in
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
_MAX_DEPTH = 12


def _text(value: Any) -> str:
    return "" if is_missing(value) else str(value)


def _hex(value: Any) -> str:
    return _text(value).strip().lower().removeprefix("0x")


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
        value = unpacked(value)
    parts = value if isinstance(value, Mapping) else dict(enumerate(mappings_in(value)))
    if not parts:
        return {} if value is None or value == {} else {prefix: value}
    flat: dict[str, Any] = {}
    for name, part in parts.items():
        flat.update(_flat(part, f"{prefix}.{name}" if prefix else str(name)))
    return flat


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of a span: an object, or a list as OTLP-JSON has it."""
    return _flat(_otlp_mapping(value) if isinstance(value, list) else mapping_or_empty(value))


def _otlp_mapping(items: Any) -> dict[str, Any]:
    return {str(item.get("key")): _otlp_value(item.get("value")) for item in mappings_in(items)}


def _otlp_value(value: Any) -> Any:
    """Return a value of OTLP-JSON, which names the type of each: ``{"intValue": "5"}`` is 5."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    [(kind, found)] = value.items()
    if kind == "intValue":
        return int(found)  # JSON has no 64-bit integers, so that protobuf writes them as text
    if kind == "arrayValue":
        return [_otlp_value(item) for item in found.get("values") or ()]
    return _otlp_mapping(found.get("values")) if kind == "kvlistValue" else found


_Text = Annotated[str, BeforeValidator(_text)]
_Hex = Annotated[str, BeforeValidator(_hex)]
_Nanoseconds = Annotated[int, BeforeValidator(_nanoseconds)]


def _named(default: Any, *names: str | AliasPath) -> Any:
    return Field(default, validation_alias=AliasChoices(*names))


class ExportedSpan(BaseModel):
    """A span of an export: of Phoenix's JSON, of a row of its tables, or of OTLP-JSON.

    Attributes:
        trace_id: lower-case hex digits.
        span_id: lower-case hex digits.
        parent_id: of the span around it; empty for none.
        name: its name.
        span_kind: OpenInference's kind, if it is not among the attributes.
        started_at: nanoseconds since the epoch; 0 if that is not known.
        ended_at: likewise.
        status: "ERROR" if the span has failed; OTLP has a number or another name.
        message: what the status says.
        attributes: flat, with dots in their names; parts of lists by number.
    """

    trace_id: _Hex = _named("", AliasPath("context", "trace_id"), "context.trace_id", "traceId")
    span_id: _Hex = _named("", AliasPath("context", "span_id"), "context.span_id", "spanId")
    parent_id: _Hex = _named("", "parent_id", "parentSpanId")
    name: _Text = ""
    span_kind: _Text = ""
    started_at: _Nanoseconds = _named(0, "start_time", "startTimeUnixNano")
    ended_at: _Nanoseconds = _named(0, "end_time", "endTimeUnixNano")
    status: _Text = _named("", "status_code", AliasPath("status", "code"))
    message: _Text = _named("", "status_message", AliasPath("status", "message"))
    attributes: Annotated[dict[str, Any], BeforeValidator(_attributes)] = Field(default_factory=dict)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ExportedSpan:
        """Return the span of a row; a table has a column for each attribute."""
        columns = {name.removeprefix("attributes."): row[name] for name in row if name.startswith("attributes.")}
        return cls.model_validate({**row, "attributes": columns} if columns else row)

    @property
    def kind(self) -> str:
        """OpenInference's kind, in capitals; empty if the span has none."""
        return (self.span_kind or self.text("openinference.span.kind")).upper()

    @property
    def error(self) -> ErrorInfo | None:
        """The error that its status states."""
        has_failed = self.status.upper() in ("ERROR", "STATUS_CODE_ERROR", "2")
        return ErrorInfo(type="Error", message=self.message or "error") if has_failed else None

    def text(self, name: str) -> str:
        """Return an attribute as a text; empty if it is not there."""
        return _text(self.attributes.get(name))

    def below(self, prefix: str) -> dict[str, Any]:
        """Return the attributes with a prefix, by the rest of their names."""
        found = self.attributes.items()
        return {name.removeprefix(prefix): value for name, value in found if name.startswith(prefix)}


def is_export(row: Mapping[str, Any]) -> bool:
    """Return True if a row is a span, or an OTLP message with spans."""
    return _OTLP in row or "context.trace_id" in row or "trace_id" in mapping_or_empty(row.get("context"))


def span_rows(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the spans of a row: itself, or those of an OTLP message."""
    if _OTLP not in row:
        return [row]
    scopes = [scope for resource in mappings_in(row[_OTLP]) for scope in mappings_in(resource.get("scopeSpans"))]
    return [span for scope in scopes for span in mappings_in(scope.get("spans"))]


def records_of(spans: Iterable[ExportedSpan]) -> Iterator[Record]:
    """Yield the turns of a trace, by their start: spans of ours, or else the outermost chains that retrieve.

    A trace without a turn has none: nothing was retrieved, or nothing was answered from it.

    Args:
        spans: the spans of one trace. Parents may be missing from an export.

    Raises:
        ValidationError: a value does not fit its field.
    """
    by_id = {span.span_id: span for span in sorted(spans, key=lambda span: span.started_at)}
    has_ours = any(_TURN_ID in span.attributes for span in by_id.values())
    children: dict[str, list[ExportedSpan]] = defaultdict(list)
    for span in by_id.values():
        # The request of a web server may be missing. An export may name a span as its own parent.
        is_top = span.parent_id not in by_id or span.parent_id == span.span_id
        children["" if is_top else span.parent_id].append(span)
    # Each root with the spans inside it, and the outermost retrievers among these.
    turns: dict[str, tuple[ExportedSpan, list[ExportedSpan], list[ExportedSpan]]] = {}
    # Each span with the roots around it, and True if it is inside a retriever.
    waiting: list[tuple[ExportedSpan, tuple[str, ...], bool]] = [(span, (), False) for span in children[""]]
    for span, roots, is_searching in waiting:
        is_search = span.kind in _RETRIEVAL
        for outer in roots:
            _, inside, searches = turns[outer]
            inside.append(span)
            if is_search and not is_searching:
                searches.append(span)
        if _TURN_ID in span.attributes if has_ours else span.kind in _ROOTS and not roots:
            turns[span.span_id] = (span, [], [])
            roots = (*roots, span.span_id)
        waiting += [(child, roots, is_searching or is_search) for child in children[span.span_id]]
    for root, inside, searches in sorted(turns.values(), key=lambda turn: turn[0].started_at):
        if searches or has_ours:
            inside.sort(key=lambda span: span.started_at)
            searches.sort(key=lambda span: span.started_at)
            yield _record(root, inside, searches)


def _record(root: ExportedSpan, inside: Sequence[ExportedSpan], searches: Sequence[ExportedSpan]) -> Record:
    models = [span for span in inside if span.kind == "LLM"]
    # If the root has no input, it is what the first retriever looked for; without an output, what the last model wrote.
    asked = [root.text("input.value")]
    asked += [span.text("input.value") or span.text("reranker.query") for span in searches[:1]]
    said = [root.text("output.value")]
    for model in models[-1:]:
        said.append(model.text("llm.output_messages.0.message.content"))
        # Of a model that failed, it only says that: `{"choices": [{"finish_reason": "error", …}]}`.
        if model.error is None:
            said.append(model.text("output.value"))
    timing = Timing(
        started_at=root.started_at,
        ended_at=root.ended_at,
        retrieval=_seconds(searches),
        generation=_seconds(models),
        time_to_first_token=root.attributes.get("rageval.timing.time_to_first_token"),
        waiting=root.attributes.get("rageval.timing.waiting"),
    )
    turn = Turn(
        id=root.text(_TURN_ID) or root.span_id,
        query=next(filter(None, (_unwrapped(value, _ASKED) for value in asked)), ""),
        response=next(filter(None, (_unwrapped(value, _SAID) for value in said)), ""),
        passages=_passages(searches),
        usage=Usage.sum(map(_usage, models)),
        model=next(filter(None, (span.text("llm.model_name") for span in reversed(models))), None),
        timing=timing if root.started_at and root.ended_at else None,
        span=SpanReference(trace_id=root.trace_id, span_id=root.span_id, external=_TURN_ID not in root.attributes),
        name=root.name or "turn",
        framework=root.text("rageval.framework") or None,
        session_id=root.text("session.id") or None,
        user_id=root.text("user.id") or None,
        metadata=_object(root.attributes.get("metadata")),
        status="ok" if root.error is None else "error",
        error=root.error,
    )
    # The spans of evaluations have every score, the turn's own only the main ones.
    scores = _scores([*(span for span in inside if span.kind == "EVALUATOR"), root])
    return Record(id=turn.id, turn=turn, results=scores)


def _unwrapped(text: str, names: Sequence[str]) -> str:
    """Return the question or the answer, which a framework may have wrapped in JSON: ``{"query": "..."}``."""
    found = unpacked(text)
    # A list of plain items is an answer that looks like this, not a wrapper.
    is_wrapper = isinstance(found, Mapping) or any(isinstance(item, (list, Mapping)) for item in items_or_empty(found))
    return (_inner(found, names, 0) if is_wrapper else "") or text


def _inner(value: Any, names: Sequence[str], depth: int) -> str:
    """Return the text under one of the names, at any level of lists, messages and LangChain's ``kwargs``."""
    if isinstance(value, str):
        return value
    if depth > _MAX_DEPTH:
        return ""
    parts: list[Any] = []
    if isinstance(value, list):
        parts = value[::-1]  # the last message is the newest
    elif isinstance(value, Mapping):
        parts = [value[name] for name in (*names, *_WRAPPERS) if name in value]
    return next(filter(None, (_inner(part, names, depth + 1) for part in parts)), "")


def _object(value: Any) -> dict[str, Any]:
    """Return the object that an attribute holds, mostly as JSON; empty for anything else."""
    return dict(mapping_or_empty(unpacked(value)))


def _passages(searches: Sequence[ExportedSpan]) -> tuple[Passage, ...]:
    """Return the context: the output of the last reranker, or else that of all retrievers."""
    # A reranker receives what the retrievers found, and its output is what the prompt has.
    rerankers = [span for span in searches if span.kind == "RERANKER"]
    found: list[Passage] = []
    for span in rerankers[-1:] or searches:
        # Documents are numbered: "retrieval.documents.0.document.content".
        for number in count():
            fields = span.below(f"{_DOCUMENTS[span.kind]}.{number}.document.")
            if not fields:
                break
            # Metadata is one attribute with JSON in OTLP, and several attributes in tables.
            metadata = _object(fields.get("metadata"))
            metadata |= {
                name.removeprefix("metadata."): value for name, value in fields.items() if name.startswith("metadata.")
            }
            found.append(
                Passage(
                    text=_text(fields.get("content")),
                    id=_text(fields.get("id")) or None,
                    score=fields.get("score"),
                    in_prompt=metadata.pop("rageval.document.in_prompt", None),
                    prompt_share=metadata.pop("rageval.document.prompt_share", None),
                    metadata=metadata,
                )
            )
    # Several retrievers may find the same document.
    return unique_passages(found)


def _usage(span: ExportedSpan) -> Usage | None:
    read, written = (span.attributes.get(f"llm.token_count.{name}") for name in ("prompt", "completion"))
    # Half of the usage would make a wrong price.
    known = None not in (read, written)
    return Usage.model_validate({"input_tokens": read, "output_tokens": written}) if known else None


def _seconds(spans: Iterable[ExportedSpan]) -> float | None:
    """Return the seconds during which at least one of the spans ran: retrievers run concurrently."""
    return busy_seconds((span.started_at, span.ended_at) for span in spans if span.started_at and span.ended_at)


def _scores(spans: Iterable[ExportedSpan]) -> tuple[Score, ...]:
    """Return the scores of the whole turn that we wrote onto spans; of each the first."""
    found: dict[str, Score] = {}
    for span in spans:
        for name, value in span.below("rageval.score.").items():
            if is_number(value) and name not in found:
                about = {
                    "label": span.text(f"rageval.label.{name}") or None,
                    "explanation": span.text(f"rageval.explanation.{name}") or None,
                    "annotator": span.text("rageval.annotator") or "CODE",
                    "metric": span.text("rageval.metric") or None,
                }
                found[name] = Score.model_validate({"name": name, "value": value, **about})
    return tuple(found.values())
