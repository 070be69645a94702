"""Values of cells: text, lists as other programs write them into a cell, chat messages."""

from rageval_hooks.offline.records.cells.chat import chat_text
from rageval_hooks.offline.records.cells.fields import (
    answerable_in,
    citations_in,
    error_in,
    metadata_in,
    query_in,
    reference_in,
    response_in,
    run_in,
    text_in,
)
from rageval_hooks.offline.records.cells.kinds import is_missing, is_number, is_present, is_text, kind_of
from rageval_hooks.offline.records.cells.lookup import field_of, first_key, first_present
from rageval_hooks.offline.records.cells.packed import unpacked

__all__ = [
    "answerable_in",
    "chat_text",
    "citations_in",
    "error_in",
    "field_of",
    "first_key",
    "first_present",
    "is_missing",
    "is_number",
    "is_present",
    "is_text",
    "kind_of",
    "metadata_in",
    "query_in",
    "reference_in",
    "response_in",
    "run_in",
    "text_in",
    "unpacked",
]
