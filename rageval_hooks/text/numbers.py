"""Numbers in a text: digits in any notation, number words and magnitudes, as exact decimal strings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from rageval_hooks.text.limits import scan

__all__ = [
    "CARDINALS",
    "ORDINALS",
    "find_numbers",
    "is_ordinal",
    "number_readings",
    "numbers_apart",
    "supported_numbers",
]

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
    "mln": 6, "bln": 9,
}  # fmt: skip
_SHORT_MAGNITUDES: Final[Mapping[str, int]] = {"k": 3, "m": 6, "mn": 6, "bn": 9, "b": 9, "tn": 12}
# "5 m" and "5 b" are rather metres and bytes than millions and billions.
_MOSTLY_UNITS: Final = ("m", "b")
# Words of one number. Longer runs are lists.
_LONGEST_RUN: Final = 32
ORDINALS: Final[Mapping[str, int]] = {
    **{
        word: value
        for value, word in enumerate(
            "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
            "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth".split(), 1
        )
    },
}  # fmt: skip
_VULGAR: Final = "¼-¾⅐-⅞"
# In order: "2½"; "12 000" with spaces between groups; ".5"; "1,000.5", "12:30" or "3.11.7".
_LITERAL: Final = "|".join(
    (
        rf"\d{{1,3}} ?[{_VULGAR}]",
        r"(?<![\w.,:/'’])(?<![^\W_]-)(?<!\d )[1-9]\d{0,2}(?: \d{3}){1,5}(?:[.,]\d+)?(?!\d|[.,:'’]\d| \d)",
        r"(?<![^\s(\[{\"'“‘«=:<>~≈±|$€£¥−–-])\.\d+(?!\d|[.,:]\d)",
        r"\d+(?:[.,:'’\u00a0\u202f]\d+)*",
    )
)
# A number in digits with at most two letters after it ("5k", "3rd"), or one number word ("twenty").
_NUMBER: Final = re.compile(
    rf"(?=[.\d])(?<!\d)(?P<literal>{_LITERAL})(?P<tail>(?:[^\W\d_]{{1,2}}(?![^\W_]))?)"
    rf"|(?<![^\W_])(?P<words>(?:{'|'.join([*CARDINALS, *ORDINALS, *_MAGNITUDES])})s?(?![^\W_]))",
    re.IGNORECASE,
)
# "two hundred and five", "twenty-one"
_BETWEEN_NUMBERS: Final = re.compile(r"(?:[ -]|,? and )\Z")
# "12 737": one number with a space between groups, or two numbers in a row.
_GROUPS: Final = re.compile(r"\d{1,3}(?: [1-9]\d{2}){1,5}(?![\d ]\d)")
# "½", "1/2"
_FRACTION: Final = re.compile(
    rf"(?P<vulgar>[{_VULGAR}])|(?<![\d/.,])(?P<above>\d{{1,2}})[/⁄](?P<below>[1-9]\d?)(?!\d|[/.,]\d)"
)
# The "2" before a fraction in "2½", "2 1/2" or "2-1/2".
_WHOLE: Final = re.compile(r"(?<![\d/.,])(\d{1,3})[ -]?\Z")
# "two and a half"
_AND_A_HALF: Final = re.compile(r" and (?:a |one )?(half|quarter)(?![^\W_])")
_PARTS: Final = {"half": Fraction(1, 2), "quarter": Fraction(1, 4)}

_CURRENCY: Final = "$€£¥"
# "-" in "(-5)" and "-$5"; "minus 5"; "negative 5"
_SIGN: Final = re.compile(
    rf"(?:\A|(?<=[\s(\[{{\"'“‘«=:<>~≈±|,;{_CURRENCY}]))(?P<sign>[-−–])[{_CURRENCY}]?\Z"
    rf"|(?<![^\W_])(?:minus|negative) [{_CURRENCY}]?\Z",
    re.IGNORECASE,
)
# "5 " or "5 km " before a hyphen: the hyphen may be the dash of a range.
_RANGE_BEFORE: Final = re.compile(rf"[\d%] ?(?:[{_CURRENCY}%°]|°?[^\W\d_]{{1,9}}\.?)?\s\Z")
# "(", "=" or "$" before a hyphen: the hyphen is a minus.
_MARK_BEFORE: Final = re.compile(rf"(?:[(\[{{\"'“‘«]|[=<~≈±{_CURRENCY}]\s?)\Z")
# "was ", "fell to " or "about " before a hyphen: the hyphen is a minus.
_WORD_BEFORE: Final = re.compile(
    r"(?<![^\W_])(?:is|are|was|were|be|been|being|becomes?|became|remain(?:s|ed)?|stays|stayed|stood|stands|equals?|"
    r"reach(?:es|ed)?|hits?|averag(?:es?|ed)|returns?|returned|gives?|gave|yields?|yielded|scored|fell|dropped|rose|"
    r"sank|at|of|to|from|by|for|with|(?<!\d )in|into|until|till|between|and|or|than|as|above|below|under|over|near|"
    r"about|around|nearly|almost|roughly|approximately|only|just)\s\Z",
    re.IGNORECASE,
)
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


class _Number(NamedTuple):
    start: int
    end: int
    readings: tuple[str, ...]
    spelled: bool
    parts: tuple[str, ...] = ()
    """What a text with this number also supports: its digits without the magnitude, the hour of a time."""


def number_readings(literal: str) -> tuple[str, ...]:
    """Return the values that a numeral can mean, as plain decimal strings, the most likely first.

    Example:
        >>> [number_readings(numeral) for numeral in ("1,000", "1.000", "3.11.7", ".5", "1 000", "2½", "⅓")]
        [('1000', '1'), ('1', '1000'), ('3.11.7',), ('0.5',), ('1000',), ('2.5',), ('1/3',)]
    """
    if literal and not literal[-1].isdigit() and literal[-1].isnumeric():
        return (_exact(Fraction(int(literal[:-1].strip() or "0")) + _vulgar(literal[-1])),)
    text = _ascii_digits(literal).translate(_GROUPERS)
    marks = [character for character in text if character in ".,"]
    if not marks:
        return (_plain(text),)
    if ":" in text:
        return (text,)
    if len(set(marks)) == 2:
        return (_with_both_marks(text, decimal=marks[-1]),)
    grouped = _GROUPED.fullmatch(text) is not None
    without_marks = _plain(re.sub("[.,]", "", text))
    if len(marks) > 1:
        # "1,000,000" is one number, "3.11.7" is a version.
        return (without_marks,) if grouped else (text,)
    as_decimal = _plain(text.replace(",", "."))
    if not grouped:
        return (as_decimal,)
    return (without_marks, as_decimal) if marks[0] == "," else (as_decimal, without_marks)


_GROUPERS: Final = str.maketrans("", "", "'’ \u00a0\u202f")
# 1,000,000, and 1,00,000 as in India
_GROUPED: Final = re.compile(r"\d{1,3}(?:[.,]\d{3})+|\d{1,2}(?:,\d{2})+,\d{3}")


def _ascii_digits(literal: str) -> str:
    """Return the text with digits of any script as 0 to 9."""
    return "".join(str(unicodedata.digit(c)) if c.isdigit() else c for c in literal)


def _with_both_marks(text: str, decimal: str) -> str:
    """Return the value of a numeral with commas and dots, the last of which is the decimal mark: "1.000,5"."""
    if text.count(decimal) > 1:
        return text
    grouping = "," if decimal == "." else "."
    return _plain(text.replace(grouping, "").replace(decimal, "."))


def _vulgar(mark: str) -> Fraction:
    return Fraction(unicodedata.numeric(mark)).limit_denominator(10)


def _exact(value: Fraction) -> str:
    """Return a fraction as a decimal if that is finite, for example "0.5", otherwise as "1/3"."""
    above, below = value.numerator, value.denominator
    if 1000 % below:
        return f"{above}/{below}"
    return _plain(f"{Decimal(above) / below:f}")


def _plain(number: str) -> str:
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return number.lstrip("0") if number.lstrip("0")[:1].isdigit() else "0" + number.lstrip("0")


def _scale(number: str, power: int) -> str:
    """Return ``number`` times ten to the ``power``, exactly."""
    whole, _, fraction = number.partition(".")
    fraction = fraction.ljust(power, "0")
    return _plain(f"{whole}{fraction[:power]}.{fraction[power:]}")


def is_ordinal(text: str) -> bool:
    """Return True if a number is written as an ordinal, for example "3rd" or "twenty-first"."""
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


def supported_numbers(text: str) -> tuple[set[str], set[str]]:
    """Return every number that a text supports, and those of them that it writes as ordinals."""
    values: set[str] = set(_fractions(text))
    ordinals: set[str] = set()
    for number in _numbers(text):
        values.update(number.readings, number.parts)
        for readings in numbers_apart(text[number.start : number.end]):
            values.update(readings)
        if is_ordinal(text[number.start : number.end]):
            ordinals.add(number.readings[0])
    return values, ordinals


def _fractions(text: str) -> Iterator[str]:
    """Yield the values of fractions: 0.5 for "½" and "1/2"; also 2.5 for "2½", "2 1/2" and "two and a half"."""
    for found in scan(_FRACTION, text):
        part = Fraction(int(found["above"]), int(found["below"])) if found["below"] else _vulgar(found["vulgar"])
        before = text[max(0, found.start() - 5) : found.start()]
        whole = _WHOLE.search(before)
        yield _exact(part)
        if whole:
            yield _exact(int(whole[1]) + part)
    for found in scan(_AND_A_HALF, text):
        last = text[max(0, found.start() - 10) : found.start()].replace("-", " ").split(" ")[-1].casefold()
        number = int(last) if last.isdecimal() else CARDINALS.get(last)
        if number is not None:
            yield _exact(number + _PARTS[found[1]])


def _numbers(text: str) -> Iterator[_Number]:
    for run in _runs(text):
        for number in _run_values(run):
            yield _signed(text, number)


def _runs(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the matches that may form one number together, for example "two", "hundred" and "five"."""
    run: list[re.Match[str]] = []
    for found in scan(_NUMBER, text):
        if run and _joins(text, run, found):
            run.append(found)
            continue
        if run:
            yield run
        run = [found]
    if run:
        yield run


