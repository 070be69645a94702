"""The handler may be attached to the process, to a chain, or to both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

import rageval_hooks
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import PROMPT, ScriptedRetriever, join, lcel, model, retriever

QUESTION = "When was the pier opened?"


@pytest.fixture
def exporter() -> InMemoryExporter:
    return InMemoryExporter()


@pytest.fixture
def handler(exporter: InMemoryExporter) -> Iterator[CallbackHandler]:
    """Return a separate handler, without metrics."""
    handler = CallbackHandler(metrics=[], exporters=[exporter])
    yield handler
    assert handler.flush(10)
    assert handler.stats()["internal_errors"] == 0
    assert len(shared_recorder()) == 0


WAYS: dict[str, Any] = {
    "callbacks": lambda chain, handler: chain.invoke(QUESTION, {"callbacks": [handler]}),
    "with_config": lambda chain, handler: chain.with_config(callbacks=[handler]).invoke(QUESTION),
    "with_config of the model alone": lambda chain, handler: (
        chain.first | chain.middle[0] | chain.middle[1].with_config(callbacks=[handler])
    ).invoke(QUESTION, {"callbacks": [handler]}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_handler_sees_the_chain_that_it_is_passed_to(
    handler: CallbackHandler, exporter: InMemoryExporter, way: Any
) -> None:
    """The handler captures that chain and no other one."""
    way(lcel(), handler)
    lcel().invoke("unseen")

    handler.flush(10)
    [evaluation] = exporter.evaluations
    assert evaluation.turn.query == QUESTION
    assert [passage.id for passage in evaluation.turn.passages] == ["d1", "d2"]


def test_a_handler_on_a_part_of_a_chain_sees_that_part(handler: CallbackHandler, exporter: InMemoryExporter) -> None:
    """The outermost run that the handler sees is its turn."""
    inner = lcel("inner answer").with_config(callbacks=[handler])
    (RunnableLambda(lambda question: question.upper()) | inner).invoke("when?")

    handler.flush(10)
    [evaluation] = exporter.evaluations
    assert (evaluation.turn.query, evaluation.turn.response) == ("WHEN?", "inner answer")


def test_both_count_a_turn_once_and_it_is_the_handlers(
    captured: Captured, handler: CallbackHandler, exporter: InMemoryExporter
) -> None:
    """A handler of the chain takes precedence over the one of the process."""
    lcel().invoke(QUESTION, {"callbacks": [handler]})

    handler.flush(10)
    assert len(exporter.evaluations) == 1
    assert captured.turns == []


def test_both_on_different_levels_count_a_turn_once(
    captured: Captured, handler: CallbackHandler, exporter: InMemoryExporter
) -> None:
    """The process captures the outer chain, the handler the inner one: the outer turn goes to the handler."""
    answering = (PROMPT | model("In 2019.")).with_config(callbacks=[handler])
    ({"context": retriever() | join, "question": RunnablePassthrough()} | answering).invoke(QUESTION)

    handler.flush(10)
    [evaluation] = exporter.evaluations
    assert captured.turns == []
    assert evaluation.turn.query == QUESTION
    assert [passage.id for passage in evaluation.turn.passages] == ["d1", "d2"]


def test_concurrent_calls_in_copies_of_one_context_are_separate_turns(
    handler: CallbackHandler, exporter: InMemoryExporter
) -> None:
    """A retriever that runs in one copy does not enclose runs in another copy."""
    hook = rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()])
    lcel().invoke("before")  # leaves values in this context
    hook.shutdown()
    together = threading.Barrier(3, timeout=30)

    def find(query: str) -> list[Document]:
        together.wait()
        return [Document(id=query, page_content=query)]

    chain = {"context": ScriptedRetriever(find=find) | join, "question": RunnablePassthrough()} | PROMPT | model("Yes.")
    questions = ["one?", "two?", "three?"]
    calls = [
        threading.Thread(target=copy_context().run, args=(chain.invoke, question, {"callbacks": [handler]}))
        for question in questions
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()

    handler.flush(10)
    turns = [evaluation.turn for evaluation in exporter.evaluations]
    assert {turn.query: [passage.id for passage in turn.passages] for turn in turns} == {
        question: [question] for question in questions
    }


def test_two_handlers_of_one_chain_count_a_turn_once(handler: CallbackHandler, exporter: InMemoryExporter) -> None:
    """It is the turn of the handler that comes last: one of them may belong to a library."""
    other = InMemoryExporter()
    first = CallbackHandler(metrics=[], exporters=[other])
    lcel().invoke(QUESTION, {"callbacks": [first, handler]})

    assert first.flush(10)
    assert handler.flush(10)
    assert (len(other.evaluations), len(exporter.evaluations)) == (0, 1)


def test_handlers_are_cheap_to_make(exporter: InMemoryExporter) -> None:
    """One handler per request starts no further threads."""
    before = set(threading.enumerate())
    for _ in range(50):
        lcel().invoke(QUESTION, {"callbacks": [CallbackHandler(metrics=[], exporters=[exporter])]})
    new = [thread.name for thread in threading.enumerate() if thread not in before]
    ours = [name for name in new if name.startswith("rageval")]

    assert len(ours) == len(set(ours))
    CallbackHandler(metrics=[], exporters=[exporter]).flush(10)
    assert len(exporter.evaluations) == 50


def test_on_evaluation_has_the_callers_context_variables() -> None:
    """The callback runs before the call returns, on another thread, in a copy of the caller's context."""
    seen: list[str] = []
    request = ContextVar("request", default="none")
    with rageval_hooks.instrument(
        metrics=["latency"],
        exporters=[],
        inline_budget_ms=10_000,
        on_evaluation=lambda _: seen.append(request.get()),
    ):
        request.set("request 7")
        lcel().invoke(QUESTION)
        assert seen == ["request 7"]


@pytest.mark.parametrize(
    ("message", "response_id"),
    [
        (AIMessage("In 2019.", response_metadata={"id": "chatcmpl-1"}), "chatcmpl-1"),
        (AIMessage("In 2019.", id="resp_1"), "resp_1"),
        (AIMessage("In 2019."), None),
    ],
    ids=["reported", "the message's", "LangChain's own"],
)
def test_the_providers_id_of_a_completion(captured: Captured, message: AIMessage, response_id: str | None) -> None:
    """Ids that LangChain makes up are not the provider's."""
    lcel(lambda messages: message).invoke(QUESTION)

    assert captured.turn.steps[-1].response_id == response_id
