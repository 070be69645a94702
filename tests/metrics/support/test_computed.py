"""Computed figures: what two numbers of one passage give is named as computed, and not as missing."""

from __future__ import annotations

import pytest

from rageval_hooks import Passage, Turn, evaluate

TABLE = """Results, in millions:

| | 2019 | 2018 |
| Revenue | $ 1,452.4 | $ 1,146.2 |
| Cost of sales | 941.3 | 820.5 |
| Staff | 310 | 295 |
"""

STAFF = """| | 2019 | 2018 | 2017 |
| Staff in Leeds | 310 | 250 | 205 |
| Staff in York | 117 | 164 | 188 |
"""


def facts_of(response: str, passage: str, query: str = "What is said?") -> tuple[list[str], list[str]]:
    turn = Turn(query=query, passages=(Passage(text=passage),), response=response)
    score = evaluate(turn, metrics=["unsupported_facts"], models="lexical").score("unsupported_facts")
    assert score is not None
    return [hit["step"] for hit in score.metadata["computed"]], [fact["text"] for fact in score.metadata["missing"]]


@pytest.mark.parametrize(
    ("response", "passage", "step"),
    [
        ("Ada was 70 when she died.", "Ada was born in 1950 and died in 2020.", "difference in years"),
        ("The fee rose by 50%.", "The fee was 10 euros in 2019 and 15 euros in 2020.", "percentage change"),
        ("The share rose by 5 points.", "The share was 20% in 2019 and 25% in 2020.", "difference"),
        ("The share rose by 5%.", "The share was 20% in 2019 and 25% in 2020.", "difference"),
        ("120 of the 240 members voted.", "Half of the 240 members voted.", "share"),
        ("Both harbours have 335 berths in total.", "The harbours have 210 and 125 berths.", "sum"),
        ("It is open for 8 hours.", "It is open from 9:00 to 17:00.", "difference"),
        ("Revenue rose by 26.7% from 2018 to 2019.", TABLE, "percentage change"),
        ("Revenue rose by $306.2 million from 2018 to 2019.", TABLE, "difference"),
        ("The average revenue of 2018 and 2019 was $1,299.3 million.", TABLE, "average"),
        ("The cost of sales was 1,452.4 - 941.3 = 511.1 less than revenue.", TABLE, "difference"),
        ("In 2019 the staff in Leeds and York were 427 together.", STAFF, "sum"),
        (
            "The piers have 474 berths together.",
            "The north pier has 310 berths. The south pier, of 1987, has 164.",
            "sum",
        ),
    ],
)
def test_a_result_of_two_numbers_is_computed(response: str, passage: str, step: str) -> None:
    """It is not counted, and the metadata have both numbers."""
    computed, missing = facts_of(response, passage)

    assert computed == [step]
    assert missing == []


@pytest.mark.parametrize(
    ("response", "passage"),
    [
        ("Ada was 71 when she died.", "Ada was born in 1950 and died in 2020."),
        ("The fee rose by 60%.", "The fee was 10 euros in 2019 and 15 euros in 2020."),
        ("Revenue rose by 31.4% from 2018 to 2019.", TABLE),
        # One number is of 2019 and the other of 2018.
        ("In 2019 the staff in Leeds and York were 474 together.", STAFF),
        # Nothing says that it was computed.
        ("The harbours have 335 berths.", "The harbours have 210 and 125 berths."),
        # The numbers have different units.
        ("The total is 35 km.", "The route is 25 km long and takes 10 hours."),
    ],
)
def test_a_number_that_no_step_gives_is_missing(response: str, passage: str) -> None:
    """A chance result is none."""
    computed, missing = facts_of(response, passage)

    assert computed == []
    assert missing
