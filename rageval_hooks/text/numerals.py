"""Numerals: the words for numbers, and the digits of a number as exact decimal strings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

VULGAR: Final = "¼-¾⅐-⅞"
"""The vulgar fractions, for a class of characters in a regular expression."""

_UP_TO_NINETEEN: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen".split()
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety".split()
CARDINALS: Final[Mapping[str, int]] = {
    **dict(zip(_UP_TO_NINETEEN, range(20), strict=True)),
    **dict(zip(_TENS, range(20, 100, 10), strict=True)),
}
_FIRST_TO_TWENTIETH: Final = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth".split()
)
ORDINALS: Final[Mapping[str, int]] = dict(zip(_FIRST_TO_TWENTIETH, range(1, 21), strict=True))

# Word → the power of ten that it multiplies by.
MAGNITUDES: Final[Mapping[str, int]] = {
    "hundred": 2, "thousand": 3, "lakh": 5, "million": 6, "crore": 7, "billion": 9, "trillion": 12,
    "mln": 6, "bln": 9,
}  # fmt: skip
# "two", "Hundreds", "third"
NUMBER_WORD: Final = re.compile(
    rf"(?<![^\W_])(?P<words>(?:{'|'.join((*CARDINALS, *ORDINALS, *MAGNITUDES))})s?(?![^\W_]))", re.IGNORECASE
)

# "½", "2½", "2 ½"
_MIXED: Final = re.compile(rf"(\d{{0,3}}) ?([{VULGAR}])")
# Marks that only group digits, as in "1'000" and "12 000". A comma or dot may also be the decimal mark.
_GROUPERS: Final = str.maketrans("", "", "'’ \u00a0\u202f")
# The comma and the dot of "1,000.5".
_MARK: Final = re.compile(r"[.,]")
# 1,000,000, and 1,00,000 as in India
_GROUPED: Final = re.compile(r"\d{1,3}(?:[.,]\d{3})+|\d{1,2}(?:,\d{2})+,\d{3}")


@lru_cache(maxsize=8_192)
def number_readings(literal: str) -> tuple[str, ...]:
    """Return the values that a numeral can mean, as plain decimal strings, the most likely first.

    Example:
        >>> [number_readings(numeral) for numeral in ("1,000", "1.000", "3.11.7", ".5", "1 000", "2½", "⅓")]
        [('1000', '1'), ('1', '1000'), ('3.11.7',), ('0.5',), ('1000',), ('2.5',), ('1/3',)]
    """
    if mixed := _MIXED.fullmatch(literal):
        whole = int(mixed[1] or 0)
        return (exact(whole + vulgar(mixed[2])),)
    text = _ascii_digits(literal).translate(_GROUPERS)
    marks = _MARK.findall(text)
    if not marks:
        return (_plain(text),)
    # A time with a fraction, "12:30.5", is compared as it is written.
    if ":" in text:
        return (text,)
    if len(set(marks)) == 2:
        return (_with_both_marks(text, decimal=marks[-1]),)
    if len(marks) > 1:
        return (_with_repeated_mark(text),)
    return _with_one_mark(text)


def _ascii_digits(literal: str) -> str:
    """Return the text with digits of any script as 0 to 9."""
    if literal.isascii():
        return literal
    return "".join(str(unicodedata.digit(c)) if c.isdigit() else c for c in literal)


def _with_both_marks(text: str, decimal: str) -> str:
    """Return the value of a numeral with commas and dots, the last of which is the decimal mark: "1.000,5"."""
    if text.count(decimal) > 1:
        return text
    grouping = "," if decimal == "." else "."
    return _plain(text.replace(grouping, "").replace(decimal, "."))


def _with_repeated_mark(text: str) -> str:
    """Return the value of "1,000,000"; other numerals, such as the version "3.11.7", are compared as written."""
    if _GROUPED.fullmatch(text) is None:
        return text
    return _plain(_MARK.sub("", text))


def _with_one_mark(text: str) -> tuple[str, ...]:
    """Return the values of a numeral with one mark, which may group digits or be the decimal mark."""
    as_decimal = _plain(text.replace(",", "."))
    if _GROUPED.fullmatch(text) is None:
        return (as_decimal,)
    as_group = _plain(_MARK.sub("", text))
    # English comes first: "1,000" is rather a thousand, and "1.000" is rather one.
    return (as_group, as_decimal) if "," in text else (as_decimal, as_group)


def vulgar(mark: str) -> Fraction:
    """Return the value of a vulgar fraction such as "½"."""
    # Unicode has floats: 0.333… becomes 1/3 again.
    return Fraction(unicodedata.numeric(mark)).limit_denominator(10)


def exact(value: Fraction) -> str:
    """Return a fraction as a decimal if that is finite, for example "0.5", otherwise as "1/3"."""
    above, below = value.numerator, value.denominator
    if 1000 % below:
        return f"{above}/{below}"
    return _plain(f"{Decimal(above) / below:f}")


def _plain(number: str) -> str:
    """Return a decimal in one notation: "0.5" for ".50", "7" for "007" and "7.0"."""
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    digits = number.lstrip("0")
    return digits if digits[:1].isdigit() else "0" + digits


def scaled(readings: tuple[str, ...], power: int) -> tuple[str, ...]:
    """Return the decimals among some readings times ten to the ``power``, exactly."""
    return tuple(_scale(reading, power) for reading in filter(is_decimal, readings))


def _scale(number: str, power: int) -> str:
    # Moving the point in the string is exact for any length, floats are not.
    whole, _, fraction = number.partition(".")
    fraction = fraction.ljust(power, "0")
    return _plain(f"{whole}{fraction[:power]}.{fraction[power:]}")


def is_decimal(number: str) -> bool:
    """Return True for digits with at most one decimal point, and not for "1/3", "12:30" or "3.11.7"."""
    return number.replace(".", "", 1).isdigit()
