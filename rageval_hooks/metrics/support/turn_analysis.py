"""What the local metrics of a turn share: each thing is computed once, and for passages kept for later turns."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

from rageval_hooks.errors import InputTooLargeError, OverBudgetError
from rageval_hooks.models import AnyEmbedding, Models
from rageval_hooks.models.cache import MemoryCache
from rageval_hooks.models.embedder import SHORT, Embedder
from rageval_hooks.models.embedding import Embedding, keep_words
from rageval_hooks.models.lexical import LexicalEmbedding
from rageval_hooks.models.nlp import Entity
from rageval_hooks.text.declining import declines
from rageval_hooks.text.facts import Fact, FactIndex, entity_supported, find_facts, merge_indexes
from rageval_hooks.text.passages import PassageIndex, index_passage
from rageval_hooks.text.sentences import Span, sentence_spans
from rageval_hooks.text.tokens import count_tokens
from rageval_hooks.turn import Turn, Usage

__all__ = ["TurnAnalysis"]

T = TypeVar("T")

MAX_CHARACTERS = 1_000_000
"""Of all passages together, for what reads words: about half a second."""

MAX_EMBEDDED_CHARACTERS = 300_000
"""Of a turn's texts together, for what reads embeddings: about 300 windows of the model."""

MAX_QUERY_CHARACTERS = 20_000
"""Of a query, for what embeds each of its concepts."""


