"""A graph that waits for a person and is resumed makes one turn of both halves."""

from __future__ import annotations

import asyncio
import gc
import textwrap
import weakref
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from opentelemetry.sdk.trace import TracerProvider

import rageval_hooks
from rageval_hooks.integrations.capture.deferred import HeldTurns, held_turns, settle
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import FACTS, PROMPT, join, model, retriever
from tests.interpreter import run_script

QUESTION = "When was the pier opened?"
ANSWER = "In 2019."
OTHER = [Document(id="d3", page_content="The lighthouse is 31 m high.")]


class State(TypedDict):
    question: str
    documents: list[Document]
    approved: str
    answer: str


def approve(state: State) -> Any:
    return {"approved": interrupt("go on?")}


def write(state: State) -> Any:
    prompt = PROMPT.invoke({"context": join(state["documents"]), "question": state["question"]})
    return {"answer": model(ANSWER).invoke(prompt).text}


def graph(documents: Any = FACTS, *, asks: int = 1, **compiling: Any) -> Any:
    """Retrieve, ask a person, answer."""

    def find(state: State) -> Any:
        return {"documents": retriever(documents).invoke(state["question"])}

    waiting = [(f"approve{number}", approve) for number in range(asks)]
    builder = StateGraph(State).add_sequence([("find", find), *waiting, ("write", write)]).add_edge(START, "find")
    return builder.compile(checkpointer=InMemorySaver(), **compiling)


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def ids(turn: Turn) -> list[Any]:
    return [passage.id for passage in turn.passages]


def kinds(turn: Turn) -> list[str]:
    return [step.kind for step in turn.steps]


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    yield
    assert len(held_turns()) == 0


# --------------------------------------------------------------------------- both halves


async def _stream(app: Any, value: Any, config: Any) -> None:
    async for _ in app.astream(value, config):
        pass


def _leave(app: Any, value: Any, config: Any) -> None:
    """Close a stream when the graph waits, as a web handler does."""
    stream = app.stream(value, config)
    for chunk in stream:
        if "__interrupt__" in chunk:
            break
    stream.close()
    assert settle(5)  # a person takes longer than the background thread


CALLS = {
    "invoke": lambda app, value, config: app.invoke(value, config),
    "ainvoke": lambda app, value, config: asyncio.run(app.ainvoke(value, config)),
    "stream": lambda app, value, config: list(app.stream(value, config)),
    "astream": lambda app, value, config: asyncio.run(_stream(app, value, config)),
    "left": _leave,
}


@pytest.mark.parametrize("way", CALLS)
def test_both_halves_are_one_turn(captured: Captured, way: str) -> None:
    """The question and passages come from the first half, the answer from the second, steps from both."""
    app = graph()
    CALLS[way](app, {"question": QUESTION}, thread("1"))
    CALLS[way](app, Command(resume="yes"), thread("1"))

    turn = captured.turn
    assert (turn.query, turn.response, turn.status, turn.complete) == (QUESTION, ANSWER, "ok", True)
    assert [(passage.id, passage.in_prompt) for passage in turn.passages] == [("d1", True), ("d2", True)]
    assert kinds(turn) == ["retriever", "llm"]
    assert turn.session_id == "1"
    assert captured.handle.stats()["turns"] == 1


def test_the_steps_of_both_halves_are_in_the_trace() -> None:
    """The node that waited is there twice: it runs again when the graph is resumed."""
    exporter = InMemoryExporter()
    app = graph()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], spans="all") as handle:
        app.invoke({"question": QUESTION}, thread("1"))
        app.invoke(Command(resume="yes"), thread("1"))
        assert handle.flush(10)

    [turn] = [evaluation.turn for evaluation in exporter.evaluations]
    nodes = [step.name for step in turn.steps if step.kind == "chain"]
    assert nodes == ["LangGraph", "find", "approve0", "approve0", "write"]


def test_the_halves_may_be_called_in_different_ways(captured: Captured) -> None:
    """Started with ``stream``, resumed with ``ainvoke``."""
    app = graph()
    list(app.stream({"question": QUESTION}, thread("1")))
    asyncio.run(app.ainvoke(Command(resume="yes"), thread("1")))

    assert (captured.turn.query, captured.turn.response) == (QUESTION, ANSWER)


