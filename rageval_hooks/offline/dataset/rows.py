"""From what a user has in memory to records: data frames, Arrow tables, lists of dicts or turns, a path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rageval_hooks.errors import TurnError, requires
from rageval_hooks.offline.records.columns import ColumnMap, check_columns
from rageval_hooks.offline.records.reading import read_items
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import explain, record_from_row
from rageval_hooks.score import Evaluation
from rageval_hooks.text.formatting import shorten
from rageval_hooks.turn import Turn

if TYPE_CHECKING:
    import pandas


# Rows in which a missing column is looked for.
_SAMPLE = 100
_SHOWN = 200


@dataclass
class Dataset:
    """The rows of a user.

    Attributes:
        records: a record per row, in the order of the rows; None for a row that cannot be used.
        problems: why rows cannot be used, by position.
        frame: the rows as a data frame if they came as a table.
    """

    records: list[Record | None] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)
    frame: pandas.DataFrame | None = None

    def add(self, item: Record | str) -> None:
        """Add a row: its record, or why it has none."""
        if isinstance(item, str):
            self.problems[len(self.records)] = item
        self.records.append(None if isinstance(item, str) else item)


def read_dataset(data: object, required: Sequence[str], mapping: Mapping[str, str] | None) -> Dataset:
    """Return the records of what a user passed.

    Args:
        data: a path, a data frame, an object with an Arrow stream, or an iterable of mappings and turns.
        required: fields that must have a column.
        mapping: field → column, for columns with other names.

    Raises:
        TurnError: a column is missing, or the data are of another type.
        ConfigurationError: a file's format or a field of the mapping is not known.
    """
    columns = ColumnMap(mapping) if mapping else None
    dataset = Dataset()
    if isinstance(data, (str, os.PathLike)):
        for line, item in read_items(Path(data), required, mapping=columns):
            dataset.add(item if isinstance(item, Record) else f"line {line}: {item.reason}")
        return dataset
    if isinstance(data, import_pandas().DataFrame):
        dataset.frame = data
    elif hasattr(data, "__arrow_c_stream__"):
        dataset.frame = _frame_of_arrow(data)
    elif isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise TurnError(
            f"data is a {type(data).__name__}: pass a data frame, a list of dicts or turns, or the path of a file"
        )
    rows: list[Any] = []
    if dataset.frame is not None:
        rows = _frame_rows(dataset.frame)
    elif isinstance(data, Iterable):
        rows = list(data)
    # Our own rows have their fields under our names, so they need no columns.
    sample = [row for row in rows[:_SAMPLE] if isinstance(row, Mapping) and not _is_ours(row)]
    check_columns("", sample, required, columns, is_table=dataset.frame is not None, show="mapping={}".format)
    for number, row in enumerate(rows, 1):
        dataset.add(_record(row, number, required, columns))
    return dataset


def turn_of(value: object, required: Sequence[str]) -> Turn:
    """Return the turn that a user passed as a turn or as a mapping.

    Args:
        value: what the user passed.
        required: fields that a mapping must have.

    Raises:
        TurnError: it is neither, or the mapping lacks a field; the message says what is accepted.
    """
    if isinstance(value, Turn):
        return value
    if not isinstance(value, Mapping):
        raise TurnError(f"the turn is a {type(value).__name__}: pass a rageval_hooks.Turn or a dict")
    found = _record(value, 1, required, None)
    if isinstance(found, str):
        raise TurnError(found)
    return found.turn


def _is_ours(row: Mapping[str, Any]) -> bool:
    """Return True for the data of a record, an evaluation or a turn of this package."""
    return holds_turn(row) or {"query", "response", "retrieval_queries"} <= row.keys()


def _record(row: object, number: int, required: Sequence[str], columns: ColumnMap | None) -> Record | str:
    """Return the record of a row, or why it cannot be used."""
    try:
        if isinstance(row, Record):
            return row
        if isinstance(row, (Turn, Evaluation)):
            turn = row if isinstance(row, Turn) else row.turn
            return Record(id=turn.id or str(number), turn=turn)
        if not isinstance(row, Mapping):
            return f"it is a {type(row).__name__}, neither a dict nor a turn"
        if holds_turn(row):
            return Record.model_validate({"id": str(number), **row})
        if _is_ours(row):
            turn = Turn.model_validate(row)
            return Record(id=turn.id or str(number), turn=turn)
        return record_from_row(row, str(number), required, columns)
    except (ValidationError, TurnError) as error:
        return shorten(explain(error), _SHOWN)


def import_pandas() -> Any:
    """Return pandas.

    Raises:
        MissingDependencyError: it is not installed.
    """
    with requires("pandas", "notebook", "data frames"):
        import pandas
    return pandas


def _frame_rows(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    # Lists come out of Parquet as NumPy arrays.
    return [
        {str(name): value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]


def _frame_of_arrow(data: object) -> pandas.DataFrame:
    """Return a table as a data frame whose columns keep their Arrow types, so that it converts back without a loss.

    Polars, DuckDB and Arrow itself offer their rows by the Arrow protocol.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    with requires("pyarrow", "offline", "tables of other libraries"):
        import pyarrow
    # Without the types of Arrow, whole numbers with missing values would become floats, and dates objects.
    frame: pandas.DataFrame = pyarrow.table(data).to_pandas(types_mapper=import_pandas().ArrowDtype)
    return frame
