"""Units: their spellings, their factors, and the unit of a number in a text.

Libraries were tried: pint takes a quarter of a second to load and reads no text; quantulum3 takes two seconds, and 3 ms
for each sentence.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Unit(NamedTuple):
    """A unit: its dimension, and the factor and the zero point in the base unit of that dimension."""

    dimension: str
    factor: float
    zero: float = 0.0


NO_UNIT: Final[frozenset[Unit]] = frozenset()

# By dimension, the spellings of each unit and its factor; words of more than two letters have a plural with "s". A
# spelling that two units share agrees with both: "pounds", "month" (30 days), "GB" (1000 or 1024 MB).
_UNITS: Final = """
$: dollar usd us$ buck us_dollar=1 cent=.01; €: € euro eur=1 cent=.01; £: £ pound gbp sterling=1 penny pence p=.01
¥: ¥ yen jpy=1; cny: ¥ yuan cny rmb renminbi=1; ₹: ₹ rupee rupees inr rs=1; chf: chf franc franken=1
share: % percent pct prozent per_cent procent por_cento por_ciento per_cento pour_cent=.01 basis_point bp bps=.0001
points: points point pp percentage_point=1 basis_point bp bps=.01
mass: mg milligram milligramme=.000001 g gram gramme gramm=.001 kg kilo kilogram kilogramme kilogramm=1 t ton tonne=1000
mass: ton=907.18474 lb lbs pound=.45359237 oz ounce=.028349523 stone=6.35029318
length: mm millimeter millimetre=.001 cm centimeter centimetre zentimeter=.01 m meter metre mètre metro=1
length: km kms kilometer kilometre kilomètre kilómetro chilometro quilômetro chilometri metri=1000
length: mile mi=1609.344 feet foot ft=.3048 inch inches=.0254 yard yd=.9144
volume: ml milliliter millilitre=.001 cl centilitre centiliter=.01 l liter litre litro=1 cubic_meter cubic_metre m³=1000
volume: gallon gal=3.785411784 gallon=4.54609
area: m² sqm square_meter square_metre sq_m=1 km² square_kilometer square_kilometre sq_km=1000000 hectare ha=10000
area: acre=4046.8564224 sq_ft square_foot square_feet=.09290304 square_mile sq_mi=2589988.110336
time: ms millisecond=.001 second sec secs=1 minute min mins minuten minuto minuti minuut=60
time: hour hr hrs h stunde stunden heure hora ora ore uur=3600 day tag tage tagen jour día dia giorno giorni=86400
time: dag dagen=86400
time: week woche wochen semaine semana settimana settimane week weken=604800 fortnight=1209600
time: month monat monate monaten mois mes meses mese mesi maand maanden=2592000 year yr yrs jahr jahre jahren=31536000
months: month monat monate monaten mois mes meses mese mesi mês maand maanden=1 quarter=3
months: year yr yrs jahr jahre jahren ans année año ano anno anni jaar=12 decade=120 century centuries=1200
am: am=1; pm: pm=1; °: °c ° c degree_celsius degree_centigrade celsius centigrade degree=1+273.15
°: °f ° f degree_fahrenheit fahrenheit degree=.5555555555555556+255.3722222222222 kelvin=1
power: w watt=1 kw kilowatt=1000 mw megawatt=1000000 gw gigawatt=1000000000 hp horsepower=745.7
energy: wh=1 kwh kilowatt_hour=1000 mwh=1000000 gwh=1000000000; heat: j joule=1 kj kilojoule=1000 kcal calorie=4184
data: byte=1 kb kilobyte=1000 kb kilobyte=1024 mb megabyte=1000000 mb megabyte=1048576
data: gb gigabyte=1000000000 gb gigabyte=1073741824 tb terabyte=1000000000000 tb terabyte=1099511627776
bits: kbps kbit=1000 mbps mbit megabit megabit_per_second=1000000 gbps gbit gigabit gigabit_per_second=1000000000
hz: hz hertz=1 khz kilohertz=1000 mhz megahertz=1000000 ghz gigahertz=1000000000
speed: m_per_s meter_per_second metre_per_second=1 knot kn=.5144444
speed: km_per_h kmh kph kilometer_per_hour kilometre_per_hour=.2777777777777778 mph mile_per_hour=.44704
"""


def _by_spelling() -> dict[str, frozenset[Unit]]:
    found: dict[str, frozenset[Unit]] = {"$": frozenset([Unit("$", 1.0)])}
    for dimension, units in re.findall(r"([^\s:;]+): ([^;\n]+)", _UNITS):
        for spellings, factor in re.findall(r"([^=]+)=(\S+)\s?", units):
            number, _, zero = factor.partition("+")
            unit = Unit(dimension, float(number), float(zero or 0))
            for spelling in map(str.casefold, spellings.split()):
                first, mark, rest = spelling.replace("_", " ").partition(" ")
                plurals = (f"{first}s{mark}{rest}", f"{first}{mark}{rest}s") if len(spelling) > 2 else ()
                for form in (f"{first}{mark}{rest}", *plurals):
                    found[form] = found.get(form, NO_UNIT) | {unit}
    return found


_BY_SPELLING: Final = _by_spelling()

UNIT_WORDS: Final = frozenset(spelling for spelling in _BY_SPELLING if len(spelling) > 4)
"""Units that are written out, for example "fahrenheit"."""

HOURS: Final = _BY_SPELLING["hour"]
CURRENCIES: Final = frozenset("$ € £ ¥ cny ₹ chf".split())
"""The dimensions that are money."""

_CURRENCY: Final = "$€£¥₹"
# " kg", "-year", "%", "°C", "€", " percentage points", " km/h", " square metres", " p.m."
_WORD: Final = r"[^\W\d_]{1,14}[²³]?"
_AFTER: Final = re.compile(
    rf"[ \u00a0\u202f-]?(?:(?P<sign>[{_CURRENCY}%]|°(?:\s?[CFcf])?)(?![^\W_])|(?P<time>[ap])\.\s?m\."
    rf"|(?P<words>{_WORD}(?:[ /]{_WORD}){{0,2}}))"
)
# "$", "US$", "EUR ", "C$ " before a number, also before its sign.
_BEFORE: Final = re.compile(
    rf"(?:(?P<sign>[{_CURRENCY}])|(?<![^\W_])(?P<code>USD|EUR|GBP|JPY|CNY|INR|CHF|Rs\.?))[ \u00a0]?[-−–]?\Z"
)
# "kg" in "5kg", which is one number with its unit.
_GLUED: Final = re.compile(r"(?<=\d)[^\W\d_]{1,2}\Z")
_LONGEST_BEFORE: Final = 6
_LONGEST_AFTER: Final = 48


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


def measure(text: str, start: int, end: int) -> Measure:
    """Return the unit of the number from ``start`` to ``end``, which may hold a unit glued to it."""
    first = max(0, start - _LONGEST_BEFORE)
    if before := _BEFORE.search(text[first:start]):
        spelling = (before["sign"] or before["code"]).casefold().rstrip(".")
        return Measure(_BY_SPELLING[spelling], first + before.start(), end)
    glued = _GLUED.search(text[start:end]) if text[end - 1].isalpha() else None
    found = _AFTER.match(text, end - len(glued.group()) if glued else end, end + _LONGEST_AFTER)
    if found is None:
        return Measure(NO_UNIT, start, end)
    if not found["words"]:
        spelling = found["sign"] or f"{found['time']}m"
        return Measure(_BY_SPELLING.get(spelling.replace(" ", "").casefold(), NO_UNIT), start, max(end, found.end()))
    # The longest spelling that is known: "square metres", then "square".
    words = re.split(r"([ /])", found["words"])
    for count in range(len(words), 0, -2):
        raw = "".join(words[:count])
        if units := _BY_SPELLING.get(raw.casefold().replace("/", " per ")):
            return Measure(units, start, max(end, found.start("words") + len(raw)))
    return Measure(NO_UNIT, start, end)
