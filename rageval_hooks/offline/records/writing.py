"""Writing files as a whole or not at all: records as JSON Lines, or as a table in one of two layouts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.offline.records.formats import FileFormat, writable_format
from rageval_hooks.offline.records.open_rag_eval import Closeness, open_rag_eval_table
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.tables import Records, our_table

LAYOUTS = ("native", "open-rag-eval")
"""The layouts in which records are written as a table."""


def write_records(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Write records as JSON Lines, as a whole or not at all, and return their number.

    Raises:
        OSError: the file cannot be written.
    """
    return write_lines(path, (record.to_json().encode() for record in records))


def write_lines(path: str | os.PathLike[str], lines: Iterable[bytes]) -> int:
    """Write lines, which come without their ends, as a whole or not at all, and return their number."""
    count = 0
    with atomic_file(path) as file:
        for line in lines:
            file.write(line + b"\n")
            count += 1
    return count


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` when the block ends. If the block fails, ``path`` stays unchanged.

    The new file has the permissions of the old one. If there was none, only its owner may read it: it holds texts.

    Raises:
        OSError: the folder cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    # The temporary file is in the same folder, because a rename works only within a file system.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            # Without it a crash after the rename could leave an empty file.
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(temporary, target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_output(path: Path) -> FileFormat:
    """Return the format of an output, and check that it can be written.

    Raises:
        ConfigurationError: the format is not known, the path is a folder, or its folder does not exist.
    """
    found = writable_format(path)
    check_place("the output", path)
    return found


def check_place(what: str, path: Path) -> None:
    """Check, before any work, that a file can be written: an hour of work should not end with a wrong name.

    Args:
        what: the file is, for the message.
        path: the file.

    Raises:
        ConfigurationError: it is a folder, or its folder does not exist.
    """
    if path.is_dir():
        raise ConfigurationError(f"{what} {path} is a folder: give the name of a file")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"{what} {path} cannot be written: there is no folder {path.parent}")


def check_outputs(outputs: Sequence[Path], columns: str = "native") -> None:
    """Check that outputs can be written, before any work is done.

    Args:
        outputs: the files.
        columns: layout of tables, one of :data:`LAYOUTS`.

    Raises:
        ConfigurationError: the format is not known, or there is no such folder; the message says what is valid.
    """
    if columns not in LAYOUTS:
        raise UnknownNameError("kind of columns", columns, LAYOUTS)
    formats = [check_output(path) for path in outputs]
    # JSON Lines has the whole records, so that the layout would have no effect.
    if columns != "native" and not any(found.has_columns for found in formats):
        raise ConfigurationError(f"--columns {columns} is a layout of tables: an output should end in .csv")


def write_output(
    path: Path,
    records: Records,
    columns: str = "native",
    *,
    lines: Iterable[bytes] | None = None,
    closeness: Closeness | None = None,
) -> None:
    """Write records to a file, as a whole or not at all.

    Args:
        path: the file; its suffix says the format.
        records: returns the records.
        columns: layout of a table, one of :data:`LAYOUTS`.
        lines: the records as JSON, if they are at hand in that form, for JSON Lines.
        closeness: compares repeated answers, for a layout with a column for that.

    Raises:
        OSError: the file cannot be written.
    """
    output_format = check_output(path)
    if not output_format.has_columns:
        write_lines(path, (record.to_json().encode() for record in records()) if lines is None else lines)
        return
    header, rows = our_table(records) if columns == "native" else open_rag_eval_table(records, closeness)
    with atomic_file(path) as file:
        output_format.write(file, rows, header)
