"""One turn, as a report shows it: its texts, its scores, and the evidence behind them, sentence by sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from rageval_hooks.offline.records.record import Record
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import Score, is_about_turn
from rageval_hooks.turn import Turn

__all__ = ["Evidence", "Quote", "Sentence", "ShownTurn", "show_turn"]

Support = Literal["supported", "weak", "unsupported"]

_SUPPORTED, _WEAK = 0.6, 0.3
_LONGEST = 2000
_LONGEST_RESPONSE = 20_000


class Quote(Data):
    """A piece of a passage: the passage's id, or its number from 1, and the text."""

    passage: str
    text: str


class Sentence(Data):
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


class Evidence(Data):
    """What one score says of each sentence of the response."""

    score: str
    sentences: tuple[Sentence, ...]


class ShownTurn(Data):
    """One turn.

    Attributes:
        id: of the question.
        run: which repetition of it.
        document: its source document.
        query: the question.
        response: the answer; a very long one is cut.
        reference: the known good answer.
        error: what ended the turn, if it failed.
        value: of the score by which the turn is shown.
        explanation: of that score.
        scores: all values about the whole turn, by name.
        missing: results that are no numbers, by name, with their reason.
        facts: numbers, dates and names that no passage has.
        evidence: sentence by sentence.
    """

    id: str
    run: int
    document: str | None
    query: str
    response: str
    reference: str | None
    error: str | None
    value: float
    explanation: str | None
    scores: dict[str, float]
    missing: dict[str, str]
    facts: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()


def show_turn(record: Record, name: str) -> ShownTurn:
    """Return what a report shows of a record that has the score ``name``."""
    turn = record.turn
    scores = {score.name: score for score in record.scores()}
    return ShownTurn(
        id=record.id,
        run=record.run,
        document=record.document,
        query=_cut(turn.query, _LONGEST),
        response=_cut(turn.response, _LONGEST_RESPONSE),
        reference=None if turn.reference is None else _cut(turn.reference, _LONGEST),
        error=f"{turn.error.type}: {turn.error.message}" if turn.error else None,
        value=scores[name].value,
        explanation=scores[name].explanation,
        scores={score.name: score.value for score in scores.values()},
        missing=_missing(record),
        facts=tuple(_facts(scores.get("unsupported_facts"))),
        evidence=tuple(_evidence(scores, turn)),
    )


def _missing(record: Record) -> dict[str, str]:
    missing = {}
    for result in record.results:
        if isinstance(result, Score) or not is_about_turn(result):
            continue
        if result.status == "skipped":
            missing[result.name] = f"skipped: {result.reason}"
        else:
            missing[result.name] = f"failed: {result.error_type}: {result.message}".rstrip(": ")
    return missing


def _facts(score: Score | None) -> Iterable[str]:
    for item in _items(score, "missing"):
        yield str(item.get("text", ""))


def _evidence(scores: Mapping[str, Score], turn: Turn) -> Iterable[Evidence]:
    for name, read in (("groundedness", _grounded), ("trace.adherence", _judged)):
        sentences = tuple(read(item, turn) for item in _items(scores.get(name), "sentences"))
        if sentences:
            yield Evidence(score=name, sentences=sentences)


def _items(score: Score | None, key: str) -> list[Mapping[str, Any]]:
    """Return a list of mappings from a score's metadata, whatever else stands there."""
    given = score.metadata.get(key) if score is not None else None
    return [item for item in given if isinstance(item, Mapping)] if isinstance(given, list) else []


def _grounded(item: Mapping[str, Any], turn: Turn) -> Sentence:
    value = _number(item.get("score"))
    missing = [str(word) for word in item.get("missing") or ()]
    return Sentence(
        text=str(item.get("text", "")),
        support="unsupported" if value < _WEAK else "weak" if value < _SUPPORTED else "supported",
        score=value,
        note=f"no passage has: {', '.join(missing)}" if missing else "",
        quotes=tuple(_quotes([(item.get("passage"), None)], turn)) if value > 0 else (),
    )


def _judged(item: Mapping[str, Any], turn: Turn) -> Sentence:
    supported = bool(item.get("fully_supported"))
    support = [given for given in item.get("support") or () if isinstance(given, Mapping)]
    return Sentence(
        text=str(item.get("text", "")),
        support="supported" if supported else "weak" if support else "unsupported",
        note=str(item.get("explanation") or ""),
        quotes=tuple(_quotes([(given.get("passage"), given.get("text")) for given in support], turn)),
    )


def _quotes(places: Iterable[tuple[Any, Any]], turn: Turn) -> Iterable[Quote]:
    """Name the passages by their ids, and quote them: the given sentence, else all of it."""
    for index, text in places:
        passage = turn.passages[index] if isinstance(index, int) and 0 <= index < len(turn.passages) else None
        if passage is None and not text:
            continue
        name = (passage.id if passage else None) or (f"number {index + 1}" if isinstance(index, int) else "?")
        yield Quote(passage=name, text=_cut(str(text or (passage.text if passage else "")), _LONGEST))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
