"""One query of a query engine is one turn. Its context is the input of the synthesizer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core import get_response_synthesizer
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.query_engine import (
    CitationQueryEngine,
    CustomQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
)
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.selectors import LLMMultiSelector, LLMSingleSelector
from llama_index.core.tools import QueryEngineTool

from tests.integrations.langchain.conftest import Captured
from tests.integrations.llama_index.fakes import FACTS, NestingLLM, index, llm

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


def ask(engine: Any, asynchronous: bool, question: str = QUESTION) -> str:
    return str(asyncio.run(engine.aquery(question)) if asynchronous else engine.query(question))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
@pytest.mark.parametrize("mode", ["compact", "refine", "tree_summarize", "accumulate", "simple_summarize"])
def test_a_query_is_a_turn(captured: Captured, mode: str, asynchronous: bool) -> None:
    """The turn has query, answer, context, prompt, model, tokens and times, in every response mode."""
    engine = index().as_query_engine(llm=llm(), similarity_top_k=2, response_mode=mode)
    ask(engine, asynchronous)

    turn = captured.turn
    assert turn.name == "RetrieverQueryEngine"
    assert turn.framework == "llama_index"
    assert turn.status == "ok"
    assert turn.query == QUESTION
    assert ANSWER in turn.response
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]
    assert [passage.text for passage in turn.passages] == [FACTS["d1"], FACTS["d2"]]
    assert [passage.metadata for passage in turn.passages] == [{"source": "d1.md"}, {"source": "d2.md"}]
    assert all(passage.in_prompt for passage in turn.passages)
    scores = [passage.score or 0.0 for passage in turn.passages]
    assert scores == sorted(scores, reverse=True)
    assert turn.retrieval_queries == ()
    assert QUESTION in turn.prompt[-1].content
    assert turn.model == "scripted-1-2026"
    assert turn.usage is not None
    assert turn.usage.source == "provider"
    calls = [step for step in turn.steps if step.kind == "llm"]
    assert len(calls) == {"refine": 2, "accumulate": 2}.get(mode, 1)
    assert turn.usage.input_tokens == 40 * len(calls)
    assert turn.usage.cache_read_tokens == 12 * len(calls)
    assert turn.timing is not None
    assert turn.timing.retrieval is not None
    assert turn.timing.generation is not None
    assert turn.timing.retrieval + turn.timing.generation <= turn.timing.total


def test_a_model_call_names_the_requested_model_and_the_response(captured: Captured) -> None:
    """The step has the requested model, the model that answered, and the provider's id of the completion."""
    index().as_query_engine(llm=llm()).query(QUESTION)

    [call] = [step for step in captured.turn.steps if step.kind == "llm"]
    assert (call.request_model, call.model, call.response_id) == ("scripted-1", "scripted-1-2026", "completion-1")


def test_summarizing_in_several_calls(captured: Captured) -> None:
    """Several prompts share the passages. All of these prompts count, not only the last one."""
    engine = index().as_query_engine(llm=llm("2019"), similarity_top_k=3, response_mode="tree_summarize")
    engine._response_synthesizer._prompt_helper.chunk_size_limit = 30
    ask(engine, False)

    turn = captured.turn
    assert len([step for step in turn.steps if step.kind == "llm"]) > 1
    assert turn.passages[0].in_prompt
    assert all((passage.prompt_share or 0) > 0.5 for passage in turn.passages), "perhaps cut where two prompts meet"
    assert not any(FACTS["d1"] in message.content for message in turn.prompt)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
def test_a_model_class_that_nests_its_methods_is_counted_once(captured: Captured, asynchronous: bool) -> None:
    """``achat`` calls ``chat``, which calls ``complete``: one call, one token count."""
    ask(index().as_query_engine(llm=NestingLLM(), similarity_top_k=1), asynchronous)

    turn = captured.turn
    [call] = [step for step in turn.steps if step.kind == "llm"]
    assert call.model == "nesting-1"
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens) == (40, 7)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_retriever_and_a_synthesizer_by_hand(captured: Captured, asynchronous: bool) -> None:
    """The synthesizer's run is the turn, with its input nodes. The retriever's run is not evaluated."""
    retriever = index().as_retriever(similarity_top_k=2)
    synthesizer = get_response_synthesizer(llm=llm())

    async def main() -> Any:
        return await synthesizer.asynthesize(QUESTION, nodes=await retriever.aretrieve(QUESTION))

    if asynchronous:
        asyncio.run(main())
    else:
        synthesizer.synthesize(QUESTION, nodes=retriever.retrieve(QUESTION))

    retrieval, turn = captured.turns
    assert not retrieval.is_rag
    assert [passage.id for passage in retrieval.passages] == ["d1", "d2"]
    assert turn.is_rag
    assert turn.name == "CompactAndRefine"
    assert turn.query == QUESTION
    assert turn.response == ANSWER
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("d1", True), ("d2", True)]


def test_a_function_of_the_applications_own(captured: Captured) -> None:
    """A decorated function around everything is the turn."""
    retriever = index().as_retriever(similarity_top_k=2)
    synthesizer = get_response_synthesizer(llm=llm())

    @get_dispatcher().span
    def answer(question: str) -> str:
        return str(synthesizer.synthesize(question, nodes=retriever.retrieve(question)))

    answer(QUESTION)

    turn = captured.turn
    assert turn.name == "answer"
    assert turn.query == QUESTION
    assert turn.response == ANSWER
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]
    assert [step.kind for step in turn.steps] == ["retriever", "llm"]


