"""Tables as open-rag-eval (seed 004) writes them: one row per question, its runs side by side, cells in JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rageval_hooks.offline.distinct import distinct
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.tables.layouts import Records
from rageval_hooks.score import Score, Target
from rageval_hooks.turn import Passage

__all__ = ["SCORE_COLUMNS", "has_place", "open_rag_eval_rows", "read_scores"]

Row = dict[str, Any]


def open_rag_eval_rows(records: Records) -> tuple[list[str], Iterator[Row]]:
    """Return the columns and the rows.

    Where a question was answered several times, each answer's columns begin with ``run_1_``, ``run_2_`` and so on. What
    is not known is an empty cell, which that tool's plots leave out.

    Args:
        records: the records; only ids are kept of them.
    """
    places: dict[str, list[int]] = {}
    runs = set()
    for position, record in enumerate(records()):
        places.setdefault(record.id, []).append(position)
        runs.add(record.run)
    if max(runs, default=1) == 1:
        return ["query_id", "query", *_CELLS], ({**_about(record), **_cells(record)} for record in records())
    header = ["query_id", "query", *(f"run_{run}_{name}" for run in sorted(runs) for name in _CELLS)]
    return header, _side_by_side(records([place for there in places.values() for place in there]))


def _side_by_side(records: Iterator[Record]) -> Iterator[Row]:
    for _, runs in groupby(records, key=lambda record: record.id):
        row: Row = {}
        for record in runs:
            row = row or _about(record)
            row.update({f"run_{record.run}_{name}": value for name, value in _cells(record).items()})
        yield row


def _about(record: Record) -> Row:
    return {"query_id": record.id, "query": record.turn.query}


def _cells(record: Record) -> Row:
    scores = {score.name: score.value for score in record.scores()}
    answer = _Answer(record, scores, passage_keys(record.turn.passages))
    return {name: cell for name, make in _CELLS.items() if (cell := make(answer)) is not None}


@dataclass(frozen=True)
class _Answer:
    record: Record
    scores: Mapping[str, float]
    keys: Sequence[str]


Cell = Callable[[_Answer], Any]


def _score(name: str) -> Cell:
    return lambda answer: answer.scores.get(name)


def _passages(answer: _Answer) -> str:
    return _json(dict(zip(answer.keys, (passage.text for passage in answer.record.turn.passages), strict=True)))


def _answer(answer: _Answer) -> str:
    return _json([{"text": answer.record.turn.response, "citations": []}])


def _grades(answer: _Answer) -> str | None:
    grades = {
        answer.keys[result.target.index]: int(result.value)
        for result in answer.record.results
        if isinstance(result, Score) and result.name == "umbrela" and result.target.index is not None
    }
    return _json(grades) if grades else None


def _precision(answer: _Answer) -> str | None:
    found: dict[str, Any] = {}
    for ours, theirs in (("precision@", "precision@"), ("ap@", "AP@")):
        values = {name.removeprefix(ours): value for name, value in answer.scores.items() if name.startswith(ours)}
        if values:
            found[theirs] = values
    if "mrr" in answer.scores:
        found["MRR"] = answer.scores["mrr"]
    return _json(found) if found else None


def _citation(answer: _Answer) -> str | None:
    prefix = "citation."
    found = {name.removeprefix(prefix): value for name, value in answer.scores.items() if name.startswith(prefix)}
    return _json(found) if found else None


def _nuggets(answer: _Answer) -> str | None:
    found = {theirs: answer.scores[ours] for ours, theirs in _NUGGETS.items() if ours in answer.scores}
    return _json({"nuggetizer_scores": found}) if found else None


def _answered(answer: _Answer) -> str | None:
    attempted = answer.scores.get("no_answer")
    return None if attempted is None else _json({"query_answered": "yes" if attempted >= 0.5 else "no"})


_NUGGETS = {
    f"nuggets.{name}": name.capitalize()
    for name in ("all", "vital", "weighted", "all_strict", "vital_strict", "weighted_strict")
}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_CELLS: dict[str, Cell] = {
    "retrieved_passages": _passages,
    "generated_answer": _answer,
    "retrieval_score_umbrela_scores": _grades,
    "retrieval_score_precision_metrics": _precision,
    "retrieval_score_mean_umbrela_score": _score("umbrela.mean"),
    "generation_score_autonugget_scores": _nuggets,
    "generation_score_mean_nugget_assignment_score": _score("nuggets.all"),
    "generation_score_vital_nuggetizer_score": _score("nuggets.vital"),
    "generation_score_hallucination_score": _score("hhem"),
    "generation_score_citation_scores": _citation,
    "generation_score_citation_f1_score": _score("citation.f1"),
    "generation_score_no_answer_score": _answered,
}

SCORE_COLUMNS = tuple(name for name in _CELLS if name not in ("retrieved_passages", "generated_answer"))
"""The columns that hold scores."""

_RANKS = "retrieval_score_precision_metrics"
_NAMES = {
    "retrieval_score_mean_umbrela_score": "umbrela.mean",
    "generation_score_mean_nugget_assignment_score": "nuggets.all",
    "generation_score_vital_nuggetizer_score": "nuggets.vital",
    "generation_score_hallucination_score": "hhem",
    "generation_score_citation_f1_score": "citation.f1",
    **{f"generation_score_citation_scores/{name}": f"citation.{name}" for name in ("precision", "recall", "f1")},
    **{f"generation_score_autonugget_scores/nuggetizer_scores/{theirs}": ours for ours, theirs in _NUGGETS.items()},
    f"{_RANKS}/MRR": "mrr",
}
_BY_RANK = re.compile(rf"{_RANKS}/(precision|AP)@/(\d+)")


def has_place(score: str) -> bool:
    """Whether a table of this kind has a column for a score of the whole turn."""
    return score in _NAMES.values() or score == "no_answer" or score.startswith(("precision@", "ap@"))


def passage_keys(passages: Sequence[Passage]) -> list[str]:
    """Return what each passage is called in a cell: its id, or its number; of several with the same one, its own."""
    order = sorted(range(len(passages)), key=lambda index: not passages[index].id)
    keys = distinct([passages[index].id or str(index + 1) for index in order])
    return [key for _, key in sorted(zip(order, keys, strict=True))]


def read_scores(cells: Mapping[str, Any], passages: Sequence[Passage]) -> tuple[Score, ...]:
    """Return the scores that the cells of an answer have; what is no number there is passed over.

    Args:
        cells: by the names of :data:`SCORE_COLUMNS`.
        passages: of the answer, which the grades are about.
    """
    numbers = {path: number for column in SCORE_COLUMNS for path, number in _numbers(cells.get(column), column)}
    grades = (
        Score(name="umbrela", value=numbers[path], target=Target(kind="passage", index=index, id=passages[index].id))
        for index, key in enumerate(passage_keys(passages))
        if (path := f"retrieval_score_umbrela_scores/{key}") in numbers
    )
    values = {name: number for path, number in numbers.items() if (name := _name(path)) is not None}
    wholes = (Score(name=name, value=number) for name, number in values.items())
    return (*grades, *wholes, *_attempt(cells.get("generation_score_no_answer_score")))


def _name(path: str) -> str | None:
    found = _BY_RANK.fullmatch(path)
    return f"{found[1].lower()}@{found[2]}" if found else _NAMES.get(path)


def _numbers(cell: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a cell and where they stand in it."""
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return
    if isinstance(cell, Mapping):
        for name, part in cell.items():
            if not isinstance(part, str):
                yield from _numbers(part, f"{path}/{name}")
    elif isinstance(cell, (int, float)) and not isinstance(cell, bool) and math.isfinite(cell):
        yield path, float(cell)


def _attempt(cell: Any) -> Iterator[Score]:
    """Yield whether a question was answered, as the metric says it."""
    try:
        said = (json.loads(cell) if isinstance(cell, str) else cell)["query_answered"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if said in ("yes", "no"):
        yield Score(name="no_answer", value=float(said == "yes"), label="answered" if said == "yes" else "declined")
