"""File formats. Each module here is one format, with its read and write side, and is found by its file.

To add a format, add one module with a subclass of :class:`FileFormat`. Nothing else names it. A file has the format of
its suffix; JSON is also recognized by its beginning.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.records.formats.base import COMPRESSIONS, FileFormat, SourceFile, inner_suffix

__all__ = ["FileFormat", "SourceFile", "all_formats", "format_of", "writable_format"]

# An array of objects, "[{" or "[\n  {", and an object over several lines: '{\n  "question"'
_DOCUMENT = re.compile(r'\[\s*\{|\{[ \t\r]*\n\s*"')
# Characters: longer than the first row of most files.
_PEEK = 1 << 18


@cache
def all_formats() -> tuple[FileFormat, ...]:
    """Return an instance of every format that a module of this package defines."""
    modules = [import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)]
    return tuple(
        kind()
        for module in modules
        for kind in vars(module).values()
        # A module also has the names that it imports, such as `FileFormat` itself.
        if isinstance(kind, type) and kind.__module__ == module.__name__ and issubclass(kind, FileFormat)
        if kind is not FileFormat
    )


def format_of(file: SourceFile) -> FileFormat:
    """Return the format of a file. JSON is recognized under the name of CSV or of another kind of JSON.

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
    if found.name in ("CSV", "JSON Lines"):
        with file.open_text() as text:
            begin = text.read(_PEEK).lstrip()
        if _begins_with_object(begin):
            return _by_suffix(".jsonl") or found
        if _DOCUMENT.match(begin):
            return _by_suffix(".json") or found
    return found


def _begins_with_object(text: str) -> bool:
    line = text.partition("\n")[0]
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def writable_format(path: Path) -> FileFormat:
    """Return the format in which a file would be written.

    Raises:
        ConfigurationError: its suffix names none.
    """
    found = _by_suffix(path.suffix.lower())
    if found is None or not found.writable:
        known = [suffix for known in all_formats() if known.writable for suffix in known.suffixes]
        raise ConfigurationError(f"the output {path} should end in {' or '.join(known)}")
    return found


def _by_suffix(suffix: str) -> FileFormat | None:
    # Suffixes are unique among formats.
    return next((found for found in all_formats() if suffix in found.suffixes), None)
