"""``unsupported_facts``: numbers, dates, codes and names of the response that no passage has or that it changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rageval_hooks.metrics.base import GROUNDING_SETS, GroundingMetric, ScoreDefinition, Threshold
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.score import Result
from rageval_hooks.text.fact_index import unsupported_facts
from rageval_hooks.text.facts import Fact
from rageval_hooks.text.wording import listed

_MAX_LISTED: Final = 50
_MAX_STATED: Final = 10


class UnsupportedFacts(GroundingMetric):
    """How many distinct numbers, dates, codes and names of the response no passage of the prompt has.

    A number with another unit counts ("$5" for "5 euros"), and so does a sentence that repeats one of a passage with a
    negation added or left out.

    A separate count: one wrong number in a long answer is as wrong as in a short one. Values are compared, not their
    notations. A number that two numbers of one passage give in one step is listed as computed and not counted.

    The question supports no number. Its names, and what the answer denies of it ("No, it did not cost 500"), are listed
    and not counted.
    """

    name = "unsupported_facts"
    version = "7"
    scores = (
        ScoreDefinition(
            name="unsupported_facts",
            headline=1,
            description="numbers, dates, codes and names of the response that no passage has",
            direction="lower",
            high=None,
            unit="facts",
            thresholds=(Threshold(value=0, models=(None,), accuracy=(0.538, 0.773), sets=GROUNDING_SETS),),
        ),
    )
    source = "ours"

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the count; skipped for a response in another language than the passages."""
        if analysis.response.facts and analysis.language_gap is not None:
            return self.skip(analysis.language_gap)
        support = analysis.fact_support
        # A fact of an unseen passage is counted: the model cannot have read it there. The explanation says where it is.
        unseen = _facts_in_unseen(support.missing, analysis)
        # The same number may be stated in several sentences.
        figures = {hit.fact.text for hit in support.computed}
        stated = list(dict.fromkeys(fact.text for fact in analysis.response.facts if fact.text not in figures))
        if support.missing:
            lines = [f"no passage has: {_texts(support.missing)}"]
        elif stated or figures:
            lines = [f"the passages support: {listed(stated, _MAX_STATED)}"] if stated else []
        else:
            lines = ["the response states no numbers, dates or names"]
        lines += [
            f"only in a passage that was not in the prompt ({name}): {text}" for text, name in unseen[:_MAX_STATED]
        ]
        lines += [f"computed: {fact.text}, the {step} of {a} and {b}" for fact, (a, b), step in support.computed]
        if support.contradicted:
            lines.append(f"the passages say otherwise: {_texts(support.contradicted)}")
        if support.in_question:
            lines.append(f"in the question: {_texts(support.in_question)}")
        return self.score(
            len(support.unsupported),
            explanation="; ".join(lines),
            metadata={
                "stated": len(analysis.response.facts),
                "missing": _as_data(support.unsupported),
                "computed": [
                    {"text": fact.text, "from": list(operands), "step": step}
                    for fact, operands, step in support.computed[:_MAX_LISTED]
                ],
                "in_question": _as_data(support.in_question),
                "unseen": [{"text": text, "passage": name} for text, name in unseen[:_MAX_LISTED]],
            },
        )


def _texts(facts: Iterable[Fact]) -> str:
    return ", ".join([fact.text for fact in facts][:_MAX_LISTED])


def _as_data(facts: Iterable[Fact]) -> list[dict[str, str]]:
    return [{"text": fact.text, "kind": fact.kind} for fact in facts][:_MAX_LISTED]


def _facts_in_unseen(facts: Sequence[Fact], analysis: TurnAnalysis) -> list[tuple[str, str]]:
    """Return pairs of a fact's text and the name of a passage that has it but was not in the prompt."""
    rest = list(facts[:_MAX_LISTED])
    found: list[tuple[str, str]] = []
    for position in analysis.unseen_positions:
        missing = unsupported_facts(rest, analysis.passage_indexes[position].facts)
        found += [(fact.text, analysis.passage_name(position)) for fact in rest if fact not in missing]
        rest = missing
    return found
