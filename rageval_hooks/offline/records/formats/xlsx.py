"""Excel workbooks, by openpyxl. The first sheet that has rows is read."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Iterator
from typing import Any

from rageval_hooks.errors import TurnError, requires
from rageval_hooks.offline.records.formats.base import FileFormat, SourceFile
from rageval_hooks.offline.records.formats.csv import check_header
from rageval_hooks.offline.records.rows import Row

__all__ = ["Xlsx"]


class Xlsx(FileFormat):
    """Excel workbooks."""

    name = "Excel"
    suffixes = (".xlsx", ".xlsm")
    has_columns = True
    has_text_cells = True
    is_binary = True

    def columns(self, file: SourceFile) -> list[str]:
        """Return the first row."""
        return self._begin(file)[0]

    def read(self, file: SourceFile) -> Iterator[Row]:
        """Yield the rows below the header; empty ones are passed over."""
        header, rows = self._begin(file)
        number = 0
        for line, cells in enumerate(rows, 2):
            values = [_plain(cell) for cell in cells[: len(header)]]
            if any(value not in (None, "") for value in values):
                number += 1
                # Excel does not store empty cells at the end of a row.
                padded = values + [None] * (len(header) - len(values))
                yield Row(line, dict(zip(header, padded, strict=True)), number)

    def _begin(self, file: SourceFile) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        # The first sheet is often a cover page without cells.
        for sheet in _open(file).worksheets:
            rows = sheet.iter_rows(values_only=True)
            first = next(rows, None)
            if first is not None and any(cell is not None for cell in first):
                header = ["" if cell is None else str(cell) for cell in first]
                return check_header(header, file), rows
        return [], iter(())


def _plain(cell: Any) -> Any:
    return cell.isoformat() if isinstance(cell, (datetime.date, datetime.time)) else cell


def _open(file: SourceFile) -> Any:
    with requires("openpyxl", "offline", "reading Excel files"):
        import openpyxl  # type: ignore[import-untyped]
    try:
        return openpyxl.load_workbook(file.binary(), read_only=True, data_only=True)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise TurnError(f"{file.path} cannot be read as Excel: {error}") from None
