"""``nuggets``: which of the facts that an answer could have, by the passages, the response has.

They are found in the passages round by round, weighed, and looked for in the response. Source: AutoNuggetizer
(arXiv 2411.09607); Open RAG Eval.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, WithJsonSchema
from pydantic import Field as Described

from rageval_hooks.errors import JudgeError
from rageval_hooks.judges.base import Judgement
from rageval_hooks.metrics.base import JudgeMetric, Results, ScoreDefinition
from rageval_hooks.metrics.judged.no_answer import declined
from rageval_hooks.metrics.judged.umbrela import Umbrela, graded, paid_grading
from rageval_hooks.metrics.support.judged_turn import (
    AnyJudgement,
    BatchAnswers,
    JudgedTurn,
    ask_in_batches,
    batches,
    combined,
    wasted,
    with_spending,
)
from rageval_hooks.score import Result

_WINDOW: Final = 10
_BATCH: Final = 10
_MAX_FOUND: Final = 30
_MAX_KEPT: Final = 20
_MAX_ROUNDS: Final = 5
_MAX_WORDS: Final = 12
_SUPPORT: Final = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
_SUPPORT_NAMES: Final = {value: name for name, value in _SUPPORT.items()}

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
    """The judge's answer on whether a nugget is in the response."""

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
        unread: positions of the relevant passages that no round has read.
        dropped: ignored nuggets, counted by reason: ``repeated``, ``length`` (no words, or more than 12), ``marker``
            (has the delimiter of the prompt), ``too_many``.
        judgements: the judge's answers.
        failure: the error of the round that failed, if one did; then the nuggets are not complete.
    """

    nuggets: list[Nugget] = field(default_factory=list)
    unread: tuple[int, ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)
    judgements: list[Judgement[Any]] = field(default_factory=list)
    failure: JudgeError | None = None

    def add(self, text: str, importance: Importance | None, marker: str) -> None:
        """Add a nugget that is on one line, or count why it is ignored."""
        # Later rounds are shown the earlier nuggets, and some judges repeat them all the same.
        known = {_folded(nugget.text) for nugget in self.nuggets}
        if not _folded(text) or len(text.split()) > _MAX_WORDS:
            self.dropped["length"] += 1
        # Nuggets come back in later prompts, where they must not end their own delimiters.
        elif marker in text.casefold():
            self.dropped["marker"] += 1
        elif _folded(text) in known:
            self.dropped["repeated"] += 1
        elif len(self.nuggets) >= _MAX_FOUND:
            self.dropped["too_many"] += 1
        else:
            self.nuggets.append(Nugget(text, importance))


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


_MEANINGS: Final = {
    "all": "mean support of the nuggets by the response: 1, 0.5 (partial) or 0 each",
    "vital": "mean support of the vital nuggets",
    "weighted": "mean support of the nuggets; those that are okay count half as much as vital ones",
    "all_strict": "share of the nuggets that the response supports in full",
    "vital_strict": "share of the vital nuggets that the response supports in full",
    "weighted_strict": "share, weighted likewise, of the nuggets that the response supports in full",
}


def nugget_score(name: str, importance: Sequence[Importance | None], support: Sequence[float]) -> float | None:
    """Return one of the six scores.

    Args:
        name: ``all``, ``vital``, ``weighted``, or one of them with ``_strict``: then partial support counts 0.
        importance: of each nugget.
        support: of each nugget: 1, 0.5 or 0.

    Returns:
        None if no nugget counts for this score.
    """
    # Nuggets that are not vital count in full, not at all, or half.
    okay = {"all": 1.0, "vital": 0.0, "weighted": 0.5}[name.removesuffix("_strict")]
    total = supported = 0.0
    for item, value in zip(importance, support, strict=True):
        weight = 1.0 if item == "vital" else okay
        total += weight
        supported += weight * (float(value >= 1) if name.endswith("_strict") else value)
    return supported / total if total else None


class Nuggets(JudgeMetric):
    """The share of nuggets that the response has: all, the vital ones, and weighted; each also counted strictly.

    Nuggets come from the passages of the prompt that UMBRELA grades 1 or more (one grading, shared with ``umbrela`` and
    ``ranking``). These are read in windows of 10, in at most 5 rounds, each of which sees the nuggets of the rounds
    before, for at most 30 nuggets of 1 to 12 words. Their importance is asked in batches of 10; 20 are kept, vital ones
    first; their support by the response is asked in batches of 10. If one window holds all relevant passages and gives
    no more than one batch of nuggets, the judge weighs the nuggets as it writes them: then there are 2 calls besides
    the grading.

    If ``no_answer`` runs too and says that the system declined to answer, all six are skipped without a call.
    """

    name = "nuggets"
    version = "3"
    scores = tuple(
        ScoreDefinition(name=f"nuggets.{name}", description=description) for name, description in _MEANINGS.items()
    )
    requires = ("query", "passages", "response")
    passages = "prompt"
    family = "generation"
    answerable_only = True
    source = "AutoNuggetizer (arXiv 2411.09607); Open RAG Eval"
    calls = "2 to 10, and those of umbrela, shared"

    def expected_calls(self, passages: int) -> Mapping[str, int]:
        """Return the grading's calls, and those for ten nuggets."""
        rounds = min(_MAX_ROUNDS, math.ceil(passages / _WINDOW))
        # Besides the rounds one call for the support, and one for the importance if there are several rounds.
        return {**Umbrela().expected_calls(passages), self.name: rounds + (1 if rounds <= 1 else 2)}

    async def evaluate(self, case: JudgedTurn) -> Results:
        """Return the six scores; each is failed if something that it depends on is missing."""
        reason = await declined(case)
        if reason is not None:
            return self.skip_all(reason)
        grades = await graded(case)
        grading = paid_grading(case, grades, self.name)
        # With some grades the nuggets come from the passages that are graded; without any there is nothing to read.
        if grades.missing and not grades.values:
            return [with_spending(grades.failure(self.fail, score.name), grading) for score in self.scores]
        # UMBRELA 1 is "related, but does not answer". Such passages still hold facts that belong into an answer.
        relevant = [position for position in case.prompt_positions if grades.values.get(position, 0) >= 1]
        if not relevant:
            return self.skip_all("there are no nuggets: no passage of the prompt is graded 1 or more")
        creation = await _create(case, relevant)
        calls: list[AnyJudgement] = [*creation.judgements]
        if creation.failure is not None:
            return with_spending(self.fail(creation.failure), [*calls, *wasted(creation.failure), *grading])
        # Skipped and not 0: without nuggets there is nothing that the response could lack.
        nuggets = creation.nuggets
        if not nuggets:
            return self.skip_all("there are no nuggets: the judge finds nothing in the passages that helps to answer")
        weights: BatchAnswers[int, Importance] = BatchAnswers()
        # The call that found them may have weighed them.
        if len(nuggets) > _BATCH or any(nugget.importance is None for nugget in nuggets):
            weights = await _weigh(case, nuggets)
            nuggets = [replace(nugget, importance=weights.values.get(n)) for n, nugget in enumerate(nuggets, start=1)]
        calls += weights.calls
        unweighed = _first_error(weights.missing)
        if unweighed is not None and len(nuggets) > _MAX_KEPT:
            # Which 20 of them are kept depends on the importance that is missing.
            return [with_spending(self.fail(unweighed, score.name), [*calls, *grading]) for score in self.scores]
        # Vital ones first, otherwise in their order: sorting is stable, and False comes before True.
        kept = sorted(nuggets, key=lambda nugget: nugget.importance != "vital")[:_MAX_KEPT]
        support = await _assign(case, kept)
        calls += support.calls
        metadata = {
            "found": len(nuggets),
            "kept": len(kept),
            "rounds": len(creation.judgements),
            "passages": relevant,
            "passages_unread": list(creation.unread),
            "passages_ungraded": sorted(grades.missing),
            "dropped": dict(+(creation.dropped + weights.dropped + support.dropped)),
            "calls": len([call for call in calls if call.value is not None]),
        }
        return self._results(kept, support, unweighed, [*calls, *grading], metadata)

    def _results(
        self,
        kept: Sequence[Nugget],
        support: BatchAnswers[int, float],
        unweighed: JudgeError | None,
        calls: Sequence[AnyJudgement],
        metadata: Mapping[str, Any],
    ) -> list[Result]:
        """Return the six scores, which differ only in which nuggets count, and by how much.

        Args:
            kept: the nuggets that count; their numbers are from 1.
            support: by number, the support by the response.
            unweighed: the error behind the importance that is missing; None if none is.
            calls: the judge calls behind all this.
            metadata: of each score.
        """
        data = [
            {
                "text": nugget.text,
                "importance": nugget.importance,
                "support": _SUPPORT_NAMES.get(support.values.get(number, -1.0)),
            }
            for number, nugget in enumerate(kept, start=1)
        ]
        results: list[Result] = []
        for name in _MEANINGS:
            counting = {
                number: nugget
                for number, nugget in enumerate(kept, start=1)
                if nugget.importance == "vital" or not name.startswith("vital")
            }
            # Support that is missing for an okay nugget does not harm the score of the vital ones.
            error, what = _first_error({n: e for n, e in support.missing.items() if n in counting}), "support"
            # Only the vital and the weighted scores depend on the importance.
            if unweighed is not None and not name.startswith("all"):
                error, what = unweighed, "importance"
            if error is not None:
                failed = self.fail(error, f"nuggets.{name}")
                message = f"no {what} of some nuggets: {error.message}"
                changes = {"message": message, "metadata": {**failed.metadata, "nuggets": data}}
                results.append(with_spending(failed.model_copy(update=changes), calls))
                continue
            found = [support.values[number] for number in counting]
            value = nugget_score(name, [nugget.importance for nugget in counting.values()], found)
            if value is None:
                results.append(self.skip("no nugget is vital", f"nuggets.{name}"))
                continue
            lines = [
                f"{number} {nugget.importance or 'not weighed'}, {_SUPPORT_NAMES[grade]}: “{nugget.text}”"
                for (number, nugget), grade in zip(counting.items(), found, strict=True)
            ]
            score = self.judged(
                value,
                combined(calls),
                name=f"nuggets.{name}",
                explanation="\n".join(lines),
                metadata={**metadata, "nuggets": data},
            )
            results.append(score)
        return results


