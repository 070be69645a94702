"""``unsupported_facts``: what a response states and no passage has, or what it negates."""

from __future__ import annotations

import pytest

from rageval_hooks import Passage, Score, Turn
from rageval_hooks.metrics.local.unsupported_facts import UnsupportedFacts
from tests.local import make_turn, run

PASSAGE = (
    "In 2016, Microsoft acquired LinkedIn for $26 billion. Brazil beat Germany in the final. Tobacco is not allowed in "
    "the park. The treaty was signed in 1920 by the king. The Indian Premier League has 6.6 million viewers and 12,345 "
    "players. Pay per hour is $23.70, says the BLS. It is 79 °F."
)


def score_of(response: str, passage: str = PASSAGE, query: str = "What happened?") -> Score:
    [score] = run(UnsupportedFacts(), make_turn(response, [passage], query))
    assert isinstance(score, Score), score
    return score


@pytest.mark.parametrize(
    ("response", "text", "kind"),
    [
        (
            "The treaty was not signed in 1920 by the king.",
            "The treaty was not signed in 1920 by the king.",
            "negation",
        ),
        ("The treaty wasn't signed in 1920 by the king.", "The treaty wasn't signed in 1920 by the king.", "negation"),
        ("Tobacco is allowed in the park.", "Tobacco is allowed in the park.", "negation"),
        ("It cost €26 billion.", "€26 billion", "number"),
        ("The treaty was signed in Oslo.", "Oslo", "name"),
        ("It has 6.7 million viewers.", "6.7 million", "number"),
        ("It has seven lakes.", "seven", "number"),
    ],
)
def test_what_is_changed_is_counted(response: str, text: str, kind: str) -> None:
    """A changed negation and another currency are listed like a fact that no passage has."""
    score = score_of(response)

    assert score.value == 1
    assert score.metadata["missing"] == [{"text": text, "kind": kind}]
    assert text in (score.explanation or "")


def test_every_sentence_counts() -> None:
    """The first, one in the middle and the last."""
    score = score_of("It was signed in 1921. The king signed. It has 6.7 million viewers. Brazil beat Oslo.")

    assert score.value == 3
    assert [fact["text"] for fact in score.metadata["missing"]] == ["1921", "6.7 million", "Oslo"]


@pytest.mark.parametrize(
    "response",
    [
        "Microsoft acquired LinkedIn.",
        "Tobacco is not allowed in the park.",
        "Tobacco isn't allowed in the park.",
        "Tobacco is n't allowed in the park.",
        "No, the treaty was signed in 1920 by the king.",
        "I am not sure, but the treaty was signed in 1920 by the king.",
        "The treaty was signed in 1920 not only by the king.",
        "The treaty was not signed in a hurry, but signed in 1920 by the king.",
        # The same number or name in another form.
        "It has 6.6\u00a0million viewers.",
        "The IPL has 6.6 million viewers.",
        "The Bureau of Labor Statistics (BLS) says so.",
        "It has about 12,300 players.",
        "It is 79 °F (26 °C).",
        "It is 79 degrees Fahrenheit.",
        # Labels and counts of the answer itself, and words with a capital that are no names.
        "Step 6: Rest. Option 2 is 1) to pay and 2) to go.",
        "There are two types of league, and the two are alike.",
        "Millions of people watch it.",
        "According to Passage 2, it was signed (Passage 3).",
        "The king signed on Earth.",
    ],
)
def test_the_same_in_other_words_is_not_counted(response: str) -> None:
    """Neither are negations of something else."""
    score = score_of(response)

    assert (score.value, score.metadata["missing"]) == (0, [])


@pytest.mark.parametrize("caption", ["(in millions)", "($ millions)", "in millions of dollars", "Revenue (USD m)"])
def test_a_unit_in_the_caption_of_a_table_counts_for_its_numbers(caption: str) -> None:
    """A table of millions supports "411 million"."""
    assert score_of("Revenue was $411 million.", f"Year 2020, {caption}\nRevenue | 411 | 398").value == 0
    assert score_of("Revenue was $412 million.", f"Year 2020, {caption}\nRevenue | 411 | 398").value == 1


def test_the_question_supports_nothing() -> None:
    """To agree with a leading question is the commonest invention."""
    score = score_of(
        "Yes, the pier cost 500 million euros.", "The pier cost 41.2 million euros.", "Did it cost 500 million euros?"
    )

    assert score.value == 1
    assert score.explanation == "no passage has: 500 million"


def test_a_question_of_a_passage_says_nothing() -> None:
    """Only a statement can say otherwise."""
    passage = "Was the treaty not signed in 1920 by the king? Much was written about it."
    assert score_of("The treaty was signed in 1920 by the king.", passage).value == 0


def test_the_name_of_a_passage_in_brackets_is_no_fact() -> None:
    """It is a citation, which no passage has to support."""
    passages = (
        Passage(text="The pier was opened in 2019.", id="doc-7"),
        Passage(text="Ferries run daily.", id="doc-8"),
    )
    turn = Turn(query="When?", response="The pier was opened in 2019 [doc-7].", passages=passages)
    [score] = run(UnsupportedFacts(), turn)
    assert isinstance(score, Score)
    assert (score.value, score.metadata["missing"]) == (0, [])
