"""Finished spans as plain data, wherever they come from: the SDK, its JSON, OTLP-JSON, Phoenix, tables of spans."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, Field

from rageval_hooks.integrations.opentelemetry import conventions as names
from rageval_hooks.runtime.literals import unpacked
from rageval_hooks.runtime.narrowing import is_missing, mapping_or_empty, mappings_in
from rageval_hooks.turn import ErrorInfo

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_OTLP = "resourceSpans"
_WHOLE = frozenset((*names.INSTRUCTIONS, *names.MESSAGES_IN, *names.MESSAGES_OUT, *names.DOCUMENTS_JSON))
_LISTS = frozenset(("llm.input_messages", "llm.output_messages", "retrieval.documents", "reranker.output_documents"))


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
    except (TypeError, ValueError, OverflowError):  # for example "NaT" or infinity
        return 0
    # Today is 1.7e18 ns in OTLP, and 1.7e12 ms in the JSON of a data frame.
    return number if number > 1e16 else number * 1_000_000


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested attributes with dotted names. Lists of plain values and whole messages stay what they are."""
    # Phoenix's tables have documents and messages as JSON.
    if isinstance(value, str) and prefix in _LISTS and value.startswith("[{"):
        value = unpacked(value)
    parts = value if isinstance(value, Mapping) else dict(enumerate([] if prefix in _WHOLE else mappings_in(value)))
    if not parts:
        return {} if value is None or value == {} else {prefix: value}
    flat: dict[str, Any] = {}
    for name, part in parts.items():
        flat.update(_flat(part, f"{prefix}.{name}" if prefix else str(name)))
    return flat


def nested(attributes: Mapping[str, Any], prefix: str) -> Any:
    """Return the attributes below a prefix as objects and lists: ``llm.input_messages.0.message.role`` is in a list."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            *path, last = name[len(prefix) :].split(".")
            place = root
            for part in path:
                inner = place.setdefault(part, {})
                place = inner if isinstance(inner, dict) else {}
            place[last] = value
    return _with_lists(root)


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return value
    items = {name: _with_lists(item) for name, item in value.items()}
    if all(name.isdigit() for name in items):
        return [items[name] for name in sorted(items, key=int)]
    return items


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of a span: an object, or a list as OTLP-JSON has it."""
    return _flat(_otlp_mapping(value) if isinstance(value, list) else mapping_or_empty(value))


def _otlp_mapping(items: Any) -> dict[str, Any]:
    return {str(item.get("key")): _otlp_value(item.get("value")) for item in mappings_in(items)}


def _otlp_value(value: Any) -> Any:
    """Return a value of OTLP-JSON, which names the type of each: ``{"intValue": "5"}`` is 5, MLflow's ``int_value``."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    [(kind, found)] = value.items()
    kind = kind.replace("_value", "Value")
    if kind == "intValue":
        return int(found)  # JSON has no 64-bit integers, so that protobuf writes them as text
    if kind == "arrayValue":
        return [_otlp_value(item) for item in found.get("values") or ()]
    return _otlp_mapping(found.get("values")) if kind == "kvlistValue" else found


def _events(value: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(_text(event.get("name")), _attributes(event.get("attributes"))) for event in mappings_in(value)]


_Text = Annotated[str, BeforeValidator(_text)]
_Hex = Annotated[str, BeforeValidator(_hex)]
_Nanoseconds = Annotated[int, BeforeValidator(_nanoseconds)]


def _named(default: Any, *names: str | AliasPath) -> Any:
    return Field(default, validation_alias=AliasChoices(*names))


class TracedSpan(BaseModel):
    """A finished span of any source.

    Attributes:
        trace_id: lower-case hex digits.
        span_id: lower-case hex digits.
        parent_id: of the span around it; empty for none.
        name: its name.
        span_kind: OpenInference's kind, if it is not among the attributes.
        scope: the name of the tracer that made it; empty if an export does not say.
        started_at: nanoseconds since the epoch; 0 if that is not known.
        ended_at: likewise.
        status: "ERROR" if the span has failed; OTLP has a number or another name.
        message: what the status says.
        attributes: flat, with dots in their names; parts of lists by number.
        events: name and attributes of each span event.
        flags: W3C trace flags.
    """

    trace_id: _Hex = _named("", AliasPath("context", "trace_id"), "context.trace_id", "traceId", "trace_id")
    span_id: _Hex = _named("", AliasPath("context", "span_id"), "context.span_id", "spanId", "span_id")
    parent_id: _Hex = _named("", "parent_id", "parentSpanId", "parent_span_id")
    name: _Text = ""
    span_kind: _Text = ""
    scope: _Text = ""
    started_at: _Nanoseconds = _named(0, "start_time", "startTimeUnixNano", "start_time_unix_nano")
    ended_at: _Nanoseconds = _named(0, "end_time", "endTimeUnixNano", "end_time_unix_nano")
    status: _Text = _named("", "status_code", AliasPath("status", "status_code"), AliasPath("status", "code"))
    message: _Text = _named("", "status_message", AliasPath("status", "description"), AliasPath("status", "message"))
    attributes: Annotated[dict[str, Any], BeforeValidator(_attributes)] = Field(default_factory=dict)
    events: Annotated[list[tuple[str, dict[str, Any]]], BeforeValidator(_events)] = Field(default_factory=list)
    flags: int = Field(1, validation_alias="trace_flags")

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> TracedSpan:
        """Return the span of a row; a table has a column for each attribute."""
        columns = {name.removeprefix("attributes."): row[name] for name in row if name.startswith("attributes.")}
        return cls.model_validate({**row, "attributes": columns} if columns else row)

    @classmethod
    def of_sdk(cls, span: ReadableSpan) -> TracedSpan:
        """Return a span of OpenTelemetry's SDK."""
        context, parent, scope = span.get_span_context(), span.parent, span.instrumentation_scope
        return cls.model_construct(
            trace_id="" if context is None else f"{context.trace_id:032x}",
            span_id="" if context is None else f"{context.span_id:016x}",
            parent_id="" if parent is None else f"{parent.span_id:016x}",
            name=span.name,
            span_kind="",
            scope="" if scope is None else scope.name,
            started_at=span.start_time or 0,
            ended_at=span.end_time or 0,
            status=span.status.status_code.name,
            message=span.status.description or "",
            attributes=dict(span.attributes or {}),
            events=[(event.name, dict(event.attributes or {})) for event in span.events],
            flags=1 if context is None else int(context.trace_flags),
        )

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
    return [
        {"scope": mapping_or_empty(scope.get("scope")).get("name"), **span}
        for scope in scopes
        for span in mappings_in(scope.get("spans"))
    ]
