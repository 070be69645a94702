"""Files of scored records, made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rageval_hooks import ErrorInfo, Passage, Score, Skipped, Turn
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.records.writing import write_records

__all__ = ["judged", "record", "write"]


def record(
    id: str = "q1", run: int = 1, *results: Any, scores: Mapping[str, float] | None = None, **fields: Any
) -> Record:
    """Make a record; fields of the turn and of the record may be mixed."""
    own = {name: fields.pop(name) for name in ("target", "target_text", "rank", "missed", "document") if name in fields}
    passages = tuple(Passage(text=text, id=f"p{k}") for k, text in enumerate(fields.pop("passages", ("a passage",))))
    if error := fields.pop("error", None):
        fields |= {"status": "error", "error": ErrorInfo(type=error, message="it broke")}
    turn = Turn(query=fields.pop("query", f"question {id}"), passages=passages, **{"response": "an answer", **fields})
    made = [Score(name=name, value=value, metric=name.partition(".")[0]) for name, value in (scores or {}).items()]
    return Record(id=id, run=run, turn=turn, results=(*made, *results), **own)


_VALUES = {"good": 1.0, "doubtful": 0.5, "bad": 0.0}


def judged(id: str, verdict: str, cause: str | None = None, **fields: Any) -> Record:
    """Make a record with a verdict."""
    reason = f"“It is {id}.” has no support in passage 1"
    result: Any = Skipped(name="verdict", label=verdict, reason=reason, metric="verdict")
    if verdict in _VALUES:
        result = Score(name="verdict", value=_VALUES[verdict], label=verdict, explanation=reason, metric="verdict")
    result = result.model_copy(update={"cause": cause})
    return record(id, 1, result, response=f"It is {id}.", **fields)


def write(path: Path, records: Iterable[Record]) -> Path:
    """Write them."""
    write_records(path, records)
    return path
