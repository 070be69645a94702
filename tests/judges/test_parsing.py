"""From a model's text to a checked object."""

from __future__ import annotations

import json
import time
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from rageval_hooks.judges.answers import UnusableAnswerError, parse_answer
from tests.judges.helpers import Grade


@pytest.mark.parametrize(
    "text",
    [
        '{"grade": 2, "why": "x"}',
        '  \n{"grade": 2, "why": "x"}\n ',
        '\ufeff{"grade": 2, "why": "x"}',
        '```json\n{"grade": 2, "why": "x"}\n```',
        '```\n{"grade": 2, "why": "x"}\n```',
        'The grade:\n{"grade": 2, "why": "x"}',
        '{"grade": 2, "why": "x"}\nLet me know {if} you need more.',
        'In {braces}: {"grade": 2, "why": "x"}',
        '<think>{"grade": 1}</think>{"grade": 2, "why": "x"}',
        '{"grade": 2, "why": "x"} {"grade": 2, "why": "x"}',
        '{"grade": "2", "why": "x", "confidence": 0.9}',
        '{"example": 1} {"grade": 2, "why": "x"}',
    ],
)
def test_the_one_object_that_fits_is_found(text: str) -> None:
    """In a fence, among words, behind thoughts, twice the same, with fields too many."""
    assert parse_answer(text, Grade) == Grade(grade=2, why="x")


@pytest.mark.parametrize(
    ("text", "problem", "is_json"),
    [
        ("", "it is empty", False),
        ("<think>hm</think>", "it is empty", False),
        ("three", "it contains no complete JSON object", False),
        ('{"grade": 2', "it contains no complete JSON object", False),
        ('{"answer": {"grade": 2}', "it contains no complete JSON object", False),
        ('[{"x": 1}]', "grade: Field required", True),
        ('{"answer": {"grade": 2}}', "grade: Field required", True),
        ('{"grade": 4}', "grade: Input should be less than or equal to 3", True),
        ('{"grade": 2.5}', "grade: Input should be a valid integer, got a number with a fractional part", True),
        ('{"grade": 1} {"grade": 2}', "it contains several different answers", True),
        ('{"grade": 1, "grade": 2}', "a key occurs twice", True),
        ('{"grade": Infinity}', "a number is not finite", True),
        ('{"grade": 1e400}', "a number is not finite", True),
        ('{"x": 1} ' * 1000 + '{"grade": 2}', "it contains too many JSON objects", True),
        # Too long for a repair.
        (
            '{grade: 2, why: "' + "x" * 8000 + '"}',
            "its JSON object is broken at character 2, which is 'g': Expecting property name enclosed in double quotes",
            False,
        ),
    ],
)
def test_what_does_not_fit_says_why(text: str, problem: str, is_json: bool) -> None:
    """Without quoting the answer; a quoted object that a judged text smuggled in makes two, and none is taken."""
    with pytest.raises(UnusableAnswerError) as caught:
        parse_answer(text, Grade)
    assert (str(caught.value), caught.value.is_json) == (problem, is_json)


def test_many_problems_are_summed_up() -> None:
    """A long answer with the same fault everywhere is a short message."""

    class Many(BaseModel):
        grades: list[Grade]

    with pytest.raises(UnusableAnswerError, match=r"and 92 more$"):
        parse_answer(json.dumps({"grades": [{"grade": 9}] * 100}), Many)


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ({"count": True}, "count"),
        ({"share": False}, "share"),
        ({"grades": [{"grade": 1}, {"grade": True}]}, "grades.1.grade"),
        ({"by_name": {"a": True}}, "by_name.…"),
        ({"renamed": True}, "renamed"),
        ({"maybe": True}, "maybe"),
    ],
)
def test_a_truth_value_is_no_number(answer: dict[str, Any], place: str) -> None:
    """Wherever the schema has a number."""

    class Counts(BaseModel):
        count: int = 0
        share: float = 0.0
        grades: list[Grade] = []
        by_name: dict[str, float] = {}
        other: int = Field(default=0, validation_alias="renamed")
        maybe: int | None = None

    with pytest.raises(UnusableAnswerError, match=f"^{place}: Input should be a valid"):
        parse_answer(json.dumps(answer), Counts)


def test_a_boolean_is_accepted_for_a_boolean_field() -> None:
    """Also where a number could stand too."""

    class Free(BaseModel):
        sure: bool
        either: bool | int
        words: Any

    assert parse_answer('{"sure": true, "either": true, "words": [true]}', Free).either is True


