"""A report as tables, the same for the terminal, for Markdown and for the page."""

from __future__ import annotations

from itertools import chain

from rageval_hooks.offline.report.model import Report
from rageval_hooks.offline.report.render.comparison_tables import comparison_tables
from rageval_hooks.offline.report.render.file_tables import file_tables
from rageval_hooks.offline.report.render.table_model import Column, Table

__all__ = ["Column", "Table", "comparison_tables", "file_tables", "to_tables"]


def to_tables(report: Report) -> list[Table]:
    """Return the tables of a report, in reading order."""
    per_file = map(file_tables, report.files)
    per_comparison = map(comparison_tables, report.comparisons)
    return list(chain.from_iterable((*per_file, *per_comparison)))
