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

_REVERSED: Final = 0.1
"""What is left of the score of a sentence that says the opposite of a passage by a negation."""

_SHORT: Final = 5.0
"""The weight of a sentence at which it counts half as the weakest one: about five words, or two or three names."""


class Faithfulness(GroundingMetric):
    """How far the passages of the prompt support the response, less for its errors and for its weakest sentence.

    - A sentence has its score of ``groundedness``, times .7 for each number, date, code and name that no passage has,
      times .1 if it repeats a passage with a negation added or left out.
    - The response has half the mean over its sentences, weighted as in ``groundedness``, and half its weakest sentence.
      A short sentence counts less as the weakest: of its distance to the mean, w / (w + 5) is left, where w is its
      weight.
    - With a fact that no passage has, the response has .7 of that; with a reversed negation, half.

    The mean alone hides one invented sentence among ten, and the weakest sentence alone is often small talk.
    """

    name = "faithfulness"
    version = "4"
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
        # Per sentence its groundedness, lowered for its wrong facts and its negation, and its weight.
        scores: list[tuple[float, float]] = []
        shown: list[SentenceScore] = []
        support, any_wrong_fact, any_reversal = analysis.fact_support, False, False
        for sentence in analysis.grounding.sentences:
            start, end = sentence.span
            facts = [fact for fact in support.missing if start <= fact.start < end]
            reversals = [change for change in analysis.reversals if start <= change.start < end]
            any_wrong_fact, any_reversal = any_wrong_fact or bool(facts), any_reversal or bool(reversals)
            score = sentence.score * _PER_FACT ** len(facts) * _REVERSED ** len(reversals)
            scores.append((score, sentence.weight))
            evidence = (analysis.prompt_passages[change.passage].text[slice(*change.evidence)] for change in reversals)
            position = analysis.prompt_positions[sentence.passage]
            missing = [fact.text for fact in facts]
            missing += (word for word in sentence.missing if word not in support.stated)
            one = SentenceScore(
                text=analysis.turn.response[start:end],
                # A sentence by itself is a response of one sentence, so that its score and the response's label agree.
                score=_lowered(score, bool(facts), bool(reversals)),
                weight=sentence.weight,
                passage=position,
                passage_name=analysis.passage_name(position),
                missing=tuple(dict.fromkeys(missing)),
                notes=tuple(f"the passage says: {text}" for text in evidence),
            )
            shown.append(one)
        value = _lowered(_mean_with_weakest(scores), any_wrong_fact, any_reversal)
        model = analysis.models.embedder(wait=analysis.wait).name
        return self.score_by_sentence(value, shown, model, _WEAK)


def _mean_with_weakest(scores: Sequence[tuple[float, float]]) -> float:
    """Return half the weighted mean and half the weakest sentence; a short sentence counts less as the weakest."""
    whole = sum(weight for _, weight in scores)
    mean = sum(score * weight for score, weight in scores) / whole
    weakest = mean + min((score - mean) * weight / (weight + _SHORT) for score, weight in scores)
    return (mean + weakest) / 2


def _lowered(value: float, has_wrong_fact: bool, is_reversed: bool) -> float:
    return value * (_PER_FACT if has_wrong_fact else 1.0) * (0.5 if is_reversed else 1.0)