def _first_error(missing: Mapping[int, JudgeError]) -> JudgeError | None:
    return next(iter(missing.values()), None)


async def _create(case: JudgedTurn, passages: Sequence[int]) -> Creation:
    """Find nuggets in passages, window after window; each round is shown the nuggets of the rounds before.

    If one window holds all passages, the judge weighs the nuggets as it writes them.

    Args:
        case: the turn.
        passages: positions of the relevant passages.
    """
    windows = batches(passages, _WINDOW)
    creation = Creation()
    alone = len(windows) == 1
    for window in windows[:_MAX_ROUNDS]:
        room = _MAX_FOUND - len(creation.nuggets)
        # The windows that are left are reported as unread.
        if room <= 0:
            break
        which = f"passage {window[0]}" if len(window) == 1 else f"the passages {', '.join(map(str, window))}"
        task = _CREATE.format(passages=which, room=room)
        if creation.nuggets:
            numbers = range(1, 1 + len(creation.nuggets))
            task = _SO_FAR.format(nuggets=_framed(case, creation.nuggets, numbers)) + task
        schema: type[NuggetDrafts | WeighedNuggetDrafts] = WeighedNuggetDrafts if alone else NuggetDrafts
        try:
            judgement = await case.ask(f"{task}\n{_IMPORTANCE}" if alone else task, schema)
        except JudgeError as error:  # the judge has already logged it
            creation.failure = error
            return creation
        creation.judgements.append(judgement)
        for draft in judgement.value.nuggets:
            text, importance = (draft, "") if isinstance(draft, str) else (draft.nugget, draft.importance)
            creation.add(" ".join(text.split()), _importance(importance), case.delimiters.marker)
    creation.unread = tuple(position for window in windows[len(creation.judgements) :] for position in window)
    return creation


