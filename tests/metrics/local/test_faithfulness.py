"""``faithfulness``: one number for support, which small edits lower."""

from __future__ import annotations

import pytest

from rageval_hooks import Score
from rageval_hooks.metrics.local.faithfulness import Faithfulness
from rageval_hooks.metrics.support.faithfulness import Differences, Evidence, faithfulness_formula
from tests.local import make_turn, run, why_not

PASSAGE = (
    "Acme acquired Beta Corp in 2019 for $5 million. The bridge opened on March 5, 1869. Sales rose by 12 percent in "
    "Germany, while costs were flat in Poland. The tower was rebuilt in 1931."
)


def score_of(response: str) -> Score:
    [score] = run(Faithfulness(), make_turn(response, [PASSAGE], "What happened?"))
    assert isinstance(score, Score), score
    return score


@pytest.mark.parametrize(
    ("supported", "edited", "reason"),
    [
        ("Acme acquired Beta Corp in 2019.", "Acme acquired Beta Corp in 2018.", "missing: 2018"),
        ("Sales rose by 12 percent in Germany.", "Sales rose by 12 percent in Norway.", "missing: Norway"),
        ("Acme acquired Beta Corp in 2019.", "Acme did not acquire Beta Corp in 2019.", "negated"),
        ("Acme acquired Beta Corp in 2019.", "Acme didn't acquire Beta Corp in 2019.", "negated"),
        ("Sales rose by 12 percent in Germany.", "Sales fell by 12 percent in Germany.", "says the opposite"),
    ],
)
def test_small_edits_are_visible(supported: str, edited: str, reason: str) -> None:
    """A name, number, negation or opposite that differs lowers the score, and the explanation names it."""
    right, wrong = score_of(supported), score_of(edited)

    assert right.value > 0.8
    assert wrong.value < right.value - 0.25
    assert reason in (wrong.explanation or "")


def test_a_negation_of_the_speaker_is_no_contradiction() -> None:
    """ "I am not sure, but …" negates nothing that the passages say."""
    assert "negated" not in (score_of("I am not sure but the tower was rebuilt in 1931.").explanation or "")


def test_further_evidence_against_never_raises_the_score() -> None:
    """Every weight has the direction of its feature."""
    formula = faithfulness_formula()

    def value(groundedness: float = 0.8, names: int = 0, facts: int = 0, **counts: float) -> float:
        part = Differences(**{"words": 10, "pairs": 5, "copied": 4, **counts})
        return formula.value(Evidence(groundedness=groundedness, names=names, facts=facts, differences=[part]))

    assert all(weight >= 0 for weight in formula.weights.values())
    assert value() >= max(value(names=1), value(facts=1), value(negated=1), value(opposites=1), value(numbers=1))
    assert value(names=1) > value(names=2)
    assert value(groundedness=0.9) > value()
    assert value(copied=8) > value()


def test_sentences_have_scores_of_their_own() -> None:
    """The wrong sentence of an answer is the one that the explanation names."""
    score = score_of("The tower was rebuilt in 1931. Sales rose by 12 percent in France.")

    [first, second] = score.metadata["sentences"]
    assert first["score"] > 0.8 > 0.5 > second["score"]
    assert first["text"] not in (score.explanation or "")
    assert second["text"] in (score.explanation or "")


def test_without_words_it_is_skipped() -> None:
    """There is no number where nothing can be compared."""
    assert why_not(run(Faithfulness(), make_turn("Yes, it is.", ["Yes."])))[0] == "faithfulness"
