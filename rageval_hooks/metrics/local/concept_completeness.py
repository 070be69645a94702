"""``concept_completeness``: does the response take up what the query asks for?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import snowballstemmer

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import Field, LocalMetric, ScoreDefinition
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import AnyEmbedding, Role
from rageval_hooks.score import Result
from rageval_hooks.text.words import fold, weighed_words


class ConceptCompleteness(LocalMetric):
    """Share of the query's concepts that the response takes up.

    A concept is a noun chunk or a verb of the query, without fillers. The response takes it up if it has all its
    content words, in any form, or if the best cosine of the concept with a sentence is above the threshold.

    Args:
        threshold: the cosine, 0..1.

    Raises:
        ConfigurationError: the threshold is outside 0..1.
    """

    name: ClassVar[str] = "concept_completeness"
    version: ClassVar[str] = "4"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(name="concept_completeness", description="share of the query's concepts in the response"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "response")
    models: ClassVar[tuple[Role, ...]] = ("embedder", "nlp")
    family: ClassVar[str] = "local"
    answerable_only: ClassVar[bool] = True
    source: ClassVar[str] = "RAG Evaluation Pipeline (Lite); en_core_web_sm, all-MiniLM-L6-v2"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def __init__(self, threshold: float = 0.45) -> None:
        if not 0 <= threshold <= 1:
            raise ConfigurationError(f"the threshold of concept_completeness must be from 0 to 1, not {threshold}")
        self.threshold = threshold

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the share; skipped if the query has no concepts, or the response no words."""
        if analysis.query_language:
            return self.skip(f"language {analysis.query_language}: concepts are found in English")
        # In the lexical tier a concept of function words has no vector.
        concepts = [concept for concept in analysis.concepts if not analysis.embed(concept).is_empty]
        if not concepts:
            return self.skip("the query has no concepts")
        sentences = analysis.sentence_embeddings
        if all(sentence.is_empty for sentence in sentences):
            return self.skip("the response has no words that could be compared")
        best = {concept: _best_cosine(analysis.embed(concept), sentences) for concept in concepts}
        missed = self._missed(best, analysis)
        return self.score(
            1 - len(missed) / len(concepts),
            model=_models(analysis),
            explanation=f"missed: {', '.join(missed)}" if missed else f"taken up: {', '.join(concepts)}",
            metadata={"concepts": {concept: round(cosine, 4) for concept, cosine in best.items()}, "missed": missed},
        )

    def _missed(self, best: Mapping[str, float], analysis: TurnAnalysis) -> list[str]:
        """Return the concepts that the response takes up neither by their meaning nor by their words."""
        distant = [concept for concept, cosine in best.items() if cosine <= self.threshold]
        if not distant:
            return []
        nlp, response = analysis.models.nlp(wait=analysis.wait), analysis.response.stated
        said = _Words(response, nlp.lemmas(response, analysis.pause))
        return [concept for concept in distant if not said.have(_Words(concept, nlp.lemmas(concept)))]


def _models(analysis: TurnAnalysis) -> str:
    embedder, nlp = analysis.models.embedder().name, analysis.models.nlp().name
    return embedder if embedder == nlp else f"{nlp}, {embedder}"


def _best_cosine(concept: AnyEmbedding, sentences: Sequence[AnyEmbedding]) -> float:
    # `best_cosine`, not `cosine`: they are equal for sentences that fit one window, and in the lexical tier the cosine
    # of a word with a sentence depends on how long the sentence is.
    return max(sentence.best_cosine(concept) for sentence in sentences)  # type: ignore[arg-type]  # of one model


class _Words:
    """The content words of a text in the forms in which they are compared.

    MiniLM puts a single word such as "opened" far from a whole sentence that has it, so the cosine alone misses it.

    Args:
        text: the text.
        lemmas: the lemmas of its words; empty if they are not known.
    """

    def __init__(self, text: str, lemmas: frozenset[str]) -> None:
        stemmer = snowballstemmer.stemmer("english")
        content = [word for word in weighed_words(text) if word.is_content]
        self._keys = frozenset(word.key for word in content)
        # "regulated" and "regulation" have one stem, "wake" and "woken" one lemma.
        self._stems = frozenset(stemmer.stemWord(fold(text[word.start : word.end])) for word in content)
        self._lemmas = lemmas

    def have(self, concept: _Words) -> bool:
        """Return True if these words have all words of a concept, in any form."""
        if not concept._keys:
            return False
        if self._keys >= concept._keys or self._stems >= concept._stems:
            return True
        return bool(concept._lemmas) and self._lemmas >= concept._lemmas
