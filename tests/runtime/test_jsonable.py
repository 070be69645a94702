"""Plain data: whatever a framework hands over, as values that go to JSON and back without loss."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from rageval_hooks.runtime.jsonable import (
    Data,
    Metadata,
    Text,
    clean_text,
    json_text,
    plain_mapping,
    plain_value,
    string_of,
)


class Colour(str, Enum):  # noqa: UP042  # older code has such classes
    RED = "red"


class Number(int):
    pass


class Undated(datetime.date):
    def isoformat(self) -> str:
        raise RuntimeError("no calendar is loaded")


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.5, 0.5),
        ("text", "text"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (np.float64(0.5), 0.5),
        (np.float64("nan"), "nan"),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array(2.5), 2.5),
        (Number(7), 7),
        (Colour.RED, "red"),
        (Decimal("1.50"), "1.50"),
        (b"a\xff", "a\ufffd"),
        (datetime.date(2019, 9, 1), "2019-09-01"),
        (datetime.datetime(2019, 9, 1, tzinfo=datetime.UTC), "2019-09-01T00:00:00+00:00"),
        ((1, (2, {3})), [1, [2, [3]]]),
        ({1: {"a": None}, None: 2}, {"1": {"a": None}, "None": 2}),
        ({"\ud800": "\udfff"}, {"\ufffd": "\ufffd"}),
        (Unspeakable(), "<Unspeakable>"),
        (Undated(2019, 9, 1), "<Undated>"),
    ],
)
def test_values_become_plain(value: Any, expected: Any) -> None:
    """Numbers stay numbers, dates become ISO strings, what is not finite becomes a string, the rest its ``str``."""
    found = plain_value(value)

    assert found == expected
    assert type(found) is type(expected)


def test_deep_and_circular_values_become_strings() -> None:
    """A value more than eight levels deep becomes its ``str``."""
    circle: list[Any] = []
    circle.append(circle)

    found = plain_value(circle)

    assert json.dumps(found).count("[") < 20


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(st.characters(), max_size=5) | st.integers(), values, max_size=4))
def test_plain_values_go_to_json_and_back(mapping: dict[Any, Any]) -> None:
    """In UTF-8, without loss, and once plain they stay as they are."""
    plain = plain_mapping(mapping)

    assert json.loads(json.dumps(plain).encode()) == plain
    assert plain_mapping(plain) == plain


@given(st.text(st.characters()))
def test_clean_texts_can_be_encoded(text: str) -> None:
    """A text that can be encoded is left alone, any other can be encoded afterwards."""
    clean = clean_text(text)

    clean.encode()
    assert "\0" not in clean
    if "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        assert clean is text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("\ud83d\ude00", "😀"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00b", "\ufffdb"),
        ("\ude00\ud83d", "\ufffd" * 2),
        ("a\0b", "a\ufffdb"),
    ],
)
def test_characters_that_no_server_stores(text: str, clean: str) -> None:
    """A pair of surrogates is joined; a lone one and U+0000 are replaced."""
    assert clean_text(text) == clean


class Thing(Data):
    text: Text = ""
    metadata: Metadata = Field(default_factory=dict)


def test_data_cannot_be_changed_or_extended() -> None:
    """A misspelt field is an error, not a surprise."""
    thing = Thing(text="a")

    with pytest.raises(ValidationError):
        thing.text = "b"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="txet"):
        Thing(txet="a")  # type: ignore[call-arg]


def test_subclasses_of_str_become_str() -> None:
    """Frameworks have their own kinds of text."""

    class Own(str):
        pass

    assert type(Thing(text=Own("a")).text) is str
    assert Thing(text=Colour.RED).text == "red"


@pytest.mark.parametrize("metadata", [None, {}])
def test_no_metadata_is_empty_metadata(metadata: Any) -> None:
    """None is taken for nothing."""
    assert Thing(metadata=metadata).metadata == {}


def test_metadata_is_a_copy() -> None:
    """Later changes to the application's mapping have no effect."""
    own = {"a": [1]}
    thing = Thing(metadata=own)
    own["a"].append(2)

    assert thing.metadata == {"a": [1]}


def test_any_value_becomes_json() -> None:
    """Also one for which the function for other objects fails."""

    def fail(_: Any) -> Any:
        raise TypeError("not known")

    assert json.loads(json_text({"a": {1}}, default=sorted)) == {"a": [1]}
    assert json.loads(json_text({"a": {1}, (1, 2): "é"}, default=fail)) == {"a": [1], "(1, 2)": "é"}
    assert "é" in json_text("é", default=fail)


def test_the_text_of_an_object() -> None:
    """Objects of the application are named by their class: their own text may be anything."""
    assert string_of(Decimal("1.5")) == "1.5"
    assert string_of(ValueError("too late")) == "too late"
    assert string_of(Unspeakable()) == "<Unspeakable>"
