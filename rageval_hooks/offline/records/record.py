"""The data that offline commands exchange: one record per answer, as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.score import Result, Score, is_about_turn
from rageval_hooks.turn import Turn


class TargetText(Data):
    """A passage that an answer needs, known by its id, its text or both."""

    id: Text | None = None
    text: Text | None = None
    document: Text | None = None


class Record(Data):
    """One answer of a system to one question.

    ``rageval-hooks run`` writes records without results, ``score`` adds the results, ``report`` and ``plot`` read them.

    Attributes:
        rageval_record: version of the format. A line of JSON that has it is a record, and is read without a look at
            its other columns.
        id: id of the question; the same in every run that is compared.
        run: number of the repetition of this question, from 1.
        turn: question, passages, answer and reference answer. If the system failed, status and error say so.
        results: results of metrics, in their order.
        target: id of the passage that holds the answer, if the test set has one.
        target_text: text of that passage.
        more_targets: further passages that the answer to a multi-hop question needs.
        rank: position of the target among the retrieved passages, from 1; of several targets, that of the last one.
        missed: True if a target is known not to be among them. Without a rank, False means that the rank is unknown.
        document: source document of the question.
        answerable: False if the documents do not answer the question, so that a refusal is the right answer.
    """

    rageval_record: Literal[1] = 1
    id: Text
    run: int = Field(default=1, ge=1)
    turn: Turn
    results: tuple[Result, ...] = ()
    target: Text | None = None
    target_text: Text | None = None
    more_targets: tuple[TargetText, ...] = ()
    rank: int | None = Field(default=None, ge=1)
    missed: bool = False
    document: Text | None = None
    answerable: bool = True

    @property
    def key(self) -> tuple[str, int]:
        """Identifies the record within a file."""
        return self.id, self.run

    @property
    def has_target(self) -> bool:
        """True if the passage that holds the answer is known, by its id or its text."""
        return self.target is not None or self.target_text is not None

    @property
    def targets(self) -> tuple[TargetText, ...]:
        """All passages that the answer needs."""
        first = (TargetText(id=self.target, text=self.target_text),) if self.has_target else ()
        return (*first, *self.more_targets)

    def redacted(self, privacy: PrivacyPolicy) -> Record:
        """Return the record as it may be written to a file; ids and names stay.

        Texts of results are hidden if the turn has something to redact: they were made from the original texts.
        """
        if not privacy.active:
            return self
        is_original = privacy.with_redacted_texts(self.turn) is not self.turn
        return self.model_copy(
            update={
                "turn": privacy.turn(self.turn),
                "results": privacy.results(self.results) if is_original else tuple(map(privacy.result, self.results)),
                "target_text": privacy.data(self.target_text),
                "more_targets": tuple(
                    target.model_copy(update={"text": privacy.data(target.text)}) for target in self.more_targets
                ),
            }
        )

    def to_json(self) -> str:
        """Return the record as a line of JSON, in which turn and results lack the fields with default values."""
        # Most questions have one target and an answer: their lines do not say so.
        usual = {name for name, default in _SPECIAL.items() if getattr(self, name) == default}
        head = self.model_dump_json(exclude={"turn", "results", *usual})
        results = ",".join(map(_result_json, self.results))
        return f'{head[:-1]},"turn":{_turn_json(self.turn)},"results":[{results}]}}'

    def scores(self) -> Iterator[Score]:
        """Yield the scores of the whole turn."""
        return (result for result in self.results if isinstance(result, Score) and is_about_turn(result))


_ENCODER = json.JSONEncoder(ensure_ascii=False)

_SPECIAL: dict[str, object] = {"more_targets": (), "answerable": True}
"""Fields that few records use, with their defaults."""


def _turn_json(turn: Turn) -> str:
    # Readers of the file expect these, also if they are empty.
    always = {"query": turn.query, "response": turn.response}
    rest = turn.model_dump_json(exclude_defaults=True, exclude={*always})
    separator = "" if rest == "{}" else ","
    return f"{_ENCODER.encode(always)[:-1]}{separator}{rest[1:]}"


def _result_json(result: Result) -> str:
    # The status is a default of its class, and says which class it is.
    always: dict[str, str | None] = {"status": result.status}
    if isinstance(result, Score):
        # Reports compare scores of the same version and model only, so these are stated.
        always |= {"version": result.version, "model": result.model}
    rest = result.model_dump_json(exclude_defaults=True, exclude={*always})
    return f"{_ENCODER.encode(always)[:-1]},{rest[1:]}"


def holds_turn(row: Mapping[str, Any]) -> bool:
    """Return True if a row is a record or an evaluation of this package, and not one with a column named ``turn``."""
    return isinstance(row.get("turn"), Mapping)
