"""Whatever values an application passes through its chains: the turn is captured, and the application is unaffected.

The values are arrays and data frames without a truth value, numbers of thousands of digits, circular containers,
mappings with keys that are not strings, proxies without a target, and classes without a hash. Each is used wherever
a value of the application's own may occur.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.dispatcher import instrument_tags
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks.score import Evaluation
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain import fakes as langchain
from tests.integrations.llama_index import fakes as llama_index

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."


class Proxy:
    """A proxy without a target: every access raises."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("outside of a request")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("outside of a request")

    def __str__(self) -> str:
        raise RuntimeError("outside of a request")

    __repr__ = __str__

    def __bool__(self) -> bool:
        raise RuntimeError("outside of a request")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("outside of a request")

    __hash__ = object.__hash__


class Unhashable(type):
    """A metaclass whose classes have no hash."""

    def __eq__(cls, other: object) -> bool:
        return cls is other


class OfAnUnhashableClass(metaclass=Unhashable):
    """An instance of a class that cannot be a dictionary's key."""


class Unspeakable:
    """An object whose ``str`` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class UnspeakableError(Exception):
    """An exception whose ``str`` raises if its argument's does."""

    def __str__(self) -> str:
        return str(self.args[0])


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _well(depth: int) -> list[Any]:
    well: list[Any] = []
    for _ in range(depth):
        well = [well]
    return well


VALUES: dict[str, Any] = {
    "an array": np.arange(3.0),
    "an array in a dictionary": {"x": np.arange(2), "y": [np.arange(2)]},
    "not a number": np.float64("nan"),
    "keys that are tuples": {(1, 2): 3},
    "keys that are numpy's": {np.int64(1): 2},
    "a number of 400 digits": 10**400,
    "a number of 5000 digits": 10**5000,
    "a circle": _circle(),
    "a well": _well(3000),
    "a proxy": Proxy(),
    "a class without a hash": OfAnUnhashableClass(),
    "no text": Unspeakable(),
    "a lone surrogate": "\ud800",
    "bytes": b"\xff",
    "a class": int,
    "a complex number": 1j,
    "a set": {1, "a"},
}

Place = Callable[[Any], Any]


# --------------------------------------------------------------------------- LangChain


def chain(value: Any = None, **fields: Any) -> Any:
    return langchain.lcel(**fields).invoke(QUESTION)


def _answers(**fields: Any) -> Any:
    return RunnableLambda(lambda _: chain(**fields))


def _message(value: Any, field: str) -> Any:
    message = AIMessage(ANSWER)
    if field == "usage":
        message.usage_metadata = {"input_tokens": value, "output_tokens": 1, "total_tokens": 1}
    elif field == "content":
        message.content = [{"type": "text", "text": ANSWER}, {"type": "text", "text": value}, value]
    else:
        message.additional_kwargs["x"] = message.response_metadata["x"] = message.response_metadata["model"] = value
    return chain(answer=message)


def _tool(value: Any, returned: Any) -> Any:
    schema = {"type": "object", "properties": {"asked": {}}}
    tool = StructuredTool.from_function(lambda asked: returned, name="t", description="d", args_schema=schema)
    return RunnableLambda(lambda _: (tool.invoke({"asked": value}), chain())[1]).invoke(QUESTION)


def _failure(value: Any) -> Any:
    def fail(question: str) -> str:
        chain()
        raise UnspeakableError(value)

    with pytest.raises(UnspeakableError):
        RunnableLambda(fail).invoke(QUESTION)


def _documents(value: Any) -> list[Document]:
    metadata = {"a": value, "b": [value], "score": value, "id": value, 7: value}
    return [Document(page_content="The pier was opened in 2019.", metadata=metadata)]


LANGCHAIN: dict[str, Place] = {
    "input": lambda value: _answers().invoke(value),
    "a field of the input": lambda value: _answers().invoke({"question": QUESTION, "input": value, "z": value}),
    "messages": lambda value: _answers().invoke({"messages": [HumanMessage(QUESTION), value], "history": value}),
    "output": lambda value: (langchain.lcel() | RunnableLambda(lambda _: value)).invoke(QUESTION),
    "a field of the output": lambda value: (
        langchain.lcel() | RunnableLambda(lambda _: {"answer": value, "messages": value, "x": value})
    ).invoke(QUESTION),
    "a list of the output": lambda value: (langchain.lcel() | RunnableLambda(lambda _: [value])).invoke(QUESTION),
    "between two steps": lambda value: (
        RunnableLambda(lambda _: {"x": value}) | RunnableLambda(lambda _: QUESTION) | langchain.lcel()
    ).invoke(QUESTION),
    "streamed": lambda value: list((langchain.lcel() | RunnableLambda(lambda _: value)).stream(QUESTION)),
    "metadata of a document": lambda value: chain(documents=_documents(value)),
    "metadata of the call": lambda value: langchain.lcel().invoke(
        QUESTION, {"metadata": {"a": value, "session_id": value}}
    ),
    "a tool's argument": lambda value: _tool(value, "x"),
    "a tool's answer": lambda value: _tool("x", value),
    "a tool's artifact": lambda value: _tool("x", ToolMessage("x", tool_call_id="1", artifact=value)),
    "what the provider said": lambda value: _message(value, "response_metadata"),
    "token counts": lambda value: _message(value, "usage"),
    "blocks of content": lambda value: _message(value, "content"),
    "an exception's arguments": _failure,
}


# --------------------------------------------------------------------------- LlamaIndex


