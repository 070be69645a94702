"""Tables as open-rag-eval (seed 004) writes them: one row per question, its runs side by side, cells in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from rageval_hooks.offline.records import Record
from rageval_hooks.score import Score

__all__ = ["Records", "open_rag_eval_rows"]

Row = dict[str, Any]


class Records(Protocol):
    """Returns records anew each time it is called: a table needs to know its columns before its rows."""

    def __call__(self, order: Sequence[int] | None = None, /) -> Iterator[Record]:
        """Return the records, or those at some positions, in that order."""


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
    answer = _Answer(record, {score.name: score.value for score in record.scores()})
    return {name: cell for name, make in _CELLS.items() if (cell := make(answer)) is not None}


@dataclass(frozen=True)
class _Answer:
    record: Record
    scores: Mapping[str, float]

    def passage_key(self, index: int) -> str:
        return self.record.turn.passages[index].id or str(index + 1)


Cell = Callable[[_Answer], Any]


def _score(name: str) -> Cell:
    return lambda answer: answer.scores.get(name)


def _passages(answer: _Answer) -> str:
    return _json({answer.passage_key(index): passage.text for index, passage in enumerate(answer.record.turn.passages)})


def _answer(answer: _Answer) -> str:
    return _json([{"text": answer.record.turn.response, "citations": []}])


def _grades(answer: _Answer) -> str | None:
    grades = {
        answer.passage_key(result.target.index): int(result.value)
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
    names = {
        "all": "All",
        "vital": "Vital",
        "weighted": "Weighted",
        "all_strict": "All_strict",
        "vital_strict": "Vital_strict",
        "weighted_strict": "Weighted_strict",
    }
    found = {
        theirs: answer.scores[f"nuggets.{ours}"] for ours, theirs in names.items() if f"nuggets.{ours}" in answer.scores
    }
    return _json({"nuggetizer_scores": found}) if found else None


def _answered(answer: _Answer) -> str | None:
    attempted = answer.scores.get("no_answer")
    return None if attempted is None else _json({"query_answered": "yes" if attempted >= 0.5 else "no"})


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
