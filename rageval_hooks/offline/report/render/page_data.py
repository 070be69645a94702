"""The data of a report's page: an index of all questions, and their details in compressed chunks.

A page with 10,000 questions holds about 50 MB of texts. They are deflated in chunks of 100 turns, which the page's
script inflates when a reader opens a question.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rageval_hooks.offline.report.build import Analysis
from rageval_hooks.offline.report.details import ShownTurn
from rageval_hooks.offline.report.model import FileReport, ScoreRow
from rageval_hooks.text.formatting import flat, shorten, shown

__all__ = ["Chunk", "page_chunks", "page_index"]

# Small enough to inflate without a pause, large enough to compress well.
_TURNS_PER_CHUNK = 100

# Characters. The table cuts questions anyway; their details have the whole text.
_LONGEST_QUERY = 200

# More columns of scores do not fit on a laptop; a reader can add them.
_SHOWN_COLUMNS = 4


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Compressed data of a page: its id in the page, and base64 of deflated JSON."""

    id: str
    text: str


def page_index(analysis: Analysis, trace_url: str | None) -> dict[str, Any]:
    """Return what the page's script has to know before anything is opened, except for the rows.

    Args:
        analysis: the report and its turns.
        trace_url: address of a trace with ``{trace_id}`` in it, or None.
    """
    report = analysis.report
    rows = _score_rows(report.files)
    names = list(rows)
    ordering = report.files[0].worst_by
    return {
        "files": [{"name": file.name, "runs": file.runs, "records": file.records} for file in report.files],
        "scores": [_column(row) for row in rows.values()],
        "columns": [names.index(name) for name in _first_columns(rows, ordering)],
        "sort": names.index(ordering) if ordering in rows else None,
        "per_chunk": _TURNS_PER_CHUNK,
        "trace_url": trace_url,
    }


def page_chunks(analysis: Analysis) -> Iterator[Chunk]:
    """Yield the rows of each file (``rows-0``) and the details of its turns (``turns-0-0``, ``turns-0-1`` …)."""
    names = list(_score_rows(analysis.report.files))
    for index in range(len(analysis.report.files)):
        # Rows are small and all needed to sort the table; details wait until a chunk is full.
        rows: list[list[Any]] = []
        waiting: list[dict[str, Any]] = []
        for turn in analysis.turns(index):
            rows.append(_row(turn, names))
            waiting.append(_details(turn))
            if len(waiting) == _TURNS_PER_CHUNK:
                yield _pack(f"turns-{index}-{len(rows) // _TURNS_PER_CHUNK - 1}", waiting)
                waiting = []
        if waiting:
            yield _pack(f"turns-{index}-{len(rows) // _TURNS_PER_CHUNK}", waiting)
        yield _pack(f"rows-{index}", rows)


def _score_rows(files: Sequence[FileReport]) -> dict[str, ScoreRow]:
    """Return the scores that have values, each with its row in the first file that has it."""
    rows: dict[str, ScoreRow] = {}
    for file in files:
        for row in file.scores:
            if row.spread is not None:
                rows.setdefault(row.name, row)
    return rows


def _column(row: ScoreRow) -> dict[str, Any]:
    return {"name": shown(row.name), "lower": row.direction == "lower", "binary": row.binary, "group": row.group}


def _first_columns(rows: Mapping[str, ScoreRow], ordering: str | None) -> list[str]:
    """Return the scores that the table shows at first: the ordering one, then those with the highest headline."""
    ranked = sorted(rows, key=lambda name: (name != ordering, -rows[name].headline))
    return ranked[:_SHOWN_COLUMNS]


def _row(turn: ShownTurn, names: Sequence[str]) -> list[Any]:
    """Return a row of the table: id, run, question, document, failed, unsupported sentences, values."""
    values = {score.name: score.value for score in turn.scores}
    return [
        flat(turn.id),
        turn.run,
        shorten(turn.query, _LONGEST_QUERY),
        flat(turn.document or ""),
        int(turn.error is not None),
        _count_unsupported(turn),
        [_rounded(values.get(name)) for name in names],
    ]


def _count_unsupported(turn: ShownTurn) -> int:
    # Several metrics may find fault with the same sentence: it counts once.
    found: set[str] = set()
    for evidence in turn.evidence:
        found.update(sentence.text for sentence in evidence.sentences if sentence.support == "unsupported")
    return len(found)


def _rounded(value: float | None) -> float | None:
    # Six digits are more than the table shows, and half the bytes.
    return None if value is None else float(f"{value:.6g}")


def _details(turn: ShownTurn) -> dict[str, Any]:
    return turn.model_dump(mode="json", exclude_defaults=True)


def _pack(name: str, data: Any) -> Chunk:
    text = json.dumps(_clean(data), separators=(",", ":"), ensure_ascii=False)
    return Chunk(id=name, text=base64.b64encode(zlib.compress(text.encode(), 6)).decode())


def _clean(value: Any) -> Any:
    """Return data with pictures in place of control characters."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return value
