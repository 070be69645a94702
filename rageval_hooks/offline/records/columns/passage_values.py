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
# "handbook.pdf", "docs/Annual Report 2023.docx#12", "https://example.com/page"
_SOURCE = re.compile(
    r"(?:https?://\S+|[^\n]{1,200}\.(?:pdf|md|txt|rst|docx?|pptx?|xlsx?|html?|csv|jsonl?|epub))(?:#\S*)?", re.IGNORECASE
)
# Between the sources of one cell: "a.pdf | b.pdf", "a.pdf; b.pdf".
_BETWEEN = re.compile(r"\s*[|;,\n]\s*")


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
    parts = [part for part in _BETWEEN.split(text.strip()) if part]
    return all(_SOURCE.fullmatch(part) or _NUMBER.fullmatch(part) for part in parts)
