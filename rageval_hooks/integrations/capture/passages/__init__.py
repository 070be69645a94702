"""Passages of all integrations: which ones the model saw, what applications pass in, what earlier turns found."""

from rageval_hooks.integrations.capture.passages.earlier import EarlierPassages
from rageval_hooks.integrations.capture.passages.given import TEXT_KEYS, PassageLike, is_passage, passage_of
from rageval_hooks.integrations.capture.passages.seen_by_model import (
    LEAST_PART,
    SCORE_KEYS,
    PromptText,
    mark_dropped,
    mark_seen,
    passage_key,
    unique_passages,
)

__all__ = [
    "LEAST_PART",
    "SCORE_KEYS",
    "TEXT_KEYS",
    "EarlierPassages",
    "PassageLike",
    "PromptText",
    "is_passage",
    "mark_dropped",
    "mark_seen",
    "passage_key",
    "passage_of",
    "unique_passages",
]
