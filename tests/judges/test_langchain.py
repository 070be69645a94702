"""LangChain's chat models as judges."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from openai import ContentFilterFinishReasonError
from pydantic import ConfigDict

from rageval_hooks.errors import (
    ConfigurationError,
    JudgeAnswerError,
    JudgeError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeRejectedError,
    JudgeTooLargeError,
    JudgeTruncatedError,
    JudgeUnavailableError,
    MissingDependencyError,
)
from rageval_hooks.judges.langchain import LangChainJudge
from rageval_hooks.judges.prices import price_usd
from rageval_hooks.judges.resolve import resolve_judge
from rageval_hooks.turn import Usage
from tests.judges.helpers import FIXED_NONCE, GOOD, KEY, PROMPT, Grade, StillClock, ask, failure
from tests.judges.server import MODEL, AnyReply, JudgeServer, answer, error, hang_up, picky, silent

SIGNED = json.dumps({"nonce": FIXED_NONCE, **GOOD})

pytestmark = pytest.mark.usefixtures("fixed_nonce")


class Scripted(BaseChatModel):
    """A chat model with nothing but the one method that each must have."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    answer: Callable[[list[BaseMessage]], AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answer(messages))])


class WithTools(Scripted):
    """One that can be bound to tools."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools)


def chat(server: JudgeServer, **options: Any) -> ChatOpenAI:
    """Return a model that asks the server."""
    return ChatOpenAI(model="judge-model", base_url=server.url, api_key=KEY, max_retries=0, **options)


def test_a_chat_model_answers_by_its_own_structured_output(server: JudgeServer) -> None:
    """The schema goes with the request, the prompt as it is; usage, model and id are reported."""
    server.then(answer(GOOD))
    judge = resolve_judge(chat(server))
    assert isinstance(judge, LangChainJudge)
    judgement = ask(judge)
    assert judgement.value == Grade(grade=3, why="exact")
    assert judgement.usage == Usage(input_tokens=100, output_tokens=20, cache_read_tokens=40)
    assert (judgement.model, judgement.response_id, judgement.mode) == (MODEL, "chatcmpl-1", "structured")
    [request] = server.requests
    assert request.body["messages"][:-1] == [{"role": role, "content": content} for role, content in PROMPT[:-1]]
    form = request.body["response_format"]["json_schema"]
    assert (form["name"], form["strict"]) == ("Grade", True)
    assert form["schema"]["required"] == ["nonce", "grade", "why"]
    assert str(judge) == "langchain:judge-model"


def test_without_structured_output_at_the_server_it_asks_in_the_prompt(server: JudgeServer) -> None:
    """Learned once."""
    server.otherwise(picky(answer(GOOD), formats={"json_schema"}))
    judge = LangChainJudge(chat(server))
    with pytest.warns(UserWarning, match="structured output"):  # langchain-openai's own advice
        assert ask(judge).mode == "text"
    assert ask(judge).attempts == 1
    assert '"maximum":3' in server.requests[-1].prompt


def test_a_model_without_structured_output_is_asked_in_the_prompt() -> None:
    """Its answer is parsed and repaired as any other."""
    answers = iter(["I cannot decide.", f'So be it: {{"nonce": "{FIXED_NONCE}", "grade": 2}}'])
    seen: list[list[BaseMessage]] = []

    def reply(messages: list[BaseMessage]) -> AIMessage:
        seen.append(messages)
        return AIMessage(next(answers))

    judgement = ask(LangChainJudge(Scripted(answer=reply)))
    assert (judgement.value.grade, judgement.mode, judgement.repaired) == (2, "text", True)
    assert judgement.usage is None
    assert seen[1][-2].content == "I cannot decide."


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", tool_calls=[{"name": "Grade", "args": {"nonce": FIXED_NONCE, **GOOD}, "id": "1"}]),
        AIMessage("", invalid_tool_calls=[{"name": "Grade", "args": f"{SIGNED} ", "id": "1", "error": ""}]),
        AIMessage(SIGNED),
        AIMessage([{"type": "text", "text": SIGNED[:30]}, {"type": "text", "text": SIGNED[30:]}]),
    ],
    ids=["tool", "tool with words", "text", "text in blocks"],
)
def test_answers_in_every_place_where_models_put_them(message: AIMessage) -> None:
    """The arguments of the tool that stands for the answer, or text."""
    assert ask(LangChainJudge(WithTools(answer=lambda _: message))).value == Grade(**GOOD)


def test_braces_in_a_prompt_are_text() -> None:
    """Nothing of the prompt is a template."""
    seen: list[str] = []

    def reply(messages: list[BaseMessage]) -> AIMessage:
        seen.append(str(messages[0].content))
        return AIMessage(SIGNED)

    ask(LangChainJudge(Scripted(answer=reply)), [("user", "{question} {0} {{x}}")])
    assert seen[0].startswith("{question} {0} {{x}}")


def test_a_runnable_around_a_model_serves_too(server: JudgeServer) -> None:
    """A model with fallbacks, say: asked in the prompt."""
    server.then(error(500), answer(GOOD))
    judgement = ask(LangChainJudge(chat(server).with_fallbacks([chat(server)])))
    assert (judgement.value.grade, judgement.mode) == (3, "text")


def test_a_text_model_serves_too() -> None:
    """It answers with a string."""
    assert ask(LangChainJudge(FakeListLLM(responses=[SIGNED]))).value.grade == 3


@pytest.mark.parametrize(
    ("reply", "kind", "message"),
    [
        (
            error(401, f"Incorrect API key provided: {KEY}"),
            JudgeRejectedError,
            "HTTP 401: the API key was not accepted",
        ),
        (error(404, "no model"), JudgeRejectedError, "no such model or URL at judge-model at http://127"),
        (error(400, "x", code="context_length_exceeded"), JudgeTooLargeError, "question is too large"),
        (error(429, "slow"), JudgeRateLimitedError, "too many requests"),
        (error(500, "down"), JudgeUnavailableError, "HTTP 500"),
        (hang_up(), JudgeUnavailableError, "no connection"),
        (silent(), JudgeUnavailableError, "within 0.3 s"),
        (answer(None, refusal="I will not."), JudgeRefusedError, "refused to answer"),
        (answer('{"grade":', finish_reason="length"), JudgeTruncatedError, "cut off"),
        (answer('{"grade": 9}'), JudgeAnswerError, "less than or equal to 3"),
        (answer("x" * 1_000_000), JudgeTooLargeError, "larger than"),
    ],
)
def test_failures_are_the_same_as_those_of_other_judges(
    server: JudgeServer,
    clock: StillClock,
    caplog: pytest.LogCaptureFixture,
    reply: AnyReply,
    kind: type[JudgeError],
    message: str,
) -> None:
    """By what the framework's exceptions have in common; without the key, and without a chain."""
    server.otherwise(reply)
    timeout = 0.3 if "within 0.3 s" in message else 30.0
    judge = LangChainJudge(chat(server), clock=clock, timeout=timeout, max_retries=1)
    found = failure(judge, kind)
    assert message in found.message
    assert (found.__cause__, found.__context__) == (None, None)
    assert KEY not in f"{found!r} {found.details} {caplog.text} {judge!r} {judge.stats()}"


