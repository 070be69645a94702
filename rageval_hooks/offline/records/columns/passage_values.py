"""Tells passages from what else stands under a name such as ``sources``: their number, names of files, addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rageval_hooks.offline.records.cells import is_missing, is_number, unpacked

__all__ = ["may_be_passages"]

_OWN_NAME = "passages"

# "5" and "0.7" are numbers of passages or scores.
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
# Ends of file names: "handbook.pdf", "docs/Annual Report 2023.docx".
_SUFFIXES = (
    *(".pdf", ".md", ".txt", ".rst", ".doc", ".docx", ".ppt", ".pptx", ".xls", ".xlsx"),
    *(".htm", ".html", ".csv", ".json", ".jsonl", ".epub"),
)
_LONGEST_NAME = 200
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
        return not _names_sources(value) if isinstance(listed, str) else may_be_passages(column, listed)
    if isinstance(value, (list, tuple)):
        return not value or any(map(_may_be_passage, value))
    return isinstance(value, Mapping)


def _may_be_passage(item: Any) -> bool:
    if isinstance(item, str):
        return not _names_sources(item)
    return not (is_number(item) or isinstance(item, bool))


def _names_sources(text: str) -> bool:
    parts = list(filter(None, map(str.strip, _BETWEEN.split(text))))
    return all(_NUMBER.fullmatch(part) or _is_address(part) or _is_file(part) for part in parts)


def _is_address(part: str) -> bool:
    return part.startswith(("http://", "https://")) and len(part.split()) == 1


def _is_file(part: str) -> bool:
    """Return True for a name of a file, also with a place in it: ``notes.md#3``."""
    return len(part) <= _LONGEST_NAME and part.partition("#")[0].lower().endswith(_SUFFIXES)
