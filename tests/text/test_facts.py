"""Facts: what a response states, and what the passages have of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.fact_index import entity_supported, index_facts, merge_indexes, unsupported_facts
from rageval_hooks.text.facts import find_facts


def missing(response: str, *passages: str) -> list[str]:
    return [fact.text for fact in unsupported_facts(find_facts(response), merge_indexes(map(index_facts, passages)))]


SUPPORTED = {
    "an abbreviated country": ("It moved to the UK in May.", "It came to the United Kingdom in May."),
    "a country spelled out": ("It is in the United Kingdom now.", "in the UK"),
    "an abbreviated city": ("He lives in LA now.", "He lives in Los Angeles."),
    "a country's adjective in -ese": ("It is a Japanese car.", "a car from Japan"),
    "a country of an adjective in -ese": ("It is from Japan.", "a Japanese car"),
    "German and Germany": ("It is of German make.", "made in Germany"),
    "French and France": ("It is French cheese.", "cheese of France"),
    "Dutch and the Netherlands": ("It is Dutch cheese.", "cheese of the Netherlands"),
    "a quarter": ("They grew in Q3 again.", "They grew in the third quarter."),
    "a quarter by its month": ("It began in the third quarter of 2006.", "It begins in early September 2006."),
    "a half by its day": ("It began in the first half of 2006.", "It began on 3 March 2006."),
    "an opening word of a group": ("Fraudsters pretend to be agents of it.", "nothing"),
    "millions as mln": ("It cost 5 mln then.", "It cost 5 million."),
    "a currency in words": ("It costs $5.", "It costs five dollars."),
    "a currency's code": ("It costs $5 million.", "It costs USD 5,000,000."),
    "a unit spelled out": ("It weighs 5kg.", "It weighs 5 kilograms."),
    "an ambiguous unit": ("It costs 5 pounds.", "It costs £5."),
    "the same in another currency": ("It costs 10 euros (about 11 dollars).", "It costs 10 euros."),
    "a unit that the passage leaves out": ("It costs $5.", "Price (USD): 5"),
    "a unit in a compound": ("It is 10 years old.", "a 10-year-old house"),
    "an opening word of English": ("Tourism pays for it all.", "nothing"),
    "an opening word of another language": ("Gracias por la pregunta de hoy.", "nada"),
    "an opening name": ("Munich is the capital of the state.", "in munich"),
    "a decade with an apostrophe": ("It was in the 2000's there.", "in 2004"),
    "a short decade": ("It was in the '90s there.", "in the 1990s"),
    "a long decade": ("It was in the 1990s there.", "in the '90s"),
    "a no-break space": ("It has 12\u00a0000 people.", "12,000 people"),
    "the number of a passage": ("As passage 2 says, see Fig. 3.", "It is so."),
    "a reference at the beginning": ("Fig. 3 shows it.", "It is so."),
    "titles of office": ("He met President Biden and King Charles.", "Biden and Charles"),
    "a day in another order": ("It was on March 3, 2020.", "Held 3 March 2020."),
    "a day in ISO form": ("It was on 2020-03-03.", "Held March 3rd, 2020."),
    "a month of a day": ("It was in March 2020.", "On 3 March 2020 it began."),
    "a day without its year": ("It was on March 3.", "On 3 March 2020 it began."),
    "a day whose year stands elsewhere": ("It was on March 3, 2020.", "In 2020, on March 3, it began."),
    "either order of day and month": ("It was on 3/4/2020.", "on April 3, 2020"),
    "the other order": ("It was on 3/4/2020.", "on March 4, 2020"),
    "a German day": ("Es war am 03.04.2020 so.", "on April 3, 2020"),
    "a Japanese day": ("2020年3月3日に始まった。", "March 3, 2020"),
    "magnitude in words": ("It cost $1.5 million.", "They paid 1,500,000 dollars."),
    "magnitude in figures": ("It cost $1,500,000.", "They paid 1.5 million."),
    "magnitude as a letter": ("Sales of 3bn.", "3 billion"),
    "magnitude from a letter": ("Sales of 3 billion.", "$3bn"),
    "plain millions": ("It was 5 million.", "5000000"),
    "a hundred thousand": ("Over one hundred thousand came.", "100,000"),
    "number words": ("There were twenty-five people.", "25 people came"),
    "number words without a hyphen": ("There were 25 people.", "twenty five people came"),
    "long number words": ("There were 2,500.", "two thousand five hundred people"),
    "number words with and": ("It has 250 rooms.", "two hundred and fifty rooms"),
    "per cent": ("About 12% grew.", "a growth of 12 percent"),
    "thousands with spaces": ("It is 1,000 km.", "1000 km"),
    "thousands with full stops": ("It has 1.000.000 users.", "1,000,000"),
    "lakhs": ("It has 1,00,000 users.", "one lakh users, that is 100,000"),
    "a decimal comma": ("It costs 3,50.", "3.50"),
    "a leading zero": ("It grew by 0.5 points.", ".5 points and 0.50"),
    "a unit glued on": ("It weighs 5kg.", "5 kg"),
    "a time": ("At 10:30 it began.", "10:30"),
    "a time with a fraction": ("The best time was 12:30.5 that day.", "12:30.5"),
    "a version": ("Use Python 3.11.7 now.", "Python 3.11.7"),
    "a range of years": ("From 2018–19 on.", "2018-2019"),
    "a decade": ("In the 1990s it grew.", "In 1994"),
    "a century": ("The 21st century began.", "twenty-first century"),
    "other digits": ("It has ١٢٣ pages.", "123 pages"),
    "a code with a space": ("We use GPT-4 here.", "about GPT 4 model"),
    "a code without its hyphen": ("The COVID-19 wave.", "covid19"),
    "a title": ("He met Dr. Smith there.", "John Smith was there"),
    "initials": ("The WHO said so.", "the World Health Organization said"),
    "a name by its initials": ("By the World Health Organization.", "the WHO said"),
    "a country in a longer name": ("The US Army came.", "The United States Army"),
    "dotted initials": ("In the U.S. it is so.", "US citizens"),
    "a hyphen after a name": ("The US-based firm.", "U.S. firm"),
    "a possessive": ("It is the O'Briens' and Anna's.", "Anna and the O’Brien family"),
    "lower case": ("In Paris he met Anna.", "paris and anna"),
    "another order of names": ("Er traf Angela Merkel in Berlin.", "Merkel und Berlin, Angela"),
    "a day at the end of a sentence": ("It opened on September 1.", "It opened on 2019-09-01."),
    "a day at the end of a passage's sentence": ("It opened on 5 March.", "It was on March 5. Then on 6 April 2020."),
    "one of several days": ("It was on March 7, 2019.", "Open on March 5 and 7, 2019."),
    "the first of several days": ("It was on March 5, 2019.", "Open from 5 to 7 March 2019."),
    "a day in words": ("It was on 25 March.", "on the twenty-fifth of March"),
    "a day in lower case": ("It was on March 5, 2020.", "it was on march 5 , 2020"),
    "a month whose year stands elsewhere": (
        "It was in March 2019.",
        "It came in March. The year was 2019. Then May 5.",
    ),
    "the month of a day in figures": ("The pier opened in September.", "Opened 2019-09-01."),
    "a sign": ("It was −40 degrees.", "It was -40 degrees."),
    "a sign in words": ("It was minus 40 degrees.", "It was -40 degrees."),
    "a sign before a currency": ("The result was -$5 million.", "The result was $-5,000,000."),
    "a sign that is put in words": ("The result fell by 5%.", "Growth of the result: -5%"),
    "words that are put as a sign": ("The growth was -5%.", "There was a decline of 5 percent."),
    "a hyphen that is no sign": ("COVID-19 took 5-10 days.", "COVID-19: 5 to 10 days"),
    "a bullet that is no sign": ("-40 rooms", "It has 40 rooms."),
    "a currency in letters": ("It cost EUR 41.2 million.", "It cost 41.2 million euros."),
    "a leading point": ("It costs .5 euros.", "It costs 0.5 euros."),
    "a point that leads in the passage": ("It costs 0.5 euros.", "It costs .5 euros."),
    "thousands with plain spaces": ("It has 1 000 000 people.", "It has 1,000,000 people."),
    "plain spaces in the passage": ("It has 12,500.5 people.", "It has 12 500,5 people."),
    "a year before a number": ("It had in 2019 300 people.", "It had 300 people in 2019."),
    "a row of a table": ("Sales rose from 120 to 150.", "Sales 120 130 140 150"),
    "rows below years": ("It was 512 in 2019 and 634 in 2020.", "Year 2019 2020\nRevenue 512 634 700 812"),
    "a falling row": ("It fell from 400 to 350.", "400 390 380 350"),
    "a row that begins small": ("It has 2 or 300 points.", "2 100 200 300"),
    "a short row": ("It has 3 rooms and 250 seats for 400 guests.", "3 250 400"),
    "a row of codes": ("The code is 170, not 648.", "Codes: 105 170 648"),
    "a stated row": ("On level 12 100 200 items drop.", "On level 12 there are 100 or 200 items."),
    "a stated row with a magnitude": ("In zone 12 300 million live.", "300 million live in zone 12."),
    "groups with blanks": ("It is ISBN 978 316 148 410.", "ISBN 978-316-148-410"),
    "millions with blanks": ("It has 1,000,000 users.", "1 000 000 users"),
    "stated millions with blanks": ("It has 1 000 000 users.", "1,000,000 users"),
    "a people of a short name": ("France opposed the Indian plan.", "India had a plan that France opposed."),
    "a hyphen behind a blank": ("The new earth -199999 is out.", "Earth-199999"),
    "a hyphen of a code": ("An F -16 in COVID -19 times.", "The F-16 and COVID-19"),
    "a hyphen of a zone": ("It is UTC -5 there.", "UTC-5"),
    "the dash of a range of units": ("Give 5 kg -10 kg from 10am -12pm.", "5 to 10 kg, 10am to 12pm"),
    "a passage's dash": ("He left in 2010.", "Smith (born 1950, -2010)"),
    "bullets in a line": ("Items: -5 apples, -3 pears", "5 apples and 3 pears"),
    "a bullet in a list": ("* -5 items", "5 items"),
    "a bullet in a quote": ("> -5", "5"),
    "a bullet in a table": ("| -5 |", "5"),
    "a bullet behind an option": ("Option A: -50", "A: 50"),
    "two numbers in a row": ("They bought 12 737 jets.", "Of the 737 jets they bought 12."),
    "initials behind an article": ("It was sent by NATO.", "The North Atlantic Treaty Organization sent it."),
    "initials across function words": ("So says the OECD.", "Organisation for Economic Co-operation and Development"),
    "initials behind function words": ("It was an AMI.", "Findings in Acute Myocardial Infarction"),
    "initials in the plural": ("Some NGOs came.", "Non-Governmental Organizations came."),
    "an initial in a name": ("The Great Gatsby is by F. Scott Fitzgerald.", "great gatsby, fitzgerald, scott"),
    "people of a country": ("Most like the Libyan coast.", "Libya"),
    "a country of people": ("It is in England.", "an English town"),
    "a half": ("Take 1/2 cup.", "½ cup"),
    "list numbers": ("1. First item\n2. Second item", "nothing"),
    "citations": ("It is so [3].", "nothing"),
    "an address": ("See https://example.com/2019/abc for more.", "nothing"),
    "small number words": ("It was the third time, one of them.", "nothing at all"),
    "a sentence's first word": ("Yesterday it rained. Bridges were wet.", "nothing"),
    "a heading": ("New Bridge Of The City\n\nIt is wide.", "nothing"),
}

UNSUPPORTED = {
    "a small number as a word": ("It has five rooms.", "It has three rooms.", ["five"]),
    "another currency": ("It costs $5.", "It costs €5.", ["$5"]),
    "another currency in words": ("It costs five euros.", "It costs $5.", ["five euros"]),
    "another unit": ("It weighs 5 kg.", "It weighs 5 g.", ["5 kg"]),
    "another unit glued on": ("It weighs 5kg.", "It weighs 5g.", ["5kg"]),
    "another unit of time": ("It took 3 weeks.", "It took three days.", ["3 weeks"]),
    "per cent for points": ("It rose by 5%.", "It rose by 5 percentage points.", ["5%"]),
    "another half of the day": ("It opens at 5 p.m. there.", "It opens at 5 a.m.", ["5 p.m."]),
    "an opening name": ("Munich is the capital of the state.", "It is the capital.", ["Munich"]),
    "another short decade": ("It was in the 1980s there.", "in the '90s", ["1980s"]),
    "another country": ("It is Dutch cheese.", "cheese of Germany", ["Dutch"]),
    "another quarter": ("They grew in Q3 again.", "They grew in the second quarter.", ["Q3"]),
    "another quarter by its month": (
        "It began in the third quarter of 2006.",
        "It begins in early June 2006.",
        ["third quarter"],
    ),
    "a quarter where others are named": (
        "Sales were 5 in Q3 2006.",
        "In Q2 2006, as of September 1, sales were 5.",
        ["Q3"],
    ),
    "another day": ("It was on March 4, 2020.", "Held 3 March 2020.", ["March 4, 2020"]),
    "another month": ("It was in April 2020.", "On 3 March 2020 it began.", ["April 2020"]),
    "another year": ("It was on 3 March 2021.", "On 3 March 2020 it began.", ["3 March 2021"]),
    "a year where only the day stands": ("It was on March 3, 2021.", "On March 3 it began.", ["March 3, 2021"]),
    "another number": ("About 13% grew.", "a growth of 12 percent", ["13"]),
    "another magnitude": ("It cost 3 million.", "It cost 3 billion.", ["3 million"]),
    "another decade": ("In the 1980s it grew.", "In 1994", ["1980s"]),
    "another range": ("From 2018–20 on.", "2018-2019", ["20"]),
    "a number that is rounded wrongly": ("It has 1.3 million users.", "It has 1,234,567 users.", ["1.3 million"]),
    "a name that is half there": ("They met Barack Obama.", "Obama was there", ["Barack Obama"]),
    "other initials": ("The WTO said so.", "the World Health Organization said", ["WTO"]),
    "another day, and its number elsewhere": (
        "It opened on March 5.",
        "It opened on March 7. It has 5 rooms.",
        ["March 5"],
    ),
    "a day whose parts are scattered": (
        "He was born on March 5, 1990.",
        "March came. In 1990, 5 men left.",
        ["March 5, 1990"],
    ),
    "an integer for a fraction": ("It is 75 of it.", "It is .75 of it.", ["75"]),
    "another number with spaces": ("It has 3 000 000.", "Of 3 towns one has 1 000 000.", ["3 000 000"]),
    "initials of a list": ("It was sent by TIM.", "Theory, Information, Methods", ["TIM"]),
    "initials across sentences": ("It was sent by BOB.", "It is in Boston. Opera Ballet", ["BOB"]),
    "once each, however written": ("It has 1,000 seats, 1000 in winter, 1.5mn or 1 500 000.", "no", ["1,000", "1.5mn"]),
    "a row that is not all there": ("On level 12 100 200 items drop.", "12 or 100 items", ["12 100 200"]),
    "a part of a million": ("It has 1 user.", "1 000 000 users", ["1"]),
    "a code at the beginning": ("GPT-4 is used here.", "nothing", ["GPT-4"]),
    "names in German, where every noun has a capital": (
        "Die Firma in München hat mit der Deutschen Bank und mit ThyssenKrupp einen Vertrag über die Brücke.",
        "nichts",
        ["ThyssenKrupp"],
    ),
    "another code": ("We use GPT-4 here.", "about the GPT-3 model", ["GPT-4"]),
    "a text in brackets that does not abbreviate the name before it": (
        "The Harbour Board of Hallay (WHO) met.",
        "The Harbour Board of Hallay met.",
        ["WHO"],
    ),
    "an acronym that is too long for one": (
        "It was built by ABCDEFGHIJKLMNOPQRSTU.",
        "Ann Bea Cat Dan Eva Fay Gus Han Ida Jan Kim Leo Mia Ned Oli Pia Quy Ria Sam Tom Una built it.",
        ["ABCDEFGHIJKLMNOPQRSTU"],
    ),
    "an acronym with dots that is too long for one": (
        "It was built by A.B.C.D.E.F.G. alone.",
        "Ann Bea Cat Dan Eva Fay Gus built it.",
        ["A.B.C.D.E.F.G."],
    ),
    "once each": ("It has 7 doors, and 7 more: 7.", "nothing", ["7"]),
    "several": ("He saw Anna in Rome in 1999.", "He saw Anna.", ["Rome", "1999"]),
}


@pytest.mark.parametrize(("response", "passage"), SUPPORTED.values(), ids=SUPPORTED)
def test_facts_that_a_passage_has_in_other_words(response: str, passage: str) -> None:
    """Other notations, orders, initials and demonyms support a fact."""
    assert missing(response, passage) == []


@pytest.mark.parametrize(("response", "passage", "facts"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_facts_that_no_passage_has(response: str, passage: str, facts: list[str]) -> None:
    """Each is reported once, as the response puts it, in its order."""
    assert missing(response, passage) == facts


@pytest.mark.parametrize(
    ("name", "passage"),
    [
        ("Bob", "Boston Opera Ballet opened."),
        ("Sam", "It is the South African Museum."),
        ("Ian", "It was written by Isaac Asimov Newman."),
        ("Ed", "Emma Davis opened it."),
        ("Boston Opera Ballet", "It was founded by Bob."),
    ],
)
def test_a_name_is_not_taken_for_an_acronym(name: str, passage: str) -> None:
    """Initials that happen to be equal support nothing, in either direction."""
    assert missing(f"It was founded by {name}.", passage) == [name]


def test_facts_may_stand_in_different_passages() -> None:
    """One passage has the name, another the year."""
    assert missing("She met Anna Berg in 2019.", "Anna Berg came.", "The year was 2019.") == []


def test_without_passages_every_fact_is_unsupported() -> None:
    """No passage has anything."""
    assert missing("She met Anna in 2019 on flight LH454.") == ["Anna", "2019", "LH454"]


def test_kinds_of_facts() -> None:
    """Numbers, dates, codes and names, in their order, with where they stand."""
    text = "On 3 May 2019 we flew with LH454 to Rome for 120 euros."

    facts = find_facts(text)

    assert [(fact.kind, fact.text) for fact in facts] == [
        ("date", "3 May 2019"),
        ("code", "LH454"),
        ("name", "Rome"),
        ("number", "120"),
    ]
    assert all(text[fact.start : fact.end] == fact.text for fact in facts)


_FACTS = (
    "the city of Paris and Anna Berg saw it in 2019 on 3 May 2020 or 2020-05-03 with GPT-4 for 1.5 million dollars, "
    "March 5. 5 -40 .75 2½ 1 000 000 fell by The World Health Organization WHO "
    "twenty-five people, 12% NATO U.S. März 北京 1990s 3/4/2020 first ten said: He She . , ! [1] 3,50 Libyan O'Brien's"
).split()


@given(st.lists(st.sampled_from(_FACTS), max_size=25).map(" ".join))
def test_a_text_supports_its_own_facts(text: str) -> None:
    """This holds for any text."""
    assert missing(text, text) == []


@given(st.lists(st.sampled_from(_FACTS), max_size=15).map(" ".join), st.sampled_from(_FACTS), st.sampled_from(_FACTS))
def test_one_more_passage_never_makes_a_fact_unsupported(text: str, one: str, other: str) -> None:
    """This holds for any further passage."""
    assert set(missing(text, one, other)) <= set(missing(text, one))


def test_another_date_in_another_passage_takes_nothing_away() -> None:
    """A day of another month says nothing about this one."""
    response, passage = "It opened on 5 March.", "The pier opened on March 5."

    assert missing(response, passage) == missing(response, passage, "The bridge opened on 6 April 2020.") == []


@pytest.mark.parametrize(
    ("text", "kind", "supported"),
    [
        ("Barack Obama", "PERSON", True),
        ("President Obama", "PERSON", True),
        ("Dr. Obama", "PERSON", True),
        ("March 3, 2020", "DATE", True),
        ("March 4, 2020", "DATE", False),
        ("two million", "CARDINAL", True),
        ("2m", "QUANTITY", True),
        ("four", "CARDINAL", False),
        ("12%", "PERCENT", False),
        ("last week", "DATE", False),
        ("March", "DATE", True),
        ("Mar.", "DATE", True),
        ("April", "DATE", False),
        ("the", "ORG", False),
        ("", "ORG", True),
    ],
)
def test_named_entities(text: str, kind: str, supported: bool) -> None:
    """Names are compared by their words, titles apart; numbers and dates by their value."""
    index = index_facts("Obama, Barack; 3 March 2020; 2,000,000")

    assert entity_supported(text, kind, index) is supported


@pytest.mark.parametrize(
    ("text", "kind", "passage", "supported"),
    [
        ("May", "DATE", "It opened in June, and may close.", False),
        ("May", "DATE", "It opened in May.", True),
        ("May", "DATE", "It opened on 2019-05-01.", True),
        ("September", "DATE", "Opened 2019-09-01.", True),
        ("The Who", "ORG", "It was by the Beatles, who sang.", False),
        ("The Who", "ORG", "It was by the\nWho.", True),
        ("🙂", "ORG", "He smiled.", False),
        ("it", "ORG", "A bit of nothing.", False),
        ("first", "ORDINAL", "He was the 1st man.", True),
        ("first", "ORDINAL", "He was one man of 2.", False),
        ("third", "ORDINAL", "He was the 3rd man.", True),
        ("third", "ORDINAL", "He was the 4th man.", False),
        ("the third quarter", "DATE", "In the 3rd quarter.", True),
        ("the third quarter", "DATE", "The 3rd man.", False),
        ("twenty-first", "ORDINAL", "In the 21st century.", True),
        ("1st", "ORDINAL", "He was the first man.", True),
        ("-5", "CARDINAL", "+6", False),
        ("the WHO", "ORG", "The World Health Organization sent it.", True),
    ],
)
def test_entities_whose_words_say_little(text: str, kind: str, passage: str, supported: bool) -> None:
    """Months and ordinals by their value; function words and signs as they are written."""
    assert entity_supported(text, kind, index_facts(passage)) is supported


def test_markup_splits_no_name() -> None:
    """Tags are blank when facts are looked for: "Carl <b>Carlsson</b>" is one name."""
    facts = find_facts("It was built by Carl    Carlsson    in Oslo.")

    assert [fact.text for fact in facts] == ["Carl Carlsson", "Oslo"]
