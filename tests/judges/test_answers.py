"""Answers as models write them: what is read, and what a correction says."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from rageval_hooks.judges.answers import UnusableAnswerError, parse_answer
from rageval_hooks.judges.base import Message
from rageval_hooks.judges.failures import Capabilities
from rageval_hooks.judges.prompts import Nonce, without_system


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("line one\nline two", "line one\nline two"),
        (r"the value \(x_1\)", r"the value \(x_1\)"),
        (r"see C:\docs\users", r"see C:\docs\users"),
        (r"a \"quoted\" word \u00e9", 'a "quoted" word é'),
    ],
)
def test_texts_as_models_write_them(written: str, read: str) -> None:
    """A line break, LaTeX and a path are no reason to ask again."""

    class Verdict(BaseModel):
        explanation: str

    assert parse_answer(f'{{"explanation": "{written}"}}', Verdict).explanation == read


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

    class Verdict(BaseModel):
        good: bool

    with pytest.raises(UnusableAnswerError, match=re.escape(problem)):
        parse_answer(text, Verdict, nonce=Nonce("nonce", "1a"))


def test_a_model_without_a_system_role_is_asked_in_one_message() -> None:
    """The instructions come first."""
    messages = (Message(role="system", content="You judge."), Message(role="user", content="Is it good?"))

    assert without_system(messages) == (Message(role="user", content="You judge.\n\nIs it good?"),)
    assert Capabilities(("text",)).takes_system
