"""Numbers and texts as a report shows them: whatever stands in a file, a table keeps its form, and a terminal its."""

from __future__ import annotations

import math
import re
import unicodedata

__all__ = ["cut_to_width", "flat", "format_value", "short_value", "shorten", "show_value", "shown", "width_of"]

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_PICTURES = 0x2400
_MOST_DIGITS = 1e15
_NOTHING = "–"
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def shown(text: str) -> str:
    """Return a text with pictures in place of control characters: none moves a cursor, and any file may hold it."""
    return _CONTROL.sub(_picture, text.replace("\r\n", "\n"))


def flat(text: str) -> str:
    """Return a text on one line, without control characters."""
    return " ".join(shown(text).split())


def shorten(text: str, length: int = 120) -> str:
    """Return a text on one line, cut to a length; an ellipsis marks the cut."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(_PICTURES + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"


def show_value(value: float) -> str:
    """Return a number with the digits that matter; a dash for what is none."""
    if not math.isfinite(value):
        return _NOTHING
    return format_value(value) if abs(value) < _MOST_DIGITS else f"{value:.3g}"


def short_value(value: float) -> str:
    """Return a number in few characters, wherever it lies: ``4.48M``, ``20.4k``, ``123.5``."""
    if not math.isfinite(value) or abs(value) < 100:
        return show_value(value)
    rounded = float(f"{value:.3g}")
    if 10_000 <= abs(rounded) < _MOST_DIGITS:
        unit, letter = next(item for item in _UNITS if abs(rounded) >= item[0])
        return f"{rounded / unit:.3g}{letter}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.3g}"


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for each wide character."""
    return sum(_columns(character) for character in text)


def cut_to_width(text: str, width: int) -> str:
    """Return a text that is too wide without its middle: its ends tell it from the others."""
    if width_of(text) <= width:
        return text
    end = width // 2
    return f"{_start(text, width - end - 1)}…{_start(text[::-1], end)[::-1]}"


def _start(text: str, width: int) -> str:
    taken = 0
    for place, character in enumerate(text):
        taken += _columns(character)
        if taken > width:
            return text[:place]
    return text


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def format_value(value: float) -> str:
    """Return a number with the digits that matter: three for shares, none for whole numbers."""
    if value == int(value) and abs(value) >= 2:
        return f"{int(value)}"
    if value and abs(value) < 0.001:
        return f"{value:.2g}"
    return f"{value:.3f}"
