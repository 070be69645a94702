"""Sentences: where they end, in several scripts and formats, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from rageval_hooks.text.sentences import sentence_spans
from tests.text.junk import JUNK, anything


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


PROSE = {
    "plain": ["This is one.", "This is two.", "Is it three?", "Yes!"],
    "titles": ["Dr. Smith met Mrs. Jones.", "They spoke to Prof. Brown."],
    "Latin abbreviations": ["Use citrus, e.g. lemons, daily.", "It helps, i.e. it works."],
    "a country in mid-sentence": ["The U.S. economy grew.", "It grew in the U.K. too."],
    "a country at the end": ["He lives in the U.S.", "She lives in Canada."],
    "decimals": ["It costs $3.50 today.", "Tomorrow it is 4.25 or 1.000,5."],
    "initials": ["J. R. R. Tolkien wrote it.", "George W. Bush read it."],
    "dots in mid-sentence": ["I thought ... it was fine.", "Wait...", "What?"],
    "ellipsis": ["Well… maybe.", "So be it…", "Then we left."],
    "straight quotes": ['He said, "This is great."', "She left."],
    "a question in quotes": ['"Where are you?" he asked.', 'She said "Here!" and ran.'],
    "curly quotes": ["“It works.”", "“Really?”", "Yes."],
    "parentheses": ["It rained (see Fig. 3).", "Then it stopped.", "(It always does.)", "Good."],
    "times": ["He came at 5 p.m. on Monday.", "She came at 6 a.m.", "They met."],
    "companies": ["Apple Inc. bought it.", "Widgets Co. Ltd. sold it.", "Smith vs. Jones was settled."],
    "numbered things": ["See No. 5 and pp. 3-4, vol. 2.", "Then stop."],
    "short months": ["On Jan. 5, 2020 it began.", "On Sept. 3 it ended."],
    "et al.": ["Smith et al. (2020) found it.", "Others, cf. Jones, did not."],
    "addresses": ["Visit www.example.com/a.b?c=d for more.", "Or mail a.b@c.org."],
    "versions and code": ["Python 3.11.7 is out.", "Use numpy 2.4.6.", "Call os.path.join() now."],
    "many marks": ["Stop!!!", "Why?!", "OK."],
    "citations": ["It is known [1].", "It is proven.[2]", "It holds. [3]"],
    "a citation that is a subject": ["[1] says it is blue.", "[2] says it is red.", "Is it?", "[3][4] deny it."],
    "a citation behind an abbreviation": ["See Smith et al. [4] on this.", "It is so in the U.S. [2] and elsewhere."],
    "a citation before a subject": ["It is blue. [1]", "[2] says it is red.", "It holds. [3]", "Then it ends."],
    "a citation before a name in lower case": ["Node is fast. [1] npm is its manager. [2]"],
    "a citation before a particle": ["He designed it. [1] von Neumann extended it. [2]"],
    "a citation before an adverb": ["Results improved. [3] however, costs rose."],
    "a citation that also says": ["It grew.", "[2] also shows this.", "It fell.", "[1] and [3] do not say so."],
    "citations in lower case": ["apples are blue. [1]", "pears are red. [2]"],
    "subjects in lower case": ["[1] says apples are blue.", "[2] says pears are red."],
    "two citations": ["The effect is strong [1][2].", "It fades."],
    "saints and mountains": ["He lives on St. James St. in London.", "It is near Mt. Everest Ave."],
    "degrees": ["She has a Ph.D. in physics.", "He has an M.D. from Yale."],
    "a lower-case name first": ["We use iPhone apps.", "iPhone users agree."],
    "a number first": ["It was 1999.", "2000 came next."],
    "etc.": ["Apples, pears, etc. are fruit.", "Cars, bikes, etc.", "These are vehicles."],
    "approx.": ["The approx. value of max. speed is 5.", "The min. is 3."],
    "semicolons": ["One thing; another thing.", "A third: here."],
    "middle names": ["William H. Gates III spoke.", "John F. Kennedy did not."],
    "I": ["It was I.", "You know it."],
    "a vitamin": ["Take vitamin C.", "It helps."],
    "clock times": ["It starts at 10:30.", "It ends at 12.30."],
    "German": ["Das ist z. B. so.", "Am 3. März kam er.", "Dr. Müller ging."],
    "French": ["M. Dupont est là.", "Il a dit « Bonjour. »", "Puis il partit."],
    "Spanish": ["¿Dónde está?", "¡Aquí!", "La Sra. García llegó."],
    "Russian": ["Это первое предложение.", "А это второе, т.е. другое.", "Конец."],
    "Arabic": ["هذه جملة أولى.", "هل هذه ثانية؟", "نعم!"],
    "Hindi": ["यह पहला वाक्य है।", "यह दूसरा है।", "क्या यह तीसरा है?"],
    "a sentence in brackets": ["[It is red.]", "Water is wet."],
    "a name in code": ["Use os.Path to join them.", "It is short."],
    "Chinese and English": ["中文句子。", "English sentence here.", "另一句。"],
}


@pytest.mark.parametrize("sentences", PROSE.values(), ids=PROSE)
def test_sentences_of_prose(sentences: list[str]) -> None:
    """A sentence ends where a reader says it does, not at every full stop."""
    assert split(" ".join(sentences)) == sentences


LINES = {
    "bullets": ["Here is a list:", "- first item", "- second item", "Done."],
    "numbers with full stops": ["Steps:", "1. Open the door.", "2. Go in.", "3. Close it."],
    "numbers without": ["Steps:", "1. Open the door", "2. Go in", "10. Close it"],
    "headings": ["# Heading", "Text here.", "## Sub", "More text."],
    "bold and italics": ["**Note:** this works.", "*Really.*", "It does."],
    "a table": ["| a | b |", "|---|---|", "| 1.5 | 2.0 |"],
}


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_lines_that_are_sentences(lines: list[str]) -> None:
    """List items, headings and rows of a table stand for themselves, with or without a full stop."""
    assert split("\n".join(lines)) == lines


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("今天天气很好。我们去公园吧！好吗？", ["今天天气很好。", "我们去公园吧！", "好吗？"]),
        ("他说：“你好。”然后走了。", ["他说：“你好。”", "然后走了。"]),
        ("これは一つ目です。二つ目ですか？はい！", ["これは一つ目です。", "二つ目ですか？", "はい！"]),
        ("The first.The second one.", ["The first.", "The second one."]),
        ("This sentence is wrapped\nover two lines. This one is not.", None),
        ("A title\n\nThe first. The second.", ["A title", "The first.", "The second."]),
        ("Fruit: • apples • pears", ["Fruit:", "• apples", "• pears"]),
        ("one\r\nTwo\u2028Three", ["one", "Two", "Three"]),
        ("a title\n\nin lower case", ["a title", "in lower case"]),
    ],
    ids=[
        "Chinese",
        "Chinese quotes",
        "Japanese",
        "a lost space",
        "wrapped",
        "title",
        "flat bullets",
        "breaks",
        "blank",
    ],
)
def test_sentences_without_spaces_and_across_lines(text: str, sentences: list[str] | None) -> None:
    """Scripts without spaces end sentences at their own marks; a line that goes on in lower case goes on."""
    expected = sentences or ["This sentence is wrapped\nover two lines.", "This one is not."]

    assert split(text) == expected


@pytest.mark.parametrize("text", ["", " ", "\n\t\u00a0\u2003", "\x1c\x85\u2028"])
def test_white_space_has_no_sentences(text: str) -> None:
    """A text of nothing but white space has no sentences."""
    assert sentence_spans(text) == []


def assert_nothing_is_lost(text: str) -> None:
    end = 0
    for start, stop in sentence_spans(text):
        assert not text[end:start].strip()
        assert text[start:stop] == text[start:stop].strip() != ""
        end = stop
    assert not text[end:].strip()


@given(anything())
def test_between_two_sentences_there_is_white_space_only(text: str) -> None:
    """Spans are in order, trimmed, never empty, and leave out white space alone."""
    assert_nothing_is_lost(text)


@pytest.mark.parametrize("make", JUNK.values(), ids=JUNK)
def test_nothing_of_junk_is_lost(make: Callable[[int], str]) -> None:
    """The same for long runs of one thing."""
    assert_nothing_is_lost(make(5_000))
