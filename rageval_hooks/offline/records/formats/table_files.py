"""Tables: CSV in any of its dialects, Excel workbooks by openpyxl, Parquet by pyarrow."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, Any

from rageval_hooks.errors import TurnError, requires
from rageval_hooks.offline.input_sizes import LINE, ROW_GROUP, WORKBOOK, check_archive, in_mib
from rageval_hooks.offline.records.formats import BadRow, FileFormat, Row, SourceFile, undecoded

# "=1+1", "@SUM(A1)", and texts that are escaped already, such as "'=1+1"
_FORMULA = re.compile("\\A'*[=+\\-@\t\r]")
# -0.25, +3e-7
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class Csv(FileFormat):
    """CSV and TSV. The delimiter is the one of comma, semicolon, tab and bar that is most frequent in the header.

    Texts that a spreadsheet would take for a formula are written with an apostrophe before them. Reading removes it.
    """

    suffixes = (".csv", ".tsv")
    has_columns = True

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield a row per line, or per several lines where a cell holds line breaks."""
        csv.field_size_limit(LINE)  # a cell may hold a whole context
        with file.open_text() as text:
            # csv.Sniffer looks at the letters of the texts too: of a table of prose it may return "e".
            delimiter = max(",;\t|", key=next(file.lines(text), "").count)
            text.seek(0)
            reader = csv.reader(file.lines(text), delimiter=delimiter)
            header = _header(map(_unescaped, next(reader, [])), file)
            while True:
                line = reader.line_num + 1
                try:
                    cells = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield BadRow(line, f"not CSV: {error}")
                    continue
                # Spreadsheets write empty rows as commas.
                if not any(map(str.strip, cells)):
                    continue
                if len(cells) != len(header):
                    yield BadRow(line, f"has {len(cells)} cells, the header has {len(header)}", cells)
                elif reason := undecoded(" ".join(cells)):
                    yield BadRow(line, reason, dict(zip(header, cells, strict=True)))
                else:
                    yield Row(line, dict(zip(header, map(_unescaped, cells), strict=True)))

    def write(self, file: IO[bytes], rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Write a header and a line per row; values without a column are not written."""
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(_escaped, columns))
        for row in rows:
            writer.writerow([_escaped(row.get(column, "")) for column in columns])
        # Closing the text layer would close the output, which belongs to the caller.
        text.flush()
        text.detach()


def _escaped(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula: a text such as "=1+1" gets an apostrophe before it."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _unescaped(cell: str) -> str:
    """Return the text of a cell, without the apostrophe of :func:`_escaped`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


class Excel(FileFormat):
    """Excel workbooks. One sheet is read: the one that the user names, or that has a question and an answer."""

    suffixes = (".xlsx", ".xlsm")
    has_columns = True

    def read(self, file: SourceFile) -> Iterator[Row]:
        """Yield the rows below the header; empty ones are passed over."""
        with requires("openpyxl", "offline", "reading Excel files"):
            import openpyxl  # type: ignore[import-untyped]
        with file.open() as content:
            try:
                check_archive(content, WORKBOOK, file.path)
                book = openpyxl.load_workbook(content, read_only=True, data_only=True)
            except TurnError:
                raise
            except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
                raise TurnError(f"{file.path} cannot be read as Excel: {error}") from None
            # A cover page has no cells.
            headers = {
                sheet.title: header
                for sheet in book.worksheets
                if any(header := _header(map(_name, next(sheet.iter_rows(values_only=True, max_row=1), ())), file))
            }
            if not headers:
                return
            chosen = file.choose(headers)
            header = headers[chosen]
            for line, cells in enumerate(book[chosen].iter_rows(values_only=True, min_row=2), 2):
                if any(cell not in (None, "") for cell in cells):
                    # Excel does not store empty cells at the end of a row.
                    padded = [*cells, *[None] * (len(header) - len(cells))]
                    yield Row(line, dict(zip(header, padded, strict=False)))


def _name(cell: Any) -> str:
    return "" if cell is None else str(cell)


class Parquet(FileFormat):
    """Parquet, also as ``score --engine ray`` writes it: with the record next to the columns of its scores."""

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
            _header(map(str, table.schema_arrow.names), file)
            groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
            if any(group.total_byte_size > ROW_GROUP for group in groups):
                raise TurnError(
                    f"{file.path} has row groups of more than {in_mib(ROW_GROUP)}: write it with smaller ones"
                )
            rows = chain.from_iterable(batch.to_pylist() for batch in table.iter_batches(batch_size=128))
            for number, data in enumerate(rows, 1):
                record = data.get("rageval_record")
                yield Row(number, json.loads(record) if isinstance(record, str) else data)


def _header(names: Iterable[str], file: SourceFile) -> list[str]:
    """Return the columns of a table.

    Raises:
        TurnError: two columns have the same name, so that only one would be read.
    """
    header = list(names)
    # pandas writes an index as a column without a name, possibly several times.
    for name in header:
        if name.strip() and header.count(name) > 1:
            raise TurnError(f"{file.path} has several columns {name!r}: give each its own name")
    return header
