"""JSON Lines: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from pydantic import BaseModel

from rageval_hooks.offline.limits import LINE, in_mib
from rageval_hooks.offline.records.formats.base import (
    FileFormat,
    OutputRow,
    SourceFile,
    count_lines,
    lines_of,
    not_utf8,
)
from rageval_hooks.offline.records.rows import BadRow, Row

__all__ = ["JsonLines", "parse_line"]

_BOM = b"\xef\xbb\xbf"


class JsonLines(FileFormat):
    """JSON Lines."""

    name = "JSON Lines"
    suffixes = (".jsonl", ".ndjson")
    writable = True

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield a row per line that is not blank."""
        number = 0
        # UTF-8 is read as bytes, so that one invalid line does not damage the others. Only "\n" ends a line in either.
        lines: Iterator[str | bytes] = lines_of(file.binary()) if file.is_utf8 else lines_of(file.text("\n"))
        for line, text in enumerate(lines, 1):
            stripped = text.removeprefix(_BOM).strip() if isinstance(text, bytes) else text.strip()
            if stripped:
                number += 1
                yield parse_line(stripped, line, number)

    def count(self, file: SourceFile) -> int:
        """Return the number of lines."""
        return count_lines(file)

    def write(self, file: IO[bytes], rows: Iterable[OutputRow], columns: Sequence[str] = ()) -> None:
        """Write a line per row."""
        for row in rows:
            text = row.model_dump_json() if isinstance(row, BaseModel) else json.dumps(row, ensure_ascii=False)
            file.write(text.encode() + b"\n")


def parse_line(text: str | bytes, line: int, number: int) -> Row | BadRow:
    """Return the row that a line holds.

    Args:
        text: the line, without white space around it.
        line: its number in the file.
        number: its number among the lines that are not blank.
    """
    if len(text) > LINE:
        return BadRow(line, f"the line is longer than {in_mib(LINE)}")
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        return BadRow(line, not_utf8(error.object), error.object.decode("utf-8", "replace"))
    try:
        data = json.loads(decoded)
    except (ValueError, RecursionError) as error:
        return BadRow(line, f"not JSON: {error}", decoded)
    if not isinstance(data, dict):
        # A number or a list has no names, and so no question.
        return BadRow(line, "not a JSON object", decoded)
    return Row(line, data, number)
