"""File formats. Each module here is one format, with its read and write side, and is found by its file.

To add a format, add one module with a subclass of :class:`FileFormat`. Nothing else names it.
"""

from rageval_hooks.offline.records.formats.base import FileFormat, SourceFile, inner_suffix
from rageval_hooks.offline.records.formats.discovery import all_formats, format_of, writable_format, writable_suffixes

__all__ = [
    "FileFormat",
    "SourceFile",
    "all_formats",
    "format_of",
    "inner_suffix",
    "writable_format",
    "writable_suffixes",
]
