"""The tables of open-rag-eval: its connectors' rows by passage, and its results with the runs of a question in columns.

Its columns and their contents are described in docs/offline.md.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import Any

from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.offline.distinct import distinct
from rageval_hooks.offline.records.columns import ALIASES
from rageval_hooks.offline.records.formats.base import BadRow, Row
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.rows import record_from_row
from rageval_hooks.offline.records.tables import Records, Table
from rageval_hooks.offline.records.values import is_missing, is_number
from rageval_hooks.offline.rouge import rouge_pairs
from rageval_hooks.score import Score, Target
from rageval_hooks.turn import Passage

Closeness = Callable[[Sequence[str]], Sequence[float]]
"""Returns how close each pair of some answers is, for example by BERTScore."""

_PASSAGES, _ANSWER = "retrieved_passages", "generated_answer"
_GRADES, _RANKS = "retrieval_score_umbrela_scores", "retrieval_score_precision_metrics"
_NUGGETS, _CITATIONS = "generation_score_autonugget_scores", "generation_score_citation_scores"
_NO_ANSWER = "generation_score_no_answer_score"
# The evaluator of golden answers repeats the expected answer in each run.
_REFERENCE = "generation_score_expected_answer"

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

# A column of one run: "run_2_generated_answer" is the answer of run 2.
_RUN = re.compile(r"run_(\d+)_(.+)")
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


def is_wide(columns: Iterable[str], row: Mapping[str, Any]) -> bool:
    """Return True for a table with the runs of a question next to each other, and for its JSON report.

    Args:
        columns: the columns of the table.
        row: the first row.
    """
    runs = row.get("runs")
    if isinstance(runs, list) and runs and all(isinstance(run, Mapping) and _ANSWER in run for run in runs):
        return True
    return any(name != _ANSWER and _without_run(name) == _ANSWER for name in columns)


def has_scores(columns: Iterable[str]) -> bool:
    """Return True for a table with scores in its columns."""
    return not set(_SCORE_COLUMNS).isdisjoint(columns)


def _without_run(column: str) -> str:
    found = _RUN.fullmatch(column)
    return found[2] if found else column


def joined_rows(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Join successive rows of the same question and run."""
    number = 0
    group: list[Row] = []
    for row in chain(rows, (None,)):
        if isinstance(row, BadRow):
            yield row
            continue
        if group and (row is None or _key(group[0].data) != _key(row.data)):
            number += 1
            yield _joined(group, number)
            group = []
        if row is not None:
            group.append(row)


def _key(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get("query_id", row.get("query")), row.get("query_run")


def _joined(group: Sequence[Row], number: int) -> Row:
    data = {name: value for name, value in group[0].data.items() if name not in ("passage", "passage_id", _ANSWER)}
    # Connectors repeat the answer in each row, or write it once.
    answer = next((row.data[_ANSWER] for row in group if not is_missing(row.data[_ANSWER])), "")
    data["response"] = "" if answer in (_NOTHING_SAID, _FAILED) else answer
    if answer == _FAILED:
        data["error"] = answer
    found = [row.data for row in group if not is_missing(row.data["passage"])]
    data["passages"] = [{"text": str(row["passage"]), "id": row.get("passage_id")} for row in found]
    return Row(group[0].line, data, number)


def runs_of(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each run that has an answer, with the columns of a table with one run."""
    runs: dict[int, Any] = {}
    if isinstance(row.get("runs"), list):
        # Its JSON report has the runs in a list, and what is about all of them in an object.
        runs = {number: run for number, run in enumerate(row["runs"], 1) if isinstance(run, Mapping)}
        about_all = _parsed(row.get("consistency"))
    else:
        for name, value in row.items():
            if match := _RUN.fullmatch(name):
                runs.setdefault(int(match[1]), {})[match[2]] = value
        # A merged table has its columns in any order; values over all runs are in that of the runs.
        runs = dict(sorted(runs.items()))
        about_all = {name.removeprefix(_ALL_RUNS): cell for name, cell in row.items() if name.startswith(_ALL_RUNS)}
    answered = {run: cells for run, cells in runs.items() if not is_missing(cells.get(_ANSWER))}
    # Its consistency file has the values of a score over the runs in one cell, and no columns of the single runs.
    scores: list[dict[str, Any]] = [{} for _ in answered]
    for column in _NUMBERS:
        values = (_parsed((about_all or {}).get(column.partition("_score_")[2])) or {}).get("values")
        if isinstance(values, list) and len(values) == len(answered) and all(map(is_number, values)):
            for cells, value in zip(scores, values, strict=True):
                cells[column] = value
    for (run, cells), own in zip(answered.items(), scores, strict=True):
        about = {name: row[name] for name in ("query_id", "query") if name in row}
        given = {name: cells[name] for name in _SCORE_COLUMNS if name in cells}
        about |= {"run": run, _ANSWER: cells[_ANSWER], _PASSAGES: cells.get(_PASSAGES), **own, **given}
        yield about if is_missing(cells.get(_REFERENCE)) else {**about, "reference": cells[_REFERENCE]}


def record_of(row: Mapping[str, Any], name: str, required: tuple[str, ...]) -> Record:
    """Return a record with the scores that a table in this layout has for it.

    Raises:
        TurnError: a value does not fit its column.
    """
    rest = {column: value for column, value in row.items() if column not in _SCORE_COLUMNS}
    record = record_from_row(rest, name, required)
    return record.model_copy(update={"results": tuple(_scores_in(row, record.turn.passages))})


def _scores_in(row: Mapping[str, Any], passages: Sequence[Passage]) -> Iterator[Score]:
    cells = {column: _parsed(row.get(column)) for column in _SCORE_COLUMNS}
    grades = _numbers(cells[_GRADES])
    for index, key in enumerate(_passage_keys(passages)):
        if key in grades:
            target = Target(kind="passage", index=index, id=passages[index].id)
            yield Score(name="umbrela", value=grades[key], target=target)
    # Several columns repeat a score: the mean nugget score is also in the cell of all nugget scores.
    values = {name: cells[column] for column, name in _NUMBERS.items()}
    ranks = cells[_RANKS] if isinstance(cells[_RANKS], Mapping) else {}
    for theirs in ("precision@", "AP@"):
        values |= {f"{theirs.lower()}{rank}": value for rank, value in _numbers(ranks.get(theirs)).items()}
    values["mrr"] = ranks.get("MRR")
    nuggets = cells[_NUGGETS].get("nuggetizer_scores") if isinstance(cells[_NUGGETS], Mapping) else None
    for theirs, value in _numbers(nuggets).items():
        values[f"nuggets.{theirs.lower().replace(' ', '_')}"] = value
    for theirs, value in _numbers(cells[_CITATIONS]).items():
        values[f"citation.{theirs.removeprefix('weighted_')}"] = value
    for name, value in values.items():
        if is_number(value) and has_place(name):
            yield Score(name=name, value=value)
    said = cells[_NO_ANSWER].get("query_answered") if isinstance(cells[_NO_ANSWER], Mapping) else None
    if said in ("yes", "no"):
        yield Score(name="no_answer", value=float(said == "yes"), label="answered" if said == "yes" else "declined")


def _numbers(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): item for key, item in value.items() if is_number(item)}


def _parsed(cell: Any) -> Any:
    """Return what a cell holds as JSON: objects in JSON, and numbers, which CSV has as text."""
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return None
