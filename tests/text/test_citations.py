"""Which sentence cites which passage: markers in the text, and what frameworks say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks import Passage
from rageval_hooks.text.citations import Citations, annotations_from_blocks, find_citations
from rageval_hooks.text.keys import key_response
from tests.text.test_junk import calls

PASSAGES = (
    Passage(text="The sky is red in the evening.", id="doc-1"),
    Passage(text="Water is wet.", id="doc-2", metadata={"source": "water.pdf"}),
    Passage(text="Water boils.", id="doc-3", metadata={"source": "water.pdf", "title": "On water, in two parts"}),
    Passage(text="Grass is green.", id="Grass-4"),
)


def cite(response: str, passages: Any = PASSAGES, given: Any = None) -> Citations:
    return find_citations(response, key_response(response), passages, given)


def cited(response: str, passages: Any = PASSAGES, given: Any = None) -> list[list[Any]]:
    """Return, per part, what it cites: positions of passages, or the name of what is made up."""
    found = cite(response, passages, given)
    return [[key.passages if key.passages else key.name for key in part.keys] for part in found.parts]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("It is red [1].", [[(0,)]]),
        ("It is red. [1]", [[(0,)]]),
        ("It is red.[1] Water is wet.[2]", [[(0,)], [(1,)]]),
        ("It is red [1, 3]. Grass.", [[(0,), (2,)], []]),
        ("It is red [1][2].", [[(0,), (1,)]]),
        ("It is red [1-3].", [[(0,), (1,), (2,)]]),
        ("It is red [1–2, 4].", [[(0,), (1,), (3,)]]),
        ("It is red [1; 2].", [[(0,), (1,)]]),
        ("It is red [1] and red [1].", [[(0,)]]),
        ("It is red [5].", [["5"]]),
        ("It is red [0].", [["0"]]),
        ("It is red [doc-1]. Wet [doc-2, doc-3].", [[(0,)], [(1,), (2,)]]),
        ("It is red. [Grass-4] Water is wet [doc-2].", [[(3,)], [(1,)]]),
        ("It is wet [water.pdf].", [[(1, 2)]]),
        ("It is wet [On water, in two parts].", [[(2,)]]),
        ("It is red [doc-9].", [["doc-9"]]),
        ("It is red [Doc-1].", [["Doc-1"]]),
        ("It is red [1, p. 5].", [[(0,)]]),
        ("It is red [Source 1].", [[(0,)]]),
        ("It is red [passage 2, passage 3].", [[(1,), (2,)]]),
        ("It is red [Source: 1]. Wet [doc #2].", [[(0,)], [(1,)]]),
        ("It is red `[1]`.", [[(0,)]]),
        ("Call `list[1]` [2].", [[(1,)]]),
        ("It is red.¹\nWater is wet.²", [[(0,)], [(1,)]]),
        ("It is red¹,³.", [[(0,), (2,)]]),
        ("It is red.¹²", [[(0,), (1,)]]),
        ("It is red.⁹", [["9"]]),
        ("It is red [^1]. Wet [^2].", [[(0,)], [(1,)]]),
        ("It is red【1】 and wet【2†source】.", [[(0,), (1,)]]),
        ("It is red [1](https://example.org).", [[(0,)]]),
        ("It is red [[1]](https://example.org).", [[(0,)]]),
        ("As [1] says, it is red.", [[(0,)]]),
        ("- It is red [1]\n- It is wet [2]", [[(0,)], [(1,)]]),
        ("[1] says apples are blue. [2] says pears are red.", [[(0,)], [(1,)]]),
        ("By [1], Apples are blue. [2] says pears are red.", [[(0,)], [(1,)]]),
        ("Apples are blue. [1] [2] says pears are red.", [[(0,)], [(1,)]]),
        ("Node is fast. [1] npm is its manager. [2]", [[(0,), (1,)]]),
        ("Apples are blue. [1][2] say pears are red.", [[], [(0,), (1,)]]),
        ("apples are blue. [1] pears are red. [2]", [[(0,)], [(1,)]]),
    ],
)
def test_markers(response: str, expected: Any) -> None:
    """Each belongs to the sentence in which, or right behind which, it stands."""
    assert cited(response) == expected


def test_raised_digits_are_one_number_if_there_are_so_many_passages() -> None:
    """With fewer passages they are one number each, see above; a number that no passage has is made up as a whole."""
    many = [Passage(text=f"Pier {number} is red.") for number in range(12)]
    assert cited("It is red.¹²", many) == [[(11,)]]
    assert cited("It is red.¹⁹") == [["19"]]


@pytest.mark.parametrize(
    ("fence", "close"), [("```", "```\n"), ("```", ""), ("```", "~~~\n"), ("~~~", "~~~\n"), ("~~~", "")]
)
def test_an_index_in_code_is_not_a_citation(fence: str, close: str) -> None:
    """Also where the code block is cut off."""
    found = cite(f"It is red [1]:\n{fence}python\ncolour = colours[2]\n{close}")

    assert [[key.name for key in part.keys] for part in found.parts if part.keys] == [["1"]]


@pytest.mark.parametrize("language", ["markdown", "md", "text"])
def test_an_answer_in_a_block_of_text_keeps_its_citations(language: str) -> None:
    """Some models put all that they say into one."""
    assert [(0,)] in cited(f"```{language}\nIt is red [1].\n```")


@pytest.mark.parametrize("word", ["non-refundable", "his/her", "U.S.", "e.g.", "12:30", "1:02:03"])
def test_words_that_an_editor_puts_in_are_no_made_up_ids(word: str) -> None:
    """The passages' ids have digits, and these have none, or are times."""
    assert cited(f"The [{word}] fee is red [doc-1].") == [[(0,)]]