def _joins(text: str, run: list[re.Match[str]], found: re.Match[str]) -> bool:
    if found["words"] is None or len(run) >= _LONGEST_RUN:
        return False
    gap = text[run[-1].end() : found.start()]
    return len(gap) <= len(" and ") and _BETWEEN_NUMBERS.match(gap) is not None


def _signed(text: str, number: _Number) -> _Number:
    """Return the number with the sign before it, if there is one."""
    before = text[max(0, number.start - 12) : number.start]
    found = _SIGN.search(before)
    if found is None:
        return _lessened(text, number)
    begin = number.start - len(before) + found.start()
    negative, parts = _negative(number.readings), _negative(number.parts)
    if not _is_doubtful(text, begin, found):
        return number._replace(start=begin, readings=negative, parts=parts)
    return number._replace(readings=(*number.readings, *negative), parts=(*number.parts, *parts))


def _is_doubtful(text: str, position: int, found: re.Match[str]) -> bool:
    """Return True if a sign may be something else: a bullet, or the dash of a range or of a name.

    A hyphen is certainly a minus after a word or mark that a number follows: "was -5", "(-5)".
    """
    sign = found["sign"]
    line = text[max(0, position - 24) : position].rpartition("\n")[2]
    if sign is None:
        return re.search(r"[\d%]\s\Z", line) is not None
    # An en dash is rather a dash, and a hyphen that begins a line is rather a bullet.
    if sign == "–" or not line.strip():
        return True
    if _WORD_BEFORE.search(line):
        return False
    if _RANGE_BEFORE.search(line):
        return True
    money = found.group()[-1] in _CURRENCY and line.strip()[-1] not in _LIST_MARKS
    return sign == "-" and not money and _MARK_BEFORE.search(line) is None


