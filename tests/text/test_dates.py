"""Dates in the notations of several languages."""

from __future__ import annotations

from datetime import date
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.dates import Date, find_dates, loose_dates
from rageval_hooks.text.facts import find_values
from rageval_hooks.text.numerals import MONTHS
from tests.text.junk import anything


@pytest.mark.parametrize(
    "text",
    [
        "March 3, 2020",
        "March 3 2020",
        "Mar. 3, 2020",
        "MARCH 3, 2020",
        "March 3rd, 2020",
        "3 March 2020",
        "3rd of March, 2020",
        "03 Mar 2020",
        "2020-03-03",
        "2020/3/3",
        "2020.03.03",
        "2020年3月3日",
        "2020년 3월 3일",
    ],
)
def test_notations_of_one_day(text: str) -> None:
    """All these are 3 March 2020."""
    assert [found for _, _, found in find_dates(f"It was on {text}, they say")] == [((2020, 3, 3),)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("March 2020", (2020, 3, None)),
        ("Sept. 1987", (1987, 9, None)),
        ("July 4", (None, 7, 4)),
        ("4 July", (None, 7, 4)),
        ("2020年3月", (2020, 3, None)),
        ("May 5", (None, 5, 5)),
        ("It was on May 5.", (None, 5, 5)),
        ("It was on May 5. 20 came.", (None, 5, 5)),
        ("It was on May 5,2020", (None, 5, 5)),
    ],
)
def test_parts_of_a_date(text: str, expected: Date) -> None:
    """A part that is not written is None."""
    assert [found for _, _, found in find_dates(text)] == [(expected,)]


@pytest.mark.parametrize(
    "text",
    ["It may 5 times", "Marching 3 miles", "2020-13-40", "1234567-03-03", "May it be so", "May 5.5", "In May 12,000"],
)
def test_what_is_no_date(text: str) -> None:
    """Verbs, impossible months and longer numbers are not taken for dates."""
    assert list(find_dates(text)) == []


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("3/4/2020", {(2020, 3, 4), (2020, 4, 3)}),
        ("31.12.2020", {(2020, 12, 31)}),
        ("12/31/2020", {(2020, 12, 31)}),
        ("5/5/2020", {(2020, 5, 5)}),
        ("40/50/2020", set()),
    ],
)
def test_day_and_month_in_either_order(text: str, readings: set[Date]) -> None:
    """Two small numbers before a year are read in both orders, as far as both are dates."""
    assert {reading for _, _, found in find_dates(text) for reading in found} == readings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("March 5 and 7, 2019", {(2019, 3, 5), (2019, 3, 7)}),
        ("5–7 March 2019", {(2019, 3, 5), (2019, 3, 7)}),
        ("on the first and the twenty-second of March", {(None, 3, 1), (None, 3, 22)}),
        ("march 3 , 2020", {(2020, 3, 3)}),
        ("sept 2020", {(2020, 9, None)}),
        ("in March", {(None, 3, None)}),
        ("March 7. It has 5 rooms", {(None, 3, 7)}),
        ("March came with 5 men", {(None, 3, None)}),
        ("it may, on a march", set()),
        ("jan met mar", set()),
        ("the fıfth March", {(None, 3, None)}),
    ],
)
def test_dates_that_a_text_supports(text: str, expected: set[Date]) -> None:
    """Lists and ranges of days, words, lower case, a month alone; but not numbers from another sentence."""
    assert loose_dates(text) == expected


@given(st.dates(date(1000, 1, 1), date(2999, 12, 31)))
def test_a_day_is_read_back_from_each_notation(day: date) -> None:
    """The English and ISO notations of any day are read as that day."""
    month = MONTHS[day.month - 1]

    for text in (str(day), f"{month} {day.day}, {day.year}", f"{day.day} {month[:3]} {day.year}"):
        assert [found for _, _, found in find_dates(text)] == [((day.year, day.month, day.day),)]


@given(anything())
def test_dates_that_any_text_supports_are_dates(text: str) -> None:
    """For any text, each part is in its range."""
    for year, month, day in loose_dates(text):
        assert year is None or 1000 <= year <= 2999
        assert 1 <= month <= 12
        assert day is None or 1 <= day <= 31


@given(anything())
def test_dates_stand_apart(text: str) -> None:
    """No two facts overlap, and every part of a date is in its range."""
    facts = find_values(text)
    for one, other in pairwise(sorted(facts)):
        assert one.end <= other.start
    for _, month, day in chain.from_iterable(fact.dates for fact in facts):
        assert 1 <= month <= 12
        assert day is None or 1 <= day <= 31


def test_one_notation_within_another_is_not_a_date_of_its_own() -> None:
    """ "March 3" is a date, and then "3/4/2020" is not read as another one."""
    found = [fact.text for fact in find_values("It was on March 3/4/2020.") if fact.kind == "date"]

    assert found == ["March 3"]


def test_a_long_list_of_dates_is_read_once() -> None:
    """ "3 March 2020" does not also count as "March 2020", in a list of any length."""
    assert len(list(find_dates("3 March 2020. " * 500))) == 500
