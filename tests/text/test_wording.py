"""Nouns in messages."""

from __future__ import annotations

from rageval_hooks.text.wording import counted, listed, with_article


def test_a_noun_has_its_number_and_its_article() -> None:
    assert [counted(number, "question") for number in (0, 1, 2)] == ["0 questions", "1 question", "2 questions"]
    assert [with_article(noun) for noun in ("list", "object", "Index", "str")] == [
        "a list",
        "an object",
        "an Index",
        "a str",
    ]


def test_many_items_are_not_all_named() -> None:
    """The message says how many more there are."""
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcde")) == "a, b, c, d, e"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert listed(list("abc"), most=1) == "a and 2 more"
