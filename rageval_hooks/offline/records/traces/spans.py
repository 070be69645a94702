"""Spans in exports of traces: OTLP-JSON, Phoenix's JSON, and tables of it."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ExportedSpan", "is_export", "spans_of", "trace_ids"]

_OTLP = "resourceSpans"
_VALUES = ("stringValue", "boolValue", "doubleValue", "bytesValue")


@dataclass(frozen=True)
class ExportedSpan:
    """A span.

    Attributes:
        trace_id: lower-case hex digits.
        span_id: lower-case hex digits.
        parent_id: of the span around it; empty for none.
        name: its name.
        kind: OpenInference's, in capitals; empty if there is none.
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


def is_export(row: Mapping[str, Any]) -> bool:
    """Return True if a row is a span, or an OTLP message with spans."""
    return _OTLP in row or bool(_context(row)[0])


def trace_ids(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of the traces that a row has spans of."""
    return (span.trace_id for span in spans_of(row) if span.trace_id)


def spans_of(row: Mapping[str, Any]) -> Iterator[ExportedSpan]:
    """Yield the spans of a row."""
    if _OTLP not in row:
        yield _from_phoenix(row)
        return
    for resource in _list(row[_OTLP]):
        for scope in _list(resource.get("scopeSpans")):
            for span in _list(scope.get("spans")):
                yield _from_otlp(span)


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _from_otlp(span: Mapping[str, Any]) -> ExportedSpan:
    attributes = _flat({str(item.get("key")): _otlp_value(item.get("value")) for item in _list(span.get("attributes"))})
    status = span.get("status")
    status = status if isinstance(status, Mapping) else {}
    failed = status.get("code") in (2, "2", "STATUS_CODE_ERROR")
    return ExportedSpan(
        trace_id=_hex(span.get("traceId")),
        span_id=_hex(span.get("spanId")),
        parent_id=_hex(span.get("parentSpanId")),
        name=str(span.get("name") or ""),
        kind=str(attributes.get("openinference.span.kind") or "").upper(),
        started_at=_nanoseconds(span.get("startTimeUnixNano")),
        ended_at=_nanoseconds(span.get("endTimeUnixNano")),
        error=str(status.get("message") or "error") if failed else None,
        attributes=attributes,
    )


def _otlp_value(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return None
    if "intValue" in value:
        return int(value["intValue"])
    if isinstance(array := value.get("arrayValue"), Mapping):
        return [_otlp_value(item) for item in array.get("values") or ()]
    if isinstance(pairs := value.get("kvlistValue"), Mapping):
        return {str(item.get("key")): _otlp_value(item.get("value")) for item in _list(pairs.get("values"))}
    return next((value[name] for name in _VALUES if name in value), None)


def _from_phoenix(row: Mapping[str, Any]) -> ExportedSpan:
    trace_id, span_id = _context(row)
    given = row.get("attributes")
    table = {name.removeprefix("attributes."): value for name, value in row.items() if name.startswith("attributes.")}
    attributes = _flat({**table, **(given if isinstance(given, Mapping) else {})})
    kind = row.get("span_kind") or attributes.get("openinference.span.kind") or ""
    failed = str(row.get("status_code") or "").upper() == "ERROR"
    return ExportedSpan(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_hex(row.get("parent_id")),
        name=str(row.get("name") or ""),
        kind=str(kind).upper(),
        started_at=_nanoseconds(row.get("start_time")),
        ended_at=_nanoseconds(row.get("end_time")),
        error=str(row.get("status_message") or "error") if failed else None,
        attributes=attributes,
    )


def _context(row: Mapping[str, Any]) -> tuple[str, str]:
    context = row.get("context")
    if isinstance(context, Mapping):
        return _hex(context.get("trace_id")), _hex(context.get("span_id"))
    return _hex(row.get("context.trace_id")), _hex(row.get("context.span_id"))


def _hex(value: Any) -> str:
    """Return an id in hex; protobuf's own JSON has it in base 64."""
    text = str(value or "").strip().removeprefix("0x")
    if len(text) in (16, 32) and all(character in "0123456789abcdefABCDEF" for character in text):
        return text.lower()
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return ""
    return raw.hex() if len(raw) in (8, 16) else ""


def _nanoseconds(value: Any) -> int:
    """Return a time, given as ISO 8601 or as a number since the epoch, whose size tells its unit."""
    if isinstance(value, str) and not value.isdigit():
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            return 0
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return round(moment.timestamp() * 1e6) * 1000
    if isinstance(value, datetime.datetime):
        return _nanoseconds(value.isoformat())
    try:
        number = float(value or 0)
    except (TypeError, ValueError):
        return 0
    if not number > 0:
        return 0
    for unit, least in ((1, 1e17), (1_000, 1e14), (1_000_000, 1e11)):
        if number >= least:
            return int(value) * unit if unit == 1 else round(number * unit)
    return round(number * 1e9)


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested attributes with dotted names. Lists of plain values stay what they are."""
    if isinstance(value, str) and value[:2] == "[{":
        try:
            value = json.loads(value)
        except ValueError:
            return {prefix: value}
    if isinstance(value, Mapping):
        items = [(str(name), part) for name, part in value.items()]
    elif isinstance(value, (list, tuple)) and any(isinstance(part, Mapping) for part in value):
        items = [(str(number), part) for number, part in enumerate(value)]
    else:
        return {} if value is None else {prefix: value}
    flat: dict[str, Any] = {}
    for name, part in items:
        flat.update(_flat(part, f"{prefix}.{name}" if prefix else name))
    return flat