@pytest.mark.parametrize(
    "text",
    [
        '{"grade": 2, "why": "x"}',
        ' ```json\n{"grade": 2, "why": "x"}\n``` ',
        '<think>{"grade": 1} or so</think> {"grade": 2, "why": "x"}',
        '{"grade": 1, "grade": 0} hm</think>{"grade": 2, "why": "x"}',
        '{"grade": 2, "why": "x"}\n{"why": "x", "grade": 2}',
        '{"grade": 2, "why": "x"}</s>',
        '<|im_start|>assistant\n{"grade": 2, "why": "x"}<|im_end|>',
        '{"grade": 2, "why": "x"}<｜end▁of▁sentence｜>',
        '<|start|>assistant<|channel|>final <|constrain|>json<|message|>{"grade": 2, "why": "x"}<|return|>',
        'json\n{"grade": 2, "why": "x"}',
        '**Answer:** {"grade": 2, "why": "x"}',
        '**Final answer:**\n```json\n{"grade": 2, "why": "x"}\n```<end_of_turn>',
    ],
)
def test_an_answer_with_remains_of_its_format(text: str) -> None:
    """A fence, thoughts, special tokens, a label and a repeated object."""
    assert parse_answer(text, Grade) == Grade(grade=2, why="x")


def test_problems_do_not_quote_the_answer() -> None:
    """Messages are shown where content is hidden, so they quote neither keys nor values."""

    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    class Words(BaseModel):
        counts: dict[str, int] = {}
        pet: Cat | Dog | None = Field(default=None, discriminator="kind")

    for answer in ({"counts": {"Mr Smith": "many"}}, {"pet": {"kind": "Mr Smith"}}):
        with pytest.raises(UnusableAnswerError) as caught:
            parse_answer(json.dumps(answer), Words)
        assert "Smith" not in str(caught.value)
        assert str(caught.value).startswith(("counts.…: Input should be a valid integer", "pet: "))


@pytest.mark.parametrize(
    "text",
    [
        "<think>" * 70_000,
        "<think>{}" * 55_000,
        "</think>{" * 55_000,
        '</think>{"a":"<think>"}' * 20_000,
        "{" * 500_000,
        '{"a":' * 100_000,
        '{"a": 1 ' * 60_000,
        "[" * 500_000,
        '{"grade": ' + "1" * 500_000 + "}",
        '{"a":[' * 80_000,
    ],
    ids=[
        "tags",
        "tags and objects",
        "tags and braces",
        "quoted tags",
        "braces",
        "nested",
        "broken",
        "brackets",
        "digits",
        "both",
    ],
)
def test_a_hostile_text_takes_no_time(text: str) -> None:
    """Half a megabyte of anything is read once."""
    started = time.thread_time()  # not wall-clock time: other processes may be busy
    with pytest.raises(UnusableAnswerError):
        parse_answer(text, Grade)
    assert time.thread_time() - started < 2


@given(
    st.builds(Grade, grade=st.integers(0, 3), why=st.text(st.characters(exclude_categories=["Cs"]))),
    st.text(st.characters(exclude_characters="{")),
    st.text(st.characters(exclude_characters="{")),
)
def test_any_answer_is_found_among_any_words(grade: Grade, before: str, after: str) -> None:
    """Words without an opening brace never hide it."""
    assert parse_answer(f"{before}\n{grade.model_dump_json()}\n{after}", Grade) == grade


@given(st.text())
def test_any_text_is_an_answer_or_unusable(text: str) -> None:
    """Nothing else is raised."""

    class Anything(BaseModel):
        grade: int = Field(ge=0)

    try:
        parse_answer(text, Anything)
    except UnusableAnswerError as error:
        assert str(error)  # noqa: PT017 - it may be raised, and then says why


def test_a_broken_object_that_is_nested_too_deeply_is_not_repaired() -> None:
    """The repair would end in an error of its own."""
    with pytest.raises(UnusableAnswerError, match="broken"):
        parse_answer("{grade: 2, why: " + "[" * 3900 + "]" * 3900 + "}", Grade)


def test_an_answer_of_any_depth_is_unusable_and_not_an_error() -> None:
    """Also of a depth that one reader takes and the next one does not."""
    for depth in range(900, 1100):
        with pytest.raises(UnusableAnswerError):
            parse_answer('{"grade": 2, "why": "x", "more": ' + "[" * depth + "]" * depth + "}", Grade)
