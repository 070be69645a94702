"""The judge's labels of TRACe, and the formulas that make scores of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from pydantic import BaseModel
from pydantic import Field as Described

from rageval_hooks.text.keys import plain_key

Formulas = Literal["ragbench", "fixed20"]

_FIXED_SENTENCES: Final = 20
"""The divisor of ``fixed20``, as in the seeds."""


class SentenceSupport(BaseModel):
    """The judge's verdict on one sentence of the response."""

    response_sentence_key: str = Described(description="key of the answer's sentence")
    explanation: str = Described(description="why it is, or is not, fully supported")
    supporting_sentence_keys: list[str] = Described(description="keys of the passages' sentences that support it")
    fully_supported: bool = Described(description="whether the passages support all of it")


class TraceLabels(BaseModel):
    """The judge's answer; the names are RAGBench's."""

    relevance_explanation: str = Described(description="which passages help to answer the question, and how")
    all_relevant_sentence_keys: list[str] = Described(description="keys of the passages' sentences that are relevant")
    sentence_support_information: list[SentenceSupport] = Described(description="one entry per sentence of the answer")
    all_utilized_sentence_keys: list[str] = Described(description="keys of the passages' sentences that were used")
    overall_supported: bool = Described(description="whether the answer as a whole is supported")


@dataclass(frozen=True)
class TraceValues:
    """The labels as numbers; the last two are None if the judge said nothing about a sentence of the response.

    Attributes:
        context_relevance: how much of the context is relevant, 0..1.
        context_utilization: how much of the context was used, 0..1.
        completeness: share of what is relevant that was used, 0..1.
        adherence: 1 if every sentence of the response is fully supported, else 0.
        supported_share: share of the response's sentences that are fully supported, 0..1.
        unjudged: keys of response sentences that the judge said nothing about.
        dropped_keys: keys in the labels that do not exist.
    """

    context_relevance: float
    context_utilization: float
    completeness: float
    adherence: float | None
    supported_share: float | None
    unjudged: tuple[str, ...] = ()
    dropped_keys: tuple[str, ...] = ()

    @property
    def average(self) -> float | None:
        """Mean of the four."""
        four = self._four()
        return None if four is None else statistics.fmean(four)

    @property
    def rmse(self) -> float | None:
        """Root mean square deviation of the four from their mean."""
        four = self._four()
        return None if four is None else statistics.pstdev(four)

    @property
    def consistency(self) -> float | None:
        """1 - rmse."""
        rmse = self.rmse
        return None if rmse is None else 1 - rmse

    def _four(self) -> tuple[float, float, float, float] | None:
        if self.adherence is None:
            return None
        return self.context_relevance, self.context_utilization, self.completeness, self.adherence


def trace_values(
    labels: TraceLabels, context_keys: Sequence[str], response_keys: Sequence[str], formulas: Formulas = "ragbench"
) -> TraceValues:
    """Turn labels into numbers.

    Keys may be written in another notation, such as capitals or brackets. Keys that do not exist are dropped.

    Args:
        labels: the judge's answer.
        context_keys: the keys of all sentences of the passages; not empty.
        response_keys: the keys of all sentences of the response.
        formulas: ``"ragbench"`` divides by the sentences of the context, ``"fixed20"`` as the seeds do.
    """
    labels = with_known_keys(labels, context_keys, response_keys)
    relevant = set(labels.all_relevant_sentence_keys).intersection(context_keys)
    utilized = set(labels.all_utilized_sentence_keys).intersection(context_keys)
    if formulas == "ragbench":
        relevance, utilization = len(relevant) / len(context_keys), len(utilized) / len(context_keys)
    else:
        # The seeds divide by 20 sentences whatever the context has, so a long context can reach more than 1.
        relevance = min(1.0, len(relevant) / _FIXED_SENTENCES)
        utilization = min(1.0, len(utilized) / len(relevant)) if relevant else 0.0
    # Nothing relevant and nothing used is complete; nothing relevant but something used is not.
    completeness = len(relevant & utilized) / len(relevant) if relevant else float(not utilized)
    supported = _supported(labels.sentence_support_information)
    unjudged = tuple(key for key in response_keys if key not in supported)
    said = [supported[key] for key in response_keys if key in supported]
    share: float | None = None
    adherence: float | None = None
    if not unjudged:
        # A response without sentences claims nothing that could lack support.
        share = sum(said) / len(said) if said else 1.0
        adherence = float(all(said))
    dropped = _dropped_keys(labels, set(context_keys), set(response_keys))
    return TraceValues(relevance, utilization, completeness, adherence, share, unjudged, dropped)


def with_known_keys(labels: TraceLabels, context: Iterable[str], response: Iterable[str]) -> TraceLabels:
    """Return the labels with the keys that exist in our notation; other keys stay as the judge wrote them."""
    # One table serves both: keys of the context begin with a digit, those of the response with a letter.
    known = {key: key for key in (*context, *response)}

    def translated(keys: Iterable[str]) -> list[str]:
        return [known.get(plain_key(key), key) for key in keys]

    information = [
        SentenceSupport(
            response_sentence_key=translated([item.response_sentence_key])[0],
            explanation=item.explanation,
            supporting_sentence_keys=translated(item.supporting_sentence_keys),
            fully_supported=item.fully_supported,
        )
        for item in labels.sentence_support_information
    ]
    return TraceLabels(
        relevance_explanation=labels.relevance_explanation,
        all_relevant_sentence_keys=translated(labels.all_relevant_sentence_keys),
        sentence_support_information=information,
        all_utilized_sentence_keys=translated(labels.all_utilized_sentence_keys),
        overall_supported=labels.overall_supported,
    )


def _supported(information: Iterable[SentenceSupport]) -> Mapping[str, bool]:
    """Return the judge's verdict on each sentence. Of two verdicts on one sentence, the stricter one counts."""
    supported: dict[str, bool] = {}
    for item in information:
        key = item.response_sentence_key
        supported[key] = supported.get(key, True) and item.fully_supported
    return supported


def _dropped_keys(labels: TraceLabels, context: set[str], response: set[str]) -> tuple[str, ...]:
    named = [*labels.all_relevant_sentence_keys, *labels.all_utilized_sentence_keys]
    named += chain.from_iterable(item.supporting_sentence_keys for item in labels.sentence_support_information)
    answered = [item.response_sentence_key for item in labels.sentence_support_information]
    # A key may be of the wrong kind: a key of the response among those of the context.
    dropped = [key for key in named if key not in context]
    dropped += [key for key in answered if key not in response]
    return tuple(dict.fromkeys(dropped))
