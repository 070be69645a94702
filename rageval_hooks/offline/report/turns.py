"""One turn as a report shows it: texts, scores, passages, a link, and the evidence sentence by sentence.

Evidence is read from a score's metadata by its shape, not by the score's name. A metric whose scores carry

- ``sentences``: a list of ``{"text": …, "score": 0.4, "passage": 0, "missing": ["1978"]}``, or of
  ``{"text": …, "fully_supported": false, "explanation": …, "support": [{"passage": 0, "text": …}]}``,
- ``missing``: a list of ``{"text": "1978"}``,

gets its sentences highlighted in the answer and its missing facts listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from rageval_hooks.offline.records.record import target_rank
from rageval_hooks.offline.report.scored_file import ScoredFile
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.runtime.narrowing import is_integer, is_number, items_or_empty, mappings_in
from rageval_hooks.score import Score, verdict_of
from rageval_hooks.text.formatting import truncate
from rageval_hooks.turn import Turn

Support = Literal["supported", "weak", "unsupported"]

# A sentence with at least the first support score is shown as supported, with less than the second as unsupported.
_SUPPORTED, _WEAK = 0.6, 0.3

# A page with 10,000 questions has to open in a browser.
Short = Annotated[str, AfterValidator(lambda text: truncate(text, 2000))]
"""A text of at most 2,000 characters."""


class Quote(Data):
    """A piece of a passage: the passage's id, or its number from 1, and the text."""

    passage: str
    text: Short


class ShownSentence(Data):
    """A sentence of the response.

    Attributes:
        text: the sentence.
        support: how well the passages support it.
        score: how well, 0..1; None where there is only a yes or no.
        note: what is missing, or why it is not supported.
        quotes: what supports it, or comes closest.
    """

    text: str
    support: Support
    score: float | None = None
    note: str = ""
    quotes: tuple[Quote, ...] = ()


class SentenceEvidence(Data):
    """The values of one score for each sentence of the response."""

    score: str
    sentences: tuple[ShownSentence, ...]


class ShownPassage(Data):
    """A retrieved passage.

    Attributes:
        rank: its position, from 1.
        id: its id, or None.
        text: its text; a very long one is cut.
        score: the retriever's score.
        is_target: True if it is the passage that holds the answer.
        in_prompt: whether it was in the final prompt; None when no prompt was seen.
    """

    rank: int
    id: str | None
    text: Short
    score: float | None = None
    is_target: bool = False
    in_prompt: bool | None = None


class ShownScore(Data):
    """A score with the reason that its metric or judge gives."""

    name: str
    value: float
    label: str | None = None
    explanation: Short | None = None
    model: str | None = None


class ShownTurn(Data):
    """One turn.

    Attributes:
        id: id of the question.
        run: which repetition of it.
        document: its source document.
        query: the question.
        response: the answer; a very long one is cut.
        reference: the known good answer.
        error: what ended the turn, if it failed.
        verdict: good, doubtful, bad, declined or not_evaluable; None without a verdict.
        cause: the cause of a verdict that is not good, in one word.
        reason: why the verdict is not good.
        value: of the score by which the turn is shown; None if it has none.
        scores: all scores about the whole turn.
        missing: skipped and failed results by name, with their reason.
        facts: numbers, dates and names that no passage has.
        evidence: sentence by sentence.
        passages: what was retrieved, in its order.
        trace_id: the turn's trace, if it has one.
        answerable: False if a refusal is the right answer.
    """

    id: str
    run: int
    document: str | None
    query: Short
    response: Annotated[str, AfterValidator(lambda text: truncate(text, 20_000))]
    reference: Short | None
    error: str | None
    verdict: str | None = None
    cause: str | None = None
    reason: Short = ""
    value: float | None = None
    scores: tuple[ShownScore, ...] = ()
    missing: dict[str, str]
    facts: tuple[str, ...] = ()
    evidence: tuple[SentenceEvidence, ...] = ()
    passages: tuple[ShownPassage, ...] = ()
    trace_id: str | None = None
    answerable: bool = True