def test_the_time_in_which_the_graph_waits_is_no_latency(captured: Captured) -> None:
    """It is reported as ``waiting``."""
    app = graph()
    app.invoke({"question": QUESTION}, thread("1"))
    list(app.stream(Command(resume="yes"), thread("1"), stream_mode="messages"))

    timing = captured.turn.timing
    assert timing is not None
    assert timing.waiting is not None
    assert timing.waiting > 0
    assert abs(timing.total + timing.waiting - (timing.ended_at - timing.started_at) / 1e9) < 1e-6
    assert timing.time_to_first_token is not None
    assert timing.time_to_first_token <= timing.total


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_jumps_while_the_graph_waits(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """The total and the wait are what they were. The times follow the clock as it is at the end."""
    recorder, app = shared_recorder(), graph()
    wall_clock = recorder.wall_clock
    app.invoke({"question": QUESTION}, thread("1"))
    monkeypatch.setattr(recorder, "wall_clock", lambda: wall_clock() + hours * 3600 * 10**9)
    app.invoke(Command(resume="yes"), thread("1"))

    timing = captured.turn.timing
    assert timing is not None
    assert timing.waiting is not None
    assert 0 < timing.total < 60
    assert 0 < timing.waiting < 60
    assert all(timing.started_at <= step.started_at <= step.ended_at <= timing.ended_at for step in captured.turn.steps)


def test_a_graph_that_waits_twice_is_one_turn(captured: Captured) -> None:
    """All three parts are one turn."""
    app = graph(asks=2)
    app.invoke({"question": QUESTION}, thread("1"))
    app.invoke(Command(resume="yes"), thread("1"))
    app.invoke(Command(resume="yes"), thread("1"))

    turn = captured.turn
    assert (turn.query, turn.response, ids(turn)) == (QUESTION, ANSWER, ["d1", "d2"])
    assert kinds(turn) == ["retriever", "llm"]


def test_a_draft_that_was_written_before_the_interrupt(captured: Captured) -> None:
    """The model call of the first half wrote the answer, so its prompt decides what the model saw."""

    def find(state: State) -> Any:
        return {"documents": retriever().invoke(state["question"])}

    app = (
        StateGraph(State)
        .add_sequence([("find", find), ("write", write), ("approve", approve)])
        .add_edge(START, "find")
        .compile(checkpointer=InMemorySaver())
    )
    app.invoke({"question": QUESTION}, thread("1"))
    app.invoke(Command(resume="fine"), thread("1"))

    turn = captured.turn
    assert (turn.query, turn.response, turn.model) == (QUESTION, ANSWER, "scripted-1-2026")
    assert [passage.in_prompt for passage in turn.passages] == [True, True]


def test_a_state_that_is_edited_while_the_graph_waits(captured: Captured) -> None:
    """The graph continues from the new state, in the same turn."""
    app = graph(asks=2)
    app.invoke({"question": QUESTION}, thread("1"))
    app.update_state(thread("1"), {"approved": "by hand"})
    app.invoke(Command(resume="yes"), thread("1"))
    app.invoke(Command(resume="yes"), thread("1"))

    assert (captured.turn.query, captured.turn.response, ids(captured.turn)) == (QUESTION, ANSWER, ["d1", "d2"])


def test_a_graph_inside_a_chain(captured: Captured) -> None:
    """The chain's input is the question. If a chain also resumes the graph, both are one turn."""
    app = graph()
    (RunnableLambda(lambda question: {"question": question}) | app).invoke(QUESTION, thread("1"))
    (RunnableLambda(lambda said: Command(resume=said)) | app).invoke("yes", thread("1"))

    assert (captured.turn.query, captured.turn.response, ids(captured.turn)) == (QUESTION, ANSWER, ["d1", "d2"])


def test_an_interrupt_in_a_subgraph(captured: Captured) -> None:
    """The outer graph is resumed, and both halves are one turn."""
    inner = graph()
    inner.checkpointer = None
    app = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile(checkpointer=InMemorySaver())
    app.invoke({"question": QUESTION}, thread("1"))
    app.invoke(Command(resume="yes"), thread("1"))

    assert (captured.turn.query, captured.turn.response, ids(captured.turn)) == (QUESTION, ANSWER, ["d1", "d2"])


def test_an_error_in_the_second_half(captured: Captured) -> None:
    """The turn has the error."""

    def fail(state: State) -> Any:
        raise ValueError("no paper")

    app = (
        StateGraph(State)
        .add_sequence([("approve", approve), ("fail", fail)])
        .add_edge(START, "approve")
        .compile(checkpointer=InMemorySaver())
    )
    app.invoke({"question": QUESTION}, thread("1"))
    with pytest.raises(ValueError, match="no paper"):
        app.invoke(Command(resume="yes"), thread("1"))

    assert (captured.turn.query, captured.turn.status) == (QUESTION, "error")


# --------------------------------------------------------------------------- several at once


def test_two_conversations_are_not_mixed(captured: Captured) -> None:
    """Both wait at the same time, and are resumed in reverse order."""
    first, second = graph(), graph(OTHER)
    first.invoke({"question": QUESTION}, thread("1"))
    second.invoke({"question": "How high is the lighthouse?"}, thread("2"))
    second.invoke(Command(resume="yes"), thread("2"))
    first.invoke(Command(resume="yes"), thread("1"))

    assert [(turn.query, ids(turn), turn.session_id) for turn in captured.turns] == [
        (QUESTION, ["d1", "d2"], "1"),
        ("How high is the lighthouse?", ["d3"], "2"),
    ]


def test_two_graphs_that_use_the_same_thread_id_are_not_mixed(captured: Captured) -> None:
    """The graphs have separate stores, so their conversations may have equal ids."""
    first, second = graph(), graph(OTHER)
    first.invoke({"question": QUESTION}, thread("1"))
    second.invoke({"question": "How high is the lighthouse?"}, thread("1"))
    first.invoke(Command(resume="yes"), thread("1"))
    second.invoke(Command(resume="yes"), thread("1"))

    assert [(turn.query, ids(turn)) for turn in captured.turns] == [
        (QUESTION, ["d1", "d2"]),
        ("How high is the lighthouse?", ["d3"]),
    ]


def test_concurrent_conversations(captured: Captured) -> None:
    """Twenty tasks of one event loop each have their own thread id."""
    app = graph([])

    async def converse(number: int) -> None:
        await app.ainvoke({"question": f"Question {number}?"}, thread(str(number)))
        await asyncio.sleep(0)
        await app.ainvoke(Command(resume="yes"), thread(str(number)))

    async def main() -> None:
        await asyncio.gather(*(converse(number) for number in range(20)))

    asyncio.run(main())

    expected = {(f"Question {number}?", str(number), ANSWER) for number in range(20)}
    assert {(turn.query, turn.session_id, turn.response) for turn in captured.turns} == expected
    assert len(captured.turns) == 20


# --------------------------------------------------------------------------- one half only


def test_a_turn_that_is_never_resumed_is_delivered(captured: Captured) -> None:
    """``flush`` submits turns that wait, with their passages and without an answer."""
    graph().invoke({"question": QUESTION}, thread("1"))

    turn = captured.turn
    assert (turn.query, turn.status, turn.response, ids(turn)) == (QUESTION, "interrupted", "", ["d1", "d2"])


def test_the_first_half_was_delivered_before_the_second_came(captured: Captured) -> None:
    """The second half is a turn with the question and documents of the graph's state."""
    app = graph()
    app.invoke({"question": QUESTION}, thread("1"))
    assert captured.handle.flush(10)
    app.invoke(Command(resume="yes"), thread("1"))

    first, second = captured.turns
    assert (first.status, first.response) == ("interrupted", "")
    assert (second.query, second.status, second.response) == (QUESTION, "ok", ANSWER)
    assert second.first_half_missing
    assert [(passage.id, passage.in_prompt) for passage in second.passages] == [("d1", True), ("d2", True)]
    assert kinds(second) == ["llm"]


class Talk(TypedDict):
    messages: Annotated[list[Any], add_messages]


def test_metrics_of_the_answer_are_skipped_if_the_passages_are_not_known() -> None:
    """The state has the question, but only the text of what was retrieved."""

    def find(state: Talk) -> Any:
        return {"messages": [("ai", join(retriever().invoke(QUESTION)))]}

    def ask(state: Talk) -> Any:
        return {"messages": [("human", interrupt("go on?"))]}

    def answer(state: Talk) -> Any:
        return {"messages": [model(ANSWER).invoke(state["messages"])]}

    app = (
        StateGraph(Talk).add_sequence([find, ask, answer]).add_edge(START, "find").compile(checkpointer=InMemorySaver())
    )
    app.invoke({"messages": [("human", QUESTION)]}, thread("1"))
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=["unsupported_facts"], exporters=[exporter]) as handle:
        app.invoke(Command(resume="Yes, please."), thread("1"))
        assert handle.flush(10)

    [evaluation] = exporter.evaluations
    assert (evaluation.turn.query, evaluation.turn.response) == (QUESTION, ANSWER)
    assert {(result.status, result.reason) for result in evaluation.results} == {
        ("skipped", "the turn has no passages: the part of it before the interrupt is not known")
    }


