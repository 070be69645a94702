"""Reading and writing records: one per answer, from every supported file."""

from rageval_hooks.offline.records.columns import ColumnMap, reading_options
from rageval_hooks.offline.records.formats import BadRow, Row, check_file
from rageval_hooks.offline.records.reading import count_rows, read_items, read_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.writing import atomic_file, check_outputs, write_output, write_records

__all__ = [
    "BadRow",
    "ColumnMap",
    "Record",
    "Row",
    "atomic_file",
    "check_file",
    "check_outputs",
    "count_rows",
    "read_items",
    "read_records",
    "reading_options",
    "write_output",
    "write_records",
]
