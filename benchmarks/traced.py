"""What the span processor costs, and whether spans and callbacks give the same verdicts.

    python benchmarks/traced.py cost        # per span, next to what the application's own instrumentor adds
    python benchmarks/traced.py verdicts    # the same LangChain and LlamaIndex applications by callbacks and by spans

``cost``: an OpenAI client whose HTTP transport answers in memory, inside a span of the application, traced by
OpenInference. Rounds alternate between no instrumentor, the instrumentor, whose cost is the difference, and the
instrumentor with the processor of this package, whose cost is measured inside it. All is CPU time of the application's
thread, the least of the rounds, divided by the spans. Turns are built on another thread, and not evaluated.

``verdicts``: OpenInference's instrumentors run next to ``instrument()``; the turns are also built from their spans, and
evaluated by ``evaluate()``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks.integrations.opentelemetry import TracedSpan, turns_from_spans
from rageval_hooks.integrations.opentelemetry.processor import TurnSpanProcessor
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import TURN_POOL
from rageval_hooks.score import VERDICT
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Turn

YEARS = range(1901, 1941)
MAX_SHARE = 0.2
MIN_SAME = 0.95


def client() -> Any:
    """Return a client of OpenAI's that needs no server."""
    import httpx
    import openai

    message = {"role": "assistant", "content": "It was rebuilt in 1934."}
    usage = {"prompt_tokens": 400, "completion_tokens": 7, "total_tokens": 407}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini", "choices": [choice]}
    answer = json.dumps({**body, "usage": usage}).encode()
    headers = {"content-type": "application/json"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=answer))
    return openai.OpenAI(api_key="none", http_client=httpx.Client(transport=transport))


def cost(rounds: int, calls: int) -> dict[str, Any]:
    """Measure one round after the other, each of them with all three set-ups."""
    from openinference.instrumentation.openai import OpenAIInstrumentor

    passages = "\n\n".join(f"Lock {year} was rebuilt in {year}, and is {year} metres long." for year in YEARS)
    messages = [{"role": "user", "content": f"Context:\n{passages}\n\nQuestion: When was the lock rebuilt?"}]
    asked = client()
    processor = Timed()
    pipeline = Pipeline.build(exporters=[], models="lexical", sample_rate=0.0)
    provider, instrumentor = TracerProvider(), OpenAIInstrumentor()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("application")
    took: dict[str, list[float]] = {"bare": [], "instrumentor": [], "processor": []}
    for _ in range(rounds):
        for name in took:
            if name != "bare":
                instrumentor.instrument(tracer_provider=provider)
            processor.pipeline = pipeline if name == "processor" else None
            processor.seconds, began = 0.0, time.thread_time()
            for _ in range(calls):
                with tracer.start_as_current_span("ask"):
                    asked.chat.completions.create(model="gpt-4o-mini", messages=messages)
            took[name].append(processor.seconds if name == "processor" else time.thread_time() - began)
            if name != "bare":
                instrumentor.uninstrument()
            TURN_POOL.wait(60)
    pipeline.shutdown()
    least = {name: min(seconds) / calls * 1e6 for name, seconds in took.items()}
    of_instrumentor, of_processor = least["instrumentor"] - least["bare"], least["processor"] / 2
    return {
        "instrumentor, microseconds per span": round(of_instrumentor, 1),
        "processor, microseconds per span": round(of_processor, 1),
        "share": round(of_processor / of_instrumentor, 3),
    }


