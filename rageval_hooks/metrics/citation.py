"""Citations: do the passages that the response cites support what it cites them for, and is everything cited?

One judge call for all pairs. Source: seed 004 (TREC 2024 RAG track).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, WithJsonSchema
from pydantic import Field as Described

from rageval_hooks.errors import ConfigurationError, InputTooLargeError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import Field, Metric, ScoreDefinition, passage_name
from rageval_hooks.metrics.no_answer import declined
from rageval_hooks.metrics.support.batching import Labels, ask_in_batches, combined, plain_key
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.plan import PlannedCall, TurnSize
from rageval_hooks.score import Result
from rageval_hooks.text.citations import Citations, CitedKey, CitedPart, find_citations

__all__ = ["Citation", "CitationSupport", "PairSupport", "citation_scores"]

_KEY: Final = "citation.support"
_MOST_PAIRS: Final = 1000
_SUPPORT: Final = {"full": 1.0, "partial": 0.5, "none": 0.0}
_WORDS: Final = {value: word for word, value in _SUPPORT.items()}

Pair = tuple[str, int]


class PairSupport(BaseModel):
    """What the judge says of one pair."""

    sentence: str = Described(description="key of the answer's sentence")
    passage: int = Described(description="number of the passage that it cites")
    support: Annotated[str, WithJsonSchema({"type": "string", "enum": list(_SUPPORT)})] = Described(
        description="full, partial or none"
    )


class CitationSupport(BaseModel):
    """The judge's answer."""

    pairs: list[PairSupport] = Described(description="one entry per pair")


_TASK = """\
Task: check the answer's citations. Below are pairs of a sentence of the answer, by its key, and a passage that it
cites, by its number above (the answer may number the passages otherwise: that does not matter here). Say of each pair
whether that one passage supports what that one sentence claims.
full: the passage supports all of it. partial: it supports a part, and the rest is missing. none: it supports nothing of
it, or contradicts it.
Pairs: {pairs}
Give each of these pairs exactly once."""


def citation_scores(parts: Sequence[Mapping[object, float | None]]) -> tuple[float, float, float]:
    """Return weighted precision, weighted recall and their harmonic mean.

    Args:
        parts: per part of the response, the support of each key that it cites: 1, 0.5 or 0; None for a key that no
            passage has. At least one part, and one that cites something.

    Returns:
        Precision: the mean, over the distinct keys, of their mean support where they are cited; a made-up key has 0.
        Recall: the mean, over all parts, of the mean support by those of their keys that a passage has; a part without
        any has 0. So a made-up citation costs precision alone. f1: 0 if both are 0.
    """
    by_key: dict[object, list[float]] = {}
    means: list[float] = []
    for part in parts:
        for key, support in part.items():
            by_key.setdefault(key, []).append(support or 0.0)
        available = [support for support in part.values() if support is not None]
        means.append(sum(available) / len(available) if available else 0.0)
    precision = sum(sum(values) / len(values) for values in by_key.values()) / len(by_key)
    recall = sum(means) / len(means)
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0


