"""``groundedness`` and ``unsupported_facts``: how far the passages support the response."""

from __future__ import annotations

from typing import ClassVar

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition, Threshold, passage_name
from rageval_hooks.metrics.support.grounding import Grounding, SentenceGrounding, groundedness
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Role
from rageval_hooks.models.embedding import Embedding
from rageval_hooks.score import Result
from rageval_hooks.settings import LEXICAL, MINILM
from rageval_hooks.text.facts import unsupported_facts
from rageval_hooks.turn import Turn

__all__ = ["Groundedness", "UnsupportedFacts"]

_NEEDS: tuple[Field, ...] = ("response", "passages")
_SUPPORT = ("begin_wow_test", "faithdial_gold", "expertqa_test", "wice_test")


class Groundedness(Metric):
    """How far the passages support the response; see :mod:`rageval_hooks.metrics.support.grounding` for the formula.

    Args:
        weak: sentences that score below this are named in the explanation, 0..1.
    """

    name: ClassVar[str] = "groundedness"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(
            name="groundedness",
            description="how far the passages support the response",
            thresholds=(
                Threshold(value=0.74, models=MINILM, accuracy=(0.572, 0.858), sets=_SUPPORT),
                Threshold(value=0.75, models=(LEXICAL,), accuracy=(0.565, 0.861), sets=_SUPPORT),
            ),
        ),
    )
    requires: ClassVar[tuple[Field, ...]] = _NEEDS
    models: ClassVar[tuple[Role, ...]] = ("embedder",)
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "ours; all-MiniLM-L6-v2"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def __init__(self, weak: float = 0.6) -> None:
        if not 0 <= weak <= 1:
            raise ConfigurationError(f"weak lies within 0..1, and {weak} does not")
        self.weak = weak

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the mean over sentences; skipped where the response or the passages have no words."""
        turn = analysis.turn
        model = analysis.models.embedder(wait=analysis.wait)
        indexes = analysis.passage_indexes
        response = passages = None
        if model.name != LEXICAL:
            passages = [
                embedding.tokens for embedding in analysis.passage_embeddings if isinstance(embedding, Embedding)
            ]
            whole = analysis.embed(turn.response)
            response = whole.tokens if isinstance(whole, Embedding) else None
        found = groundedness(turn.response, indexes, response, passages, analysis.sentences)
        if found.value is None:
            return self.skip("the response or the passages have no words that could be compared")
        return self.score(
            found.value,
            model=model.name,
            explanation=_explain(found, turn, self.weak),
            metadata={"sentences": [_details(sentence, turn) for sentence in found.sentences[:_MOST_SENTENCES]]},
        )


class UnsupportedFacts(Metric):
    """How many distinct numbers, dates, codes and names of the response no passage has.

    A count of its own, never averaged into another score: one wrong number in a long answer is as wrong as in a short.
    """

    name: ClassVar[str] = "unsupported_facts"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(
            name="unsupported_facts",
            description="numbers, dates, codes and names of the response that no passage has",
            direction="lower",
            high=None,
            unit="facts",
            thresholds=(Threshold(value=0, models=(None,), accuracy=(0.525, 0.744), sets=_SUPPORT),),
        ),
    )
    requires: ClassVar[tuple[Field, ...]] = _NEEDS
    family: ClassVar[str] = "local"
    source: ClassVar[str] = "ours"
    default: ClassVar[bool] = True
    about_claims: ClassVar[bool] = True

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the count."""
        missing = unsupported_facts(analysis.facts, analysis.passage_facts)
        if missing:
            explanation = f"no passage has: {', '.join(fact.text for fact in missing[:_MOST_FACTS])}"
        elif analysis.facts:
            stated = list(dict.fromkeys(fact.text for fact in analysis.facts))
            more = f" and {len(stated) - 10} more" if len(stated) > 10 else ""
            explanation = f"the passages have: {', '.join(stated[:10])}{more}"
        else:
            explanation = "the response states no numbers, dates or names"
        return self.score(
            len(missing),
            explanation=explanation,
            metadata={
                "stated": len(analysis.facts),
                "missing": [{"text": fact.text, "kind": fact.kind} for fact in missing[:_MOST_FACTS]],
            },
        )


_MOST_SENTENCES = 100
_MOST_FACTS = 50
_MOST_EXPLAINED = 5


def _explain(found: Grounding, turn: Turn, weak: float) -> str:
    """Name the weak sentences, each with its best passage and its missing words, the worst first."""
    poor = sorted((sentence for sentence in found.sentences if sentence.score < weak), key=lambda item: item.score)
    if not poor:
        number = len(found.sentences)
        line = f"all {number} sentences are well supported" if number > 1 else "well supported"
        missing = list(dict.fromkeys(word for sentence in found.sentences for word in sentence.missing))
        return f"{line}; words that no passage has: {', '.join(missing[:10])}" if missing else line
    lines = []
    for sentence in poor[:_MOST_EXPLAINED]:
        start, end = sentence.span
        line = f"{sentence.score:.2f} “{_shorten(turn.response[start:end])}”"
        if sentence.score > 0:
            line += f" best passage: {passage_name(turn, sentence.passage)}"
        else:
            line += " no passage has any of it"
        if sentence.missing:
            line += f"; missing: {', '.join(sentence.missing[:10])}"
        lines.append(line)
    if len(poor) > _MOST_EXPLAINED:
        lines.append(f"and {len(poor) - _MOST_EXPLAINED} more of {len(found.sentences)} sentences")
    return "\n".join(lines)


def _details(sentence: SentenceGrounding, turn: Turn) -> dict[str, object]:
    start, end = sentence.span
    return {
        "text": turn.response[start:end],
        "score": round(sentence.score, 4),
        "coverage": round(sentence.coverage, 4),
        "alignment": None if sentence.alignment is None else round(sentence.alignment, 4),
        "weight": sentence.weight,
        "passage": sentence.passage,
        "missing": list(sentence.missing[:50]),
    }


def _shorten(text: str, length: int = 120) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"
