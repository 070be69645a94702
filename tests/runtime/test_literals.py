"""Texts that are the ``repr`` of objects."""

from __future__ import annotations

from typing import Any

import pytest

from rageval_hooks.runtime.literals import read_repr


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