def test_a_graph_that_stops_before_a_node_and_goes_on(captured: Captured) -> None:
    """LangGraph does not report ``interrupt_before``: the second turn has the question from the state."""
    app = graph(asks=0, interrupt_before=["write"])
    app.invoke({"question": QUESTION}, thread("1"))
    app.invoke(None, thread("1"))

    first, second = captured.turns
    assert (first.query, first.response) == (QUESTION, "")
    assert (second.query, second.response, ids(second)) == (QUESTION, ANSWER, ["d1", "d2"])


class Report(TypedDict, total=False):
    topic: str
    research_task: str
    language: str
    human_analyst_feedback: str
    report: str


@pytest.mark.parametrize(
    "state",
    [
        {"topic": QUESTION},
        {"topic": QUESTION, "human_analyst_feedback": "Go on, this is good."},
        {"research_task": QUESTION, "language": "English"},
    ],
    ids=["alone", "with feedback", "a task"],
)
def test_the_question_of_a_graph_that_goes_on_with_a_topic(captured: Captured, state: Any) -> None:
    """The models inside it have prompts of their own."""

    def write(given: Report) -> Any:
        return {"report": model(ANSWER).invoke("So you are writing an article?").text}

    builder: Any = StateGraph(Report).add_node("write", write).add_edge(START, "write")
    app = builder.compile(checkpointer=InMemorySaver(), interrupt_before=["write"])
    app.invoke(state, thread("1"))
    app.invoke(None, thread("1"))

    assert [turn.query for turn in captured.turns] == [QUESTION, QUESTION]


