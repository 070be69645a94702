"""How wide texts are when they are drawn, and where they are broken into lines."""

from __future__ import annotations

import re
from functools import cache

from rageval_hooks.text.formatting import flat, width_of

__all__ = ["wrapped"]

# The parts of a name such as "my_metric.f1": "my_", "metric.", "f1".
_PARTS = re.compile(r"[^_./-]*[_./-]|[^_./-]+")


def wrapped(text: str, width: float, size: float, weight: str = "normal") -> list[str]:
    """Return a text in lines that fit into a width in inches; words that are too long are broken."""
    lines: list[str] = []
    line = ""
    for word in flat(text).split(" "):
        longer = f"{line} {word}" if line else word
        if _inches(longer, size, weight) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        *whole, line = _broken(word, width, size, weight)
        lines += whole
    return [*lines, line] if line or not lines else lines


def _broken(word: str, width: float, size: float, weight: str) -> list[str]:
    if _inches(word, size, weight) <= width:
        return [word]
    # Names of scores are broken where their parts end, so that a reader still recognizes them.
    pieces = [""]
    for part in _PARTS.findall(word):
        # A part that is too long by itself is broken between any two characters.
        units = [part] if _inches(part, size, weight) <= width else list(part)
        for unit in units:
            if pieces[-1] and _inches(pieces[-1] + unit, size, weight) > width:
                pieces.append("")
            pieces[-1] += unit
    return pieces


@cache
def _inches(text: str, size: float, weight: str = "normal") -> float:
    """Return how wide a text is."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text.strip():
        return 0.0
    drawn = TextPath((0, 0), text, size=size, prop=FontProperties(weight=weight))
    # A character that the font lacks is drawn as a narrow box here, but may be wide in a browser.
    least = 0.0 if text.isascii() else size * 0.5 * width_of(text)
    return max(float(drawn.get_extents().width), least) / 72