@pytest.mark.parametrize(
    "token",
    ["2010-2012", "2019-09-01", "COVID-19", "$4.2m", "10/10", "1.5", "95%", "user@x.com", "v2.0", "4th", "+5", "CO2"],
)
def test_numbers_that_an_editor_puts_in_are_no_made_up_ids(token: str) -> None:
    """They do not look like the passages' ids, so a response that has them alone has no citations."""
    assert not cite(f"The works took years [{token}]. They ended on time [{token}].").any


@pytest.mark.parametrize(
    ("own", "made_up"),
    [
        ("doc-1", "doc_9"),
        ("doc-1", "src-12"),
        ("doc-1", "source-2"),
        ("2019-09-01", "2019-09-02"),
        ("4.1", "4.7"),
        ("550e8400-e29b", "67c1a9d3-0b7f"),
        ("a3f9c2d1", "b7e1d0aa9"[:8]),
        ("water.pdf", "fire-2.pdf"),
        ("doc-1", "https://made.up/x"),
    ],
)
def test_a_made_up_id_looks_like_the_others(own: str, made_up: str) -> None:
    """By its first letters, its outline, or since it is an address or a file."""
    passages = (Passage(text="It is old.", id=own),)

    assert cited(f"It is old [{own}]. It is new [{made_up}].", passages) == [[(0,)], [made_up]]


def test_a_title_with_a_hyphen_does_not_make_words_ids() -> None:
    """The ids have digits, so a word without a digit is not an id."""
    passages = (Passage(text="It is old.", id="doc-1", metadata={"title": "Non-profit"}),)

    assert cited("It is [his/her] pier [doc-1].", passages) == [[(0,)]]


@pytest.mark.parametrize(
    "response",
    [
        "No marker at all.",
        "He said that it [sic] is red [...].",
        "Done [x] and not done [ ].",
        "See [the report](https://example.org/doc-1).",
        "An image: ![doc-1](sky.png).",
        "The area is 5 km² and x² is a square.",
        "In the year [2019] it was red.",
        "An array a[i] and a tuple (1).",
        "According to Source 1 it is red.",
        "A list: [1",
        "",
    ],
)
def test_what_is_no_citation(response: str) -> None:
    """Brackets have other uses too."""
    assert not cite(response).any


def test_without_ids_words_in_brackets_are_words() -> None:
    """Passages without ids have no made-up ids. A number that no passage has is still a made-up citation."""
    passages = (Passage(text="One."),)

    assert not cite("It is red [doc-9].", passages).any
    assert cited("It is red [7].", passages) == [["7"]]


