"""The tables of open-rag-eval: written with the runs of a question in columns, and read with a row per passage.

Its columns and their contents are described in docs/offline.md.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import Any

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.offline.distinct import distinct
from rageval_hooks.offline.records.columns import ALIASES
from rageval_hooks.offline.records.formats import BadRow, Row
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.tables import Records, Table
from rageval_hooks.offline.records.values import is_missing
from rageval_hooks.offline.rouge import rouge_pairs
from rageval_hooks.score import Score
from rageval_hooks.turn import Passage

Closeness = Callable[[Sequence[str]], Sequence[float]]
"""Returns how close each pair of some answers is, for example by BERTScore."""

_PASSAGES, _ANSWER = "retrieved_passages", "generated_answer"
_GRADES, _RANKS = "retrieval_score_umbrela_scores", "retrieval_score_precision_metrics"
_NUGGETS, _CITATIONS = "generation_score_autonugget_scores", "generation_score_citation_scores"
_NO_ANSWER = "generation_score_no_answer_score"

_NUMBERS = {
    "retrieval_score_mean_umbrela_score": "umbrela.mean",
    "generation_score_mean_nugget_assignment_score": "nuggets.all",
    "generation_score_vital_nuggetizer_score": "nuggets.vital",
    "generation_score_hallucination_score": "hhem",
    "generation_score_citation_f1_score": "citation.f1",
}
"""Column with a number → our name of the score."""

_SCORE_COLUMNS = (_GRADES, _RANKS, *_NUMBERS, _NUGGETS, _CITATIONS, _NO_ANSWER)
_OF_NUGGETS = tuple(
    f"nuggets.{name}" for name in ("all", "vital", "weighted", "all_strict", "vital_strict", "weighted_strict")
)
_OF_CITATIONS = ("citation.precision", "citation.recall", "citation.f1")

_ALL_RUNS = "consistency_"
"""The prefix of the columns about all runs of a question."""

_REPEATED = {column.partition("_score_")[2]: name for column, name in _NUMBERS.items()}
"""Their name of a score whose consistency is shown, such as ``hallucination_score`` → ours."""

_ROUGE, _BERT = "rouge_score", "bert_score"

# What its connectors write where the system gave no answer.
_NOTHING_SAID, _FAILED = "NO_ANSWER", "API_ERROR"


def has_place(score: str) -> bool:
    """Return True if a table of this kind has a column for a score of the whole turn."""
    if score in ("no_answer", "mrr") or score.startswith(("precision@", "ap@")):
        return True
    return score in _NUMBERS.values() or score in _OF_NUGGETS or score in _OF_CITATIONS


def open_rag_eval_table(records: Records, closeness: Closeness | None = None) -> Table:
    """Return the columns and the rows of a table with one row per question.

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
    # It finds the runs of a question by the numbers in the names of columns, also if there is one run.
    names = (_PASSAGES, _ANSWER, *_SCORE_COLUMNS)
    header = ["query_id", "query", *(f"run_{run}_{name}" for run in sorted(runs) or [1] for name in names)]
    if len(runs) > 1:
        compared = [*_REPEATED, _ROUGE, *([] if closeness is None else [_BERT])]
        header += [f"{_ALL_RUNS}{name}" for name in compared]
    no_grades = {f"run_{run}_{_GRADES}": "{}" for run in runs}
    ordered = records(list(chain.from_iterable(places.values())))
    questions = (list(found) for _, found in groupby(ordered, key=lambda record: record.id))
    return header, (no_grades | _row(found, closeness) for found in questions)


def _row(runs: Sequence[Record], closeness: Closeness | None) -> dict[str, Any]:
    """Return the row of a question with all its runs."""
    row: dict[str, Any] = {"query_id": runs[0].id, "query": runs[0].turn.query}
    for record in runs:
        row |= {f"run_{record.run}_{name}": cell for name, cell in _cells(record).items() if cell not in (None, {})}
    for name, score in _REPEATED.items():
        values = [found.value for record in runs for found in record.scores() if found.name == score]
        if len(values) > 1:
            row[f"{_ALL_RUNS}{name}"] = _consistency(values)
    # A failed turn may have half an answer, which would look like an inconsistent one.
    answers = [record.turn.response.strip() for record in runs if record.turn.status == "ok"]
    answers = [answer for answer in answers if answer]
    if len(answers) > 1:
        # Without the package for ROUGE its column is empty; the others need no package.
        with suppress(MissingDependencyError):
            pairs = [pair["rougeL"].fmeasure for pair in rouge_pairs(answers).pairs]
            if pairs:
                row[f"{_ALL_RUNS}{_ROUGE}"] = _consistency(pairs)
        if closeness is not None and (found := closeness(answers)):
            row[f"{_ALL_RUNS}{_BERT}"] = _consistency(found)
    return {name: _json(cell) if isinstance(cell, (dict, list)) else cell for name, cell in row.items()}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _consistency(values: Sequence[float]) -> dict[str, Any]:
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
    return {"values": list(values), "stats": stats}


