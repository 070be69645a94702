"""Dates in a text, in the notations of several languages.

dateparser takes 4 ms for each (these rules 0.03) and reads "May it be so" as a date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rageval_hooks.text.limits import scan_at
from rageval_hooks.text.numerals import MONTH_NUMBER, MONTH_START, MONTHS, ORDINALS
from rageval_hooks.text.word_lists import WORD_LISTS
from rageval_hooks.text.words import words_of

Date = tuple[int | None, int, int | None]  # year, month, day

# "March", "MARCH", "Mar", "Mar.", "Sept."; "May" has no short form.
_MONTH: Final = (
    r"(?P<month>"
    + "|".join(rf"{m}|{m.upper()}" + ("" if m == "May" else rf"|{m[:3]}(?:t(?=[. ]))?\.?(?![a-z])") for m in MONTHS)
    + r")"
)
_OTHER_MONTH_NUMBER: Final[Mapping[str, int]] = {
    name: number for number, names in enumerate(WORD_LISTS["months"], 1) for name in names.split()
}
# "März" in "5. März"; "5" and "th" in "5th"; "2019", and not the beginning of "20190"
_OTHER_MONTH: Final = rf"(?P<month>(?i:{'|'.join(_OTHER_MONTH_NUMBER)}))(?![^\W_])"
_DAY: Final = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR: Final = r"(?P<year>[12]\d{3})(?!\d)"
# The notations, each with whether it begins with a month; else it begins with a digit.
_NOTATIONS: Final[tuple[tuple[re.Pattern[str], bool], ...]] = (
    # 2019-03-05
    (re.compile(r"(?<!\d)(?P<year>[12]\d{3})[-/.](?P<month>[01]?\d)[-/.](?P<day>[0-3]?\d)(?!\d)"), False),
    # 2019年3月5日
    (
        re.compile(
            r"(?<!\d)(?P<year>[12]\d{3})\s?[年년]\s?(?P<month>[01]?\d)\s?[月월](?:\s?(?P<day>[0-3]?\d)\s?[日일])?"
        ),
        False,
    ),
    # 05/2019, 5.2019, and 2019-05, which is no range of years: 2010-12 may be 2010 to 2012
    (re.compile(r"(?<![\d.,/-])(?P<month>0?[1-9]|1[0-2])/(?P<year>[12]\d{3})(?![\d/])"), False),
    (
        re.compile(
            r"(?<![\d/-])(?P<year>[12]\d(?:\d\d(?=-0)|1[2-9](?=-1)|[2-9]\d(?=-1)))-(?P<month>0[1-9]|1[0-2])(?![\d/-])"
        ),
        False,
    ),
    # 5. März 2019, 1er mars, 5 de marzo de 2019, 1º gennaio 2001
    (
        re.compile(rf"(?<!\d)(?P<day>[0-3]?\d)(?:\.|er|º)? (?:de )?{_OTHER_MONTH}(?:(?: de)? {_YEAR})?"),
        False,
    ),
    # March 5, 2019
    (re.compile(rf"(?<![A-Za-z]){_MONTH} {_DAY}(?!\d|\.\d|,\d{{3}}(?!\d))(?:,? {_YEAR})?"), True),
    # 5 March 2019
    (re.compile(rf"(?<!\d){_DAY}(?: of)? {_MONTH}(?:,? {_YEAR})?"), False),
    # March 2019
    (re.compile(rf"(?<![A-Za-z]){_MONTH},? {_YEAR}"), True),
)
_ORDINAL_DAYS: Final[Mapping[str, int]] = {
    **ORDINALS,
    **{f"twenty-{word}": 20 + day for word, day in ORDINALS.items() if day < 10},
    "thirtieth": 30,
    "thirty-first": 31,
}
_SPELLED_DAY: Final = "|".join(sorted(_ORDINAL_DAYS, key=len, reverse=True))
# "the 5th", "twenty-first"; not the beginning of "5,000"
_ONE_DAY: Final = rf"(?:the )?(?:[0-3]?\d(?:st|nd|rd|th)?|{_SPELLED_DAY})(?![^\W_]|\.\d|,\d{{3}}(?!\d))"
# "5", "5th and 7th", "the 5th to 7th"
_DAYS: Final = rf"(?P<days>{_ONE_DAY}(?:(?:\s?[-–/&,]|,? (?:and|or|to|through|until))\s?{_ONE_DAY}){{0,5}})"
# A month in any case: "march", "Sept."
_LOOSE_MONTH: Final = re.compile(
    rf"(?<![^\W_])(?:(?P<full>{'|'.join(MONTHS)})|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)(?![^\W_])\.?",
    re.IGNORECASE,
)
# ", 2019", " of 2019", " in 2019"
_YEAR_BEHIND: Final = r"(?:\s?,?\s?(?:of |in )?(?P<year>[12]\d{3})(?!\d))?"
# "5 " and "the 5th of " before a month, " 5, 2019" and ", on the 5th" after it.
_DAYS_BEFORE: Final = re.compile(rf"(?<![\d.,/-]){_DAYS}\s?(?:of )?\Z", re.IGNORECASE)
_DAYS_BEHIND: Final = re.compile(rf"(?:[,\s]\s?(?:on )?{_DAYS})?{_YEAR_BEHIND}", re.IGNORECASE)
# ", 2019" after a month
_ONLY_YEAR: Final = re.compile(_YEAR_BEHIND, re.IGNORECASE)
# The "5", "7" and "twenty-first" in "5th, 7th and twenty-first".
_DAY_NAME: Final = re.compile(rf"\d+|{_SPELLED_DAY}", re.IGNORECASE)
# Words that are a month only with a capital: "they march", "it may".
_ALSO_VERBS: Final = ("march", "may")
# Characters around a month in which its days and its year are looked for.
_WINDOW: Final = 60

# 3/4/2020, 3.4.2020
_SLASH_DATE: Final = re.compile(r"(?<!\d)([0-3]?\d)[/.]([0-3]?\d)[/.]([12]\d{3})(?!\d)")


def find_dates(text: str) -> Iterator[tuple[int, int, tuple[Date, ...]]]:
    """Yield the dates of a text as (start, end, readings), notation by notation.

    Only the last notation has two readings, and it may overlap with the others: ``3/4/2020`` can be March 4 or April 3.
    """
    digits = words_of(text).first_digits
    # Every date has a number.
    if not digits:
        return
    months = _month_starts(text)
    taken: set[int] = set()
    for pattern, begins_with_month in _NOTATIONS:
        for found in scan_at(pattern, text, months if begins_with_month else digits):
            parts = found.groupdict()
            name = parts["month"].casefold()
            # Short forms are English.
            month = int(name) if name.isdigit() else _OTHER_MONTH_NUMBER.get(name) or MONTH_NUMBER[name[:3]]
            day, year = parts.get("day"), parts.get("year")
            if _is_valid(month, int(day or 1)) and taken.isdisjoint(range(*found.span())):
                taken.update(range(*found.span()))
                yield *found.span(), ((int(year) if year else None, month, int(day) if day else None),)
    for found in scan_at(_SLASH_DATE, text, digits):
        one, two, number = map(int, found.groups())
        readings = tuple((number, month, day) for month, day in {(one, two), (two, one)} if _is_valid(month, day))
        if readings:
            yield *found.span(), readings


def _month_starts(text: str) -> list[int]:
    """Return the positions where the name of a month may begin."""
    return words_of(text).starts_of(MONTH_START, lambda reading: reading.may_be_month)


def _is_valid(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= 31


def loose_dates(text: str) -> set[Date]:
    """Return the dates that a text supports, including those that :func:`find_dates` is not sure of.

    These are dates in lower case, with ordinals in words, in lists and ranges ("March 5 and 7, 2019"), and a month
    alone.
    """
    dates: set[Date] = set()
    for found in scan_at(_LOOSE_MONTH, text, _month_starts(text)):
        start, end = found.span()
        before = _DAYS_BEFORE.search(text[max(0, start - _WINDOW) : start])
        # "5 March 7" has one day: what follows the month then is not its day.
        after = (_ONLY_YEAR if before else _DAYS_BEHIND).match(text, end, end + _WINDOW)
        parts = {**(after.groupdict() if after else {}), **(before.groupdict() if before else {})}
        year = int(parts["year"]) if parts.get("year") else None
        month = MONTH_NUMBER[found.group()[:3].casefold()]
        names = _DAY_NAME.findall(parts.get("days") or "")
        numbers = [int(name) if name.isdigit() else _ORDINAL_DAYS.get(name.casefold(), 0) for name in names]
        days = [day for day in numbers if _is_valid(month, day)]
        dates.update((year, month, day) for day in days)
        # A short form such as "mar" may be a part of something else.
        name = found["full"] or ""
        is_month = name[:1].isupper() or (name and name.casefold() not in _ALSO_VERBS)
        if not days and (year is not None or is_month):
            dates.add((year, month, None))
    return dates


def month_number(text: str) -> int | None:
    """Return the number of a month if the text is its name only, for example "May" or "Sept."; otherwise None."""
    found = _LOOSE_MONTH.fullmatch(text.strip())
    return MONTH_NUMBER[found.group()[:3].casefold()] if found else None
