"""Numerals: the words for numbers and months, and the digits of a number as exact decimal strings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from rageval_hooks.text.word_lists import by_word

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

FRACTIONS: Final[Mapping[str, int]] = by_word("fractions")
"""The denominators of fractions in words."""
_ROMAN: Final[Mapping[str, int]] = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}

# Word → the power of ten that it multiplies by.
MAGNITUDES: Final[Mapping[str, int]] = by_word("magnitudes")
# "two", "Hundreds", "third"
NUMBER_WORD: Final = re.compile(
    rf"(?<![^\W_])(?P<words>(?:{'|'.join((*CARDINALS, *ORDINALS, *MAGNITUDES))})s?(?![^\W_]))", re.IGNORECASE
)

MONTHS: Final = "January February March April May June July August September October November December".split()

MONTH_NUMBER: Final[Mapping[str, int]] = {name[:3].casefold(): number for number, name in enumerate(MONTHS, 1)}
"""The number of a month by the first three letters of its name."""

# "March", "sept.", "MAY"; also "market": the first letters of a month, where a month may begin.
MONTH_START: Final = re.compile(rf"(?<![A-Za-z])(?i:{'|'.join(MONTH_NUMBER)})")

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
        >>> [number_readings(numeral) for numeral in ("1,000", "1.000", "3.11.7", ".5", "1 000")]
        [('1000', '1'), ('1', '1000'), ('3.11.7',), ('0.5',), ('1000',)]
    """
    if not literal.isascii():
        # Digits of any script.
        literal = "".join(str(unicodedata.digit(c)) if c.isdigit() else c for c in literal)
    text = literal.translate(_GROUPERS)
    marks = _MARK.findall(text)
    # A time with a fraction, "12:30.5", is compared as it is written.
    if marks and ":" in text:
        return (text,)
    as_group = _plain(_MARK.sub("", text))
    if len(set(marks)) == 2:
        # The last mark is the decimal one: "1.000,5".
        whole, mark, fraction = text.rpartition(marks[-1])
        return (text,) if mark in whole else (_plain(f"{_MARK.sub('', whole)}.{fraction}"),)
    is_grouped = _GROUPED.fullmatch(text) is not None
    if len(marks) > 1:
        # The version "3.11.7" is compared as it is written.
        return (as_group,) if is_grouped else (text,)
    as_decimal = _plain(text.replace(",", "."))
    if not is_grouped:
        return (as_decimal,)
    # English comes first: "1,000" is rather a thousand, and "1.000" is rather one.
    return (as_group, as_decimal) if "," in text else (as_decimal, as_group)


def _plain(number: str) -> str:
    """Return a decimal in one notation: "0.5" for ".50", "7" for "007" and "7.0"."""
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    digits = number.lstrip("0")
    return digits if digits[:1].isdigit() else "0" + digits


def scaled(readings: tuple[str, ...], power: int) -> tuple[str, ...]:
    """Return the decimals among some readings times ten to the ``power``, exactly."""
    found = []
    for number in filter(is_decimal, readings):
        # Moving the point in the string is exact for any length, floats are not.
        whole, _, fraction = number.partition(".")
        fraction = fraction.ljust(power, "0")
        found.append(_plain(f"{whole}{fraction[:power]}.{fraction[power:]}"))
    return tuple(found)


def is_decimal(number: str) -> bool:
    """Return True for digits with at most one decimal point, and not for "12:30" or "3.11.7"."""
    return number.replace(".", "", 1).isdigit()


def small_number(text: str) -> int:
    """Return the value of a small number in digits, words or Roman numerals, or of its ordinal; 0 if it is none.

    Example:
        >>> [small_number(text) for text in ("7", "seven", "21st", "nineteenth", "XIXe", "boat")]
        [7, 7, 21, 19, 19, 0]
    """
    word = text.casefold()
    if digits := re.match(r"\d{1,4}", word):
        return int(digits.group())
    if word in CARDINALS or word in ORDINALS:
        return CARDINALS.get(word) or ORDINALS.get(word, 0)
    if word.startswith("twenty-"):
        return 20 + small_number(word.removeprefix("twenty-"))
    # "XIXe", "XIX"
    letters = [_ROMAN.get(letter, 0) for letter in word.removesuffix("e")]
    if 0 in letters or not letters:
        return 0
    return sum(-one if one < other else one for one, other in zip(letters, [*letters[1:], 0], strict=True))
