"""CSV in any of its dialects: commas, semicolons, tabs or bars between cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from rageval_hooks.offline.limits import LINE, in_mib
from rageval_hooks.offline.records.formats import (
    BadRow,
    FileFormat,
    Row,
    SourceFile,
    check_header,
    lines_of,
    undecoded,
)

# "=1+1", "@SUM(A1)", and texts that are escaped already, such as "'=1+1"
_FORMULA = re.compile("\\A'*[=+\\-@\t\r]")
# -0.25, +3e-7
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


class Csv(FileFormat):
    """CSV and TSV. The delimiter is the one that is most frequent in the header.

    Texts that a spreadsheet would take for a formula are written with an apostrophe before them. Reading removes it.
    """

    name = "CSV"
    suffixes = (".csv", ".tsv")
    has_columns = True
    writable = True

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield a row per line, or per several lines where a cell holds line breaks."""
        csv.field_size_limit(LINE)  # a cell may hold a whole context
        with file.open_text() as text:
            # csv.Sniffer looks at the letters of the texts too: of a table of prose it may return "e".
            delimiter = max(",;\t|", key=next(lines_of(text), "").count)
            text.seek(0)
            reader = csv.reader(lines_of(text), delimiter=delimiter)
            header = check_header(list(map(_unescaped, next(reader, []))), file)
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
                if not any(map(str.strip, cells)):
                    continue
                number += 1
                if len(cells) != len(header):
                    yield BadRow(line, f"has {len(cells)} cells, the header has {len(header)}", cells)
                elif reason := undecoded(" ".join(cells)):
                    yield BadRow(line, reason, dict(zip(header, cells, strict=True)))
                else:
                    yield Row(line, dict(zip(header, map(_unescaped, cells), strict=True)), number)

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
