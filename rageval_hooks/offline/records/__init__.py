"""Reading and writing records: one per answer, from every supported file."""

from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.files import atomic_file, check_outputs, read_records, write_output, write_records
from rageval_hooks.offline.records.reading import read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow, Row, check_file
from rageval_hooks.offline.records.source import RowSource, count_rows

__all__ = [
    "BadRow",
    "ColumnMap",
    "Record",
    "Row",
    "RowSource",
    "atomic_file",
    "check_file",
    "check_outputs",
    "count_rows",
    "read_items",
    "read_records",
    "write_output",
    "write_records",
]
