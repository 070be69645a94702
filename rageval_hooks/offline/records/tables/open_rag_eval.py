"""Tables as open-rag-eval (seed 004) writes them: one row per question, its runs side by side, cells in JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.offline.distinct import distinct
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.tables.layouts import Closeness, Records
from rageval_hooks.offline.rouge import rouge_pairs
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.score import Score
from rageval_hooks.turn import Passage

__all__ = [
    "CITATION_NAMES",
    "CONSISTENCY",
    "NUGGET_NAMES",
    "REPEATED",
    "SCORE_COLUMNS",
    "open_rag_eval_rows",
    "passage_keys",
]

Row = dict[str, Any]

_GRADES = "retrieval_score_umbrela_scores"
_NO_GRADES = "{}"


def open_rag_eval_rows(records: Records, closeness: Closeness | None = None) -> tuple[list[str], Iterator[Row]]:
    """Return the columns and the rows.

    Each answer's columns begin with ``run_1_``, ``run_2_`` and so on. Where a question was answered several times, the
    columns ``consistency_…`` say how much a score differs. What is not known is an empty cell, which that tool's plots
    ignore; its viewer fails on an empty cell of grades, so that one is ``{}``.

    Args:
        records: the records; only ids are kept of them.
        closeness: compares repeated answers for ``consistency_bert_score``; None omits that column.
    """
    places: dict[str, list[int]] = {}
    runs = set()
    for position, record in enumerate(records()):
        places.setdefault(record.id, []).append(position)
        runs.add(record.run)
    # open-rag-eval finds the runs of a question by the numbers in the names of columns, also if there is one run.
    header = ["query_id", "query", *(f"run_{run}_{name}" for run in sorted(runs) or [1] for name in _CELLS)]
    if len(runs) > 1:
        names = [*REPEATED, _ROUGE, *([] if closeness is None else [_BERT])]
        header += [f"{CONSISTENCY}{name}" for name in names]
    order = list(chain.from_iterable(places.values()))
    no_grades = {f"run_{run}_{_GRADES}": _NO_GRADES for run in runs}
    rows = _side_by_side(records(order), closeness)
    return header, (no_grades | row for row in rows)


def _side_by_side(records: Iterator[Record], closeness: Closeness | None) -> Iterator[Row]:
    for _, runs in groupby(records, key=lambda record: record.id):
        yield _row(list(runs), closeness)


def _row(runs: Sequence[Record], closeness: Closeness | None) -> Row:
    """Return the row of a question with all its runs."""
    row = _about(runs[0])
    for record in runs:
        row.update(_with_prefix(f"run_{record.run}_", _cells(record)))
    values = {name: _values(runs, score) for name, score in REPEATED.items()}
    cells = {name: _consistency(found) for name, found in values.items() if len(found) > 1}
    cells |= {name: _consistency(found) for name, found in _similarities(runs, closeness).items() if found}
    row.update(_with_prefix(CONSISTENCY, cells))
    return row


def _similarities(runs: Sequence[Record], closeness: Closeness | None) -> dict[str, Sequence[float]]:
    """Return how similar the answers to one question are, pair by pair."""
    # A failed turn may have half an answer, which would look like an inconsistent one.
    answers = [record.turn.response.strip() for record in runs if record.turn.status == "ok"]
    answers = [answer for answer in answers if answer]
    if len(answers) < 2:
        return {}
    found: dict[str, Sequence[float]] = {}
    # Without the package for ROUGE its column is empty; the others need no package.
    with suppress(MissingDependencyError):
        found[_ROUGE] = [pair["rougeL"].fmeasure for pair in rouge_pairs(answers).pairs]
    if closeness is not None:
        found[_BERT] = closeness(answers)
    return found


def _with_prefix(prefix: str, cells: Row) -> Row:
    return {prefix + name: value for name, value in cells.items()}


def _values(runs: Iterable[Record], score: str) -> list[float]:
    """Return the values of one score in all runs."""
    scores = chain.from_iterable(record.scores() for record in runs)
    return [found.value for found in scores if found.name == score]


def _consistency(values: Sequence[float]) -> str:
    """Return a score's values over the runs of a question, and how much they differ, as that tool defines it."""
    mean, deviation = statistics.fmean(values), statistics.pstdev(values)
    # Two answers are one pair, and one value has no quartiles.
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [mean] * 3
    stats = {
        "mean": mean,
        "median": statistics.median(values),
        "std": deviation,
        "max_min": max(values) - min(values),
        "iqr": upper - lower,
        "consistency_adjusted_index": mean / (1 + deviation),
    }
    return _json({"values": list(values), "stats": stats})


def _about(record: Record) -> Row:
    return {"query_id": record.id, "query": record.turn.query}


def _cells(record: Record) -> Row:
    scores = {score.name: score.value for score in record.scores()}
    answer = _Answer(record, scores, passage_keys(record.turn.passages))
    cells = {name: make(answer) for name, make in _CELLS.items()}
    return {name: cell for name, cell in cells.items() if cell is not None}


