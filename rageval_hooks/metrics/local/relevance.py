"""Query, passages and response: does the response answer the query, and are the passages about it?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final

import snowballstemmer

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import LocalMetric, ScoreDefinition, Threshold
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.score import Result
from rageval_hooks.settings import LEXICAL, MINILM
from rageval_hooks.text.words import fold, has_words, weighted_words

# One passage per question: a threshold for a passage says nothing about a mean over several.
_SETS: Final = ("clapnq_dev",)

# "Yes, it is." and "No": the words of the query are left out.
_YES_OR_NO: Final = re.compile(r"\A\W{0,9}(?:yes|no)\b", re.IGNORECASE)

# "When did it open?", "What year was that?"; "How many rooms are there?", "What percentage of it?"; "Who built it?"
_WHEN: Final = re.compile(r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|century|decade)\b", re.IGNORECASE)
_HOW_MANY: Final = re.compile(r"\bhow (?:many|much|old|tall|high|far)\b|\bwhat (?:percent|number)", re.IGNORECASE)
_WHO: Final = re.compile(r"\A\W{0,9}who\b", re.IGNORECASE)
# "in spring", "after the war", "two weeks ago", "as soon as it is paid"
_TIME: Final = re.compile(
    r"\b(?:century|decade|year|month|week|day|hour|minute|morning|noon|midnight|evening|night|spring|summer|autumn|fall"
    r"|winter|season|time|era|age|period|war|reign|dynasty)s?\b|\b(?:\w+day|today|tomorrow|now|recently|ago|when|while"
    r"|after|before|during|until|since|once|later|early|late|always|never|annually|daily|weekly|monthly|soon|if)\b",
    re.IGNORECASE,
)
# "a dozen", "several", "free", "half of them"
_QUANTITY: Final = re.compile(
    r"\b(?:dozen|no|none|nothing|several|many|much|few|little|most|more|less|all|both|single|double|twice|once|pair|couple"
    r"|half|majority|every|each|free|an?|any|unlimited|depends|varies)\b",
    re.IGNORECASE,
)

# "I love his work." and "That is fine!" ask nothing; "Tell me about it." and "pier opening" do.
_STATEMENT: Final = re.compile(
    r"\A(?:.*[.!]\s+)?(?:(?:and|but|so|well|wow|yes|no|oh),? )?(?:i|i'm|i've|it|it's|he|she|they|we|you|that|that's"
    r"|this|these|those|there|the|my|his|her|their|our|a|an|thanks|thank)\b[^?]*\Z",
    re.IGNORECASE | re.DOTALL,
)

_OTHER_KIND: Final = 0.1
"""The highest value of an answer that has no date, number or name where the query asks for one."""

_MAX_NAMED: Final = 10
"""Words of the query that an explanation names."""

_MAX_QUERY_LENGTH: Final = 2_000
"""In characters: longer ones are not searched for a question."""

_MAX_STEMMED_LENGTH: Final = 60
"""In characters."""


class AnswersQuestion(LocalMetric):
    """Probability that the response answers the query, by the query's words and vector, without a cross-encoder.

    The response is read with its evidence: the sentences of the prompt's passages that have most of its words. So a
    short answer such as a name can be compared with the query. :mod:`rageval_hooks.metrics.support.question_fit` has
    the formula. An answer without a date to "when", without a number to "how many", or with figures and no name to
    "who", has at most .1. It says nothing about truth.
    """

    name = "answers_question"
    scores = (
        ScoreDefinition(
            name="answers_question",
            description="probability that the response, read with its evidence, answers the query",
        ),
    )
    requires = ("query", "response", "passages")
    passages = "prompt"
    models = ("embedder",)
    family = "local"
    answerable_only = True
    about_claims = True
    source = "ours"
    default = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the probability; skipped for yes and no, for other languages than English, and without words."""
        if language := analysis.query_language or analysis.response_language:
            return self.skip(f"language {language}: the formula was chosen for English")
        if _YES_OR_NO.match(analysis.response.said):
            return self.skip("an answer that begins with yes or no leaves the words of the query out")
        if len(query := analysis.turn.query) <= _MAX_QUERY_LENGTH and _STATEMENT.match(query):
            return self.skip("the query states something, and asks nothing")
        found = analysis.answers_question
        if found is None:
            return self.skip("the query has no words that could be compared")
        value, reasons = found.probability, []
        if kind := _lacking_kind(analysis):
            value = min(value, _OTHER_KIND)
            reasons.append(f"the question asks for {kind}, and the answer has none")
        if found.lacking:
            reasons.append(f"neither the answer nor its evidence has {', '.join(found.lacking[:_MAX_NAMED])}")
        model = analysis.models.embedder(wait=analysis.wait).name
        return self.score(value, model=model, explanation="; ".join(reasons) or None)


