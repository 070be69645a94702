"""Numbers in a text: digits in any notation, number words and magnitudes, as exact decimal strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import chain
from typing import Final, NamedTuple

from rageval_hooks.text.limits import scan, scan_at
from rageval_hooks.text.numerals import (
    CARDINALS,
    MAGNITUDES,
    NUMBER_WORD,
    ORDINALS,
    VULGAR,
    exact,
    is_decimal,
    number_readings,
    scaled,
    vulgar,
)
from rageval_hooks.text.sentences import Span
from rageval_hooks.text.units import CURRENCY, measure
from rageval_hooks.text.words import words_of

# After digits only: "5k", "1.2bn".
_SHORT_MAGNITUDES: Final[Mapping[str, int]] = {"k": 3, "m": 6, "mn": 6, "bn": 9, "b": 9, "tn": 12}
# "5 m" and "5 b" are rather metres and bytes than millions and billions.
_MOSTLY_UNITS: Final = ("m", "b")
# Words of one number. Longer runs are lists.
_LONGEST_RUN: Final = 32
_HUNDRED: Final = "hundred"
_NUMBER_WORDS: Final = frozenset((*CARDINALS, *ORDINALS, *MAGNITUDES))
# In order: "2½"; "12 000" with spaces between groups; ".5"; "1,000.5", "12:30" or "3.11.7".
_LITERAL: Final = "|".join(
    (
        rf"\d{{1,3}} ?[{VULGAR}]",
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
# "two hundred and five", "twenty-one"
_BETWEEN_NUMBERS: Final = re.compile(r"(?:[ \u00a0\u202f-]|,? and )\Z")
# "12 737": one number with a space between groups, or two numbers in a row.
_GROUPS: Final = re.compile(r"\d{1,3}(?: [1-9]\d{2}){1,5}(?![\d ]\d)")
# "½", "1/2"
_FRACTION: Final = re.compile(
    rf"(?P<vulgar>[{VULGAR}])|(?<![\d/.,])(?P<above>\d{{1,2}})[/⁄](?P<below>[1-9]\d?)(?!\d|[/.,]\d)"
)
# The character that every such fraction has.
_FRACTION_MARK: Final = re.compile(rf"[{VULGAR}/⁄]")
# The "2" before a fraction in "2½", "2 1/2" or "2-1/2".
_WHOLE: Final = re.compile(r"(?<![\d/.,])(\d{1,3})[ -]?\Z")
# "(in millions)", "$ millions", "USD in billions" in the header or the caption of a table: a unit of all its numbers.
_TABLE_UNIT: Final = re.compile(
    r"(?:(?<![^\W_])in|[$€£¥]|USD|EUR|GBP)\s?(?:[$€£¥]\s?|(?:US|USD|EUR|U\.S\. dollar)\s)?"
    r"(?P<unit>thousand|million|billion)s(?![^\W_])"
    r"|\((?:in )?(?:[$€£¥]|US\$|USD|EUR|GBP) ?(?P<short>m|mn|mm|bn|k)\)",
    re.IGNORECASE,
)
_TABLE_POWERS: Final = {"thousand": 3, "k": 3, "million": 6, "m": 6, "mn": 6, "mm": 6, "billion": 9, "bn": 9}
# "two and a half"
_AND_A_HALF: Final = re.compile(r" and (?:a |one )?(half|quarter)(?![^\W_])")
# The "19" of "2018–19": the century is that of the year before it.
_YEAR_BEFORE: Final = re.compile(r"(?<!\d)([12]\d)\d{2}[-–/]\Z")
_PARTS: Final = {"half": Fraction(1, 2), "quarter": Fraction(1, 4)}
# "-" in "(-5)" and "-$5"; "minus 5"; "negative 5"
_SIGN: Final = re.compile(
    rf"(?:\A|(?<=[\s(\[{{\"'“‘«=:<>~≈±|,;{CURRENCY}]))(?P<sign>[-−–])[{CURRENCY}]?\Z"
    rf"|(?<![^\W_])(?:minus|negative) [{CURRENCY}]?\Z",
    re.IGNORECASE,
)
# "(", "=" or a short word before a hyphen ("was -5"), but not the unit of a number ("10 km -5"): the hyphen is a minus.
# Otherwise it may be a bullet, or the dash of a range or of a name ("earth -5").
_SURELY_MINUS: Final = re.compile(
    rf"(?:[(\[{{\"'“‘«]|[=<~≈±]\s?|[{CURRENCY}]"
    r"|(?<!\S)(?:(?<!\d )[a-z]{2,3}|to|or|and|from|than|were|below|above|about|around|between|fell|rose)\s)\Z"
)
# "Balance ", without a digit and without the mark of a list, before "-$5"
_MONEY_BEFORE: Final = re.compile(r"[^\s\d*>|.)•#+]\s?\Z")
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


class _Number(NamedTuple):
    start: int
    end: int
    readings: tuple[str, ...]
    spelled: bool
    parts: tuple[str, ...] = ()
    """Other numbers that a text with this number supports: its digits without the magnitude, the hour of a time."""


def is_ordinal(text: str) -> bool:
    """Return True if a number is written as an ordinal, for example "3rd" or "twenty-first"."""
    # Ordinals end in a letter; most numbers end in a digit.
    if text[-1:].isdigit():
        return False
    last = re.split(r"[\s-]", text.casefold())[-1]
    return last in ORDINALS or (last[:1].isdigit() and last.endswith(("st", "nd", "rd", "th")))


def find_numbers(text: str) -> Iterator[tuple[int, int, tuple[str, ...], bool]]:
    """Yield numbers as ``(start, end, readings, is_word)``. "two hundred and five" and "1.5 million" are one number.

    The most likely reading comes first. A sign belongs to its number: "-5", "minus 5", "-$5". An ambiguous sign ("–5",
    a dash at the beginning of a line, "UTC -5") is read both ways. So is the "5" in "fell by 5", which other texts
    write as "-5".
    """
    for number in _numbers(text):
        yield number.start, number.end, number.readings, number.spelled


class SupportedNumbers(NamedTuple):
    """The numbers that a text supports.

    Attributes:
        values: all of them.
        ordinals: those that it writes as ordinals.
        bare: those that it has without a known unit, which may have any unit.
        measures: those that it has with a unit, as :func:`measure_key` writes them.
    """

    values: set[str]
    ordinals: set[str]
    bare: set[str]
    measures: set[str]


def measure_key(value: str, unit: str) -> str:
    """Return a number with its unit for look-up."""
    return f"{value} {unit}"


def supported_numbers(text: str) -> SupportedNumbers:
    """Return every number that a text supports."""
    bare = set(_fractions(text))
    found = SupportedNumbers(set(), set(), bare, set())
    for number in _numbers(text):
        readings = {*number.readings, *number.parts}
        for apart in numbers_apart(text[number.start : number.end]):
            readings.update(apart)
        found.values.update(readings)
        units = measure(text, number.start, number.end).units
        if units:
            found.measures.update(measure_key(reading, unit) for reading in readings for unit in units)
        else:
            bare.update(readings)
        if is_ordinal(text[number.start : number.end]):
            found.ordinals.add(number.readings[0])
    for power in _table_powers(text):
        # The caption says which numbers are meant in words only, so each may be.
        bare.update(scaled(tuple(found.values), power))
    found.values.update(bare)
    return found


def _table_powers(text: str) -> set[int]:
    """Return the powers of ten that a table's header or caption gives to its numbers."""
    # Most texts have none, and these tests take a tenth of the time of the search.
    folded = text.casefold()
    if not any(word in folded for word in ("thousands", "millions", "billions", "m)", "bn)", "mn)", "k)")):
        return set()
    units = (found["unit"] or found["short"] for found in scan(_TABLE_UNIT, text))
    return {_TABLE_POWERS[unit.casefold()] for unit in units}


