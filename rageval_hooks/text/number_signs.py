"""The sign of a number: a minus before it, or words that say the same, such as "fell by"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from rageval_hooks.text.numerals import is_decimal

__all__ = ["CURRENCY", "Sign", "find_sign", "is_decrease", "negative"]

CURRENCY: Final = "$€£¥"
"""Signs of currencies, which may be between a minus and its number: "-$5"."""

# "-" in "(-5)" and "-$5"; "minus 5"; "negative 5"
_SIGN: Final = re.compile(
    rf"(?:\A|(?<=[\s(\[{{\"'“‘«=:<>~≈±|,;{CURRENCY}]))(?P<sign>[-−–])[{CURRENCY}]?\Z"
    rf"|(?<![^\W_])(?:minus|negative) [{CURRENCY}]?\Z",
    re.IGNORECASE,
)
# "5 " or "5 km " before a hyphen: the hyphen may be the dash of a range.
_RANGE_BEFORE: Final = re.compile(rf"[\d%] ?(?:[{CURRENCY}%°]|°?[^\W\d_]{{1,9}}\.?)?\s\Z")
# "5 " or "5% " before "minus".
_NUMBER_BEFORE: Final = re.compile(r"[\d%]\s\Z")
# "(", "=" or "$" before a hyphen: the hyphen is a minus.
_MARK_BEFORE: Final = re.compile(rf"(?:[(\[{{\"'“‘«]|[=<~≈±{CURRENCY}]\s?)\Z")
# "was ", "fell to " or "about " before a hyphen: the hyphen is a minus.
_WORD_BEFORE: Final = re.compile(
    r"(?<![^\W_])(?:is|are|was|were|be|been|being|becomes?|became|remain(?:s|ed)?|stays|stayed|stood|stands|equals?|"
    r"reach(?:es|ed)?|hits?|averag(?:es?|ed)|returns?|returned|gives?|gave|yields?|yielded|scored|fell|dropped|rose|"
    r"sank|at|of|to|from|by|for|with|(?<!\d )in|into|until|till|between|and|or|than|as|above|below|under|over|near|"
    r"about|around|nearly|almost|roughly|approximately|only|just)\s\Z",
    re.IGNORECASE,
)
# Marks at the beginning of an item of a list. "* -$5" is rather a bullet and a price.
_LIST_MARKS: Final = "*>|.)•#+"
# "fell by", "a loss of"
_LESS_BEFORE: Final = re.compile(
    r"(?<![^\W_])(?:fell|fall(?:s|en|ing)?|drop(?:s|ped|ping)?|declin\w+|decreas\w+|down|los[et]s?|losing|loss(?:es)?|"
    r"reduc\w+|lower\w*|shr[aiu]nk\w*|below|less|slipp\w+|slid|plung\w+|tumbl\w+|contract\w+|deficits?|cuts?|sank|shed)"
    r"(?:(?! to | from )[^.!?\n\d]){1,25}\Z",
    re.IGNORECASE,
)
# "5 percent lower"
_LESS_AFTER: Final = re.compile(
    r"[^.!?,;\n\d]{0,20}?(?<![^\W_])(?:below|lower|less|decreas\w+|declin\w+|drops?|loss(?:es)?|falls?|reductions?|"
    r"deficits?|down)(?![^\W_])",
    re.IGNORECASE,
)

# Characters around a number in which its sign is looked for.
_SIGN_LENGTH: Final = 12
_LINE_LENGTH: Final = 24
_DECREASE_BEFORE: Final = 45
_DECREASE_AFTER: Final = 40


class Sign(NamedTuple):
    """A minus before a number."""

    start: int
    """The position of the minus."""
    doubtful: bool
    """True if it may be something else: a bullet, or the dash of a range or of a name."""


def find_sign(text: str, start: int) -> Sign | None:
    """Return the sign before the number at a position; None if it has none."""
    before = text[max(0, start - _SIGN_LENGTH) : start]
    found = _SIGN.search(before)
    if found is None:
        return None
    position = start - len(before) + found.start()
    line = text[max(0, position - _LINE_LENGTH) : position].rpartition("\n")[2]
    return Sign(position, _is_doubtful(line, found))


def _is_doubtful(line: str, found: re.Match[str]) -> bool:
    """Return True if a sign may be something else: a bullet, or the dash of a range or of a name.

    A hyphen is certainly a minus after a word or mark that a number follows: "was -5", "(-5)".

    Args:
        line: the text before the sign, in the same line.
        found: the sign.
    """
    sign = found["sign"]
    if sign is None:
        # "5 minus 3" may be a calculation.
        return _NUMBER_BEFORE.search(line) is not None
    # An en dash is rather a dash, and a hyphen that begins a line is rather a bullet.
    if sign == "–" or not line.strip():
        return True
    if _WORD_BEFORE.search(line):
        return False
    if _RANGE_BEFORE.search(line):
        return True
    is_money = found.group()[-1] in CURRENCY and line.strip()[-1] not in _LIST_MARKS
    return sign == "-" and not is_money and _MARK_BEFORE.search(line) is None


def is_decrease(text: str, start: int, end: int) -> bool:
    """Return True if the words around the number from ``start`` to ``end`` say that something went down by it."""
    before = text[max(0, start - _DECREASE_BEFORE) : start]
    if _LESS_BEFORE.search(before):
        return True
    return _LESS_AFTER.match(text, end, end + _DECREASE_AFTER) is not None


def negative(readings: Iterable[str]) -> tuple[str, ...]:
    """Return readings with a minus. Zero has no sign, and neither has a version or a time."""
    return tuple(f"-{reading}" if _has_sign(reading) else reading for reading in readings)


def _has_sign(reading: str) -> bool:
    return is_decimal(reading) and reading.strip("0.") != ""
