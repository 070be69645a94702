"""Token counts: by tiktoken, else by characters; never a download on a caller's thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given

from rageval_hooks import Message, Step, Turn, Usage
from rageval_hooks.runtime.lazy import BackgroundValue
from rageval_hooks.text import tokens as module
from rageval_hooks.text.tokens import count_tokens, load_encoding, with_estimated_usage
from rageval_hooks.turn import ErrorInfo
from tests.text.junk import JUNK, anything


@pytest.fixture
def no_encodings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """No ranks are on this machine; the names that were loaded. What was loaded before is forgotten for the test."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    asked: list[str] = []

    def fail(name: str) -> object:
        asked.append(name)
        raise OSError("no network in tests")

    monkeypatch.setattr(tiktoken, "get_encoding", fail)
    for found in (load_encoding, module._encoding):
        found.cache_clear()
    yield asked
    for found in (load_encoding, module._encoding):
        found.cache_clear()


@pytest.mark.parametrize(
    ("model", "encoding"),
    [(None, "o200k_base"), ("gpt-4o-mini", "o200k_base"), ("gpt-4", "cl100k_base"), ("some-model", "o200k_base")],
)
def test_tokens_are_those_of_the_models_encoding(model: str | None, encoding: str) -> None:
    """A model that tiktoken does not know is counted with the current encoding."""
    texts = ["Hello, world!", "今天天气很好", ""]

    expected = sum(len(tiktoken.get_encoding(encoding).encode_ordinary(text)) for text in texts)

    assert count_tokens(texts, model, wait=True) == (expected, "tiktoken")


def test_special_tokens_in_a_text_are_text() -> None:
    """A user may write what means something to a model."""
    count, source = count_tokens(["<|endoftext|>"], wait=True)

    assert (count > 1, source) == (True, "tiktoken")


def test_a_caller_that_does_not_wait_gets_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the encoding loads: one token for four characters."""
    may_end = threading.Event()
    value = BackgroundValue("tokenizer test", lambda: (may_end.wait(30), tiktoken.get_encoding("o200k_base"))[1], 30)
    monkeypatch.setattr(module, "load_encoding", lambda model: value)

    assert count_tokens(["12345", ""]) == (2, "characters")
    may_end.set()
    for wait in (True, False):
        assert count_tokens(["12345"], wait=wait)[1] == "tiktoken"


def test_an_encoding_that_cannot_be_had_is_logged_once(
    no_encodings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """At level INFO: it says what happens instead. Nothing is looked up."""
    caplog.set_level("INFO")
    for _ in range(3):
        assert count_tokens(["12345"], wait=True) == (2, "characters")
    value = load_encoding()
    for thread in threading.enumerate():
        if thread.name == f"rageval-load-{value.role}":
            thread.join(30)

    assert no_encodings == []
    [record] = [record for record in caplog.records if "tokenizer" in record.getMessage()]
    assert record.levelname == "INFO"
    assert record.getMessage() == (
        "rageval-hooks: tokenizer o200k_base: its ranks are not on this machine. "
        "Tokens are estimated from the number of characters. [RAGEVAL-203]"
    )


def test_the_copy_of_llama_index_is_used(
    no_encodings: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """When it is installed, and the user names no folder."""
    found = []
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setattr(module, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(tiktoken, "get_encoding", lambda _: found.append(os.environ["TIKTOKEN_CACHE_DIR"]) or found)

    load_encoding().get(wait=True)

    assert [folder.endswith("tiktoken_cache") for folder in found] == [True]
    assert "TIKTOKEN_CACHE_DIR" not in os.environ


@given(anything())
def test_any_text_has_a_count(text: str) -> None:
    """Lone surrogates too."""
    count, _ = count_tokens([text], wait=True)

    assert 0 <= count <= 4 * len(text)


@pytest.mark.parametrize("name", ["one letter", "spaces", "emoji", "Chinese", "digits", "surrogates"])
def test_long_runs_are_counted(name: str) -> None:
    """tiktoken is quadratic on some of them: they are counted piece by piece."""
    count, source = count_tokens([JUNK[name](250_000)], wait=True)

    assert (count > 0, source) == (True, "tiktoken")


# ------------------------------------------------------------------------------------------- estimated usage


def step(kind: str = "llm", **fields: object) -> Step:
    return Step.model_validate({"id": "1", "kind": kind, "name": "model", "started_at": 0, "ended_at": 1, **fields})


FAILED = ErrorInfo(type="ConnectionError", message="429")
MESSAGES = (Message(role="user", content="When was the pier opened?"),)


def test_a_model_call_that_nobody_counted_is_estimated() -> None:
    """From its prompt and its output, marked as an estimate; the turn's usage is the sum."""
    counted = step(id="2", usage=Usage(input_tokens=10, output_tokens=5))
    turn = Turn(steps=(step(messages=MESSAGES, output="In 2019."), counted), usage=counted.usage)

    found = with_estimated_usage(turn, wait=True)

    read, _ = count_tokens([MESSAGES[0].content], wait=True)
    written, _ = count_tokens(["In 2019."], wait=True)
    assert found.steps[0].usage == Usage(input_tokens=read, output_tokens=written, source="tiktoken")
    assert found.steps[1] is counted
    assert found.usage == Usage(input_tokens=read + 10, output_tokens=written + 5, source="tiktoken")


def test_a_model_call_that_failed_while_it_wrote_is_estimated() -> None:
    """What it had written was paid for, and so was its prompt."""
    turn = Turn(steps=(step(messages=MESSAGES, output="In", error=FAILED),))

    assert with_estimated_usage(turn, wait=True).usage is not None


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (step("retriever", output="text"),),
        (step(usage=Usage(input_tokens=1, output_tokens=1)),),
        (step(),),
        (step(messages=MESSAGES, error=FAILED),),
    ],
    ids=["no steps", "no model call", "counted", "no texts", "failed"],
)
def test_there_may_be_nothing_to_estimate(steps: tuple[Step, ...]) -> None:
    """The turn is returned as it is."""
    turn = Turn(steps=steps)

    assert with_estimated_usage(turn) is turn