class Timed(TurnSpanProcessor):
    """Measures what it takes on the thread of the application."""

    seconds = 0.0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Time it."""
        began = time.thread_time()
        super().on_start(span, parent_context)
        self.seconds += time.thread_time() - began

    def on_end(self, span: Any) -> None:
        """Time it."""
        began = time.thread_time()
        super().on_end(span)
        self.seconds += time.thread_time() - began


def cases() -> Iterator[tuple[str, str, str]]:
    """Yield a question, a passage and an answer: right, wrong, half right, or none."""
    for year in YEARS:
        passage = f"The lock of canal {year} was rebuilt in {year}. It is {year % 90 + 10} metres long."
        question = f"When was the lock of canal {year} rebuilt?"
        answers = (
            f"The lock of canal {year} was rebuilt in {year}.",
            f"The lock of canal {year} was rebuilt in 1777.",
            f"It was rebuilt in {year} for 3 million crowns by Ada Holm.",
            "I do not know.",
        )
        yield question, passage, answers[year % 4]


def langchain(question: str, passage: str, answer: str) -> Iterator[Callable[[], Any]]:
    """Yield applications with LangChain: a chain, the same as a stream, and an agent that searches."""
    from langchain.agents import create_agent
    from langchain_core.documents import Document
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from tests.integrations.langchain import fakes

    other = Document(id="o", page_content="The ferry to Quern takes 18 minutes.")
    documents = [Document(id="d", page_content=passage), other]
    chain = fakes.lcel(answer, documents)
    yield lambda: chain.invoke(question)
    yield lambda: list(chain.stream(question))

    @tool
    def search_guide(query: str) -> str:
        """Search the guide."""
        return passage if query else ""

    def script(messages: list[Any]) -> Any:
        call = {"name": "search_guide", "args": {"query": "lock"}, "id": "c1"}
        return answer if messages[-1].type == "tool" else AIMessage("", tool_calls=[call])

    agent = create_agent(fakes.ScriptedChatModel(script=script), [search_guide])
    yield lambda: agent.invoke({"messages": [("user", question)]})


def llama_index(question: str, passage: str, answer: str) -> Iterator[Callable[[], Any]]:
    """Yield applications with LlamaIndex: a query engine, the same as a stream, and a chat engine."""
    from llama_index.core.chat_engine import ContextChatEngine
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.schema import NodeWithScore, TextNode

    from tests.integrations.llama_index import fakes

    nodes = [NodeWithScore(node=TextNode(id_="d", text=passage), score=0.9)]
    retriever, model = fakes.ScriptedRetriever(lambda _: nodes), fakes.llm(answer)
    engine = RetrieverQueryEngine.from_args(retriever, llm=model)
    yield lambda: engine.query(question)
    streamed = RetrieverQueryEngine.from_args(retriever, llm=model, streaming=True)
    yield lambda: list(streamed.query(question).response_gen)
    chat = ContextChatEngine.from_defaults(retriever=retriever, llm=model)
    yield lambda: chat.chat(question)


def verdict(results: Any) -> str:
    """Return the label of the verdict; empty without one."""
    return next((str(result.label) for result in results if result.name == VERDICT), "")


def verdicts() -> dict[str, Any]:
    """Run each application once, and compare."""
    from llama_index.core import set_global_tokenizer
    from openinference.instrumentation.langchain import LangChainInstrumentor
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

    memory, exporter, provider = InMemorySpanExporter(), InMemoryExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for kind in (LangChainInstrumentor, LlamaIndexInstrumentor):
        kind().instrument(tracer_provider=provider)
    set_global_tokenizer(str.split)  # the default one would be downloaded
    handle = rageval_hooks.instrument(exporters=[exporter], models="lexical", inline_budget_ms=60_000)
    same, total, seen = Counter[str](), Counter[str](), Counter[str]()
    for question, passage, answer in cases():
        for make in (langchain, llama_index):
            for number, run in enumerate(make(question, passage, answer)):
                memory.clear()
                exporter.clear()
                run()
                assert handle.flush(60)
                by_callbacks = [verdict(one.results) for one in exporter.evaluations if one.stage == "inline"]
                found = turns_from_spans(map(TracedSpan.of_sdk, memory.get_finished_spans()))
                turns = [one for one in found if isinstance(one, Turn)]
                by_spans = [verdict(rageval_hooks.evaluate(one, models="lexical").results) for one in turns]
                name = f"{make.__name__} {('chain', 'stream', 'agent or chat')[number]}"
                total[name] += 1
                same[name] += len(by_callbacks) == 1 and by_callbacks == by_spans
                seen.update(by_callbacks)
    handle.shutdown()
    shares = {name: f"{same[name]} of {total[name]}" for name in total}
    return {**shares, "verdicts": seen, "same": round(same.total() / total.total(), 4)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cost", "verdicts"))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=100)
    given = parser.parse_args()
    figures = cost(given.rounds, given.calls) if given.what == "cost" else verdicts()
    print(json.dumps(figures, indent=1))
    return 0 if figures.get("share", 0) <= MAX_SHARE and figures.get("same", 1) >= MIN_SAME else 1


if __name__ == "__main__":
    sys.exit(main())