def _fractions(text: str) -> Iterator[str]:
    """Yield the values of fractions: 0.5 for "½" and "1/2"; also 2.5 for "2½", "2 1/2" and "two and a half"."""
    # Few texts have a fraction, and these tests take a tenth of the time of the searches.
    fractions = scan(_FRACTION, text) if _FRACTION_MARK.search(text) else ()
    for found in fractions:
        part = Fraction(int(found["above"]), int(found["below"])) if found["below"] else vulgar(found["vulgar"])
        yield exact(part)
        # "2 1/2" is two and a half, and the text also has the half.
        whole = _WHOLE.search(text[max(0, found.start() - 5) : found.start()])
        if whole:
            yield exact(int(whole[1]) + part)
    halves = scan(_AND_A_HALF, text) if "half" in text or "quarter" in text else ()
    for found in halves:
        before = text[max(0, found.start() - 10) : found.start()]
        last = before.replace("-", " ").split(" ")[-1].casefold()
        number = int(last) if last.isdecimal() else CARDINALS.get(last)
        if number is not None:
            yield exact(number + _PARTS[found[1]])


def _numbers(text: str) -> Iterator[_Number]:
    for run in _runs(text):
        for number in _run_values(run):
            yield _signed(text, number)


def _runs(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the matches in runs that may form one number together, for example "two", "hundred" and "five"."""
    run: list[re.Match[str]] = []
    starts = _number_starts(text)
    # Most sentences and names have no number.
    matches = scan_at(_NUMBER, text, starts) if starts else ()
    for found in matches:
        if run and not _joins(text, run, found):
            yield run
            run = []
        run.append(found)
    if run:
        yield run


def _number_starts(text: str) -> list[int]:
    """Return the positions where a number may begin: at digits, at a point before a digit, and at number words."""
    found = words_of(text)
    starts = [start for span in found.maybe_numbers for start in _word_starts(text, span)]
    for digit in found.first_digits:
        if digit > 0 and text[digit - 1] == ".":
            starts.append(digit - 1)
        starts.append(digit)
    return sorted(starts)


def _word_starts(text: str, span: Span) -> Iterator[int]:
    return (found.start() for found in NUMBER_WORD.finditer(text, *span))


def _joins(text: str, run: list[re.Match[str]], found: re.Match[str]) -> bool:
    if found["words"] is None or len(run) >= _LONGEST_RUN:
        return False
    gap = text[run[-1].end() : found.start()]
    return len(gap) <= len(" and ") and _BETWEEN_NUMBERS.match(gap) is not None


def _signed(text: str, number: _Number) -> _Number:
    """Return the number with its sign. A sign that may be something else, and "fell by 5", give both readings."""
    before = text[max(0, number.start - _SIGN_LENGTH) : number.start]
    found = _SIGN.search(before)
    if found is None:
        if number.spelled or not _is_decrease(text, number):
            return number
        return number._replace(readings=number.readings + _negative(number.readings))
    start = number.start - len(before) + found.start()
    line = text[max(0, start - _LINE_LENGTH) : start].rpartition("\n")[2]
    readings, parts = _negative(number.readings), _negative(number.parts)
    if _is_doubtful(line, found):
        return number._replace(readings=number.readings + readings, parts=number.parts + parts)
    return number._replace(start=start, readings=readings, parts=parts)


def _is_doubtful(line: str, found: re.Match[str]) -> bool:
    """Return True if a sign may be something else: a bullet, or the dash of a range or of a name.

    Args:
        line: the text before the sign, in the same line.
        found: the sign.
    """
    sign = found["sign"]
    if sign is None:
        # "5 minus 3" may be a calculation.
        return line.rstrip()[-1:].isdigit()
    # An en dash is rather a dash, and a hyphen that begins a line is rather a bullet.
    if sign == "–" or not line.strip():
        return True
    has_digit = any(map(str.isdigit, line[-_SIGN_LENGTH:]))
    is_money = found.group()[-1] in CURRENCY and not has_digit and _MONEY_BEFORE.search(line)
    is_sure = is_money or (sign == "−" and not has_digit) or _SURELY_MINUS.search(line)
    return not is_sure


def _is_decrease(text: str, number: _Number) -> bool:
    """Return True if the words around a number say that something went down by it."""
    if _LESS_BEFORE.search(text[max(0, number.start - _DECREASE_BEFORE) : number.start]):
        return True
    return _LESS_AFTER.match(text, number.end, number.end + _DECREASE_AFTER) is not None


def _negative(readings: Iterable[str]) -> tuple[str, ...]:
    """Return readings with a minus. Zero has no sign, and neither has a version or a time."""
    return tuple(f"-{reading}" if is_decimal(reading) and reading.strip("0.") else reading for reading in readings)


def _run_values(run: list[re.Match[str]]) -> Iterator[_Number]:
    if run[0]["literal"]:
        return _literal_values(run)
    return _word_values(run)


def _literal_values(run: list[re.Match[str]]) -> Iterator[_Number]:
    """Yield the number in digits with the magnitudes after it ("1.5 million"), or it and the number words after it."""
    found, following = run[0], run[1:]
    readings = _range_end(found) + number_readings(found["literal"])
    tail = found["tail"].casefold()
    if tail in _SHORT_MAGNITUDES:
        larger = scaled(readings, _SHORT_MAGNITUDES[tail])
        readings = readings + larger if tail in _MOSTLY_UNITS else larger + readings
    parts = _literal_parts(found["literal"])
    words = list(map(_number_word, following))
    if not words:
        yield _Number(found.start(), found.end(), readings, False, parts)
    elif MAGNITUDES.keys() >= set(words):
        # "1.5 hundred thousand": each magnitude multiplies.
        power = sum(MAGNITUDES[word] for word in words)
        yield _Number(found.start(), run[-1].end(), scaled(readings, power) or readings, False, readings + parts)
    else:
        yield _Number(found.start(), found.end(), readings, False, parts)
        yield from _word_values(following)


def _literal_parts(literal: str) -> tuple[str, ...]:
    # "12:30" has the numbers 12 and 30; "1,2,3", which is no number with groups, is a list.
    is_list = "," in number_readings(literal)[0]
    if ":" in literal or is_list:
        return tuple(chain.from_iterable(map(number_readings, literal.split("," if is_list else ":"))))
    return tuple(chain.from_iterable(numbers_apart(literal)))


def numbers_apart(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the readings of each number if "12 737" may be two numbers; empty if it must be one, as in "12 000"."""
    if " " not in text:
        return ()
    text = text.lstrip(f"-−–{CURRENCY}")
    found = _GROUPS.match(text)
    if found is None:
        return ()
    *first, last = found.group().split(" ")
    readings = next(find_numbers(text[found.end() - len(last) :]))[2]
    return (*(number_readings(group) for group in first), readings)


class _SpelledNumber:
    """A number in words under construction: each part must be smaller than the one before.

    Attributes:
        start: the position of the first word.
        end: the end of the last word.
    """

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self._total = 0
        self._current = 0
        # The order of magnitude of the smallest part so far.
        self._order = 10**15

    def accepts(self, word: str) -> bool:
        """Return True if a word can follow: "five" after "hundred", but no second "hundred" after "two hundred"."""
        if word == _HUNDRED:
            return self._current < 100
        if word in MAGNITUDES or self._order > 10:
            return True
        # "twenty" and "one" are one number, "twenty" and "twelve" are two.
        return self._order == 10 and 0 < _value(word) < 10

    def add(self, word: str, end: int) -> None:
        """Add a word that can follow."""
        self.end = end
        if word not in MAGNITUDES:
            value = _value(word)
            self._current += value
            self._order = 10 if value >= 20 else 1
            return
        # "hundred" alone is one hundred.
        factor, self._order = max(1, self._current), 10 ** MAGNITUDES[word]
        if word == _HUNDRED:
            self._current = factor * 100
        else:
            self._total, self._current = self._total + factor * self._order, 0

    def number(self) -> _Number:
        """Return the number."""
        return _Number(self.start, self.end, (str(self._total + self._current),), True)


def _value(word: str) -> int:
    return CARDINALS.get(word, ORDINALS.get(word, 0))


def _word_values(run: list[re.Match[str]]) -> Iterator[_Number]:
    """Yield the numbers in a run of number words: "nineteen eighty" is two, "two hundred and five" is one."""
    spelled = _SpelledNumber(run[0].start())
    for found in run:
        word = _number_word(found)
        if not spelled.accepts(word):
            yield spelled.number()
            spelled = _SpelledNumber(found.start())
        spelled.add(word, found.end())
    yield spelled.number()


def _range_end(found: re.Match[str]) -> tuple[str, ...]:
    """Return 2019 for the ``19`` in ``2018–19``; otherwise nothing."""
    literal, start = found["literal"], found.start()
    if len(literal) != 2 or not literal.isdigit():
        return ()
    century = _YEAR_BEFORE.search(found.string[max(0, start - 6) : start])
    return (century[1] + literal,) if century else ()


def _number_word(found: re.Match[str]) -> str:
    """Return a number word in the singular: "hundred" for "hundreds", and "sixties" unchanged."""
    word: str = found["words"].casefold()
    return word if word in _NUMBER_WORDS else word.removesuffix("s")
