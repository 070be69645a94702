"""Reading records from a file, and writing files as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rageval_hooks.errors import ConfigurationError, TurnError, UnknownNameError
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.formats import FileFormat, writable_format, writable_suffixes
from rageval_hooks.offline.records.formats.jsonl import JsonLines
from rageval_hooks.offline.records.open_rag_eval import Closeness, open_rag_eval_table
from rageval_hooks.offline.records.reading import read_items
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow
from rageval_hooks.offline.records.tables import Records, our_table

__all__ = [
    "LAYOUTS",
    "BadRow",
    "atomic_file",
    "check_output",
    "check_outputs",
    "read_records",
    "write_output",
    "write_records",
]

LAYOUTS = ("native", "open-rag-eval")
"""The layouts in which records are written as a table."""


def read_records(
    path: str | os.PathLike[str],
    *,
    required: Iterable[str] = ("query", "response"),
    scores: Collection[str] = (),
    on_bad: Callable[[BadRow], None] | None = None,
    mapping: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> Iterator[Record]:
    """Yield the records of a file, one at a time.

    Readable are JSON Lines, JSON, CSV, Parquet and Excel files, compressed ones too. They may hold records of this
    package, evaluations of the exporter ``jsonl``, rows with the columns of
    :data:`rageval_hooks.offline.records.columns.ALIASES`, or traces (OTLP-JSON, spans of Phoenix).

    Args:
        path: the file.
        required: fields that rows with columns must have.
        scores: columns of a table of ours that are scores if they hold only numbers.
        on_bad: called with each row that cannot be used; without it such a row is an error.
        mapping: field → column, for columns with other names: ``{"passages": "contexts[].text"}``; an empty name for
            a field that the file does not have.
        encoding: of a text file; None to detect it.

    Raises:
        ConfigurationError: there is no such file, or its format is not known.
        TurnError: a column is missing, the file is unreadable, or a row cannot be used and there is no ``on_bad``.
    """
    columns = ColumnMap(mapping) if mapping else None
    for _, item in read_items(Path(path), required, scores, mapping=columns, encoding=encoding):
        if isinstance(item, Record):
            yield item
        elif on_bad is not None:
            on_bad(item)
        else:
            raise TurnError(f"{path}, line {item.line}: {item.reason}")


def write_records(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Write records as JSON Lines, as a whole or not at all, and return their number.

    Raises:
        OSError: the file cannot be written.
    """
    count = 0
    with atomic_file(path) as file:
        for record in records:
            file.write(record.to_json().encode() + b"\n")
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
    if found is None:
        raise ConfigurationError(f"the output {path} should end in {' or '.join(writable_suffixes())}")
    if path.is_dir():
        raise ConfigurationError(f"the output {path} is a folder: give the name of a file")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"the output {path} cannot be written: there is no folder {path.parent}")
    return found


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
    with atomic_file(path) as file:
        if lines is not None and isinstance(output_format, JsonLines):
            file.writelines(line + b"\n" for line in lines)
        elif output_format.has_columns:
            header, rows = our_table(records) if columns == "native" else open_rag_eval_table(records, closeness)
            output_format.write(file, rows, header)
        else:
            output_format.write(file, records(), ())
