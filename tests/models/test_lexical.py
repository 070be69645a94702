"""The tier without weights: words and rules."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from rageval_hooks.models.lexical import LexicalEmbedder, LexicalEmbedding, LexicalNlp, LexicalRelevance
from rageval_hooks.models.nlp import Entity
from tests.interpreter import run_script
from tests.local import LOCAL
from tests.text.junk import anything


def embed(text: str) -> LexicalEmbedding:
    return LexicalEmbedder().embed(text)


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        ("the old pier", "Old piers!", 1.0),
        ("an old pier", "a new bridge", 0.0),
        ("old pier", "old bridge", 0.5),
        ("", "old bridge", 0.0),
        ("of the", "of the", 0.0),
    ],
)
def test_texts_are_compared_by_their_content_words(one: str, other: str, cosine: float) -> None:
    """Function words and forms of words do not matter."""
    assert embed(one).cosine(embed(other)) == pytest.approx(cosine)
    assert embed(other).cosine(embed(one)) == pytest.approx(cosine)


@given(anything(), anything())
def test_cosines_are_in_range(one: str, other: str) -> None:
    """Whatever the texts, and a text is as near to itself as can be."""
    assert -1e-9 <= embed(one).cosine(embed(other)) <= 1 + 1e-9
    assert 0 <= embed(one).best_cosine(embed(other)) <= 1
    assert embed(one).is_empty or embed(one).cosine(embed(one)) == pytest.approx(1)


def test_a_short_text_is_found_in_a_long_one() -> None:
    """The share of its words, however much else the long text says."""
    passage = embed("The new pier was opened in September 2019 by the mayor of a town, in spite of the weather.")

    assert passage.best_cosine(embed("Was the pier opened in 2020?")) == pytest.approx(2 / 3)


def test_texts_put_together_count_as_one() -> None:
    """Like the text of both."""
    together = LexicalEmbedding.together([embed("old pier"), embed("old bridge")])

    assert together.cosine(embed("old pier, old bridge")) == pytest.approx(1)


@pytest.mark.parametrize(
    ("query", "response", "expected"),
    [
        ("When was the pier opened?", "The pier was opened in 2019.", 1.0),
        ("When was the pier opened?", "The pier is long.", 0.5),
        ("When was the pier opened?", "Bananas.", 0.0),
        ("Who is it?", "It is him.", None),
    ],
)
def test_relevance_is_the_share_of_the_querys_words(query: str, response: str, expected: float | None) -> None:
    """A query of function words alone cannot be compared: no number stands for that."""
    found = LexicalRelevance().relevance(query, response)

    assert (None if found is None else found.probability) == expected


def test_entities_are_facts() -> None:
    """Numbers, dates, codes and names, with the kinds that spaCy has for them."""
    assert LexicalNlp().entities("On 3 May 2019 we flew with LH454 to Rome for 120 euros.") == [
        Entity("3 May 2019", "DATE"),
        Entity("LH454", "PRODUCT"),
        Entity("Rome", "ENTITY"),
        Entity("120", "CARDINAL"),
    ]


@pytest.mark.parametrize(
    ("query", "concepts"),
    [
        ("When was the new pier opened by the mayor?", ["new pier opened", "mayor"]),
        ("Tell me about the old tower", ["old tower"]),
        ("Explain. The tower, the tower!", ["tower"]),
        ("Who is it?", []),
        ("北京天气", ["北京", "京天", "天气"]),
    ],
)
def test_concepts_are_runs_of_content_words(query: str, concepts: list[str]) -> None:
    """Fillers and repetitions are not concepts."""
    assert LexicalNlp().concepts(query) == concepts


def test_the_tier_needs_no_weights_and_no_numerics() -> None:
    """Where none of numpy, torch, spaCy, transformers and sentence-transformers can be imported, all metrics run."""
    output = run_script(
        """
import json, sys
from importlib.abc import MetaPathFinder

HEAVY = {"numpy", "torch", "spacy", "transformers", "sentence_transformers", "huggingface_hub", "tokenizers", "scipy"}

class Blocked(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import rageval_hooks

turn = rageval_hooks.Turn(
    query="When was the pier opened?",
    response="The pier was opened in 2020 by Anna Berg.",
    passages=(rageval_hooks.Passage(text="The new pier was opened in September 2019."),),
)
results = rageval_hooks.evaluate(turn, metrics=sys.argv[1:], models="lexical").results
print(json.dumps([result.model_dump(mode="json") for result in results]))
""",
        *LOCAL,
    )

    results = json.loads(output)
    models = {result["name"]: result["model"] for result in results if result["status"] == "scored"}
    assert {result["name"] for result in results if result["status"] != "scored"} == {"cost", "latency"}
    for name in (
        "answer_relevance",
        "concept_completeness",
        "context_relevance",
        "entity_consistency",
        "factual_accuracy",
        "groundedness",
        "hallucination",
        "semantic_grounding",
    ):
        assert models[name] == "lexical"
