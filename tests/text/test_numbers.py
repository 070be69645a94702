"""Numbers: what figures and number words can stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.numbers import find_numbers, number_readings
from tests.text.junk import anything


@pytest.mark.parametrize(
    ("figures", "readings"),
    [
        ("7", ("7",)),
        ("007", ("7",)),
        ("0", ("0",)),
        ("1,000", ("1000", "1")),
        ("1.000", ("1", "1000")),
        ("1'000", ("1000",)),
        ("1\u00a0000", ("1000",)),
        ("3,50", ("3.5",)),
        ("0.50", ("0.5",)),
        ("1,234.56", ("1234.56",)),
        ("1.234,56", ("1234.56",)),
        ("1,000,000", ("1000000",)),
        ("1.000.000", ("1000000",)),
        ("1,00,000", ("100000",)),
        ("3.11.7", ("3.11.7",)),
        ("10:30", ("10:30",)),
        ("١٢٣", ("123",)),
    ],
)
def test_readings_of_figures(figures: str, readings: tuple[str, ...]) -> None:
    """A numeral is read in the notations of several countries; where two fit, both are given, the likelier first."""
    assert number_readings(figures) == readings


@given(st.integers(0, 10**12))
def test_every_notation_of_a_whole_number_reads_alike(number: int) -> None:
    """With commas, full stops, apostrophes or nothing between the thousands."""
    for mark in (",", ".", "'", "\u00a0", ""):
        assert str(number) in number_readings(f"{number:,}".replace(",", mark))


@given(st.decimals(0, 10**6, places=3))
def test_a_decimal_comma_reads_like_a_decimal_point(number: object) -> None:
    """1234.567 and 1234,567 share a reading."""
    plain = str(number)

    assert set(number_readings(plain)) & set(number_readings(plain.replace(".", ",")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two hundred and fifty rooms", [("two hundred and fifty", "250")]),
        ("twenty-five people", [("twenty-five", "25")]),
        ("two thousand five hundred", [("two thousand five hundred", "2500")]),
        ("one million two hundred thousand", [("one million two hundred thousand", "1200000")]),
        ("one hundred thousand", [("one hundred thousand", "100000")]),
        ("1.5 million dollars", [("1.5 million", "1500000")]),
        ("2.5 lakh", [("2.5 lakh", "250000")]),
        ("3bn and 5k", [("3bn", "3000000000"), ("5k", "5000")]),
        ("five and six", [("five", "5"), ("six", "6")]),
        ("nineteen ninety-nine", [("nineteen", "19"), ("ninety-nine", "99")]),
        ("in 2018–19", [("2018", "2018"), ("19", "2019")]),
        ("1 million and 2 thousand", [("1 million", "1000000"), ("2 thousand", "2000")]),
        ("FIVE times", [("FIVE", "5")]),
        ("the often wondering boneyard", []),
    ],
)
def test_numbers_of_a_text(text: str, expected: list[tuple[str, str]]) -> None:
    """Number words are put together, magnitudes multiplied, ranges completed; a part of a word is no number."""
    found = [(text[start:end], readings) for start, end, readings, _ in find_numbers(text)]

    assert [number for number, _ in found] == [number for number, _ in expected]
    assert all(value in readings for (_, value), (_, readings) in zip(expected, found, strict=True))


@given(anything())
def test_numbers_stand_in_order_and_apart(text: str) -> None:
    """Spans are in order, do not overlap, and each has a reading."""
    end = 0
    for start, stop, readings, _ in find_numbers(text):
        assert end <= start < stop <= len(text)
        assert readings
        assert all(readings)
        end = stop
