"""What the offline commands hand to each other: one record per answer, as a line of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.score import Result, Score, is_about_turn
from rageval_hooks.turn import Turn

__all__ = ["Record", "holds_turn"]


class Record(Data):
    """One answer of a system to one question, and what is known of it.

    ``rageval-hooks run`` writes records without results, ``score`` adds the results, ``report`` and ``plot`` read them.

    Attributes:
        id: of the question; the same in every run that is compared.
        run: which repetition of the question this is, from 1.
        turn: the question, the passages, the answer, the reference answer; its status and error if the system failed.
        results: of metrics, in their order.
        target: id of the passage that holds the answer, where the test set knows it.
        rank: position of that passage among the retrieved ones, from 1; None when it was missed or is not known.
        document: the source document of the question.
    """

    id: Text
    run: int = Field(default=1, ge=1)
    turn: Turn
    results: tuple[Result, ...] = ()
    target: Text | None = None
    rank: int | None = Field(default=None, ge=1)
    document: Text | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the other records of a file."""
        return self.id, self.run

    def scores(self) -> Iterator[Score]:
        """Yield the scores of the whole turn."""
        return (result for result in self.results if isinstance(result, Score) and is_about_turn(result))


def holds_turn(row: Mapping[str, Any]) -> bool:
    """Whether a row holds a turn as we write it, and not columns, of which one may have this name too."""
    return isinstance(row.get("turn"), Mapping)
