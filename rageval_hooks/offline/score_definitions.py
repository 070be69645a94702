"""Facts about a score that reports use: which way is better, its bounds, its unit, its metric.

They come from the score's own :class:`ScoreDefinition`: a new metric appears in tables, plots, gates and comparisons by
what it says of itself. Only the scores that a report derives from the records themselves are defined here.
"""

from __future__ import annotations

from functools import cache
from typing import Final, get_args

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import REGISTRY, Metric, ScoreDefinition
from rageval_hooks.settings import TurnVerdict

VERDICTS: Final[tuple[str, ...]] = get_args(TurnVerdict)
"""The labels of the verdict, in the order in which a report counts them."""

BAD_ANSWERS: Final = "verdict.bad"

ANSWERED: Final = "answered"

DECLINED: Final = "declined"
"""For questions that the documents do not answer: "answered" would reward a wrong answer there."""

NO_ANSWER: Final = "no_answer"
"""The metric that says whether a response attempts an answer: 1 if it does."""

TARGET_RANK: Final = "target_rank"
"""What the scores of ranks name as their metric."""

HITS: Final = (1, 3, 5, 10)

RANK: Final = "rank"

_DERIVED: Final = (
    # The verdicts good, doubtful and declined count as 0.
    ScoreDefinition(name=BAD_ANSWERS, description="1 if the verdict is bad", direction="lower", binary=True),
    # A failed turn counts as 0.
    ScoreDefinition(name=ANSWERED, description="1 if an answer was attempted", binary=True, headline=1),
    ScoreDefinition(name=DECLINED, description="1 if an unanswerable question was declined", binary=True, headline=1),
    ScoreDefinition(
        name=RANK, description="rank of the target passage", direction="lower", low=1.0, high=None, unit="rank"
    ),
    ScoreDefinition(name="mrr", description="1 / rank of the target passage; 0 if it was missed", headline=1),
    *(
        ScoreDefinition(name=f"hit@{k}", description=f"1 if the target passage is among the first {k}", binary=True)
        for k in HITS
    ),
)

# An undefined score is better when lower, and about usage, if its name has one of these words ("my_latency_ms").
_USAGE_WORDS = ("latency", "tokens", "cost", "duration")
_LOWER_WORDS = (*_USAGE_WORDS, "hallucination", "unsupported", "rmse", "error")


@cache
def define_score(name: str, metric: str | None = None) -> ScoreDefinition:
    """Return the definition of a score.

    A score that neither a built-in nor an installed metric defines gets one without an upper bound, and with a
    direction that its name suggests.
    """
    # The names of built-in scores are reserved, so the metric that made such a score need not be asked.
    if name in _builtin():
        return _builtin()[name][1]
    made_by = _metric(metric)
    for definition in (*_DERIVED, *(made_by.scores if made_by else ())):
        if definition.name == name:
            return definition
    lower = any(word in name.lower() for word in _LOWER_WORDS)
    return ScoreDefinition(name=name, description="", direction="lower" if lower else "higher", high=None)


def is_quality(name: str, metric: str | None = None) -> bool:
    """Return True if a score is about the answers, and not about their latency, tokens or cost.

    A machine that is busy makes every answer slower: such scores decide about a regression only if they are named. Nor
    does ``rank``, which a question has only if its target was retrieved: ``mrr`` counts the misses, too.
    """
    made_by = REGISTRY.builtin().get(builtin_metric_of(name) or metric or "")
    if name == RANK or (made_by is not None and made_by.family == "usage"):
        return False
    is_defined = bool(define_score(name, metric).description)
    return is_defined or not any(word in name.lower() for word in _USAGE_WORDS)


def builtin_metric_of(name: str) -> str | None:
    """Return the name of the built-in metric that makes a score, or None."""
    return _builtin()[name][0] if name in _builtin() else None


def needs_answer(metric: str | None) -> bool:
    """Return True if a metric says nothing useful about a question that the documents do not answer."""
    found = _metric(metric)
    return found is not None and found.answerable_only


@cache
def _metric(name: str | None) -> type[Metric] | Metric | None:
    """Return a built-in metric, or one that another package publishes, if it can be made here."""
    if name is None or name in REGISTRY.builtin():
        return REGISTRY.builtin().get(name or "")
    try:
        return REGISTRY.create(name) if name in REGISTRY.names() else None
    except ConfigurationError:  # for example, its package needs a key that this machine lacks
        return None


@cache
def _builtin() -> dict[str, tuple[str, ScoreDefinition]]:
    """Return the built-in scores: name → (metric, definition)."""
    return {
        definition.name: (name, definition)
        for name, metric in REGISTRY.builtin().items()
        for definition in metric.scores
    }
