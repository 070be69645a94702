"""Numbers in a text: figures in any notation, words and magnitudes, as exact decimal strings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["CARDINALS", "ORDINALS", "find_numbers", "number_readings"]

CARDINALS: Final[Mapping[str, int]] = {
    **{
        word: value
        for value, word in enumerate(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen".split()
        )
    },
    **{word: 10 * tens for tens, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)},
}

_MAGNITUDES: Final[Mapping[str, int]] = {
    "hundred": 2, "thousand": 3, "lakh": 5, "million": 6, "crore": 7, "billion": 9, "trillion": 12,
}  # fmt: skip
_SHORT_MAGNITUDES: Final[Mapping[str, int]] = {"k": 3, "m": 6, "mn": 6, "bn": 9, "b": 9, "tn": 12}
ORDINALS: Final[Mapping[str, int]] = {
    **{
        word: value
        for value, word in enumerate(
            "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
            "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth".split(), 1
        )
    },
}  # fmt: skip
_NUMBER: Final = re.compile(
    r"(?<![\d])(?P<literal>\d+(?:[.,:'’\u00a0\u202f]\d+)*)(?P<tail>(?:[^\W\d_]{1,2}(?![^\W_]))?)"
    rf"|(?<![^\W_])(?P<words>(?:{'|'.join([*CARDINALS, *ORDINALS, *_MAGNITUDES])})s?(?![^\W_]))",
    re.IGNORECASE,
)
_BETWEEN_NUMBERS: Final = re.compile(r"(?:[ -]|,? and )\Z")


def number_readings(literal: str) -> tuple[str, ...]:
    """The values a numeral can stand for, as plain decimal strings, the likeliest first.

    ``1,000`` is 1000, or 1 with a decimal comma; ``1.000`` is 1, or 1000. ``3.11.7`` is itself.
    """
    text = "".join(str(unicodedata.digit(c)) if c.isdigit() else c for c in literal)
    text = text.replace("'", "").replace("’", "").replace("\u00a0", "").replace("\u202f", "")
    marks = [c for c in text if c in ".,"]
    if not marks:
        return (_plain(text),)
    if ":" in text:
        return (text,)
    if len(set(marks)) == 2:  # the last mark is the decimal one
        decimal = marks[-1]
        other = "," if decimal == "." else "."
        return (_plain(text.replace(other, "").replace(decimal, ".")),) if marks.count(decimal) == 1 else (text,)
    grouped = re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+|\d{1,2}(?:,\d{2})+,\d{3}", text) is not None  # 1,00,000 in India
    if len(marks) > 1:
        return (_plain(re.sub("[.,]", "", text)),) if grouped else (text,)
    decimal_value, grouped_value = _plain(text.replace(",", ".")), _plain(re.sub("[.,]", "", text))
    if not grouped:
        return (decimal_value,)
    return (grouped_value, decimal_value) if marks[0] == "," else (decimal_value, grouped_value)


def _plain(number: str) -> str:
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return number.lstrip("0") if number.lstrip("0")[:1].isdigit() else "0" + number.lstrip("0")


def _scale(number: str, power: int) -> str:
    """``number`` times ten to the ``power``, exactly, on strings."""
    whole, _, fraction = number.partition(".")
    fraction = fraction.ljust(power, "0")
    return _plain(f"{whole}{fraction[:power]}.{fraction[power:]}")


def find_numbers(text: str) -> Iterator[tuple[int, int, tuple[str, ...], bool]]:
    """Numbers as ``(start, end, readings, is_word)``; "two hundred and five" and "1.5 million" are one number each."""
    run: list[re.Match[str]] = []
    for found in _NUMBER.finditer(text):
        joins = bool(run) and found["words"] is not None and found.start() - run[-1].end() <= 5
        if joins and _BETWEEN_NUMBERS.match(text[run[-1].end() : found.start()]):
            run.append(found)
            continue
        if run:
            yield from _run_values(run)
        run = [found]
    if run:
        yield from _run_values(run)


def _run_values(run: list[re.Match[str]]) -> Iterator[tuple[int, int, tuple[str, ...], bool]]:
    start = run[0].start()
    total = current = 0
    size = 10**15  # the order of the smallest part so far: parts must get smaller, else a new number begins
    at = start
    end = start
    pending = False
    for found in run:
        if found["literal"]:
            readings = _range_end(found) + number_readings(found["literal"])
            tail = found["tail"].casefold()
            if tail in _SHORT_MAGNITUDES:
                readings += tuple(_scale(r, _SHORT_MAGNITUDES[tail]) for r in readings if _is_decimal(r))
            following = run[1:]
            power = sum(_MAGNITUDES.get(_number_word(f), 0) for f in following)
            if following and power and all(_number_word(f) in _MAGNITUDES for f in following):
                yield (
                    start,
                    run[-1].end(),
                    tuple(_scale(r, power) for r in readings if _is_decimal(r)) or readings,
                    False,
                )
                return
            yield found.start(), found.end(), readings, False
            continue
        word = _number_word(found)
        if word in _MAGNITUDES:
            power = 10 ** _MAGNITUDES[word]
            if not pending:
                at, total, current, pending = found.start(), 0, 1, True
            if power == 100:
                current *= 100
            else:
                total, current = total + (current or 1) * power, 0
            size, end = power, found.end()
            continue
        value = CARDINALS.get(word, ORDINALS.get(word, 0))
        order = 10 if value >= 20 else 1
        fits = pending and (
            (order == 10 and size > 10) or (order == 1 and (size > 10 or (size == 10 and 0 < value < 10)))
        )
        if not fits:
            if pending:
                yield at, end, (str(total + current),), True
            at, total, current, pending = found.start(), 0, 0, True
        current += value
        size, end = order, found.end()
    if pending:
        yield at, end, (str(total + current),), True


def _range_end(found: re.Match[str]) -> tuple[str, ...]:
    """``19`` in ``2018–19`` is 2019 as well."""
    literal, text, start = found["literal"], found.string, found.start()
    if len(literal) == 2 and literal.isdigit() and text[start - 1 : start] in ("-", "–", "/"):
        before = text[max(0, start - 6) : start - 1]
        if re.search(r"(?<!\d)[12]\d{3}$", before):
            return (before[-4:-2] + literal,)
    return ()


def _number_word(found: re.Match[str]) -> str:
    word = (found["words"] or "").casefold()
    return word if word in CARDINALS or word in ORDINALS or word in _MAGNITUDES else word.removesuffix("s")


def _is_decimal(number: str) -> bool:
    return number.replace(".", "", 1).isdigit()
