"""Long texts are read in pieces."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.limits import PIECE_CHARACTERS, blank, pieces, scan


@given(st.text(" \n.aA1", max_size=40), st.integers(1, 3000))
def test_pieces_cover_a_text_without_gaps(unit: str, times: int) -> None:
    """No piece is longer than the documented size."""
    text = unit * times

    found = list(pieces(text))

    assert "".join(text[start:end] for start, end in found) == text
    assert all(end - start <= PIECE_CHARACTERS for start, end in found)


def test_a_piece_ends_at_a_line_break_or_between_words() -> None:
    """The first of these within the last 2,000 characters decides."""
    first = PIECE_CHARACTERS - 10

    for separator in ("\n", " "):
        text = "a" * first + separator + "B" * PIECE_CHARACTERS
        assert next(iter(pieces(text))) == (0, first + len(separator))


def test_a_text_in_pieces_has_the_same_matches() -> None:
    """Words are found with their positions in the whole text."""
    text = "The pier has 7 lamps. " * 5_000
    pattern = re.compile(r"\w+")

    assert [match.span() for match in scan(pattern, text)] == [match.span() for match in pattern.finditer(text)]


def test_a_blanked_text_keeps_its_offsets_and_its_lines() -> None:
    """A line break separates sentences."""
    assert blank("one two\nthree", [(4, 10)]) == "one    \n  ree"
    assert blank("one", []) == "one"


def test_a_line_begins_only_after_a_line_break() -> None:
    """The border of two pieces is not the beginning of a line."""
    text = "a" * (PIECE_CHARACTERS + 5)

    assert len(list(scan(re.compile("(?m)^a"), text))) == 1
