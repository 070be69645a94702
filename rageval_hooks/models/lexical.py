"""The lexical tier: words and rules in place of models. For tests, small machines and a first try."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from rageval_hooks.models.cross_encoder import Relevance
from rageval_hooks.models.nlp import Entity
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.facts import find_facts
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import STOP_WORDS, blank_marks, content_keys, weighted_lines

NAME = "lexical"


@dataclass(frozen=True, eq=False)
class LexicalEmbedding:
    """A text as a bag of its content words, each with the logarithm of its count.

    Attributes:
        counts: how often each word's key occurs.
    """

    counts: Counter[str]

    @cached_property
    def _weights(self) -> dict[str, float]:
        return {key: 1 + math.log(count) for key, count in self.counts.items()}

    @cached_property
    def _length(self) -> float:
        return math.sqrt(sum(weight * weight for weight in self._weights.values()))

    @staticmethod
    def together(embeddings: Sequence[LexicalEmbedding]) -> LexicalEmbedding:
        """Return several texts as one."""
        counts: Counter[str] = Counter()
        for embedding in embeddings:
            counts.update(embedding.counts)
        return LexicalEmbedding(counts)

    @property
    def is_empty(self) -> bool:
        """True if the text has no content words."""
        return not self.counts

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        return 120 * len(self.counts)

    def cosine(self, other: LexicalEmbedding) -> float:
        """Return the cosine of the weights, 0..1."""
        if self.is_empty or other.is_empty:
            return 0.0
        # Only words of both count, and the shorter text has fewer.
        small, large = sorted((self._weights, other._weights), key=len)
        return sum(weight * large.get(key, 0.0) for key, weight in small.items()) / (self._length * other._length)

    def best_cosine(self, other: LexicalEmbedding) -> float:
        """Return the share of another, shorter text's words that occur in this one, 0..1."""
        total = sum(other._weights.values())
        if not total:
            return 0.0
        shared = sum(weight for key, weight in other._weights.items() if key in self.counts)
        return shared / total


class LexicalEmbedder:
    """Replaces the embedder."""

    name = NAME

    def embed(self, text: str, pause: Callable[[], None] = lambda: None) -> LexicalEmbedding:
        """Count the content words of a text."""
        pause()
        return LexicalEmbedding(Counter(content_keys(text)))


class LexicalRelevance:
    """Replaces the cross-encoder."""

    name = NAME

    def relevance(self, query: str, response: str) -> Relevance | None:
        """Return the share of the query's content words that the response has; None if the query has none."""
        asked = set(content_keys(query))
        return Relevance(len(asked & set(content_keys(response))) / len(asked)) if asked else None


class LexicalNlp:
    """Replaces the spaCy pipeline."""

    name = NAME

    def entities(self, text: str, pause: Callable[[], None] = lambda: None) -> list[Entity]:
        """Return the numbers, dates, codes and names that a text states."""
        pause()
        return [Entity(fact.text, _KINDS[fact.kind]) for fact in find_facts(text)]

    def lemmas(self, text: str, pause: Callable[[], None] = lambda: None) -> frozenset[str]:
        """Return nothing: rules know no lemmas."""
        return frozenset()

    def concepts(self, query: str, pause: Callable[[], None] = lambda: None) -> list[str]:
        """Return the runs of content words of a query."""
        pause()
        found = chain.from_iterable(line.words for line in weighted_lines(blank_marks(query), sentence_spans(query)))
        content = [word for word in found if word.is_content and word.key not in _FILLERS]
        runs: list[list[str]] = []
        end = -1
        for word in content:
            # Words with one character between them are one concept: "pier opening".
            if not runs or word.start != end + 1:
                runs.append([])
            runs[-1].append(query[word.start : word.end])
            end = word.end
        return list(dict.fromkeys(map(" ".join, runs)))


_KINDS = {"number": "CARDINAL", "date": "DATE", "code": "PRODUCT", "name": "ENTITY"}
# Words that say how a question is asked, not what it is about; as keys, which are stemmed.
_FILLERS = (
    frozenset("tell explain describ show giv say mention list know want need find look happen mean work".split())
    | STOP_WORDS
)