def show_turn(file: ScoredFile, row: int, name: str | None) -> ShownTurn:
    """Return what a report shows of a turn.

    Args:
        file: the file.
        row: the number of the turn's record, from 0.
        name: the score by which it is shown.
    """
    record = file.record(row)
    turn = record.turn
    scores = {score.name: score for score in (*record.scores(), *file.derived_scores(record))}
    chosen = scores.get(name or "")
    # A turn may end badly without an exception, for example when its caller cancels it.
    error: str | None = None if turn.status == "ok" else turn.status
    if turn.error is not None:
        error = f"{turn.error.type}: {turn.error.message}"
    verdict = verdict_of(record.results)
    facts = [str(item.get("text") or "") for s in scores.values() for item in mappings_in(s.metadata.get("missing"))]
    evidence = []
    for score in scores.values():
        if sentences := mappings_in(score.metadata.get("sentences")):
            shown = tuple(_sentence(item, turn) for item in sentences)
            evidence.append(SentenceEvidence(score=score.name, sentences=shown))
    # A rank that the file states needs no id and no text of the target.
    targets = {record.rank, *(target_rank(target.id, target.text, turn.passages) for target in record.targets)}
    passages = []
    for rank, passage in enumerate(turn.passages, 1):
        own = passage.model_dump(include={"id", "text", "score", "in_prompt"})
        passages.append(ShownPassage(rank=rank, is_target=rank in targets, **own))
    return ShownTurn(
        id=record.id,
        run=record.run,
        document=record.document,
        query=turn.query,
        response=turn.response,
        reference=turn.reference,
        error=error,
        verdict=verdict.label if verdict else None,
        cause=verdict.cause if verdict else None,
        reason=(verdict.explanation or "") if verdict and verdict.label else "",
        value=chosen.value if chosen else None,
        scores=tuple(ShownScore.model_validate(score, from_attributes=True) for score in scores.values()),
        missing={r.name: f"{r.status}: {r.reason}" for r in record.results if not isinstance(r, Score)},
        facts=tuple(dict.fromkeys(filter(None, facts))),
        evidence=tuple(evidence),
        passages=tuple(passages),
        trace_id=turn.span.trace_id if turn.span else None,
        answerable=record.answerable,
    )


def _sentence(item: Mapping[str, Any], turn: Turn) -> ShownSentence:
    """Return a sentence that a judge has called supported or not, or that a formula has given a number."""
    text = str(item.get("text") or "")
    support: Support
    if "fully_supported" in item:
        named = mappings_in(item.get("support"))
        # The judge also names passages for a sentence that they support in part.
        support = "supported" if item["fully_supported"] else "weak" if named else "unsupported"
        found = [_quote(given.get("passage"), given.get("text"), turn) for given in named]
        note = str(item.get("explanation") or "")
        return ShownSentence(text=text, support=support, note=note, quotes=tuple(filter(None, found)))
    value = float(given) if is_number(given := item.get("score")) else 0.0
    support = "supported" if value >= _SUPPORTED else "weak" if value >= _WEAK else "unsupported"
    notes = []
    if parts := ", ".join(f"“{part.get('text', '')}”" for part in mappings_in(item.get("unsupported"))):
        notes.append(f"unsupported: {parts}")
    if words := ", ".join(map(str, items_or_empty(item.get("missing")))):
        notes.append(f"no passage has: {words}")
    # With a support of 0 no passage is closer than any other.
    closest = _quote(item.get("passage"), None, turn) if value > 0 else None
    quotes = (closest,) if closest else ()
    return ShownSentence(text=text, support=support, score=value, note="; ".join(notes), quotes=quotes)


def _quote(index: Any, text: Any, turn: Turn) -> Quote | None:
    """Return the given text of a passage, or the whole passage if there is no text."""
    # A judge may name a passage that the turn does not have; its quote is still evidence.
    if not is_integer(index) or not 0 <= index < len(turn.passages):
        return Quote(passage=f"number {index + 1}" if is_integer(index) else "?", text=str(text)) if text else None
    passage = turn.passages[index]
    return Quote(passage=passage.id or f"number {index + 1}", text=str(text or passage.text))
