"""JSON Lines with a document per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rageval_hooks.offline.records.formats import SourceFile
from rageval_hooks.offline.records.formats.jsonl import JsonLines
from rageval_hooks.offline.records.rows import BadRow
from rageval_hooks.offline.testsets.documents.base import BadPart, Document, DocumentReader, Found

__all__ = ["JsonLinesDocuments"]

_TEXTS = ("text", "content", "page_content", "body")
_IDS = ("id", "_id", "chunk_id")
_NAMES = ("document", "source", "file_name", "title")


class JsonLinesDocuments(DocumentReader):
    """A document per line. A line with an id is a chunk already."""

    suffixes = (".jsonl", ".ndjson")

    def read(self, file: SourceFile, name: str) -> Iterator[Found]:
        """Yield a document, or what is wrong, for each line."""
        for row in JsonLines().read(file):
            where = f"{name}, line {row.line}"
            if isinstance(row, BadRow):
                yield BadPart(where=where, reason=row.reason)
            else:
                yield _document(row.data, name, row.line, where)


def _document(row: Mapping[str, Any], file: str, line: int, where: str) -> Found:
    text = next((row[key] for key in _TEXTS if isinstance(row.get(key), str)), None)
    if text is None:
        found = ", ".join(map(str, row)) or "nothing"
        return BadPart(where=where, reason=f"it has no text under one of {', '.join(_TEXTS)}; found: {found}")
    if not text.strip():
        return BadPart(where=where, reason="its text is empty")
    # A line with an id is a chunk of a store, in which `run` will find it by this id.
    identifier = _first(row, _IDS)
    name = _first(row, _NAMES)
    # Lines without a name and an id are told apart by their number.
    if name is None:
        name = file if identifier is not None else f"{file}:{line}"
    return Document(name=name, text=text, id=identifier)


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((str(row[name]) for name in names if row.get(name) not in (None, "")), None)
