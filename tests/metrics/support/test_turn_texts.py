"""The text of a response without its citation markers."""

from __future__ import annotations

from typing import Any

import pytest

from rageval_hooks import Passage, Turn
from rageval_hooks.metrics.base import REGISTRY
from rageval_hooks.metrics.support.turn_texts import ResponseText, TurnTexts
from rageval_hooks.models import Models
from tests.local import LEXICAL_MODELS, run
from tests.metrics.texts import MUSEUM, PIER, QUERY

PASSAGES = (Passage(text=PIER, id="doc-1"), Passage(text=MUSEUM, id="doc-2"))
PLAIN = "The new pier was opened in September 2019. It was designed by Anna Berg."
MARKED = {
    "numbers": "The new pier was opened in September 2019 [1]. It was designed by Anna Berg [1][2].",
    "ids": "The new pier was opened in September 2019 [doc-1]. It was designed by Anna Berg [doc-1, doc-2].",
    "raised": "The new pier was opened in September 2019.¹ It was designed by Anna Berg.²",
    "footnotes": "The new pier was opened in September 2019[^1]. It was designed by Anna Berg[^2].",
    "lenticular": "The new pier was opened in September 2019【1†source】. It was designed by Anna Berg【2】.",
    "references": f"{PLAIN}\n\nSources:\n[1] Handbook of Carl Brown, 2011\n[2] Zaha Hadid, 1999",
}
METRICS = (
    "groundedness",
    "unsupported_facts",
    "semantic_grounding",
    "entity_consistency",
    "factual_accuracy",
    "hallucination",
    "answer_relevance",
    "concept_completeness",
)


@pytest.mark.parametrize("marked", MARKED.values(), ids=MARKED)
def test_what_only_cites_is_no_part_of_what_is_said(marked: str) -> None:
    """Markers and lists of references are cut, with the spaces before them."""
    assert ResponseText(Turn(response=marked, passages=PASSAGES)).said == PLAIN


@pytest.mark.parametrize(
    "text", ["He was born in [2019].", "At [12:30] it is so.", "See [the pier](https://example.com)."]
)
def test_other_brackets_stay(text: str) -> None:
    """Years, times, links and words in brackets are no citations."""
    assert ResponseText(Turn(response=text, passages=PASSAGES)).said == text


def test_a_marker_between_two_words_leaves_them_apart() -> None:
    """The second word may follow the bracket directly."""
    turn = Turn(response="It opened in 2019 [1]and it cost 4 euros.", passages=PASSAGES)
    assert ResponseText(turn).said == "It opened in 2019 and it cost 4 euros."


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("marked", MARKED.values(), ids=MARKED)
def test_markers_change_no_score(metric: str, marked: str) -> None:
    """A response with markers has the scores of the same response without them."""
    turn = Turn(query=QUERY, passages=PASSAGES, response=PLAIN)

    [plain] = run(REGISTRY.create(metric), turn)
    [with_markers] = run(REGISTRY.create(metric), turn.model_copy(update={"response": marked}))

    assert with_markers.value == pytest.approx(plain.value, abs=1e-9)  # type: ignore[union-attr]


@pytest.mark.parametrize("metric", ["entity_consistency", "hallucination", "semantic_grounding", "groundedness"])
def test_markers_change_no_score_of_the_models(metric: str, real_models: Models) -> None:
    """With spaCy and MiniLM: "1" is no entity of the response."""
    turn = Turn(query=QUERY, passages=PASSAGES, response=PLAIN)

    [plain] = run(REGISTRY.create(metric), turn, real_models)
    [marked] = run(REGISTRY.create(metric), turn.model_copy(update={"response": MARKED["numbers"]}), real_models)

    assert marked.value == pytest.approx(plain.value, abs=1e-5)  # type: ignore[union-attr]


@pytest.mark.parametrize("response", ["!!! ??? …", "😀😀", "[1]", "[1] [2]."])
@pytest.mark.parametrize("metric", METRICS)
def test_a_response_without_words_is_skipped(metric: str, response: str) -> None:
    """Symbols and markers alone are no answer that could be scored."""
    turn = Turn(query=QUERY, passages=PASSAGES, response=response)

    [result] = run(REGISTRY.create(metric), turn, LEXICAL_MODELS)

    assert (result.status, getattr(result, "reason", "")) == ("skipped", "the response has no words")


@pytest.mark.parametrize("response", [PLAIN, "In 2019.", "42.", "The new pier has these lamps:\n\n1."])
@pytest.mark.parametrize("metric", METRICS)
def test_white_space_at_the_end_changes_no_score(metric: str, response: str) -> None:
    """Models often end with a space or a line break. "42. " is not the number of a list."""
    turn = Turn(query=QUERY, passages=PASSAGES, response=response)

    [plain] = run(REGISTRY.create(metric), turn, LEXICAL_MODELS)
    [spaced] = run(REGISTRY.create(metric), turn.model_copy(update={"response": f"{response} \n"}), LEXICAL_MODELS)

    assert spaced == plain


@pytest.mark.parametrize(
    ("passage_id", "metadata", "name"),
    [
        ("pier-2019", {"source": "docs/pier.md"}, "pier-2019"),
        (None, {}, "number 2"),
        ("3f2b8c1e-5d60-4b7e-9a51-0c2a7d1f4e77", {}, "number 2"),
        ("3f2b8c1e-5d60-4b7e-9a51-0c2a7d1f4e77", {"source": "https://harbour.example/docs/pier.md"}, "2 (pier.md)"),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", {"file_name": "pier.md", "file_path": "/srv/docs/pier.md"}, "2 (pier.md)"),
        ("449876543210987654", {"file_path": "C:\\docs\\the pier.md"}, "2 (the pier.md)"),
        (None, {"source": 7, "title": "The new pier"}, "2 (The new pier)"),
        (None, {"source": "https://harbour.example/pier/"}, "2 (pier)"),
        (None, {"source": " / "}, "number 2"),
    ],
)
def test_an_explanation_names_a_passage_as_people_do(
    passage_id: str | None, metadata: dict[str, Any], name: str
) -> None:
    """By an id that people read, else by its number and its source. A UUID says nothing."""
    texts = TurnTexts(Turn(passages=(Passage(text=PIER), Passage(text=MUSEUM, id=passage_id, metadata=metadata))))

    assert texts.passage_name(1) == name


def test_the_date_of_an_answer_is_no_claim_about_its_passages() -> None:
    """Where a passage states such a date, it is."""
    response = "As of November 28, 2025, the pier is closed."
    silent = ["As of November 28, 2025,"]
    for passage, found in ((PIER, silent), ("The pier is closed as of May 2, 2025.", [])):
        texts = TurnTexts(Turn(response=response, passages=(Passage(text=passage),)))
        assert [response[start:end].strip() for start, end in texts.response.marks] == found


def test_a_refusal_may_repeat_the_words_of_a_passage() -> None:
    """With a number that no passage has, it claims something."""
    passage = (Passage(text="The pier of Hallay has 7 lamps."),)
    for response, expected in (
        ("The passages do not mention who built the pier of Hallay with 7 lamps.", True),
        ("The passages do not mention who built the pier of Hallay in 1871.", False),
    ):
        assert TurnTexts(Turn(query="Who built it?", response=response, passages=passage)).claims_nothing is expected
