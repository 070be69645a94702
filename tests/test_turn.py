"""Turns: plain data, to JSON and back without loss."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from opentelemetry.context import get_current
from pydantic import ValidationError

from rageval_hooks import Message, Passage, SpanReference, Step, Timing, Turn, Usage
from tests import strategies


def test_a_step_of_a_turn_without_a_span_has_none() -> None:
    step = Step(id="1", kind="retriever", name="search", started_at=1, ended_at=2)
    assert Turn(query="Who?", response="Ann.", steps=(step,)).step_span_id(step) is None


@settings(max_examples=150)
@given(strategies.turns)
def test_a_turn_goes_to_json_and_back(turn: Turn) -> None:
    """In UTF-8, without loss, whatever the application had put into it."""
    assert Turn.model_validate_json(turn.model_dump_json().encode()) == turn


@given(strategies.turns)
def test_a_turn_goes_to_plain_python_and_back(turn: Turn) -> None:
    """For those who have another JSON library."""
    assert Turn.model_validate(turn.model_dump(mode="json")) == turn


UNSTORABLE, CLEAN = ("\ud800", "\0"), "\ufffd"


@pytest.mark.parametrize("bad", UNSTORABLE)
@pytest.mark.parametrize(
    "field",
    ["id", "query", "response", "reference", "model", "name", "framework", "session_id", "user_id"],
)
def test_no_text_of_a_turn_can_break_an_exporter(field: str, bad: str) -> None:
    """No server stores a lone surrogate or U+0000: they are replaced, wherever the application has put them."""
    turn = Turn.model_validate({field: bad})

    assert getattr(turn, field) == CLEAN


@pytest.mark.parametrize("bad", UNSTORABLE)
def test_nor_can_a_text_inside_it(bad: str) -> None:
    """Passages, messages, steps, errors, metadata."""
    turn = Turn.model_validate(
        {
            "passages": [{"text": bad, "id": bad, "metadata": {bad: [bad]}}],
            "prompt": [{"role": bad, "content": bad}],
            "retrieval_queries": [bad],
            "steps": [{"id": bad, "kind": "llm", "name": bad, "started_at": 0, "ended_at": 0, "input": bad}],
            "error": {"type": bad, "message": bad},
            "metadata": {"user": bad},
        }
    )

    assert bad not in str(turn)
    assert str(turn).count(CLEAN) == 13
    turn.model_dump_json().encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("kind", "fields", "field"),
    [
        (Passage, {"text": "a"}, "score"),
        (Passage, {"text": "a"}, "prompt_share"),
        (Timing, {"started_at": 0, "ended_at": 0}, "retrieval"),
        (Timing, {"started_at": 0, "ended_at": 0}, "generation"),
        (Timing, {"started_at": 0, "ended_at": 0}, "time_to_first_token"),
        (Step, {"id": "1", "kind": "llm", "name": "a", "started_at": 0, "ended_at": 0}, "time_to_first_token"),
    ],
)
def test_numbers_that_json_has_not_are_refused(
    kind: type[Any], fields: dict[str, Any], field: str, value: float
) -> None:
    """NaN and infinities would come back as null."""
    with pytest.raises(ValidationError, match=field):
        kind(**fields, **{field: value})


@pytest.mark.parametrize(
    "fields",
    [
        {"trace_id": "0" * 31, "span_id": "0" * 16},
        {"trace_id": "0" * 32, "span_id": "0" * 15},
        {"trace_id": "A" * 32, "span_id": "0" * 16},
        {"trace_id": "0" * 32, "span_id": "0" * 16, "flags": 256},
    ],
)
def test_ids_of_spans_are_hex_digits(fields: dict[str, Any]) -> None:
    """Lower case, 32 and 16 of them."""
    with pytest.raises(ValidationError):
        SpanReference(**fields)


@pytest.mark.parametrize(("flags", "sampled"), [(0, False), (1, True), (2, False), (3, True)])
def test_a_trace_is_sampled_by_its_first_flag(flags: int, sampled: bool) -> None:
    """W3C trace context."""
    assert SpanReference(trace_id="0" * 32, span_id="0" * 16, flags=flags).sampled is sampled


@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ([], None),
        ([None, None], None),
        ([Usage(input_tokens=1, output_tokens=2), None], Usage(input_tokens=1, output_tokens=2)),
        (
            [
                Usage(input_tokens=1, output_tokens=2, cache_read_tokens=1),
                Usage(input_tokens=10, output_tokens=20, source="tiktoken"),
            ],
            Usage(input_tokens=11, output_tokens=22, cache_read_tokens=1, source="tiktoken"),
        ),
        (
            [
                Usage(input_tokens=1, output_tokens=1, source="characters"),
                Usage(input_tokens=1, output_tokens=1, source="tiktoken"),
            ],
            Usage(input_tokens=2, output_tokens=2, source="characters"),
        ),
    ],
)
def test_usage_adds_up(parts: list[Usage | None], total: Usage | None) -> None:
    """A sum is as exact as its least exact part."""
    assert Usage.sum(parts) == total


def test_only_the_providers_usage_is_no_estimate() -> None:
    """Everything else is marked."""
    assert [Usage(input_tokens=1, output_tokens=1, source=source).estimated for source in ("provider", "tiktoken")] == [
        False,
        True,
    ]


@pytest.mark.parametrize(("started", "ended", "total"), [(0, 1_500_000_000, 1.5), (5, 5, 0.0), (10, 5, 0.0)])
def test_a_turns_time_is_never_negative(started: int, ended: int, total: float) -> None:
    """Clocks are set back."""
    assert Timing(started_at=started, ended_at=ended).total == total


def step(kind: str) -> Step:
    return Step.model_validate({"id": "1", "kind": kind, "name": "a", "started_at": 0, "ended_at": 0})


@pytest.mark.parametrize(
    ("turn", "retrieval", "rag"),
    [
        (Turn(query="q", response="a"), False, False),
        (Turn(response="a", passages=(Passage(text="p"),)), True, True),
        (Turn(response="a", steps=(step("retriever"), step("llm"))), True, True),
        (Turn(steps=(step("retriever"),)), True, False),
        (Turn(steps=(step("retriever"), step("reranker"), step("embedding"))), True, False),
        (Turn(steps=(step("tool"), step("retriever"))), True, False),
        (Turn(steps=(step("retriever"), step("llm"))), True, True),
        (Turn(steps=(step("retriever"),), status="error"), True, True),
        (Turn(response="a", steps=(step("llm"), step("tool"))), False, False),
        (Turn(passages=(Passage(text="p"),)), True, True),
        (Turn(steps=(step("chain"), step("retriever"), step("prompt"), step("parser"))), True, False),
        (Turn(steps=(step("chain"), step("retriever"), step("llm"))), True, True),
        (Turn(steps=(step("chain"), step("retriever"), step("agent"))), True, True),
    ],
)
def test_a_rag_turn_has_retrieval_and_generation(turn: Turn, retrieval: bool, rag: bool) -> None:
    """A retriever that runs alone has retrieval, but generates no answer, so it is not RAG."""
    assert (turn.has_retrieval, turn.is_rag) == (retrieval, rag)


def test_the_context_of_the_process_is_no_data() -> None:
    """A reference that went through JSON is equal to the one of the process that captured the turn."""
    reference = SpanReference(trace_id="1" * 32, span_id="2" * 16)
    live = reference.model_copy().within(get_current())

    assert live == reference
    assert (live.model_copy().context, reference.context) == (get_current(), None)
    assert live != reference.model_copy(update={"span_id": "3" * 16})


def test_the_texts_of_a_turn() -> None:
    """What metrics read."""
    turn = Turn(
        query="q",
        response="a",
        passages=(Passage(text="1"), Passage(text="2")),
        prompt=(Message(role="user", content="x"),),
    )

    assert list(turn.texts()) == ["q", "a", "1", "2"]


@pytest.mark.parametrize(
    ("in_prompt", "share", "seen"),
    [
        (None, None, True),
        (True, 1.0, True),
        (False, None, False),
        (False, 0.0, False),
        (False, 0.2, False),
        (False, 0.8, True),
    ],
)
def test_the_prompt_passages_are_those_that_the_model_saw(
    in_prompt: bool | None, share: float | None, seen: bool
) -> None:
    """A passage counts as seen if no prompt is known, and if the prompt has half of it or more."""
    passage = Passage(text="The pier was opened in 2019.", in_prompt=in_prompt, prompt_share=share)

    assert Turn(passages=(passage,)).prompt_passages == ((passage,) if seen else ())
