"""Stand-ins for the models that need no weights: words and rules. For tests, tiny machines and a first look."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rageval_hooks.models.cross_encoder import Relevance
from rageval_hooks.models.nlp import Entity
from rageval_hooks.runtime.cached import cached_property
from rageval_hooks.text.facts import find_facts
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import STOP_WORDS, blank_marks, weighed_words

__all__ = ["LexicalEmbedder", "LexicalEmbedding", "LexicalNlp", "LexicalRelevance"]

NAME = "lexical"


class LexicalEmbedding:
    """A text as a bag of its content words, each with the logarithm of its count.

    Args:
        counts: how often each word's key occurs.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    @cached_property
    def _weights(self) -> dict[str, float]:
        return {key: 1 + math.log(count) for key, count in self._counts.items()}

    @cached_property
    def _length(self) -> float:
        return math.sqrt(sum(weight * weight for weight in self._weights.values()))

    @staticmethod
    def together(embeddings: Sequence[LexicalEmbedding]) -> LexicalEmbedding:
        """Return several texts as one."""
        counts: Counter[str] = Counter()
        for embedding in embeddings:
            counts.update(embedding._counts)
        return LexicalEmbedding(counts)

    @property
    def is_empty(self) -> bool:
        """Whether the text has no content words."""
        return not self._counts

    @property
    def size(self) -> int:
        """Bytes, about."""
        return 120 * len(self._counts)

    def cosine(self, other: LexicalEmbedding) -> float:
        """Return the cosine of the weights, 0..1."""
        if self.is_empty or other.is_empty:
            return 0.0
        small, large = sorted((self._weights, other._weights), key=len)
        return sum(weight * large.get(key, 0.0) for key, weight in small.items()) / (self._length * other._length)

    def best_cosine(self, other: LexicalEmbedding) -> float:
        """Return the share of another, shorter text's words that occur in this one, 0..1."""
        total = sum(other._weights.values())
        return sum(weight for key, weight in other._weights.items() if key in self._counts) / total if total else 0.0


class LexicalEmbedder:
    """Stands in for the embedder."""

    name = NAME

    def embed(self, text: str, pause: Callable[[], None] = lambda: None) -> LexicalEmbedding:
        """Count the content words of a text."""
        pause()
        return LexicalEmbedding(Counter(_keys(text)))


class LexicalRelevance:
    """Stands in for the cross-encoder."""

    name = NAME

    def relevance(self, query: str, response: str) -> Relevance | None:
        """Return the share of the query's content words that the response takes up; None if it has none."""
        asked = set(_keys(query))
        return Relevance(len(asked & set(_keys(response))) / len(asked)) if asked else None


class LexicalNlp:
    """Stands in for the spaCy pipeline."""

    name = NAME

    def entities(self, text: str, pause: Callable[[], None] = lambda: None) -> list[Entity]:
        """Return the numbers, dates, codes and names that a text states."""
        pause()
        return [Entity(fact.text, _KINDS[fact.kind]) for fact in find_facts(text)]

    def concepts(self, query: str, pause: Callable[[], None] = lambda: None) -> list[str]:
        """Return the runs of content words of a query."""
        pause()
        blanked = blank_marks(query)
        runs: list[list[str]] = []
        end = -2
        for span in sentence_spans(query):
            for word in weighed_words(blanked, span):
                if not word.is_content or word.key in _FILLERS:
                    continue
                if word.start - end == 1 and runs:
                    runs[-1].append(query[word.start : word.end])
                else:
                    runs.append([query[word.start : word.end]])
                end = word.end
        return list(dict.fromkeys(" ".join(run) for run in runs))


_KINDS = {"number": "CARDINAL", "date": "DATE", "code": "PRODUCT", "name": "ENTITY"}
_FILLERS = (
    frozenset("tell explain describ show giv say mention list know want need find look happen mean work".split())
    | STOP_WORDS
)


def _keys(text: str) -> Iterable[str]:
    blanked = blank_marks(text)
    return [word.key for span in sentence_spans(text) for word in weighed_words(blanked, span) if word.is_content]
