"""What was asked, where an application searches a store by itself."""

from __future__ import annotations

import pytest

from rageval_hooks.integrations.capture.recent_searches import question_in

PROMPT = "Passages: The pier was opened in 2019.\nQuestion: When was the pier opened?"


@pytest.mark.parametrize(
    ("asked", "question"),
    [
        (["pier", "When was the pier opened?"], "When was the pier opened?"),
        (["the price of the pier"], PROMPT),
        ([], PROMPT),
    ],
    ids=["the longest search in the prompt", "none is in it", "none"],
)
def test_the_question_is_the_search_that_the_prompt_has(asked: list[str], question: str) -> None:
    assert question_in(PROMPT, asked) == question