class TurnAnalysis:
    """A turn, and what was found out about it so far. Used by one thread at a time.

    Args:
        turn: the turn.
        models: the local models.
        deadline: value of ``clock`` at which work that is not finished must stop; None for no end.
        wait: wait for models that are still loading.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        turn: Turn,
        models: Models,
        *,
        deadline: float | None = None,
        wait: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.turn = turn
        self.models = models
        self.deadline = deadline
        self.wait = wait
        self._clock = clock
        self._embeddings: dict[str, AnyEmbedding] = {}

    def patient(self) -> TurnAnalysis:
        """Go on without a deadline, and wait for models: for the background. What was computed stays."""
        self.deadline = None
        self.wait = True
        return self

    def pause(self) -> None:
        """Stop here if the time is used up.

        Raises:
            OverBudgetError: it is.
        """
        if self.deadline is not None and self._clock() >= self.deadline:
            raise OverBudgetError

    # -- words

    @cached_property
    def sentences(self) -> list[Span]:
        """The response's sentences, as (start, end)."""
        return sentence_spans(self.turn.response)

    @cached_property
    def declines(self) -> bool:
        """Whether the response, by its wording, does nothing but decline to answer."""
        return declines(self.turn.response)

    @cached_property
    def facts(self) -> list[Fact]:
        """The numbers, dates, codes and names that the response states."""
        return find_facts(self.turn.response, self.sentences)

    @cached_property
    def passage_indexes(self) -> list[PassageIndex]:
        """The lexical side of each passage.

        Raises:
            InputTooLargeError: the passages have more than a million characters together.
            OverBudgetError: the time is used up.
        """
        self._check_size([passage.text for passage in self.turn.passages], MAX_CHARACTERS)
        indexes = []
        for passage in self.turn.passages:
            self.pause()
            indexes.append(_index(passage.text))
        return indexes

    @cached_property
    def passage_facts(self) -> FactIndex:
        """The facts that the passages state together."""
        return merge_indexes(index.facts for index in self.passage_indexes)

    # -- tokens

    @property
    def usage(self) -> Usage:
        """The provider's count of tokens where there is one, else an estimate from query, context and response."""
        counted = self.turn.usage
        return self._estimated_usage if counted is None or counted.estimated else counted

    @cached_property
    def _estimated_usage(self) -> Usage:
        turn = self.turn
        read = [turn.query, *(passage.text for passage in turn.passages)]
        input_tokens, source = count_tokens(read, turn.model, wait=self.wait)
        output_tokens, _ = count_tokens([turn.response], turn.model, wait=self.wait)
        return Usage(input_tokens=input_tokens, output_tokens=output_tokens, source=source)

    # -- embeddings

    def embed(self, text: str) -> AnyEmbedding:
        """Embed a text of this turn.

        Raises:
            ModelNotReadyError: the embedder is still loading.
            ModelUnavailableError: it cannot be had.
            OverBudgetError: the time is used up.
        """
        if text not in self._embeddings:
            concepts = self.__dict__.get("concepts", ())  # whoever asks for one of them asks for all
            self._embed_all(concepts if text in concepts else [text])
        return self._embeddings[text]

    def _embed_all(self, texts: Sequence[str]) -> None:
        """Embed several texts of this turn, the short ones of them together."""
        embedder = self.models.embedder(wait=self.wait)
        new = [text for text in dict.fromkeys(texts) if text not in self._embeddings]
        short = [text for text in new if len(text) <= SHORT]
        if len(short) > 1 and isinstance(embedder, Embedder):
            for start in range(0, len(short), _MOST_TOGETHER):
                some = short[start : start + _MOST_TOGETHER]
                self._embeddings.update(zip(some, embedder.embed_short(some, self.pause), strict=True))
        for text in new:
            if text not in self._embeddings:
                self._embeddings[text] = embedder.embed(text, self.pause)

    @cached_property
    def passage_embeddings(self) -> list[AnyEmbedding]:
        """Each passage's embedding; from the process's cache where it has been seen lately.

        Raises:
            InputTooLargeError: the turn has more than 300,000 characters to embed.
            ModelUnavailableError: the embedder cannot be had, or not yet.
            OverBudgetError: the time is used up.
        """
        self._check_size([*self.turn.texts()], MAX_EMBEDDED_CHARACTERS)
        embedder = self.models.embedder(wait=self.wait)
        cache = self.models.cache
        embeddings = []
        for passage in self.turn.passages:
            found = cache.get(passage.text)
            if found is None:
                found = embedder.embed(passage.text, self.pause)
                if isinstance(found, Embedding):
                    found = keep_words(passage.text, found)
                cache.put(passage.text, found, found.size + sys.getsizeof(passage.text))
            embeddings.append(found)
        return embeddings

    @cached_property
    def context_embedding(self) -> AnyEmbedding:
        """All passages as one text: embedded as one where the model reads that much at once, else by its windows."""
        parts = self.passage_embeddings
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(part, LexicalEmbedding) for part in parts):
            return LexicalEmbedding.together([part for part in parts if isinstance(part, LexicalEmbedding)])
        dense = [part for part in parts if isinstance(part, Embedding)]
        text = "\n".join(passage.text for passage in self.turn.passages)
        embedder = self.models.embedder(wait=self.wait)
        if len(text) < _MAY_FIT_ONE_WINDOW and isinstance(embedder, Embedder) and _fits(text, dense, embedder):
            return self.embed(text)
        return Embedding.together(dense)

    @cached_property
    def sentence_embeddings(self) -> list[AnyEmbedding]:
        """Each sentence of the response, embedded by itself.

        Raises:
            InputTooLargeError: the response has more than 300,000 characters.
            ModelUnavailableError: the embedder cannot be had, or not yet.
            OverBudgetError: the time is used up.
        """
        self._check_size([self.turn.response], MAX_EMBEDDED_CHARACTERS)
        texts = [self.turn.response[start:end] for start, end in self.sentences]
        self._embed_all(texts)
        return [self._embeddings[text] for text in texts]

    # -- what two metrics need

    @cached_property
    def semantic_grounding(self) -> float | None:
        """Cosine of the whole response and the whole context, clipped to 0..1; None if one has no words."""
        context = self.context_embedding
        response = self.embed(self.turn.response)
        if context.is_empty or response.is_empty:
            return None
        return min(1.0, max(0.0, context.cosine(response)))  # type: ignore[arg-type]

    @cached_property
    def entities(self) -> list[Entity]:
        """The named entities of the response.

        Raises:
            InputTooLargeError: the response has more than 300,000 characters.
            ModelUnavailableError: the NLP pipeline cannot be had, or not yet, or has no entity recogniser.
            OverBudgetError: the time is used up.
        """
        self._check_size([self.turn.response], MAX_EMBEDDED_CHARACTERS)
        return self.models.nlp(wait=self.wait).entities(self.turn.response, self.pause)

    @cached_property
    def entity_support(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The texts of the response's named entities that the passages have, and of those that they have not.

        Raises:
            InputTooLargeError: the response or the passages have too many characters.
            ModelUnavailableError: the NLP pipeline cannot be had, or not yet, or has no entity recogniser.
            OverBudgetError: the time is used up.
        """
        context = self.passage_facts
        kinds: dict[str, str] = {}
        for entity in self.entities:
            kinds.setdefault(entity.text, entity.kind)
        supported = {text: entity_supported(text, kind, context) for text, kind in kinds.items()}
        found = tuple(text for text, has in supported.items() if has)
        return found, tuple(text for text, has in supported.items() if not has)

    @cached_property
    def concepts(self) -> list[str]:
        """What the query asks for.

        Raises:
            InputTooLargeError: the query has more than 20,000 characters.
            ModelUnavailableError: the NLP pipeline cannot be had, or not yet, or has no parser or tagger.
            OverBudgetError: the time is used up.
        """
        self._check_size([self.turn.query], MAX_QUERY_CHARACTERS)
        return self.models.nlp(wait=self.wait).concepts(self.turn.query, self.pause)

    def _check_size(self, texts: Sequence[str], limit: int) -> None:
        size = sum(map(len, texts))
        if size > limit:
            raise InputTooLargeError(f"{size:,} characters to read; the limit is {limit:,}")


_MOST_TOGETHER = 16
"""Short texts in one forward pass: a deadline is looked at between two passes."""

_MAY_FIT_ONE_WINDOW = 20_000
"""Characters beyond which several passages are not even asked whether they are one window together."""


def _fits(text: str, parts: Sequence[Embedding], embedder: Embedder) -> bool:
    """Whether texts are one window together.

    Mostly seen by the tokens that were kept of each, without reading them again: the whole has at least as many. A
    quarter more, since at the seams some tokenizers make fewer tokens of two texts that follow each other.
    """
    kept = sum(len(part.tokens.starts) for part in parts)
    return kept <= 1.25 * embedder.window_tokens and embedder.fits(text)


_indexes: MemoryCache[PassageIndex] = MemoryCache(32 * 2**20)


def _index(text: str) -> PassageIndex:
    found = _indexes.get(text)
    if found is None:
        found = index_passage(text)
        _indexes.put(text, found, found.size + sys.getsizeof(text))
    return found