class Citation(Metric):
    """Precision, recall and f1 of the citations: from markers in the response, and from the framework's annotations.

    The parts of the response are its sentences. Markers are read as
    :func:`rageval_hooks.text.citations.find_citations` says; annotations stand in ``turn.metadata["citations"]``, in
    the form that is described there. Where a cited name means several passages, pieces of one document, the one that
    supports the sentence best counts. All pairs of sentence and passage are judged in one call, more than 40 in
    several at the same time. A citation that no passage has counts 0, without a question. A response without citations
    is skipped, and so is, without a question, one that ``no_answer`` (if it runs too) finds to decline.

    Args:
        batch: how many pairs are judged in one call, at most.

    Raises:
        ConfigurationError: the batch is empty.
    """

    name: ClassVar[str] = "citation"
    version: ClassVar[str] = "2"
    scores: ClassVar[tuple[ScoreDefinition, ...]] = (
        ScoreDefinition(
            name="citation.precision",
            description="mean support by the cited passages of what they are cited for; made-up citations have 0",
        ),
        ScoreDefinition(
            name="citation.recall",
            description="mean support of the response's sentences by what they cite; a sentence without citation has 0",
        ),
        ScoreDefinition(name="citation.f1", description="harmonic mean of citation precision and recall"),
    )
    requires: ClassVar[tuple[Field, ...]] = ("query", "passages", "response")
    family: ClassVar[str] = "generation"
    source: ClassVar[str] = "seed 004 (TREC 2024 RAG track)"
    calls: ClassVar[str] = "1 per 40 pairs of sentence and cited passage; 0 without citations"

    def __init__(self, *, batch: int = 40) -> None:
        if batch < 1:
            raise ConfigurationError(f"citation judges at least 1 pair per call, not {batch}")
        self.batch = batch

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return its calls, all at the same time."""
        calls = math.ceil(size.citations / self.batch)
        return (PlannedCall(_KEY, f"support of {size.citations} citations", calls, after=("no_answer.attempt",)),)

    async def evaluate(self, case: JudgedTurn) -> Iterable[Result]:
        """Return the three scores; all are failed if the support of a pair is missing."""
        turn = case.turn
        citations = find_citations(turn.response, case.response, turn.passages, turn.metadata.get("citations"))
        if not citations.any:
            return self.skip_all(_why_none(citations))
        reason = await declined(case)
        if reason is not None:
            return self.skip_all(reason)
        labels = await self._support(case, citations)
        if labels.missing:
            message = "; ".join(f"no support of {_list(pairs)}: {error.message}" for error, pairs in labels.reasons())
            failures = [labels.failure(partial(self.fail, name=definition.name)) for definition in self.scores]
            return [failed.model_copy(update={"message": message}) for failed in failures]
        return self._results(case, citations, labels)

    async def _support(self, case: JudgedTurn, citations: Citations) -> Labels[Pair, float]:
        async def ask(part: Sequence[Pair]) -> Judgement[CitationSupport]:
            return await case.ask(_TASK.format(pairs=_list(part)), CitationSupport, about_response=True)

        def read(answer: CitationSupport) -> Iterable[tuple[Pair, float | None]]:
            for entry in answer.pairs:
                yield (plain_key(entry.sentence), entry.passage), _SUPPORT.get(entry.support.strip().casefold())

        pairs = list(
            dict.fromkeys(
                (part.sentence.key, passage)
                for part in citations.parts
                for key in part.keys
                for passage in key.passages
            )
        )
        if len(pairs) > _MOST_PAIRS:
            raise InputTooLargeError(f"the response has {len(pairs)} citations to check: more than {_MOST_PAIRS}")
        return await ask_in_batches(pairs, self.batch, ask, read, min)

    def _results(self, case: JudgedTurn, citations: Citations, labels: Labels[Pair, float]) -> Iterable[Result]:
        parts = citations.parts
        support = [{key.identity: _best(part, key, labels) for key in part.keys} for part in parts]
        made_up = list(dict.fromkeys(key.name for part in parts for key in part.keys if not key.passages))
        metadata = {
            "parts": [_part_data(part, labels) for part in parts],
            "made_up": made_up,
            "unplaced": list(citations.unplaced),
            "dropped": dict(+labels.dropped),
            "calls": len(labels.judgements),
        }
        explanation = _explain(case, parts, labels)
        for definition, value in zip(self.scores, citation_scores(support), strict=True):
            if labels.judgements:
                yield self.judged(
                    value,
                    combined(labels.spent),
                    name=definition.name,
                    explanation=explanation,
                    metadata=metadata,
                )
            else:  # every citation is made up: nobody had to be asked
                yield self.score(value, definition.name, explanation=explanation, metadata=metadata)


def _best(part: CitedPart, key: CitedKey, labels: Labels[Pair, float]) -> float | None:
    values = [labels.values[part.sentence.key, passage] for passage in key.passages]
    return max(values, default=None)


def _part_data(part: CitedPart, labels: Labels[Pair, float]) -> dict[str, Any]:
    return {
        "key": part.sentence.key,
        "text": part.sentence.text,
        "citations": [
            {"name": key.name, "passages": list(key.passages), "support": _best(part, key, labels)} for key in part.keys
        ],
    }


def _explain(case: JudgedTurn, parts: Iterable[CitedPart], labels: Labels[Pair, float]) -> str:
    lines = []
    for part in parts:
        said = []
        for key in part.keys:
            value = _best(part, key, labels)
            if value is None:
                said.append(f"[{key.name}] no such passage")
            else:
                names = ", ".join(passage_name(case.turn, passage) for passage in key.passages)
                said.append(f"[{key.name}] {_WORDS[value]} support by passage {names}")
        lines.append(f"{part.sentence.key} {'; '.join(said) or 'not cited'}: “{_shorten(part.sentence.text)}”")
    return "\n".join(lines)


def _why_none(citations: Citations) -> str:
    if citations.unplaced:
        # Their number, and not their names: these may quote the turn's texts.
        return f"the citations ({len(citations.unplaced)}) do not say what they are for"
    return "the response has no citations"


def _list(pairs: Iterable[Pair]) -> str:
    return ", ".join(f"({key}, {passage})" for key, passage in pairs)


def _shorten(text: str, length: int = 120) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
