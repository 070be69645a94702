"""Numbers in a text, with their units: digits in any notation, number words and magnitudes, as exact decimal strings.

Signs are not compared: "fell by 5%" and "-5%" say the same in other words. Libraries return one reading, and the
support of a fact needs all ("1.000"). text2num makes "1.5 million" to "1.5 1000000"; babel needs the number cut out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Final, NamedTuple

from rageval_hooks.text.limits import kept, scan, scan_at
from rageval_hooks.text.numerals import (
    CARDINALS,
    MAGNITUDES,
    NUMBER_WORD,
    ORDINALS,
    number_readings,
    scaled,
)
from rageval_hooks.text.units import NO_MEASURE, Measure, Unit, measure
from rageval_hooks.text.words import words_of

# After digits only: "5k", "1.2bn".
_SHORT_MAGNITUDES: Final[Mapping[str, int]] = {"k": 3, "m": 6, "mn": 6, "bn": 9, "b": 9, "tn": 12}
# "5 m" and "5 b" are rather metres and bytes than millions and billions.
_MOSTLY_UNITS: Final = ("m", "b")
# Words of one number. Longer runs are lists.
_MAX_RUN: Final = 32
_NUMBER_WORDS: Final = frozenset((*CARDINALS, *ORDINALS, *MAGNITUDES))
# In order: "12 000" with spaces between groups; ".5"; "1,000.5", "12:30" or "3.11.7".
_LITERAL: Final = "|".join(
    (
        r"(?<![\w.,:/'’])(?<![^\W_]-)(?<!\d )[1-9]\d{0,2}(?: \d{3}){1,5}(?:[.,]\d+)?(?!\d|[.,:'’]\d| \d)",
        r"(?<![^\s(\[{\"'“‘«=:<>~≈±|$€£¥−–-])\.\d+(?!\d|[.,:]\d)",
        r"\d+(?:[.,:'’\u00a0\u202f]\d+)*",
    )
)
# A number in digits with at most two letters after it ("5k", "3rd"), or one number word ("twenty").
_NUMBER: Final = re.compile(
    rf"(?=[.\d])(?<!\d)(?P<literal>{_LITERAL})(?P<tail>(?:[^\W\d_]{{1,2}}(?![^\W_]))?)"
    rf"|{NUMBER_WORD.pattern}",
    re.IGNORECASE,
)
# "two hundred and five", "twenty-one", "twenty - one"
_BETWEEN_NUMBERS: Final = re.compile(r"(?:[ \u00a0\u202f-]| - |,? and )\Z")
# "12 737": one number with a space between groups, or two numbers in a row. "12 000" must be one.
_GROUPS: Final = re.compile(r"\d{1,3}(?: [1-9]\d{2})+(?:[.,]\d+)?(?![\d ]\d)")
# The "19" of "2018–19": the century is that of the year before it.
_YEAR_BEFORE: Final = re.compile(r"(?<!\d)([12]\d)\d{2}[-–/]\Z")
_FRACTIONS: Final = frozenset("¼½¾⅓⅔⅛")
# "(in millions)", "$ millions", "USD in billions" in the header or the caption of a table: a unit of all its numbers.
_TABLE_UNIT: Final = re.compile(
    r"(?:(?<![^\W_])in|[$€£¥]|USD|EUR|GBP)\s?(?:[$€£¥]\s?|(?:US|USD|EUR|U\.S\. dollar)\s)?"
    r"(?P<unit>thousand|million|billion)s(?![^\W_])"
    r"|\((?:in )?(?:[$€£¥]|US\$|USD|EUR|GBP) ?(?P<short>m|mn|mm|bn|k)\)",
    re.IGNORECASE,
)
_TABLE_POWERS: Final = {"thousand": 3, "k": 3, "million": 6, "m": 6, "mn": 6, "mm": 6, "billion": 9, "bn": 9}


class Number(NamedTuple):
    """A number in a text.

    Attributes:
        start: its position.
        end: the position behind it.
        readings: the values that it can mean, the most likely first.
        spelled: True if it is written in words.
        parts: other numbers that a text with it supports: its digits without the magnitude, the hour of a time.
        measure: its unit.
    """

    start: int
    end: int
    readings: tuple[str, ...]
    spelled: bool
    parts: tuple[str, ...] = ()
    measure: Measure = NO_MEASURE


def is_ordinal(text: str) -> bool:
    """Return True if a number is written as an ordinal, for example "3rd" or "twenty-first"."""
    last = re.split(r"[\s-]", text.casefold())[-1]
    return last in ORDINALS or (last[:1].isdigit() and last.endswith(("st", "nd", "rd", "th")))


@kept
def find_numbers(text: str) -> Sequence[Number]:
    """Return the numbers of a text. "two hundred and five" and "1.5 million" are one number."""
    return [number._replace(measure=measure(text, number.start, number.end)) for number in _find_numbers(text)]


def _find_numbers(text: str) -> Iterator[Number]:
    found = words_of(text)
    starts = found.starts_of(NUMBER_WORD, lambda reading: reading.may_be_number)
    for digit in found.first_digits:
        starts += [digit - 1, digit] if digit > 0 and text[digit - 1] == "." else [digit]
    # Most sentences and names have no number.
    matches = scan_at(_NUMBER, text, sorted(starts)) if starts else ()
    # Matches that may form one number together: "two", "hundred" and "five".
    run: list[re.Match[str]] = []
    for match in matches:
        gap = text[run[-1].end() : match.start()] if run else ""
        is_apart = match["words"] is None or len(run) >= _MAX_RUN or not _BETWEEN_NUMBERS.match(gap)
        if run and is_apart:
            yield from _numbers_of(run)
            run = []
        run.append(match)
    if run:
        yield from _numbers_of(run)


def _numbers_of(run: Sequence[re.Match[str]]) -> Iterator[Number]:
    """Yield the numbers of a run: one in digits with its magnitudes, and those of the number words."""
    first, words = run[0], [*map(_number_word, run)]
    if not first["literal"]:
        yield from _spelled_numbers(run, words)
        return
    readings = _range_end(first) + number_readings(first["literal"])
    if power := _SHORT_MAGNITUDES.get(tail := first["tail"].casefold()):
        larger = scaled(readings, power)
        readings = readings + larger if tail in _MOSTLY_UNITS else larger + readings
    if len(run) > 1 and MAGNITUDES.keys() >= set(words[1:]):
        # "1.5 hundred thousand": each magnitude multiplies.
        power = sum(MAGNITUDES[word] for word in words[1:])
        yield Number(first.start(), run[-1].end(), scaled(readings, power) or readings, False, readings)
        return
    yield Number(first.start(), first.end(), readings, False, _parts(first["literal"]))
    if len(run) > 1:
        yield from _spelled_numbers(run[1:], words[1:])


def _number_word(found: re.Match[str]) -> str:
    """Return a number word in the singular: "hundred" for "hundreds", and "sixties" unchanged; empty for digits."""
    word = (found["words"] or "").casefold()
    return word if word in _NUMBER_WORDS else word.removesuffix("s")


def _range_end(found: re.Match[str]) -> tuple[str, ...]:
    """Return 2019 for the ``19`` in ``2018–19``; otherwise nothing."""
    literal, start = found["literal"], found.start()
    if len(literal) != 2 or not literal.isdigit():
        return ()
    century = _YEAR_BEFORE.search(found.string[max(0, start - 6) : start])
    return (century[1] + literal,) if century else ()


def _parts(literal: str) -> tuple[str, ...]:
    """Return the numbers in a literal: 12 and 30 in "12:30", 1, 2 and 3 in "1,2,3", 12 and 737 in "12 737"."""
    is_list = "," in number_readings(literal)[0]
    if ":" in literal or is_list:
        return tuple(chain.from_iterable(map(number_readings, literal.split("," if is_list else ":"))))
    return tuple(chain.from_iterable(numbers_apart(literal)))


def numbers_apart(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the readings of each number if "12 737" may be two numbers; empty if it must be one, as in "12 000"."""
    found = _GROUPS.match(text) if " " in text else None
    return tuple(map(number_readings, found.group().split(" "))) if found else ()


