"""``unsupported_facts``: what a response changes, though the passages have each of its words."""

from __future__ import annotations

import pytest

from rageval_hooks import Score
from rageval_hooks.metrics.local.unsupported_facts import UnsupportedFacts
from tests.local import make_turn, run

PASSAGE = (
    "In 2016, Microsoft acquired LinkedIn for $26 billion. Brazil beat Germany in the final. Tobacco is not allowed in "
    "the park. The treaty was signed in 1920 by the king. The museum was opened by Anna Berg. Paris met Rome in May. "
    "The seed is hard and dry inside. Ada said Tom left the company early. Tom told the press."
)


def count(response: str) -> Score:
    [score] = run(UnsupportedFacts(), make_turn(response, [PASSAGE], "What happened?"))
    assert isinstance(score, Score), score
    return score


@pytest.mark.parametrize(
    ("response", "text", "kind"),
    [
        ("LinkedIn acquired Microsoft.", "LinkedIn acquired Microsoft", "role"),
        ("Microsoft was acquired by LinkedIn.", "Microsoft was acquired by LinkedIn", "role"),
        ("Germany beat Brazil in the final.", "Germany beat Brazil", "role"),
        ("It beat Anna Berg. The final was won as Germany beat Brazil.", "Germany beat Brazil", "role"),
        ("The treaty was not signed in 1920 by the king.", "not signed", "negation"),
        ("The treaty wasn't signed in 1920 by the king.", "wasn't signed", "negation"),
        ("Tobacco is allowed in the park.", "allowed", "negation"),
        ("It cost €26 billion.", "€26 billion", "number"),
    ],
)
def test_what_is_changed_is_counted(response: str, text: str, kind: str) -> None:
    """Names in swapped roles, a changed negation and another currency are listed like a fact that no passage has."""
    score = count(response)

    assert score.value == 1
    assert score.metadata["missing"] == [{"text": text, "kind": kind}]
    assert text in (score.explanation or "")


@pytest.mark.parametrize(
    "response",
    [
        "Microsoft acquired LinkedIn.",
        "LinkedIn was acquired by Microsoft.",
        "LinkedIn, which Microsoft acquired in 2016, is large.",
        "The acquisition of LinkedIn by Microsoft cost $26 billion.",
        "Germany was beaten by Brazil.",
        "Anna Berg opened the museum.",
        "Tobacco is not allowed in the park.",
        "Tobacco isn't allowed in the park.",
        "Rome met Paris in May.",
        "No, the treaty was signed in 1920 by the king.",
        "Tobacco is n't allowed in the park.",
        "I am not sure, but the treaty was signed in 1920 by the king.",
        "The treaty was signed in 1920 not only by the king.",
        "Inside, the seed is dry and hard.",
        "Tom left the company early, said Ada.",
    ],
)
def test_the_same_in_other_words_is_not_counted(response: str) -> None:
    """Active and passive voice, symmetric verbs, and negations of something else change nothing."""
    score = count(response)

    assert (score.value, score.metadata["missing"]) == (0, [])
