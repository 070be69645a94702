"""Tells passages from what else stands under a name such as ``sources``: their number, names of files, addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rageval_hooks.offline.records.cells import is_missing, is_number, is_present, is_text, unpacked
from rageval_hooks.offline.records.columns.aliases import canonical

__all__ = ["may_be_passages", "names_sources", "numbered_groups", "texts_of_group"]

_OWN_NAME = "passages"

# "5" and "0.7" are numbers of passages or scores.
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
# Ends of file names: "handbook.pdf", "docs/Annual Report 2023.docx".
_SUFFIXES = (
    *(".pdf", ".md", ".txt", ".rst", ".doc", ".docx", ".ppt", ".pptx", ".xls", ".xlsx"),
    *(".htm", ".html", ".csv", ".json", ".jsonl", ".epub"),
)
_LONGEST_NAME = 200
# Keys of objects that say where a passage is from, without its text.
_SOURCE_KEYS = frozenset(
    "title url uri link href source file filename file_name file_path path page page_number section name id doc_id "
    "document_id chunk_id chunk_index index rank score similarity distance relevance type author date".split()
)
# "context_1", "retrieved_cont1", "Chunk 2 text" and "doc1_content": one passage each, in the order of their numbers.
_NUMBERED = re.compile(
    r"((?:retrieved_|top_|source_)?(?:context|cont|ctx|content|passage|chunk|document|doc|source|evidence|snippet)"
    r"s?(?:_text|_content)?_?)(\d{1,3})(_?(?:text|content))?"
)
# Between the sources of one cell: "a.pdf | b.pdf", "a.pdf; b.pdf".
_BETWEEN = re.compile(r"[|;,\n]")


def may_be_passages(column: str, value: Any) -> bool:
    """Return False for a cell that certainly holds no texts of passages; True for an empty one.

    A wrong passage is worse than none: an answer would be compared with the number 5 or the name of a file. In our own
    column ``passages`` such a value is an error, which is reported where it is read.
    """
    if column == _OWN_NAME or is_missing(value):
        return True
    if isinstance(value, str):
        listed = unpacked(value)
        return not names_sources(value) if isinstance(listed, str) else may_be_passages(column, listed)
    if isinstance(value, (list, tuple)):
        return not value or any(map(_may_be_passage, value))
    return isinstance(value, Mapping)


def _may_be_passage(item: Any) -> bool:
    if isinstance(item, str):
        return not names_sources(item)
    if isinstance(item, Mapping):
        # {"title": "Handbook", "url": "https://…"} says where a passage is from.
        return not _SOURCE_KEYS.issuperset(map(canonical, item))
    return not (is_number(item) or isinstance(item, bool))


def names_sources(text: str) -> bool:
    """Return True for numbers, addresses and names of files, and several of them: ``a.pdf; b.pdf``."""
    parts = list(filter(None, map(str.strip, _BETWEEN.split(text))))
    return all(_NUMBER.fullmatch(part) or _is_address(part) or _is_file(part) for part in parts)


def _is_address(part: str) -> bool:
    return part.startswith(("http://", "https://")) and len(part.split()) == 1


def _is_file(part: str) -> bool:
    """Return True for a name of a file, also with a place in it: ``notes.md#3``."""
    return len(part) <= _LONGEST_NAME and part.partition("#")[0].lower().endswith(_SUFFIXES)


def numbered_groups(columns: Iterable[str]) -> list[list[str]]:
    """Return the columns that hold one passage each, such as ``context_1`` and ``context_2``, by their common name."""
    groups: dict[tuple[str, str], dict[int, str]] = {}
    for column in columns:
        if found := _NUMBERED.fullmatch(canonical(column)):
            groups.setdefault((found[1], found[3] or ""), {})[int(found[2])] = column
    return [[group[number] for number in sorted(group)] for group in groups.values()]


def texts_of_group(columns: Iterable[str], row: Mapping[str, Any]) -> list[str]:
    """Return the texts of numbered columns; empty if they hold something else, such as names of files."""
    values = [row[column] for column in columns if is_present(row[column])]
    if not all(map(is_text, values)) or all(map(names_sources, values)):
        return []
    return values
