"""``faithfulness``: do the passages support the response? One number from all that the local tier knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rageval_hooks.metrics.base import GROUNDING_SETS, NO_WORDS, GroundingMetric, ScoreDefinition, Threshold
from rageval_hooks.metrics.support.sentence_scores import SentenceScore
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.score import Result
from rageval_hooks.settings import LEXICAL, MINILM

_WEAK: Final = 0.5
"""Where the score has no label, the explanation names the sentences below this."""

_PER_FACT: Final = 0.7
"""What is left of a sentence's score for each number, date, code or name that no passage has, and of the response's."""

_ASKED: Final = 0.85
"""The same for names of the question that no passage has: the passages may be about something else."""

_SHORT: Final = 5.0
"""The weight of a sentence at which it counts half as the weakest one: about five words, or two or three names."""


class Faithfulness(GroundingMetric):
    """How far the passages of the prompt support the response, less for its errors and for its weakest sentence.

    - A sentence has its score of ``groundedness``, times .7 for each number, date, code and name that no passage has,
      times .85 for names of the question that no passage has, and 0 if it repeats a sentence of a passage with a
      negation added or left out.
    - The response has half the mean over its sentences, weighted as in ``groundedness``, and half its weakest sentence.
      A short sentence counts less as the weakest: of its distance to the mean, w / (w + 5) is left, where w is its
      weight.
    - With a fact that no passage has, or with such a negation, the response has .7 of that.

    The mean alone hides one invented sentence among ten, and the weakest sentence alone is often small talk.
    """

    name = "faithfulness"
    version = "6"
    scores = (
        ScoreDefinition(
            name="faithfulness",
            headline=6,
            description="how far the passages support the response, less for wrong facts and the weakest sentence",
            by_sentence=True,
            thresholds=(
                # Chosen on half of RAGTruth QA test, so that few supported answers have any fail.
                Threshold(value=0.56, models=MINILM, accuracy=(0.613, 0.783), sets=GROUNDING_SETS),
                Threshold(value=0.56, models=(LEXICAL,), accuracy=(0.597, 0.789), sets=GROUNDING_SETS),
            ),
        ),
    )
    models = ("embedder",)

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the score; skipped if the response or the passages have no words."""
        if analysis.grounding.value is None:
            return self.skip(NO_WORDS)
        if analysis.language_gap is not None:
            return self.skip(analysis.language_gap)
        # Per sentence its groundedness, lowered for its wrong facts, and its weight.
        scores: list[tuple[float, float]] = []
        shown: list[SentenceScore] = []
        support, reversals, any_wrong = analysis.fact_support, analysis.reversals, False
        for sentence in analysis.grounding.sentences:
            start, end = sentence.span
            facts = [fact for fact in support.missing if start <= fact.start < end]
            any_wrong = any_wrong or bool(facts) or sentence.span in reversals
            score = 0.0 if sentence.span in reversals else sentence.score * _PER_FACT ** len(facts)
            if any(fact.kind == "name" and start <= fact.start < end for fact in support.in_question):
                score *= _ASKED
            scores.append((score, sentence.weight))
            position = analysis.prompt_positions[sentence.passage]
            missing = [fact.text for fact in facts]
            missing += (word for word in sentence.missing if word not in support.stated)
            one = SentenceScore(
                text=analysis.turn.response[start:end],
                # A sentence by itself is a response of one sentence, so that its score and the response's label agree.
                score=score * (_PER_FACT if facts else 1.0),
                weight=sentence.weight,
                passage=position,
                passage_name=analysis.passage_name(position),
                missing=tuple(dict.fromkeys(missing)),
                contradicts=reversals.get(sentence.span, ""),
            )
            shown.append(one)
        value = _mean_with_weakest(scores) * (_PER_FACT if any_wrong else 1.0)
        model = analysis.models.embedder(wait=analysis.wait).name
        return self.score_by_sentence(value, shown, model, _WEAK)


def _mean_with_weakest(scores: Sequence[tuple[float, float]]) -> float:
    """Return half the weighted mean and half the weakest sentence; a short sentence counts less as the weakest."""
    whole = sum(weight for _, weight in scores)
    mean = sum(score * weight for score, weight in scores) / whole
    weakest = mean + min((score - mean) * weight / (weight + _SHORT) for score, weight in scores)
    return (mean + weakest) / 2
