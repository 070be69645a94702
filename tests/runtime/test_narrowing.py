"""Values of unknown type become the wanted type, or its empty value."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from rageval_hooks.runtime.narrowing import (
    content_text,
    entry_or_attribute,
    first_text,
    is_integer,
    is_missing,
    items_or_empty,
    mapping_or_empty,
    mappings_in,
    size_of,
    text_or_empty,
    text_or_none,
)


@pytest.mark.parametrize(("value", "expected"), [(1, True), (0, True), (True, False), (1.0, False), ("1", False)])
def test_a_boolean_is_not_an_integer(value: Any, expected: bool) -> None:
    assert is_integer(value) is expected


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", {"a": 1}.keys()])
def test_other_values_become_empty(value: Any) -> None:
    assert not mapping_or_empty(value)
    assert not items_or_empty(value)
    assert not mappings_in(value)


def test_values_of_the_wanted_type_are_returned_unchanged() -> None:
    mapping, items = {"a": 1}, [{"a": 1}, "b"]

    assert mapping_or_empty(mapping) is mapping
    assert items_or_empty(items) is items
    assert mappings_in(items) == [{"a": 1}]


def test_only_strings_are_text() -> None:
    assert (text_or_empty("a"), text_or_empty(1), text_or_empty(None)) == ("a", "", "")
    assert (text_or_none("a"), text_or_none(""), text_or_none(1)) == ("a", None, None)


def test_the_first_text_is_the_first_non_empty_string() -> None:
    assert first_text([None, 1, "", "a", "b"]) == "a"
    assert first_text([None, ""]) is None


def test_a_field_is_an_entry_or_an_attribute() -> None:
    assert entry_or_attribute({"a": 1}, "a") == 1
    assert entry_or_attribute(SimpleNamespace(a=1), "a") == 1
    assert entry_or_attribute({}, "a") is None
    assert entry_or_attribute(object(), "a") is None


class Slotted:
    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = "not counted: it has no dictionary"


LONG = "x" * 1000
SHARED = [LONG, LONG]


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (LONG, 1050),
        (b"x" * 1000, 1050),
        ({"a": LONG}, 1050 + 51 + 50),
        ((LONG,), 1100),
        (SHARED, 1100),  # the same text twice
        (SimpleNamespace(a=LONG), 50 + 50 + 51 + 1050),
        (Slotted(), 50),
        (len, 50),
        (7, 50),
    ],
    ids=["text", "bytes", "mapping", "tuple", "shared", "object", "slots", "function", "number"],
)
def test_the_size_of_a_value_is_that_of_its_texts(value: Any, size: int) -> None:
    """And 50 bytes for each object. What a function refers to is most of the program."""
    assert size_of(value) == size


def test_the_size_of_very_many_objects_is_estimated() -> None:
    """The rest is like those that were looked at."""
    assert size_of([LONG + str(number) for number in range(50_000)]) == pytest.approx(50_000 * 1055, rel=0.05)


@pytest.mark.parametrize(
    ("value", "is_empty"),
    [(None, True), ("", True), (" \n", True), (math.nan, True), ("a", False), (0, False), (0.0, False), ([], False)],
)
def test_an_empty_cell(value: Any, is_empty: bool) -> None:
    """As tables have them. Zero is a value."""
    assert is_missing(value) is is_empty


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("It opened.", "It opened."),
        ([{"type": "text", "text": "It "}, "opened", {"type": "text", "text": "."}], "It opened."),
        ([{"type": "image_url", "image_url": "x"}, {"type": "text", "text": "It opened."}], "It opened."),
        ([{"type": "refusal", "refusal": "I cannot help.", "text": "no"}], "I cannot help."),
        (7, ""),
        (None, ""),
    ],
)
def test_the_text_of_a_messages_content(content: Any, text: str) -> None:
    """A string, or blocks; images have none."""
    assert content_text(content) == text