def _lessened(text: str, number: _Number) -> _Number:
    """Return the number, with a negative reading too if it is a decrease: "fell by 5"."""
    before = text[max(0, number.start - 45) : number.start]
    if not number.spelled and (_LESS_BEFORE.search(before) or _LESS_AFTER.match(text, number.end, number.end + 40)):
        return number._replace(readings=(*number.readings, *_negative(number.readings)))
    return number


def _negative(readings: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"-{reading}" if _is_decimal(reading) and reading.strip("0.") else reading for reading in readings)


def _run_values(run: list[re.Match[str]]) -> Iterator[_Number]:
    if run[0]["literal"]:
        yield from _literal_values(run)
    else:
        yield from _word_values(run)


def _literal_values(run: list[re.Match[str]]) -> Iterator[_Number]:
    """Yield the number in digits with the magnitudes after it ("1.5 million"), or it and the number words after it."""
    found, following = run[0], run[1:]
    readings = _range_end(found) + number_readings(found["literal"])
    tail = found["tail"].casefold()
    if tail in _SHORT_MAGNITUDES:
        scaled = _scaled(readings, _SHORT_MAGNITUDES[tail])
        readings = readings + scaled if tail in _MOSTLY_UNITS else scaled + readings
    power = sum(_MAGNITUDES.get(_number_word(f), 0) for f in following)
    if power and all(_number_word(f) in _MAGNITUDES for f in following):
        parts = readings + _literal_parts(found["literal"])
        yield _Number(found.start(), run[-1].end(), _scaled(readings, power) or readings, False, parts)
        return
    yield _Number(found.start(), found.end(), readings, False, _literal_parts(found["literal"]))
    if following:
        yield from _word_values(following)