def _lacking_kind(analysis: TurnAnalysis) -> str | None:
    """Return what the query asks for if the response has none of it, in words; else None."""
    query, said = analysis.turn.query, analysis.response.stated
    kinds = {fact.kind for fact in analysis.response.facts}
    has_figure = any(map(str.isdigit, said)) or not kinds.isdisjoint(("number", "date"))
    if _WHEN.search(query):
        return None if has_figure or _TIME.search(said) else "a date or time"
    if _HOW_MANY.search(query):
        return None if has_figure or _QUANTITY.search(said) else "a number"
    return "a person" if _WHO.match(query) and has_figure and "name" not in kinds else None


class AnswerRelevance(LocalMetric):
    """Probability that the response answers the query: sigmoid of a cross-encoder's logit on the pair.

    A pair longer than the model reads (512 tokens) is cut by the model's library; the explanation says so.
    """

    name = "answer_relevance"
    version = "3"
    scores = (ScoreDefinition(name="answer_relevance", description="probability that the response answers the query"),)
    requires = ("query", "response")
    models = ("cross_encoder",)
    family = "local"
    answerable_only = True
    source = "RAG Evaluation Pipeline (Lite)"
    default = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the probability; skipped if the query has no words, or is not in English."""
        if analysis.query_language:
            return self.skip(f"language {analysis.query_language}: the model was trained on English")
        model = analysis.models.cross_encoder(wait=analysis.wait)
        # The cross-encoder cannot be stopped midway, so the deadline is checked before it.
        analysis.pause()
        # Without citation markers: the model was trained on queries and plain passages (MS MARCO).
        found = model.relevance(analysis.turn.query, analysis.response.said)
        if found is None:
            return self.skip("the query has no words that could be compared")
        cut = "only the beginning was read: the pair is longer than the model reads"
        return self.score(
            found.probability,
            model=model.name,
            explanation=cut if found.truncated else None,
            metadata={"truncated": found.truncated},
        )


class ConceptCompleteness(LocalMetric):
    """Share of the query's concepts that the response takes up.

    A concept is a noun chunk or a verb of the query, without fillers. The response takes it up if it has all its
    content words, in any form, or if the best cosine of the concept with a sentence is above the threshold.

    Args:
        threshold: the cosine, 0..1.

    Raises:
        ConfigurationError: the threshold is outside 0..1.
    """

    name = "concept_completeness"
    version = "4"
    scores = (
        ScoreDefinition(name="concept_completeness", description="share of the query's concepts in the response"),
    )
    requires = ("query", "response")
    models = ("embedder", "nlp")
    family = "local"
    answerable_only = True
    source = "RAG Evaluation Pipeline (Lite)"
    default = True
    about_claims = True

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
        # `best_cosine`, not `cosine`: they are equal for sentences that fit one window, and in the lexical tier the
        # cosine of a word with a sentence depends on how long the sentence is.
        best = {
            concept: max(sentence.best_cosine(analysis.embed(concept)) for sentence in sentences)  # type: ignore[arg-type]
            for concept in concepts
        }
        missed = self._missed(best, analysis)
        return self.score(
            1 - len(missed) / len(concepts),
            # In the lexical tier both are "lexical", which is named once.
            model=", ".join(dict.fromkeys((analysis.models.nlp().name, analysis.models.embedder().name))),
            explanation=f"missed: {', '.join(missed)}" if missed else f"taken up: {', '.join(concepts)}",
            metadata={"concepts": {concept: round(cosine, 4) for concept, cosine in best.items()}, "missed": missed},
        )

    def _missed(self, best: Mapping[str, float], analysis: TurnAnalysis) -> list[str]:
        """Return the concepts that the response takes up neither by their meaning nor by their words."""
        distant = [concept for concept, cosine in best.items() if cosine <= self.threshold]
        if not distant:
            return []
        nlp, response = analysis.models.nlp(wait=analysis.wait), analysis.response.stated
        said = _content(response)
        lemmas = nlp.lemmas(response, analysis.pause)
        missed = []
        for concept in distant:
            asked = _content(concept)
            own = nlp.lemmas(concept)
            # "regulated" and "regulation" have one stem, "wake" and "woken" one lemma. A concept without content words,
            # which has no keys, is in no text.
            is_said = asked.keys() <= said.keys() or (own and own <= lemmas) or _stems(asked) <= _stems(said, asked)
            if not (asked and is_said):
                missed.append(concept)
        return missed


def _content(text: str) -> dict[str, set[str]]:
    """Return the content words of a text as they are written, by their keys.

    MiniLM puts a single word such as "opened" far from a whole sentence that has it, so the cosine alone misses it.
    """
    found: dict[str, set[str]] = {}
    for word in weighted_words(text):
        if word.is_content:
            found.setdefault(word.key, set()).add(fold(text[word.start : word.end]))
    return found


def _stems(content: Mapping[str, set[str]], like: Mapping[str, set[str]] | None = None) -> set[str]:
    """Return the stems of words; given others, only of those that begin as one of them does, as the same stem must."""
    written = set(chain.from_iterable(content.values()))
    first = {word[0] for word in chain.from_iterable((like or content).values())}
    # Longer strings are no English words, and would fill the memory.
    return {_stem(word) if len(word) <= _MAX_STEMMED_LENGTH else word for word in written if word[0] in first}


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    # A stemmer keeps the word that it is working on, so each thread needs its own.
    return str(snowballstemmer.stemmer("english").stemWord(word))


class ContextRelevance(LocalMetric):
    """Similarity of the query and each retrieved passage: the cosine of the query and the passage's best window.

    A passage without words has no score and is not in the mean.
    """

    name = "context_relevance"
    version = "2"
    scores = (
        ScoreDefinition(
            name="context_relevance",
            description="similarity of query and passage; for the turn, the mean over passages",
            thresholds=(
                Threshold(value=0.54, models=MINILM, target="passage", accuracy=(0.837, 0.837), sets=_SETS),
                Threshold(value=0.48, models=(LEXICAL,), target="passage", accuracy=(0.743, 0.743), sets=_SETS),
            ),
        ),
    )
    requires = ("query", "passages")
    models = ("embedder",)
    family = "local"
    answerable_only = True
    source = "ours"
    default = True

    def evaluate(self, analysis: TurnAnalysis) -> Iterable[Result]:
        """Return the mean, then one score per passage; skipped if the query or all passages have no words."""
        turn = analysis.turn
        model = analysis.models.embedder(wait=analysis.wait).name
        query = analysis.embed(turn.query)
        if query.is_empty:
            return [self.skip("the query has no words that could be compared")]
        # Passages of earlier turns come last.
        passages = zip(turn.retrieved, analysis.passage_embeddings, strict=False)
        values = {
            position: min(1.0, max(0.0, found.best_cosine(query)))  # type: ignore[arg-type]  # both of one model
            for position, (passage, found) in enumerate(passages)
            if has_words(passage.text) and not passage.is_image
        }
        if not values:
            return [self.skip("the passages have no words that could be compared")]
        best = max(values, key=values.__getitem__)
        explanation = f"best passage: {analysis.passage_name(best)} ({values[best]:.2f})"
        if len(values) > 1:
            explanation += f"; {len(values)} passages, from {min(values.values()):.2f} to {max(values.values()):.2f}"
        count = len(turn.retrieved)
        if count > len(values):
            explanation += f"; not counted, without words: {count - len(values)}"
        rounded = [round(values[position], 4) if position in values else None for position in range(count)]
        mean = math.fsum(values.values()) / len(values)
        return [
            self.score(mean, model=model, explanation=explanation, metadata={"passages": rounded}),
            *(self.score(value, model=model, target=analysis.target(at)) for at, value in values.items()),
        ]