class Ticket(TypedDict, total=False):
    ticket: str
    messages: Annotated[list[Any], add_messages]
    draft: str
    answer: str


def test_the_question_of_a_graph_whose_state_was_edited_while_it_was_stopped(captured: Captured) -> None:
    """The key is that of the first half's input. The messages are those of a sub-graph inside."""

    def think(state: Any) -> Any:
        return {"messages": [model("Let me draft a reply.").invoke(state["messages"])]}

    inner: Any = StateGraph(MessagesState).add_node("think", think).add_edge(START, "think").compile()

    def draft(state: Ticket) -> Any:
        messages = inner.invoke({"messages": [("human", "Write a draft, in the style of the harbour.")]})["messages"]
        return {"messages": messages, "draft": messages[-1].text}

    def reply(state: Ticket) -> Any:
        return {
            "answer": model(ANSWER).invoke(PROMPT.invoke({"context": join(FACTS), "question": state["ticket"]})).text
        }

    builder: Any = StateGraph(Ticket).add_sequence([draft, reply]).add_edge(START, "draft")
    app = builder.compile(checkpointer=InMemorySaver(), interrupt_before=["reply"])
    app.invoke({"ticket": "When was the pier built?"}, thread("ticket"))
    app.update_state(thread("ticket"), {"ticket": QUESTION})
    app.invoke(None, thread("ticket"))

    first, second = captured.turns
    assert first.query == "When was the pier built?"
    assert (second.query, second.response, second.first_half_missing) == (QUESTION, ANSWER, True)


def test_what_waits_is_delivered_when_the_process_ends() -> None:
    """The exit submits turns that wait."""
    code = """
        import os, sys
        import rageval_hooks
        from langgraph.types import Command
        from tests.integrations.langchain.test_resuming import QUESTION, graph, thread
        from rageval_hooks.testing import InMemoryExporter

        class Printing(InMemoryExporter):
            def export(self, evaluation):
                print(evaluation.turn.status, evaluation.turn.query, flush=True)

        rageval_hooks.instrument(metrics=[], exporters=[Printing()])
        graph().invoke({"question": QUESTION}, thread("1"))
        child = os.fork()
        if not child:
            sys.exit()
        os.waitpid(child, 0)
    """
    # Not in a process of multiprocessing, as those of tests.warm are: there nothing waits.
    printed = run_script(textwrap.dedent(code))

    # Once: what was held before a fork is the parent's.
    assert printed.split("\n") == [f"interrupted {QUESTION}", ""]


