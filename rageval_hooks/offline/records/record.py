"""The data that offline commands exchange: one record per answer, as a line of JSON, with the rank of its target."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.score import Result, Score, annotator_of, is_about_turn, says_good
from rageval_hooks.text.wording import listed
from rageval_hooks.text.words import fold
from rageval_hooks.turn import Passage, Turn

ANNOTATIONS = "annotations"
"""In the metadata of a turn: what people say of the answer; see :attr:`Record.annotations`."""


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
    def annotations(self) -> dict[str, dict[str, Any]]:
        """What people say of the answer, by the name of the annotation, then by who says it (empty if unknown)."""
        found = {name: dict(said) for name, said in mapping_or_empty(self.turn.metadata.get(ANNOTATIONS)).items()}
        for result in self.results:
            if result.annotator == "HUMAN" and isinstance(result, Score):
                said = result.value if result.label is None else result.label
                found.setdefault(result.name, {})[annotator_of(result)] = said
        return found

    @property
    def labelled(self) -> Record:
        """The record with what people say as ``metadata.label``: of several annotations the first, by who says it."""
        annotations = self.annotations
        if not annotations or "label" in self.turn.metadata:
            return self
        said = next(iter(annotations.values()))
        label = next(iter(said.values())) if len(said) == 1 else said
        metadata = {**self.turn.metadata, "label": label, ANNOTATIONS: annotations}
        return self.model_copy(update={"turn": self.turn.model_copy(update={"metadata": metadata})})

    def opinions(self, label: str) -> list[bool | None]:
        """Return what people say of the answer, one by one: True for good, None for what is not known to be either.

        Args:
            label: the name of their annotation, or of a column of the file.
        """
        given: Any = self.annotations.get(label, self.labelled.turn.metadata.get(label))
        return list(map(says_good, given.values() if isinstance(given, dict) else [] if given is None else [given]))

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
        # Readers of the file expect question and answer, also if they are empty.
        turn = _json(self.turn, {"query": self.turn.query, "response": self.turn.response})
        results = ",".join(map(_result_json, self.results))
        return f'{head[:-1]},"turn":{turn},"results":[{results}]}}'

    def scores(self) -> Iterator[Score]:
        """Yield the scores of the whole turn."""
        return (result for result in self.results if isinstance(result, Score) and is_about_turn(result))


_ENCODER = json.JSONEncoder(ensure_ascii=False)

_SPECIAL: dict[str, object] = {"more_targets": (), "answerable": True}
"""Fields that few records use, with their defaults."""


def _result_json(result: Result) -> str:
    # The status is a default of its class, and says which class it is.
    always: dict[str, str | None] = {"status": result.status}
    if isinstance(result, Score):
        # Reports compare scores of the same version and model only, so these are stated.
        always |= {"version": result.version, "model": result.model}
    return _json(result, always)


def _json(data: Data, always: Mapping[str, str | None]) -> str:
    """Return data as JSON: first some fields in any case, then the others that differ from their defaults."""
    rest = data.model_dump_json(exclude_defaults=True, exclude={*always})
    separator = "" if rest == "{}" else ","
    return f"{_ENCODER.encode(always)[:-1]}{separator}{rest[1:]}"


def holds_turn(row: Mapping[str, Any]) -> bool:
    """Return True if a row is a record or an evaluation of this package, and not one with a column named ``turn``."""
    return isinstance(row.get("turn"), Mapping)


_MAX_TRACKED_QUESTIONS = 50
_MAX_SYSTEMS = 20
# Columns that number repeats of one system.
_REPEATS = re.compile(r"run|repe|attempt|trial|seed|iter|round|sample|replic|time|date|index|number|_id\b|^id\b", re.I)


class Systems:
    """Finds the column that tells systems apart whose answers to the same questions are in one file.

    The first questions are tracked: a column that has one value for each answer to a question, and the same few values
    for all questions.
    """

    def __init__(self) -> None:
        self._answers: dict[str, list[Mapping[str, Any]]] = {}

    def add(self, record: Record) -> None:
        """Add a record."""
        question = record.turn.query.strip()
        if question in self._answers or len(self._answers) < _MAX_TRACKED_QUESTIONS:
            self._answers.setdefault(question, []).append(record.turn.metadata)

    def described(self) -> str | None:
        """Return what the user should know; None if one system answered."""
        repeated = [answers for answers in self._answers.values() if len(answers) > 1]
        for column in repeated[0][0] if repeated else ():
            values = [[str(answer.get(column)) for answer in answers] for answers in repeated]
            names = dict.fromkeys(name for question in values for name in question)
            is_distinct = all(len(set(question)) == len(question) for question in values)
            if is_distinct and len(names) == max(map(len, values)) <= _MAX_SYSTEMS and not _REPEATS.search(column):
                return (
                    f"answers to the same question differ in {column!r} ({listed(list(names))}) and count as repeats: "
                    f"if these are systems, rageval-hooks report --group-by {column} compares them"
                )
        return None


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names, with ``-2``, ``-3`` and so on appended to repeated ones; never the name of another item.

    Args:
        names: the given names; the first of several equal ones stays unchanged.
    """
    taken = set(names)
    seen: dict[str, int] = {}
    found = []
    for name in names:
        number = seen.get(name, 0) + 1
        new = name
        while number > 1 and (new := f"{name}-{number}") in taken:
            number += 1
        seen[name] = number
        taken.add(new)
        found.append(new)
    return found


