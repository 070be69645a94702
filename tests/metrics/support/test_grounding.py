"""What the formula of groundedness has for texts without words."""

from __future__ import annotations

import pytest

from rageval_hooks.metrics.support.grounding import Grounding, groundedness
from rageval_hooks.metrics.support.turn_texts import TurnTexts
from rageval_hooks.turn import Passage, Turn


@pytest.mark.parametrize(
    ("response", "passages", "value"),
    [
        ("The pier is long.", ["The pier is long."], 1.0),
        ("The pier is long.", ["— — —"], None),
        ("The pier is long.", [], None),
        ("It is.", ["The pier is long."], None),
    ],
    ids=["the same", "passages without a word", "no passage", "no content word"],
)
def test_without_words_there_is_no_value(response: str, passages: list[str], value: float | None) -> None:
    """And none of 0: nothing was compared."""
    texts = TurnTexts(Turn(response=response, passages=tuple(Passage(text=text) for text in passages)))
    found = groundedness(response, texts.response.lines, texts.passage_indexes)

    assert found.value == value
    if value is None:
        assert found == Grounding(None)
