"""Which columns of a row hold the question, the answer and so on: the names that other tools give them."""

from rageval_hooks.offline.records.columns.aliases import (
    ALIASES,
    canonical,
    check_columns,
    has_column,
    missing_column,
)
from rageval_hooks.offline.records.columns.fields import Fields, take_fields

__all__ = ["ALIASES", "Fields", "canonical", "check_columns", "has_column", "missing_column", "take_fields"]