# --------------------------------------------------------------------------- bounds


def test_the_oldest_is_delivered_when_too_many_wait(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first half becomes a turn without an answer."""
    monkeypatch.setattr(held_turns(), "max_turns", 2)
    app = graph()
    for name in "123":
        app.invoke({"question": QUESTION}, thread(name))
    assert len(held_turns()) == 2
    app.invoke(Command(resume="yes"), thread("3"))

    assert sorted((turn.session_id, turn.status) for turn in captured.turns) == [
        ("1", "interrupted"),
        ("2", "interrupted"),
        ("3", "ok"),
    ]


def test_the_oldest_is_delivered_when_too_much_waits() -> None:
    """What waits keeps within ``queue_max_mb``."""
    large = [Document(id="d1", page_content="The pier is long. " * 40_000)]
    with rageval_hooks.instrument(metrics=[], exporters=[InMemoryExporter()], queue_max_mb=1):
        app = graph(large)
        for name in "123":
            app.invoke({"question": QUESTION}, thread(name))
        assert len(held_turns()) == 1


def test_a_turn_that_waits_too_long_is_delivered(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is delivered when the next turn ends."""
    app = graph()
    app.invoke({"question": QUESTION}, thread("1"))
    later = held_turns().clock() + 3601 * 10**9
    monkeypatch.setattr(held_turns(), "clock", lambda: later)
    RunnableLambda(str).invoke("x")

    assert len(held_turns()) == 0
    assert [turn.status for turn in captured.turns] == ["interrupted", "ok"]


def test_a_forked_child_holds_nothing() -> None:
    """The parent process delivers what it holds."""
    turns = HeldTurns()
    turns.note_sampling("1", True)
    turns.reset_after_fork()

    assert (len(turns), turns.earlier_sampling("1")) == (0, None)


# --------------------------------------------------------------------------- sampling


@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_second_half_is_sampled_out_if_the_first_was(is_guarded: bool) -> None:
    """The whole turn is sampled out, and counted once. With a guard, turns that are sampled out are recorded too."""
    app, exporter = graph(), InMemoryExporter()
    guard = rageval_hooks.GroundingGuard(models="lexical") if is_guarded else None
    with rageval_hooks.instrument(metrics=[], exporters=[exporter], sample_rate=0.5) as handle:
        for number in range(40):
            app.invoke({"question": QUESTION}, thread(f"s{number}"))
        for number in range(40):
            app.invoke(Command(resume="yes"), thread(f"s{number}"))
        assert handle.flush(10)
        stats = handle.stats()

    assert stats["turns"] == 40
    del guard
    assert 0 < stats["sampled_out"] < 40
    assert {(evaluation.turn.query, evaluation.turn.response) for evaluation in exporter.evaluations} == {
        (QUESTION, ANSWER)
    }
    assert len(shared_recorder()) == 0


def test_a_resumed_turn_is_in_the_trace_of_the_call_that_resumed_it(captured: Captured) -> None:
    """That call returned the answer."""
    app, tracer = graph(), TracerProvider().get_tracer("app")
    with tracer.start_as_current_span("first request"):
        app.invoke({"question": QUESTION}, thread("1"))
    with tracer.start_as_current_span("second request") as span:
        app.invoke(Command(resume="yes"), thread("1"))

    assert captured.turn.span is not None
    assert captured.turn.span.trace_id == f"{span.get_span_context().trace_id:032x}"


class LocalValue:
    """Something large that a node has in a local variable."""


def test_a_held_turn_keeps_no_frame_of_the_application(captured: Captured) -> None:
    """The exception by which a node waits refers to the node's frame. The held turn has only its name and message."""
    alive: list[weakref.ref[LocalValue]] = []

    def wait(state: State) -> Any:
        local = LocalValue()
        alive.append(weakref.ref(local))
        return {"approved": interrupt("go on?")}

    builder = StateGraph(State).add_sequence([("wait", wait), ("write", write)]).add_edge(START, "wait")
    waiting = builder.compile(checkpointer=InMemorySaver())

    waiting.invoke({"question": QUESTION, "documents": FACTS}, thread("frames"))
    gc.collect()

    assert [reference() for reference in alive] == [None]
