"""One run of an agent or a workflow is one turn, whatever its steps and tools do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool, QueryEngineTool, RetrieverTool, ToolOutput
from llama_index.core.workflow import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from pydantic import BaseModel

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Step, Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import FACTS, OutOfOrderError, index, llm

# workflows looks for its steps with inspect.getmembers, which touches what pydantic has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step"),  # by llama-index's own agents
]

QUESTION = "When was the pier opened?"
ANSWER = "The pier was opened in 2019."
SEARCHED = "pier opening year"


def calls_then(answer: str, *names: str, **arguments: Any) -> Any:
    """Return a model that asks for tools first, and answers when it has their outputs."""

    def script(messages: Sequence[ChatMessage]) -> Any:
        if any(message.role == MessageRole.TOOL for message in messages):
            return answer
        return [
            ToolSelection(tool_id=name, tool_name=name, tool_kwargs=arguments or {"input": SEARCHED}) for name in names
        ]

    return llm(script)


def query_tool(**options: Any) -> QueryEngineTool:
    engine = index().as_query_engine(llm=llm("It was 2019."), similarity_top_k=2, **options)
    return QueryEngineTool.from_defaults(engine, name="search", description="facts about the harbour")


def retriever_tool() -> RetrieverTool:
    return RetrieverTool.from_defaults(index().as_retriever(similarity_top_k=2), name="find", description="facts")


def run(agent: Any, **inputs: Any) -> Any:
    async def main() -> Any:
        return await agent.run(**(inputs or {"user_msg": QUESTION}))

    return asyncio.run(main())


def of_kind(turn: Turn, kind: str) -> list[Step]:
    return [step for step in turn.steps if step.kind == kind]


def react(messages: Sequence[ChatMessage]) -> str:
    if any("Observation: " in str(message.content) for message in messages[1:]):
        return f"Thought: I can answer without using any more tools.\nAnswer: {ANSWER}"
    return f'Thought: I need a tool.\nAction: search\nAction Input: {{"input": "{SEARCHED}"}}'


@pytest.mark.parametrize("streaming", [False, True], ids=["achat", "astream_chat"])
@pytest.mark.parametrize("kind", ["function", "react"])
def test_an_agent_with_a_query_engine(captured: Captured, kind: str, streaming: bool) -> None:
    """The message is the query, the tool's input a retrieval query, and the engine's context the turn's."""
    model = calls_then(ANSWER, "search") if kind == "function" else llm(react)
    agent_class = FunctionAgent if kind == "function" else ReActAgent
    run(agent_class(tools=[query_tool()], llm=model, streaming=streaming))

    turn = captured.turn
    assert turn.name == agent_class.__name__
    assert turn.status == "ok"
    assert turn.query == QUESTION
    assert turn.response == ANSWER
    assert turn.retrieval_queries == (SEARCHED,)
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("d1", True), ("d2", True)]
    assert [step.kind for step in turn.steps] == ["llm", "tool", "retriever", "llm", "llm"]
    [tool] = of_kind(turn, "tool")
    assert (tool.name, tool.input, tool.output) == ("search", SEARCHED, "It was 2019.")
    assert [step.parent_id for step in turn.steps] == [None, None, tool.id, tool.id, None]
    assert "It was 2019." in turn.prompt[-1].content
    assert turn.usage is not None
    assert turn.usage.input_tokens == 120


def test_an_agent_with_a_retriever(captured: Captured) -> None:
    """The prompt has the passages as the tool's output."""
    run(FunctionAgent(tools=[retriever_tool()], llm=calls_then(ANSWER, "find")))

    turn = captured.turn
    assert turn.response == ANSWER
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("d1", True), ("d2", True)]
    assert [step.kind for step in turn.steps] == ["llm", "tool", "retriever", "llm"]
    assert of_kind(turn, "llm")[0].output == json.dumps(
        [{"tool_id": "find", "tool_name": "find", "tool_kwargs": {"input": SEARCHED}}]
    )


