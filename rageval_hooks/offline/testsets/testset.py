"""Test sets: questions with their reference answers, and the passages that hold these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.offline.records.columns import ColumnMap, Fields, canonical, find_columns
from rageval_hooks.offline.records.formats import BadRow
from rageval_hooks.offline.records.reading import READ_AS_IS, ReadOptions, RowSource
from rageval_hooks.offline.records.record import Record, TargetText, distinct, holds_turn
from rageval_hooks.offline.records.rows import about_question, explain, query_in, reference_in
from rageval_hooks.offline.records.values import passages_in
from rageval_hooks.offline.records.writing import atomic_file, check_output
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.runtime.literals import unpacked
from rageval_hooks.runtime.narrowing import is_missing, text_or_none

COLUMNS = ("question", "ground_truth_answer", "chunk_id", "document", "style", "chunk")
"""The columns of a test set as a table. ``chunk`` is the text by which the passage is found in any vector store."""

_GOLDEN = frozenset({"answer", "answers", "output", "outputs", "completion"})
"""Columns that hold an answer. In a test set it is the golden one."""


_SPECIAL = ("answerable", "more_chunks", "second_look")
"""Further columns of a table, if a question of the test set is unanswerable, multi-hop or marked."""


class GoldenQuestion(Data):
    """One question of a test set.

    Attributes:
        id: the same whenever question and chunk are the same.
        question: the question.
        reference: an answer that is known to be good; None if the test set has no such answer.
        chunk_id: id of the chunk that holds the answer; None if it is not known.
        document: source document of the chunk.
        style: how the question is asked.
        chunk: text of the chunk.
        more_chunks: the further chunks that the answer to a multi-hop question needs.
        answerable: False if the documents do not answer the question, so that a refusal is the right answer.
        second_look: ``unanswered`` if a second look found no answer in the chunk that the question was written from.
    """

    id: Text
    question: Text
    # As the column is named in files.
    reference: Text | None = Field(default=None, serialization_alias="ground_truth_answer")
    chunk_id: Text | None = None
    document: Text | None = None
    style: Text | None = None
    chunk: Text | None = None
    answerable: bool = True
    more_chunks: tuple[TargetText, ...] = ()
    second_look: Text | None = None


def question_id(question: str, chunk_id: str | None) -> str:
    """Return the id of a question for which the test set has no id."""
    return blake2b(f"{chunk_id or ''}\n{question}".encode(), digest_size=8).hexdigest()


def read_questions(
    path: Path, options: ReadOptions = READ_AS_IS, *, note: Callable[[str], object] = lambda _: None
) -> tuple[list[GoldenQuestion], list[BadRow]]:
    """Read a test set, or any file with questions.

    Args:
        path: the file. Column names are those of turns; only the question is required.
        options: how to read it.
        note: called with each choice that the user should know.

    Returns:
        The questions in their order, each with a unique id, and the rows without a question. A question of which the
        file has several runs is returned once.

    Raises:
        ConfigurationError: there is no such file, its format is not known, or there is no question in it.
        TurnError: the column with the question is missing, or the file cannot be read.
    """
    questions: list[GoldenQuestion] = []
    bad: list[BadRow] = []
    runs: dict[tuple[str, str], set[int]] = {}
    source = RowSource(path, options)
    for line in source.notes:
        note(line)
    # Only the first rows are checked: a later row without a question is a bad row.
    sample = [row for row in source.sample if not holds_turn(row)]
    columns = find_columns(f"{path}: ", sample, ("query",), options.columns)
    for row in source:
        if isinstance(row, BadRow):
            bad.append(row)
            continue
        try:
            question, run = _of_row(row.data, columns)
        except (ValidationError, TurnError) as error:
            bad.append(BadRow(row.line, explain(error), dict(row.data)))
            continue
        before = runs.setdefault((question.id, question.question), set())
        # Another run of the same question adds nothing; the same run again is another question with the same id.
        if not before or run in before:
            questions.append(question)
        before.add(run)
    if not questions:
        why = f": line {bad[0].line}: {bad[0].reason}" if bad else ": it is empty"
        raise ConfigurationError(f"there is no question in {path}{why}")
    # Two questions with the same id could not be told apart in a run.
    ids = distinct([question.id for question in questions])
    return [question.model_copy(update={"id": new}) for question, new in zip(questions, ids, strict=True)], bad


def _of_row(row: Mapping[str, Any], columns: ColumnMap) -> tuple[GoldenQuestion, int]:
    """Return the question of a row, and the number of the run that the row is."""
    if holds_turn(row):
        record = Record.model_validate(row)
        if not record.turn.query.strip():
            raise TurnError("the question is empty")
        question = GoldenQuestion(
            id=record.id,
            question=record.turn.query,
            reference=record.turn.reference,
            chunk_id=record.target,
            document=record.document,
            style=text_or_none(record.turn.metadata.get("style")),
            chunk=record.target_text,
            answerable=record.answerable,
            more_chunks=record.more_targets,
            second_look=text_or_none(record.turn.metadata.get("second_look")),
        )
        return question, record.run
    fields = columns.take(row)
    query = query_in(fields.get("query"))
    if not query.strip():
        raise TurnError("the question is empty")
    about = about_question(fields)
    chunk_id, chunk = about.pop("target"), about.pop("target_text")
    if not chunk:
        try:
            passages = passages_in(fields.get("passages"))
        except TurnError:
            passages = []
        # The question was written from the only passage. Of several it is not known which one holds the answer.
        chunk = passages[0].text if len(passages) == 1 else None
    run = about.pop("run")
    is_named = not is_missing(fields.get("id"))
    question = GoldenQuestion(
        id=str(fields.get("id")).strip() if is_named else question_id(query.strip(), chunk_id),
        question=query,
        reference=_reference(fields),
        chunk_id=chunk_id,
        chunk=chunk,
        style=text_or_none(fields.rest.get("style")),
        second_look=text_or_none(fields.rest.get("second_look")),
        more_chunks=_more_chunks(fields.rest.get("more_chunks")),
        **about,
    )
    return question, run


def _reference(fields: Fields) -> str | None:
    """Return the golden answer. Only the question is required, so an answer in an unknown form is no error."""
    # In a test set a column "answer" is the golden answer, not one of a system.
    for name in ("reference", "response"):
        value = fields.get(name)
        column = canonical(fields.columns.get(name, "").partition(".")[0])
        if is_missing(value) or (name == "response" and column not in _GOLDEN):
            continue
        try:
            return reference_in(value)
        except TurnError:
            continue
    return None


def _more_chunks(value: Any) -> tuple[TargetText, ...]:
    """Return the further chunks of a multi-hop question.

    Raises:
        TurnError: the value is not a list of objects with ``id``, ``text`` or both.
    """
    value = unpacked(value)
    if is_missing(value):
        return ()
    try:
        return tuple(TargetText.model_validate(item) for item in value)
    except (TypeError, ValidationError):
        raise TurnError("more_chunks must be a list of objects with id, text and document") from None


def write_questions(path: Path, questions: Iterable[GoldenQuestion]) -> None:
    """Write a test set, as a whole or not at all: as a table with :data:`COLUMNS`, or as JSON Lines with everything.

    Raises:
        OSError: the file cannot be written.
    """
    output_format = check_output(path)
    rows = [
        question.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude_none=True)
        for question in questions
    ]
    special = [name for name in _SPECIAL if any(name in row for row in rows)]
    if output_format.has_columns:
        # A table has a word for each question, and lists as JSON.
        for row in rows:
            if "answerable" in special:
                row["answerable"] = "true" if row.get("answerable", True) else "false"
            if "more_chunks" in row:
                row["more_chunks"] = json.dumps(row["more_chunks"], ensure_ascii=False)
    with atomic_file(path) as file:
        output_format.write(file, rows, (*COLUMNS, *special))
