"""The result of a run of `score`, for its last lines and its exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from rageval_hooks.offline.jobs.budget import Spent
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow
from rageval_hooks.score import Result, Score, is_about_turn

__all__ = ["Counts", "Scored", "why_not"]


@dataclass
class Counts:
    """The results of some turns, counted.

    Attributes:
        results: number of results of each status.
        names: names of the scores of whole turns.
    """

    results: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)

    def add(self, results: Iterable[Result]) -> None:
        """Count the results of a turn."""
        for result in results:
            self.results[result.status] += 1
            if isinstance(result, Score) and is_about_turn(result):
                self.names.add(result.name)

    def merge(self, results: Mapping[str, int], names: Iterable[str]) -> None:
        """Add what was counted elsewhere."""
        self.results.update(results)
        self.names.update(names)


def why_not(records: Iterable[Record]) -> str | None:
    """Return the reason of the first result that is not a score."""
    # One reason is shown if nothing was scored; the first is as good as any.
    for result in chain.from_iterable(record.results for record in records):
        if not isinstance(result, Score):
            return f"{result.name}: {result.reason.removeprefix(f'{result.name}: ')}"
    return None


@dataclass
class Scored:
    """The result of a run.

    Attributes:
        turns: number of turns with results.
        resumed: how many of them an interrupted run had scored.
        reused: how many of them have results from the finished output that this run extended.
        finished: True if the output was already complete, so that nothing was done.
        bad: number of rows that could not be used.
        first_bad: the first of these rows.
        errors: the file that these rows were written to.
        counts: the results.
        spent: requests and cost of the judge, earlier runs included.
        budget: the budget that was used up, in words.
        left_out: number of requests that were not sent because of the budget.
        why_not: the reason of the first result that is not a score.
        broken: the error of a judge that answered nothing, while other metrics made scores.
    """

    turns: int = 0
    resumed: int = 0
    reused: int = 0
    finished: bool = False
    bad: int = 0
    first_bad: BadRow | None = None
    errors: Path | None = None
    counts: Counts = field(default_factory=Counts)
    spent: Spent = field(default_factory=Spent)
    budget: str | None = None
    left_out: int = 0
    why_not: str | None = None
    broken: str | None = None

    @property
    def results(self) -> Counter[str]:
        """Number of results of each status."""
        return self.counts.results

    @property
    def names(self) -> set[str]:
        """Names of the scores of whole turns."""
        return self.counts.names
