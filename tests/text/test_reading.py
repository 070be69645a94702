"""An answer is read as what it is: the same statements are found in every form of it."""

from __future__ import annotations

import json

import pytest

from rageval_hooks.text.limits import blank
from rageval_hooks.text.reading import claims_nothing, find_own_dates, read_answer

ONE, TWO = "Members pay less for parking.", "Guests are free on 7 Sundays."
PLAIN = [ONE, TWO]


def stated(text: str) -> list[str]:
    """Return what the sentences of an answer state, without markup."""
    reading = read_answer(text)
    said = blank(reading.text, reading.silent)
    found = (" ".join(said[start:end].replace("\u200d", "").split()).strip("*_ |>") for start, end in reading.sentences)
    return [sentence for sentence in found if any(map(str.isalnum, sentence))]


FORMS = {
    "prose": f"{ONE} {TWO}",
    "list": f"1. {ONE}\n2. {TWO}",
    "list in a line": f"1. {ONE} 2. {TWO}",
    "list in a line, brackets": f"(1) {ONE} (2) {TWO}",
    "nested list": f"- **Fees**\n  - {ONE}\n- **Guests**\n  1. {TWO}",
    "bold labels": f"1. **Reduced Fees**: {ONE}\n2. **Free Guests:** {TWO}",
    "bold labels, dash": f"* **Reduced Fees** – {ONE}\n* **Free Guests** - {TWO}",
    "bold labels in a line": f"1. **Reduced Fees**: {ONE} 2. **Free Guests**: {TWO}",
    "labels": f"- Reduced fees: {ONE}\n- Free guests: {TWO}",
    "steps": f"**Step 1:** {ONE}\n**Step 2:** {TWO}",
    "headings": f"# Benefits\n\n## 1. Fees\n{ONE}\n\n### Guests\n{TWO}",
    "underlined headings": f"Fees\n----\n{ONE}\n\nGuests\n======\n{TWO}",
    "table": f"| # | Benefit |\n|---|---|\n| 1 | {ONE} |\n| 2 | {TWO} |",
    "table with labels": f"| Kind | Benefit |\n|:-:|---|\n| **Fees** | {ONE} |\n| Free guests | {TWO} |",
    "quotation": f"> {ONE}\n>\n> {TWO}",
    "emoji": f"✅ {ONE}\n👉 {TWO}",
    "keycaps": f"1️⃣ {ONE}\n2️⃣ {TWO}",
    "tasks": f"- [x] {ONE}\n- [ ] {TWO}",
    "answer": f"**Answer:** {ONE} {TWO}\n\n**Confidence:** 95%",
    "sources": f"{ONE} {TWO}\n\nSources: handbook.pdf, pages 3-5",
    "json": json.dumps({"answer": f"{ONE} {TWO}", "confidence": 0.93, "sources": ["a-7", {"page": 12}]}),
    "json, indented": json.dumps([{"id": 1, "text": ONE}, {"id": 2, "text": TWO}], indent=2),
    "json, line breaks": json.dumps({"answer": f"{ONE}\n{TWO}", "score": 5}),
    "json in a fence": f"```json\n{json.dumps({'answer': [ONE, TWO], 'page_numbers': [1, 2]})}\n```",
    "json that is not complete": f'{{"confidence": 0.9, "answer": "{ONE} {TWO}',
    "markdown in a fence": f"```markdown\n- {ONE}\n- {TWO}\n```",
    "html": f"<ul><li><b>Fees</b>: {ONE}</li><li>{TWO}</li></ul>",
    "xml": f"<answer>{ONE} {TWO}</answer><confidence>0.9</confidence>",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_is_stated_in_every_form(form: str) -> None:
    """Numbers of lists, headings, labels, keys, and what an answer says about itself are no statements."""
    assert stated(FORMS[form]) == PLAIN


@pytest.mark.parametrize(
    "pointer",
    [
        "(handbook.pdf, page 12)", "[handbook.pdf, page 12]", "(see section 4.2)", "[doc1]", "[doc-1, p. 4]", "[Doc 3]",
        "【4:0†plans.md】", "[4:0 plans.md]", "(Source: Members' Handbook)", "(Members' Handbook, pp. 3–5)",
        "<sup>12</sup>", "(https://example.com/7)", "[chunk_40]", "(1)", "on page 12", "(§ 4)", "(Table A)",
    ],
)  # fmt: skip
def test_pointers_to_sources_state_nothing(pointer: str) -> None:
    """In all usual forms."""
    assert stated(f"Members pay less for parking {pointer}.") in (["Members pay less for parking ."], [ONE])


@pytest.mark.parametrize(
    "text",
    [
        "He was born in [2019].", "It has 12 rooms (two of them large).", "**1869**: The bridge opened.", "**$500**",
        "The fee (12 euros) is paid in cash.", '{"price": 500}', "COVID-19 [COVID-19] began.", "x = [1, 2]",
    ],
)  # fmt: skip
def test_statements_are_kept(text: str) -> None:
    """A year in a label and a number in brackets are claims."""
    assert [character for character in "".join(stated(text)) if character.isdigit()] == [
        character for character in text if character.isdigit()
    ]


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("- **Carl Berg**\n- **Anna Lund**", ["Carl Berg", "Anna Lund"]),
        (f"```\n{ONE}\n```\n{TWO}", PLAIN),
        (f'The fee:\n\n```json\n{{"fee": "{ONE}"}}\n```', ["The fee:", ONE]),
    ],
    ids=["only labels", "text behind a fence", "JSON in a fence"],
)
def test_statements_of_mixed_forms(text: str, statements: list[str]) -> None:
    """Labels state something where there is nothing else; keys of JSON do not."""
    assert stated(text) == statements


