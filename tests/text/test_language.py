"""Languages other than English: dates and numbers are read, and what only English rules can read is skipped."""

from __future__ import annotations

import pytest

from rageval_hooks import Turn, evaluate
from rageval_hooks.score import Skipped
from rageval_hooks.text import language
from rageval_hooks.text.language import differs_in_language, is_surely_english, language_by_rules
from tests.local import make_turn

TEXTS = {
    "de": (
        "Wann wurde die Brücke in Hamburg eröffnet?",
        "Die Brücke in Hamburg wurde am 3. März 1974 eröffnet. Sie kostete 12,5 Millionen Mark.",
        "Das Bauwerk wurde am 3. März 1974 eröffnet und kostete 12,5 Millionen Mark.",
        "Die Brücke wurde am 4. April 1981 eröffnet.",
    ),
    "fr": (
        "Quand le pont de Lyon a-t-il été ouvert ?",
        "Le pont de Lyon a été ouvert le 3 mars 1974. Il a coûté 12,5 millions de francs.",
        "Le pont a été ouvert le 3 mars 1974 et a coûté 12,5 millions de francs.",
        "Le pont a été ouvert le 4 avril 1981.",
    ),
    "es": (
        "¿Cuándo se abrió el puente de Sevilla?",
        "El puente de Sevilla se abrió el 3 de marzo de 1974. Costó 12,5 millones de pesetas.",
        "El puente se abrió el 3 de marzo de 1974 y costó 12,5 millones de pesetas.",
        "El puente se abrió el 4 de abril de 1981.",
    ),
    "it": (
        "Quando è stato aperto il ponte di Roma?",
        "Il ponte di Roma è stato aperto il 3 marzo 1974 e costò 12,5 milioni di lire.",
        "Il ponte è stato aperto il 3 marzo 1974.",
        "Il ponte è stato aperto il 4 aprile 1981.",
    ),
    "pt": (
        "Quando foi aberta a ponte do Porto?",
        "A ponte do Porto foi aberta em 3 de março de 1974 e custou 12,5 milhões.",
        "A ponte foi aberta em 3 de março de 1974.",
        "A ponte foi aberta em 4 de abril de 1981.",
    ),
    "nl": (
        "Wanneer werd de brug in Rotterdam geopend?",
        "De brug in Rotterdam werd op 3 maart 1974 geopend. Hij kostte 12,5 miljoen gulden.",
        "De brug werd op 3 maart 1974 geopend en kostte 12,5 miljoen gulden.",
        "De brug werd op 4 april 1981 geopend.",
    ),
    "zh": (
        "长江大桥什么时候开通的?",
        "长江大桥于1974年3月3日开通，耗资1250万元。",
        "长江大桥于1974年3月3日开通，耗资1250万元。",
        "长江大桥于1981年4月4日开通。",
    ),
    "ja": (
        "橋はいつ開通しましたか。",
        "この橋は1974年3月3日に開通しました。費用は1250万円でした。",
        "この橋は1974年3月3日に開通し、費用は1250万円でした。",
        "この橋は1981年4月4日に開通しました。",
    ),
}
ENGLISH_ONLY = ["answer_relevance", "concept_completeness", "entity_consistency"]


def turn(code: str, response: str) -> Turn:
    query, passage, *_ = TEXTS[code]
    return make_turn(response, [passage], query)


@pytest.mark.parametrize("code", TEXTS)
def test_scores_are_sensible_or_skipped_with_the_language(code: str) -> None:
    """The right answer has no unsupported fact, the wrong one has its date; rules for English do not read either."""
    right, wrong = (
        evaluate(turn(code, response), models="lexical", metrics=[*ENGLISH_ONLY, "unsupported_facts", "faithfulness"])
        for response in TEXTS[code][2:]
    )

    assert right["unsupported_facts"] == 0, right.score("unsupported_facts")
    assert wrong["unsupported_facts"] == 1, wrong.score("unsupported_facts")
    assert right["faithfulness"] > 0.5 > wrong["faithfulness"]
    skipped = {result.name: result.reason for result in right.results if isinstance(result, Skipped)}
    assert sorted(skipped) == ENGLISH_ONLY
    assert all(reason.startswith("language ") for reason in skipped.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("When was the bridge opened?", "en"),
        ("What does 'die' mean in the German language?", "en"),
        ("Los Angeles de la Vega was born in Madrid, Spain.", None),
        ("Acme Corp", None),
        ("", None),
        *((texts[0], code) for code, texts in TEXTS.items()),
    ],
)
def test_a_language_is_named_only_if_it_is_clear(text: str, expected: str | None) -> None:
    """Names and single words of another language do not make an English text foreign."""
    assert language_by_rules(text) == expected


