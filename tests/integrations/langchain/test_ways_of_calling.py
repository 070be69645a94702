"""Each call is one turn, whichever method of the chain is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import lcel

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


def drain(chain: Any) -> str:
    return "".join(chain.stream(QUESTION))


async def adrain(chain: Any) -> str:
    return "".join([chunk async for chunk in chain.astream(QUESTION)])


async def events(chain: Any) -> str:
    last = ""
    async for event in chain.astream_events(QUESTION, version="v2"):
        if event["event"] == "on_chain_end" and event["name"] == "RunnableSequence":
            last = event["data"]["output"]
    return last


CALLS: dict[str, Callable[[Any], str]] = {
    "invoke": lambda chain: chain.invoke(QUESTION),
    "ainvoke": lambda chain: asyncio.run(chain.ainvoke(QUESTION)),
    "batch": lambda chain: chain.batch([QUESTION])[0],
    "abatch": lambda chain: asyncio.run(chain.abatch([QUESTION]))[0],
    "stream": drain,
    "astream": lambda chain: asyncio.run(adrain(chain)),
    "astream_events": lambda chain: asyncio.run(events(chain)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
class TestEveryWay:
    def test_gives_the_question_the_passages_and_the_answer(self, captured: Captured, call: Any) -> None:
        """The turn has the question, the passages and the answer."""
        assert call(lcel()) == ANSWER

        turn = captured.turn
        assert turn.query == QUESTION
        assert turn.response == ANSWER
        assert [passage.id for passage in turn.passages] == ["d1", "d2"]
        assert turn.status == "ok"
        assert turn.error is None
        assert turn.framework == "langchain"

    def test_counts_the_providers_tokens(self, captured: Captured, call: Any) -> None:
        """Usage and model name come from the provider, also if the answer is streamed."""
        call(lcel())

        turn = captured.turn
        assert turn.usage is not None
        assert (turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.cache_read_tokens) == (40, 7, 12)
        assert not turn.usage.estimated
        assert turn.model == "scripted-1-2026"

    def test_times_the_parts(self, captured: Captured, call: Any) -> None:
        """Total, retrieval and generation are measured, and the parts lie within the whole."""
        call(lcel())

        timing = captured.turn.timing
        assert timing is not None
        assert timing.retrieval is not None
        assert timing.generation is not None
        assert 0 < timing.retrieval < timing.total
        assert 0 < timing.generation < timing.total


@pytest.mark.parametrize("name", ["stream", "astream", "astream_events"])
def test_a_streamed_answer_has_a_time_to_first_token(captured: Captured, name: str) -> None:
    """It is measured from the start of the turn, and is less than the total."""
    CALLS[name](lcel())

    timing = captured.turn.timing
    assert timing is not None
    assert timing.time_to_first_token is not None
    assert 0 < timing.time_to_first_token < timing.total


def test_an_answer_that_is_not_streamed_has_none(captured: Captured) -> None:
    """Without a stream there is no time to first token."""
    lcel().invoke(QUESTION)

    assert captured.turn.timing is not None
    assert captured.turn.timing.time_to_first_token is None


def test_a_batch_is_as_many_turns_as_inputs(captured: Captured) -> None:
    """Every input of a batch becomes a separate turn."""
    lcel(lambda messages: f"answer to {messages[-1].content}").batch([f"question {number}" for number in range(8)])

    assert {(turn.query, turn.response) for turn in captured.turns} == {
        (f"question {number}", f"answer to question {number}") for number in range(8)
    }


def test_tokens_that_no_provider_counted_are_estimated_and_marked(captured: Captured) -> None:
    """If the provider reports no usage, it is estimated and marked as estimated."""
    lcel(usage=None).invoke(QUESTION)

    usage = captured.turn.usage
    assert usage is not None
    assert usage.estimated
    assert usage.input_tokens > 10
    assert usage.output_tokens > 3


def test_a_model_call_names_the_requested_model_and_the_response(captured: Captured) -> None:
    """The step has the requested model, the model that answered, and the provider's id of the completion."""
    reported = {"model_name": "m-2026", "id": "chatcmpl-1"}
    lcel(lambda messages: AIMessage(ANSWER, response_metadata=reported), model_name="m").invoke(QUESTION)

    [call] = [step for step in captured.turn.steps if step.kind == "llm"]
    assert (call.request_model, call.model, call.response_id) == ("m", "m-2026", "chatcmpl-1")
