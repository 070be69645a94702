"""Writing files as a whole or not at all: records as JSON Lines, or as a table in one of two layouts."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from rageval_hooks.errors import ConfigurationError, MissingDependencyError
from rageval_hooks.offline.records.formats import FileFormat, writable_format
from rageval_hooks.offline.records.record import Record, distinct
from rageval_hooks.offline.records.rows import (
    CAUSE,
    FIXED_COLUMNS,
    LABEL,
    OPTIONAL_COLUMNS,
    PROBABILITY,
    REASON,
    is_known_score,
)
from rageval_hooks.offline.rouge import rouge_pairs
from rageval_hooks.score import Score, is_about_turn

Table = tuple[list[str], Iterator[Mapping[str, Any]]]
"""The header and the rows."""


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` when the block ends. If the block fails, ``path`` stays unchanged.

    The new file has the permissions of the old one. If there was none, only its owner may read it: it holds texts.

    Raises:
        OSError: the folder cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link stays a link
    # The temporary file is in the same folder, because a rename works only within a file system.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            # Without it a crash after the rename could leave an empty file.
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(temporary, target.stat().st_mode & 0o777)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_records(path: str | os.PathLike[str], records: Iterable[Record]) -> int:
    """Write records as JSON Lines, as a whole or not at all, and return their number.

    Raises:
        OSError: the file cannot be written.
    """
    count = 0
    with atomic_file(path) as file:
        for record in records:
            file.write(record.to_json().encode() + b"\n")
            count += 1
    return count


def check_output(path: Path) -> FileFormat:
    """Return the format of an output, and check that it can be written.

    Raises:
        ConfigurationError: the format is not known, the path is a folder, or its folder does not exist.
    """
    found = writable_format(path)
    check_place("the output", path)
    return found


def check_place(what: str, path: Path) -> None:
    """Check, before any work, that a file can be written: an hour of work should not end with a wrong name.

    Args:
        what: the file is, for the message.
        path: the file.

    Raises:
        ConfigurationError: it is a folder, or its folder does not exist.
    """
    if path.is_dir():
        raise ConfigurationError(f"{what} {path} is a folder: give the name of a file")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"{what} {path} cannot be written: there is no folder {path.parent}")


def write_output(
    path: Path, records: Sequence[Record], columns: str = "native", *, lines: Iterable[bytes] | None = None
) -> None:
    """Write records to a file, as a whole or not at all.

    Args:
        path: the file; its suffix says the format.
        records: the records, which need not be in memory.
        columns: layout of a table, ``native`` or ``open-rag-eval``.
        lines: the records as JSON, if they are at hand in that form, for JSON Lines.

    Raises:
        OSError: the file cannot be written.
    """
    output_format = check_output(path)
    with atomic_file(path) as file:
        if output_format.has_columns:
            header, rows = our_table(records) if columns == "native" else open_rag_eval_table(records)
            output_format.write(file, rows, header)
            return
        for line in (record.to_json().encode() for record in records) if lines is None else lines:
            file.write(line + b"\n")


# --------------------------------------------------------------------------- our own tables


def our_table(records: Sequence[Record]) -> Table:
    """Return the header and the rows of a table with one row per answer.

    Each score of a whole turn has a column of its name. Next to it are ``<name>.label`` if there are labels,
    ``<name>.cause`` for a verdict, ``<name>.probability`` if turns were sampled, and ``<name>.reason`` if some scores
    are missing. A score of a metric that is not ours always has one of these: it distinguishes the score from other
    columns when the table is read.
    """
    # The header needs all records, so they are read twice: results do not fit into memory.
    about: set[str] = set()
    names: dict[str, None] = {}
    columns: set[str] = set()
    for record in records:
        about.update(name for name, value in _about(record).items() if value is not None)
        names.update(dict.fromkeys(result.name for result in record.results if is_about_turn(result)))
        columns.update(cells(record))
    header = [*FIXED_COLUMNS, *(name for name in OPTIONAL_COLUMNS if name in about)]
    for name in names:
        if not is_known_score(name) and name + LABEL not in columns:
            columns.add(name + REASON)
        header += [name + suffix for suffix in ("", LABEL, CAUSE, PROBABILITY, REASON) if name + suffix in columns]
    return header, map(row_of, records)


def row_of(record: Record) -> dict[str, Any]:
    """Return all cells of an answer by column; None for what it does not have."""
    return _about(record) | cells(record)


def _about(record: Record) -> dict[str, Any]:
    error = record.turn.error
    return {
        "id": record.id,
        "run": record.run,
        "query": record.turn.query,
        "response": record.turn.response,
        "reference": record.turn.reference,
        "target": record.target,
        "rank": record.rank,
        "missed": record.missed or None,
        "document": record.document,
        "answerable": None if record.answerable else False,
        "error": None if error is None else f"{error.type}: {error.message}",
    }


def cells(record: Record) -> dict[str, Any]:
    """Return what a table has of the results of the whole turn: values, labels, probabilities, reasons by column."""
    found: dict[str, Any] = {}
    for result in filter(is_about_turn, record.results):
        name = result.name
        if isinstance(result, Score):
            found[name] = result.value
            # Without sampling, a column of ones would say nothing.
            if result.probability != 1:
                found[name + PROBABILITY] = result.probability
        else:
            found[name + REASON] = f"{result.status}: {result.reason}"
        # A verdict without a number is skipped, and says so: "declined".
        if result.label is not None:
            found[name + LABEL] = result.label
        if result.cause is not None:
            found[name + CAUSE] = result.cause
    return found


# --------------------------------------------------------------------------- tables of open-rag-eval

# Its columns and their contents are described in docs/offline.md.

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

_ROUGE = "rouge_score"


def has_place(score: str) -> bool:
    """Return True if a table of this kind has a column for a score of the whole turn."""
    if score in ("no_answer", "mrr") or score.startswith(("precision@", "ap@")):
        return True
    return score in _NUMBERS.values() or score in _OF_NUGGETS or score in _OF_CITATIONS


def open_rag_eval_table(records: Sequence[Record]) -> Table:
    """Return the columns and the rows of a table with one row per question.

    Each answer's columns begin with ``run_1_``, ``run_2_`` and so on. Where a question was answered several times, the
    columns ``consistency_…`` say how much a score differs. What is not known is an empty cell, which that tool's plots
    ignore; its viewer fails on an empty cell of grades, so that one is ``{}``.
    """
    # Records do not fit into memory: only their ids are kept.
    places: dict[str, list[int]] = {}
    runs = set()
    for position, record in enumerate(records):
        places.setdefault(record.id, []).append(position)
        runs.add(record.run)
    # It finds the runs of a question by the numbers in the names of columns, also if there is one run.
    names = (_PASSAGES, _ANSWER, *_SCORE_COLUMNS)
    header = ["query_id", "query", *(f"run_{run}_{name}" for run in sorted(runs) or [1] for name in names)]
    if len(runs) > 1:
        header += [f"{_ALL_RUNS}{name}" for name in (*_REPEATED, _ROUGE)]
    no_grades = {f"run_{run}_{_GRADES}": "{}" for run in runs}
    return header, (no_grades | _row([records[position] for position in found]) for found in places.values())


def _row(runs: Sequence[Record]) -> dict[str, Any]:
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
            pairs = [pair["rougeL"] for pair in rouge_pairs(answers)]
            if pairs:
                row[f"{_ALL_RUNS}{_ROUGE}"] = _consistency(pairs)
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
    # What each passage is called: its id, or its number. Ids come first, so that a number never takes the name of
    # another passage's id.
    passages = record.turn.passages
    order = sorted(range(len(passages)), key=lambda index: not passages[index].id)
    names = distinct([passages[index].id or str(index + 1) for index in order])
    keys = [key for _, key in sorted(zip(order, names, strict=True))]
    ranks: dict[str, Any] = {
        theirs: {name.removeprefix(ours): value for name, value in scores.items() if name.startswith(ours)}
        for theirs, ours in (("precision@", "precision@"), ("AP@", "ap@"))
    }
    ranks["MRR"] = scores.get("mrr")
    citations = {name.removeprefix("citation."): scores[name] for name in _OF_CITATIONS if name in scores}
    attempted = scores.get("no_answer")
    return {
        _PASSAGES: _json(dict(zip(keys, (passage.text for passage in passages), strict=True))),
        _ANSWER: [{"text": record.turn.response, "citations": []}],
        _GRADES: {
            keys[result.target.index]: int(result.value)
            for result in record.results
            if isinstance(result, Score) and result.name == "umbrela" and result.target.index is not None
        },
        _RANKS: {name: value for name, value in ranks.items() if value not in (None, {})},
        _NUGGETS: _nuggets_cell(record, scores),
        _CITATIONS: {name if name == "f1" else f"weighted_{name}": value for name, value in citations.items()},
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
    parts = {"nuggets": "text", "labels": "importance", "assignments": "support"} if nuggets else {}
    lists = {theirs: [nugget.get(ours) for nugget in nuggets] for theirs, ours in parts.items()}
    return {"nuggetizer_scores": found, **lists}
