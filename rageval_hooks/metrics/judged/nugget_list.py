"""The steps of ``nuggets``: find them in the passages round by round, weigh them, and look for them in the response.

Source: AutoNuggetizer (arXiv 2411.09607); Open RAG Eval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, WithJsonSchema
from pydantic import Field as Described

from rageval_hooks.errors import JudgeError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.support.batching import BatchAnswers, ask_in_batches, batches
from rageval_hooks.metrics.support.judged_turn import JudgedTurn

WINDOW: Final = 10
BATCH: Final = 10
_MAX_FOUND: Final = 30
_MAX_KEPT: Final = 20
_MAX_ROUNDS: Final = 5
_MAX_WORDS: Final = 12
_SUPPORT: Final = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}

Importance = Literal["vital", "okay"]
# Plain strings with the choices in the schema only: a provider enforces them if it can, and an answer with another word
# loses that one entry, not all of them.
_Weight = Annotated[str, WithJsonSchema({"type": "string", "enum": ["vital", "okay"]})]
_Support = Annotated[str, WithJsonSchema({"type": "string", "enum": list(_SUPPORT)})]


class NuggetDrafts(BaseModel):
    """The judge's answer to one of several rounds."""

    nuggets: list[str] = Described(description="new nuggets of 1 to 12 words, the most important first")


class WeighedNuggetDraft(BaseModel):
    """A nugget as the judge writes it, with its weight."""

    nugget: str = Described(description="1 to 12 words")
    importance: _Weight = Described(description="vital or okay")


class WeighedNuggetDrafts(BaseModel):
    """The judge's answer if one round is enough."""

    nuggets: list[WeighedNuggetDraft] = Described(description="the nuggets, the most important first")


class NuggetWeight(BaseModel):
    """How important a nugget is."""

    nugget: int = Described(description="the nugget's number")
    importance: _Weight = Described(description="vital or okay")


class NuggetWeights(BaseModel):
    """The judge's answer on the importance of nuggets."""

    nuggets: list[NuggetWeight] = Described(description="one entry per nugget")


class NuggetAssignment(BaseModel):
    """The judge's verdict on whether a nugget is in the response."""

    nugget: int = Described(description="the nugget's number")
    support: _Support = Described(description="support, partial_support or not_support")


class NuggetAssignments(BaseModel):
    """The judge's answer on which nuggets are in the response."""

    nuggets: list[NuggetAssignment] = Described(description="one entry per nugget")


@dataclass(frozen=True)
class Nugget:
    """A fact that an answer could hold.

    Attributes:
        text: 1 to 12 words, on one line.
        importance: None if the judge did not say.
    """

    text: str
    importance: Importance | None = None


@dataclass
class Creation:
    """The nuggets that were found in the passages.

    Attributes:
        nuggets: the nuggets, at most 30.
        rounds: the number of calls.
        unread: positions of the relevant passages that no round has read.
        dropped: ignored nuggets, counted by reason: ``repeated``, ``length`` (no words, or more than 12), ``marker``
            (has the delimiter of the prompt), ``too_many``.
        judgements: the judge's answers.
        failure: the error of the round that failed, if one did; then the nuggets are not complete.
    """

    nuggets: list[Nugget] = field(default_factory=list)
    rounds: int = 0
    unread: tuple[int, ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)
    judgements: list[Judgement[Any]] = field(default_factory=list)
    failure: JudgeError | None = None


_CREATE = """\
Task: list nuggets. A nugget is one atomic fact, in 1 to 12 words, that a good answer to the question could hold.
Read only {passages}. Take nothing that does not help to answer the question, and nothing from elsewhere. Each nugget
can be understood by itself and says something that no other one says. Write at most {room}, the most important first;
none if the list is empty."""

_SO_FAR = """\
These nuggets have been found so far in other passages:

{nuggets}

"""

_IMPORTANCE = """\
A nugget is vital if an answer without it would not be a good answer; it is okay if it is good to have, but not
needed."""

_WEIGH = """\
{nuggets}

Task: say how important each of these nuggets is for an answer to the question. Each line is a number and a nugget.
{importance} Give each of these numbers exactly once."""

_ASSIGN = """\
{nuggets}

Task: say of each of these nuggets whether the answer holds it. Each line is a number and a nugget.
support: the answer says all of it, in whatever words. partial_support: the answer says a part of it. not_support: the
answer does not say it, or says something else. What the passages say does not matter here, only what the answer says.
Give each of these numbers exactly once."""


def rounds_for(passages: int) -> int:
    """Return the number of rounds that read some number of relevant passages."""
    return min(_MAX_ROUNDS, math.ceil(passages / WINDOW))


async def create(case: JudgedTurn, passages: Sequence[int]) -> Creation:
    """Find nuggets in passages, window after window; each round is shown the nuggets of the rounds before.

    If one window holds all passages, the judge weighs the nuggets as it writes them.

    Args:
        case: the turn.
        passages: positions of the relevant passages.
    """
    windows = batches(passages, WINDOW)
    creation = Creation()
    alone = len(windows) == 1
    for window in windows[:_MAX_ROUNDS]:
        room = _MAX_FOUND - len(creation.nuggets)
        # The windows that are left are reported as unread.
        if room <= 0:
            break
        task = _CREATE.format(passages=_passages(window), room=room)
        if creation.nuggets:
            task = _SO_FAR.format(nuggets=_framed(case, list(enumerate(creation.nuggets, start=1)))) + task
        try:
            await _round(case, f"{task}\n{_IMPORTANCE}" if alone else task, creation, alone)
        except JudgeError as error:  # the judge has already logged it
            creation.failure = error
            return creation
    creation.unread = tuple(position for window in windows[creation.rounds :] for position in window)
    return creation


