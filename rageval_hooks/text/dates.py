"""Dates in a text, in the notations of several languages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rageval_hooks.text.numbers import ORDINALS
from rageval_hooks.text.sentences import Span
from rageval_hooks.text.words import Blocked

__all__ = ["MONTHS", "Date", "find_ambiguous_dates", "find_dates", "loose_dates", "month_number"]

Date = tuple[int | None, int, int | None]  # year, month, day

MONTHS: Final = "January February March April May June July August September October November December".split()
_MONTH_NUMBER: Final[Mapping[str, int]] = {
    **{name[:3].casefold(): i for i, name in enumerate(MONTHS, 1)},
}
_MONTH: Final = (
    r"(?P<month>"
    + "|".join(rf"{m}|{m.upper()}" + ("" if m == "May" else rf"|{m[:3]}(?:t(?=[. ]))?\.?(?![a-z])") for m in MONTHS)
    + r")"
)
_DAY: Final = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR: Final = r"(?P<year>[12]\d{3})(?!\d)"
_DATES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<!\d)(?P<year>[12]\d{3})[-/.](?P<month>[01]?\d)[-/.](?P<day>[0-3]?\d)(?!\d)",
        r"(?<!\d)(?P<year>[12]\d{3})\s?[年년]\s?(?P<month>[01]?\d)\s?[月월](?:\s?(?P<day>[0-3]?\d)\s?[日일])?",
        rf"(?<![A-Za-z]){_MONTH} {_DAY}(?!\d|\.\d|,\d{{3}}(?!\d))(?:,? {_YEAR})?",
        rf"(?<!\d){_DAY}(?: of)? {_MONTH}(?:,? {_YEAR})?",
        rf"(?<![A-Za-z]){_MONTH},? {_YEAR}",
    )
)
_ORDINAL_DAYS: Final[Mapping[str, int]] = {
    **ORDINALS,
    **{f"twenty-{word}": 20 + day for word, day in ORDINALS.items() if day < 10},
    "thirtieth": 30,
    "thirty-first": 31,
}
_SPELLED_DAY: Final = "|".join(sorted(_ORDINAL_DAYS, key=len, reverse=True))
_ONE_DAY: Final = rf"(?:the )?(?:[0-3]?\d(?:st|nd|rd|th)?|{_SPELLED_DAY})(?![^\W_]|\.\d|,\d{{3}}(?!\d))"
_DAYS: Final = rf"(?P<days>{_ONE_DAY}(?:(?:\s?[-–/&,]|,? (?:and|or|to|through|until))\s?{_ONE_DAY}){{0,5}})"
_LOOSE_MONTH: Final = re.compile(
    rf"(?<![^\W_])(?:(?P<full>{'|'.join(MONTHS)})|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)(?![^\W_])\.?",
    re.IGNORECASE,
)
_YEAR_BEHIND: Final = r"(?:\s?,?\s?(?:of |in )?(?P<year>[12]\d{3})(?!\d))?"
_DAYS_BEFORE: Final = re.compile(rf"(?<![\d.,/-]){_DAYS}\s?(?:of )?\Z", re.IGNORECASE)
_DAYS_BEHIND: Final = re.compile(rf"(?:[,\s]\s?(?:on )?{_DAYS})?{_YEAR_BEHIND}", re.IGNORECASE)
_ONLY_YEAR: Final = re.compile(_YEAR_BEHIND, re.IGNORECASE)
_DAY_NAME: Final = re.compile(rf"\d+|{_SPELLED_DAY}", re.IGNORECASE)
_ALSO_VERBS: Final = ("march", "may")
_WINDOW: Final = 60

_SLASH_DATE: Final = re.compile(r"(?<!\d)([0-3]?\d)[/.]([0-3]?\d)[/.]([12]\d{3})(?!\d)")


def find_dates(text: str) -> Iterator[tuple[int, int, Date]]:
    """Yield the dates of a text as (start, end, date), by notation; overlapping readings once."""
    taken: list[Span] = []
    for pattern in _DATES:
        blocked = Blocked(taken)
        for found in pattern.finditer(text):
            a, b = found.span()
            if blocked.hits(a, b):
                continue
            parts = found.groupdict()
            month = parts["month"]
            number = int(month) if month.isdigit() else _MONTH_NUMBER[month[:3].casefold()]
            day = int(parts["day"]) if parts.get("day") else None
            year = int(parts["year"]) if parts.get("year") else None
            if 1 <= number <= 12 and (day is None or 1 <= day <= 31):
                taken.append((a, b))
                yield a, b, (year, number, day)


def find_ambiguous_dates(text: str) -> Iterator[tuple[int, int, tuple[Date, ...]]]:
    """``3/4/2020`` can be March 4 or 3 April: both."""
    for found in _SLASH_DATE.finditer(text):
        one, two, year = (int(group) for group in found.groups())
        readings = tuple((year, m, d) for m, d in {(one, two), (two, one)} if 1 <= m <= 12 and 1 <= d <= 31)
        if readings:
            yield found.start(), found.end(), readings


def loose_dates(text: str) -> set[Date]:
    """Dates as somebody who has read a text may state them, more than :func:`find_dates` is sure of.

    In lower case, with ordinals in words, of lists and ranges ("March 5 and 7, 2019"), and a month that stands alone.
    """
    dates: set[Date] = set()
    for found in _LOOSE_MONTH.finditer(text):
        a, b = found.span()
        number = _MONTH_NUMBER[found.group()[:3].casefold()]
        before = _DAYS_BEFORE.search(text[max(0, a - _WINDOW) : a])
        behind = (_ONLY_YEAR if before else _DAYS_BEHIND).match(text, b, b + _WINDOW)
        year = int(behind["year"]) if behind and behind["year"] else None
        listed = before["days"] if before else behind and behind["days"]
        days = [day for name in _DAY_NAME.findall(listed or "") if 1 <= (day := _day_number(name)) <= 31]
        dates.update((year, number, day) for day in days)
        if not days and (year is not None or _is_month_name(found)):
            dates.add((year, number, None))
    return dates


def month_number(text: str) -> int | None:
    """The month that a text names, and nothing else: "May", "Sept."."""
    found = _LOOSE_MONTH.fullmatch(text.strip())
    return _MONTH_NUMBER[found.group()[:3].casefold()] if found else None


def _is_month_name(found: re.Match[str]) -> bool:
    name: str | None = found["full"]
    return name is not None and (name[0].isupper() or name.casefold() not in _ALSO_VERBS)


def _day_number(name: str) -> int:
    return int(name) if name.isdigit() else _ORDINAL_DAYS.get(name.casefold(), 0)