@pytest.mark.parametrize(
    "text",
    [
        "Fees for members: 1. Parking 2. Guests 3. Meals Fees for others: 1. Parking 2. Meals",
        "Three steps follow:\n\n1.", "1. Open the door.\n2.", "1) Open the door.\n 2)",
    ],
)  # fmt: skip
def test_numbers_of_lists_are_not_stated(text: str) -> None:
    """Also of a second list in a line, and of an item that is not written yet."""
    assert not any(map(str.isdigit, "".join(stated(text))))


def test_a_number_below_a_line_is_stated() -> None:
    """It is the number of no item."""
    assert stated("Rooms of the hotel:\n42.") == ["Rooms of the hotel:", "42."]


def test_characters_that_json_escapes_are_read() -> None:
    """json.dumps writes ASCII if nothing else is said."""
    assert stated(json.dumps({"answer": "Sie wohnt in Umeå."})) == ["Sie wohnt in Umeå."]
    assert stated(json.dumps({"answer": "Fine 😀 so."})) == ["Fine so."]


@pytest.mark.parametrize("text", ["As of today (2025-11-28): It is so.", "As of my last update in May 2023, it is so."])
def test_the_date_of_the_answer_is_no_statement(text: str) -> None:
    """A date that the passages may state is found separately."""
    assert not any(map(str.isdigit, "".join(stated(text))))
    assert find_own_dates("As of November 28, 2025, it is so.") == [(0, 24)]
    assert not find_own_dates(text)


@pytest.mark.parametrize(
    "sentence",
    [
        "Great question!", "Sure, here is what I found:", "Here you go:", "You're welcome!", "I hope this helps!",
        "Would you like me to look up the prices?", "Is there anything else?", "Have a pleasant trip!",
        "For up-to-date information, please check the website.", "Please contact the ferry office.",
    ],
)  # fmt: skip
def test_talk_to_the_reader_claims_nothing(sentence: str) -> None:
    """It is not about the subject."""
    assert claims_nothing(sentence, sentence)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part",
    [
        "- ", "|", "[", "(see page ", "x\n", "**a ", "```\n", "- x\n", "1. 2. 3. ", '{"a":', '["\\u00e9",', "<p>",
        "<a ", "【", "As of November 1, 2025, ", "on page 1 ", "| 1 | a b c d e |\n",
    ],
)  # fmt: skip
def test_long_and_hostile_answers_are_read_in_time(part: str) -> None:
    """A quadratic step would take minutes."""
    assert read_answer((part * 300_000)[:300_000]).sentences is not None


def test_numbers_in_a_line_that_do_not_count_are_no_list() -> None:
    """A list counts from 1; another number within it is a statement."""
    assert stated("Do this: 1. Open the gate. 7. Wait. 2. Close it.")[0].startswith("Do this")
    assert any("7" in sentence for sentence in stated("Do this: 1. Open the gate. 7. Wait here. 2. Close it."))
