"""CSV in any of its dialects: commas, semicolons, tabs or bars between cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

from rageval_hooks.offline.limits import LINE, in_mib
from rageval_hooks.offline.records.formats.base import (
    BadRow,
    FileFormat,
    Row,
    SourceFile,
    check_header,
    lines_of,
    not_utf8,
)

# "=1+1", "@SUM(A1)", and texts that are escaped already, such as "'=1+1"
_FORMULA = re.compile("\\A'*[=+\\-@\t\r]")
# -0.25, +3e-7
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class Csv(FileFormat):
    """CSV and TSV. The delimiter is the one that cuts the first rows into the most cells of equal number.

    Texts that a spreadsheet would take for a formula are written with an apostrophe before them. Reading removes it.
    """

    name = "CSV"
    suffixes = (".csv", ".tsv")
    has_columns = True
    writable = True

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield a row per line, or per several lines where a cell holds line breaks."""
        csv.field_size_limit(LINE)  # a cell may hold a whole context
        delimiter = "\t" if file.path.suffix.lower() == ".tsv" else _delimiter(file)
        with file.open_text() as text:
            reader = csv.reader(lines_of(text), delimiter=delimiter)
            header = check_header([_unescaped(name) for name in next(reader, [])], file)
            number = 0
            while True:
                line = reader.line_num + 1
                try:
                    cells = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    too_long = "field larger than field limit" in str(error)
                    yield BadRow(line, f"a cell is longer than {in_mib(LINE)}" if too_long else f"not CSV: {error}")
                    continue
                # Spreadsheets write empty rows as commas.
                if any(map(str.strip, cells)):
                    number += 1
                    yield _row(header, cells, line, number)

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


def _delimiter(file: SourceFile) -> str:
    # csv.Sniffer looks at the letters of the texts too: of a table of prose with semicolons it may return "e".
    best, most = ",", (0, 0)
    for delimiter in ",;\t|":
        try:
            with file.open_text() as text:
                rows = [row for row in islice(csv.reader(lines_of(text), delimiter=delimiter), 20) if row]
        except csv.Error:
            continue
        cells = len(rows[0]) if rows else 0
        alike = sum(len(row) == cells for row in rows)
        if cells > 1 and (alike, cells) > most:
            best, most = delimiter, (alike, cells)
    return best


def _row(header: list[str], cells: list[str], line: int, number: int) -> Row | BadRow:
    if len(cells) != len(header):
        return BadRow(line, f"has {len(cells)} cells, the header has {len(header)}", cells)
    data = dict(zip(header, map(_unescaped, cells), strict=True))
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:  # bytes that are invalid in UTF-8 were read as surrogates
        raw = {name: cell.encode("utf-8", "surrogateescape") for name, cell in data.items()}
        shown = {name: cell.decode("utf-8", "replace") for name, cell in raw.items()}
        return BadRow(line, not_utf8(b" ".join(raw.values())), shown)
    return Row(line, data, number)


def _escaped(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula: a text such as "=1+1" gets an apostrophe before it."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _unescaped(cell: str) -> str:
    """Return the text of a cell, without the apostrophe of :func:`_escaped`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
