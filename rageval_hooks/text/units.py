"""Units: their spellings, their factors, and the unit of a number in a text.

Libraries were tried: pint takes a quarter of a second to load and reads no text; quantulum3 takes two seconds, and 3 ms
for each sentence.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final, NamedTuple


class Unit(NamedTuple):
    """A unit: its dimension, and the factor and the zero point in the base unit of that dimension."""

    dimension: str
    factor: float
    zero: float = 0.0


NO_UNIT: Final[frozenset[Unit]] = frozenset()


def _by_spelling() -> dict[str, frozenset[Unit]]:
    found: dict[str, frozenset[Unit]] = {}
    for line in files(__package__).joinpath("units.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        dimension, number, *spellings = line.split()
        factor, _, zero = number.partition("+")
        unit = Unit(dimension, float(factor), float(zero or 0))
        for spelling in spellings:
            first, mark, rest = spelling.replace("_", " ").partition(" ")
            plurals = (f"{first}s{mark}{rest}", f"{first}{mark}{rest}s") if len(spelling) > 2 else ()
            for form in (f"{first}{mark}{rest}", *plurals):
                found[form] = found.get(form, NO_UNIT) | {unit}
    # "MEUR", "TEUR"
    for code in map(str.lower, CURRENCY_CODES):
        for letter, power in (("k", 3), ("t", 3), ("m", 6)):
            found[letter + code] = frozenset(unit._replace(factor=10.0**power * unit.factor) for unit in found[code])
    return found


CURRENCY_CODES: Final = ("USD", "EUR", "GBP", "JPY", "CNY", "INR", "CHF", "SEK", "NOK", "DKK")


_BY_SPELLING: Final = _by_spelling()

FIRST_WORDS: Final = frozenset(spelling.split()[0] for spelling in _BY_SPELLING)
"""The first words of all units."""

UNIT_WORDS: Final = frozenset(spelling for spelling in _BY_SPELLING if len(spelling) > 4)
"""Units that are written out, for example "fahrenheit"."""

HOURS: Final = _BY_SPELLING["hour"]
CURRENCIES: Final = frozenset("$ € £ ¥ cny ₹ chf sek nok dkk".split())
"""The dimensions that are money."""

_CURRENCY: Final = "$€£¥₹"
# " kg", "-year", "%", "°C", "€", " percentage points", " km/h", " square metres", " p.m."
_WORD: Final = r"[^\W\d_]{1,14}(?:[²³]|[23](?!\d))?"
_AFTER: Final = re.compile(
    rf"[ \u00a0\u202f-]?(?:(?P<sign>[{_CURRENCY}%]|°(?:\s?[CFcf])?)(?![^\W_])|(?P<time>[ap])\.\s?m\."
    rf"|(?P<words>{_WORD}(?:[ /]{_WORD}){{0,2}}))"
)
# "$", "US$", "EUR ", "C$ " before a number, also before its sign.
_BEFORE: Final = re.compile(
    rf"(?:(?P<sign>[{_CURRENCY}])|(?<![^\W_])(?P<code>[KTM]?(?:{'|'.join(CURRENCY_CODES)})|Rs\.?))[ \u00a0]?[-−–]?\Z"
)
# "kg" in "5kg", which is one number with its unit.
_GLUED: Final = re.compile(r"(?<=\d)[^\W\d_]{1,2}\Z")
_GAP: Final = re.compile(r"([ /])")
_MAX_BEFORE_LENGTH: Final = 6
_MAX_AFTER_LENGTH: Final = 48


class Measure(NamedTuple):
    """The unit of a number.

    Attributes:
        units: what the unit may be; more than one if it is ambiguous, none if it is not known.
        start: the start of the number with its unit.
        end: the end of the number with its unit.
    """

    units: frozenset[Unit]
    start: int
    end: int


NO_MEASURE: Final = Measure(NO_UNIT, 0, 0)


def measure(text: str, start: int, end: int) -> Measure:
    """Return the unit of the number from ``start`` to ``end``, which may hold a unit glued to it."""
    first = max(0, start - _MAX_BEFORE_LENGTH)
    if before := _BEFORE.search(text[first:start]):
        spelling = (before["sign"] or before["code"]).casefold().rstrip(".")
        return Measure(_BY_SPELLING[spelling], first + before.start(), end)
    # "5 Mio. Euro"
    end += text.startswith(".", end) and text[start:end].casefold().endswith(("mio", "mrd"))
    glued = _GLUED.search(text[start:end]) if text[end - 1].isalpha() else None
    found = _AFTER.match(text, end - len(glued.group()) if glued else end, end + _MAX_AFTER_LENGTH)
    if found is None:
        return Measure(NO_UNIT, start, end)
    if not found["words"]:
        spelling = found["sign"] or f"{found['time']}m"
        return Measure(_BY_SPELLING.get(spelling.replace(" ", "").casefold(), NO_UNIT), start, max(end, found.end()))
    words = _GAP.split(found["words"])
    if words[0].casefold() not in FIRST_WORDS:
        return Measure(NO_UNIT, start, end)
    # The longest spelling that is known: "square metres", then "square".
    for count in range(len(words), 0, -2):
        raw = "".join(words[:count])
        if units := _BY_SPELLING.get(raw.casefold().replace("/", " per ")):
            return Measure(units, start, max(end, found.start("words") + len(raw)))
    return Measure(NO_UNIT, start, end)