def test_a_bug_in_a_model_is_a_failure_with_its_name() -> None:
    """Not tried again."""
    calls: list[int] = []

    def reply(messages: list[BaseMessage]) -> AIMessage:
        calls.append(1)
        raise ZeroDivisionError("division by zero")

    found = failure(LangChainJudge(Scripted(answer=reply)), JudgeUnavailableError)
    assert found.message == "ZeroDivisionError: division by zero"
    assert len(calls) == 1


def _too_large_for_a_schema() -> Exception:
    try:
        Grade(grade=9)
    except ValueError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (ContentFilterFinishReasonError(), JudgeRefusedError, "refused to answer"),
        (OutputParserException("a quoted answer"), JudgeAnswerError, "does not fit the schema (OutputParserException)"),
        (_too_large_for_a_schema(), JudgeAnswerError, "does not fit the schema (ValidationError)"),
    ],
    ids=["filtered", "not parsed", "not valid"],
)
def test_failures_that_a_model_raises(raised: Exception, kind: type[JudgeError], message: str) -> None:
    """By the exceptions of its client library, without the answer that they quote."""

    def reply(messages: list[BaseMessage]) -> AIMessage:
        raise raised

    found = failure(LangChainJudge(Scripted(answer=reply), max_retries=0), kind)
    assert message in found.message
    assert "quoted" not in found.message


