"""A turn with its scores as HTML, for notebooks. Every text is escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rageval_hooks.runtime.narrowing import is_number, mappings_in, text_or_empty
from rageval_hooks.turn import Passage, Turn

# A sentence whose number is below this is shown as not supported.
_UNSUPPORTED = 0.5
_MAX_LENGTH = 4_000
# Half-transparent colours are readable on light and dark pages.
_MARK = "background:rgba(230,60,60,.3);color:inherit"
_FAIL = "color:#c33;font-weight:bold"
_TEXT = "white-space:pre-wrap;max-width:60em"
# Notebooks have their own styles for tables, which centre texts or put them to the right.
_TABLE = "font:inherit;border-collapse:collapse;margin:.5em 0"
_CELL = "padding:.15em 1em .15em 0;vertical-align:top"
_LEFT, _RIGHT = f"{_CELL};text-align:left", f"{_CELL};text-align:right;font-variant-numeric:tabular-nums"


def unsupported_in(metadata: Mapping[str, Any]) -> list[str]:
    """Return the texts of the sentences and facts that a score calls unsupported in its metadata."""
    items = mappings_in(metadata.get("missing"))
    for item in mappings_in(metadata.get("sentences")):
        # Judges say of each sentence whether it is supported, formulas give it a number.
        if "fully_supported" in item:
            is_unsupported = not item["fully_supported"]
        else:
            is_unsupported = is_number(value := item.get("score")) and value < _UNSUPPORTED
        if is_unsupported:
            items.append(item)
    # Metadata may come from a file, in which a text may be anything.
    return [text for item in items if (text := text_or_empty(item.get("text")))]


def turn_html(turn: Turn, scores: Iterable[tuple[str, str, str, str]], unsupported: Iterable[str]) -> str:
    """Return a turn as HTML: question, answer with marks, scores, passages.

    Args:
        turn: the turn.
        scores: for each score its name, value, label and reason.
        unsupported: parts of the answer that are marked.
    """
    rows = []
    for name, value, label, reason in scores:
        shown = f'<span style="{_FAIL}">{label}</span>' if label in ("fail", "bad") else escape(label)
        rows.append([escape(name), escape(value), shown, f'<div style="{_TEXT}">{escape(_cut(reason))}</div>'])
    reference = "" if turn.reference is None else _paragraph("Reference", escape(_cut(turn.reference)))
    passages = "".join(_passage(number, passage) for number, passage in enumerate(turn.passages, 1))
    return (
        f"<div>{_paragraph('Question', escape(_cut(turn.query)))}"
        f"{_paragraph('Answer', _marked(_cut(turn.response), unsupported))}{reference}"
        f"{html_table(('score', 'value', '', 'reason'), rows, numbers={1})}"
        f"<details><summary>Passages ({len(turn.passages)})</summary>{passages}</details></div>"
    )


def _paragraph(name: str, html: str) -> str:
    return f'<div style="{_TEXT}"><b>{name}:</b> {html}</div>'


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int]) -> str:
    """Return a table as HTML.

    Args:
        header: the names of the columns.
        rows: the cells of each row, as HTML.
        numbers: the columns that are aligned to the right.
    """
    styles = [_RIGHT if column in numbers else _LEFT for column in range(len(header))]

    def row(tag: str, cells: Iterable[str]) -> str:
        filled = (f'<{tag} style="{style}">{cell}</{tag}>' for style, cell in zip(styles, cells, strict=True))
        return f"<tr>{''.join(filled)}</tr>"

    body = "".join(row("td", cells) for cells in rows)
    return f'<table style="{_TABLE}">{row("th", map(escape, header))}{body}</table>'


def _passage(number: int, passage: Passage) -> str:
    name = f"{number} {passage.id or ''}".strip()
    if passage.score is not None:
        name += f", {passage.score:.3g}"
    # None says that no prompt was captured.
    if passage.in_prompt is False:
        name += ", not in the prompt"
    if passage.from_turn is not None:
        name += ", of an earlier turn"
    return f'<div style="{_TEXT}"><b>{escape(name)}</b> {escape(_cut(passage.text))}</div>'


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]} …"


def _marked(text: str, parts: Iterable[str]) -> str:
    """Return a text as HTML in which some parts are marked, wherever they occur."""
    # The longest first: a sentence is marked as a whole, and not only a fact in it.
    wanted = "|".join(map(re.escape, sorted(filter(None, parts), key=len, reverse=True)))
    # With a group in the expression, every second piece is what it has found.
    pieces = map(escape, re.split(f"({wanted})", text) if wanted else [text])
    return "".join(f'<mark style="{_MARK}">{piece}</mark>' if n % 2 else piece for n, piece in enumerate(pieces))
