"""Parquet, by pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rageval_hooks.errors import TurnError, requires
from rageval_hooks.offline.limits import ROW_GROUP, in_mib
from rageval_hooks.offline.records.formats.base import FileFormat, SourceFile, check_header
from rageval_hooks.offline.records.rows import Row

__all__ = ["Parquet"]

_BATCH = 128


class Parquet(FileFormat):
    """Parquet."""

    name = "Parquet"
    suffixes = (".parquet", ".pq")
    has_columns = True
    has_text_cells = True
    is_binary = True

    def columns(self, file: SourceFile) -> list[str]:
        """Return the names of the schema."""
        return check_header([str(name) for name in _open(file).schema_arrow.names], file)

    def count(self, file: SourceFile) -> int:
        """Return the number of rows, which the file states."""
        return int(_open(file).metadata.num_rows)

    def read(self, file: SourceFile) -> Iterator[Row]:
        """Yield the rows, a small batch at a time."""
        number = 0
        for batch in _open(file).iter_batches(batch_size=_BATCH):
            for data in batch.to_pylist():
                number += 1
                yield Row(number, data, number)


def _open(file: SourceFile) -> Any:
    with requires("pyarrow", "offline", "reading Parquet"):
        import pyarrow
        import pyarrow.parquet
    # Memory mapping reads only the needed pages, but needs the file itself.
    source = file.binary() if file.is_compressed else file.path
    try:
        found = pyarrow.parquet.ParquetFile(source, memory_map=not file.is_compressed)
    except (OSError, pyarrow.ArrowException) as error:
        raise TurnError(f"{file.path} cannot be read as Parquet: {error}") from None
    groups = map(found.metadata.row_group, range(found.metadata.num_row_groups))
    if any(group.total_byte_size > ROW_GROUP for group in groups):
        raise TurnError(f"{file.path} has row groups of more than {in_mib(ROW_GROUP)}: write it with smaller ones")
    return found