def _spelled_numbers(run: Sequence[re.Match[str]], words: Sequence[str]) -> Iterator[Number]:
    """Yield the numbers in a run of number words: "nineteen eighty" is two, "two hundred and five" is one.

    Each part of a number is smaller than the one before.
    """
    start, end, total, current = run[0].start(), run[0].start(), 0, 0
    # The order of magnitude of the smallest part so far.
    order = 10**15
    for match, word in zip(run, words, strict=True):
        value = CARDINALS.get(word, ORDINALS.get(word, 0))
        if word == "hundred":
            fits = current < 100
        else:
            # "twenty" and "one" are one number, "twenty" and "twelve" are two.
            fits = word in MAGNITUDES or order > 10 or (order == 10 and 0 < value < 10)
        if not fits:
            yield Number(start, end, (str(total + current),), True)
            start, total, current, order = match.start(), 0, 0, 10**15
        end = match.end()
        if word not in MAGNITUDES:
            current, order = current + value, 10 if value >= 20 else 1
            continue
        order = 10 ** MAGNITUDES[word]
        # "hundred" alone is one hundred.
        scaled_up = max(1, current) * order
        total, current = (total, scaled_up) if word == "hundred" else (total + scaled_up, 0)
    yield Number(start, end, (str(total + current),), True)


class SupportedNumbers(NamedTuple):
    """The numbers that a text supports.

    Attributes:
        values: all of them.
        ordinals: those that it writes as ordinals.
        bare: those that it has without a known unit, which may have any unit.
        measures: those that it has with a unit, as (number, unit).
    """

    values: set[str]
    ordinals: set[str]
    bare: set[str]
    measures: set[tuple[str, Unit]]


def supported_numbers(text: str) -> SupportedNumbers:
    """Return every number that a text supports."""
    # "½" supports "1/2".
    bare = set(re.findall(r"\d", unicodedata.normalize("NFKC", "".join(_FRACTIONS.intersection(text)))))
    found = SupportedNumbers(set(), set(), bare, set())
    for number in find_numbers(text):
        readings = {*number.readings, *number.parts}
        found.values.update(readings)
        if number.measure.units:
            found.measures.update(product(readings, number.measure.units))
        else:
            bare.update(readings)
        if is_ordinal(text[number.start : number.end]):
            found.ordinals.add(number.readings[0])
    for power in table_powers(text):
        # The caption says which numbers are meant in words only, so each may be.
        bare.update(scaled(tuple(found.values), power))
    found.values.update(bare)
    return found


def table_powers(text: str) -> set[int]:
    """Return the powers of ten that a table's header or caption gives to its numbers."""
    # Most texts have none, and these tests take a tenth of the time of the search.
    folded = text.casefold()
    if not any(word in folded for word in ("thousands", "millions", "billions", "m)", "bn)", "mn)", "k)")):
        return set()
    return {_TABLE_POWERS[(found["unit"] or found["short"]).casefold()] for found in scan(_TABLE_UNIT, text)}
