"""Parquet, by pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rageval_hooks.errors import TurnError, requires
from rageval_hooks.offline.limits import ROW_GROUP, in_mib
from rageval_hooks.offline.records.formats import FileFormat, Row, SourceFile, check_header


class Parquet(FileFormat):
    """Parquet."""

    name = "Parquet"
    suffixes = (".parquet", ".pq")
    has_columns = True

    def read(self, file: SourceFile) -> Iterator[Row]:
        """Yield the rows, a small batch at a time."""
        with requires("pyarrow", "offline", "reading Parquet"):
            import pyarrow
            import pyarrow.parquet
        with file.open() as content:
            try:
                table = pyarrow.parquet.ParquetFile(content)
            except (OSError, pyarrow.ArrowException) as error:
                raise TurnError(f"{file.path} cannot be read as Parquet: {error}") from None
            check_header([str(name) for name in table.schema_arrow.names], file)
            groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
            if any(group.total_byte_size > ROW_GROUP for group in groups):
                raise TurnError(
                    f"{file.path} has row groups of more than {in_mib(ROW_GROUP)}: write it with smaller ones"
                )
            number = 0
            for batch in table.iter_batches(batch_size=128):
                for data in batch.to_pylist():
                    # `score --engine ray` writes the record next to the columns of its scores.
                    if isinstance(record := data.get("rageval_record"), str):
                        data = json.loads(record)
                    number += 1
                    yield Row(number, data, number)