def test_an_agent_with_two_tools_at_once(captured: Captured) -> None:
    """The context has the passages of both retrievers, each once."""
    run(FunctionAgent(tools=[retriever_tool(), query_tool()], llm=calls_then(ANSWER, "find", "search")))

    turn = captured.turn
    assert sorted(str(passage.id) for passage in turn.passages) == ["d1", "d2"]
    assert len(of_kind(turn, "tool")) == len(of_kind(turn, "retriever")) == 2


def test_an_agent_whose_tool_streams(captured: Captured) -> None:
    """The tool reads its engine's stream itself."""
    run(FunctionAgent(tools=[query_tool(streaming=True)], llm=calls_then(ANSWER, "search")))

    turn = captured.turn
    assert turn.response == ANSWER
    assert of_kind(turn, "tool")[0].output == "It was 2019."


def test_agents_that_work_together(captured: Captured) -> None:
    """The outermost workflow is the turn."""
    agent = FunctionAgent(name="librarian", description="finds", tools=[query_tool()], llm=calls_then(ANSWER, "search"))
    run(AgentWorkflow(agents=[agent], root_agent="librarian"))

    turn = captured.turn
    assert turn.name == "AgentWorkflow"
    assert (turn.query, turn.response) == (QUESTION, ANSWER)
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]


def test_a_chat_history(captured: Captured) -> None:
    """Without a message, the query is the user's last message in the history."""
    history = [ChatMessage(role="user", content="Hello"), ChatMessage(role="user", content=QUESTION)]
    run(FunctionAgent(tools=[query_tool()], llm=calls_then(ANSWER, "search")), chat_history=history)

    assert captured.turn.query == QUESTION


def broken(input: str) -> str:
    """Fail."""
    raise OutOfOrderError("the tool is broken")


RESULTS = [
    {"url": "https://quern.example/pier", "content": "The pier of Quern was opened in May 2019.", "score": 0.9},
    {"url": "https://quern.example/fair", "content": "The harbour fair takes place in June each year."},
]


def search_web(input: str) -> list[dict[str, Any]]:
    """Search the web."""
    return RESULTS


def test_a_tool_that_finds_text(captured: Captured) -> None:
    """What a web search returned is in the prompt of the answer: one passage for each result."""
    tool = FunctionTool.from_defaults(search_web, name="web_search")
    run(FunctionAgent(tools=[tool], llm=calls_then(ANSWER, "web_search")))

    found = [(passage.id, passage.text, passage.score, passage.in_prompt) for passage in captured.turn.passages]
    assert found == [(result["url"], result["content"], result.get("score"), True) for result in RESULTS]
    assert captured.turn.is_rag


@pytest.mark.parametrize("output", ["Message sent.", 42, True, "unreachable"])
def test_a_tool_that_finds_nothing(captured: Captured, output: Any) -> None:
    """An acknowledgement, a number and an error are no passages."""

    def act(input: str) -> Any:
        if output == "unreachable":
            raise OutOfOrderError("the mail server could not be reached within thirty seconds")
        return output

    tool = FunctionTool.from_defaults(act, name="send", description="sends a message")
    run(FunctionAgent(tools=[tool], llm=calls_then("Done.", "send")))

    assert captured.turn.passages == ()


def test_a_search_that_fails(captured: Captured) -> None:
    """The text of its error is no passage, although the agent reads it."""
    text = "The index of piers could not be reached within thirty seconds. Try again later."

    async def report(result: Any) -> ToolOutput:
        return ToolOutput(content=text, tool_name="web_search", raw_input={}, raw_output=text, is_error=True)

    tool = FunctionTool.from_defaults(search_web, name="web_search", async_callback=report)
    run(FunctionAgent(tools=[tool], llm=calls_then("I could not find out.", "web_search")))

    assert captured.turn.passages == ()


