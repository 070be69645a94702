"""The questions whose score changed most between two files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.records.record import Record
from rageval_hooks.runtime.jsonable import Data

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ChangedTurn", "find_texts", "most_changed"]


class ChangedTurn(Data):
    """A question whose score changed much.

    Attributes:
        id: of the question.
        before: mean of its values in the first file.
        after: in the second.
        query: the question.
        response_before: its first answer in the first file.
        response_after: in the second.
    """

    id: str
    before: float
    after: float
    query: str = ""
    response_before: str = ""
    response_after: str = ""


def most_changed(
    ids: Sequence[str],
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    direction: Direction,
    most: int,
) -> tuple[ChangedTurn, ...]:
    """Return the questions whose values changed most, without their texts; the greatest change for the worse first."""
    import numpy as np

    change = after - before
    greatest = [index for index in np.argsort(-np.abs(change), kind="stable")[:most].tolist() if change[index]]
    greatest.sort(key=lambda index: change[index] if direction == "higher" else -change[index])
    return tuple(
        ChangedTurn(id=ids[index], before=float(before[index]), after=float(after[index])) for index in greatest
    )


def find_texts(turns: Sequence[ChangedTurn], before: str, after: str) -> tuple[ChangedTurn, ...]:
    """Return turns with their texts, from the files at two paths: reads them a second time."""
    wanted = {turn.id for turn in turns}
    if not wanted:
        return ()
    first, second = (_first_records(path, wanted) for path in (before, after))
    return tuple(
        turn.model_copy(
            update={
                "query": first[turn.id].turn.query,
                "response_before": first[turn.id].turn.response,
                "response_after": second[turn.id].turn.response,
            }
        )
        for turn in turns
        if turn.id in first and turn.id in second
    )


def _first_records(path: str, wanted: Iterable[str]) -> dict[str, Record]:
    from rageval_hooks.offline.records.files import read_records

    missing, found = set(wanted), {}
    for record in read_records(Path(path), on_bad=_ignore):
        if record.id in missing:
            missing.remove(record.id)
            found[record.id] = record
            if not missing:
                break
    return found


def _ignore(row: object) -> None:
    """The first reading has complained of it."""