def _literal_parts(literal: str) -> tuple[str, ...]:
    if ":" in literal:
        return tuple(reading for part in literal.split(":") for reading in number_readings(part))
    return tuple(reading for readings in numbers_apart(literal) for reading in readings)


def numbers_apart(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the readings of each number if "12 737" may be two numbers; empty if it must be one, as in "12 000"."""
    text = text.lstrip(f"-−–{_CURRENCY}")
    found = _GROUPS.match(text)
    if found is None:
        return ()
    *first, last = found.group().split(" ")
    readings = next(find_numbers(text[found.end() - len(last) :]))[2]
    return (*(number_readings(group) for group in first), readings)


def _scaled(readings: tuple[str, ...], power: int) -> tuple[str, ...]:
    return tuple(_scale(reading, power) for reading in readings if _is_decimal(reading))


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

    def accepts_magnitude(self, power: int) -> bool:
        """Return True if "hundred" or "million" can follow: "two hundred hundred" is not one number."""
        return power != 100 or self._current < 100

    def multiply(self, power: int, end: int) -> None:
        """Apply "hundred", "thousand", "million"."""
        factor = self._current or 1
        if power == 100:
            self._current = factor * 100
        else:
            self._total, self._current = self._total + factor * power, 0
        self._order, self.end = power, end

    def accepts(self, value: int) -> bool:
        """Return True if a word below one hundred can follow: "hundred" and "five", "twenty" and "one"."""
        if self._order > 10:
            return True
        return self._order == 10 and 0 < value < 10

    def add(self, value: int, end: int) -> None:
        """Add a word below one hundred."""
        self._current += value
        self._order, self.end = (10 if value >= 20 else 1), end

    def number(self) -> _Number:
        """Return the number."""
        return _Number(self.start, self.end, (str(self._total + self._current),), True)


def _word_values(run: list[re.Match[str]]) -> Iterator[_Number]:
    """Yield the numbers in a run of number words: "nineteen eighty" is two, "two hundred and five" is one."""
    spelled: _SpelledNumber | None = None
    for found in run:
        word = _number_word(found)
        power = 10 ** _MAGNITUDES[word] if word in _MAGNITUDES else None
        value = CARDINALS.get(word, ORDINALS.get(word, 0))
        fits = spelled and (spelled.accepts(value) if power is None else spelled.accepts_magnitude(power))
        if spelled is None or not fits:
            if spelled:
                yield spelled.number()
            spelled = _SpelledNumber(found.start())
        if power is None:
            spelled.add(value, found.end())
        else:
            spelled.multiply(power, found.end())
    if spelled:
        yield spelled.number()


def _range_end(found: re.Match[str]) -> tuple[str, ...]:
    """Return 2019 for the ``19`` in ``2018–19``; otherwise nothing."""
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
