"""Conversations without a framework: lists of messages and contexts become turns."""

from __future__ import annotations

from typing import Any

import pytest

from rageval_hooks import Passage, Turn, TurnError, evaluate, evaluate_conversation
from rageval_hooks.integrations.conversation import turns_from_conversation

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "assistant", "content": "Welcome aboard!"},
    {"role": "user", "content": "When was the pier opened?"},
    {"role": "assistant", "content": "The pier was opened in 2019."},
    {"role": "user", "content": "How long is it?"},
    {"role": "assistant", "content": "It is 69 metres long."},
]
CONTEXTS = [
    ["The new pier was opened in September 2019."],
    [
        {"text": "The pier is 96 metres long.", "id": "p", "score": 0.5, "source": "x"},
        Passage(text="It is new.", id="q"),
    ],
]


def test_one_turn_for_each_answer() -> None:
    """An answer's query is the question before it. A greeting is not an answer."""
    turns = turns_from_conversation(CHAT, CONTEXTS)

    assert [(turn.query, turn.response) for turn in turns] == [
        ("When was the pier opened?", "The pier was opened in 2019."),
        ("How long is it?", "It is 69 metres long."),
    ]
    assert [[passage.text for passage in turn.passages] for turn in turns] == [
        ["The new pier was opened in September 2019."],
        ["The pier is 96 metres long.", "It is new."],
    ]
    assert turns[1].passages[0] == Passage(
        text="The pier is 96 metres long.", id="p", score=0.5, metadata={"source": "x"}
    )


def test_one_context_for_all_answers() -> None:
    """A flat list of passages serves every answer."""
    turns = turns_from_conversation(CHAT, ["The pier was opened in 2019.", "The pier is 96 metres long."])

    assert [len(turn.passages) for turn in turns] == [2, 2]


@pytest.mark.parametrize(
    ("user", "assistant", "key"),
    [("human", "ai", "content"), ("User", "AI/Chatbot", "message"), ("customer", "bot", "text")],
)
def test_other_names_for_the_roles(user: str, assistant: str, key: str) -> None:
    """Chat logs use several names for the user and the assistant."""
    [turn] = turns_from_conversation([{"role": user, key: "When?"}, {"role": assistant, key: "In 2019."}], [["x"]])

    assert (turn.query, turn.response) == ("When?", "In 2019.")


QUESTION = {"role": "user", "content": "When?"}


@pytest.mark.parametrize(
    ("chat", "expected"),
    [
        # A call of a tool is no answer, and neither is what the tool says.
        (
            [
                QUESTION,
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": "The pier was opened in 2019."},
                {"role": "assistant", "content": "In 2019."},
            ],
            [("When?", "In 2019.")],
        ),
        ([QUESTION, {"role": "assistant", "content": "Let me look."}, {"role": "function", "content": "x"}], []),
        (
            [{"role": "developer", "content": "Be brief."}, QUESTION, {"role": "gpt", "value": "In 2019."}],
            [("When?", "In 2019.")],
        ),
        (
            [
                {"role": "user", "content": [{"type": "text", "text": "When?"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "In 2019."}]},
            ],
            [("When?", "In 2019.")],
        ),
        # Both messages are the answer.
        (
            [QUESTION, {"role": "assistant", "content": "In 2018."}, {"role": "assistant", "content": "No, in 2019."}],
            [("When?", "In 2018.\n\nNo, in 2019.")],
        ),
        # The last question has no answer yet.
        (
            [QUESTION, {"role": "assistant", "content": "In 2019."}, {"role": "user", "content": "Why?"}],
            [("When?", "In 2019.")],
        ),
        # A question in two messages: the last one counts.
        (
            [{"role": "user", "content": "Hi"}, QUESTION, {"role": "assistant", "content": "In 2019."}],
            [("When?", "In 2019.")],
        ),
    ],
)
def test_each_question_has_its_own_answer(chat: Any, expected: list[tuple[str, str]]) -> None:
    """As logs of chat applications have them."""
    assert [(turn.query, turn.response) for turn in turns_from_conversation(chat, "x")] == expected


TEXT = "The pier was opened in 2019."


@pytest.mark.parametrize(
    ("contexts", "expected"),
    [
        (TEXT, [[TEXT], [TEXT]]),
        ({"text": TEXT}, [[TEXT], [TEXT]]),
        ([TEXT, "Other."], [[TEXT, "Other."]] * 2),
        ([TEXT, None], [[TEXT], []]),
        ([TEXT, []], [[TEXT], []]),
        ([[TEXT], None], [[TEXT], []]),
        ([{"text": TEXT}, []], [[TEXT], []]),
        ([TEXT, ""], [[TEXT], []]),
        ([(TEXT, 0.7), ("Other.", 0.6)], [[TEXT, "Other."]] * 2),
        ([], [[], []]),
    ],
)
def test_contexts(contexts: Any, expected: list[list[str]]) -> None:
    """A text or a mapping is one passage. None, an empty text or a list is what was retrieved for one answer."""
    turns = turns_from_conversation(CHAT, contexts)
    assert [[passage.text for passage in turn.passages] for turn in turns] == expected


def test_a_vector_without_a_text_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """The others are used."""
    turns = turns_from_conversation(CHAT, [{"id": 1, "text": TEXT}, {"id": 2, "tokens": 5}])
    assert [[passage.text for passage in turn.passages] for turn in turns] == [[TEXT], [TEXT]]
    assert "a passage of all answers has no text and is not used" in caplog.text


def test_the_same_scores_as_in_an_application() -> None:
    """The metrics find the answer with the wrong number."""
    first, second = evaluate_conversation(CHAT, CONTEXTS, models="lexical")

    assert first["unsupported_facts"] == 0
    assert second["unsupported_facts"] == 1
    assert second.score("unsupported_facts").label == "fail"  # type: ignore[union-attr]
    assert first["groundedness"] > second["groundedness"]
    assert {result.name for result in first.skipped} == {"latency", "cost"}
    assert evaluate(first.turn, models="lexical").results == first.results


@pytest.mark.parametrize(
    ("chat", "contexts", "message"),
    [
        (CHAT, [["x"]], "2 answers but 1 contexts"),
        ([{"role": "user"}], [], "message 1 has no text"),
        ([{"role": "robot", "content": "x"}], [], "message 1 has the role 'robot'"),
        (CHAT, [[{"id": "p"}], ["x"]], "no passage of answer 1 has a text"),
        (CHAT, [[3], ["x"]], "a passage of answer 1 is a int"),
    ],
)
def test_what_does_not_fit_is_said(chat: Any, contexts: Any, message: str) -> None:
    """The error names the message or answer, and says what to do."""
    with pytest.raises(TurnError, match=message):
        turns_from_conversation(chat, contexts)


def test_a_score_that_is_not_there_says_why() -> None:
    """A look-up by name raises an error with the reason."""
    [first, _] = evaluate_conversation(CHAT, CONTEXTS, models="lexical")

    with pytest.raises(KeyError, match="latency was skipped: the turn was not timed"):
        first["latency"]
    with pytest.raises(KeyError, match="no score named 'nonsense'"):
        first["nonsense"]


def test_rates_of_the_environment_are_for_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample rates do not apply to turns that are evaluated directly."""
    monkeypatch.setenv("RAGEVAL_SAMPLE_RATE", "0.1")
    monkeypatch.setenv("RAGEVAL_JUDGE_SAMPLE_RATE", "0.01")
    evaluation = evaluate(
        Turn(query="When?", response="In 2019.", passages=(Passage(text="In 2019."),)), models="lexical"
    )

    assert {score.probability for score in evaluation.scores} == {1.0}
