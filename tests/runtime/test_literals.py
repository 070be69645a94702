"""Texts that are the ``repr`` of objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rageval_hooks.runtime.literals import read_repr, unpacked


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'documents': array(['a', 'b'], dtype=object)}", {"documents": ["a", "b"]}),
        ("[Document(id='1', score=nan, page_content='a')]", [{"id": "1", "score": None, "page_content": "a"}]),
        ("Document(page_content=", "Document(page_content="),
        ("an [answer] in words", "an [answer] in words"),
    ],
    ids=["an array", "an object without a score", "cut", "words"],
)
def test_a_repr_is_read(text: str, value: Any) -> None:
    """As tables and tracers write documents; any other text stays what it is."""
    assert read_repr(text) == value


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ('["a", true, null]', ["a", True, None]),
        ("['a', True, None]", ["a", True, None]),
        (' {"a": 1} ', {"a": 1}),
        (json.dumps(json.dumps({"a": 1})), {"a": 1}),  # Langfuse 2
        ("['a' 'b']", "['a' 'b']"),  # numpy: Python would join them
        ("[note] see below", "[note] see below"),
        ("[" * 100_000, "[" * 100_000),
        ("plain", "plain"),
        (7, 7),
    ],
    ids=["JSON", "Python", "mapping", "JSON in JSON", "numpy", "prose in brackets", "deep", "prose", "a number"],
)
def test_a_cell_that_holds_a_list_or_a_mapping(given: Any, value: Any) -> None:
    """Any other text stays what it is."""
    assert unpacked(given) == value