async def _round(case: JudgedTurn, task: str, creation: Creation, alone: bool) -> None:
    """Ask for nuggets once, and take those that are usable."""
    if alone:
        weighed = await case.ask(task, WeighedNuggetDrafts)
        creation.judgements.append(weighed)
        drafts = [(draft.nugget, _importance(draft.importance)) for draft in weighed.value.nuggets]
    else:
        plain = await case.ask(task, NuggetDrafts)
        creation.judgements.append(plain)
        drafts = [(text, None) for text in plain.value.nuggets]
    creation.rounds += 1
    # Later rounds are shown the earlier nuggets, and some judges repeat them all the same.
    known = {_folded(nugget.text) for nugget in creation.nuggets}
    for draft, importance in drafts:
        text = " ".join(draft.split())
        reason = _unusable(text, known, case.delimiters.marker, len(creation.nuggets))
        if reason is not None:
            creation.dropped[reason] += 1
            continue
        known.add(_folded(text))
        creation.nuggets.append(Nugget(text, importance))


def _unusable(text: str, known: set[str], marker: str, count: int) -> str | None:
    """Return why a nugget is dropped; None if it is kept."""
    folded = _folded(text)
    if not folded or len(text.split()) > _MAX_WORDS:
        return "length"
    # Nuggets come back in later prompts, where they must not end their own delimiters.
    if marker in text.casefold():
        return "marker"
    if folded in known:
        return "repeated"
    return "too_many" if count >= _MAX_FOUND else None


async def weigh(case: JudgedTurn, nuggets: Sequence[Nugget]) -> BatchAnswers[int, Importance]:
    """Ask how important nuggets are, in batches of 10. If the judge says it twice, the lesser importance holds."""

    async def ask(part: Sequence[int]) -> Judgement[NuggetWeights]:
        framed = _framed(case, [(number, nuggets[number - 1]) for number in part])
        return await case.ask(_WEIGH.format(nuggets=framed, importance=_IMPORTANCE), NuggetWeights)

    def read(answer: NuggetWeights) -> Iterable[tuple[int, Importance | None]]:
        return ((entry.nugget, _importance(entry.importance)) for entry in answer.nuggets)

    return await ask_in_batches(range(1, 1 + len(nuggets)), BATCH, ask, read, _lesser)


def keep(nuggets: Sequence[Nugget]) -> list[Nugget]:
    """Return the 20 nuggets that count, vital ones first, otherwise in their order."""
    # Sorting is stable, and False comes before True.
    return sorted(nuggets, key=lambda nugget: nugget.importance != "vital")[:_MAX_KEPT]


async def assign(case: JudgedTurn, nuggets: Sequence[Nugget]) -> BatchAnswers[int, float]:
    """Ask which nuggets, numbered from 1, are in the response, in batches of 10.

    If the judge says it twice, the lesser support holds.

    Returns:
        The support of each nugget: 1, 0.5 if partial, or 0.
    """

    async def ask(part: Sequence[int]) -> Judgement[NuggetAssignments]:
        framed = _framed(case, [(number, nuggets[number - 1]) for number in part])
        return await case.ask(_ASSIGN.format(nuggets=framed), NuggetAssignments, about_response=True)

    def read(answer: NuggetAssignments) -> Iterable[tuple[int, float | None]]:
        return ((entry.nugget, _SUPPORT.get(entry.support.strip().casefold())) for entry in answer.nuggets)

    return await ask_in_batches(range(1, 1 + len(nuggets)), BATCH, ask, read, min)


def support_name(value: float) -> str:
    """Return the judge's word for a support."""
    return next(name for name, number in _SUPPORT.items() if number == value)


def as_data(nuggets: Sequence[Nugget], support: Mapping[int, float]) -> list[dict[str, Any]]:
    """Return nuggets with their assignments as JSON-able data."""
    return [
        {
            "text": nugget.text,
            "importance": nugget.importance,
            "support": support_name(support[number]) if number in support else None,
        }
        for number, nugget in enumerate(nuggets, start=1)
    ]


def _importance(word: str) -> Importance | None:
    folded = word.strip().casefold()
    return cast("Importance", folded) if folded in ("vital", "okay") else None


def _lesser(one: Importance, other: Importance) -> Importance:
    return "vital" if one == other == "vital" else "okay"


def _folded(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def _framed(case: JudgedTurn, nuggets: Iterable[tuple[int, Nugget]]) -> str:
    """Return numbered nuggets between delimiters: the judge may have copied instructions from a passage."""
    return case.delimiters.frame("nuggets", "\n".join(f"{number}: {nugget.text}" for number, nugget in nuggets))


def _passages(window: Sequence[int]) -> str:
    return f"passage {window[0]}" if len(window) == 1 else f"the passages {', '.join(map(str, window))}"
