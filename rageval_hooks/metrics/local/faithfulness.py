"""``faithfulness``: do the passages support the response? One number from all that the local tier knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from rageval_hooks.metrics.base import Field, LocalMetric, PassageScope, ScoreDefinition, Threshold
from rageval_hooks.metrics.support.fact_support import fact_support
from rageval_hooks.metrics.support.faithfulness import Differences, Evidence, faithfulness_formula
from rageval_hooks.metrics.support.grounding import SentenceGrounding
from rageval_hooks.metrics.support.sentence_scores import SentenceScore, as_metadata, explain_sentences
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.metrics.support.unseen import passage_name
from rageval_hooks.models import Role
from rageval_hooks.score import Result
from rageval_hooks.settings import LEXICAL, MINILM
from rageval_hooks.text.facts import Fact
from rageval_hooks.text.sentences import Span

__all__ = ["Faithfulness"]

_SETS: Final = ("begin_wow_test", "faithdial_gold", "expertqa_test", "wice_test")
_WEAK: Final = 0.5
"""Where the score has no label, the explanation names the sentences that people would rather call unsupported."""


class Faithfulness(LocalMetric):
    """How likely people call the response supported by the passages of the prompt.

    ``groundedness``, lowered by small differences that similarity does not see: names and numbers that no passage has
    or that another sentence has, a negation, an opposite, another word in the same place.
    :mod:`rageval_hooks.metrics.support.faithfulness.formula` has the formula. The score of each sentence is
    the same formula for that sentence alone.
    """

    name: ClassVar[str] = "faithfulness"
    version: ClassVar[str] = "3"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(
            name="faithfulness",
            headline=6,
            description="how likely people call the response supported: groundedness, less for small differences",
            by_sentence=True,
            thresholds=(
                # What .5 is worth on rows that no choice used; benchmarks/RESULTS.md has the figures of each set.
                Threshold(value=0.5, models=MINILM, accuracy=(0.590, 0.785), sets=_SETS),
                Threshold(value=0.5, models=(LEXICAL,), accuracy=(0.579, 0.788), sets=_SETS),
            ),
        ),
    )
    requires: ClassVar[tuple[Field, ...]] = ("response", "passages")
    passages: ClassVar[PassageScope] = "prompt"
    models: ClassVar[tuple[Role, ...]] = ("embedder",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "ours; all-MiniLM-L6-v2"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the score; skipped if the response or the passages have no words."""
        found = analysis.grounding
        if found.value is None:
            return self.skip("the response or the passages have no words that could be compared")
        by_span = dict(zip(analysis.sentences, analysis.differences, strict=True))
        missing = fact_support(analysis).missing
        sentences = [_sentence(sentence, by_span, missing, analysis) for sentence in found.sentences]
        value = faithfulness_formula().value(_evidence(found.value, list(by_span.values()), missing))
        return self.score(
            value,
            model=analysis.models.embedder(wait=analysis.wait).name,
            explanation=explain_sentences(sentences, _WEAK),
            metadata={"sentences": as_metadata(sentences)},
        )


def _evidence(groundedness: float, parts: Sequence[Differences], missing: Sequence[Fact]) -> Evidence:
    names = sum(fact.kind == "name" for fact in missing)
    return Evidence(groundedness=groundedness, names=names, facts=len(missing) - names, differences=parts)


def _sentence(
    sentence: SentenceGrounding, by_span: Mapping[Span, Differences], missing: Sequence[Fact], analysis: TurnAnalysis
) -> SentenceScore:
    start, end = sentence.span
    own = [fact for fact in missing if start <= fact.start < end]
    difference = by_span[sentence.span]
    position = analysis.prompt_positions[sentence.passage]
    return SentenceScore(
        text=analysis.turn.response[start:end],
        score=faithfulness_formula().value(_evidence(sentence.score, [difference], own)),
        weight=sentence.weight,
        passage=position,
        passage_name=passage_name(analysis.turn, position),
        missing=tuple(dict.fromkeys([*(fact.text for fact in own), *sentence.missing])),
        notes=difference.notes(),
    )
