"""The scores of a dataset as a pandas data frame that shows the worst answers first in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rageval_hooks.offline.dataset.inputs import Dataset, import_pandas
from rageval_hooks.offline.dataset.page import set_html
from rageval_hooks.offline.records.record import Record
from rageval_hooks.score import Evaluation, Failed, Result, Score, is_about_turn

if TYPE_CHECKING:
    import pandas

__all__ = ["scored_frame"]

_TURN_COLUMNS = ("id", "query", "response", "passages", "reference")


def scored_frame(dataset: Dataset) -> pandas.DataFrame:
    """Return the rows with their scores.

    A score is a column with its name; next to the values there are ``NAME.label`` for labels, and ``NAME.reason`` for
    what was skipped or failed in some of the rows. What was skipped in every row for one reason is in
    ``frame.attrs["skipped"]`` instead. Rows that could not be used have a reason in ``error``.
    """
    pandas = import_pandas()
    records = dataset.records
    columns, skipped = _score_columns(records)
    if dataset.problems:
        columns["error"] = [dataset.problems.get(position) for position in range(len(records))]
    frame = pandas.DataFrame(_turn_columns(records)) if dataset.frame is None else dataset.frame.copy()
    # All at once: adding a hundred columns one by one would fragment the frame.
    kept = frame.drop(columns=[name for name in columns if name in frame.columns])
    scores = pandas.DataFrame(columns, index=frame.index)
    made = _frame_class()(pandas.concat([kept, scores], axis=1))
    made.attrs["skipped"] = skipped
    made.evaluations = [
        None if record is None else Evaluation(turn=record.turn, results=record.results) for record in records
    ]
    return made


@cache
def _frame_class() -> Any:
    """Return the class of scored frames; pandas is imported only when it is needed."""
    pandas = import_pandas()

    class ScoredFrame(pandas.DataFrame):  # type: ignore[misc, name-defined]
        """A data frame with the evaluations of its rows.

        Attributes:
            evaluations: an evaluation per row; None for a row that could not be used.
        """

        # pandas would take a list for a new column otherwise.
        _metadata = ("evaluations",)

        @property
        def _constructor(self) -> Any:
            # A part of the frame, or a copy in another order, is a plain data frame: its rows are others.
            return pandas.DataFrame

        def _repr_html_(self) -> str:
            evaluations = getattr(self, "evaluations", None)
            table: str = pandas.DataFrame(self)._repr_html_() or ""
            if not evaluations:
                return table
            return set_html([item for item in evaluations if item is not None], table)

    return ScoredFrame


def _turn_columns(records: Sequence[Record | None]) -> dict[str, list[Any]]:
    rows = [_turn_row(record) if record is not None else {} for record in records]
    columns = {name: [row.get(name) for row in rows] for name in _TURN_COLUMNS}
    has_references = any(reference is not None for reference in columns["reference"])
    return columns if has_references else {name: columns[name] for name in _TURN_COLUMNS if name != "reference"}


def _turn_row(record: Record) -> dict[str, Any]:
    turn = record.turn
    passages = [passage.text for passage in turn.passages]
    values = (record.id, turn.query, turn.response, passages, turn.reference)
    return dict(zip(_TURN_COLUMNS, values, strict=True))


def _score_columns(records: Sequence[Record | None]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return the columns of scores, labels and reasons, and what was skipped everywhere for one reason."""
    values: dict[str, dict[int, float]] = {}
    labels: dict[str, dict[int, str]] = {}
    reasons: dict[str, dict[int, str]] = {}
    for position, result in _turn_results(records):
        if not isinstance(result, Score):
            reasons.setdefault(result.name, {})[position] = _reason(result)
            continue
        values.setdefault(result.name, {})[position] = result.value
        if result.label is not None:
            labels.setdefault(result.name, {})[position] = result.label
    everywhere = {name: found for name, found in reasons.items() if _is_everywhere(name, found, values, records)}
    size = len(records)
    columns = {name: _column(found, size, float("nan")) for name, found in values.items()}
    columns |= {f"{name}.label": _column(found, size, None) for name, found in labels.items()}
    columns |= {
        f"{name}.reason": _column(found, size, None) for name, found in reasons.items() if name not in everywhere
    }
    return columns, {name: next(iter(found.values())) for name, found in everywhere.items()}


def _turn_results(records: Sequence[Record | None]) -> Iterator[tuple[int, Result]]:
    for position, record in enumerate(records):
        if record is not None:
            yield from ((position, result) for result in record.results if is_about_turn(result))


def _reason(result: Result) -> str:
    if isinstance(result, Failed):
        return f"failed: {result.error_type}: {result.message}"
    return "" if isinstance(result, Score) else f"skipped: {result.reason}"


def _is_everywhere(
    name: str, found: Mapping[int, str], values: Mapping[str, object], records: Sequence[Record | None]
) -> bool:
    """Return True if a metric was skipped in every row for the same reason."""
    usable = sum(record is not None for record in records)
    is_skip = all(reason.startswith("skipped: ") for reason in found.values())
    return is_skip and name not in values and len(found) == usable and len(set(found.values())) == 1


def _column(found: Mapping[int, Any], size: int, empty: Any) -> list[Any]:
    return [found.get(position, empty) for position in range(size)]
