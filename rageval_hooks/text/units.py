"""Units of numbers: currencies, weights, lengths, times and shares, so that "$5" and "€5" are different facts."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

CURRENCY: Final = "$€£¥"
"""Signs of currencies, which may be between a minus and its number: "-$5"."""

# Each line has the ways to write one unit. A way on two lines is ambiguous and agrees with both: "pounds".
_UNITS: Final = """
$ dollar dollars usd us$ buck bucks
cent cents
€ euro euros eur
£ pound pounds gbp sterling
¥ yen jpy
¥ yuan cny rmb renminbi
₹ rupee rupees inr rs
chf franc francs
% percent pct percents
points point pp
mg milligram milligrams
g gram grams
kg kilo kilos kilogram kilograms
ton tons tonne tonnes
lb lbs pound pounds
oz ounce ounces
mm millimeter millimeters millimetre millimetres
cm centimeter centimeters centimetre centimetres
meter meters metre metres
km kilometer kilometers kilometre kilometres kms
mile miles
feet foot ft
inch inches
yard yards
ml milliliter milliliters millilitre millilitres
liter liters litre litres
gallon gallons
ms millisecond milliseconds
second seconds sec secs
minute minutes min mins
hour hours hr hrs
day days
week weeks
month months
year years yr yrs
decade decades
century centuries
am
pm
°c ° degree degrees celsius centigrade
°f ° degree degrees fahrenheit
kw kilowatt kilowatts
mw megawatt megawatts
gw gigawatt gigawatts
kwh
mwh
gwh
kb kilobyte kilobytes
mb megabyte megabytes
gb gigabyte gigabytes
tb terabyte terabytes
hz hertz
khz kilohertz
mhz megahertz
ghz gigahertz
"""

NO_UNIT: Final[frozenset[str]] = frozenset()


def _by_spelling() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for number, line in enumerate(_UNITS.strip().splitlines()):
        spellings = line.split()
        for spelling in spellings:
            # The line's number keeps two lines apart that begin alike: yen and yuan.
            found.setdefault(spelling, set()).add(f"{spellings[0]}{number}")
    return {spelling: frozenset(units) for spelling, units in found.items()}


_BY_SPELLING: Final = _by_spelling()

UNIT_WORDS: Final = frozenset(spelling for spelling in _BY_SPELLING if len(spelling) > 4)
"""Units that are written out, for example "fahrenheit"."""

# " kg", "-year", " million dollars" is read from " dollars" on; "%", "°C", "€", " percentage points", " p.m."
_AFTER: Final = re.compile(
    rf"[ \u00a0\u202f-]?(?:(?P<share>per ?cent(?:age)?(?: points?)?|basis points?)(?![^\W_])|(?P<time>[ap])\.m\."
    rf"|(?P<word>[^\W\d_]{{1,12}}|°[CFcf]?|[%{CURRENCY}₹])(?![^\W_]))",
    re.IGNORECASE,
)
# "$", "US$", "EUR ", "C$ " before a number, also before its sign.
_BEFORE: Final = re.compile(
    rf"(?:(?P<sign>[{CURRENCY}₹])|(?<![^\W_])(?P<code>USD|EUR|GBP|JPY|CNY|INR|CHF|Rs\.?))[ \u00a0]?[-−–]?\Z"
)
_LONGEST_BEFORE: Final = 6
_LONGEST_AFTER: Final = 24
_LONGEST_TAIL: Final = 2


class Measure(NamedTuple):
    """The unit of a number.

    Attributes:
        units: what the unit may be; more than one if it is ambiguous, none if it is not known.
        start: the start of the number with its unit.
        end: the end of the number with its unit.
    """

    units: frozenset[str]
    start: int
    end: int


def measure(text: str, start: int, end: int) -> Measure:
    """Return the unit of the number from ``start`` to ``end``, which may hold its sign and a unit glued to it."""
    if before := _BEFORE.search(text[max(0, start - _LONGEST_BEFORE) : start + _currency_inside(text, start)]):
        spelling = (before["sign"] or before["code"]).casefold().rstrip(".")
        first = min(start, max(0, start - _LONGEST_BEFORE) + before.start())
        return Measure(_BY_SPELLING[spelling], first, end)
    # "5kg" is one number with its unit.
    tail = _tail(text, start, end)
    if found := _AFTER.match(text, end - tail, end + _LONGEST_AFTER):
        return Measure(_units_after(found), start, max(end, found.end()))
    return Measure(NO_UNIT, start, end)


def _currency_inside(text: str, start: int) -> int:
    """Return 2 for "-$5", whose currency is after its sign, else 0."""
    return 2 if text[start : start + 1] in "-−–" and text[start + 1 : start + 2] in CURRENCY else 0


def _tail(text: str, start: int, end: int) -> int:
    """Return the number of letters at the end of a number in digits: 2 for "5kg"."""
    length = 0
    while length < _LONGEST_TAIL and text[end - length - 1].isalpha():
        length += 1
    is_glued = end - length > start and text[end - length - 1].isdigit()
    return length if is_glued else 0


def _units_after(found: re.Match[str]) -> frozenset[str]:
    if share := found["share"]:
        return _BY_SPELLING["points" if "point" in share.casefold() else "%"]
    if time := found["time"]:
        return _BY_SPELLING[f"{time.casefold()}m"]
    return _BY_SPELLING.get(found["word"].casefold(), NO_UNIT)
