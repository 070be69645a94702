"""The passages of a turn as one sequence of words."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rageval_hooks.text.sequence import WordSequence

__all__ = ["MOST_PLACES", "Context"]

MAX_CONTEXT_WORDS: Final = 100_000
"""Words of the passages that are searched: about 20 ms. Of longer contexts, the first ones."""

MOST_PLACES: Final = 400
"""Places of one word that are compared. Function words of long contexts have thousands, and prove nothing."""


@dataclass(frozen=True, slots=True)
class Context:
    """The passages as one sequence of words, and where the words of a response occur in it.

    Attributes:
        keys: the keys of all passages, with an empty one between two passages.
        sentences: per key, the number of its sentence, counted through all passages.
        starts: the first word of each sentence.
        places: by key of the response, the positions in ``keys``.
        capitals: per key, True if its word begins with a capital.
    """

    keys: Sequence[str]
    sentences: Sequence[int]
    starts: Sequence[int]
    places: dict[str, list[int]]
    capitals: Sequence[bool]

    @classmethod
    def of(cls, passages: Sequence[WordSequence], wanted: set[str]) -> Context:
        """Join passages, and find some keys in them."""
        keys: list[str] = []
        sentences: list[int] = []
        capitals: list[bool] = []
        offset = 0
        for passage in passages:
            keys += [*passage.keys, ""]
            capitals += [*passage.capitals, False]
            # The number that separates passages is never used by a sentence, so evidence ends with its passage.
            sentences += [offset + number for number in passage.sentences]
            if sentences:
                offset = sentences[-1]
            offset += 2
            sentences.append(offset - 1)
            if len(keys) > MAX_CONTEXT_WORDS:
                break
        places: dict[str, list[int]] = {}
        for position, key in enumerate(keys):
            if key in wanted:
                places.setdefault(key, []).append(position)
        starts = [bisect_left(sentences, number) for number in range(sentences[-1] + 2)] if sentences else [0]
        return cls(keys, sentences, starts, places, capitals)

    def words_of(self, sentence: int) -> Sequence[str]:
        """Return the keys of a sentence."""
        if not 0 <= sentence < len(self.starts) - 1:
            return ()
        return self.keys[self.starts[sentence] : self.starts[sentence + 1]]

    def some_places(self, key: str) -> Sequence[int]:
        """Return the first places of a word."""
        return self.places.get(key, ())[:MOST_PLACES]

    def has_near(self, key: str, position: int, distance: int) -> bool:
        """Return True if a word occurs at most so many words from a position."""
        places = self.places.get(key, ())
        first = bisect_left(places, position - distance)
        return first < len(places) and places[first] <= position + distance
