"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from rageval_hooks.text.formatting import (
    format_p_value,
    format_share,
    format_value,
    short_value,
    shorten,
    show_value,
    signed_value,
    truncate,
)


@pytest.mark.parametrize(
    ("value", "short"),
    [
        (0.5, "0.500"),
        (99.5, "99.500"),
        (123.46, "123.5"),
        (9_999, "9999"),
        (20_400, "20.4k"),
        (4_480_000, "4.48M"),
        (999_999_999, "1G"),
        (-20_400, "-20.4k"),
        (1e20, "1e+20"),
        (math.nan, "–"),
    ],
)
def test_a_number_of_any_size_in_few_characters(value: float, short: str) -> None:
    """Three or four digits, and a letter for thousands, millions and more."""
    assert short_value(value) == short


@pytest.mark.parametrize(("value", "shown"), [(None, "–"), (math.inf, "–"), (0.1234, "0.123"), (2e20, "2e+20")])
def test_a_number_or_a_dash(value: float | None, shown: str) -> None:
    assert show_value(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(0.12, "+0.120"), (-0.12, "-0.120")])
def test_a_difference_has_its_sign(value: float, shown: str) -> None:
    assert signed_value(value) == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.500"),
        (1.0, "1.000"),
        (2.0, "2"),
        (-3.0, "-3"),
        (0.0, "0.000"),
        (0.00012, "0.00012"),
        (123.456, "123.5"),
    ],
)
def test_a_number_has_the_digits_that_matter(value: float, text: str) -> None:
    """A share of 1 is not a count of 1."""
    assert format_value(value) == text


def test_shares_and_probabilities() -> None:
    assert [format_share(share) for share in (None, 0.0, 0.1234, 1.0)] == ["–", "0.0%", "12.3%", "100.0%"]
    assert [format_p_value(p) for p in (0.5, 0.0001, 0.00009)] == ["0.5000", "0.0001", "<0.0001"]


def test_a_text_is_cut_with_an_ellipsis() -> None:
    """With its line breaks, or on one line and without what controls a terminal."""
    assert [truncate("a\nbcd", length) for length in (5, 4)] == ["a\nbcd", "a\nb…"]
    assert [shorten("a\n  b\x1bcd", length) for length in (9, 4)] == ["a b␛cd", "a b…"]
