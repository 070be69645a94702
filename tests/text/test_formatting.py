"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from rageval_hooks.text.formatting import short_value, show_value, signed_value


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
