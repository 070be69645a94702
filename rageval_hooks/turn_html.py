"""A turn with its scores as HTML, for notebooks. Every text is escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from rageval_hooks.turn import Passage, Turn

__all__ = ["ScoreRow", "turn_html", "unsupported_in"]

# A sentence whose number is below this is shown as not supported; reports use the same.
_UNSUPPORTED = 0.5
_LONGEST = 4_000
# Half-transparent colours are readable on light and dark pages.
_MARK = "background:rgba(230,60,60,.3);color:inherit"
_FAIL = "color:#c33;font-weight:bold"
_TEXT = "white-space:pre-wrap;max-width:60em"


class ScoreRow(NamedTuple):
    """A row of the table of scores."""

    name: str
    value: str
    label: str
    reason: str


def unsupported_in(metadata: Mapping[str, Any]) -> list[str]:
    """Return the texts of the sentences and facts that a score calls unsupported in its metadata."""
    found = [item["text"] for item in _items(metadata, "sentences") if _is_unsupported(item)]
    found += [item["text"] for item in _items(metadata, "missing")]
    return [text for text in found if isinstance(text, str) and text]


def _items(metadata: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    given = metadata.get(key)
    if not isinstance(given, list):
        return []
    return [item for item in given if isinstance(item, Mapping) and "text" in item]


def _is_unsupported(item: Mapping[str, Any]) -> bool:
    # Judges give a verdict on each sentence, formulas a number.
    if "fully_supported" in item:
        return not item["fully_supported"]
    value = item.get("score")
    return isinstance(value, (int, float)) and value < _UNSUPPORTED


def turn_html(turn: Turn, scores: Sequence[ScoreRow], unsupported: Iterable[str]) -> str:
    """Return a turn as HTML: question, answer with marks, scores, passages.

    Args:
        turn: the turn.
        scores: the rows of the table of scores.
        unsupported: parts of the answer that are marked.
    """
    rows = "".join(map(_row, scores))
    reference = "" if turn.reference is None else _paragraph("Reference", escape(_cut(turn.reference)))
    passages = "".join(_passage(number, passage) for number, passage in enumerate(turn.passages, 1))
    return (
        f"<div>{_paragraph('Question', escape(_cut(turn.query)))}"
        f"{_paragraph('Answer', _marked(_cut(turn.response), unsupported))}{reference}"
        f"<table><tr><th>score</th><th>value</th><th></th><th>reason</th></tr>{rows}</table>"
        f"<details><summary>Passages ({len(turn.passages)})</summary>{passages}</details></div>"
    )


def _paragraph(name: str, html: str) -> str:
    return f'<div style="{_TEXT}"><b>{name}:</b> {html}</div>'


def _row(row: ScoreRow) -> str:
    style = f' style="{_FAIL}"' if row.label == "fail" else ""
    cells = f"<td>{escape(row.name)}</td><td>{escape(row.value)}</td><td{style}>{escape(row.label)}</td>"
    return f'<tr>{cells}<td style="text-align:left;{_TEXT}">{escape(_cut(row.reason))}</td></tr>'


def _passage(number: int, passage: Passage) -> str:
    name = f"{number} {passage.id or ''}".strip()
    if passage.score is not None:
        name += f", {passage.score:.3g}"
    # None says that no prompt was captured.
    if passage.in_prompt is False:
        name += ", not in the prompt"
    return f'<div style="{_TEXT}"><b>{escape(name)}</b> {escape(_cut(passage.text))}</div>'


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _marked(text: str, parts: Iterable[str]) -> str:
    """Return a text as HTML in which some parts are marked, wherever they occur."""
    marked = [False] * len(text)
    for part in parts:
        start = text.find(part)
        while start >= 0:
            marked[start : start + len(part)] = [True] * len(part)
            start = text.find(part, start + len(part))
    html, begin = [], 0
    for position in range(1, len(text) + 1):
        # A run of marked or unmarked characters ends here.
        if position == len(text) or marked[position] != marked[begin]:
            piece = escape(text[begin:position])
            html.append(f'<mark style="{_MARK}">{piece}</mark>' if marked[begin] else piece)
            begin = position
    return "".join(html)
