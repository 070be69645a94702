"""Words, the keys by which they are compared, and their weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import (
    FUNCTION_WEIGHT,
    NAME_WEIGHT,
    WORD_WEIGHT,
    blank_marks,
    stem,
    weighted_words,
    words,
    words_by_sentence,
)
from tests.text.junk import anything


def keys(text: str) -> list[str]:
    return [word.key for word in words(text)]


@pytest.mark.parametrize(
    "forms",
    [
        "run runs running",
        "study studies studied studying",
        "box boxes boxed boxing",
        "hope hopes hoped hoping",
        "stop stops stopped stopping",
        "fall falls falling",
        "house houses housed housing",
        "class classes",
        "quick quickly",
        "city cities city's",
        "naïve Naïve NAÏVE",
        "straße STRASSE",
        "fine ﬁne",
        "five 5 ٥",
        "1,000 1000 1'000",
        "1.5 1.50",
        "3 3rd three",
        "1990 1990s",
        "O'Brien O'Brien's O’Brien",
        "café café",
    ],
)
def test_forms_of_one_word_have_one_key(forms: str) -> None:
    """Plurals, verb forms, case, ligatures, number notations and possessives are compared as the same word."""
    assert len(set(keys(forms))) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("status", "state"), ("bus", "but"), ("US", "us"), ("IT", "it"), ("WHO", "who"), ("1.5", "15")]
)
def test_different_words_have_different_keys(one: str, other: str) -> None:
    """Stemming is light, and acronyms that look like function words are not taken for them."""
    assert keys(one) != keys(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("U.S. and US", ["US", "and", "US"]),
        ("U.S.A.", ["usa"]),
        ("THE PIER WAS OPENED", ["the", "pier", "was", "open"]),
        ("It is NOT true", ["it", "is", "not", "tru"]),
        ("don't can't we'll", []),
        ("l'homme", ["homm"]),
        ("foo_bar __init__", ["foo", "bar", "init"]),
        ("state-of-the-art", ["stat", "of", "the", "art"]),
        ("東京都", ["東京", "京都"]),
        ("水", ["水"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("مدينة القاهرة", ["مدينة", "القاهرة"]),
        ("!!! ... —", []),
    ],
)
def test_words_of_texts(text: str, expected: list[str]) -> None:
    """Contractions give nothing, shouting is lowered, scripts without spaces give pairs of characters."""
    assert keys(text) == expected


@given(anything())
def test_words_are_at_their_positions(text: str) -> None:
    """Words are inside the text and not empty. White space occurs only where it groups digits, and never in keys."""
    for word in words(text):
        assert 0 <= word.start < word.end <= len(text)
        assert word.key
        assert not any(c.isspace() for c in text[word.start : word.end] if c not in "\u00a0\u202f")


@given(anything(), st.integers(0, 50), st.integers(0, 50))
def test_a_part_of_a_text_keeps_its_offsets(text: str, start: int, length: int) -> None:
    """Words of a part have the offsets that they have in the whole text."""
    for word in words(text, start, start + length):
        assert start <= word.start < word.end <= start + length


@given(st.text("abcdefghijklmnopqrstuvwxyz", max_size=12))
def test_a_plural_has_the_stem_of_its_singular(word: str) -> None:
    """What stemming takes off, it takes off whether or not an -s follows."""
    if len(word) > 3 and word[-1] not in "aeiousxzhy":
        assert stem(word + "s") == stem(word)


def test_names_weigh_more_and_function_words_less() -> None:
    """Names, acronyms and numbers 2, other words 1, function words a quarter; the first word is no name."""
    text = "Bridges in the Alps cost NATO 12 million: Never mind"

    weights = {text[word.start : word.end]: word.weight for word in weighted_words(text)}

    assert weights == {
        "Bridges": WORD_WEIGHT,
        "in": FUNCTION_WEIGHT,
        "the": FUNCTION_WEIGHT,
        "Alps": NAME_WEIGHT,
        "cost": WORD_WEIGHT,
        "NATO": NAME_WEIGHT,
        "12": NAME_WEIGHT,
        "million": WORD_WEIGHT,
        "Never": FUNCTION_WEIGHT,
        "mind": WORD_WEIGHT,
    }


def test_only_latin_words_are_readable_for_minilm() -> None:
    """Words in other scripts are marked: the model's English vocabulary has no use for them."""
    text = "Zürich Москва 北京 2019"

    readable = [word.readable for word in weighted_words(text)]

    assert readable == [True, False, False, True]


@pytest.mark.parametrize(
    ("text", "words_left"),
    [
        ("See https://example.com/a?b=1 and www.example.org now", "See and now"),
        ("It is so [1], and so [2, 3] and [4–6][^7].", "It is so and so and"),
        ("1. First\n2) Second\n(3) Third\n- 4. Fourth", "First Second Third Fourth"),
        ("In 1. FC Köln", "In 1 FC Köln"),
        ("The list [a] stays", "The list a stays"),
    ],
)
def test_marks_that_say_nothing_are_blanked(text: str, words_left: str) -> None:
    """Addresses, citations and list numbers are turned into spaces, everything else stays where it is."""
    blanked = blank_marks(text)

    assert len(blanked) == len(text)
    assert [blanked[word.start : word.end] for word in words(blanked)] == words_left.split()


@given(anything())
def test_the_words_of_sentences_are_those_of_the_text(text: str) -> None:
    """A text is split once; no word crosses the border of two sentences."""
    spans = sentence_spans(text)

    found = words_by_sentence(text, spans)

    assert [list(one) for one in found] == [list(words(text, *span)) for span in spans]
