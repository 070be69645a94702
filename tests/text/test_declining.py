"""Responses that decline, and such that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.declining import declines


@pytest.mark.parametrize(
    "response",
    [
        "I don't know.",
        "I don’t know.",
        "I'm sorry, but I don't know.",
        "We could not find any information on that.",
        "I do not have enough information to answer.",
        "The context does not contain information about hotels.",
        "Unfortunately, the provided passages do not mention the price.",
        "The handbook does not say which hotels have a pool.",
        "There is no information about this in the documents.",
        "The price is not mentioned in the passages. Please contact the office.",
        "Unable to answer from the passages.",
        "This question cannot be answered from the documents. Let me know if you have another one!",
        "No relevant information found.",
    ],
)
def test_a_response_that_declines(response: str) -> None:
    """And claims nothing."""
    assert declines(response)


@pytest.mark.parametrize(
    "response",
    [
        "",
        " ",
        "The pier was opened in 2019.",
        "Dogs are not allowed on board.",
        "The museum does not provide parking.",
        "The contract does not include insurance.",
        "The context does not mention the cost, but the pier was opened in 2019.",
        "I do not know the cost. The pier was opened in 2019.",
        "I don't know much about it; it opened in 2019.",
        "Although the passages do not say so, it costs 9 euros.",
        "There is no evidence that the pier was built in 1900.",
        "Please contact the office.",
        "Sorry for the delay.",
        "Ich weiß es nicht.",
    ],
)
def test_a_response_that_does_not(response: str) -> None:
    """It claims something, or no rule knows it."""
    assert not declines(response)


@given(st.text())
def test_a_claim_more_is_no_refusal(text: str) -> None:
    """Whatever stands before it."""
    assert not declines(f"{text}\n\nThe pier was opened in 2019.")
