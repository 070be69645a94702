"""Finds file formats by the modules of this package, and the format of a file by its suffix."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.records.formats.base import COMPRESSIONS, FileFormat, SourceFile
from rageval_hooks.offline.records.rows import check_file

__all__ = ["all_formats", "format_by_content", "format_of", "readable_suffixes", "writable_format", "writable_suffixes"]

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
        found += [kind() for kind in vars(module).values() if _is_format(kind, module.__name__)]
    return tuple(found)


# A module also has the names that it imports, such as `FileFormat` itself.
def _is_format(value: object, module: str) -> bool:
    if not isinstance(value, type) or not issubclass(value, FileFormat):
        return False
    return value.__module__ == module and hasattr(value, "suffixes")


def readable_suffixes() -> list[str]:
    """Return the suffixes of all files that can be read, without those of compressed files."""
    return [suffix for found in all_formats() for suffix in found.suffixes]


def writable_suffixes() -> list[str]:
    """Return the suffixes of all files that can be written."""
    return [suffix for found in all_formats() if found.writable for suffix in found.suffixes]


def format_of(path: Path) -> FileFormat:
    """Return the format of a file that exists.

    Raises:
        ConfigurationError: there is no such file, or its suffix is not known.
    """
    check_file(path)
    found = _by_suffix(_inner_suffix(path))
    if found is None:
        known = ", ".join(readable_suffixes())
        raise ConfigurationError(
            f"the format of {path} is not known: its name should end in one of {known}, "
            f"or in one of these and {' or '.join(COMPRESSIONS)}"
        )
    return found


def format_by_content(format: FileFormat, file: SourceFile) -> FileFormat:
    """Return the format that a text file has if its suffix is wrong: JSON under the name of CSV or JSON Lines."""
    if format.name not in ("CSV", "JSON Lines"):
        return format
    begin = file.text().read(_PEEK).lstrip()
    first_line = begin.partition("\n")[0].strip()
    if _is_object(first_line):
        return _by_name("JSON Lines", format)
    if _DOCUMENT.match(begin):
        return _by_name("JSON", format)
    return format


def _is_object(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _by_name(name: str, default: FileFormat) -> FileFormat:
    return next((found for found in all_formats() if found.name == name), default)


def writable_format(path: Path) -> FileFormat | None:
    """Return the format in which a file would be written; None if its suffix names none."""
    found = _by_suffix(path.suffix.lower())
    return found if found is not None and found.writable else None


def _inner_suffix(path: Path) -> str:
    """Return the suffix in lower case; of a compressed file, the one before: ``.jsonl`` for ``a.jsonl.gz``."""
    if path.suffix.lower() in COMPRESSIONS:
        return path.with_suffix("").suffix.lower()
    return path.suffix.lower()


def _by_suffix(suffix: str) -> FileFormat | None:
    # Suffixes are unique among formats.
    return next((found for found in all_formats() if suffix in found.suffixes), None)