# --------------------------------------------------------------------------- the rank of the target

# Names of the id in the metadata of vector stores and of test sets.
_METADATA_IDS = ("chunk_id", "id", "_id", "node_id", "passage_id", "doc_id")
_MIN_SHARE = 0.5
BETWEEN_TEXTS = "\n\n\n"
"""Separates several texts of a target: chunks have at most one blank line between paragraphs."""


def are_comparable(records: Sequence[Record]) -> bool:
    """Return True if the ids of target passages and those of retrieved passages can be compared.

    The ids of a test set that was generated from files are hashes, which no vector store knows. A target that is not
    found by such an id is unknown, not missed. Ids are comparable if a retrieved passage has the id of any target.
    """
    targets = {record.target for record in records}
    return any(_ids_of(passage) & targets for record in records for passage in record.turn.passages)


def place_target(record: Record, *, comparable: bool) -> Record:
    """Return a record with the rank of its target passage, or with the fact that it was missed.

    A rank that the record has already is kept. Without passages, and if neither the text of the target nor an id that
    is ``comparable`` is known, both stay unknown.
    """
    # Without passages it is not known what the retriever found.
    if record.rank is not None or record.missed or not record.has_target or not record.turn.passages:
        return record
    ranks = [target_rank(target.id, target.text, record.turn.passages) for target in record.targets]
    found = [rank for rank in ranks if rank is not None]
    # A multi-hop question needs all of its passages.
    if len(found) == len(ranks):
        return record.model_copy(update={"rank": max(found)})
    # Text can always be compared. An id that no store knows says nothing.
    is_known = comparable or all(target.text is not None for target in record.targets)
    return record.model_copy(update={"missed": True}) if is_known else record


def target_rank(target: str | None, text: str | None, passages: Sequence[Passage]) -> int | None:
    """Return the rank of the first passage that is the target.

    A passage is the target if it has the target's id, as its own or in its metadata; or if it holds the target's text,
    or at least half of it. White space, case and typographic variants make no difference.

    Args:
        target: id of the target.
        text: text of the target; several texts are separated by blank lines, and any of them counts.
        passages: what was retrieved, in order.

    Returns:
        The rank from 1; None if no passage is the target.
    """
    wanted = [part for part in map(_flat, (text or "").split(BETWEEN_TEXTS)) if part]
    for rank, passage in enumerate(passages, 1):
        if target is not None and target in _ids_of(passage):
            return rank
        found = _flat(passage.text) if wanted else ""
        for part in wanted:
            # Stores cut texts into other chunks. Most of the target is enough, a shared heading is not.
            if part in found or (len(found) >= _MIN_SHARE * len(part) and found in part):
                return rank
    return None


def _ids_of(passage: Passage) -> set[str]:
    """Return the ids that a passage has, its own and those in its metadata."""
    ids = [passage.id, *map(passage.metadata.get, _METADATA_IDS)]
    return {str(value) for value in ids if isinstance(value, (str, int, float))}


def _flat(text: str) -> str:
    return " ".join(fold(text).split())