async def _weigh(case: JudgedTurn, nuggets: Sequence[Nugget]) -> BatchAnswers[int, Importance]:
    """Ask how important nuggets are. If the judge says it twice, the lesser importance holds."""

    async def ask(part: Sequence[int]) -> Judgement[NuggetWeights]:
        framed = _framed(case, nuggets, part)
        return await case.ask(_WEIGH.format(nuggets=framed, importance=_IMPORTANCE), NuggetWeights)

    def read(answer: NuggetWeights) -> Iterable[tuple[int, Importance | None]]:
        return ((entry.nugget, _importance(entry.importance)) for entry in answer.nuggets)

    # "okay" comes before "vital".
    return await ask_in_batches(range(1, 1 + len(nuggets)), _BATCH, ask, read)


async def _assign(case: JudgedTurn, nuggets: Sequence[Nugget]) -> BatchAnswers[int, float]:
    """Ask which nuggets are in the response: 1, 0.5 if partly, or 0. If the judge says it twice, the lesser holds."""

    async def ask(part: Sequence[int]) -> Judgement[NuggetAssignments]:
        framed = _framed(case, nuggets, part)
        return await case.ask(_ASSIGN.format(nuggets=framed), NuggetAssignments, about_response=True)

    def read(answer: NuggetAssignments) -> Iterable[tuple[int, float | None]]:
        return ((entry.nugget, _SUPPORT.get(entry.support.strip().casefold())) for entry in answer.nuggets)

    return await ask_in_batches(range(1, 1 + len(nuggets)), _BATCH, ask, read)


def _importance(word: str) -> Importance | None:
    folded = word.strip().casefold()
    return cast("Importance", folded) if folded in ("vital", "okay") else None


def _folded(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def _framed(case: JudgedTurn, nuggets: Sequence[Nugget], numbers: Iterable[int]) -> str:
    """Return numbered nuggets between delimiters: the judge may have copied instructions from a passage."""
    return case.delimiters.frame("nuggets", "\n".join(f"{number}: {nuggets[number - 1].text}" for number in numbers))
