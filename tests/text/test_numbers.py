"""Numbers: what figures and number words can stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.numbers import find_numbers, supported_numbers
from rageval_hooks.text.numerals import number_readings
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
        (".50", ("0.5",)),
        ("1 000 000", ("1000000",)),
        ("1 000,5", ("1000.5",)),
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
        ("at -40 or −5.5", [("40", "40"), ("5.5", "5.5")]),
        ("minus 5 and (-3bn)", [("5", "5"), ("3bn", "3000000000")]),
        ("a result of -$5 million", [("5 million", "5000000")]),
        ("5-10 of COVID-19", [("5", "5"), ("10", "10"), ("19", "19")]),
        ("5 -10", [("5", "5"), ("10", "10")]),
        ("at -0 and .5, but .5.6", [("0", "0"), (".5", "0.5"), ("5.6", "5.6")]),
        ("1 000 000 of 33 45 120 200", [("1 000 000", "1000000"), *((n, n) for n in ("33", "45", "120", "200"))]),
        ("in 2019 300 people", [("2019", "2019"), ("300", "300")]),
        ("one hundred hundred", [("one hundred", "100"), ("hundred", "100")]),
        ("nineteen hundred thousand", [("nineteen hundred thousand", "1900000")]),
    ],
)
def test_numbers_of_a_text(text: str, expected: list[tuple[str, str]]) -> None:
    """Number words are put together, magnitudes multiplied, ranges completed; a part of a word is no number."""
    found = [(text[number.start : number.end], number.readings) for number in find_numbers(text)]

    assert [number for number, _ in found] == [number for number, _ in expected]
    assert all(value in readings for (_, value), (_, readings) in zip(expected, found, strict=True))


@given(anything())
def test_numbers_stand_in_order_and_apart(text: str) -> None:
    """Spans are in order, do not overlap, and each has a reading."""
    end = 0
    for number in find_numbers(text):
        assert end <= number.start < number.end <= len(text)
        assert number.readings
        assert all(number.readings)
        end = number.end


@pytest.mark.parametrize("text", ["hundred " * 2_300, "7 " + "trillion " * 2_300, "million and " * 2_300])
def test_a_row_of_magnitudes_is_no_giant(text: str) -> None:
    """A number of thousands of digits is not a fact and would be slow to compute with."""
    values = [value for number in find_numbers(text) for value in number.readings]

    assert values
    assert max(map(len, values)) < 500


@pytest.mark.parametrize(
    ("text", "value", "supported"),
    [
        ("1.5 million", "1.5", True),
        ("at 10:30", "30", True),
        ("boxes 1,2,3 and 5", "2", True),
        ("1,234,567 votes", "234", False),
        ("12 300 jets", "300", True),
        ("12 000 jets", "12", False),
    ],
)
def test_numbers_that_a_text_supports(text: str, value: str, supported: bool) -> None:
    """Its parts, and fractions in any notation."""
    assert (value in supported_numbers(text)[0]) is supported


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("120 130 140 150", {"120130140150", "120", "130", "140", "150"}),
        ("2 100 200 300", {"2100200300", "2", "100", "200", "300"}),
        ("$12 300", {"12300", "12", "300"}),
        ("390 380,5", {"390380.5", "390", "380.5"}),
        ("1 000 000", {"1000000"}),
        ("105 170 048", {"105170048"}),
    ],
)
def test_a_row_of_three_digits_is_one_number_or_several(text: str, values: set[str]) -> None:
    """Thousands with blanks between them look like a table's row; only a group with a leading zero tells."""
    assert supported_numbers(text)[0] == values


@given(anything())
def test_what_any_text_supports_is_what_it_states(text: str) -> None:
    """No reading of a number is lost."""
    found = supported_numbers(text)

    assert found.ordinals <= found.values
    assert found.values.issuperset(value for number in find_numbers(text) for value in number.readings)
