"""Writing records to the output files of a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.records.files import atomic_file
from rageval_hooks.offline.records.formats.base import FileFormat
from rageval_hooks.offline.records.formats.discovery import writable_format, writable_suffixes
from rageval_hooks.offline.records.formats.jsonl import JsonLines
from rageval_hooks.offline.records.tables import LAYOUTS, Closeness, Records, layout_of

__all__ = ["COLUMNS", "check_output", "check_outputs", "write_output"]

COLUMNS = tuple(LAYOUTS)
"""Layouts of tables."""


def check_outputs(outputs: Sequence[Path], columns: str = "native") -> None:
    """Check that outputs can be written, before any work is done.

    Args:
        outputs: the files.
        columns: layout of tables, one of :data:`COLUMNS`.

    Raises:
        ConfigurationError: the format is not known, or there is no such folder; the message says what is valid.
    """
    layout_of(columns)
    formats = [check_output(path) for path in outputs]
    # JSON Lines has the whole records, so that the layout would have no effect.
    if columns != "native" and not any(found.has_columns for found in formats):
        raise ConfigurationError(f"--columns {columns} is a layout of tables: an output should end in .csv")


def check_output(path: Path) -> FileFormat:
    """Return the format of an output, and check that it can be written.

    Raises:
        ConfigurationError: the format is not known, the path is a folder, or its folder does not exist.
    """
    found = writable_format(path)
    if found is None:
        raise ConfigurationError(f"the output {path} should end in {' or '.join(writable_suffixes())}")
    if path.is_dir():
        raise ConfigurationError(f"the output {path} is a folder: give the name of a file")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"the output {path} cannot be written: there is no folder {path.parent}")
    return found


def write_output(
    path: Path,
    records: Records,
    columns: str = "native",
    *,
    lines: Callable[[], Iterable[bytes]] | None = None,
    closeness: Closeness | None = None,
) -> None:
    """Write records to a file, as a whole or not at all.

    Args:
        path: the file; its suffix says the format.
        records: returns the records.
        columns: layout of a table, one of :data:`COLUMNS`.
        lines: returns the records as JSON, if they are at hand in that form, for JSON Lines.
        closeness: compares repeated answers, for a layout with a column for that.

    Raises:
        OSError: the file cannot be written.
    """
    output_format = check_output(path)
    with atomic_file(path) as file:
        if lines is not None and isinstance(output_format, JsonLines):
            file.writelines(line + b"\n" for line in lines())
        elif output_format.has_columns:
            header, rows = layout_of(columns)(records, closeness)
            output_format.write(file, rows, header)
        else:
            output_format.write(file, records(), ())
