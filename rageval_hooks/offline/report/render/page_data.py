"""The data of a report's page: an index of all questions, and their details in compressed chunks.

A page with 10,000 questions holds about 50 MB of texts. They are deflated in chunks of 100 turns, which the page's
script inflates when a reader opens a question.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rageval_hooks.offline.report.build import Analysis
from rageval_hooks.offline.report.details import ShownTurn
from rageval_hooks.offline.report.model import FileReport
from rageval_hooks.text.formatting import flat, shorten, shown

__all__ = ["Chunk", "page_chunks", "page_index"]

_TURNS_PER_CHUNK = 100
_LONGEST_QUERY = 200
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
    names = list(dict.fromkeys(row.name for file in report.files for row in file.scores if row.spread))
    rows = {row.name: row for file in reversed(report.files) for row in file.scores}
    return {
        "files": [{"name": file.name, "runs": file.runs, "records": file.records} for file in report.files],
        "scores": [
            {
                "name": shown(name),
                "lower": rows[name].direction == "lower",
                "binary": rows[name].binary,
                "group": rows[name].group,
            }
            for name in names
        ],
        "columns": [names.index(name) for name in _first_columns(report.files, names)],
        "sort": names.index(ordering) if (ordering := report.files[0].worst_by) in names else None,
        "per_chunk": _TURNS_PER_CHUNK,
        "trace_url": trace_url,
    }


def page_chunks(analysis: Analysis) -> Iterator[Chunk]:
    """Yield the rows of each file (``rows-0``) and the details of its turns (``turns-0-0``, ``turns-0-1`` …)."""
    names = [row.name for file in analysis.report.files for row in file.scores if row.spread]
    names = list(dict.fromkeys(names))
    for index in range(len(analysis.report.files)):
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


def _first_columns(files: Sequence[FileReport], names: Sequence[str]) -> list[str]:
    """Return the scores that the table shows at first: those with the highest headline."""
    rows = {row.name: row for file in reversed(files) for row in file.scores}
    ranked = sorted(names, key=lambda name: (name != files[0].worst_by, -rows[name].headline))
    return ranked[:_SHOWN_COLUMNS]


def _row(turn: ShownTurn, names: Sequence[str]) -> list[Any]:
    """Return a row of the table: id, run, question, document, failed, unsupported sentences, values."""
    values = {score.name: score.value for score in turn.scores}
    doubtful = {
        sentence.text
        for evidence in turn.evidence
        for sentence in evidence.sentences
        if sentence.support == "unsupported"
    }
    return [
        flat(turn.id),
        turn.run,
        shorten(turn.query, _LONGEST_QUERY),
        flat(turn.document or ""),
        int(turn.error is not None),
        len(doubtful),
        [None if (value := values.get(name)) is None else float(f"{value:.6g}") for name in names],
    ]


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
