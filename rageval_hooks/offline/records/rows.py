"""Rows of a file, before anything is known about what they mean."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError

__all__ = ["BadRow", "Row", "check_file"]


@dataclass(frozen=True)
class Row:
    """A row that could be read.

    Attributes:
        line: where the row begins: a line of a text file, or the number of the row in Parquet and JSON, from 1.
        data: values by column name.
        number: position among all rows, from 1.
    """

    line: int
    data: Mapping[str, Any]
    number: int


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used.

    Attributes:
        line: where the row begins.
        reason: what is wrong, in one sentence.
        raw: the row as it was in the file.
    """

    line: int
    reason: str
    raw: Any = field(default=None, repr=False)


def check_file(path: Path) -> None:
    """Check that a path names a regular file.

    Raises:
        ConfigurationError: there is no such file, or it is a folder or a pipe.
    """
    if not path.exists():
        guess = ""
        # The folder may not be readable, and the current one may have been deleted.
        with suppress(OSError):
            guess = _guess(path)
        raise ConfigurationError(f"there is no file {path}{guess}")
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder: give one of the files in it")
    if not path.is_file():
        raise ConfigurationError(f"{path} is a pipe or a device: it is read more than once, so give a file")


def _guess(path: Path) -> str:
    """Return the end of the message for a file that does not exist: one with a similar name, or where it would be."""
    if not path.parent.is_dir():
        return f": there is no folder {path.parent}"
    close = get_close_matches(path.name, os.listdir(path.parent), n=1)
    if close:
        return f". Did you mean {str(path.parent / close[0])!r}?"
    return "" if path.is_absolute() else f" in {Path.cwd()}"
