"""File formats. Each module here is one format, with its read and write side, and is found by its file.

To add a format, add one module with a subclass of :class:`FileFormat`. Nothing else names it. A file has the format of
its suffix; JSON is also recognized by its beginning.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from json import loads as parse_json  # the module of this name in this package is the format
from pathlib import Path
from pkgutil import iter_modules

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.records.formats.base import COMPRESSIONS, FileFormat, SourceFile, inner_suffix

__all__ = [
    "FileFormat",
    "SourceFile",
    "all_formats",
    "format_of",
    "inner_suffix",
    "writable_format",
    "writable_suffixes",
]


_PACKAGE = "rageval_hooks.offline.records.formats"

# Longer than the first row of most files.
_PEEK = 1 << 18

# An array of objects, "[{" or "[\n  {", and an object over several lines: '{\n  "question"'
_DOCUMENT = re.compile(r'\[\s*\{|\{[ \t\r]*\n\s*"')


@cache
def all_formats() -> tuple[FileFormat, ...]:
    """Return an instance of every format that a module of this package defines."""
    found: list[FileFormat] = []
    for info in iter_modules(import_module(_PACKAGE).__path__):
        module = import_module(f"{_PACKAGE}.{info.name}")
        for kind in vars(module).values():
            # A module also has the names that it imports, such as `FileFormat` itself.
            is_own = isinstance(kind, type) and issubclass(kind, FileFormat) and kind.__module__ == module.__name__
            if is_own and kind is not FileFormat:
                found.append(kind())
    return tuple(found)


def format_of(file: SourceFile) -> FileFormat:
    """Return the format of an open file. JSON is recognized under the name of CSV or of another kind of JSON.

    Raises:
        ConfigurationError: its suffix is not known.
    """
    found = _by_suffix(inner_suffix(file.path))
    if found is None:
        known = ", ".join(suffix for known in all_formats() for suffix in known.suffixes)
        raise ConfigurationError(
            f"the format of {file.path} is not known: its name should end in one of {known}, "
            f"or in one of these and {' or '.join(COMPRESSIONS)}"
        )
    if found.name not in ("CSV", "JSON Lines"):
        return found
    begin = file.text().read(_PEEK).lstrip()
    first_line = begin.partition("\n")[0].strip()
    if first_line.startswith("{") and _is_object(first_line):
        return _by_suffix(".jsonl") or found
    if _DOCUMENT.match(begin):
        return _by_suffix(".json") or found
    return found


def _is_object(line: str) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except (ValueError, RecursionError):
        return False


def writable_format(path: Path) -> FileFormat | None:
    """Return the format in which a file would be written; None if its suffix names none."""
    found = _by_suffix(path.suffix.lower())
    return found if found is not None and found.writable else None


def writable_suffixes() -> list[str]:
    """Return the suffixes of all files that can be written."""
    return [suffix for found in all_formats() if found.writable for suffix in found.suffixes]


def _by_suffix(suffix: str) -> FileFormat | None:
    # Suffixes are unique among formats.
    return next((found for found in all_formats() if suffix in found.suffixes), None)
