"""Questions and answers under keys that an application chose, in a state that holds other texts too."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import join, lcel, model, retriever

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."
THOUGHTS = f"<think>Which pier?</think>\n\n{ANSWER}"


class Report(BaseModel):
    """What an application returns."""

    answer: str
    sources: list[str] = []


def written_afterwards(text: str) -> str:
    """Return what a model made of the finished answer, for example a title."""
    return model(text).invoke("About the answer").text


OUTPUTS: dict[str, Any] = {
    "follow-up questions": lambda answer: {
        "final_answer": answer,
        "follow_ups": written_afterwards("Who built it? How long is it?"),
    },
    "a title": lambda answer: {"reply_text": answer, "chat_title": written_afterwards("The opening of the pier")},
    "a critique": lambda answer: {"draft": answer, "critique": written_afterwards("The draft is complete.")},
    "a draft": lambda answer: {"answer": written_afterwards("Draft: maybe in 2018."), "finalAnswer": answer},
    "an object": lambda answer: {"final_response": Report(answer=answer), "topic": written_afterwards("The old pier")},
    "an envelope": lambda answer: {"status": "success", "data": {"answer": answer, "seconds": 3}},
    "an envelope with an object": lambda answer: {"message": "done", "payload": Report(answer=answer)},
}


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_the_answer_is_found_next_to_other_texts(captured: Captured, output: Any) -> None:
    """Texts that a model wrote about the answer, and the words of an envelope, are not the answer."""
    (lcel() | RunnableLambda(output)).invoke(QUESTION)

    turn = captured.turn
    assert (turn.response, [passage.in_prompt for passage in turn.passages]) == (ANSWER, [True, True])


def test_a_label_that_a_model_wrote_is_no_answer_next_to_a_reply(captured: Captured) -> None:
    """A router chooses the branch, and the branch replies with a fixed text."""

    class State(MessagesState):
        next_step: str

    def route(state: State) -> Any:
        return {"next_step": model("small_talk").invoke(state["messages"]).text}

    def chat(state: State) -> Any:
        return {"messages": [AIMessage("Hello! I answer questions about piers.")]}

    graph = StateGraph(State).add_sequence([route, chat]).add_edge(START, "route").compile()
    graph.invoke({"messages": [HumanMessage("Hi")], "next_step": ""})

    assert captured.turn.response == "Hello! I answer questions about piers."


def test_the_text_that_a_model_wrote_last_is_the_answer(captured: Captured) -> None:
    """A model has revised the first version, and the state keeps both under keys that say nothing."""
    chain = lcel("It was opened in 2018, as far as I know.") | (
        lambda text: {"step_one": text, "step_two": model(ANSWER).invoke(f"Check this: {text}").text}
    )
    chain.invoke(QUESTION)

    assert captured.turn.response == ANSWER


def test_the_thoughts_of_a_model_are_not_in_the_answer(captured: Captured) -> None:
    """The application keeps the model's whole text next to the answer that it shows."""
    chain = lcel(THOUGHTS) | (lambda text: {"raw": text, "shown": text.split("</think>")[1].strip()})
    chain.invoke(QUESTION)

    assert captured.turn.response == ANSWER


def test_the_answer_of_an_earlier_turn_in_the_state(captured: Captured) -> None:
    """A branch that only replies leaves the previous answer in the state of a graph with memory."""

    class Chat(MessagesState, total=False):
        answer: str

    def respond(state: Any) -> Any:
        said = state["messages"][-1].text
        if said != QUESTION:
            return {"messages": [model("You are welcome.").invoke(said)]}
        found = join(retriever().invoke(said))
        reply = model(ANSWER).invoke(f"{found}\n{said}")
        return {"messages": [reply], "answer": reply.text}

    graph: Any = StateGraph(Chat)
    graph.add_node("respond", respond).add_edge(START, "respond")
    compiled = graph.compile(checkpointer=InMemorySaver())
    for said in (QUESTION, "Thank you!"):
        compiled.invoke({"messages": [HumanMessage(said)]}, {"configurable": {"thread_id": "1"}})

    assert [turn.response for turn in captured.turns] == [ANSWER, "You are welcome."]


@pytest.mark.parametrize(
    "given",
    [
        {"user_message": QUESTION, "tone": "friendly"},
        {"customerQuestion": QUESTION, "locale": "en", "search_query": "pier"},
        {"original_question": QUESTION, "tenant": "harbour"},
        {"message": QUESTION, "session": "x1"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_the_question_is_found_next_to_other_texts(captured: Captured, given: Any) -> None:
    """The search uses a rewritten question, which is not the user's."""

    def respond(fields: Any) -> str:
        rewritten = model("opening of the pier").invoke("Rewrite").text
        found = join(retriever().invoke(rewritten))
        return model(ANSWER).invoke(f"{found}\n{QUESTION}").text

    RunnableLambda(respond).invoke(given)

    turn = captured.turn
    assert (turn.query, turn.retrieval_queries) == (QUESTION, ("opening of the pier",))