class HandMadeEngine(CustomQueryEngine):
    """An engine that retrieves, and calls the model without a synthesizer."""

    retriever: Any
    model: Any

    def custom_query(self, query_str: str) -> str:
        nodes = self.retriever.retrieve(query_str)
        return str(self.model.complete("\n".join(node.text for node in nodes[:1]) + "\n" + query_str))


def test_a_custom_query_engine(captured: Captured) -> None:
    """Without a synthesizer the context is what was retrieved, marked with what was shown."""
    HandMadeEngine(retriever=index().as_retriever(similarity_top_k=2), model=llm()).query(QUESTION)

    turn = captured.turn
    assert turn.name == "HandMadeEngine"
    assert turn.response == ANSWER
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("d1", True), ("d2", False)]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
def test_a_router_is_one_turn(captured: Captured, asynchronous: bool) -> None:
    """The outermost query is the turn. The chosen engine gives the context; the selector's call is a step."""
    answer = llm()
    tools = [
        QueryEngineTool.from_defaults(index().as_query_engine(llm=answer, similarity_top_k=k), description=f"top {k}")
        for k in (1, 2)
    ]
    choice = llm('[{"choice": 2, "reason": "more"}]')
    engine = RouterQueryEngine(LLMSingleSelector.from_defaults(llm=choice), tools, llm=answer)
    ask(engine, asynchronous)

    turn = captured.turn
    assert turn.name == "RouterQueryEngine"
    assert turn.query == QUESTION
    assert turn.response == ANSWER
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]
    assert [step.kind for step in turn.steps] == ["llm", "retriever", "llm"]
    assert turn.prompt[-1].content.startswith("Context information")


def test_a_router_that_asks_several_engines(captured: Captured) -> None:
    """The context has the passages of all engines, each once. The answer is the summary."""
    answer = llm(lambda messages: "Summary." if "2019" in messages[-1].content and "Ferry" in str(messages) else ANSWER)
    tools = [
        QueryEngineTool.from_defaults(index().as_query_engine(llm=answer, similarity_top_k=k), description=f"top {k}")
        for k in (1, 2)
    ]
    choice = llm('[{"choice": 1, "reason": "a"}, {"choice": 2, "reason": "b"}]')
    RouterQueryEngine(LLMMultiSelector.from_defaults(llm=choice), tools, llm=answer).query(QUESTION)

    turn = captured.turn
    assert [passage.id for passage in turn.passages] == ["d1", "d2"]
    assert turn.response == ANSWER
    assert len([step for step in turn.steps if step.kind == "retriever"]) == 2


@pytest.mark.parametrize("asynchronous", [False, True], ids=["query", "aquery"])
def test_sub_questions_are_one_turn(captured: Captured, asynchronous: bool) -> None:
    """Sub-questions are retrieval queries, and their answers are not passages."""

    def script(messages: Any) -> str:
        text = messages[-1].content
        if "sub_question" in text and "tool_name" in text:
            return (
                '```json\n{"items": [{"sub_question": "When was the pier opened?", "tool_name": "facts"},'
                ' {"sub_question": "How long does the ferry take?", "tool_name": "facts"}]}\n```'
            )
        return (
            "18 minutes." if "Query: How long" in text else "The pier is older." if "Sub question" in text else ANSWER
        )

    model = llm(script)
    tool = QueryEngineTool.from_defaults(
        index().as_query_engine(llm=model, similarity_top_k=1), name="facts", description="facts"
    )
    engine = SubQuestionQueryEngine.from_defaults(
        query_engine_tools=[tool],
        llm=model,
        question_gen=LLMQuestionGenerator.from_defaults(llm=model),
        response_synthesizer=get_response_synthesizer(llm=model),
        verbose=False,
        use_async=asynchronous,
    )
    question = "Is the pier older than the ferry?"
    ask(engine, asynchronous, question)

    turn = captured.turn
    assert turn.name == "SubQuestionQueryEngine"
    assert turn.query == question
    assert turn.response == "The pier is older."
    assert sorted(turn.retrieval_queries) == ["How long does the ferry take?", "When was the pier opened?"]
    assert sorted((passage.id, passage.in_prompt) for passage in turn.passages) == [("d1", True), ("d2", True)]
    assert "Sub question" in turn.prompt[-1].content


def test_citations(captured: Captured) -> None:
    """The engine cuts the retrieved nodes into numbered sources, and passes these to the synthesizer."""
    CitationQueryEngine.from_args(index(), llm=llm("In 2019 [1]."), similarity_top_k=2).query(QUESTION)

    turn = captured.turn
    assert turn.response == "In 2019 [1]."
    assert [passage.text for passage in turn.passages] == [f"Source 1:\n{FACTS['d1']}\n", f"Source 2:\n{FACTS['d2']}\n"]
    assert all(passage.in_prompt for passage in turn.passages)


def test_building_an_index_is_no_turn(captured: Captured) -> None:
    """Splitting and embedding are not reported."""
    index()

    assert captured.turns == []


def test_a_bare_model_call_is_traced_and_not_evaluated(captured: Captured) -> None:
    """A root without retrieval is not evaluated, as for LangChain."""
    llm("Hello.").complete("Hi")

    turn = captured.turn
    assert not turn.is_rag
    assert (turn.query, turn.response, turn.model) == ("Hi", "Hello.", "scripted-1-2026")
