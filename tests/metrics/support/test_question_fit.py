"""How near passages come to a question."""

from __future__ import annotations

import pytest

from rageval_hooks.metrics.support.question_fit import Fit, read_sentences


def test_a_sentence_that_goes_on_is_about_what_the_one_before_is_about() -> None:
    """A pronoun refers to it. A new subject does not."""
    pier, it, ferry = read_sentences("The pier of Hallay opened. It cost seven crowns. Ferries leave daily.")

    assert "pier" in pier.keys
    assert pier.keys == pier.about
    assert pier.about < it.about
    assert "pier" not in it.keys
    assert ferry.about == ferry.keys
    assert [sentence.span[0] for sentence in (pier, it, ferry)] == [0, 27, 49]


@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        (Fit(0.5), True),
        (Fit(0.4), False),
        (Fit(0.5, 0.5), True),
        (Fit(0.0, 0.5), False),
        (Fit(1.0, 0.1), False),
    ],
)
def test_when_a_passage_is_about_the_question(fit: Fit, expected: bool) -> None:
    """By words alone, or by words and vectors together."""
    assert fit.is_about_question is expected
