"""The analysis that a turn's local metrics share: each part is computed once, and for passages kept for later turns."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rageval_hooks.errors import InputTooLargeError, ModelUnavailableError, OverBudgetError
from rageval_hooks.metrics.support.computed import Computed, find_computed
from rageval_hooks.metrics.support.grounding import Grounding, groundedness
from rageval_hooks.metrics.support.question_fit import Fit, FitPassage, QuestionFit, answer_probability
from rageval_hooks.metrics.support.turn_texts import TurnTexts, cached_index, cached_sentences
from rageval_hooks.models import AnyEmbedding, Models
from rageval_hooks.models.embedder import Embedder, Embedding, keep_words
from rageval_hooks.models.lexical import LexicalEmbedding
from rageval_hooks.models.nlp import Entity
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.pool import give_way
from rageval_hooks.score import Result
from rageval_hooks.settings import LEXICAL
from rageval_hooks.text.fact_index import (
    FactIndex,
    PassageIndex,
    entity_supported,
    merge_indexes,
    unsupported_facts,
)
from rageval_hooks.text.facts import Fact
from rageval_hooks.text.language import (
    differs_in_language,
    differs_in_script,
    other_language,
    prepare_language_detection,
)
from rageval_hooks.text.limits import MAX_EMBEDDED_CHARACTERS, MAX_PASSAGE_CHARACTERS, MAX_QUERY_CHARACTERS, Span
from rageval_hooks.text.negation import find_reversals, negates
from rageval_hooks.text.tokens import count_tokens, with_estimated_usage
from rageval_hooks.text.word_lists import word_set
from rageval_hooks.text.words import content_keys, weighted_words, words_of
from rageval_hooks.turn import Passage, Turn, Usage

_MAX_UNPREPARED: Final = 1_500
"""Characters of passages that are embedded while a caller waits: about 80 ms on two cores. More were not prepared
because the machine is busy, or because nothing retrieved them."""

_SAME_LANGUAGE: Final = 0.75
"""The value of the grounding formula from which a response certainly is in the language of its passages."""

_OF_SOURCES: Final = word_set("of_sources")
"""Keys of the words of "What do the documents say?", which is about no subject."""

_MAX_ONE_WINDOW: Final = 20_000
"""Characters beyond which passages certainly do not fit one window together."""


@dataclass(frozen=True)
class FactSupport:
    """The facts of a response that no passage of the prompt has.

    Attributes:
        missing: those that no passage has and the response states, but for those that it computes.
        computed: numbers that two numbers of one passage give in one step.
        contradicted: sentences that repeat one of a passage with a negation added or left out.
        in_question: names of the question that no passage has, and other facts of it that the response denies: "No, it
            did not cost 500". A number that it affirms is missing, since a leading question supports nothing.
        stated: words of all facts of the response.
        found: words of the facts that the passages support.
    """

    missing: tuple[Fact, ...]
    computed: tuple[Computed, ...]
    contradicted: tuple[Fact, ...]
    in_question: tuple[Fact, ...]
    stated: frozenset[str]
    found: frozenset[str]

    @property
    def unsupported(self) -> tuple[Fact, ...]:
        """All that the score counts."""
        return self.missing + self.contradicted


class EntitySupport(NamedTuple):
    """The named entities of a response that the passages of the prompt have, and those that they do not have."""

    found: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """The share of those that the passages have; None without entities."""
        number = len(self.found) + len(self.missing)
        return len(self.found) / number if number else None


class AnswerFit(NamedTuple):
    """The probability that a response answers the query, and the words of the query that it lacks."""

    probability: float
    lacking: list[str]


class TurnAnalysis(TurnTexts):
    """A turn, and what is known about it so far. Used by one thread at a time.

    Metrics about the answer use the passages of the prompt (``prompt_…``), metrics about retrieval use all
    (``passage_…``). Positions are those of ``turn.passages`` in both cases.

    Args:
        turn: the turn.
        models: the local models.
        deadline: value of ``clock`` at which unfinished work must stop; None for no limit.
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
        super().__init__(turn)
        self.models = models
        self.deadline = deadline
        self.wait = wait
        self._is_cancelled = False
        # By metric: the verdict is made from the results of other metrics.
        self.results: dict[str, tuple[Result, ...]] = {}
        self._clock = clock
        self._embeddings: dict[str, AnyEmbedding] = {}
        prepare_language_detection(wait=wait)

    def patient(self, *, wait: bool = True) -> TurnAnalysis:
        """Drop the deadline, for work in the background. What was computed is kept.

        Args:
            wait: wait for models that are still loading.
        """
        self.deadline = None
        self.wait = wait
        prepare_language_detection(wait=wait)
        return self

    def adopt(self, earlier: TurnAnalysis) -> None:
        """Take over what an analysis of the same passages has computed, perhaps on a thread that still works on it."""
        self._embeddings.update(dict(earlier._embeddings))
        concepts = earlier.__dict__.get("concepts")
        if concepts is not None and earlier.turn.query == self.turn.query:
            self.__dict__["concepts"] = concepts

    def cancel(self) -> None:
        """Stop the work at its next pause, from another thread: nobody waits for the results."""
        self._is_cancelled = True

    @property
    def must_stop(self) -> bool:
        """True if the time is used up, or if the work was cancelled."""
        return self._is_cancelled or (self.deadline is not None and self._clock() >= self.deadline)

    def pause(self) -> None:
        """Stop here if the work must stop; else let the application's threads run for a moment.

        Raises:
            OverBudgetError: the time is used up, or the work was cancelled.
        """
        if self.must_stop:
            raise OverBudgetError
        give_way()

    # -- the response

    @cached_property
    def query_language(self) -> str | None:
        """The name of the query's language if it is clear and not English."""
        return other_language(self.turn.query)

    @cached_property
    def response_language(self) -> str | None:
        """The name of the response's language if it is clear and not English."""
        return other_language(self.response.said)

    @cached_property
    def language_gap(self) -> str | None:
        """Why words of the response cannot be compared with the passages: it is in another language; else None."""
        try:
            grounding = self.grounding.value
        except (InputTooLargeError, ModelUnavailableError):
            # unsupported_facts needs no embedder: it must not be skipped where there is none.
            grounding = self._grounding_by_words().value
        said = self.response.said
        texts = [passage.text for passage in self.prompt_passages]
        # An answer that shares its words with the passages needs no look at its language. In another script, it shares
        # only its numbers: "门票12欧元".
        if grounding is None or (grounding >= _SAME_LANGUAGE and not differs_in_script(said, texts)):
            return None
        found = differs_in_language(said, texts)
        return None if found is None else f"language {found}: the passages are in another one"

    # -- words of the passages

    @cached_property
    def passage_indexes(self) -> list[PassageIndex]:
        """The words and facts of every passage.

        Raises:
            InputTooLargeError: the passages have more than a million characters together.
            OverBudgetError: the time is used up.
        """
        texts = [passage.text for passage in self.turn.passages]
        check_size(sum(map(len, texts)), MAX_PASSAGE_CHARACTERS)
        return [*map(cached_index, self._paused(texts))]

    def _paused(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield texts until the time is used up."""
        for text in texts:
            self.pause()
            yield text

    @property
    def prompt_indexes(self) -> list[PassageIndex]:
        """The words and facts of the passages of the prompt; raises as :attr:`passage_indexes` does."""
        return [self.passage_indexes[position] for position in self.prompt_positions]

    @cached_property
    def prompt_facts(self) -> FactIndex:
        """The facts that the passages of the prompt state together."""
        return merge_indexes(index.facts for index in self.prompt_indexes)

    @cached_property
    def fact_support(self) -> FactSupport:
        """Which facts of the response the passages of the prompt have, and which ones its question has."""
        not_in_passages = unsupported_facts(self.response.facts, self.prompt_facts)
        gone = {fact.text for fact in not_in_passages}
        response, sentences = self.turn.response, self.response.sentences
        passages = [passage.text for passage in self.prompt_passages]
        computed = find_computed(not_in_passages, self.response.stated, sentences, self.turn.query, passages)
        figures = {hit.fact for hit in computed}
        not_in_passages = [fact for fact in not_in_passages if fact not in figures]
        denying = [(a, b) for a, b in sentences if negates(response[a:b])] if gone else []
        # The name of what was asked about is no claim. A number of the question is, unless it is denied.
        asked = [f for f in not_in_passages if f.kind == "name" or any(a <= f.start < b for a, b in denying)]
        # Most responses have neither, and then the question need not be read.
        stated = set(unsupported_facts(asked, self.query_facts)) if asked else set()
        in_question = tuple(fact for fact in asked if fact not in stated)
        contradicted = (Fact(a, b, "negation", response[a:b], ()) for a, b in self.reversals)
        return FactSupport(
            missing=tuple(fact for fact in not_in_passages if fact not in in_question),
            computed=tuple(computed),
            contradicted=tuple(contradicted),
            in_question=in_question,
            stated=_words(self.response.facts),
            # "IPL" is in no passage that has "Indian Premier League", and yet it is supported.
            found=_words(fact for fact in self.response.facts if fact.text not in gone),
        )

    # -- tokens

    @cached_property
    def usage(self) -> Usage:
        """The sum over the turn's model calls, as in the trace; without calls an estimate from the turn's texts.

        A call is counted by its provider, else estimated from its prompt and its text.
        """
        turn = self.turn
        usage = turn.usage or with_estimated_usage(turn, wait=self.wait).usage
        if usage is not None:
            return usage
        # The model did not read the passages that were not in its prompt.
        read = [turn.query, *(passage.text for passage in self.prompt_passages)]
        input_tokens, source = count_tokens(read, turn.model, wait=self.wait)
        output_tokens, _ = count_tokens([turn.response], turn.model, wait=self.wait)
        return Usage(input_tokens=input_tokens, output_tokens=output_tokens, source=source)

    # -- embeddings

    def embed(self, text: str) -> AnyEmbedding:
        """Embed a text of this turn.

        Raises:
            ModelNotReadyError: the embedder is still loading.
            ModelUnavailableError: the embedder cannot be loaded.
            OverBudgetError: the time is used up.
        """
        if text not in self._embeddings:
            self._embeddings[text] = self.models.embedder(wait=self.wait).embed(text, self.pause)
        return self._embeddings[text]

    @cached_property
    def response_embedding(self) -> AnyEmbedding:
        """The whole response, without its citation markers; token offsets are those of the response."""
        # Without the space at its end, a response of one sentence is the same text as that sentence.
        return self.embed(self.response.blanked.rstrip())

    @cached_property
    def passage_embeddings(self) -> list[AnyEmbedding]:
        """The embedding of every passage; from the process's cache if an earlier turn had the passage.

        Raises:
            InputTooLargeError: the turn has more than 300,000 characters to embed.
            ModelUnavailableError: the embedder cannot be loaded, or is not loaded yet.
            OverBudgetError: the time is used up.
        """
        texts = [passage.text for passage in self.turn.passages]
        check_size(self._characters, MAX_EMBEDDED_CHARACTERS)
        # A caller that waits must not wait in vain: passages that were not prepared may take longer than a usual inline
        # budget. Texts are embedded by a model, not in the lexical tier.
        is_inline = self.deadline is not None and isinstance(self.models.embedder(wait=self.wait), Embedder)
        new = sum(len(text) for text in texts if self.models.cache.get(text) is None) if is_inline else 0
        if new > _MAX_UNPREPARED:
            raise OverBudgetError
        return [*map(self._passage_embedding, texts)]

    def embed_passage(self, passage: Passage) -> None:
        """Embed one passage ahead of :attr:`passage_embeddings`, which raises the same; several threads may do so."""
        check_size(self._characters, MAX_EMBEDDED_CHARACTERS)
        self.pause()
        self._passage_embedding(passage.text)

    # Counted once: each of ten thousand passages asks for it.
    @cached_property
    def _characters(self) -> int:
        return sum(map(len, self.turn.texts()))

    def _passage_embedding(self, text: str) -> AnyEmbedding:
        def compute() -> tuple[AnyEmbedding, int]:
            found = self.models.embedder(wait=self.wait).embed(text, self.pause)
            kept = keep_words(text, found) if isinstance(found, Embedding) else found
            return kept, kept.size + sys.getsizeof(text)

        # Turns that wait together often have passages in common: each is embedded once.
        return self.models.cache.get_or_compute(text, compute, self.pause)

    @property
    def prompt_embeddings(self) -> list[AnyEmbedding]:
        """The embeddings of the passages of the prompt; raises as :attr:`passage_embeddings` does."""
        return [self.passage_embeddings[position] for position in self.prompt_positions]

    @cached_property
    def context_embedding(self) -> AnyEmbedding:
        """The passages of the prompt as one text: embedded at once if it fits the model, else by windows."""
        parts = self.prompt_embeddings
        if len(parts) == 1:
            return parts[0]
        lexical = [part for part in parts if isinstance(part, LexicalEmbedding)]
        if len(lexical) == len(parts):
            return LexicalEmbedding.together(lexical)
        dense = [part for part in parts if isinstance(part, Embedding)]
        text = "\n".join(passage.text for passage in self.prompt_passages)
        embedder = self.models.embedder(wait=self.wait)
        if isinstance(embedder, Embedder) and len(text) < _MAX_ONE_WINDOW:
            # The tokens that were kept decide most cases without tokenizing again. A quarter more is allowed, since
            # some tokenizers make fewer tokens at the seams of two texts.
            kept = sum(len(part.tokens.starts) for part in dense)
            if kept <= 1.25 * embedder.window_tokens and embedder.fits(text):
                return self.embed(text)
        return Embedding.together(dense)

    @cached_property
    def sentence_embeddings(self) -> list[AnyEmbedding]:
        """The embedding of each sentence of the response, without its citation markers.

        Raises:
            InputTooLargeError: the response has more than 300,000 characters.
            ModelUnavailableError: the embedder cannot be loaded, or is not loaded yet.
            OverBudgetError: the time is used up.
        """
        check_size(len(self.turn.response), MAX_EMBEDDED_CHARACTERS)
        return [self.embed(text) for text in self.response.sentence_texts]

    # -- what two metrics need

    @cached_property
    def grounding(self) -> Grounding:
        """How far the passages of the prompt support the response, by words and token vectors.

        Raises:
            InputTooLargeError: the turn has more than 300,000 characters to embed.
            ModelUnavailableError: the embedder cannot be loaded, or is not loaded yet.
            OverBudgetError: the time is used up.
        """
        response, lines, indexes = self.response.blanked, self.response.lines, self.prompt_indexes
        # The stand-in has no vectors per token: the formula then uses words alone.
        if self.models.embedder(wait=self.wait).name == LEXICAL:
            return self._grounding_by_words()
        whole = self.response_embedding
        # A passage may have a lexical embedding where the model could not read it. It has no token vectors.
        passages = [found.tokens for found in self.prompt_embeddings if isinstance(found, Embedding)]
        tokens = whole.tokens if isinstance(whole, Embedding) else None
        return groundedness(response, lines, indexes, tokens, passages, self.pause, self._supported_keys)

    def _grounding_by_words(self) -> Grounding:
        response, lines, indexes = self.response.blanked, self.response.lines, self.prompt_indexes
        return groundedness(response, lines, indexes, pause=self.pause, supported=self._supported_keys)

    @property
    def _supported_keys(self) -> frozenset[str]:
        """The keys of the numbers and dates that the passages have, in any notation, and of their units."""
        missing, places = self.fact_support.missing, set[int]()
        for fact in self.response.facts:
            if fact.kind in ("number", "date") and not any(map(fact.says_the_same, missing)):
                places.update(range(fact.start, fact.measure_end))
        return frozenset(word.key for _, words in self.response.lines for word in words if word.start in places)

    # -- the question

    @cached_property
    def question_fit(self) -> QuestionFit | None:
        """Compares texts with the query; None for a query without words to compare.

        Raises:
            InputTooLargeError: the query has more than 20,000 characters.
            ModelUnavailableError: the embedder cannot be loaded, or is not loaded yet.
            OverBudgetError: the time is used up.
        """
        check_size(len(self.turn.query), MAX_QUERY_CHARACTERS)
        content = [word for word in weighted_words(self.turn.query) if word.is_content and word.key not in _OF_SOURCES]
        embedded = self.embed(self.turn.query) if content else None
        if embedded is None or embedded.is_empty:
            return None
        words = {word.key: self.turn.query[word.start : word.end] for word in content}
        return QuestionFit(words, embedded.vector if isinstance(embedded, Embedding) else None)

    @cached_property
    def passage_fits(self) -> list[Fit]:
        """How near each passage comes to the query; empty for a query without words to compare.

        Raises as :attr:`question_fit` and :attr:`passage_embeddings` do.
        """
        fit = self.question_fit
        return [] if fit is None else [*map(fit.of_passage, self._fit_passages)]

    @cached_property
    def answers_question(self) -> AnswerFit | None:
        """How well the response answers the query.

        None for a query with too few words to compare. Raises as :attr:`passage_fits` does.
        """
        fit = self.question_fit
        if fit is None or fit.is_too_short:
            return None
        whole, said = self.response_embedding, content_keys(self.response.stated)
        passages = [self._fit_passages[position] for position in self.prompt_positions]
        vectors = whole if isinstance(whole, Embedding) else None
        found, lacking = fit.of_response(said, self.response.lines, vectors, passages, self.pause)
        fits = [self.passage_fits[position] for position in self.prompt_positions]
        return AnswerFit(answer_probability(found, fits), lacking)

    @cached_property
    def _fit_passages(self) -> list[FitPassage]:
        embeddings = self.passage_embeddings
        sentences = map(cached_sentences, self._paused(passage.text for passage in self.turn.passages))
        return [
            FitPassage(found, embedding.tokens if isinstance(embedding, Embedding) else None)
            for found, embedding in zip(sentences, embeddings, strict=True)
        ]

    @cached_property
    def reversals(self) -> dict[Span, str]:
        """The sentences of the response that repeat one of a passage, which is the value, with a negation more or less.

        Raises:
            InputTooLargeError: the passages have more than a million characters together.
            OverBudgetError: the time is used up.
        """
        texts = [passage.text for passage in self.prompt_passages]
        passages = [(text, index.facts.keys) for text, index in zip(texts, self.prompt_indexes, strict=True)]
        found = find_reversals(self.response.stated, [line.span for line in self.response.lines], passages)
        return {one.sentence: texts[one.passage][slice(*one.other)] for one in found}

    @cached_property
    def semantic_grounding(self) -> float | None:
        """Cosine of the whole response and the whole context, clipped to 0..1; None if one has no words."""
        context = self.context_embedding
        response = self.response_embedding
        if context.is_empty or response.is_empty:
            return None
        return min(1.0, max(0.0, context.cosine(response)))  # type: ignore[arg-type]  # both are of one model

    @cached_property
    def entities(self) -> list[Entity]:
        """The named entities of the response; none for a response that is not in English, which the pipeline reads.

        Raises:
            InputTooLargeError: the response has more than 300,000 characters.
            ModelUnavailableError: the NLP pipeline cannot be loaded, is not loaded yet, or has no entity recogniser.
            OverBudgetError: the time is used up.
        """
        check_size(len(self.turn.response), MAX_EMBEDDED_CHARACTERS)
        nlp = self.models.nlp(wait=self.wait)
        return [] if self.response_language else nlp.entities(self.response.said, self.pause)

    @cached_property
    def entity_support(self) -> EntitySupport:
        """Which named entities of the response the passages have.

        Raises:
            InputTooLargeError: the response or the passages have too many characters.
            ModelUnavailableError: the NLP pipeline cannot be loaded, is not loaded yet, or has no entity recogniser.
            OverBudgetError: the time is used up.
        """
        # The first kind of each text counts.
        kinds = {entity.text: entity.kind for entity in reversed(self.entities)}
        texts = dict.fromkeys(entity.text for entity in self.entities)
        found = tuple(text for text in texts if entity_supported(text, kinds[text], self.prompt_facts))
        return EntitySupport(found, tuple(text for text in texts if text not in found))

    @cached_property
    def concepts(self) -> list[str]:
        """The things that the query asks for.

        Raises:
            InputTooLargeError: the query has more than 20,000 characters.
            ModelUnavailableError: the NLP pipeline cannot be loaded, is not loaded yet, or has no parser or tagger.
            OverBudgetError: the time is used up.
        """
        check_size(len(self.turn.query), MAX_QUERY_CHARACTERS)
        return self.models.nlp(wait=self.wait).concepts(self.turn.query, self.pause)


def _words(facts: Iterable[Fact]) -> frozenset[str]:
    """Return the words of some facts as they are written."""
    found: set[str] = set()
    for text in dict.fromkeys(fact.text for fact in facts):
        words = words_of(text)
        found.update(text[start:end] for start, end in zip(words.starts, words.ends, strict=True))
    return frozenset(found)


def check_size(size: int, limit: int) -> None:
    """Raise InputTooLargeError if there are more characters than a metric reads."""
    if size > limit:
        raise InputTooLargeError(f"{size:,} characters to read; the limit is {limit:,}")
