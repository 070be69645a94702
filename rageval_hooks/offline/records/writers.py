"""Records to files: as JSON Lines, and as tables with one row per answer, or per question as open-rag-eval has them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.offline.records.files import atomic_file, write_records
from rageval_hooks.offline.records.native_columns import FIXED, LABEL, OPTIONAL, PROBABILITY, REASON, is_known_score
from rageval_hooks.offline.records.open_rag_eval import Records, open_rag_eval_rows
from rageval_hooks.offline.records.record import Record
from rageval_hooks.score import Failed, Result, Score, is_about_turn

__all__ = ["COLUMNS", "check_outputs", "native_rows", "write_output"]

COLUMNS = ("native", "open-rag-eval")
"""Ways to name the columns of a table."""

_SUFFIXES = (".jsonl", ".csv")

Row = dict[str, Any]


def check_outputs(outputs: Sequence[Path], columns: str) -> None:
    """Check that outputs can be written, before there is anything to write.

    Raises:
        ConfigurationError: a format or folder is not there; the message says what is valid.
    """
    if columns not in COLUMNS:
        raise UnknownNameError("kind of columns", columns, COLUMNS)
    for path in outputs:
        if path.suffix.lower() not in _SUFFIXES:
            raise ConfigurationError(f"the output {path} should end in {' or '.join(_SUFFIXES)}")
        if path.is_dir():
            raise ConfigurationError(f"the output {path} is a folder: give the name of a file")
        if not path.absolute().parent.is_dir():
            raise ConfigurationError(f"the output {path} cannot be written: there is no folder {path.parent}")
    if columns != "native" and not any(path.suffix.lower() == ".csv" for path in outputs):
        raise ConfigurationError(f"columns of {columns} are those of a table: an output should end in .csv")


def write_output(path: Path, records: Records, columns: str = "native") -> None:
    """Write records to a file, whole or not at all.

    Args:
        path: the file; JSON Lines, unless its name ends in ``.csv``.
        records: the records.
        columns: see :data:`COLUMNS`.

    Raises:
        OSError: it cannot be written.
    """
    if path.suffix.lower() != ".csv":
        write_records(path, records())
        return
    header, rows = native_rows(records) if columns == "native" else open_rag_eval_rows(records)
    _write_table(path, header, rows)


def native_rows(records: Records) -> tuple[list[str], Iterator[Row]]:
    """Return the columns of a table with one row per answer, and its rows.

    Each score of a whole turn has a column of its own name, ``<name>.label`` beside it where there are labels,
    ``<name>.probability`` where some turns were selected by chance, and ``<name>.reason`` where some are missing: why
    they are. A score of somebody else's metric has one of them in any case: it is what tells it from other columns.
    """
    optional: set[str] = set()
    names: dict[str, set[str]] = {}
    for record in records():
        optional.update(name for name, value in _about(record).items() if value is not None)
        for result in filter(is_about_turn, record.results):
            names.setdefault(result.name, set()).update(_cells(result))
    header = [*FIXED, *(name for name in OPTIONAL if name in optional)]
    for name, suffixes in names.items():
        there = suffixes if is_known_score(name) or LABEL in suffixes else suffixes | {REASON}
        header += [name + suffix for suffix in ("", LABEL, PROBABILITY, REASON) if suffix in there]
    return header, map(_native_row, records())


def _about(record: Record) -> Row:
    error = record.turn.error
    return {
        "reference": record.turn.reference,
        "target": record.target,
        "rank": record.rank,
        "document": record.document,
        "error": None if error is None else f"{error.type}: {error.message}",
    }


def _native_row(record: Record) -> Row:
    row: Row = {"id": record.id, "run": record.run, "query": record.turn.query, "response": record.turn.response}
    row.update(_about(record))
    for result in filter(is_about_turn, record.results):
        row.update({result.name + suffix: value for suffix, value in _cells(result).items()})
    return row


def _cells(result: Result) -> Mapping[str, Any]:
    if isinstance(result, Score):
        label = {} if result.label is None else {LABEL: result.label}
        probability = {} if result.probability == 1 else {PROBABILITY: result.probability}
        return {"": result.value, **label, **probability}
    if isinstance(result, Failed):
        return {REASON: f"failed: {result.error_type}: {result.message}"}
    return {REASON: f"skipped: {result.reason}"}


def _write_table(path: Path, header: list[str], rows: Iterable[Row]) -> None:
    with atomic_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.DictWriter(text, header, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text.flush()
        text.detach()
