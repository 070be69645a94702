"""Excel workbooks, by openpyxl. The first sheet that has rows is read."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Iterator
from typing import IO

from rageval_hooks.errors import TurnError, requires
from rageval_hooks.offline.limits import WORKBOOK, in_mib
from rageval_hooks.offline.records.formats import FileFormat, Row, SourceFile, check_header


class Excel(FileFormat):
    """Excel workbooks."""

    name = "Excel"
    suffixes = (".xlsx", ".xlsm")
    has_columns = True

    def read(self, file: SourceFile) -> Iterator[Row]:
        """Yield the rows below the header; empty ones are passed over."""
        with requires("openpyxl", "offline", "reading Excel files"):
            import openpyxl  # type: ignore[import-untyped]
        with file.open() as content:
            try:
                check_archive(content, WORKBOOK, str(file.path))
                book = openpyxl.load_workbook(content, read_only=True, data_only=True)
            except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
                if isinstance(error, TurnError):
                    raise
                raise TurnError(f"{file.path} cannot be read as Excel: {error}") from None
            header: list[str] = []
            for sheet in book.worksheets:
                number = 0
                for line, cells in enumerate(sheet.iter_rows(values_only=True), 1):
                    if line == 1:
                        header = check_header(["" if cell is None else str(cell) for cell in cells], file)
                    elif any(cell not in (None, "") for cell in cells):
                        number += 1
                        # Excel does not store empty cells at the end of a row.
                        padded = [*map(_plain, cells), *[None] * (len(header) - len(cells))]
                        yield Row(line, dict(zip(header, padded, strict=False)), number)
                # The first sheet is often a cover page without cells.
                if any(header):
                    return


def _plain(cell: object) -> object:
    return cell.isoformat() if isinstance(cell, (datetime.date, datetime.time)) else cell


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
    file.seek(0)