def test_a_number_is_an_id_if_a_passage_has_it_else_a_place() -> None:
    """ "[2]" is the passage with the id 2, also where another passage is the second."""
    passages = (Passage(text="One.", id="2"), Passage(text="Two.", id="17"))

    assert cited("A [2]. B [17]. C [1]. D [3].", passages) == [[(0,)], [(1,)], [(0,)], ["3"]]


def test_numbers_that_the_passages_carry() -> None:
    """LlamaIndex's citation engine writes them into the nodes: those count, wherever the nodes stand now."""
    passages = (Passage(text="Source 2:\nWater is wet.\n"), Passage(text="Source 1:\nThe sky is red.\n"))

    assert cited("Red [1]. Wet [2]. Green [3].", passages) == [[(1,)], [(0,)], ["3"]]
    assert cited("According to Source 1, it is red. It is wet (Sources 1 and 2).", passages) == [[(1,)], [(1,), (0,)]]


class TestListsOfReferences:
    def test_the_definition_of_a_footnote_is_not_a_citation(self) -> None:
        """A definition that names a passage gives the label its meaning."""
        response = "It is red [^a]. It is wet [^2].\n\n[^a]: doc-3\n[^2]: Some title"

        assert cited(response) == [[(2,)], [(1,)]]

    @pytest.mark.parametrize(
        "references",
        [
            "Sources:\n[1] sky.pdf\n[2] water.pdf",
            "**References**\n- [1]\n- [2]",
            "Sources: [1], [2]",
            "## Sources\n1. doc-1",
        ],
    )
    def test_a_closing_list_of_references_is_not_a_sentence(self, references: str) -> None:
        """Its entries do not say which sentence they are for."""
        assert cited(f"It is red [1]. It is wet.\n\n{references}") == [[(0,)], []]

    def test_a_list_alone_places_nothing(self) -> None:
        """Its citations are named."""
        found = cite("It is red.\n\nSources: [1], [2]")

        assert not found.any
        assert found.unplaced == ("1", "2")

    def test_a_heading_alone_is_none(self) -> None:
        """What follows is text."""
        assert cited("Sources:\nThe sky is red [1].\nIt is wet.")[-2:] == [[(0,)], []]


