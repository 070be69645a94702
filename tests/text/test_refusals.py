"""Responses that decline, and such that do not. tests/guard has refusals and claims in five languages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.text.refusals import asks_back, declines, says_nothing, sentence_declines, speaks_to_reader


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


def test_an_english_sentence_is_read_in_english_only() -> None:
    """In Finnish, "en ... maini" would say that nothing is mentioned."""
    assert not sentence_declines("The owner doesn't take the fee and then the rest, so the remaining part is due.")
    assert sentence_declines("The passages do not mention the fee.")
    assert sentence_declines("В документах не указана цена.")


@given(st.text())
def test_a_refusal_with_a_further_claim_is_not_a_refusal(text: str) -> None:
    """The text before the claim does not matter."""
    assert not declines(f"{text}\n\nThe pier was opened in 2019.")


@pytest.mark.parametrize(
    "response",
    [
        "Not found.", "N/A", "Unknown.", "None", "No results found.", "Not mentioned.", "Insufficient information.",
        "Sorry, I do not have that information, either.", "I'm sorry, but I can't do that.", "I have no idea.",
        "Sorry, there is no specific information about night tours of the museum.", "不明", "Неизвестно.", "无",
        "Sorry, but I can not advise you about that.", "The date is not given in the text.",
        "It is not possible to say when the tours started.", "Apologies, but I could not find a relevant answer.",
        "I searched the documents but found nothing about night tours.",
        # What chat models add.
        "I don't know. Would you like me to look up the ticket prices instead?", "I don't know. Have a pleasant trip!",
        "I don't know. Can I help you with something else?", "I don't know. Shall I list the stops?",
        "I don't know. For up-to-date information, please check the operator's website.",
        # Other languages.
        "Não encontrei nos documentos a idade do capitão.", "Não sei.", "Os documentos não mencionam visitas.",
        "Ik kon in de documenten niet vinden hoe oud de kapitein is.", "Dat staat niet in de documenten.",
        "Jag kunde inte hitta kaptenens ålder i dokumenten.", "Tyvärr hittar jag ingen information om det.",
        "Dokumenterne nævner ikke nattevisninger.", "Nie znalazłem w dokumentach informacji o wieku kapitana.",
        "Bohužel o tom nemám žádné informace.", "В документах не указан возраст капитана.",
        "Belgelerde kaptanın yaşı hakkında bilgi bulamadım.", "資料には船長の年齢に関する記載がありませんでした。",
        "申し訳ありませんが、その情報は見つかりませんでした。", "文档中没有提到船长的年龄。",
        "抱歉，我无法回答这个问题。",
        "문서에서 선장의 나이를 찾을 수 없습니다.", "لم أجد عمر القبطان في المستندات.", "ไม่พบอายุของกัปตันในเอกสาร",
        "दस्तावेज़ों में कप्तान की उम्र नहीं मिली।", "Tidak ada informasi tentang itu dalam dokumen.",
        "Không có thông tin về điều này trong tài liệu.", "Din păcate, nu am informații despre asta.",
        "Sajnos erről nincs információ a dokumentumokban.", "אין לי מידע על כך.",
        "Δεν υπάρχουν πληροφορίες στα έγγραφα.", "죄송하지만 해당 내용을 찾을 수 없습니다.",
        "Não sei. Posso ajudar com outra coisa?",
        "Bohužel to z poskytnutého textu nelze zjistit.", "The material you shared doesn't cover colours.",
        "Based on what I was given, I can't tell which colours exist.", "N/A – not mentioned in the source.",
        "I looked through the passages but didn't find any mention of colours.", "We have no record of that.",
        "Sorry — that isn't something the provided documents answer.", "The excerpts give no indication of colours.",
        "The passages only describe how the alarm works; they don't list its colours.",
        "To my knowledge, the documents do not list any colours.",
        "I neither have the date nor am I able to confirm that there are night tours.",
    ],
)  # fmt: skip
def test_more_forms_and_languages_decline(response: str) -> None:
    """Short forms, what follows a refusal, and more languages."""
    assert declines(response)


@pytest.mark.parametrize(
    "response",
    [
        "Which museum are you referring to?", "Do you mean the museum in Ardwell, or another one?",
        "Could you clarify which museum you mean?", "I'd need more details to answer that.", "Sure! Which museum?",
        "There are several museums in the documents. Which one are you asking about?", "Please clarify your question.",
        "Just to clarify, are you looking for opening hours or prices?", "Which year do you mean: 2019 or 2020?",
        "I could not find night tours. Do you mean evening tours?", "Welches Museum meinen Sie?",
        "您指的是哪个博物馆？", "Do you want the list for Europe or for the US?",
        "May I ask which shop you are looking at?", "Should I look for indoor or outdoor alarms?",
        "Which of these do you mean?\n- The museum in Ardwell\n- The museum in Vik", "De quel musée parlez-vous ?",
    ],
)  # fmt: skip
def test_a_question_to_the_user_asks_back(response: str) -> None:
    """It claims nothing."""
    assert asks_back(response)
    assert not declines(response)


@pytest.mark.parametrize(
    "response",
    [
        "The museum opened in 2017, right?", "Did you know that the museum costs 500 euros?", "I don't know.",
        "The tour costs 500 euros. Would you like to book?", "What is the price? The price is 500 euros.",
        "There are several museums: the one in Oslo opened in 1911. Which one do you mean?", "Have a nice day!",
        "It was definitely sad, don't you think?", "Is there anything else I can help you with?", "",
        "Unfortunately, the museum was closed in 2017 after a flood.", "No. Dogs are forbidden on the terrace.",
        'The sign says "I don\'t know", which Marta Oldag painted in 1911.',
        "Não é permitido fumar no museu.", "Der Hund ist nicht erlaubt.", "Koiria ei sallita laivalla.",
        "Hunden är inte tillåten ombord.", "狗不允许上船。", "犬は乗船できません。", "Собаки не допускаются.",
        "O documento não menciona o preço, mas o bilhete custa 18 coroas.", "文档中没有提到价格，但是票价为18克朗。",
    ],
)  # fmt: skip
def test_an_answer_neither_declines_nor_asks_back(response: str) -> None:
    """Also where it has a question, a negation, or begins with "Unfortunately"."""
    assert not asks_back(response)
    assert declines(response) == (response == "I don't know.")


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [("文件中没有提到价格。", True), ("码头的价格是七元。", False), ("The passages do not mention a price.", True)],
)
def test_a_sentence_declines_within_a_longer_answer(sentence: str, expected: bool) -> None:
    """In any language that the rules know."""
    assert sentence_declines(sentence) is expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("I don't know.", True),
        ("Hello!", True),
        ("I don't know. Let me know if I can help with something else!", True),
        ("It was opened in 2019.", False),
        ("I don't know who built it, but it was opened in 2019.", False),
    ],
)
def test_what_says_nothing(response: str, expected: bool) -> None:
    """Refusals and courtesies; nothing in them could be wrong."""
    assert says_nothing(response) is expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [("I hope this helps!", True), ("I hope these 7 steps help!", False), ("The pier is long.", False)],
)
def test_a_sentence_that_speaks_to_the_reader(sentence: str, expected: bool) -> None:
    assert speaks_to_reader(sentence) is expected
