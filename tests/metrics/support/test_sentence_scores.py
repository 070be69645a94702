"""Scores of sentences: what an explanation says of them, and what is kept of very many."""

from __future__ import annotations

from rageval_hooks.metrics.support.sentence_scores import SentenceScore, as_metadata, explain_sentences, sentences_in


def test_an_explanation_names_the_sentences_that_cost_most() -> None:
    """A long sentence that is a little weak costs more than a short one; what is missing is behind it."""
    sentences = [
        SentenceScore(text="Good.", score=0.9),
        SentenceScore(text="Short.", score=0.2, weight=1, passage_name="pier.md", missing=("lamps",)),
        SentenceScore(text="Long.", score=0.4, weight=9, contradicts="It is short.", unseen=("ferry.md",)),
        SentenceScore(text="Nothing.", score=0.0, weight=0.1, passage_name="pier.md"),
    ]

    assert explain_sentences(sentences, 0.5).splitlines() == [
        "3 of 4 sentences below 0.50:",
        "0.40 “Long.”; the passages say: “It is short.”; only in a passage that was not in the prompt: ferry.md",
        "0.20 “Short.” best passage: pier.md; missing: lamps",
        "0.00 “Nothing.” no passage has any of it",
    ]
    assert explain_sentences(sentences[1:2], 0.5).startswith("below 0.50:")


def test_an_explanation_of_a_good_answer() -> None:
    """With the words that no passage has."""
    good = SentenceScore(text="Good.", score=0.9, missing=("2018",))

    assert explain_sentences([good], 0.5) == "reaches 0.50; words that no passage has: 2018"
    assert explain_sentences([SentenceScore(text="Good.", score=0.5)] * 2, 0.5) == "all 2 sentences reach 0.50"


def test_of_very_many_sentences_the_lowest_are_kept() -> None:
    """In the order of the text; and they are read again as they were."""
    sentences = [SentenceScore(text=f"{number}", score=number % 7 / 7, missing=("x",)) for number in range(300)]
    found = sentences_in({"sentences": as_metadata(sentences)})

    assert len(found) == 100
    assert max(sentence.score for sentence in found) <= 2 / 7
    assert [int(sentence.text) for sentence in found] == sorted(int(sentence.text) for sentence in found)
    assert found[0] == sentences[0]
    assert sentences_in({}) == []
