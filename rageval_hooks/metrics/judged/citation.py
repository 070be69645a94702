"""``citation``: do the cited passages support what they are cited for, and is every sentence cited?

One judge call for all pairs. Source: Open RAG Eval (TREC 2024 RAG track).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, WithJsonSchema
from pydantic import Field as Described

from rageval_hooks.errors import ConfigurationError, InputTooLargeError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import JudgeMetric, Results, ScoreDefinition
from rageval_hooks.metrics.judged.no_answer import declined
from rageval_hooks.metrics.support.judged_turn import BatchAnswers, JudgedTurn, SentenceKey, ask_in_batches, combined
from rageval_hooks.score import Result
from rageval_hooks.text.citations import Citations, CitedKey, CitedPart, find_citations
from rageval_hooks.text.formatting import shorten

# A response with more pairs is generated garbage or a list of links. At 40 pairs per call this is 25 calls.
_MAX_PAIRS: Final = 1000
# The grades and weights of the support evaluation of the TREC 2024 RAG track.
_SUPPORT: Final = {"full": 1.0, "partial": 0.5, "none": 0.0}
_WORDS: Final = {value: word for word, value in _SUPPORT.items()}

Pair = tuple[str, int]
"""Key of a sentence of the response, and position of a passage that it cites."""


class PairSupport(BaseModel):
    """The judge's answer on one pair."""

    sentence: SentenceKey = Described(description="key of the answer's sentence")
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


class CitationScores(NamedTuple):
    """Weighted precision, weighted recall and their harmonic mean."""

    precision: float
    recall: float
    f1: float