class TestFromTheFramework:
    RESPONSE = "It is red. Water is wet."

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ([{"start_index": 0, "end_index": 9, "id": "doc-1"}], [[(0,)], []]),
            ([{"start_index": 11, "end_index": 20, "passage": 2}], [[], [(1,)]]),
            ([{"start_index": 3, "end_index": 15, "source": "water.pdf"}], [[(1, 2)], [(1, 2)]]),
            ([{"text": "Water is wet.", "citations": ["doc-2", 3]}], [[], [(1,), (2,)]]),
            ([{"text": "It is red.", "citations": [{"title": "On water, in two parts"}]}], [[(2,)], []]),
            ([{"start": 0, "end": 5, "url": "https://nowhere.example"}], [["https://nowhere.example"], []]),
            ([{"start_index": 0, "end_index": 9, "cited_text": "sky  is red", "id": "lc_1", "url": "u"}], [[(0,)], []]),
            ([{"start_index": 0, "end_index": 9, "cited_text": "never said", "url": "u"}], [["u"], []]),
            ([{"start_index": 0, "end_index": 9, "cited_text": "Water", "url": "u"}], [[(1,)], []]),
            ([{"start_index": 0, "end_index": 9, "title": "t", "url": "u"}], [["u"], []]),
            ([{"start_index": 0, "end_index": 9, "extras": {"document_id": "doc-2"}}], [[(1,)], []]),
        ],
    )
    def test_annotations(self, given: Any, expected: Any) -> None:
        """By id, source, title, number or quoted text; by place or by the text that cites."""
        assert cited(self.RESPONSE, given=given) == expected

    @pytest.mark.parametrize(
        "given",
        [
            None,
            "doc-1",
            7,
            [7, None, {}],
            [{"start_index": 0, "end_index": 9}],
            [{"start_index": "a", "end_index": 2, "passage": True}],
            {"a": 1},
        ],
    )
    def test_invalid_citations_are_ignored(self, given: Any) -> None:
        """The metadata of an application may hold any value."""
        assert not cite(self.RESPONSE, given=given).any

    @pytest.mark.parametrize(
        "given",
        [
            ["doc-1"],
            [{"id": "doc-1"}],
            [{"start_index": 50, "end_index": 99, "id": "doc-1"}],
            [{"text": "Else", "id": "doc-1"}],
        ],
    )
    def test_a_citation_without_a_place(self, given: Any) -> None:
        """Is named, and belongs to no part."""
        found = cite(self.RESPONSE, given=given)

        assert not found.any
        assert found.unplaced == ("doc-1",)

    def test_markers_and_annotations_are_one(self) -> None:
        """The same passage is cited once."""
        assert cited("It is red [1].", given=[{"start_index": 0, "end_index": 9, "id": "doc-1"}]) == [[(0,)]]

    def test_langchain_blocks(self) -> None:
        """Places in a block become places in the message; an annotation without one is for its block."""
        from langchain_core.messages import AIMessage
        from langchain_core.messages.content import create_citation, create_text_block

        blocks = [
            create_text_block(
                "It is red. ",
                annotations=[create_citation(url="https://e.org", cited_text="is red", start_index=0, end_index=9)],
            ),
            create_text_block("Water is wet.", annotations=[create_citation(title="doc-2")]),
        ]
        message = AIMessage(content_blocks=blocks)
        annotations = annotations_from_blocks(message.content)

        assert [(item["start_index"], item["end_index"]) for item in annotations] == [(0, 9), (11, 24)]
        assert cited(message.text, given=annotations) == [[(0,)], [(1,)]]
        assert annotations_from_blocks("plain") == []
        assert (
            annotations_from_blocks([{"type": "image"}, "text", {"text": "x", "annotations": [3, {"type": "other"}]}])
            == []
        )

    def test_anthropic_blocks(self) -> None:
        """The quoted text identifies the passage."""
        blocks = [
            {"type": "text", "text": "It is so: "},
            {
                "type": "text",
                "text": "water is wet.",
                "citations": [
                    {"type": "char_location", "cited_text": "Water is wet.", "document_index": 0, "document_title": "x"}
                ],
            },
        ]

        assert cited("It is so: water is wet.", given=annotations_from_blocks(blocks)) == [[(1,)]]


@given(
    st.lists(
        st.sampled_from(
            [
                "It is red",
                ". ",
                " [1]",
                "[2, 9]",
                "[doc-1]",
                "¹",
                "[^1]",
                "\n",
                "Sources:",
                "[^1]: x",
                "](",
                "![",
                "[",
                "]",
            ]
        ),
        max_size=15,
    ).map("".join)
)
def test_any_text_is_read(response: str) -> None:
    """Every part is a sentence with letters; every key is a passage's or a name; none stands twice in a part."""
    found = cite(response)
    known = {sentence.key for sentence in key_response(response)}

    for part in found.parts:
        assert part.sentence.key in known
        assert len({key.identity for key in part.keys}) == len(part.keys)
        for key in part.keys:
            assert key.name
            assert all(0 <= index < len(PASSAGES) for index in key.passages)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "[" * n,
        lambda n: "[1]" * (n // 3),
        lambda n: "".join(f"[d-{i}]" for i in range(n // 6)),
        lambda n: "It is so [1]. " * (n // 14),
        lambda n: "Sources:\n" * (n // 9),
        lambda n: "A [^1].\n[^1]: x\n" * (n // 16),
        lambda n: "abc¹,²,³" * (n // 8),
        lambda n: "Source 1 " * (n // 9),
    ],
)
def test_work_grows_with_the_length_of_junk(make: Callable[[int], str]) -> None:
    """Four times the text takes at most about four times the steps."""
    passages = (Passage(text="Source 1:\nOne."), *PASSAGES)
    short, long = (calls(lambda text: cite(text, passages), make(n)) for n in (2_000, 8_000))

    assert long <= 5 * short + 1_000