def test_a_tool_that_is_excluded() -> None:
    """``!name`` in ``search_tools`` is a tool that does not search."""
    exporter = InMemoryExporter()
    tool = FunctionTool.from_defaults(search_web, name="web_search")
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], search_tools=["!web_search"]) as handle:
        run(FunctionAgent(tools=[tool], llm=calls_then(ANSWER, "web_search")))
        assert handle.flush(10)
    [evaluation] = exporter.evaluations
    assert evaluation.turn.passages == ()


def test_a_tool_that_fails(captured: Captured) -> None:
    """The agent continues. Only the tool's step has the error."""
    tool = FunctionTool.from_defaults(broken, name="broken")
    run(FunctionAgent(tools=[tool], llm=calls_then("I could not find out.", "broken")))

    turn = captured.turn
    assert (turn.status, turn.error) == ("ok", None)
    [failed] = of_kind(turn, "tool")
    assert failed.error is not None
    assert failed.error.type == "OutOfOrderError"


def test_a_model_that_fails(captured: Captured) -> None:
    """The turn has the workflow's error."""
    with pytest.raises(OutOfOrderError):
        run(FunctionAgent(tools=[query_tool()], llm=llm(OutOfOrderError("overloaded"))))

    turn = captured.turn
    assert turn.status == "error"
    assert turn.error is not None
    assert (turn.error.type, turn.error.message) == ("OutOfOrderError", "overloaded")
    assert turn.query == QUESTION


class Found(Event):
    nodes: Any


class RagFlow(Workflow):
    """A workflow that retrieves in one step and answers in another."""

    retriever: Any = None
    model: Any = None
    structured: bool = False

    @step
    async def retrieve(self, ev: StartEvent) -> Found:
        return Found(nodes=await self.retriever.aretrieve(ev.question))

    @step
    async def answer(self, ev: Found) -> StopEvent:
        response = await self.model.acomplete("\n".join(node.text for node in ev.nodes))
        return StopEvent(result=Structured(year=2019, sure=True) if self.structured else response.text)


class Structured(BaseModel):
    year: int
    sure: bool


@pytest.mark.parametrize("structured", [False, True], ids=["text", "structured"])
def test_a_workflow(captured: Captured, structured: bool) -> None:
    """The start event has the query, the stop event the answer."""
    flow = RagFlow()
    flow.retriever, flow.model, flow.structured = index().as_retriever(similarity_top_k=2), llm(ANSWER), structured
    run(flow, question=QUESTION, top_k=3)

    turn = captured.turn
    assert turn.name == "RagFlow"
    assert turn.query == QUESTION
    assert turn.response == ('{"year": 2019, "sure": true}' if structured else ANSWER)
    assert [(passage.text, passage.in_prompt) for passage in turn.passages] == [
        (FACTS["d1"], True),
        (FACTS["d2"], True),
    ]
    assert turn.metadata == {}


class Waiting(Workflow):
    """A workflow that never ends by itself."""

    reached: Any = None

    @step
    async def wait(self, ev: StartEvent) -> StopEvent:
        self.reached.set()
        await asyncio.Event().wait()
        return StopEvent()


def test_a_workflow_that_is_cancelled(captured: Captured) -> None:
    """A cancellation by the user is not an error."""

    async def main() -> None:
        flow = Waiting()
        flow.reached = asyncio.Event()
        handler = flow.run(question=QUESTION)
        await flow.reached.wait()
        await handler.cancel_run()

    asyncio.run(main())

    turn = captured.turn
    assert (turn.status, turn.error) == ("cancelled", None)
    assert turn.query == QUESTION


def test_a_workflow_that_nobody_waits_for(captured: Captured) -> None:
    """It ends with its event loop."""

    async def main() -> None:
        flow = Waiting()
        flow.reached = asyncio.Event()
        flow.run(question=QUESTION)
        await flow.reached.wait()

    asyncio.run(main())

    assert captured.turn.status == "cancelled"


