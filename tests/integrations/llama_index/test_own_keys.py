"""Questions and answers under names that an application chose, next to other texts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step

from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import index, llm

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


@pytest.mark.parametrize(
    "output",
    [
        lambda answer, later: {"final_answer": answer, "follow_ups": later},
        lambda answer, later: {"written": answer, "title": later},
        lambda answer, later: {"status": "success", "data": {"answer": answer, "follow_ups": later}},
    ],
    ids=["follow-up questions", "a title", "an envelope"],
)
def test_question_and_answer_of_a_workflow_next_to_other_texts(captured: Captured, output: Any) -> None:
    """The model wrote a further text about the answer, and the workflow was started with several texts."""

    class Answering(Workflow):
        @step
        async def respond(self, event: StartEvent) -> StopEvent:
            [found] = await index().as_retriever(similarity_top_k=1).aretrieve("pier opened")
            answer = await llm(ANSWER).acomplete(f"{found.text}\n{event.user_message}")
            later = await llm("Who built it? How long is it?").acomplete("What next?")
            return StopEvent(result=output(str(answer), str(later)))

    async def run() -> None:
        await Answering().run(user_message=QUESTION, tone="friendly")

    asyncio.run(run())

    turn = captured.turn
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert [passage.in_prompt for passage in turn.passages] == [True]


@pytest.mark.parametrize("result", [None, "", {}, {"answer": ""}, {"status": "done", "answer": ""}, True])
def test_a_workflow_that_streams_its_answer_and_returns_none(captured: Captured, result: Any) -> None:
    """The answer went to the reader piece by piece, as events; what the model wrote is the answer."""

    class Piece(Event):
        text: str

    class Streaming(Workflow):
        @step
        async def respond(self, context: Context, event: StartEvent) -> StopEvent:
            [found] = await index().as_retriever(similarity_top_k=1).aretrieve(event.question)
            async for piece in await llm(ANSWER).astream_complete(f"{found.text}\n{event.question}"):
                context.write_event_to_stream(Piece(text=piece.delta))
            return StopEvent(result=result)

    async def run() -> str:
        handler = Streaming().run(question=QUESTION)
        text = "".join([event.text async for event in handler.stream_events() if isinstance(event, Piece)])
        assert await handler == result
        return text

    assert asyncio.run(run()) == ANSWER
    assert (captured.turn.query, captured.turn.response) == (QUESTION, ANSWER)
