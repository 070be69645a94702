"""CSV in any of its dialects: commas, semicolons, tabs or bars between cells."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

from pydantic import BaseModel

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.formats.base import FileFormat, OutputRow, SourceFile
from rageval_hooks.offline.records.rows import BadRow, Row

__all__ = ["Csv", "check_header"]

# "=1+1", "@SUM(A1)", and texts that are escaped already, such as "'=1+1"; also with the wide signs of East Asia
_FORMULA = re.compile("\\A'*[=+\\-@\t\r＝＋－＠]")
# -0.25, +3e-7
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 20


class Csv(FileFormat):
    """CSV and TSV. The delimiter is the one that cuts the first rows into the most cells of equal number.

    Texts that a spreadsheet would take for a formula are written with an apostrophe before them. Reading removes it.
    """

    name = "CSV"
    suffixes = (".csv", ".tsv")
    has_columns = True
    has_text_cells = True
    writable = True

    def columns(self, file: SourceFile) -> list[str]:
        """Return the header."""
        return self._begin(file)[0]

    def count(self, file: SourceFile) -> int:
        """Return the number of lines but the header's; a cell with several lines counts several times."""
        return max(0, file.count_lines() - 1)

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield a row per line, or per several lines where a cell holds line breaks."""
        header, reader = self._begin(file)
        number, line = 0, reader.line_num + 1
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield BadRow(line, f"not CSV: {error}")
                line = reader.line_num + 1
                continue
            # Spreadsheets write empty rows as commas.
            if any(map(str.strip, cells)):
                number += 1
                yield _row(header, cells, line, number)
            line = reader.line_num + 1

    def write(self, file: IO[bytes], rows: Iterable[OutputRow], columns: Sequence[str]) -> None:
        """Write a header and a line per row; values without a column are not written."""
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(map(_escaped, columns))
        for row in rows:
            data = row.model_dump(mode="json") if isinstance(row, BaseModel) else row
            writer.writerow([_escaped(data.get(column, "")) for column in columns])
        text.flush()
        # Closing the text layer would close the output, which belongs to the caller.
        text.detach()

    def _begin(self, file: SourceFile) -> tuple[list[str], Any]:
        """Return the header, and a reader of what follows it."""
        csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a cell may hold a whole context
        delimiter = _delimiter(file)
        reader = csv.reader(file.text(), delimiter=delimiter)
        header = check_header(list(map(_unescaped, next(reader, []))), file)
        return header, reader


def _escaped(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula: a text such as "=1+1" gets an apostrophe before it."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _unescaped(cell: str) -> str:
    """Return the text of a cell, without the apostrophe of :func:`_escaped`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _delimiter(file: SourceFile) -> str:
    if file.path.suffix.lower() == ".tsv":
        return "\t"
    # Each delimiter is rated by the number of cells in the header and by how many rows have that number.
    best, most = ",", (0, 0)
    for delimiter in _DELIMITERS:
        rows = _first_rows(file, delimiter)
        cells = len(rows[0]) if rows else 0
        alike = sum(len(row) == cells for row in rows)
        if cells > 1 and (alike, cells) > most:
            best, most = delimiter, (alike, cells)
    return best


def _first_rows(file: SourceFile, delimiter: str) -> list[list[str]]:
    rows = csv.reader(file.text(), delimiter=delimiter)
    try:
        return [row for row in islice(rows, _SAMPLE_ROWS) if row]
    except csv.Error:
        return []


def check_header(header: list[str], file: SourceFile) -> list[str]:
    """Return the columns of a table.

    Raises:
        TurnError: two columns have the same name, so that only one would be read.
    """
    # pandas writes an index as a column without a name, possibly several times.
    twice = [name for name, count in Counter(header).items() if count > 1 and name.strip()]
    if twice:
        raise TurnError(f"{file.path} has several columns {twice[0]!r}: give each its own name")
    return header


def _row(header: list[str], cells: list[str], line: int, number: int) -> Row | BadRow:
    if len(cells) != len(header):
        return BadRow(line, f"has {len(cells)} cells, the header has {len(header)}", cells)
    data: Mapping[str, str] = dict(zip(header, map(_unescaped, cells), strict=True))
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:  # bytes that are invalid in UTF-8 were read as surrogates
        return BadRow(line, "not UTF-8; --encoding names another encoding", _readable(data))
    return Row(line, data, number)


def _readable(data: Mapping[str, str]) -> dict[str, str]:
    return {name: cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name, cell in data.items()}
