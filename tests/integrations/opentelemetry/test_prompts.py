"""The question and the passages in the text of a prompt."""

from __future__ import annotations

import pytest

from rageval_hooks.integrations.opentelemetry.prompts import parts_of, passages_in

PIER = "The north pier opens at nine."
TEA = "Tea is served in the pavilion."


@pytest.mark.parametrize(
    ("prompt", "question", "context"),
    [
        (f"Context information is below.\n-----\n{PIER}\n-----\nGiven this, answer.\nQuery: When?", "When?", PIER),
        (f"Context:\n{PIER}\n\nQuestion: When?", "When?", PIER),
        (f"Question: When?\n\nContext:\n{PIER}\n\nWhen?", "When?", PIER),
        (f"Answer briefly.\n\n{PIER}\n\nQuestion: When?", "When?", PIER),
        ("Answer briefly.", "", ""),
    ],
    ids=["between two lines", "under labels", "the question again at the end", "no label of a context", "neither"],
)
def test_the_parts_of_a_prompt(prompt: str, question: str, context: str) -> None:
    parts = parts_of(prompt)
    assert (parts.question, parts.context) == (question, context)


@pytest.mark.parametrize(
    ("context", "count", "passages"),
    [
        (f'[{{"text": "{PIER}"}}, {{"text": "{TEA}"}}]', None, [PIER, TEA]),
        (f"<doc>{PIER}</doc><doc>{TEA}</doc>", None, [PIER, TEA]),
        (f"{PIER}\n\n{TEA}", None, [PIER, TEA]),
        (f"{PIER}\n\n{TEA}", 1, [f"{PIER}\n\n{TEA}"]),
        (f"{PIER}\n{TEA}", 2, [PIER, TEA]),
        (f"- {PIER}\n- {TEA}", None, [PIER, TEA]),
        (f"[1] {PIER}\n\nIt closes at six.\n\n[2] {TEA}", None, [f"{PIER}\n\nIt closes at six.", TEA]),
    ],
    ids=["JSON", "elements", "paragraphs", "one of two paragraphs", "lines", "a list", "marks before some paragraphs"],
)
def test_the_passages_of_a_context(context: str, count: int | None, passages: list[str]) -> None:
    assert [one.text for one in passages_in(context, count)] == passages
