"""``faithfulness`` sees words in whose place the passages have another one."""

from __future__ import annotations

import pytest

from rageval_hooks import Score
from rageval_hooks.metrics.local.faithfulness import Faithfulness
from tests.local import make_turn, run

PASSAGE = (
    "The White House and the Post met before the Supreme Court. He was the most valuable player of the Patriots after "
    "quarterback Tom Brady. The series was one of the four major leagues in North America, and six of its teams come "
    "from Canada. Visitors may not enter the old tower in Bonn. Anna Weber praised the play that Otto Braun wrote. The "
    "train left Hamburg for Lisbon in June. It runs on the 12 of November 2018. The firm has offices in Paris and Rome."
)


def explained(response: str) -> Score:
    [score] = run(Faithfulness(), make_turn(response, [PASSAGE], "What happened?"))
    assert isinstance(score, Score), score
    return score


@pytest.mark.parametrize(
    ("supported", "edited"),
    [
        # Names in swapped roles, with no verb between them that the passages have, too.
        ("The train left Hamburg for Lisbon in June.", "The train left Lisbon for Hamburg in June."),
        ("Anna Weber praised the play that Otto Braun wrote.", "Otto Braun praised the play that Anna Weber wrote."),
        # A name and a number that the passages have elsewhere.
        ("The train left Hamburg for Lisbon in June.", "The train left Hamburg for Paris in June."),
        ("The series was one of the four major leagues.", "The series was one of the six major leagues."),
        # A negation that is missing.
        ("Visitors may not enter the old tower in Bonn.", "Visitors may enter the old tower in Bonn."),
    ],
)
def test_another_word_in_the_same_place_lowers_the_score(supported: str, edited: str) -> None:
    """The explanation says so, and what the passages say has no such note."""
    right, wrong = explained(supported), explained(edited)

    assert wrong.value < right.value - 0.1
    assert "in place of" in (wrong.explanation or "") or "negat" in (wrong.explanation or "")
    assert "in place of" not in (right.explanation or "")


@pytest.mark.parametrize(
    "response",
    [
        "The firm has offices in Rome and Paris.",
        "It runs on the 12 of Nov 2018.",
        "One of the four major leagues was the series.",
        "The series is in North America.",
    ],
)
def test_what_says_the_same_is_no_replacement(response: str) -> None:
    """The order of a list, a shorter form and another order of words prove nothing."""
    assert "in place of" not in (explained(response).explanation or "")
