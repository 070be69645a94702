"""Quantities: what the numbers of a text say, in one normal form for all notations.

A quantity is a range of values in the base unit of its dimension: "2.5 km" and "2,500 metres" are a length of 2500,
"half past three" and "15:30" a time of day of 930 minutes, "50%" and "one in two" a share of 0.5, "the 1870s" the
years 1870 to 1879. A stated quantity is compared with the precision that it is written with.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise, takewhile, zip_longest
from operator import attrgetter
from typing import Final, Literal, NamedTuple, cast

from rageval_hooks.text.language import is_surely_english, language_of
from rageval_hooks.text.limits import kept, scan, scan_at
from rageval_hooks.text.numbers import Number, find_numbers
from rageval_hooks.text.numerals import CARDINALS, FRACTIONS, MAGNITUDES, is_decimal, small_number
from rageval_hooks.text.units import FIRST_WORDS, HOURS, Unit, measure
from rageval_hooks.text.word_lists import WORD_LISTS
from rageval_hooks.text.words import words_of

Hedge = Literal["", "about", "over", "under"]
Kind = Literal["number", "composed", "indefinite"]
YEAR: Final = "year"
CLOCK: Final = "clock"
SHARE: Final = "share"
TEMPERATURE: Final = "°"
BARE: Final = "bare"
"""The dimension of a number without a unit."""
WRITTEN: Final = ""
"""The dimension of every number as it is written, without its unit."""


class Reading(NamedTuple):
    """One way to read a quantity: values of a dimension, in its base unit.

    Attributes:
        dimension: for example "length", "share", "year", "clock".
        low: the lowest value.
        high: the highest value.
        factor: how many base units its unit has.
        step: the value of its last digit that is not a trailing zero, in the base unit.
        digits: how many digits there are up to that one.
    """

    dimension: str
    low: float
    high: float
    factor: float = 1.0
    step: float = 0.0
    digits: int = 9


class Quantity(NamedTuple):
    """A quantity of a text.

    Attributes:
        start: its position.
        end: the position behind it and its unit.
        readings: the ways to read it.
        kind: "number" is a number with its unit. In "composed" ("one in two", "half past three") a number alone must
            not be compared. An "indefinite" one ("an hour") may only mean this much.
    """

    start: int
    end: int
    readings: tuple[Reading, ...]
    kind: Kind = "composed"


_HOUR: Final = "|".join([*CARDINALS][1:13])
# "15:30", "3:30 pm", "15h30", "15.30 Uhr"; "3 p.m.", "15 Uhr", "three o'clock"; "half past three"; "noon"
_HALF_DAY: Final = r"\s?([ap])\.?\s?m(?:\.|(?![^\W_]))"
_CLOCK: Final = re.compile(
    rf"(?<![\w.,:/])(?:(?P<hour>[01]?\d|2[0-4]|{_HOUR})"
    rf"(?:(?P<minute>[:h][0-5]\d(?![\d:]|\.\d)|\.[0-5]\d(?={_HALF_DAY}|\s?uhr))(?:{_HALF_DAY})?"
    rf"|{_HALF_DAY}|\s?(?:o['’]clock|uhr(?![^\W_])))"
    rf"|(?P<part>half|quarter|five|ten|twenty|\d\d?) (?P<side>past|to) (?P<of>{_HOUR}|1[0-2]|[1-9])(?![\w:%]|[.,]\d)"
    rf"(?:{_HALF_DAY})?|(?P<name>noon|midday|midnight)(?!\w))",
    re.IGNORECASE,
)
# What a time of day has that does not begin with a digit.
_TIME_WORDS: Final = (" past ", "quarter to", "noon", "midday", "midnight", "clock", "uhr", " pm", " p.m")
# " am" and " a.m" in "nine am"; not in "amount"
_AFTER_HOUR_WORD: Final = re.compile(r" a\.?m(?![^\W_])")
_AM_OR_PM: Final = re.compile(r"([ap])\.?\s?m\.?\Z", re.IGNORECASE)
# "at 9", "from 9", "9 to 5", "9-17": what is before or after an hour that nothing else marks.
_BEFORE_HOUR: Final = re.compile(r"(?:\b(?:at|from|until|till|by|to|and|between|um|bis|von|à)|\d\s?[-–—])\s?\Z", re.I)
_AFTER_HOUR: Final = re.compile(r"\s?(?:[-–—]|to|until|till|bis)\s?\d{1,2}(?:\.[0-5]\d)?(?![\d.,]\d|\d)", re.IGNORECASE)
# "half", "a third of a million", "two-thirds of an hour", "2 ½", "½", "half price"; not "half past", "first half" and
# "half-year"
_FRACTION: Final = re.compile(
    rf"(?<![\w-])(?<!and )(?<!and a )(?<!first )(?<!second )(?:(?:(?P<count>an?|{_HOUR}|eine?|une?|una|\d{{1,2}})[ -])?"
    rf"(?:(?P<price>half)[ -]price|(?P<part>{'|'.join(FRACTIONS)})s?(?![\w-])|(?P<glyph>[½¼¾⅓⅔⅛])))"
    rf"(?! (?:past|to|after)\b)(?:(?: of)?(?: an?|e)(?= )(?: (?P<power>{'|'.join(MAGNITUDES)})(?![^\W_]))?)?",
    re.IGNORECASE,
)
_GLYPHS: Final = {"½": 1 / 2, "¼": 1 / 4, "¾": 3 / 4, "⅓": 1 / 3, "⅔": 2 / 3, "⅛": 1 / 8}
# " and a half", "-and-a-half", "½" behind a number or its unit; then perhaps " million".
_MORE: Final = re.compile(
    rf"(?:(?: and|-and)[ -](?:a[ -]|one[ -])?(?P<part>half|quarter|third)(?![^\W_])| ?(?P<glyph>[{''.join(_GLYPHS)}]))"
    rf"(?:[ -](?P<power>{'|'.join(MAGNITUDES)}))?"
)
# "an hour", "a dozen", "one week"
_INDEFINITE: Final = re.compile(
    r"[aeu](?<![\w-].)(?:(?<=a)n?|(?<=e)ine?|(?<=u)n[ea]?) (?P<unit>[^\W\d_]{3,12})(?![^\W_])", re.IGNORECASE
)
# "19th century", "twentieth-century", "XIXe siècle", "siglo XIX"
_CENTURY: Final = re.compile(
    r"(?<![^\W_])(?:(?:early|mid|late)-)?(?P<ordinal>[^\W_]+(?:-[^\W_]+)?)\.?[ -]"
    r"(?:centur(?:y|ies)|jahrhunderts?|siècles?|eeuw)(?![^\W_])"
    r"|(?<![^\W_])(?:siglo|secolo|século) (?P<roman>[XVI]{1,5})(?![^\W_])",
    re.IGNORECASE,
)
# "FY22", the "21" of "3Q21" and "Q3 '21"
_SHORT_YEAR: Final = re.compile(
    r"(?:(?<![^\W_])(?:FY|CY) ?|(?<=[1-4][QH])|(?<=[QH][1-4] ))['’]?(?P<year>(?:19|20)\d\d|\d\d)(?![^\W_])"
)
# "Chapter IV", "Louis XIV"
_ROMAN: Final = re.compile(
    r"(?<![^\W_])(?:(?=[IVX]{2})|"
    r"(?:chapter|part|section|article|phase|type|class|war|volume|act|title|level|stage) (?=[IVX]))"
    r"(?-i:(?P<number>[IVX]{1,6}))(?![^\W_])",
    re.IGNORECASE,
)
# "the sixties"
_DECADE_WORD: Final = re.compile(
    r"(?:(?<=[Tt]he )|nineteen[- ])(?:(?:early|mid|late)[ -])?"
    r"(?P<tens>twent|thirt|fort|fift|sixt|sevent|eight|ninet)ies(?![^\W_])",
    re.IGNORECASE,
)
_DECADES: Final = [f"{tens}ies" for tens in "twent thirt fort fift sixt sevent eight ninet".split()]
_SPELLED_LANGUAGES: Final = ("de", "fr", "es", "it", "pt", "nl")
_TOKEN: Final = re.compile(r"\w+(?:-\w+)*|[^\w\s]")
_PARTS: Final = {"early": (0.0, 0.4), "mid": (0.3, 0.7), "late": (0.6, 1.0)}
# "late ", "early ", "mid-" before a decade or a century
_PART_BEFORE: Final = re.compile(rf"(?<![^\W_])({'|'.join(_PARTS)})[- ]\Z", re.IGNORECASE)
# Between the numbers of "one in two", "1/2" and "120 of the 240".
_SHARE_GAP: Final = re.compile(r" (?:in|out of)(?: every)? |/")
# "7.30"
_DOTTED_TIME: Final = re.compile(r"([01]?\d|2[0-3])\.([0-5]\d)")
# " h" in "17 h"
_HOUR_SIGN: Final = re.compile(r" ?h(?![^\W_])")
_RANGE_GAP: Final = re.compile(r"\s?(?:[-–—]|to|and|or|bis|und|à|a|y|et)\s?")
_SUM_GAP: Final = re.compile(r"(?:,|,? and)? ?")


@kept
def find_quantities(text: str) -> Sequence[Quantity]:
    """Return the quantities of a text in order. "1 hour 30 minutes" gives its parts, and both together."""
    lower = text.lower()
    found = [*_clock_times(text, lower), *_in_other_languages(text)]
    for find, hints in _RARE:
        # Python finds a word of a list far sooner than an expression finds one of its alternatives.
        if any(map(lower.__contains__, hints)):
            found += find(text)
    for find, sign in _RARE_IN_CAPITALS:
        if sign.search(text):
            found += find(text)
    taken = {at for quantity in found for at in range(quantity.start, quantity.end)}
    numbers = [number for number in find_numbers(text) if number.start not in taken]
    for one, other in pairwise(numbers):
        counted, whole = _value(one), _value(other)
        if counted and whole and counted < whole <= 1_000 and _SHARE_GAP.fullmatch(text[one.end : other.start]):
            share = _exactly(SHARE, counted / whole)
            units = measure(text, one.start, other.end)
            readings = (share, *_in_units(share, units.units))
            found.append(Quantity(one.start, max(other.end, units.end), readings))
    parts = [_of_number(text, number, following) for number, following in zip_longest(numbers, numbers[1:])]
    parts += _indefinites(text, taken)
    return sorted([*found, *parts, *_sums(text, sorted(parts))])


def _exactly(dimension: str, value: float) -> Reading:
    return Reading(dimension, low=value, high=value)


def _quantity(start: int, end: int, dimension: str, *values: float) -> Quantity:
    return Quantity(start, end, tuple(_exactly(dimension, value) for value in values))


def _value(number: Number) -> float | None:
    """Return the most likely value of a number; None for a version or a time."""
    return float(number.readings[0]) if is_decimal(number.readings[0]) else None


def _clock_times(text: str, lower: str) -> Iterator[Quantity]:
    is_spelled = any(map(lower.__contains__, _TIME_WORDS)) or _AFTER_HOUR_WORD.search(lower)
    for found in scan(_CLOCK, text) if is_spelled else scan_at(_CLOCK, text, words_of(text).first_digits):
        half = (_AM_OR_PM.search(found.group()) or "  ")[1].strip().casefold()
        if found["name"]:
            yield _quantity(*found.span(), CLOCK, 0 if found["name"].casefold() == "midnight" else 720)
            continue
        hour = small_number(found["hour"] or found["of"])
        minutes = int(found["minute"][1:]) if found["minute"] else 0
        if part := found["part"]:
            minutes = {"half": 30, "quarter": 15}.get(part.casefold()) or small_number(part)
            # "ten to three" is rather a range.
            if found["side"].casefold() == "to":
                if part.casefold() != "quarter":
                    continue
                minutes = -minutes
        is_exact = half or hour > 12 or (found["hour"] or "").startswith("0")
        hours = [hour % 12 + (12 if half == "p" else 0)] if half else [hour] if is_exact else [hour, hour + 12]
        time = _quantity(*found.span(), CLOCK, *((60 * hour + minutes) % 1440 for hour in hours))
        # "3:45 minutes" is no time of day.
        if lasting := [unit for unit in measure(text, *found.span()).units if unit.dimension == "time"]:
            whole = (hour + minutes / 60) * lasting[0].factor
            yield _quantity(*found.span(), "time", whole)
            continue
        # "at 7 pm" for "at seven"
        written = () if minutes or found["minute"] else (_exactly(WRITTEN, hour),)
        yield time._replace(readings=(*time.readings, *written))


def _fractions(text: str) -> Iterator[Quantity]:
    for found in scan(_FRACTION, text):
        count = found["count"] or ""
        number = small_number(count) or (1 if count else 0)
        part, glyph = (found["part"] or found["price"] or "").casefold(), found["glyph"]
        # "the third quarter": without a count, only a half is a fraction.
        if part and not count and FRACTIONS[part] > 2:
            continue
        value = number + _GLYPHS[glyph] if glyph else max(1, number) / FRACTIONS[part]
        value *= 10 ** MAGNITUDES.get((found["power"] or "").casefold(), 0)
        share = _exactly(WRITTEN if found["power"] else SHARE, value)
        units = measure(text, *found.span()).units
        # "a third party", "a fourth quarter" and "the second half" may be no share.
        is_sure = " of " in text[found.start() : found.end() + 4] or found["power"] or _hedge(text, found.start())
        if number > 1 or not part or FRACTIONS[part] == 2:
            is_sure = (
                is_sure or number > 1 or units or found["price"] or text.startswith((" the ", " der "), found.end())
            )
        kind: Kind = "composed" if is_sure else "indefinite"
        yield Quantity(*found.span(), (share, *_in_units(share, units)), kind)


def _centuries(text: str) -> Iterator[Quantity]:
    for found in scan(_CENTURY, text):
        century = small_number(found["ordinal"] or found["roman"])
        if 1 <= century <= 21:
            start = max(found.start("ordinal"), found.start())
            yield Quantity(*found.span(), (_years(text, start, 100 * century - 100, 100),))
    for found in scan(_DECADE_WORD, text):
        ten = CARDINALS[found["tens"].casefold() + "y"]
        yield Quantity(
            *found.span(), tuple(_years(text, found.start("tens"), first + ten, 10) for first in (1900, 2000))
        )


def _roman_numbers(text: str) -> Iterator[Quantity]:
    for found in scan(_ROMAN, text):
        value = _exactly(WRITTEN, small_number(found["number"]))
        yield Quantity(*found.span(), (value, value._replace(dimension=BARE)), "indefinite")


def _short_years(text: str) -> Iterator[Quantity]:
    for found in scan(_SHORT_YEAR, text):
        year = int(found["year"])
        yield _quantity(*found.span(), YEAR, year if year >= 1000 else 2000 + year)


def _in_other_languages(text: str) -> Iterator[Quantity]:
    """Yield the numbers in words of German, French, Spanish, Italian, Portuguese and Dutch: "zwei Stunden"."""
    # Most texts are in English, and this test takes a tenth of the time of the detector.
    language = None if is_surely_english(text, least=1) else language_of(text)
    if language not in _SPELLED_LANGUAGES or find_spec("text_to_num") is None:
        return
    from text_to_num import find_numbers as find_spelled

    tokens = [*map(_Token, scan(_TOKEN, text))]
    for found in find_spelled(tokens, language, 0.0):
        start, end = tokens[found.start].span[0], tokens[found.end - 1].span[1]
        # "eine" and "un" are articles.
        if found.value > 1 and text[start:end].replace(" ", "").isalpha() and not found.is_ordinal:
            value = _exactly(WRITTEN, found.value)
            units = measure(text, start, end)
            bare = () if units.units else (value._replace(dimension=BARE),)
            yield Quantity(start, units.end, (value, *bare, *_in_units(value, units.units)))


class _Token:
    """A word in the form that text2num reads."""

    def __init__(self, found: re.Match[str]) -> None:
        self._text = found.group()
        self.span = found.span()

    def text(self) -> str:
        return self._text

    def nt_separated(self, previous: _Token) -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return not self._text.isalpha()


def _years(text: str, start: int, first: int, years: int) -> Reading:
    """Return the years from one on, or their early, middle or late part."""
    before = _PART_BEFORE.search(text[max(0, start - 6) : start])
    low, high = _PARTS[before[1].casefold()] if before else (0.0, 1.0)
    # A century ends with the year 1900 for some, and 1899 for others.
    last = first + years * high - (0 if years == 100 and high == 1 else 1)
    return Reading(YEAR, first + years * low, last)


def _of_number(text: str, number: Number, following: Number | None) -> Quantity:
    """Return the quantity of a number, with the unit behind it, or the unit of a range that it begins."""
    raw = text[number.start : number.end]
    # "1½"
    end = number.end - (raw[-1] in _GLYPHS)
    values = [_decimal(reading) for reading in number.readings if is_decimal(reading)]
    units = number.measure if end == number.end else measure(text, number.start, end)
    kind: Kind = "number"
    for place in (end, units.end):
        if values and kind == "number" and (more := _MORE.match(text, place)):
            added = _GLYPHS[more["glyph"]] if more["glyph"] else 1 / FRACTIONS[more["part"]]
            value = (values[0].low + added) * 10 ** MAGNITUDES.get(more["power"] or "", 0)
            values, end, kind = [_exactly(WRITTEN, value)], more.end(), "composed"
            units = units if units.units else measure(text, number.start, end)
    if values and text.startswith((" dozen", "-dozen"), end):
        values, end, kind = [_exactly(WRITTEN, 12 * values[0].low)], end + 6, "composed"
    if not units.units and following and _RANGE_GAP.fullmatch(text[end : following.start]):
        units = units._replace(units=following.measure.units)
    readings = [*values]
    if not units.units:
        readings += [value._replace(dimension=BARE) for value in values]
    for value in values if units.units else ():
        readings += _in_units(value, units.units)
    first = int(values[0].low) if values and values[0].low.is_integer() else -1
    if text[end : end + 2].lstrip("'’")[:1] == "s" or raw.endswith("s"):
        readings = [*_decades(text, number.start, first)] or readings
    elif not units.units and 1000 <= first <= 2100 and raw.isdigit():
        readings.append(_exactly(YEAR, first))
    # "0.5 of the members"
    if values and values[0].low < 1 and not units.units:
        readings.append(_exactly(SHARE, values[0].low)._replace(step=values[0].step))
    if not 0 < first <= 24 and "." not in raw:
        return Quantity(number.start, max(end, units.end), tuple(readings), kind)
    is_hour = _BEFORE_HOUR.search(text[max(0, number.start - 9) : number.start]) or _AFTER_HOUR.match(text, end)
    if 0 < first <= 24 and (_HOUR_SIGN.match(text, end) or (is_hour and units.units <= HOURS)):
        readings += (_exactly(CLOCK, hour * 60 % 1440) for hour in {first, first + 12} if hour <= 24)
    elif is_hour and (time := _DOTTED_TIME.fullmatch(raw)):
        readings.append(_exactly(CLOCK, 60 * int(time[1]) + int(time[2])))
    return Quantity(number.start, max(end, units.end), tuple(readings), kind)


def _in_units(reading: Reading, units: Iterable[Unit]) -> Iterator[Reading]:
    for unit in units:
        yield Reading(
            dimension=unit.dimension,
            low=reading.low * unit.factor + unit.zero,
            high=reading.high * unit.factor + unit.zero,
            factor=unit.factor,
            step=reading.step * unit.factor,
            digits=reading.digits,
        )


def _decades(text: str, start: int, first: int) -> Iterator[Reading]:
    """Yield the years of "1870s", "'90s" and "1800s", which may be a century."""
    if 1000 <= first <= 2100 and first % 10 == 0:
        yield _years(text, start, first, 100 if first % 100 == 0 and first < 2000 else 10)
    elif first in range(10, 100, 10):
        yield from (_years(text, start, century + first, 10) for century in (1900, 2000))


def _decimal(number: str) -> Reading:
    """Return the value of a decimal with its precision."""
    whole, _, fraction = number.partition(".")
    step = 10.0 ** (-len(fraction) if fraction else len(whole) - len(whole.rstrip("0")))
    return _exactly(WRITTEN, float(number))._replace(step=step, digits=len((whole + fraction).strip("0")))


def _indefinites(text: str, taken: set[int]) -> Iterator[Quantity]:
    for found in scan(_INDEFINITE, text):
        if found.start() in taken:
            continue
        if found["unit"].casefold() == "dozen":
            yield _quantity(*found.span(), WRITTEN, 12)._replace(kind="composed")
            continue
        if found["unit"].casefold() not in FIRST_WORDS:
            continue
        units = measure(text, found.start(), found.start("unit") - 1)
        more = _MORE.match(text, units.end)
        value = 1 + (1 / FRACTIONS[more["part"]] if more and more["part"] else 0)
        if units.units:
            kind: Kind = "composed" if more else "indefinite"
            end = more.end() if more else units.end
            yield Quantity(found.start(), end, tuple(_in_units(_exactly(WRITTEN, value), units.units)), kind)


def _sums(text: str, parts: Sequence[Quantity]) -> Iterator[Quantity]:
    """Yield "1 hour 30 minutes" as one quantity: neighbours of one dimension, the larger unit first."""
    for one, other in pairwise(parts):
        if not _SUM_GAP.fullmatch(text[one.end : other.start]):
            continue
        readings = [
            Reading(a.dimension, low=a.low + b.low, high=a.high + b.high, factor=b.factor)
            for a in one.readings
            for b in other.readings
            if a.dimension == b.dimension not in (WRITTEN, BARE, CLOCK, YEAR) and a.factor > b.factor
        ]
        if readings:
            yield Quantity(one.start, other.end, tuple(readings), "number")


# Quantities that few texts have, and what a text with one of them has in lower case.
_RARE: Final[Sequence[tuple[Callable[[str], Iterable[Quantity]], Sequence[str]]]] = (
    (_fractions, (*FRACTIONS, *_GLYPHS)),
    (_centuries, ("centur", "jahrhundert", "siècle", "eeuw", "siglo", "secolo", "século", *_DECADES)),
)
_RARE_IN_CAPITALS: Final[Sequence[tuple[Callable[[str], Iterable[Quantity]], re.Pattern[str]]]] = (
    # "IV", and " I" without a letter behind it
    (_roman_numbers, re.compile(r"[IVX](?:[IVX]|(?<=\s.)(?![^\W_]))")),
    # "FY22", "Q3 21", "1H21"
    (_short_years, re.compile(r"[FC]Y|Q|H['’\d]")),
)

_HEDGE: Final = re.compile(
    rf"(?<![^\W_])(?:{'|'.join(f'(?P<{name}>%s)' % ''.join(words) for name, words in WORD_LISTS['hedges'].items())})"
    r"\s{0,2}(?:the |an? )?(?:US)?[$€£]?\Z",
    re.IGNORECASE,
)
_MAX_HEDGE: Final = 26
_CONVERSION: Final = 0.02
"""How much the value may differ that is converted to another system of units, as a share of it."""


def with_precision(quantity: Quantity, text: str) -> tuple[Reading, ...]:
    """Return what a stated quantity accepts: the values that it may be written for.

    - "1.58 billion" accepts what rounds to it. One digit alone accepts only itself: every text has a number that rounds
      to 70. Years do not round.
    - "about 50" accepts 5% more or less, and up to 7% what rounds to it.
    - "more than 41" accepts up to one more in its last digit, 42, but at least 10% and at most 25% more; "less than" so
      much less.
    - With a unit it accepts the same unit or none, without a unit any.
    """
    hedge = hedge_of(quantity, text)
    dimensions = {reading.dimension for reading in quantity.readings}
    has_unit = BARE not in dimensions and dimensions != {WRITTEN}
    stated = (reading for reading in quantity.readings if reading.dimension != BARE)
    accepted = (_accepted(reading, quantity.kind, hedge) for reading in stated)
    return tuple(r._replace(dimension=BARE) if has_unit and r.dimension == WRITTEN else r for r in accepted)


def hedge_of(quantity: Quantity, text: str) -> Hedge:
    """Return how inexact a quantity is by the words around it; empty for an exact one."""
    return "over" if text.startswith(("+", " or more"), quantity.end) else _hedge(text, quantity.start)


def _hedge(text: str, start: int) -> Hedge:
    found = _HEDGE.search(text[max(0, start - _MAX_HEDGE) : start])
    return cast("Hedge", found.lastgroup) if found else ""


def _accepted(reading: Reading, kind: Kind, hedge: Hedge) -> Reading:
    low, high = reading.low, reading.high
    if reading.dimension == CLOCK or low != high:
        return reading
    # The zero of a temperature is far away.
    size = 0.0 if reading.dimension == TEMPERATURE else low
    # A fraction in words is rarely exact.
    step = reading.step if kind == "number" else size * 0.02
    is_year = reading.dimension in (YEAR, WRITTEN, BARE) and 1000 <= low <= 2100 and step < 100
    slack = 1e-9 * abs(low) if reading.digits < 2 or is_year else step / 2
    if hedge == "about":
        slack = step / 2 if is_year else max(min(step / 2, size * 0.07), size * 0.05)
    bound = max(min(step, size * 0.25), size * 0.1) if size else step
    if hedge == "over":
        return reading._replace(high=high + (bound if kind == "number" else size * 0.5))
    if hedge == "under":
        return reading._replace(low=low - bound)
    # Half of the last digit rounds up.
    return reading._replace(low=low - slack, high=high + slack * (1 - 1e-6))


def is_found(accepted: Reading, readings: Sequence[Reading]) -> bool:
    """Return True if one of the readings of a text, all of one dimension and in order, is what a stated one accepts."""
    is_converted = accepted.dimension not in (WRITTEN, BARE, YEAR, CLOCK)
    margin = _CONVERSION * accepted.high + 1 if is_converted else 0.0
    first = bisect_left(readings, accepted.low - margin, key=attrgetter("low"))
    candidates = takewhile(lambda found: found.low <= accepted.high + margin, readings[first:])
    return any(_is_within(found, accepted) for found in candidates)


def _is_within(found: Reading, accepted: Reading) -> bool:
    # "5 miles" for 8 km: units of two systems are rarely converted exactly. Two of one system have a ratio like 60.
    ratio = max(found.factor, accepted.factor) / min(found.factor, accepted.factor)
    slack = 1e-9 * abs(found.high)
    if abs(ratio - round(ratio)) > 1e-6 * ratio:
        slack = 0.6 if found.dimension == TEMPERATURE else _CONVERSION * found.high
    return accepted.low - slack <= found.low and found.high <= accepted.high + slack
