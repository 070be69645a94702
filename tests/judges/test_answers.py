"""Answers as models write them: what is read, and what a correction says."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from rageval_hooks.judges.answers import Nonce, UnusableAnswerError, parse_answer
from rageval_hooks.judges.base import Message
from rageval_hooks.judges.failures import Capabilities
from rageval_hooks.judges.prompts import without_system


class Verdict(BaseModel):
    explanation: str
    score: float


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("line one\nline two", "line one\nline two"),
        ("a\ttab", "a\ttab"),
        (r"the value \(x_1\) and \alpha", r"the value \(x_1\) and \alpha"),
        (r"\[ \frac{a}{b} \]", r"\[ \frac{a}{b} \]"),
        (r"see C:\docs\ferry.md", r"see C:\docs\ferry.md"),
        (r"a \"quoted\" word \u00e9", 'a "quoted" word é'),
        ('it says "no" to this', 'it says "no" to this'),
    ],
)
def test_texts_as_models_write_them(written: str, read: str) -> None:
    """A line break, LaTeX and a path are no reason to ask again."""
    text = f'{{"explanation": "{written}", "score": 0.5}}'

    assert parse_answer(text, Verdict) == Verdict(explanation=read, score=0.5)


@pytest.mark.parametrize(
    "text",
    [
        "{'explanation': 'an \"x\"', 'score': 0.5}",
        '{"explanation": "an \\"x\\"", "score": 0.5,}',
        '{explanation: "an \\"x\\"", score: 0.5}',
        '{"explanation": "an \\"x\\"" "score": 0.5}',
        'With $\\frac{a}{b}$:\n```json\n{"explanation": "an \\"x\\"", "score": 0.5,}\n```\nThat is all.',
        '{"example": 1} {"explanation": "an \\"x\\"", "score": 0.5,}',
    ],
)
def test_objects_as_models_write_them(text: str) -> None:
    """Single quotes, a trailing comma, words before and after."""
    assert parse_answer(text, Verdict) == Verdict(explanation='an "x"', score=0.5)


@pytest.mark.parametrize(
    "text",
    [
        '{"score": 3 of 5, "explanation": "x"}',
        '{"explanation": "x", "score": 50%}',
        '{"explanation": "x", "score": 1,5}',
        "{'explanation': 'x', 'score': 1, 'score': 2}",
        '{"explanation": "x", "score": 1} {"explanation": "x", "score": 2,}',
        "{the explanation is x and the score: 3}",
        "explanation: x, score: 3",
        '{"explanation": "x", "score": NaN,}',
        '{"explanation": "x", "score": "Infinity"}',
    ],
)
def test_a_repair_invents_no_number(text: str) -> None:
    """An answer of which a word would be lost is asked for again."""
    with pytest.raises(UnusableAnswerError):
        parse_answer(text, Verdict)


COMPLETE = """{"score": 0.75, "part": {"words": ["a", {"b": 1}], "c": 'x'}, "explanation": "line\none {x}"}"""


@pytest.mark.parametrize("length", range(len(COMPLETE)))
def test_an_answer_that_is_cut_off_gives_no_score(length: int) -> None:
    """Wherever it ends, also where all required fields are complete."""

    class Score(BaseModel):
        score: float

    assert parse_answer(COMPLETE, Score).score == 0.75
    with pytest.raises(UnusableAnswerError):
        parse_answer(COMPLETE[:length], Score)


def test_a_repair_is_bounded() -> None:
    """Characters that slow down the library cost seconds at most."""
    text = '{"a":"' + "{[\"'(" * 100_000

    with pytest.raises(UnusableAnswerError):
        parse_answer(text, Verdict)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{"nonce": "1a", "good": true // yes\n}',
            "at character 30, which is '/': Expecting",
        ),
        ('{"nonce": "1a", "part": {"good": true}, "why": "it is cut', "it contains no complete JSON object"),
        ('{"nonce": "1a", "good": true', "it contains no complete JSON object"),
    ],
)
def test_a_correction_names_the_character(text: str, problem: str) -> None:
    """And not a field of the part that could be read."""

    class Good(BaseModel):
        good: bool

    with pytest.raises(UnusableAnswerError, match=re.escape(problem)):
        parse_answer(text, Good, nonce=Nonce(name="nonce", value="1a"))


def test_a_model_without_a_system_role_is_asked_in_one_message() -> None:
    """The instructions come first."""
    messages = (Message(role="system", content="You judge."), Message(role="user", content="Is it good?"))

    assert without_system(messages) == (Message(role="user", content="You judge.\n\nIs it good?"),)
    assert Capabilities(("text",)).takes_system
