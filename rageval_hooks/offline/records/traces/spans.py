"""Spans in exports of traces: OTLP-JSON, Phoenix's JSON, and tables of it."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rageval_hooks.runtime.narrowing import mapping_or_empty, mappings_in

__all__ = ["ExportedSpan", "is_export", "spans_of", "trace_ids"]

_OTLP = "resourceSpans"
_OTLP_ERRORS = (2, "2", "STATUS_CODE_ERROR")
"""The status of a failed span: protobuf's JSON has the number or the name."""

_KIND = "openinference.span.kind"
_PREFIX = "attributes."
"""The prefix of the columns of attributes in tables of Phoenix: ``attributes.input.value``."""

_ID_BYTES = (8, 16)
"""Lengths of the ids of spans and traces."""

_SECONDS = 1_000_000_000
_UNITS = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000))
"""Least number since the epoch → nanoseconds of its unit. Today is 1.7e18 ns, 1.7e15 µs, 1.7e12 ms and 1.7e9 s."""


@dataclass(frozen=True)
class ExportedSpan:
    """A span.

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

    def text_or_none(self, name: str) -> str | None:
        """Return an attribute as a text; None if it is not there or empty."""
        return self.text(name) or None


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
    for resource in mappings_in(row[_OTLP]):
        for scope in mappings_in(resource.get("scopeSpans")):
            for span in mappings_in(scope.get("spans")):
                yield _from_otlp(span)


def _from_otlp(span: Mapping[str, Any]) -> ExportedSpan:
    attributes = _flat(_otlp_object(span.get("attributes")))
    status = mapping_or_empty(span.get("status"))
    failed = status.get("code") in _OTLP_ERRORS
    return ExportedSpan(
        trace_id=_hex(span.get("traceId")),
        span_id=_hex(span.get("spanId")),
        parent_id=_hex(span.get("parentSpanId")),
        name=_text(span.get("name")),
        kind=_text(attributes.get(_KIND)).upper(),
        started_at=_nanoseconds(span.get("startTimeUnixNano")),
        ended_at=_nanoseconds(span.get("endTimeUnixNano")),
        error=_text(status.get("message"), "error") if failed else None,
        attributes=attributes,
    )


def _otlp_value(value: Any) -> Any:
    """Return a value of OTLP-JSON, which names the type of each: ``{"intValue": "5"}`` is 5."""
    for kind, found in mapping_or_empty(value).items():
        if kind in _READ_VALUE:
            return _READ_VALUE[kind](found)
    return None


def _otlp_array(array: Any) -> list[Any]:
    return [_otlp_value(item) for item in mapping_or_empty(array).get("values") or ()]


def _otlp_object(pairs: Any) -> dict[str, Any]:
    """Return the object of a list of keys and values; attributes have this form, too."""
    return {str(item.get("key")): _otlp_value(item.get("value")) for item in mappings_in(pairs)}


def _unchanged(value: Any) -> Any:
    return value


_READ_VALUE: dict[str, Callable[[Any], Any]] = {
    # JSON has no 64-bit integers, so that protobuf writes them as text.
    "intValue": int,
    "arrayValue": _otlp_array,
    "kvlistValue": lambda pairs: _otlp_object(mapping_or_empty(pairs).get("values")),
    **dict.fromkeys(("stringValue", "boolValue", "doubleValue", "bytesValue"), _unchanged),
}
"""Type of a value in OTLP-JSON → reads it."""


def _from_phoenix(row: Mapping[str, Any]) -> ExportedSpan:
    trace_id, span_id = _context(row)
    # A table has a column per attribute, JSON has one object with all of them.
    table = {name.removeprefix(_PREFIX): value for name, value in row.items() if name.startswith(_PREFIX)}
    attributes = _flat({**table, **mapping_or_empty(row.get("attributes"))})
    failed = _text(row.get("status_code")).upper() == "ERROR"
    return ExportedSpan(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_hex(row.get("parent_id")),
        name=_text(row.get("name")),
        kind=_text(row.get("span_kind"), _text(attributes.get(_KIND))).upper(),
        started_at=_nanoseconds(row.get("start_time")),
        ended_at=_nanoseconds(row.get("end_time")),
        error=_text(row.get("status_message"), "error") if failed else None,
        attributes=attributes,
    )


def _text(value: Any, default: str = "") -> str:
    """Return a value as text; the default for None and for what is empty."""
    return str(value) if value else default


def _context(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the ids of the trace and of the span, which are nested in JSON and columns in a table."""
    context = row.get("context")
    if isinstance(context, Mapping):
        return _hex(context.get("trace_id")), _hex(context.get("span_id"))
    return _hex(row.get("context.trace_id")), _hex(row.get("context.span_id"))


def _hex(value: Any) -> str:
    """Return an id in hex, empty for anything else. Protobuf's own JSON has ids in base 64."""
    text = _text(value).strip().removeprefix("0x")
    for read in (bytes.fromhex, _from_base64):
        try:
            raw = read(text)
        except ValueError:  # binascii.Error is one
            continue
        if len(raw) in _ID_BYTES:
            return raw.hex()
    return ""


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _nanoseconds(value: Any) -> int:
    """Return a time, given as ISO 8601 or as a number since the epoch, whose size tells its unit; 0 if unknown."""
    if isinstance(value, datetime.datetime):
        value = value.isoformat()
    if isinstance(value, str) and not value.isdigit():
        return _from_iso(value)
    try:
        number = float(value or 0)
    except (TypeError, ValueError):
        return 0
    # The negation covers NaN, too.
    if not number > 0:
        return 0
    unit = next((unit for least, unit in _UNITS if number >= least), _SECONDS)
    # A float has 53 bits, fewer than nanoseconds since the epoch need.
    return int(value) if unit == 1 else round(number * unit)


def _from_iso(text: str) -> int:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return 0
    # Times without a zone are UTC: tracing tools have no local time.
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1e6) * 1000


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested attributes with dotted names. Lists of plain values stay what they are."""
    items = _parts(_parsed(value))
    if items is None:
        return {} if value is None else {prefix: value}
    flat: dict[str, Any] = {}
    for name, part in items:
        flat.update(_flat(part, f"{prefix}.{name}" if prefix else name))
    return flat


def _parsed(value: Any) -> Any:
    """Return the list that a text holds: Phoenix's tables have documents and messages as JSON, ``[{...}, {...}]``."""
    if not isinstance(value, str) or not value.startswith("[{"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of an object, or of a list with objects, by name or number; None for other values."""
    if isinstance(value, Mapping):
        return [(str(name), part) for name, part in value.items()]
    if not mappings_in(value):
        return None
    return [(str(number), part) for number, part in enumerate(value)]
