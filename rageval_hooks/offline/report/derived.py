"""Scores that a report derives from a record itself: whether it was answered, and the rank of its target.

They are scores like any other: in means with intervals, comparisons, gates and plots.
"""

from __future__ import annotations

from collections.abc import Iterator

from rageval_hooks.metrics.support.definition import ScoreDefinition
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.targets import have_texts, rank_of_all
from rageval_hooks.score import Score

__all__ = [
    "ANSWERED",
    "DECLINED",
    "DERIVED",
    "DERIVED_GROUP",
    "HITS",
    "NO_ANSWER",
    "TARGET_RANK",
    "rank_scores",
    "rank_status",
]

ANSWERED = "answered"

# For questions that the documents do not answer, for which "answered" would reward a wrong answer.
DECLINED = "declined"

# The metric that says whether a response attempts an answer: 1 if it does.
NO_ANSWER = "no_answer"

# What the scores of ranks name as their metric.
TARGET_RANK = "target_rank"

HITS = (1, 3, 5, 10)
DERIVED_GROUP = "retrieval"

DERIVED: dict[str, ScoreDefinition] = {
    definition.name: definition
    for definition in (
        ScoreDefinition(
            name=ANSWERED,
            description="1 if the system attempted an answer; 0 if it declined or failed",
            binary=True,
            headline=1,
        ),
        ScoreDefinition(
            name=DECLINED,
            description="of the questions marked as unanswerable: 1 if the system declined; 0 if it answered or failed",
            binary=True,
            headline=1,
        ),
        ScoreDefinition(
            name="rank",
            description="rank of the target passage, where it was retrieved",
            direction="lower",
            low=1.0,
            high=None,
            unit="rank",
        ),
        ScoreDefinition(name="mrr", description="1 / rank of the target passage; 0 if it was missed", headline=1),
        *(
            ScoreDefinition(name=f"hit@{k}", description=f"1 if the target passage is among the first {k}", binary=True)
            for k in HITS
        ),
    )
}


def rank_status(record: Record) -> tuple[bool, int | None]:
    """Return whether the rank of a record's target is known, and the rank; None for a target that was missed.

    What the record states counts. Otherwise the target is looked up among the passages. A target that is not found
    there is unknown: whether its id could have been found depends on the whole file.
    """
    if record.rank is not None or record.missed:
        return True, record.rank
    rank = rank_of_all(record)
    if rank is not None:
        return True, rank
    # A text that no passage contains was not retrieved.
    return have_texts(record) and bool(record.turn.passages), None


def rank_scores(rank: int | None) -> Iterator[Score]:
    """Yield the scores of a known rank; None stands for a target that was missed, and has no score ``rank``."""
    if rank is not None:
        yield Score(name="rank", value=float(rank), metric=TARGET_RANK)
    yield Score(name="mrr", value=0.0 if rank is None else 1 / rank, metric=TARGET_RANK)
    for k in HITS:
        yield Score(name=f"hit@{k}", value=float(rank is not None and rank <= k), metric=TARGET_RANK)
