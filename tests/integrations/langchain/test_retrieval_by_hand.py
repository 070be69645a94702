"""Documents that no LangChain retriever found: their sources, and which of them are the context."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain.fakes import FACTS, join, model

QUESTION = "When was the pier opened?"
PROMPT = ChatPromptTemplate.from_messages([("system", "Use this:\n{context}"), ("human", "{question}")])


def turn_of(chain: Any, given: Any, settings: dict[str, Any]) -> Turn:
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], **settings) as handle:
        chain.invoke(given)
        assert handle.flush(10)
    [evaluation] = exporter.evaluations
    return evaluation.turn


later_and_at_once = pytest.mark.parametrize(
    "settings", [{}, {"on_evaluation": lambda evaluation: None}], ids=["later", "at once"]
)


@later_and_at_once
def test_documents_that_the_application_has_found_before(settings: dict[str, Any]) -> None:
    """They are passed in with the question, and on to the prompt."""
    chain = (
        {"context": itemgetter("docs") | RunnableLambda(join), "question": itemgetter("question")} | PROMPT | model()
    )
    turn = turn_of(chain, {"docs": FACTS, "question": QUESTION}, settings)

    assert [(passage.text, passage.in_prompt) for passage in turn.passages] == [
        (document.page_content, True) for document in FACTS
    ]


@later_and_at_once
def test_a_search_that_was_given_up(settings: dict[str, Any]) -> None:
    """Of two searches, the documents that the model did not see are kept and marked."""
    bad = [Document(page_content="Cows like clover.", id="c1")]

    def search(question: str) -> str:
        RunnableLambda(lambda _: bad).invoke(question)
        return join(RunnableLambda(lambda _: FACTS).invoke(question))

    chain = {"context": RunnableLambda(search), "question": RunnableLambda(lambda text: text)} | PROMPT | model()
    turn = turn_of(chain, QUESTION, settings)

    assert {passage.id: passage.in_prompt for passage in turn.passages} == {"c1": False, "d1": True, "d2": True}


@later_and_at_once
@pytest.mark.parametrize(
    ("first", "last", "finish"),
    [
        ("When was it opened, yes or 2019?", "YES", str.lower),
        ("When was the pier opened?", "In 2019. [1]", lambda text: "You asked: When was the pier opened? In 2019."),
        ("It was opened in 2019.", "It was opened in 2019. [1]", lambda text: text.replace(" [1]", "")),
        ("A draft of 2019.", "It was\n\nopened in **2019**.", lambda text: "It was opened in 2019."),
    ],
    ids=["lower case", "a template", "marks taken away", "white space"],
)
def test_an_answer_that_is_finished_by_hand(first: str, last: str, finish: Any, settings: dict[str, Any]) -> None:
    """An earlier call rewrote the question or made a draft. The prompt is that of the last call."""
    rewrite = RunnableLambda(lambda question: f"rewrite: {question}") | model(first)
    chain = (
        RunnableLambda(lambda question: (rewrite.invoke(question), question)[1])
        | RunnableLambda(lambda question: f"answer: {question}")
        | model(last)
        | RunnableLambda(lambda message: finish(message.content))
    )
    turn = turn_of(chain, QUESTION, settings)

    assert [message.content for message in turn.prompt] == [f"answer: {QUESTION}"]
