"""The result of a run of `score`, for its last lines and its exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rageval_hooks.offline.jobs.budget import Spent
from rageval_hooks.offline.records.rows import BadRow
from rageval_hooks.score import Result, Score, Skipped, is_about_turn

__all__ = ["Scored"]


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
        results: number of results of each status.
        spent: requests and cost of the judge, earlier runs included.
        budget: the budget that was used up, in words.
        left_out: number of requests that were not sent because of the budget.
        why_not: the reason of the first result that is not a score.
        broken: the error of a judge that answered nothing, while other metrics made scores.
        names: names of the scores of whole turns.
    """

    turns: int = 0
    resumed: int = 0
    reused: int = 0
    finished: bool = False
    bad: int = 0
    first_bad: BadRow | None = None
    errors: Path | None = None
    results: Counter[str] = field(default_factory=Counter)
    spent: Spent = field(default_factory=Spent)
    budget: str | None = None
    left_out: int = 0
    why_not: str | None = None
    broken: str | None = None
    names: set[str] = field(default_factory=set)

    def count(self, results: Iterable[Result]) -> None:
        """Count the results of a turn."""
        for result in results:
            self.results[result.status] += 1
            if isinstance(result, Score):
                if is_about_turn(result):
                    self.names.add(result.name)
            elif self.why_not is None:
                # One reason is shown if nothing was scored; the first is as good as any.
                reason = result.reason if isinstance(result, Skipped) else f"{result.error_type}: {result.message}"
                self.why_not = f"{result.name}: {reason.removeprefix(f'{result.name}: ')}"
