"""Dates in a text, in the notations of several languages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rageval_hooks.text.sentences import Span
from rageval_hooks.text.words import Blocked

__all__ = ["MONTHS", "Date", "find_ambiguous_dates", "find_dates"]

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
        rf"(?<![A-Za-z]){_MONTH} {_DAY}(?![\d.])(?:,? {_YEAR})?",
        rf"(?<!\d){_DAY}(?: of)? {_MONTH}(?:,? {_YEAR})?",
        rf"(?<![A-Za-z]){_MONTH},? {_YEAR}",
    )
)
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
