"""Results of a finished score file, for a run over a longer input: nothing is paid for twice."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from rageval_hooks.offline.records.files import read_records
from rageval_hooks.offline.records.record import Record
from rageval_hooks.score import Result, Score, Skipped

__all__ = ["count_missing", "reusable_results", "turn_key"]

# The reason of a judgement that a budget prevented: "the budget of 20 calls is used up".
_BUDGET_SPENT = re.compile(r"the budget of .* is used up")


def reusable_results(output: Path) -> dict[str, tuple[Result, ...]]:
    """Return the results of a finished file by turn.

    A table does not hold whole turns, so only ``.jsonl`` is reused. A turn with a failed result, or with one that was
    skipped because a budget was spent, is scored again.
    """
    if output.suffix.lower() != ".jsonl" or not output.exists():
        return {}
    found = {}
    for record in read_records(output):
        # All results of a turn are reused or none: a metric that failed may share calls with the others.
        if all(map(_is_final, record.results)):
            found[turn_key(record)] = record.results
    return found


def turn_key(record: Record) -> str:
    """Return a hash that equal turns under the same id share."""
    text = f"{record.id}\n{record.run}\n{record.turn.model_dump_json()}"
    return hashlib.sha256(text.encode()).hexdigest()


def count_missing(finished: Mapping[str, object], records: Iterable[Record]) -> int:
    """Return how many finished turns an input no longer has."""
    return len(finished.keys() - {turn_key(record) for record in records})


def _is_final(result: Result) -> bool:
    if isinstance(result, Score):
        return True
    # A larger budget may allow what an earlier one prevented.
    return isinstance(result, Skipped) and _BUDGET_SPENT.fullmatch(result.reason) is None
