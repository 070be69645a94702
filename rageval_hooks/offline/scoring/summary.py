"""What a run of `score` did, for its last lines and its exit status."""

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
    """What a run did.

    Attributes:
        turns: how many turns have results.
        resumed: how many of them are from an earlier run that was interrupted.
        reused: how many of them are from a finished file that this run enlarged.
        finished: True if the output was already complete, so that nothing was done.
        bad: rows that could not be used.
        first_bad: the first of them.
        errors: the file that they are in.
        results: number of results of each status.
        spent: what the judge took, earlier runs included.
        budget: why the judge got no more requests, if a budget was spent.
        left_out: requests to the judge that were not sent for that reason.
        why_not: why the first result without a score has none.
        broken: what is wrong with the judge, if it answered nothing while other metrics made scores.
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
                reason = result.reason if isinstance(result, Skipped) else f"{result.error_type}: {result.message}"
                self.why_not = f"{result.name}: {reason.removeprefix(f'{result.name}: ')}"