def test_a_workflow_that_runs_out_of_time(captured: Captured) -> None:
    """The error has the type of the timeout."""

    async def main() -> None:
        flow = Waiting(timeout=0.01)
        flow.reached = asyncio.Event()
        await flow.run(question=QUESTION)

    with pytest.raises(Exception, match="timed out"):
        asyncio.run(main())

    turn = captured.turn
    assert turn.status == "error"
    assert turn.error is not None
    assert turn.error.type == "WorkflowTimeoutError"


async def confirm(ctx: Context, question: str) -> str:
    """Ask a human."""
    response = await ctx.wait_for_event(
        HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="Sure?"), waiter_id=question
    )
    return str(response.response)


confirm.__annotations__["ctx"] = Context  # llama-index does not resolve annotations that are strings


def test_an_agent_that_a_human_answers(captured: Captured) -> None:
    """Neither the turn nor the tool that waited has an error."""

    async def main() -> None:
        agent = FunctionAgent(tools=[confirm], llm=calls_then("Done.", "confirm", question="Sure?"))
        handler = agent.run(user_msg="Delete it")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        await handler

    asyncio.run(main())

    turn = captured.turn
    assert (turn.status, turn.error, turn.response) == ("ok", None, "Done.")
    waited, went_on = of_kind(turn, "tool")
    assert (waited.error, waited.complete) == (None, False)
    assert (went_on.output, went_on.complete) == ("yes", True)


class ConfirmingFlow(Workflow):
    """A workflow that waits for a human, then asks a model."""

    model: Any = None

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent:
        return InputRequiredEvent(prefix="Sure?")

    @step
    async def answer(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=str(await self.model.acomplete(f"The human said {ev.response}")))


def test_a_workflow_that_waits_for_a_human_in_vain(captured: Captured) -> None:
    """Stopped while it waits, the turn is interrupted. When it is resumed, the turn has an answer."""

    async def main() -> None:
        flow = ConfirmingFlow()
        flow.model = llm("Done.")
        handler = flow.run(question="Delete it")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                break
        saved = handler.ctx.to_dict()
        await handler.cancel_run()
        handler = flow.run(ctx=Context.from_dict(flow, saved))
        handler.ctx.send_event(HumanResponseEvent(response="yes"))
        await handler

    asyncio.run(main())

    first, second = captured.turns
    assert (first.status, first.error) == ("interrupted", None)
    assert first.query == "Delete it"
    assert (second.status, second.error, second.response) == ("ok", None, "Done.")
    assert second.query == "The human said yes", "a workflow that is resumed has no question in its arguments"


def text_tool() -> FunctionTool:
    def search_web(input: str) -> list[dict[str, str]]:
        return [{"url": "https://a", "content": FACTS["d1"]}, {"url": "https://b", "content": FACTS["d3"]}]

    return FunctionTool.from_defaults(search_web)


@pytest.mark.parametrize(
    ("tool", "passages"),
    [
        (retriever_tool, [FACTS["d1"], FACTS["d2"]]),
        (query_tool, ["It was 2019."]),
        (text_tool, [FACTS["d1"], FACTS["d3"]]),
    ],
    ids=["a retriever's nodes", "a query engine's answer", "results as text"],
)
def test_a_follow_up_question_from_earlier_tool_messages(captured: Captured, tool: Any, passages: list[str]) -> None:
    """The prompt has the output of an earlier tool, so the turn has its passages."""
    tool = tool()
    agent = FunctionAgent(tools=[tool], llm=calls_then(ANSWER, tool.metadata.name))

    async def main() -> None:
        memory = ChatMemoryBuffer.from_defaults(token_limit=4000)
        await agent.run(user_msg=QUESTION, memory=memory)
        await agent.run(user_msg="Is it new?", memory=memory)

    asyncio.run(main())

    first, follow_up = captured.turns
    assert (first.query, follow_up.query) == (QUESTION, "Is it new?")
    assert sorted(passage.text for passage in follow_up.passages) == sorted(passages)
    assert all(passage.in_prompt for passage in follow_up.passages)
    assert not of_kind(follow_up, "tool")
