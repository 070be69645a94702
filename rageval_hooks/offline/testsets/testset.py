"""Test sets: questions with their reference answers, and the chunks that hold these."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.offline.distinct import distinct
from rageval_hooks.offline.records.aliases import check_columns, explain, has_column, is_missing, record_from_row
from rageval_hooks.offline.records.files import atomic_file
from rageval_hooks.offline.records.record import Record, holds_turn
from rageval_hooks.offline.records.rows import BadRow, Row, columns_of, read_rows
from rageval_hooks.runtime.jsonable import Data, Text

__all__ = ["COLUMNS", "GoldenQuestion", "check_output", "question_id", "read_questions", "write_questions"]

COLUMNS = ("question", "ground_truth_answer", "chunk_id", "document")
"""The columns of a test set as CSV."""

_CHUNK_KEYS = ("chunk", "chunk_text", "target_text")


class GoldenQuestion(Data):
    """One question of a test set.

    Attributes:
        id: the same wherever question and chunk are the same.
        question: the question.
        reference: the answer that is known to be good; None if there is none.
        chunk_id: the chunk that holds the answer; None if it is not known.
        document: the chunk's source document.
        style: how the question is asked.
        chunk: the chunk's text.
    """

    id: Text
    question: Text
    reference: Text | None = None
    chunk_id: Text | None = None
    document: Text | None = None
    style: Text | None = None
    chunk: Text | None = None

    def row(self) -> dict[str, Any]:
        """Return it under the names that stand in files; what is not known is left out."""
        fields = {
            "id": self.id,
            "question": self.question,
            "ground_truth_answer": self.reference,
            "chunk_id": self.chunk_id,
            "document": self.document,
            "style": self.style,
            "chunk": self.chunk,
        }
        return {name: value for name, value in fields.items() if value is not None}


def question_id(question: str, chunk_id: str | None) -> str:
    """Return the id of a question that has none of its own."""
    return blake2b(f"{chunk_id or ''}\n{question}".encode(), digest_size=8).hexdigest()


def read_questions(path: Path) -> tuple[list[GoldenQuestion], list[BadRow]]:
    """Read a test set, or any file with questions: JSON Lines, JSON, CSV or Parquet.

    Args:
        path: the file; names of columns as for turns, of which only the question is needed.

    Returns:
        The questions in their order, each with an id of its own, and the rows that are none. Of records of several
        runs, each question once.

    Raises:
        ConfigurationError: there is no such file, its format is not known, or there is no question in it.
        TurnError: the column with the question is missing, or the file cannot be read.
    """
    columns = columns_of(path)
    table = columns is not None
    rows = list(read_rows(path))
    good = [row for row in rows if isinstance(row, Row)]
    if columns is None and good and not any(holds_turn(row.data) for row in good):
        columns = list(dict.fromkeys(name for row in good for name in row.data))
    if columns is not None:
        _check(path, columns)
    questions: list[GoldenQuestion] = []
    bad: list[BadRow] = []
    runs: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        if isinstance(row, BadRow):
            bad.append(row)
            continue
        try:
            question, run = _question(row, table)
        except (TurnError, ValidationError) as error:
            reason = explain(error) if isinstance(error, ValidationError) else str(error)
            bad.append(BadRow(row.line, reason, dict(row.data)))
            continue
        before = runs.setdefault((question.id, question.question), set())
        if not before or run in before:
            questions.append(question)
        before.add(run)
    if not questions:
        why = f": line {bad[0].line}: {bad[0].reason}" if bad else ": it is empty"
        raise ConfigurationError(f"there is no question in {path}{why}")
    ids = distinct([question.id for question in questions])
    return [question.model_copy(update={"id": new}) for question, new in zip(questions, ids, strict=True)], bad


def _check(path: Path, columns: Iterable[str]) -> None:
    try:
        check_columns(columns, ("query",))
    except TurnError as error:
        raise TurnError(f"{path}: {error}") from None


def _question(row: Row, table: bool) -> tuple[GoldenQuestion, int]:
    """Return the question of a row, and which of its runs the row is, in records of an earlier command."""
    ours = holds_turn(row.data)
    name = str(row.number)
    record = Record.model_validate(row.data) if ours else record_from_row(row.data, name, ("query",), table=table)
    turn = record.turn
    if not turn.query.strip():
        raise TurnError("the question is empty")
    chunk = next((turn.metadata[key] for key in _CHUNK_KEYS if isinstance(turn.metadata.get(key), str)), None)
    if chunk is None and not ours and len(turn.passages) == 1:
        chunk = turn.passages[0].text
    style = turn.metadata.get("style")
    named = ours or has_column("id", (name for name, value in row.data.items() if not is_missing(value)))
    question = GoldenQuestion(
        id=record.id if named else question_id(turn.query, record.target),
        question=turn.query,
        reference=turn.reference,
        chunk_id=record.target,
        document=record.document,
        style=style if isinstance(style, str) and style else None,
        chunk=chunk,
    )
    return question, record.run


def check_output(path: Path, endings: Iterable[str]) -> None:
    """Check, before any work, that an output can be written.

    Raises:
        ConfigurationError: its name has another ending, it is a folder, or its own folder is missing.
    """
    endings = tuple(endings)
    if path.suffix.lower() not in endings:
        raise ConfigurationError(f"--output ends in {' or '.join(endings)}, not {path.name!r}")
    if path.is_dir():
        raise ConfigurationError(f"--output {path} is a folder: name a file")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--output: there is no folder {path.parent}")


def write_questions(path: Path, questions: Iterable[GoldenQuestion]) -> None:
    """Write a test set, whole or not at all: as CSV with :data:`COLUMNS`, or as JSON Lines with all there is.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_file(path) as file:
        if path.suffix.lower() != ".csv":
            for question in questions:
                file.write(json.dumps(question.row(), ensure_ascii=False).encode() + b"\n")
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        table = csv.DictWriter(text, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(question.row() for question in questions)
        text.detach()
