"""Every text function accepts text that is not prose, and its work grows linearly with the length."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from rageval_hooks.metrics.support.grounding import groundedness
from rageval_hooks.text.fact_index import MAX_CHUNKS, entity_supported, index_facts, index_passage, unsupported_facts
from rageval_hooks.text.facts import find_facts
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import blank_marks, weighted_lines, words_of
from tests.text.junk import JUNK, anything


def read(text: str) -> None:
    """Everything that the text layer does with a response and a passage."""
    spans = sentence_spans(text)
    index = index_passage(text)
    # Read in every case, whether or not a fact is missing.
    facts = index.facts
    assert None not in (facts.quantities, facts.plain_keys, facts.phones_and_periods)
    unsupported_facts(find_facts(text, spans), index.facts)
    groundedness(text, weighted_lines(blank_marks(text), spans), [index])


@given(anything())
def test_any_text_is_read(text: str) -> None:
    """Lone surrogates, controls, broken Markdown, mixed scripts: no exception."""
    read(text)
    entity_supported(text, "DATE", index_facts(text))


def calls(function: Callable[[str], Any], text: str) -> int:
    """Count the calls of Python and C functions that reading a text takes: the same on every machine."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(text)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("make", JUNK.values(), ids=JUNK)
def test_work_grows_with_the_length_of_junk(make: Callable[[int], str]) -> None:
    """Four times the text takes at most about four times the steps."""
    read(make(4_100))  # so that what is cached by word is cached for both, and neither text as a whole
    short, long = calls(read, make(1_000)), calls(read, make(4_000))

    assert long <= 5 * short + 1_000


@pytest.mark.parametrize("name", ["one letter", "full stops", "digits", "accents", "prose"])
def test_two_hundred_thousand_characters_are_read(name: str) -> None:
    """A regular expression that backtracks would take hours here."""
    read(JUNK[name](200_000))


def test_a_very_long_passage_has_longer_windows_not_more() -> None:
    """The number of windows is bounded, and every word is in one."""
    index = index_passage(" ".join(map(str, range(25_000))))

    assert len(index.chunks) == MAX_CHUNKS
    assert sum(map(len, index.chunks)) == 25_000


def test_the_size_of_an_index_is_not_understated() -> None:
    """The cache of indexes is bounded by it."""
    import tracemalloc

    text = " ".join(f"word{number:x}" for number in range(5_000))
    words_of(text)  # which are kept apart from indexes, with a bound of their own
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        index = index_passage(text)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert index.size >= 0.7 * (after - before)
