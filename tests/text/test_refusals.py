"""Responses that decline, and such that do not. tests/guard has refusals and claims in five languages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.refusals import declines


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
        "Based on the provided context, I cannot answer the question.",
        "Based on the information provided, I cannot determine the answer.",
        "I do not have access to that information.",
        "None of the passages mention the price.",
        "There is no mention of hotels in the passages.",
        "The answer is not in the context.",
        "It is not possible to answer the question from the context.",
        "I cannot determine the price from the documents.",
        "The question cannot be answered from the given passages.",
        "The passages do not mention who built the pier in 2019.",
        "I'm unable to answer that question. If you have more details, please share them.",
        "Sorry. I do not have that information. Could you rephrase the question?",
        "Unfortunately, I don't have enough context to answer that.",
        "Ich weiß es nicht.",
        "Je ne sais pas si la piscine est chauffée.",
        "Los documentos no mencionan el precio.",
        "Non ho trovato alcuna informazione nei documenti.",
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
        # A negation is not a refusal: these state that something is absent, not allowed or not found.
        "We do not provide refunds for opened items.",
        "We cannot help customers without a receipt.",
        "We did not find that coffee raises the risk of cancer.",
        "The results do not indicate that aspirin causes cancer.",
        "The search results do not include sponsored entries.",
        "The handbook does not give employees paid leave.",
        "The articles of association do not provide for dividends.",
        "The documents do not contain errors.",
        "The passages do not say that smoking is harmless.",
        "The passages cannot include commas.",
        "I don't know how anyone could doubt that it was opened in 2019.",
        "No. I do not know.",
        "The cause of the fire could not be determined.",
        "The black box could not be found.",
        "The species cannot be found outside of Madagascar.",
        "Asbestos was not found in the building materials.",
        "No details were released by the police.",
        "No answer came from the pilot.",
        "There is no information exchange between the two systems.",
        "Unable to find work he moved to Berlin.",
        "I do not know of any law against it.",
        # A third party declines, not the answer.
        "The documents show that Smith did not mention the price.",
        "The context states that the company did not provide refunds.",
        "Scientists say that we do not know what dark matter is.",
        # A refusal, and a claim behind it in the same sentence.
        "The price is 9 euros which is not mentioned in the passages.",
        "The passages do not mention the price (it is 9 euros).",
        "The passages do not mention the price – it is 9 euros.",
        "The passages do not mention dogs, so they are allowed.",
        "The passages do not mention the price because the museum is free.",
        "The passages do not mention any hotel other than the Ritz.",
        "The passages do not say so and it costs 9 euros.",
        "I could not find an exact figure and estimates range from 5 to 10 million.",
        "I don't know maybe 42.",
        "I don't know the answer\nthe pier was opened in 2019",
        # A claim that follows in lower case, or without a space.
        "I don't know. the price is 500 EUR.",
        "I don't know... the price is 500 EUR.",
        "I don't know…the price is 500 EUR.",
        "No lo sé. el precio es 500 EUR.",
        "No lo sé… cuesta 500 EUR.",
        "Ich weiß es nicht. der Preis beträgt 500 EUR.",
        "Je ne sais pas. le prix est de 500 EUR.",
        "Non lo so. il prezzo è 500 EUR.",
        # A claim that begins like a courtesy.
        "I don't know the price. If you are over 65, you pay 9 euros.",
        "I don't know the day. Please note that it was opened in 2019.",
        "I don't know the price. Unfortunately, the pier is closed.",
        "I don't know the price. Sorry for the confusion, the pier was opened in 2019.",
        "I don't know. You can ask for a refund within 30 days.",
        "I don't know. If you have a ticket please show it at the gate.",
    ],
)
def test_a_response_that_does_not(response: str) -> None:
    """It claims something, or no rule knows it."""
    assert not declines(response)


@given(st.text())
def test_a_refusal_with_a_further_claim_is_not_a_refusal(text: str) -> None:
    """The text before the claim does not matter."""
    assert not declines(f"{text}\n\nThe pier was opened in 2019.")
