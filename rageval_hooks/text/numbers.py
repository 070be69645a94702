"""Numbers in a text: figures in any notation, words and magnitudes, as exact decimal strings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

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
_MOSTLY_UNITS: Final = ("m", "b")  # metres, bytes
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
_LITERAL: Final = "|".join(
    (
        rf"\d{{1,3}} ?[{_VULGAR}]",
        r"(?<![\w.,:/'’])(?<![^\W_]-)(?<!\d )[1-9]\d{0,2}(?: \d{3}){1,5}(?:[.,]\d+)?(?!\d|[.,:'’]\d| \d)",
        r"(?<![^\s(\[{\"'“‘«=:<>~≈±|$€£¥−–-])\.\d+(?!\d|[.,:]\d)",
        r"\d+(?:[.,:'’\u00a0\u202f]\d+)*",
    )
)
_NUMBER: Final = re.compile(
    rf"(?=[.\d])(?<!\d)(?P<literal>{_LITERAL})(?P<tail>(?:[^\W\d_]{{1,2}}(?![^\W_]))?)"
    rf"|(?<![^\W_])(?P<words>(?:{'|'.join([*CARDINALS, *ORDINALS, *_MAGNITUDES])})s?(?![^\W_]))",
    re.IGNORECASE,
)
_BETWEEN_NUMBERS: Final = re.compile(r"(?:[ -]|,? and )\Z")
_GROUPS: Final = re.compile(r"\d{1,3}(?: [1-9]\d{2}){1,5}(?![\d ]\d)")
_FRACTION: Final = re.compile(
    rf"(?P<vulgar>[{_VULGAR}])|(?<![\d/.,])(?P<above>\d{{1,2}})[/⁄](?P<below>[1-9]\d?)(?!\d|[/.,]\d)"
)
_WHOLE: Final = re.compile(r"(?<![\d/.,])(\d{1,3})[ -]?\Z")
_AND_A_HALF: Final = re.compile(r" and (?:a |one )?(half|quarter)(?![^\W_])")
_PARTS: Final = {"half": Fraction(1, 2), "quarter": Fraction(1, 4)}

_CURRENCY: Final = "$€£¥"
_SIGN: Final = re.compile(
    rf"(?:\A|(?<=[\s(\[{{\"'“‘«=:<>~≈±|,;{_CURRENCY}]))(?P<sign>[-−–])[{_CURRENCY}]?\Z"
    rf"|(?<![^\W_])(?:minus|negative) [{_CURRENCY}]?\Z",
    re.IGNORECASE,
)
_RANGE_BEFORE: Final = re.compile(rf"[\d%] ?(?:[{_CURRENCY}%°]|°?[^\W\d_]{{1,9}}\.?)?\s\Z")
_MARK_BEFORE: Final = re.compile(rf"(?:[(\[{{\"'“‘«]|[=<~≈±{_CURRENCY}]\s?)\Z")
_WORD_BEFORE: Final = re.compile(
    r"(?<![^\W_])(?:is|are|was|were|be|been|being|becomes?|became|remain(?:s|ed)?|stays|stayed|stood|stands|equals?|"
    r"reach(?:es|ed)?|hits?|averag(?:es?|ed)|returns?|returned|gives?|gave|yields?|yielded|scored|fell|dropped|rose|"
    r"sank|at|of|to|from|by|for|with|(?<!\d )in|into|until|till|between|and|or|than|as|above|below|under|over|near|"
    r"about|around|nearly|almost|roughly|approximately|only|just)\s\Z",
    re.IGNORECASE,
)
_LIST_MARKS: Final = "*>|.)•#+"
_LESS_BEFORE: Final = re.compile(
    r"(?<![^\W_])(?:fell|fall(?:s|en|ing)?|drop(?:s|ped|ping)?|declin\w+|decreas\w+|down|los[et]s?|losing|loss(?:es)?|"
    r"reduc\w+|lower\w*|shr[aiu]nk\w*|below|less|slipp\w+|slid|plung\w+|tumbl\w+|contract\w+|deficits?|cuts?|sank|shed)"
    r"(?:(?! to | from )[^.!?\n\d]){1,25}\Z",
    re.IGNORECASE,
)
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
    """What a text that has this number supports too: its figures without their magnitude, the hour of a time."""


def number_readings(literal: str) -> tuple[str, ...]:
    """The values a numeral can stand for, as plain decimal strings, the likeliest first.

    ``1,000`` is 1000, or 1 with a decimal comma; ``1.000`` is 1, or 1000. ``3.11.7`` is itself.
    ``.5`` is 0.5; ``1 000`` is 1000; ``2½`` is 2.5, and ``⅓`` is 1/3.
    """
    if literal and not literal[-1].isdigit() and literal[-1].isnumeric():
        return (_exact(Fraction(int(literal[:-1].strip() or "0")) + _vulgar(literal[-1])),)
    text = "".join(str(unicodedata.digit(c)) if c.isdigit() else c for c in literal)
    text = text.translate(_GROUPERS)
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


_GROUPERS: Final = str.maketrans("", "", "'’ \u00a0\u202f")


def _vulgar(mark: str) -> Fraction:
    return Fraction(unicodedata.numeric(mark)).limit_denominator(10)


def _exact(value: Fraction) -> str:
    """A decimal where it has an end, else ``1/3``."""
    above, below = value.numerator, value.denominator
    if 1000 % below:
        return f"{above}/{below}"
    return _plain(f"{Decimal(above) / below:f}")


def _plain(number: str) -> str:
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return number.lstrip("0") if number.lstrip("0")[:1].isdigit() else "0" + number.lstrip("0")


def _scale(number: str, power: int) -> str:
    """``number`` times ten to the ``power``, exactly, on strings."""
    whole, _, fraction = number.partition(".")
    fraction = fraction.ljust(power, "0")
    return _plain(f"{whole}{fraction[:power]}.{fraction[power:]}")


def is_ordinal(text: str) -> bool:
    """Whether a number as it is written is an ordinal: "3rd", "twenty-first"."""
    last = re.split(r"[\s-]", text.casefold())[-1]
    return last in ORDINALS or (last[:1].isdigit() and last.endswith(("st", "nd", "rd", "th")))


def find_numbers(text: str) -> Iterator[tuple[int, int, tuple[str, ...], bool]]:
    """Numbers as ``(start, end, readings, is_word)``; "two hundred and five" and "1.5 million" are one number each.

    The likeliest reading comes first. A sign belongs to its number: "-5", "minus 5", "-$5". What may be a sign or not
    ("–5", a dash that begins a line, "UTC -5") is read both ways, and so is "5" in "fell by 5", which others write as
    "-5".
    """
    for number in _numbers(text):
        yield number.start, number.end, number.readings, number.spelled


def supported_numbers(text: str) -> tuple[set[str], set[str]]:
    """Every number that somebody who has read a text may state, and those of them that it has as ordinals."""
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
    """Yield "½" and "1/2" as 0.5; "2½", "2 1/2" and "two and a half" as 2.5 too."""
    for found in _FRACTION.finditer(text):
        part = Fraction(int(found["above"]), int(found["below"])) if found["below"] else _vulgar(found["vulgar"])
        before = text[max(0, found.start() - 5) : found.start()]
        whole = _WHOLE.search(before)
        yield _exact(part)
        if whole:
            yield _exact(int(whole[1]) + part)
    for found in _AND_A_HALF.finditer(text):
        last = text[max(0, found.start() - 10) : found.start()].replace("-", " ").split(" ")[-1].casefold()
        number = int(last) if last.isdecimal() else CARDINALS.get(last)
        if number is not None:
            yield _exact(number + _PARTS[found[1]])


def _numbers(text: str) -> Iterator[_Number]:
    run: list[re.Match[str]] = []
    for found in _NUMBER.finditer(text):
        joins = bool(run) and found["words"] is not None and found.start() - run[-1].end() <= 5
        joins = joins and len(run) < _LONGEST_RUN
        if joins and _BETWEEN_NUMBERS.match(text[run[-1].end() : found.start()]):
            run.append(found)
            continue
        if run:
            yield from (_signed(text, number) for number in _run_values(run))
        run = [found]
    if run:
        yield from (_signed(text, number) for number in _run_values(run))


def _signed(text: str, number: _Number) -> _Number:
    """Read the sign before a number, as far as it is one."""
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
    """Whether a sign may be a bullet, the dash of a range or of a name, or what is to be done instead.

    A hyphen is a minus for sure where a word or mark stands before it that a number follows: "was -5", "(-5)".
    """
    sign = found["sign"]
    line = text[max(0, position - 24) : position].rpartition("\n")[2]
    if sign is None:
        return re.search(r"[\d%]\s\Z", line) is not None
    if sign == "–" or not line.strip():
        return True
    if _WORD_BEFORE.search(line):
        return False
    if _RANGE_BEFORE.search(line):
        return True
    money = found.group()[-1] in _CURRENCY and line.strip()[-1] not in _LIST_MARKS
    return sign == "-" and not money and _MARK_BEFORE.search(line) is None


def _lessened(text: str, number: _Number) -> _Number:
    """Read "fell by 5" as -5 as well."""
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
    """Figures, with the magnitudes that follow them, or else with what words say behind them."""
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
    """The readings of each number in the row that "12 737" may be; none where it must be one, as "12 000" must."""
    text = text.lstrip(f"-−–{_CURRENCY}")
    found = _GROUPS.match(text)
    if found is None:
        return ()
    *first, last = found.group().split(" ")
    readings = next(find_numbers(text[found.end() - len(last) :]))[2]
    return (*(number_readings(group) for group in first), readings)


def _scaled(readings: tuple[str, ...], power: int) -> tuple[str, ...]:
    return tuple(_scale(reading, power) for reading in readings if _is_decimal(reading))


def _word_values(run: list[re.Match[str]]) -> Iterator[_Number]:
    """Number words: each part is smaller than the one before, else a new number begins."""
    at = end = run[0].start()
    total = current = 0
    size = 10**15  # the order of the smallest part so far
    pending = False
    for found in run:
        word = _number_word(found)
        if word in _MAGNITUDES:
            power = 10 ** _MAGNITUDES[word]
            if pending and power == 100 and current >= 100:
                yield _Number(at, end, (str(total + current),), True)
                pending = False
            if not pending:
                at, total, current, pending = found.start(), 0, 1, True
            if power == 100:
                current = (current or 1) * 100
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
                yield _Number(at, end, (str(total + current),), True)
            at, total, current, pending = found.start(), 0, 0, True
        current += value
        size, end = order, found.end()
    if pending:
        yield _Number(at, end, (str(total + current),), True)


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