class RawLLM(llama_index.ScriptedLLM):
    """A model whose raw provider response the test chooses."""

    raw: Any = None

    def _raw(self) -> Any:
        return self.raw


def engine(nodes: list[NodeWithScore] | None = None, raw: Any = None) -> Any:
    found = nodes or [NodeWithScore(node=TextNode(text="The pier was opened in 2019.", id_="1"), score=0.5)]
    model = RawLLM(script=lambda messages: ANSWER, raw=raw)
    return RetrieverQueryEngine.from_args(llama_index.ScriptedRetriever(lambda query: found), llm=model)


def _span(given: Any = None, returned: Any = None, called: Callable[[], Any] | None = None) -> Any:
    @get_dispatcher().span
    def answered(question: str, input: Any) -> Any:
        if called is not None:
            called()
        response = engine().query(question)
        return response if returned is None else returned[0]

    return answered(QUESTION, given)


def _node(value: Any, score: Any = 0.5) -> list[NodeWithScore]:
    node = TextNode(text="The pier was opened in 2019.", id_="1")
    node.metadata = {"a": value, "b": [value]}
    found = NodeWithScore(node=node)
    found.score = score
    return [found]


def _tagged(value: Any) -> Any:
    with instrument_tags({"a": value, "session_id": value}):
        return engine().query(QUESTION)


def _function(value: Any, returned: Any) -> Any:
    tool = FunctionTool.from_defaults(lambda asked: returned, name="t", description="d")
    return _span(called=lambda: tool.call(asked=value))


LLAMA_INDEX: dict[str, Place] = {
    "an argument": lambda value: _span(given=value),
    "the result": lambda value: _span(returned=[value]),
    "a field of the result": lambda value: _span(returned=[{"answer": value, "result": value, "x": value}]),
    "metadata of a node": lambda value: engine(_node(value)).query(QUESTION),
    "a score": lambda value: engine(_node("x", value)).query(QUESTION),
    "tags": _tagged,
    "a tool's argument": lambda value: _function(value, "x"),
    "a tool's answer": lambda value: _function("x", value),
    "the provider's response": lambda value: engine(raw=value).query(QUESTION),
    "what the provider said": lambda value: engine(raw={"model": value, "usage": value}).query(QUESTION),
    "token counts": lambda value: engine(raw={"usage": {"prompt_tokens": value, "completion_tokens": 1}}).query(
        QUESTION
    ),
}


PLACES = {"langchain": LANGCHAIN, "llama_index": LLAMA_INDEX}
ASIDE = frozenset(
    {
        "a field of the input",
        "between two steps",
        "metadata of a document",
        "metadata of the call",
        "a tool's argument",
        "a tool's answer",
        "a tool's artifact",
        "what the provider said",
        "token counts",
        "an argument",
        "metadata of a node",
        "a score",
        "tags",
        "the provider's response",
    }
)
"""Where a value is neither the question nor the answer, and both are read."""


def outcome(place: Place, value: Any) -> str | None:
    """Return what the application sees: the class of the exception, if there is one."""
    try:
        contextvars.copy_context().run(place, value)
    except Exception as error:
        return type(error).__name__
    return None


@cache
def outcomes_alone(framework: str, where: str) -> dict[str, str | None]:
    """Return what the application sees without the package, for each value. Both settings are compared with it."""
    return {name: outcome(PLACES[framework][where], value) for name, value in VALUES.items()}


def _ignore(evaluation: Evaluation) -> None:
    pass


@pytest.mark.parametrize("settings", [{"spans": "rag"}, {"spans": "all", "on_evaluation": _ignore}], ids=["rag", "all"])
@pytest.mark.parametrize(
    ("framework", "where"),
    [*(("langchain", name) for name in LANGCHAIN), *(("llama_index", name) for name in LLAMA_INDEX)],
)
@pytest.mark.filterwarnings("ignore")
def test_the_turn_is_there(framework: str, where: str, settings: dict[str, Any]) -> None:
    """Each call gives one exported turn, built at once or (with a callback) later, and no error of ours is counted."""
    place = PLACES[framework][where]
    alone = outcomes_alone(framework, where)
    exporter, spans_seen = InMemoryExporter(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans_seen))
    with rageval_hooks.instrument(
        metrics=[], exporters=[exporter, "otel"], tracer_provider=provider, **settings
    ) as handle:
        for name, value in VALUES.items():
            exporter.clear()
            spans_seen.clear()
            watched = outcome(place, value)
            assert handle.flush(10)
            stats = handle.stats()

            assert watched == alone[name], name
            assert (len(exporter.evaluations), stats["internal_errors"], stats["export_errors"]) == (1, 0, 0), name
            assert sum(span.name == "rag" or span.parent is None for span in spans_seen.get_finished_spans()) == 1, name
            [turn] = [evaluation.turn for evaluation in exporter.evaluations]
            if where in ASIDE and alone[name] is None and type(value) is not str:  # a text might be the question
                assert (turn.query, turn.response, len(turn.passages) > 0) == (QUESTION, ANSWER, True), name


def test_a_value_that_cannot_be_copied_costs_no_other_copy() -> None:
    """What the application changes next to it after the call does not count."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[exporter]) as handle:
        given: dict[str, Any] = {"odd": OfAnUnhashableClass(), "messages": [HumanMessage("When?")]}
        RunnableLambda(lambda state: AIMessage("In 2019.")).invoke(given)
        given["messages"].append(HumanMessage("And who built it?"))
        assert handle.flush(10)

    assert [evaluation.turn.query for evaluation in exporter.evaluations] == ["When?"]
