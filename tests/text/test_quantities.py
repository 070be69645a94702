"""Quantities: one value in many notations is one value, and another value is another."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from rageval_hooks.text.fact_index import index_facts, unsupported_facts
from rageval_hooks.text.facts import find_facts
from rageval_hooks.text.units import NO_UNIT, measure

# A sentence, what the passage has in it, the same in another notation, and another value.
VALUES = [
    ("The ferry leaves at {}.", "15:30", "3:30 pm", "4:30 pm"),
    ("The ferry leaves at {}.", "15:30", "half past three", "half past four"),
    ("The ferry leaves at {}.", "9.15 pm", "21:15", "20:15"),
    ("The ferry leaves at {}.", "noon", "12:00", "13:00"),
    ("The ferry leaves at {}.", "17h30", "5:30 pm", "6:30 pm"),
    ("The ferry leaves at {}.", "21:45", "quarter to ten", "quarter to nine"),
    ("The office is open {}.", "9 to 5", "from 9 am to 5 pm", "from 9 am to 6 pm"),
    ("The office is open {}.", "9–17 h", "from 9:00 to 17:00", "from 9:00 to 19:00"),
    ("The crossing takes {}.", "120 minutes", "two hours", "three hours"),
    ("The crossing takes {}.", "an hour and a half", "90 minutes", "80 minutes"),
    ("The lease runs for {}.", "18 months", "one and a half years", "two and a half years"),
    ("The crossing takes {}.", "half an hour", "30 minutes", "40 minutes"),
    ("The crossing takes {}.", "1 hour 15 minutes", "75 minutes", "85 minutes"),
    ("The crossing takes {}.", "2½ hours", "150 minutes", "160 minutes"),
    ("The crossing takes {}.", "a fortnight", "14 days", "10 days"),
    ("The museum opened in {}.", "05/2019", "May 2019", "July 2019"),
    ("The museum opened in {}.", "2019-05", "May 2019", "July 2019"),
    ("The museum opened in {}.", "fiscal year 2022", "FY22", "FY21"),
    ("The museum opened in {}.", "3Q21", "Q3 2021", "Q2 2021"),
    ("The museum opened in {}.", "H1 2020", "the first half of 2020", "the second half of 2020"),
    ("The museum opened in {}.", "1879", "the late 1800s", "the early 1800s"),
    ("The museum opened in {}.", "1879", "the nineteenth century", "the twentieth century"),
    ("The museum opened in {}.", "1964", "the sixties", "the fifties"),
    ("{} of the members voted.", "Half", "50%", "60%"),
    ("{} of the members voted.", "One in five", "20%", "25%"),
    ("{} of the members voted.", "75%", "three quarters", "two thirds"),
    ("The rate rose by {}.", "25 basis points", "0.25 percentage points", "0.75 percentage points"),
    ("The route is {} long.", "2.5 km", "2,500 metres", "3,500 metres"),
    ("The route is {} long.", "5 miles", "8 km", "9 km"),
    ("The lake covers {}.", "2 square kilometres", "200 hectares", "300 hectares"),
    ("The box weighs {}.", "10 kg", "22 pounds", "32 pounds"),
    ("The tank holds {}.", "33 cl", "330 ml", "350 ml"),
    ("The bridge cost {}.", "€3bn", "3 billion euros", "4 billion euros"),
    ("The bridge cost {}.", "half a million dollars", "$500,000", "$600,000"),
    ("The bridge cost {}.", "50 cents", "$0.50", "$0.60"),
    ("The bridge cost {}.", "MEUR 5", "5 million euros", "6 million euros"),
    ("The bridge cost {}.", "5.2 million euros", "5.2 MEUR", "5.3 MEUR"),
    ("The bridge cost {}.", "MSEK 120", "120 million kronor", "130 million kronor"),
    ("The bridge cost {}.", "TEUR 500", "500,000 euros", "600,000 euros"),
    ("The bridge cost {}.", "$5 million", "MUSD 5", "MEUR 5"),
    ("The bridge cost {}.", "5 Mio. Euro", "5 million euros", "6 million euros"),
    ("The bridge cost {}.", "1.2 billion euros", "1.2 Mrd. Euro", "1.3 Mrd. Euro"),
    ("Members get tickets at {}.", "50% off", "half price", "a third of the price"),
    ("Members get tickets at {}.", "half-price", "50% off", "60% off"),
    ("Members get tickets at {}.", "30%", "0.3 of the price", "half price"),
    ("The file has {}.", "1024 MB", "1 GB", "2 GB"),
    ("The water has {}.", "20 °C", "68 °F", "78 °F"),
    ("The limit is {}.", "50 mph", "80 km/h", "100 km/h"),
    ("It has {} boats.", "a dozen", "12", "14"),
    ("It has {} boats.", "116", "more than 100", "more than 200"),
    ("It has {} boats.", "96", "fewer than 100", "fewer than 90"),
    ("It has {} boats.", "487", "nearly 500", "nearly 600"),
    ("It has {} boats.", "1,577 million", "1.58 billion", "1.68 billion"),
    ("It has {} boats.", "twenty - five", "25", "26"),
    ("The office is open {}.", "7.00-10.30", "from 7 am to 10:30 am", "from 7 am to 11:30 am"),
    ("The record is {}.", "3:45 minutes", "3 minutes and 45 seconds", "3 minutes and 55 seconds"),
    ("The church dates from {}.", "1742", "the mid-18th century", "the mid-17th century"),
    ("{} voted.", "48.9%", "Almost half", "Almost a third"),
    ("The dose is {}.", "0.5 mg", "500 micrograms", "600 micrograms"),
    ("See {} of the rules.", "Chapter IV", "Chapter 4", "Chapter 5"),
    ("See {} of the rules.", "chapter 12", "Chapter XII", "Chapter XIV"),
    ("Call {} for tickets.", "0800 123 4567", "0800-1234567", "0800-1234568"),
    ("Call {} for tickets.", "+44 20 7946 0018", "+44 (0)20 7946 0018", "+44 (0)20 7946 0019"),
]


def missing(response: str, passage: str) -> list[str]:
    return [fact.text for fact in unsupported_facts(find_facts(response), index_facts(passage))]


@pytest.mark.parametrize(("frame", "written", "equal", "other"), VALUES)
def test_values_are_compared_and_not_notations(frame: str, written: str, equal: str, other: str) -> None:
    """Units, times of day, dates, shares, bounds: the same value is found, another one is not."""
    passage = frame.format(written)

    assert missing(frame.format(equal), passage) == []
    assert missing(frame.format(other), passage)


@pytest.mark.skipif(find_spec("text_to_num") is None, reason="needs the extra languages")
@pytest.mark.parametrize(
    ("frame", "written", "equal", "other"),
    [
        ("Die Überfahrt zu der Insel dauert {} und ist schön.", "120 Minuten", "zwei Stunden", "drei Stunden"),
        ("Die Überfahrt zu der Insel dauert {} und ist schön.", "einundzwanzig Tage", "21 Tage", "22 Tage"),
        ("La traversée vers les îles dure {} et le billet est cher.", "deux heures", "2 heures", "3 heures"),
        ("El viaje a la isla dura {} y es para los dos.", "veintidós días", "22 días", "23 días"),
    ],
)
def test_number_words_of_other_languages(frame: str, written: str, equal: str, other: str) -> None:
    """They are read where the language is clear."""
    test_values_are_compared_and_not_notations(frame, written, equal, other)


@pytest.mark.parametrize(
    ("response", "flagged"),
    [
        ("There are two plans: Basic and Pro.", []),
        ("There are three plans: Basic and Pro.", ["three"]),
        ("There are 3 plans:\n\n- Basic\n- Pro\n- Team", []),
        ("There are four plans.\n1. Basic\n2. Pro\n3. Team", ["four"]),
        ("Two friends, Steve and Carly, are here.", []),
        ("Steve, Anna and Carly are the three friends.", []),
        ("Call us 24/7.", []),
    ],
)
def test_a_count_of_what_the_answer_lists_is_no_fact(response: str, flagged: list[str]) -> None:
    """It is one if the list has another number of items."""
    assert missing(response, "Basic Pro Team Steve Anna Carly") == flagged


@pytest.mark.parametrize(
    ("response", "passage"),
    [
        ("They caught a Pokemon.", "They caught a Pokémon."),
        ("He opposed Nazism there.", "a Nazi rally"),
        ("The dye is dichlorotriazine (DCT), and DCT is fast.", "dichlorotriazine"),
    ],
)
def test_names_in_another_form(response: str, passage: str) -> None:
    """Accents, endings, and abbreviations that the response itself introduces."""
    assert missing(response, passage) == []


def test_a_first_word_of_a_unit_alone_is_none() -> None:
    """Like "square" of "square metres"."""
    assert measure("5 square pegs", 0, 1).units == NO_UNIT
    assert measure("5 square metres", 0, 1).units != NO_UNIT
