"""Excel workbooks, by openpyxl. The first sheet that has rows is read."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Iterator
from typing import IO, Any

from rageval_hooks.errors import TurnError, requires
from rageval_hooks.offline.limits import WORKBOOK, in_mib
from rageval_hooks.offline.records.formats.base import FileFormat, SourceFile, check_header
from rageval_hooks.offline.records.rows import Row

__all__ = ["Excel", "check_archive"]


class Excel(FileFormat):
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
            values = [cell.isoformat() if isinstance(cell, (datetime.date, datetime.time)) else cell for cell in cells]
            if any(value not in (None, "") for value in values):
                number += 1
                # Excel does not store empty cells at the end of a row.
                padded = values + [None] * (len(header) - len(values))
                yield Row(line, dict(zip(header, padded, strict=False)), number)

    def _begin(self, file: SourceFile) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        with requires("openpyxl", "offline", "reading Excel files"):
            import openpyxl  # type: ignore[import-untyped]
        try:
            check_archive(file.binary(), WORKBOOK, str(file.path))
            book = openpyxl.load_workbook(file.binary(), read_only=True, data_only=True)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            if isinstance(error, TurnError):
                raise
            raise TurnError(f"{file.path} cannot be read as Excel: {error}") from None
        # The first sheet is often a cover page without cells.
        for sheet in book.worksheets:
            rows = sheet.iter_rows(values_only=True)
            first = next(rows, None)
            if first is not None and any(cell is not None for cell in first):
                return check_header(["" if cell is None else str(cell) for cell in first], file), rows
        return [], iter(())


def check_archive(file: IO[bytes], limit: int, name: str) -> None:
    """Check how large a zip archive is when it is unpacked: Office documents are such archives.

    Args:
        file: the archive.
        limit: bytes.
        name: for the message.

    Raises:
        TurnError: it is larger than the limit.
        zipfile.BadZipFile: it is no such archive.
    """
    with zipfile.ZipFile(file) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if size > limit:
        raise TurnError(f"{name} is larger than {in_mib(limit)} (unpacked): split it")
