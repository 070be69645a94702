"""Keys: which sentences have one, and which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.keys import key_passages, key_response, letters
from tests.text.junk import anything


def test_keys_of_passages_and_of_a_response() -> None:
    """The number of the passage from 0, then letters; letters alone."""
    passages = key_passages(["It is red. It is wet.", "", "Grass."])

    assert [(s.key, s.text, s.passage) for s in passages] == [
        ("0a", "It is red.", 0),
        ("0b", "It is wet.", 0),
        ("2a", "Grass.", 2),
    ]
    assert [(s.key, s.passage) for s in key_response("It is red. It is wet.")] == [("a", None), ("b", None)]


@pytest.mark.parametrize("mark", ["---", "***", "```", "~~~", "|------|:---:|", "|", "* * *", "…", "👍", "====", "• •"])
def test_what_says_nothing_has_no_key(mark: str) -> None:
    """Rules, fences and the separators of tables are not counted among the sentences."""
    text = f"The pier is new.\n\n{mark}\n\nIt was opened in 2019."

    assert [(s.key, s.text) for s in key_response(text)] == [("a", "The pier is new."), ("b", "It was opened in 2019.")]
    assert [s.key for s in key_passages([mark, text])] == ["1a", "1b"]


@pytest.mark.parametrize("text", ["5", "是。", "हाँ।", "ใช่", "نعم", "½", "|7|", "é", "```python"])
def test_a_letter_or_digit_of_any_script_is_content(text: str) -> None:
    """A single character is enough."""
    assert [s.key for s in key_response(text)] == ["a"]


@given(st.lists(anything(), max_size=3))
def test_keys_are_in_order_and_spans_hold_their_texts(passages: list[str]) -> None:
    """For any text, letters have no gaps, keys are unique, and each span holds its sentence's text."""
    sentences = key_passages(passages)

    assert len({s.key for s in sentences}) == len(sentences)
    for number, text in enumerate(passages):
        own = [s for s in sentences if s.passage == number]
        assert [s.key for s in own] == [f"{number}{letters(index)}" for index in range(len(own))]
        for s in own:
            assert s.text == " ".join(text[s.span[0] : s.span[1]].split())
            assert any(map(str.isalnum, s.text))