@dataclass(frozen=True)
class _Answer:
    record: Record
    scores: Mapping[str, float]
    keys: Sequence[str]

    def below(self, prefix: str) -> dict[str, float]:
        """Return the scores whose names have a prefix, by the rest of their names."""
        return {name.removeprefix(prefix): value for name, value in self.scores.items() if name.startswith(prefix)}


Cell = Callable[[_Answer], Any]


def _score(name: str) -> Cell:
    return lambda answer: answer.scores.get(name)


def _passages(answer: _Answer) -> str:
    texts = [passage.text for passage in answer.record.turn.passages]
    return _json(dict(zip(answer.keys, texts, strict=True)))


def _answer(answer: _Answer) -> str:
    return _json([{"text": answer.record.turn.response, "citations": []}])


def _grades(answer: _Answer) -> str | None:
    """Return the grades of single passages: ``{"d1": 3, "d2": 0}``."""
    grades: dict[str, int] = {}
    for result in answer.record.results:
        if isinstance(result, Score) and result.name == "umbrela" and result.target.index is not None:
            grades[answer.keys[result.target.index]] = int(result.value)
    return _json_or_none(grades)


def _precision(answer: _Answer) -> str | None:
    """Return scores by rank: ``{"precision@": {"5": 0.8}, "AP@": {"5": 0.7}, "MRR": 1.0}``."""
    found: dict[str, Any] = {}
    if precision := answer.below("precision@"):
        found["precision@"] = precision
    if average := answer.below("ap@"):
        found["AP@"] = average
    if "mrr" in answer.scores:
        found["MRR"] = answer.scores["mrr"]
    return _json_or_none(found)


def _citation(answer: _Answer) -> str | None:
    found = answer.below("citation.")
    return _json_or_none({CITATION_NAMES.get(name, name): value for name, value in found.items()})


def _nuggets(answer: _Answer) -> str | None:
    """Return the scores and, if the file has them, the nuggets with their labels and assignments."""
    found = {theirs: answer.scores[ours] for ours, theirs in NUGGET_NAMES.items() if ours in answer.scores}
    if not found:
        return None
    cell: dict[str, Any] = {"nuggetizer_scores": found}
    nuggets = _assigned_nuggets(answer)
    if nuggets:
        cell["nuggets"] = [nugget.get("text") for nugget in nuggets]
        cell["labels"] = [nugget.get("importance") for nugget in nuggets]
        cell["assignments"] = [nugget.get("support") for nugget in nuggets]
    return _json(cell)


def _assigned_nuggets(answer: _Answer) -> list[Mapping[str, Any]]:
    """Return the nuggets in the details of a score, the same in each of the six scores."""
    for score in answer.record.scores():
        nuggets = score.metadata.get("nuggets")
        if score.name in NUGGET_NAMES and isinstance(nuggets, list):
            return list(map(mapping_or_empty, nuggets))
    return []


def _answered(answer: _Answer) -> str | None:
    attempted = answer.scores.get("no_answer")
    if attempted is None:
        return None
    # The score is 1 for an attempt and 0 for a refusal.
    return _json({"query_answered": "yes" if attempted >= 0.5 else "no"})


NUGGET_NAMES = {
    # "nuggets.all_strict" is "All Strict" there.
    f"nuggets.{name}": name.replace("_", " ").title()
    for name in ("all", "vital", "weighted", "all_strict", "vital_strict", "weighted_strict")
}


CITATION_NAMES = {"precision": "weighted_precision", "recall": "weighted_recall"}
"""The end of our name of a citation score → theirs."""

REPEATED = {
    "mean_umbrela_score": "umbrela.mean",
    "mean_nugget_assignment_score": "nuggets.all",
    "vital_nuggetizer_score": "nuggets.vital",
    "hallucination_score": "hhem",
    "citation_f1_score": "citation.f1",
}
"""Their name of a score whose consistency is shown → ours."""

CONSISTENCY = "consistency_"
"""The prefix of the columns about all runs of a question."""

_ROUGE = "rouge_score"
_BERT = "bert_score"


def _json_or_none(value: Mapping[str, Any]) -> str | None:
    """Return an object as JSON; None for an empty one, so that the cell stays empty."""
    return _json(value) if value else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_CELLS: dict[str, Cell] = {
    "retrieved_passages": _passages,
    "generated_answer": _answer,
    _GRADES: _grades,
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


def passage_keys(passages: Sequence[Passage]) -> list[str]:
    """Return what each passage is called in a cell: its id, or its number. Repeated ids get a number."""
    # Ids come first, so that a number never takes the name of another passage's id.
    order = sorted(range(len(passages)), key=lambda index: not passages[index].id)
    keys = distinct([passages[index].id or str(index + 1) for index in order])
    return [key for _, key in sorted(zip(order, keys, strict=True))]