@pytest.mark.parametrize(
    ("text", "sure"),
    [
        ("The bridge in Hamburg was opened in 1974, and it is the oldest of those that are open.", True),
        ("Bridge opened 1974.", False),
        ("The pier was opened by the mayor, and that is all. 東京は日本の首都です。", False),
        ("Die Brücke ist the and that was of to.", False),
        ("Broen blev åbnet i 1931 for at lette trafikken.", False),
    ],
)
def test_function_words_alone_decide_that_a_text_is_surely_english(text: str, sure: bool) -> None:
    """Short texts, and texts with many words or characters of another language, are left to the detector."""
    assert is_surely_english(text) is sure


@pytest.mark.parametrize("code", TEXTS)
def test_no_other_language_is_surely_english(code: str) -> None:
    """The test is only for English."""
    assert not any(map(is_surely_english, TEXTS[code]))


ENGLISH = "The museum in Ardwell is open every day from 9 to 5. Tickets cost 12 euros. Employees have 28 days of leave."
ELSEWHERE = [
    "Das Museum in Ardwell ist täglich von 9 bis 5 Uhr geöffnet.", "Die Eintrittskarten kosten 12 Euro.",
    "Las entradas cuestan 12 euros.", "Les billets coûtent 12 euros.", "I biglietti costano 12 euro.",
    "Os bilhetes custam 12 euros.", "Kaartjes kosten 12 euro.", "Biljetterna kostar 12 euro.",
    "Billetterne koster 12 euro.", "Bilety kosztują 12 euro.", "Biletler 12 avro, müze her gün açıktır.",
    "Liput maksavat 12 euroa.", "Vstupenky stojí 12 eur.", "Biletele costă 12 euro.", "A jegyek ára 12 euró.",
    "Билеты стоят 12 евро.", "Квитки коштують 12 євро.", "Τα εισιτήρια κοστίζουν 12 ευρώ.", "门票12欧元。",
    "入場料は12ユーロです。", "입장권은 12유로입니다.", "تكلف التذاكر 12 يورو.", "टिकट 12 यूरो का है।",
    "บัตรเข้าชมราคา 12 ยูโร",
    "அருங்காட்சியகம் தினமும் திறந்திருக்கும்.", "Makumbusho ya Ardwell hufunguliwa kila siku.",
]  # fmt: skip


@pytest.mark.parametrize("with_detector", [True, False], ids=["detector", "rules"])
@pytest.mark.parametrize("answer", ELSEWHERE)
def test_an_answer_in_another_language_than_its_passages_is_not_judged(
    answer: str, with_detector: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words cannot be compared with theirs, so that it is neither good nor bad."""
    if not with_detector:
        monkeypatch.setattr(language, "_detector", lambda: None)
    turn = make_turn(answer, [ENGLISH], "What does it cost?")

    evaluation = evaluate(turn, models="lexical", metrics=["verdict", "faithfulness"])

    assert [result.status for result in evaluation.results] == ["skipped"] * 2
    assert {result.label for result in evaluation.results if result.name == "verdict"} == {"not_evaluable"}


@pytest.mark.parametrize("with_detector", [True, False], ids=["detector", "rules"])
@pytest.mark.parametrize(
    ("answer", "passages"),
    [
        ("Mercedes Stahl", [ENGLISH]),
        ("The Louvre and the Musée d'Orsay are in Paris.", [ENGLISH]),
        ("Die Eintrittskarten kosten 12 Euro.", [ENGLISH, "Eine Karte kostet 12 Euro, und das Museum ist geöffnet."]),
        ("Biljetterna kostar 12 euro och det är billigt.", ["En biljett kostar 12 euro och museet är öppet."]),
        ("Der Hund ist nicht erlaubt.", ["Hunde sind auf dem Schiff nicht erlaubt, und das ist gut so."]),
    ],
)
def test_names_and_the_language_of_one_passage_are_no_other_language(
    answer: str, passages: list[str], with_detector: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong answer stays wrong."""
    if not with_detector:
        monkeypatch.setattr(language, "_detector", lambda: None)

    assert differs_in_language(answer, passages) is None
