"""Numbers and texts as people read them, in tables, on terminals, on pages and in messages.

This is the only module that decides how the numbers of tables, intervals and probabilities are written, and how a text
is cut. A rounded share in a sentence is written where the sentence is.
"""

from __future__ import annotations

import math
import re

MISSING = "–"
"""Shown in a table in place of a missing number."""

# Control characters that move a cursor or break a file, such as "\x1b" (escape) and "\x9b"; lone surrogates such as
# "\ud800"; the non-characters "\ufffe" and "\uffff"; and those that reverse the order of a text, so that it seems to
# say something else, such as "\u202e". Tab and line feed are not among them.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]")
# Unicode has a picture for each control character of ASCII.
_PICTURES = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "␡"}

_SCIENTIFIC_FROM = 1e15
"""Larger numbers are written as powers of ten: a float has no more exact digits."""

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_MIN_P = 0.0001


# --------------------------------------------------------------------------- texts


def shown(text: str) -> str:
    """Return a text with pictures in place of control characters, so that it cannot control a terminal."""
    return _CONTROL.sub(lambda found: _PICTURES.get(found[0], "\ufffd"), text.replace("\r\n", "\n"))


def flat(text: str) -> str:
    """Return a text on one line, without control characters."""
    return " ".join(shown(text).split())


def shorten(text: str, length: int = 120) -> str:
    """Return a text on one line, cut to at most ``length`` characters, with an ellipsis where it was cut."""
    return truncate(flat(text), length)


def truncate(text: str, length: int) -> str:
    """Return a text cut to at most ``length`` characters, with its line breaks, and an ellipsis where it was cut."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


# --------------------------------------------------------------------------- numbers


def format_value(value: float) -> str:
    """Return a finite number with the digits that matter: three for shares, one from 100, none for whole numbers."""
    if value == int(value) and abs(value) >= 2:
        return f"{int(value)}"
    if value and abs(value) < 0.001:
        return f"{value:.2g}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def show_value(value: float | None) -> str:
    """Return a number with the digits that matter, or a dash if there is no finite number."""
    if value is None or not math.isfinite(value):
        return MISSING
    return format_value(value) if abs(value) < _SCIENTIFIC_FROM else f"{value:.3g}"


def short_value(value: float) -> str:
    """Return a number in few characters, whatever its size: ``4.48M``, ``20.4k``, ``123.5``."""
    if not math.isfinite(value) or abs(value) < 100:
        return show_value(value)
    if abs(value) < 10_000:
        return f"{value:.4g}"
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= _SCIENTIFIC_FROM:
        return f"{value:.3g}"
    unit, letter = next(item for item in _UNITS if abs(rounded) >= item[0])
    return f"{rounded / unit:.3g}{letter}"


def signed_value(value: float) -> str:
    """Return a difference with its sign: ``+0.120``."""
    return f"{'+' if value > 0 else ''}{show_value(value)}"


def format_share(value: float | None) -> str:
    """Return a share as a percentage with one digit, or a dash."""
    return MISSING if value is None else f"{value:.1%}"


def format_p_value(p: float) -> str:
    """Return a probability with four digits, or a bound for a very small one."""
    return f"{p:.4f}" if p >= _MIN_P else f"<{_MIN_P}"
