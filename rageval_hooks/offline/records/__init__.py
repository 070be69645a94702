"""Reading and writing records: one per answer, from every supported file."""

from rageval_hooks.offline.records.reading import read_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.writing import write_records

__all__ = ["Record", "read_records", "write_records"]
