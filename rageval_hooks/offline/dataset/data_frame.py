"""The scores of a dataset as a pandas data frame that shows the worst answers first in a notebook."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rageval_hooks.offline.dataset.inputs import Dataset, import_pandas
from rageval_hooks.offline.dataset.page import set_html
from rageval_hooks.offline.records.record import Record
from rageval_hooks.runtime.selecting import common, not_none
from rageval_hooks.score import Evaluation, Result, Score, is_about_turn

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
    kept = frame.drop(columns=common(columns, frame.columns))
    scores = pandas.DataFrame(columns, index=frame.index)
    made = _frame_class()(pandas.concat([kept, scores], axis=1))
    made.attrs["skipped"] = skipped
    made.evaluations = list(map(_evaluation, records))
    return made


def _evaluation(record: Record | None) -> Evaluation | None:
    if record is None:
        return None
    return Evaluation(turn=record.turn, results=record.results)


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
            return set_html(not_none(evaluations), table)

    return ScoredFrame


def _turn_columns(records: Sequence[Record | None]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in _TURN_COLUMNS}
    for record in records:
        row = _turn_row(record)
        for name, column in columns.items():
            column.append(row.get(name))
    # A test set without reference answers needs no empty column for them.
    if columns["reference"].count(None) == len(records):
        del columns["reference"]
    return columns


def _turn_row(record: Record | None) -> dict[str, Any]:
    """Return the turn's columns of a row; empty for a row that cannot be used."""
    if record is None:
        return {}
    turn = record.turn
    passages = [passage.text for passage in turn.passages]
    values = (record.id, turn.query, turn.response, passages, turn.reference)
    return dict(zip(_TURN_COLUMNS, values, strict=True))


def _score_columns(records: Sequence[Record | None]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return the columns of scores, labels and reasons, and what was skipped everywhere for one reason."""
    values: dict[str, dict[int, float]] = defaultdict(dict)
    labels: dict[str, dict[int, str]] = defaultdict(dict)
    reasons: dict[str, dict[int, str]] = defaultdict(dict)
    for position, result in _turn_results(records):
        if not isinstance(result, Score):
            reasons[result.name][position] = _reason(result)
            continue
        values[result.name][position] = result.value
        if result.label is not None:
            labels[result.name][position] = result.label
    usable = sum(record is not None for record in records)
    skipped = _skipped_everywhere(reasons, values, usable)
    # A column with the same reason in every row would only make the table wider.
    for name in skipped:
        del reasons[name]
    size = len(records)
    columns = {name: _column(found, size, float("nan")) for name, found in values.items()}
    columns |= {f"{name}.label": _column(found, size, None) for name, found in labels.items()}
    columns |= {f"{name}.reason": _column(found, size, None) for name, found in reasons.items()}
    return columns, skipped


def _turn_results(records: Sequence[Record | None]) -> Iterator[tuple[int, Result]]:
    for position, record in enumerate(records):
        if record is not None:
            yield from ((position, result) for result in record.results if is_about_turn(result))


def _reason(result: Result) -> str:
    return "" if isinstance(result, Score) else f"{result.status}: {result.reason}"


def _skipped_everywhere(
    reasons: Mapping[str, Mapping[int, str]], values: Collection[str], usable: int
) -> dict[str, str]:
    """Return the metrics that were skipped in every usable row for one reason, with the reason."""
    skipped: dict[str, str] = {}
    for name, found in reasons.items():
        reason = _common_reason(found, usable)
        if name not in values and reason is not None:
            skipped[name] = reason
    return skipped


def _common_reason(found: Mapping[int, str], usable: int) -> str | None:
    """Return the reason for which a metric was skipped in every usable row; None if there are several."""
    reasons = set(found.values())
    if len(found) != usable or len(reasons) != 1:
        return None
    [reason] = reasons
    return reason if reason.startswith("skipped: ") else None


def _column(found: Mapping[int, Any], size: int, empty: Any) -> list[Any]:
    return [found.get(position, empty) for position in range(size)]
