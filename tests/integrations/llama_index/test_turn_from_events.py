"""``turn_from_events`` builds turns from records that the tests make; no framework runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rageval_hooks.integrations.capture.evidence import Evidence
from rageval_hooks.integrations.llama_index import turn_from_events
from rageval_hooks.integrations.llama_index.runs import LlamaIndexRun
from rageval_hooks.integrations.llama_index.turn_building import FRAMEWORK
from rageval_hooks.turn import Passage


def node(key: str, text: str) -> Any:
    return SimpleNamespace(node_id=key, text=text, metadata={"source": key})


def message(role: str, content: str) -> Any:
    return SimpleNamespace(role=role, content=content, blocks=[], additional_kwargs={})


def run(
    key: str, parent: LlamaIndexRun | None, kind: str, start: int, end: int | None, input: Any = None, **details: Any
) -> LlamaIndexRun:
    details = {"instance": object(), **details}
    return LlamaIndexRun(
        id=f"{key}-{0:036d}",
        parent=parent,
        framework=FRAMEWORK,
        kind=kind,
        name=key,
        input=input,
        started_at=start,
        ended_at=end,
        **details,
    )


PIER, FERRY = node("n1", "The pier was opened in 2019."), node("n2", "The ferry takes 18 minutes.")


def family() -> list[LlamaIndexRun]:
    """Return a query whose retriever found two nodes, whose reranker kept one, and whose model answered."""
    root = run("Engine.query", None, "query", 1_000, 9_000_000_000, {"str_or_query_bundle": "When?"})
    root.output = SimpleNamespace(response="In 2019.", source_nodes=[])
    root.metadata = {"session_id": "s1", "llamaindex.run_id": "x"}
    found = tuple(
        Passage(id=node.node_id, text=node.text, score=score, metadata=node.metadata)
        for node, score in ((PIER, 0.9), (FERRY, 0.4))
    )
    retriever = run("R.retrieve", root, "retriever", 2_000, 3_000, {"str_or_query_bundle": "when?"}, nodes_after=found)
    reranker = run(
        "P._postprocess_nodes", root, "reranker", 3_000, 4_000, {}, nodes_before=found, nodes_after=found[:1]
    )
    synthesizer = run("S.synthesize", root, "synthesizer", 4_000, 9_000, {}, nodes_before=found[:1])
    call = run("M.chat", synthesizer, "llm", 5_000, 8_000, [message("user", PIER.text + "\nWhen?")])
    call.output = SimpleNamespace(
        message=message("assistant", "In 2019."), raw={"model": "m-1", "usage": {"input_tokens": 9, "output_tokens": 3}}
    )
    call.first_token_at = 6_000
    return [root, retriever, reranker, synthesizer, call]


def test_a_turn() -> None:
    """The turn has everything that the records contain."""
    turn = turn_from_events(family(), attributes={"user.id": "u1", "metadata": {"tier": "gold"}})

    assert (turn.name, turn.framework) == ("Engine.query", "llama_index")
    assert (turn.query, turn.response, turn.status) == ("When?", "In 2019.", "ok")
    assert turn.retrieval_queries == ("when?",)
    passages = [(passage.id, passage.score, passage.in_prompt) for passage in turn.passages]
    assert passages == [("n1", 0.9, True), ("n2", 0.4, False)]
    assert [step.kind for step in turn.steps] == ["retriever", "reranker", "llm"]
    assert [passage.in_prompt for passage in turn.steps[0].passages] == [True, False]
    assert turn.model == "m-1"
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens) == (9, 3)
    assert (turn.session_id, turn.user_id) == ("s1", "u1")
    assert turn.metadata == {"tier": "gold", "session_id": "s1"}
    assert turn.timing is not None
    assert turn.timing.retrieval == 2e-6
    assert turn.timing.generation == 3e-6
    assert turn.timing.time_to_first_token == 5e-6


def test_searches_at_the_same_time_count_once() -> None:
    """The three ran from 2,000 to 4,000 ns."""
    root, retriever, *others = family()
    parallel = run("Q.retrieve", root, "retriever", 2_500, 3_500, {"str_or_query_bundle": "When?"}, nodes_after=())
    turn = turn_from_events([root, retriever, parallel, *others])

    assert turn.timing is not None
    assert turn.timing.retrieval == 2e-6


def test_records_are_not_changed() -> None:
    """The same records give the same turn again."""
    records = family()

    assert turn_from_events(records) == turn_from_events(records)


def test_a_search_inside_a_tool_is_not_noted_in_the_records() -> None:
    """Another setting of ``search_tools`` gives the turn that it gives with new records."""

    def records() -> list[LlamaIndexRun]:
        root = run("FunctionAgent.run", None, "agent", 1_000, 9_000, {"user_msg": "When?"})
        outer = run("search_guide", root, "tool", 2_000, 5_000, {"kwargs": {"query": "pier"}})
        inner = run("search_pages", outer, "tool", 3_000, 4_000, {"kwargs": {"query": "pier"}})
        outer.output, inner.output = f"The guide says: {PIER.text}", PIER.text
        call = run("M.chat", root, "llm", 6_000, 8_000, [message("user", f"When?\n{outer.output}")])
        call.output = SimpleNamespace(message=message("assistant", "In 2019."), raw=None)
        return [root, outer, inner, call]

    def tools_that_found(runs: list[LlamaIndexRun], setting: str) -> list[Any]:
        turn = turn_from_events(runs, evidence=Evidence(runs, [setting]))
        return [passage.metadata["tool"] for passage in turn.passages]

    runs = records()
    assert tools_that_found(runs, "!unknown") == ["search_pages"]
    assert tools_that_found(runs, "!search_pages") == tools_that_found(records(), "!search_pages") == ["search_guide"]


def test_every_step() -> None:
    """All runs but the root are steps, with their parents."""
    turn = turn_from_events(family(), every_step=True)

    assert [step.kind for step in turn.steps] == ["retriever", "reranker", "chain", "llm"]
    assert turn.steps[3].parent_id == turn.steps[2].id


def test_what_never_ended() -> None:
    """Steps that had not ended are incomplete, and end with the root."""
    records = family()
    records[4].ended_at = None
    records[0].ended_at = 7_000
    turn = turn_from_events(records)

    assert (turn.steps[-1].complete, turn.steps[-1].ended_at) == (False, 7_000)


def test_a_bare_root() -> None:
    """The root has no children."""
    turn = turn_from_events([run("Engine.query", None, "query", 1_000, None)])

    assert (turn.query, turn.response, turn.passages, turn.steps, turn.usage) == ("", "", (), (), None)


CALLS = [{"index": 0, "id": "1", "function": {"name": "search", "arguments": '{"query": "pier'}}]
BLOCK = SimpleNamespace(block_type="tool_call", tool_name="search", tool_call_id="1", tool_kwargs={"query": "pier"})


@pytest.mark.parametrize(
    ("content", "kwargs", "blocks", "expected"),
    [
        ("", {"tool_calls": CALLS}, [], ""),
        ("", {}, [BLOCK], ""),
        ('Thought: I need a tool.\nAction: search\nAction Input: {"query', {}, [], ""),
        ("Action: search", {}, [], ""),
        ("I look it up.", {"tool_calls": CALLS}, [], "I look it up."),
        ("It was opened in", {}, [], "It was opened in"),
    ],
)
def test_a_cancelled_agent(content: str, kwargs: Any, blocks: Any, expected: str) -> None:
    """A call of a tool is no answer; no user has seen it."""
    root = run("FunctionAgent.run", None, "agent", 1_000, 9_000, {"user_msg": "When?"}, cancelled=True)
    call = run("M.astream_chat", root, "llm", 2_000, None, [message("user", "When?")])
    call.output = SimpleNamespace(
        message=SimpleNamespace(role="assistant", content=content, blocks=blocks, additional_kwargs=kwargs), raw=None
    )

    turn = turn_from_events([root, call])

    assert (turn.status, turn.response) == ("cancelled", expected)


def test_a_method_inside_another_one_of_the_same_component_is_no_step() -> None:
    """An adapter's "retrieve" calls its own "_retrieve". A second retriever is a step."""
    root, retriever, *others = family()
    own = run("R._retrieve", retriever, "retriever", 2_100, 2_900, {}, nodes_after=(), instance=retriever.instance)
    other = run("Q.retrieve", retriever, "retriever", 2_200, 2_800, {}, nodes_after=())
    turn = turn_from_events([root, retriever, own, other, *others])

    assert [step.name for step in turn.steps if step.kind == "retriever"] == ["R.retrieve", "Q.retrieve"]