def _cells(record: Record) -> dict[str, Any]:
    """Return the cells of an answer; None or an empty object for what is not known."""
    scores = {score.name: score.value for score in record.scores()}
    keys = _passage_keys(record.turn.passages)
    grades = {
        keys[result.target.index]: int(result.value)
        for result in record.results
        if isinstance(result, Score) and result.name == "umbrela" and result.target.index is not None
    }
    ranks: dict[str, Any] = {
        theirs: {name.removeprefix(ours): value for name, value in scores.items() if name.startswith(ours)}
        for theirs, ours in (("precision@", "precision@"), ("AP@", "ap@"))
    }
    ranks["MRR"] = scores.get("mrr")
    attempted = scores.get("no_answer")
    citations = {
        name.removeprefix("citation."): value for name, value in scores.items() if name.startswith("citation.")
    }
    for name in citations.keys() & {"precision", "recall"}:
        citations[f"weighted_{name}"] = citations.pop(name)
    return {
        _PASSAGES: _json(dict(zip(keys, (passage.text for passage in record.turn.passages), strict=True))),
        _ANSWER: [{"text": record.turn.response, "citations": []}],
        _GRADES: grades,
        _RANKS: {name: value for name, value in ranks.items() if value not in (None, {})},
        _NUGGETS: _nuggets_cell(record, scores),
        _CITATIONS: citations,
        # The score is 1 for an attempt and 0 for a refusal.
        _NO_ANSWER: None if attempted is None else {"query_answered": "yes" if attempted >= 0.5 else "no"},
        **{column: scores.get(name) for column, name in _NUMBERS.items()},
    }


def _nuggets_cell(record: Record, scores: Mapping[str, float]) -> dict[str, Any]:
    """Return the scores and, if the file has them, the nuggets with their labels and assignments."""
    # "nuggets.all_strict" is "All Strict" there.
    found = {
        name.removeprefix("nuggets.").replace("_", " ").title(): scores[name] for name in _OF_NUGGETS if name in scores
    }
    if not found:
        return {}
    # The details are the same in each of the six scores.
    details = (score.metadata.get("nuggets") for score in record.scores() if score.name in _OF_NUGGETS)
    nuggets = next((value for value in details if isinstance(value, list) and value), [])
    parts = {"nuggets": "text", "labels": "importance", "assignments": "support"}
    lists = {theirs: [nugget.get(ours) for nugget in nuggets] for theirs, ours in parts.items()} if nuggets else {}
    return {"nuggetizer_scores": found, **lists}


def _passage_keys(passages: Sequence[Passage]) -> list[str]:
    """Return what each passage is called in a cell: its id, or its number. Repeated ids get a number."""
    # Ids come first, so that a number never takes the name of another passage's id.
    order = sorted(range(len(passages)), key=lambda index: not passages[index].id)
    keys = distinct([passages[index].id or str(index + 1) for index in order])
    return [key for _, key in sorted(zip(order, keys, strict=True))]


def is_long(columns: Iterable[str]) -> bool:
    """Return True for a table with one row per passage, as its connectors write it."""
    names = set(columns)
    # With a column of all passages, "passage" is something else.
    return names >= {"passage", _ANSWER} and names.isdisjoint(ALIASES["passages"])


def joined_rows(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Join successive rows of the same question and run."""
    number = 0
    for key, group in groupby(rows, key=_question_and_run):
        found = list(group)
        data = [row.data for row in found if isinstance(row, Row)]
        if key is None or not data:
            yield from found
            continue
        number += 1
        joined = {name: value for name, value in data[0].items() if name not in ("passage", "passage_id", _ANSWER)}
        # Connectors repeat the answer in each row, or write it once.
        answer = next((row[_ANSWER] for row in data if not is_missing(row[_ANSWER])), "")
        joined["response"] = "" if answer in (_NOTHING_SAID, _FAILED) else answer
        if answer == _FAILED:
            joined["error"] = answer
        joined["passages"] = [
            {"text": str(row["passage"]), "id": row.get("passage_id")} for row in data if not is_missing(row["passage"])
        ]
        yield Row(found[0].line, joined, number)


def _question_and_run(row: Row | BadRow) -> tuple[Any, Any] | None:
    return (
        None
        if isinstance(row, BadRow)
        else (row.data.get("query_id", row.data.get("query")), row.data.get("query_run"))
    )
