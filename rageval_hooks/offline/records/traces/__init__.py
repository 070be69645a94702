"""Exports of traces: OTLP-JSON, Phoenix's JSON, and tables of its spans."""

from rageval_hooks.offline.records.traces.spans import is_export
from rageval_hooks.offline.records.traces.turns import read_traces, records_from_spans

__all__ = ["is_export", "read_traces", "records_from_spans"]
