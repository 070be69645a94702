"""LlamaIndex's LLMs as judges."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM, MockLLM
from pydantic import RootModel

from rageval_hooks.errors import ConfigurationError, JudgeAnswerError, JudgeUnavailableError
from rageval_hooks.judges.llama_index import LlamaIndexJudge
from rageval_hooks.judges.resolve import resolve_judge
from rageval_hooks.turn import Usage
from tests.integrations.llama_index.test_usage import ANTHROPIC, GEMINI
from tests.judges.helpers import GOOD, Grade, ask, failure
from tests.judges.server import nonce_of


def judge_of(*, repeats: bool, seen: list[Any] | None = None) -> LlamaIndexJudge:
    """Return a judge that answers by a tool call, with or without the nonce of the question."""

    def generate(messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
        if seen is not None:
            seen.extend(kwargs["tools"])
        # The last one asked for: a correction asks for it again.
        nonce = nonce_of("\n".join(str(message.content) for message in messages))
        arguments = {"nonce": nonce, **GOOD} if repeats else GOOD
        return ChatMessage(
            role="assistant", blocks=[ToolCallBlock(tool_name="Grade", tool_kwargs=arguments, tool_call_id="1")]
        )

    return LlamaIndexJudge(MockFunctionCallingLLM(response_generator=generate, is_chat_model=True))


def test_the_tool_has_the_nonce_as_its_first_argument() -> None:
    """The answer is the other arguments."""
    tools: list[Any] = []
    judgement = ask(judge_of(repeats=True, seen=tools))

    assert (judgement.value, judgement.mode) == (Grade(**GOOD), "structured")
    schema = tools[0].metadata.get_parameters_dict()
    assert list(schema["properties"]) == ["nonce", "grade", "why"]


@pytest.mark.parametrize(("name", "shown"), [("small", "small"), ("", "Named")])
def test_a_judge_has_the_name_of_its_model(name: str, shown: str) -> None:
    """Or that of its class if the model has none."""

    class Named(MockFunctionCallingLLM):
        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(model_name=name)

    assert LlamaIndexJudge(Named()).model == shown


def test_only_an_llm_of_llama_index_is_accepted() -> None:
    """The error names what was given."""
    with pytest.raises(ConfigurationError, match="must be a LlamaIndex LLM, not dict"):
        LlamaIndexJudge({})  # type: ignore[arg-type]


def test_a_tool_call_without_the_nonce_is_no_answer() -> None:
    """Its arguments may be a quotation."""
    found = failure(judge_of(repeats=False), JudgeAnswerError)
    assert "nonce: Field required" in found.message


@pytest.mark.parametrize(
    ("raw", "apart"),
    [({"usage": ANTHROPIC}, {"cache_write_tokens": 18}), ({"usage_metadata": GEMINI}, {"reasoning_tokens": 3})],
    ids=["anthropic", "gemini"],
)
def test_tokens_that_a_provider_counts_apart_are_paid_for(raw: dict[str, Any], apart: dict[str, int]) -> None:
    """Those from and to the cache and those of thoughts are part of the usage, and so of the cost."""

    class Reporting(MockFunctionCallingLLM):
        def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
            nonce = nonce_of("\n".join(str(message.content) for message in messages))
            text = json.dumps({"nonce": nonce, **GOOD})
            return ChatResponse(message=ChatMessage(role="assistant", content=text), raw=raw)

    judgement = ask(LlamaIndexJudge(Reporting(), structured="text", price_per_1k=1.0))
    assert judgement.usage == Usage(input_tokens=40, output_tokens=7, cache_read_tokens=12, **apart)
    assert judgement.cost == pytest.approx(0.047)


def _answer(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
    nonce = nonce_of("\n".join(str(message.content) for message in messages))
    return ChatMessage(role="assistant", content=json.dumps({"nonce": nonce, **GOOD}))


class Plain(MockLLM):
    """An LLM that calls no tools."""

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return ChatResponse(message=_answer(messages))


class BrokenCalls(MockFunctionCallingLLM):
    """An LLM whose tool calls have arguments that are not JSON, next to an answer in text."""

    def get_tool_calls_from_response(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("the arguments are not JSON")


@pytest.mark.parametrize(
    ("llm", "mode"),
    [
        (Plain(), "text"),
        (BrokenCalls(response_generator=_answer, is_chat_model=True), "structured"),
    ],
    ids=["no tools", "broken calls"],
)
def test_an_llm_that_does_not_call_the_tool(llm: Any, mode: str) -> None:
    """The answer is its text."""
    judgement = ask(resolve_judge(llm))
    assert (judgement.value, judgement.mode) == (Grade(**GOOD), mode)


def test_a_schema_without_named_fields_is_asked_for_as_text() -> None:
    """A tool has named arguments, so it cannot enforce such a schema."""

    class Wrapped(RootModel[Grade]):
        pass

    judgement = ask(resolve_judge(BrokenCalls(response_generator=_answer, is_chat_model=True)), schema=Wrapped)
    assert (judgement.value.root, judgement.mode) == (Grade(**GOOD), "text")


class KeptKey(MockFunctionCallingLLM):
    """An LLM with a key in a plain string, as most of LlamaIndex's have it."""

    api_key: str = ""

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        raise RuntimeError(f"Incorrect API key provided: {self.api_key}")


def test_the_key_of_an_llm_is_in_no_message(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the failure nor in the log, whatever it looks like."""
    judge = LlamaIndexJudge(KeptKey(api_key="plain-words-only"), structured="text", max_retries=0)
    found = failure(judge, JudgeUnavailableError)
    assert found.message == "RuntimeError: Incorrect API key provided: ***"
    assert "plain-words-only" not in caplog.text
