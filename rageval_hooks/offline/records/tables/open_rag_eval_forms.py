"""Reading open-rag-eval's tables: one row per passage, or one per question with its runs next to each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rageval_hooks.offline.records.cells import is_missing
from rageval_hooks.offline.records.columns import ALIASES
from rageval_hooks.offline.records.from_columns import record_from_row
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow, Row, split_rows
from rageval_hooks.offline.records.tables.open_rag_eval import CONSISTENCY, SCORE_COLUMNS
from rageval_hooks.offline.records.tables.open_rag_eval_scores import of_each_run, read_scores
from rageval_hooks.runtime.selecting import entries_except, entries_under

__all__ = ["has_their_scores", "is_long", "is_wide", "long_rows", "their_record", "wide_rows"]

# A column of one run: "run_2_generated_answer" is the answer of run 2.
_RUN = re.compile(r"run_(\d+)_(.+)")
# The evaluator of golden answers repeats the expected answer in each run.
_REFERENCE = "generation_score_expected_answer"
_NO_ANSWER = "NO_ANSWER"
_API_ERROR = "API_ERROR"
_PER_PASSAGE = ("passage", "passage_id", "generated_answer")


def is_long(columns: Iterable[str]) -> bool:
    """Return True for a table with one row per passage, as open-rag-eval's connectors write it."""
    names = set(columns)
    if not names >= {"passage", "generated_answer"}:
        return False
    # With a column of all passages, "passage" is something else.
    return names.isdisjoint(ALIASES["passages"])


def is_wide(columns: Iterable[str]) -> bool:
    """Return True for a table with the runs of a question next to each other, as open-rag-eval's scores have them."""
    # "run_1_generated_answer" has a number before the name.
    return any(name != "generated_answer" and _without_run(name) == "generated_answer" for name in columns)


def has_their_scores(columns: Iterable[str]) -> bool:
    """Return True for a table with scores in open-rag-eval's columns, of one run or of several."""
    names = list(columns)
    about_all = any(name.startswith(CONSISTENCY) for name in names)
    return about_all or not set(SCORE_COLUMNS).isdisjoint(map(_without_run, names))


def _without_run(column: str) -> str:
    """Return the name of a column without its run; the name of a column of all runs unchanged."""
    found = _RUN.fullmatch(column)
    return found[2] if found else column


def long_rows(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Join successive rows of the same question and run."""
    number = 0
    group: list[Row] = []
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        if group and _key(group[0].data) != _key(row.data):
            number += 1
            yield _joined(group, number)
            group = []
        group.append(row)
    if group:
        yield _joined(group, number + 1)


def _key(row: Mapping[str, Any]) -> tuple[Any, Any]:
    question = row.get("query_id", row.get("query"))
    return question, row.get("query_run")


def _joined(group: list[Row], number: int) -> Row:
    first = group[0].data
    data = entries_except(first, *_PER_PASSAGE)
    answer = _answer(group)
    # Connectors write these words where the system gave no answer.
    data["response"] = "" if answer in (_NO_ANSWER, _API_ERROR) else answer
    if answer == _API_ERROR:
        data["error"] = answer
    data["passages"] = [_passage(row.data) for row in group if not is_missing(row.data["passage"])]
    return Row(group[0].line, data, number)


def _answer(group: list[Row]) -> Any:
    """Return the first answer in the rows: connectors repeat it in each, or write it once."""
    answers = [row.data["generated_answer"] for row in group]
    return next((answer for answer in answers if not is_missing(answer)), "")


def _passage(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"text": str(row["passage"]), "id": row.get("passage_id")}


def wide_rows(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Split rows into one for each run that has an answer."""
    return split_rows(rows, _answered_runs)


def _answered_runs(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    about = entries_under(row, ("query_id", "query"))
    runs = {run: cells for run, cells in _runs(row).items() if not is_missing(cells.get("generated_answer"))}
    for (run, cells), scores in zip(runs.items(), of_each_run(row, len(runs)), strict=True):
        yield {**about, **_run_row(run, {**scores, **cells})}


def _run_row(run: int, cells: Mapping[str, Any]) -> dict[str, Any]:
    scores = entries_under(cells, SCORE_COLUMNS)
    row = {"run": run, "response": cells["generated_answer"], "passages": cells.get("retrieved_passages"), **scores}
    reference = cells.get(_REFERENCE)
    return row if is_missing(reference) else {**row, "reference": reference}


def _runs(row: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    runs: dict[int, dict[str, Any]] = {}
    for name, value in row.items():
        if found := _RUN.fullmatch(name):
            runs.setdefault(int(found[1]), {})[found[2]] = value
    # A table that was merged from several has its columns in any order; values over all runs are in that of the runs.
    return dict(sorted(runs.items()))


def their_record(row: Mapping[str, Any], name: str, required: tuple[str, ...]) -> Record:
    """Return a record with the scores that a table in open-rag-eval's layout has for it.

    Raises:
        TurnError: a value does not fit its column.
    """
    rest = entries_except(row, *SCORE_COLUMNS)
    record = record_from_row(rest, name, required, table=True)
    return record.model_copy(update={"results": read_scores(row, record.turn.passages)})