def test_a_model_that_cannot_be_bound_to_the_schema() -> None:
    """It is asked in the prompt."""

    class Unbound(WithTools):
        def with_structured_output(self, *args: Any, **kwargs: Any) -> Any:
            raise TypeError("no schema of this kind")

    judgement = ask(LangChainJudge(Unbound(answer=lambda _: AIMessage(SIGNED))))
    assert (judgement.value, judgement.mode) == (Grade(**GOOD), "text")


def test_a_blocking_model_does_not_block_the_loop() -> None:
    """It runs in a thread; others go on meanwhile."""
    gate = threading.Event()

    def reply(messages: list[BaseMessage]) -> AIMessage:
        assert gate.wait(10)
        return AIMessage(SIGNED)

    async def main() -> int:
        question = asyncio.create_task(LangChainJudge(Scripted(answer=reply)).complete(PROMPT, Grade))
        await asyncio.sleep(0)
        gate.set()
        return (await question).value.grade

    assert asyncio.run(main()) == 3


def test_callbacks_of_the_model_do_not_see_the_judges_calls() -> None:
    """They are the application's; its own calls are seen as before."""

    class Seen(BaseCallbackHandler):
        runs = 0

        def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
            self.runs += 1

    seen = Seen()
    model = Scripted(answer=lambda _: AIMessage(SIGNED), callbacks=[seen])
    ask(LangChainJudge(model))
    assert seen.runs == 0
    model.invoke("hello")
    assert seen.runs == 1


def test_answers_are_cached_by_the_models_parameters(server: JudgeServer, tmp_path: Path) -> None:
    """Another temperature is another judge."""
    server.otherwise(answer(GOOD))
    path = tmp_path / "answers.sqlite"
    ask(LangChainJudge(chat(server, temperature=0.0), cache=path))
    assert ask(LangChainJudge(chat(server, temperature=0.0), cache=path)).cached
    assert not ask(LangChainJudge(chat(server, temperature=1.0), cache=path)).cached
    assert KEY.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


class OfOpenAI(Scripted):
    """A model that names its provider, as LangChain's own do."""

    model_name: str = "gpt-4o"

    def _get_ls_params(self, *args: Any, **kwargs: Any) -> Any:
        return {"ls_provider": "openai"}


def test_an_answer_has_the_price_of_its_provider() -> None:
    """A budget in money counts it."""
    usage = UsageMetadata(input_tokens=1000, output_tokens=100, total_tokens=1100)
    judge = LangChainJudge(OfOpenAI(answer=lambda _: AIMessage(SIGNED, usage_metadata=usage)))

    assert judge.has_known_price
    assert ask(judge).cost == price_usd(Usage(input_tokens=1000, output_tokens=100), "gpt-4o", provider="openai")


@pytest.mark.parametrize("given", ["gpt", object(), None])
def test_what_is_no_model_is_refused(given: Any) -> None:
    """Before it is asked anything."""
    with pytest.raises(ConfigurationError, match="LangChain"):
        LangChainJudge(given)


def test_wrong_options_are_refused() -> None:
    """As at every judge."""
    with pytest.raises(ConfigurationError, match="unknown judge option 'temperature'"):
        resolve_judge(RunnableLambda(str), temperature=1)
    with pytest.raises(ConfigurationError, match="structured, text"):
        LangChainJudge(RunnableLambda(str), structured="json_schema")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter can be imported without it, but not used."""
    monkeypatch.setitem(__import__("sys").modules, "langchain_core.runnables", None)
    with pytest.raises(MissingDependencyError, match=r"rageval-hooks\[langchain\]"):
        LangChainJudge(RunnableLambda(str))


def test_a_mistake_of_the_model_is_its_own() -> None:
    """Asked for text, there is no other way to ask."""

    def fail(_: Any) -> Any:
        raise TypeError("unsupported operand")

    found = failure(LangChainJudge(RunnableLambda(fail), structured="text", max_retries=0), JudgeUnavailableError)
    assert found.message == "TypeError: unsupported operand"