def citation_scores(parts: Sequence[Mapping[object, float | None]]) -> CitationScores:
    """Return the scores of a response's citations.

    Args:
        parts: per part of the response, the support of each key that it cites: 1, 0.5 or 0; None for a key that no
            passage has. At least one part must cite something.

    Returns:
        Precision: the mean, over the distinct keys, of their mean support where they are cited; a made-up key has 0.
        Recall: the mean, over all parts, of the mean support by those of their keys that a passage has; a part without
        any has 0. So a made-up citation costs precision alone. f1: 0 if both are 0.
    """
    by_key: dict[object, list[float]] = {}
    recalls: list[float] = []
    for part in parts:
        for key, support in part.items():
            # A made-up key is a wrong citation: 0 for precision.
            by_key.setdefault(key, []).append(support or 0.0)
        # For recall a made-up key is as if the sentence did not cite it.
        available = [value for value in part.values() if value is not None]
        recalls.append(_mean(available))
    precision = _mean([_mean(values) for values in by_key.values()])
    recall = _mean(recalls)
    both = precision + recall
    return CitationScores(precision, recall, f1=2 * precision * recall / both if both else 0.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


class Citation(JudgeMetric):
    """Precision, recall and f1 of the citations: from markers in the response, and from the framework's annotations.

    The parts of the response are its sentences. :func:`rageval_hooks.text.citations.find_citations` says how markers
    are read; annotations are in ``turn.metadata["citations"]``, in the form that is described there. The passages that
    can be cited are those of the prompt; numbers count among them. If a name means several passages, pieces of one
    document, the piece that supports the sentence best counts. All pairs of sentence and passage are judged in one
    call, more than 40 in several at the same time. A citation that no passage has counts 0 without a call. A response
    without citations is skipped without a call, and so is one that declines, if ``no_answer`` runs too.

    Args:
        batch: the most pairs per call.

    Raises:
        ConfigurationError: ``batch`` is less than 1.
    """

    name = "citation"
    version = "4"
    scores = (
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
    requires = ("query", "passages", "response")
    passages = "prompt"
    family = "generation"
    source = "Open RAG Eval (TREC 2024 RAG track)"
    calls = "1 per 40 pairs of sentence and cited passage; 0 without citations"

    def __init__(self, *, batch: int = 40) -> None:
        if batch < 1:
            raise ConfigurationError(f"batch of citation must be at least 1, not {batch}")
        self.batch = batch

    async def evaluate(self, case: JudgedTurn) -> Results:
        """Return the three scores; all are failed if the support of a pair is missing."""
        citations = _citations(case)
        if not citations.any and citations.unplaced:
            # Their number only: their names may quote the turn's texts, and reasons are shown where those are hidden.
            return self.skip_all(f"the citations ({len(citations.unplaced)}) do not say what they are for")
        if not citations.any:
            return self.skip_all("the response has no citations")
        reason = await declined(case)
        if reason is not None:
            return self.skip_all(reason)
        answers = await self._support(case, citations)
        # All three scores are means over all pairs, so one missing pair leaves none of them.
        if answers.missing:
            message = "; ".join(f"no support of {_list(pairs)}: {error.message}" for error, pairs in answers.reasons())
            failures = [answers.failure(self.fail, score.name) for score in self.scores]
            return [failed.model_copy(update={"message": message}) for failed in failures]
        return self._scores(case, citations, answers)

    async def _support(self, case: JudgedTurn, citations: Citations) -> BatchAnswers[Pair, float]:
        async def ask(part: Sequence[Pair]) -> Judgement[CitationSupport]:
            return await case.ask(_TASK.format(pairs=_list(part)), CitationSupport, about_response=True)

        def read(answer: CitationSupport) -> Iterable[tuple[Pair, float | None]]:
            for entry in answer.pairs:
                yield (entry.sentence, entry.passage), _SUPPORT.get(entry.support.strip().casefold())

        cited = [(part.sentence.key, key.passages) for part in citations.parts for key in part.keys]
        # A dict and not a set: equal turns must give equal prompts, for the cache of the judge.
        pairs = list(dict.fromkeys((sentence, passage) for sentence, passages in cited for passage in passages))
        if len(pairs) > _MAX_PAIRS:
            raise InputTooLargeError(f"the response has {len(pairs)} citations to check: more than {_MAX_PAIRS}")
        # Where a judge grades a pair twice, the lower grade counts: support has to be certain.
        return await ask_in_batches(pairs, self.batch, ask, read)

    def _scores(self, case: JudgedTurn, citations: Citations, answers: BatchAnswers[Pair, float]) -> list[Result]:
        parts = [(part.sentence, [(key, _best(part, key, answers)) for key in part.keys]) for part in citations.parts]
        data = [
            {
                "key": sentence.key,
                "text": sentence.text,
                "citations": [
                    {"name": key.name, "passages": list(key.passages), "support": support} for key, support in keys
                ],
            }
            for sentence, keys in parts
        ]
        metadata = {
            "parts": data,
            "made_up": list(dict.fromkeys(key.name for _, keys in parts for key, _ in keys if not key.passages)),
            "unplaced": list(citations.unplaced),
            "dropped": dict(+answers.dropped),
            "calls": len(answers.judgements),
        }
        lines = []
        for sentence, keys in parts:
            said = "; ".join(_said(case, key, support) for key, support in keys) or "not cited"
            lines.append(f"{sentence.key} {said}: “{shorten(sentence.text)}”")
        explanation = "\n".join(lines)
        values = citation_scores([{key.identity: support for key, support in keys} for _, keys in parts])
        results: list[Result] = []
        for name, value in values._asdict().items():
            if answers.judgements:
                judgement = combined(answers.calls)
                score = self.judged(
                    value, judgement, name=f"citation.{name}", explanation=explanation, metadata=metadata
                )
            else:
                # Every citation is made up, so the judge was not asked.
                score = self.score(value, f"citation.{name}", explanation=explanation, metadata=metadata)
            results.append(score)
        return results


def _citations(case: JudgedTurn) -> Citations:
    """Return the citations, with passages by their positions in the turn.

    A number is the place among the passages of the prompt: the model did not see the others, and cannot count them.
    """
    given = case.turn.metadata.get("citations")
    # A citation by the id of an unseen passage is recognized, so that the explanation can say why it counts 0.
    seen, unseen = case.prompt_passages, case.unseen_passages
    found = find_citations(case.turn.response, case.sentences, seen, given, unseen)
    positions = case.prompt_positions

    def in_turn(key: CitedKey) -> CitedKey:
        return replace(key, passages=tuple(positions[place] for place in key.passages))

    return replace(found, parts=tuple(replace(part, keys=tuple(map(in_turn, part.keys))) for part in found.parts))


def _best(part: CitedPart, key: CitedKey, answers: BatchAnswers[Pair, float]) -> float | None:
    """Return the support by the best passage that a key means; None for a key that no passage has."""
    # Pieces of one document share its name, and the author of the answer cannot say which piece is meant.
    return max((answers.values[part.sentence.key, passage] for passage in key.passages), default=None)


def _said(case: JudgedTurn, key: CitedKey, support: float | None) -> str:
    if support is not None:
        names = ", ".join(case.passage_name(passage) for passage in key.passages)
        return f"[{key.name}] {_WORDS[support]} support by passage {names}"
    if any(passage.id == key.name for passage in case.unseen_passages):
        return f"[{key.name}] a passage that was not in the prompt"
    return f"[{key.name}] no such passage"


def _list(pairs: Iterable[Pair]) -> str:
    return ", ".join(f"({key}, {passage})" for key, passage in pairs)
