"""Tables with a form of their own: open-rag-eval's, by passage or with runs side by side, and ours with scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.aliases import ALIASES, is_missing, record_from_row
from rageval_hooks.offline.native_columns import FIXED, LABEL, OPTIONAL, REASON
from rageval_hooks.offline.records import Record
from rageval_hooks.offline.rows import BadRow, Row
from rageval_hooks.score import Failed, Result, Score, Skipped

__all__ = ["is_long", "is_native", "is_wide", "long_rows", "native_record", "wide_rows"]

_RUN = re.compile(r"run_(\d+)_(.+)")
_NO_ANSWER = "NO_ANSWER"
_API_ERROR = "API_ERROR"


def is_long(columns: Iterable[str]) -> bool:
    """Whether a table has one row per passage, as open-rag-eval's connectors write it."""
    names = set(columns)
    return "passage" in names and "generated_answer" in names and not names.intersection(ALIASES["passages"])


def is_wide(columns: Iterable[str]) -> bool:
    """Whether a table has the runs of a question side by side, as open-rag-eval's scores have them."""
    return any((found := _RUN.fullmatch(name)) and found[2] == "generated_answer" for name in columns)


def is_native(columns: list[str]) -> bool:
    """Whether a table is one of ours."""
    return tuple(columns[: len(FIXED)]) == FIXED


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
    """Cut rows into one for each run; their scores are left out."""
    number = 0
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        for run, cells in _runs(row.data).items():
            if not is_missing(cells.get("generated_answer")):
                number += 1
                names = ("query_id", "query")
                data = {name: row.data[name] for name in names if name in row.data}
                passages = cells.get("retrieved_passages")
                yield Row(
                    row.line, {**data, "run": run, "response": cells["generated_answer"], "passages": passages}, number
                )


def _runs(row: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    runs: dict[int, dict[str, Any]] = {}
    for name, value in row.items():
        if found := _RUN.fullmatch(name):
            runs.setdefault(int(found[1]), {})[found[2]] = value
    return runs


def native_record(row: Mapping[str, Any], number: int, required: tuple[str, ...]) -> Record:
    """Return a record with the scores that a table of ours has for it.

    Raises:
        TurnError: a value is none of its column.
    """
    known = {name: row[name] for name in (*FIXED, *OPTIONAL) if name in row}
    rank = known.pop("rank", None)
    record = record_from_row(known, number, required)
    names = dict.fromkeys(name.removesuffix(LABEL).removesuffix(REASON) for name in row if name not in known)
    names.pop("rank", None)
    results = tuple(result for name in names if (result := _result(name, row)) is not None)
    return record.model_copy(update={"results": results, "rank": None if is_missing(rank) else _whole(rank)})


def _whole(value: Any) -> int:
    try:
        return int(float(value))
    except (TypeError, ValueError):
        raise TurnError(f"the rank is {value!r}, not a whole number") from None


def _result(name: str, row: Mapping[str, Any]) -> Result | None:
    value, reason = row.get(name), str(row.get(name + REASON) or "")
    if not is_missing(value):
        label = row.get(name + LABEL)
        try:
            return Score(name=name, value=float(value), label=None if is_missing(label) else label)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise TurnError(f"{name} is {value!r}, not a number") from None
    if reason.startswith("failed: "):
        kind, _, message = reason.removeprefix("failed: ").partition(": ")
        return Failed(name=name, error_type=kind or "Error", message=message)
    return Skipped(name=name, reason=reason.removeprefix("skipped: ")) if reason else None
