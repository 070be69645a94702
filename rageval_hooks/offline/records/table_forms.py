"""Tables with a form of their own: open-rag-eval's, by passage or with runs side by side, and ours with scores."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.aliases import ALIASES, has_column, is_missing, record_from_row
from rageval_hooks.offline.records.native_columns import FIXED, LABEL, OPTIONAL, PROBABILITY, REASON, is_known_score
from rageval_hooks.offline.records.open_rag_eval import SCORE_COLUMNS, read_scores
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import BadRow, Row
from rageval_hooks.score import Failed, Result, Score, Skipped

__all__ = [
    "has_their_scores",
    "is_long",
    "is_native",
    "is_wide",
    "long_rows",
    "native_record",
    "numeric_columns",
    "their_record",
    "wide_rows",
]

_RUN = re.compile(r"run_(\d+)_(.+)")
_NO_ANSWER = "NO_ANSWER"
_API_ERROR = "API_ERROR"
_ABOUT = frozenset((*FIXED, *OPTIONAL))


def is_long(columns: Iterable[str]) -> bool:
    """Whether a table has one row per passage, as open-rag-eval's connectors write it."""
    names = set(columns)
    return "passage" in names and "generated_answer" in names and not names.intersection(ALIASES["passages"])


def is_wide(columns: Iterable[str]) -> bool:
    """Whether a table has the runs of a question side by side, as open-rag-eval's scores have them."""
    return any((found := _RUN.fullmatch(name)) and found[2] == "generated_answer" for name in columns)


def is_native(columns: Sequence[str]) -> bool:
    """Whether a table is one of ours: these have no passages."""
    return tuple(columns[: len(FIXED)]) == FIXED and not has_column("passages", columns)


def has_their_scores(columns: Iterable[str]) -> bool:
    """Whether a table has scores in open-rag-eval's columns, of one run or of several."""
    return any(_plain_name(name) in SCORE_COLUMNS for name in columns)


def _plain_name(column: str) -> str:
    found = _RUN.fullmatch(column)
    return found[2] if found else column


def long_rows(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Put rows together that follow one another and are of one question and run."""
    number = 0
    group: list[Row] = []
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        if group and not _same(group[0].data, row.data):
            number += 1
            yield _joined(group, number)
            group = []
        group.append(row)
    if group:
        yield _joined(group, number + 1)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    key = "query_id" if "query_id" in one else "query"
    return (one.get(key), one.get("query_run")) == (other.get(key), other.get("query_run"))


def _joined(group: list[Row], number: int) -> Row:
    first = group[0].data
    answer = next((row.data["generated_answer"] for row in group if not is_missing(row.data["generated_answer"])), "")
    data = {name: value for name, value in first.items() if name not in ("passage", "passage_id", "generated_answer")}
    data["response"] = "" if answer in (_NO_ANSWER, _API_ERROR) else answer
    if answer == _API_ERROR:
        data["error"] = answer
    data["passages"] = [
        {"text": str(row.data["passage"]), "id": row.data.get("passage_id")}
        for row in group
        if not is_missing(row.data["passage"])
    ]
    return Row(group[0].line, data, number)


def wide_rows(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Cut rows into one for each run."""
    number = 0
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        for run, cells in _runs(row.data).items():
            if not is_missing(cells.get("generated_answer")):
                number += 1
                data = {name: row.data[name] for name in ("query_id", "query") if name in row.data}
                data |= {"run": run, "response": cells["generated_answer"], "passages": cells.get("retrieved_passages")}
                data |= {name: cells[name] for name in SCORE_COLUMNS if name in cells}
                yield Row(row.line, data, number)


def _runs(row: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    runs: dict[int, dict[str, Any]] = {}
    for name, value in row.items():
        if found := _RUN.fullmatch(name):
            runs.setdefault(int(found[1]), {})[found[2]] = value
    return runs


def their_record(row: Mapping[str, Any], name: str, required: tuple[str, ...]) -> Record:
    """Return a record with the scores that a table of open-rag-eval, or ours in its form, has for it.

    Raises:
        TurnError: a value is none of its column.
    """
    rest = {column: value for column, value in row.items() if column not in SCORE_COLUMNS}
    record = record_from_row(rest, name, required, table=True)
    return record.model_copy(update={"results": read_scores(row, record.turn.passages)})


def native_record(row: Mapping[str, Any], name: str, required: tuple[str, ...], scores: Collection[str] = ()) -> Record:
    """Return a record with the scores that a table of ours has for it; a column that somebody added is metadata.

    Args:
        row: values by column.
        name: the record's id if it has none.
        required: fields whose columns must be there.
        scores: columns that are scores, whatever stands beside them.

    Raises:
        TurnError: a value is none of its column.
    """
    names = _scores_of(row, scores)
    taken = {"rank", *names}
    rest = {column: value for column, value in row.items() if not taken & {column, _score_of(column)}}
    record = record_from_row(rest, name, required, table=True)
    results = tuple(result for score in names if (result := _result(score, row)) is not None)
    rank = row.get("rank")
    return record.model_copy(update={"results": results, "rank": None if is_missing(rank) else _whole(rank)})


def _scores_of(row: Mapping[str, Any], named: Collection[str] = ()) -> dict[str, None]:
    """Return the names of the scores in a table, in order: what we know, was named, or has our columns beside it."""
    names = dict.fromkeys([*map(_score_of, row), *row])
    return dict.fromkeys(name for name in names if name not in _ABOUT and (name in named or _is_score(name, row)))


def numeric_columns(names: Iterable[str], rows: Iterable[Row | BadRow]) -> frozenset[str]:
    """Return which of some columns may be scores: they hold numbers, in every row that has something there."""
    left, found = {name for name in names if name not in _ABOUT}, set[str]()
    for data in (row.data for row in rows if isinstance(row, Row)):
        there = {name for name in left if not is_missing(data.get(name))}
        found |= there
        left -= {name for name in there if not _is_number(data[name])}
    return frozenset(left & found)


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _is_score(name: str, row: Mapping[str, Any]) -> bool:
    return name + REASON in row or (name in row and (is_known_score(name) or name + LABEL in row))


def _score_of(column: str) -> str:
    """Return the score that a column is of, or is about."""
    return next((column.removesuffix(end) for end in (LABEL, REASON, PROBABILITY) if column.endswith(end)), column)


def _whole(value: Any) -> int:
    try:
        return int(float(value))
    except (TypeError, ValueError):
        raise TurnError(f"the rank is {value!r}, not a whole number") from None


def _result(name: str, row: Mapping[str, Any]) -> Result | None:
    value: Any = row.get(name)
    reason = str(row.get(name + REASON) or "")
    if not is_missing(value):
        label, probability = row.get(name + LABEL), row.get(name + PROBABILITY)
        try:
            return Score(
                name=name,
                value=float(value),
                label=None if is_missing(label) else str(label),
                probability=1.0 if is_missing(probability) else float(str(probability)),
            )
        except (TypeError, ValueError):
            raise TurnError(f"{name} is {value!r}, not a number") from None
    if reason.startswith("failed: "):
        kind, _, message = reason.removeprefix("failed: ").partition(": ")
        return Failed(name=name, error_type=kind or "Error", message=message)
    return Skipped(name=name, reason=reason.removeprefix("skipped: ")) if reason.startswith("skipped: ") else None
