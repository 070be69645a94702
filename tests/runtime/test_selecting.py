"""Selecting items and entries."""

from __future__ import annotations

from rageval_hooks.runtime.selecting import (
    common,
    entries_except,
    entries_not_none,
    entries_of,
    entries_under,
    instances,
    not_none,
    without,
)


def test_items_keep_their_order() -> None:
    """Items are selected in their order, with repetitions."""
    items = ["b", "a", "c", "b"]
    assert common(items, {"b", "c"}) == ["b", "c", "b"]
    assert without(items, {"b"}) == ["a", "c"]
    assert instances([1, "one", 2], int) == [1, 2]


def test_only_none_is_dropped() -> None:
    """Zeros, empty texts and False stay."""
    assert not_none([0, None, "", False]) == [0, "", False]
    assert entries_not_none({"a": 0, "b": None, "c": ""}) == {"a": 0, "c": ""}


def test_entries() -> None:
    """Entries are selected by their keys, in the order of the keys that are asked for, or by the class of the value."""
    mapping = {"a": 1, "b": "two", "c": 3.0}
    assert list(entries_under(mapping, ("c", "x", "a")).items()) == [("c", 3.0), ("a", 1)]
    assert entries_except(mapping, "b", "x") == {"a": 1, "c": 3.0}
    assert entries_of(mapping, str, float) == {"b": "two", "c": 3.0}
