"""JSON Lines: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from pydantic import BaseModel

from rageval_hooks.offline.records.formats.base import FileFormat, OutputRow, SourceFile
from rageval_hooks.offline.records.rows import BadRow, Row

__all__ = ["JsonLines", "lines_with_places", "parse_line"]

_BOM = b"\xef\xbb\xbf"


class JsonLines(FileFormat):
    """JSON Lines."""

    name = "JSON Lines"
    suffixes = (".jsonl", ".ndjson")
    writable = True

    def read(self, file: SourceFile) -> Iterator[Row | BadRow]:
        """Yield a row per line that is not blank."""
        # UTF-8 is read as bytes, so that one invalid line does not damage the others.
        if file.encoding.is_utf8:
            for _, row in lines_with_places(file.binary()):
                yield row
            return
        number = 0
        # Only "\n" ends a line, as in UTF-8 files, which are read as bytes.
        for line, text in enumerate(file.text(newline="\n"), 1):
            if text.strip():
                number += 1
                yield _parse(text, line, number)

    def count(self, file: SourceFile) -> int:
        """Return the number of lines."""
        return file.count_lines()

    def write(self, file: IO[bytes], rows: Iterable[OutputRow], columns: Sequence[str] = ()) -> None:
        """Write a line per row."""
        for row in rows:
            text = row.model_dump_json() if isinstance(row, BaseModel) else json.dumps(row, ensure_ascii=False)
            file.write(text.encode() + b"\n")


def lines_with_places(file: IO[bytes]) -> Iterator[tuple[int, Row | BadRow]]:
    """Yield each row with the position of its line in the file, so that it can be read again by itself."""
    place = number = 0
    for line, text in enumerate(file, 1):
        stripped = text.removeprefix(_BOM).strip()
        if stripped:
            number += 1
            yield place, parse_line(stripped, line, number)
        place += len(text)


def parse_line(text: bytes, line: int, number: int) -> Row | BadRow:
    """Return the row that a line holds."""
    try:
        decoded = text.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: {error.reason} at byte {error.start}; --encoding names another encoding"
        return BadRow(line, reason, text.decode("utf-8", "replace"))
    return _parse(decoded, line, number)


def _parse(text: str, line: int, number: int) -> Row | BadRow:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        return BadRow(line, f"not JSON: {error}", text)
    if not isinstance(data, dict):
        # A number or a list has no names, and so no question.
        return BadRow(line, "not a JSON object", text)
    return Row(line, data, number)
