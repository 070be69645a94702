"""Scores of the single sentences of a response, and the explanation that names those that pulled the score down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.text.formatting import shorten

# Metadata is an attribute of a span, and backends cut long ones.
_MAX_KEPT: Final = 100
# An explanation is read in a list of traces.
_MAX_EXPLAINED: Final = 5
_MAX_WORDS: Final = 10
_MAX_KEPT_WORDS: Final = 50
_ONLY_IF_GIVEN: Final = ("passage_name", "contradicts", "unseen", "unsupported")


class UnsupportedPart(Data):
    """A part of a sentence that a grounding model calls unsupported.

    Attributes:
        start: its first character in the response.
        end: the character after it.
        text: the part.
        probability: the probability that it is unsupported, 0..1.
    """

    start: int
    end: int
    text: str
    probability: float


class SentenceScore(Data):
    """One sentence of a response, with its score.

    Attributes:
        text: the sentence.
        score: its score, 0..1.
        start: its first character in the response; None if not known.
        end: the character after it; None if not known.
        weight: its weight in the mean over sentences.
        passage: position of its best passage in the turn; None if not known.
        passage_name: how an explanation names that passage.
        missing: content words that no passage of the prompt has.
        contradicts: the sentence of a passage that says the same with a negation more or less; empty if there is none.
        unseen: names of passages that were not in the prompt and support the sentence.
        coverage: share of its words that occur in a passage; None where this is not computed.
        alignment: share of its meaning that is near a passage, by token vectors; None where this is not computed.
        unsupported: the parts that a grounding model calls unsupported.
    """

    text: str
    score: float
    start: int | None = None
    end: int | None = None
    weight: float = 1.0
    passage: int | None = None
    passage_name: str = ""
    missing: tuple[str, ...] = ()
    contradicts: str = ""
    unseen: tuple[str, ...] = ()
    coverage: float | None = None
    alignment: float | None = None
    unsupported: tuple[UnsupportedPart, ...] = ()


def explain_sentences(sentences: Sequence[SentenceScore], threshold: float) -> str:
    """Say how many sentences reach a threshold, and name the others, those that cost most first.

    Args:
        sentences: the sentences of the response.
        threshold: the threshold of the label, so that the explanation and the label agree.
    """
    low = [sentence for sentence in sentences if sentence.score < threshold]
    count = len(sentences)
    if not low:
        line = f"all {count} sentences reach {threshold:.2f}" if count > 1 else f"reaches {threshold:.2f}"
        missing = dict.fromkeys(word for sentence in sentences for word in sentence.missing)
        if missing:
            line += f"; words that no passage has: {', '.join(list(missing)[:_MAX_WORDS])}"
        return line
    # The share of the lost score: a long sentence that is a little weak costs more than a short one.
    low.sort(key=lambda sentence: sentence.weight * (sentence.score - threshold))
    head = f"{len(low)} of {count} sentences below {threshold:.2f}" if count > 1 else f"below {threshold:.2f}"
    lines = [head + ":", *(_line(sentence) for sentence in low[:_MAX_EXPLAINED])]
    if len(low) > _MAX_EXPLAINED:
        lines.append(f"and {len(low) - _MAX_EXPLAINED} more")
    return "\n".join(lines)


def _line(sentence: SentenceScore) -> str:
    line = f"{sentence.score:.2f} “{shorten(sentence.text)}”"
    if sentence.passage_name:
        line += f" best passage: {sentence.passage_name}" if sentence.score > 0 else " no passage has any of it"
    if sentence.unsupported:
        parts = (f"“{shorten(part.text)}”" for part in sentence.unsupported[:_MAX_WORDS])
        line += f"; unsupported: {', '.join(parts)}"
    if sentence.missing:
        line += f"; missing: {', '.join(sentence.missing[:_MAX_WORDS])}"
    if sentence.contradicts:
        line += f"; the passages say: “{shorten(sentence.contradicts)}”"
    if sentence.unseen:
        line += f"; only in a passage that was not in the prompt: {', '.join(sentence.unseen)}"
    return line


def as_metadata(sentences: Sequence[SentenceScore]) -> list[dict[str, Any]]:
    """Return the sentences as JSON-able data: at most 100, those with the lowest scores, in the order of the text."""
    lowest = sorted(range(len(sentences)), key=lambda position: sentences[position].score)[:_MAX_KEPT]
    found = []
    for position in sorted(lowest):
        # The score is not rounded: a label that is set later must see on which side of the threshold it is.
        data = sentences[position].model_dump(mode="json", exclude_none=True)
        data["missing"] = data["missing"][:_MAX_KEPT_WORDS]
        found.append({name: value for name, value in data.items() if value or name not in _ONLY_IF_GIVEN})
    return found


def sentences_in(metadata: Mapping[str, Any]) -> list[SentenceScore]:
    """Return the sentences that :func:`as_metadata` has put under ``sentences``."""
    found: Iterable[Mapping[str, Any]] = metadata.get("sentences", ())
    return [SentenceScore.model_validate(item) for item in found]
