"""Which columns of a row hold the question, the answer and so on: the names that other tools give them."""

from rageval_hooks.offline.records.columns.aliases import (
    ALIASES,
    canonical,
    has_column,
    missing_column,
)
from rageval_hooks.offline.records.columns.fields import Fields, take_fields
from rageval_hooks.offline.records.columns.passage_values import names_sources

__all__ = [
    "ALIASES",
    "Fields",
    "canonical",
    "has_column",
    "missing_column",
    "names_sources",
    "take_fields",
]
