"""A process of benchmarks/overhead.py: one application, and one tool that watches it or not. Runs in any environment.

Reads one JSON object per line, ``{"on": …, "mode": …, "threads": …, "turns": …}``, and answers each with one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _peer_tools import ATTACH, Attached

QUESTION = "How long does a repair of the pier take, and who pays for it?"
ANSWER = (
    "A repair of the pier takes about six weeks, because the planks are cut to measure. The city pays for it; "
    "the boat club gives a tenth of the sum, as the lease of 2019 says."
)
SENTENCE = "The pier was opened in 2019 and is looked after by the harbour office, whose crew checks plank {}-{}. "
PASSAGES = ["".join(SENTENCE.format(number, line) for line in range(8))[:800] for number in range(5)]

Turns = Callable[[int], Sequence[int]]


def percentile(values: Sequence[int], share: float) -> float:
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


def _peak(attached: Attached, run: Callable[[], object], turns: int = 7) -> tuple[float, float]:
    """Return, per turn, the most bytes that were held at a time and the bytes that are still held after it."""
    tracemalloc.start()
    peaks, kept = [], []
    try:
        for _ in range(turns):
            gc.collect()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            run()
            now, peak = tracemalloc.get_traced_memory()
            peaks.append(peak - before)
            kept.append(now - before)
            attached.flush()
    finally:
        tracemalloc.stop()
    return percentile(peaks, 0.5), percentile(kept, 0.5)


class Application:
    """A RAG application: one turn, synchronous, asynchronous or streamed."""

    chain: Any = None

    def sync(self, attached: Attached) -> None:
        raise NotImplementedError

    async def asynchronous(self, attached: Attached) -> None:
        raise NotImplementedError

    def stream(self, attached: Attached) -> None:
        raise NotImplementedError

    # -- many of them

    def measure(self, attached: Attached, mode: str, threads: int, turns: int) -> dict[str, Any]:
        self._alone(attached, mode, 2)
        gc.collect()
        attached.flush()
        cpu, started = time.process_time(), time.perf_counter()
        times = self._concurrently(attached, mode, threads, turns)
        elapsed = time.perf_counter() - started
        attached.flush()
        cpu = time.process_time() - cpu
        # Many threads share one interpreter: there the time of a turn is the time that passes per turn.
        middle = percentile(times, 0.5) / 1e6 if threads == 1 else elapsed / turns * 1e3
        return {"turn": middle, "cpu": cpu / turns * 1e3, "times": times}

    def memory(self, attached: Attached, mode: str) -> dict[str, float]:
        peak, kept = _peak(attached, lambda: self._alone(attached, mode, 1))
        return {"peak": peak / 1024, "kept": kept / 1024}

    def _concurrently(self, attached: Attached, mode: str, threads: int, turns: int) -> list[int]:
        if threads == 1:
            return self._alone(attached, mode, turns)
        share = turns // threads
        if mode == "async":
            return asyncio.run(self._tasks(attached, threads, share))
        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(self._alone, attached, mode, share) for _ in range(threads)]
            return list(chain.from_iterable(future.result() for future in futures))

    def _alone(self, attached: Attached, mode: str, turns: int) -> list[int]:
        if mode == "async":
            return asyncio.run(self._tasks(attached, 1, turns))
        run = {"sync": self.sync, "stream": self.stream}[mode]
        times = []
        for _ in range(turns):
            started = time.perf_counter_ns()
            run(attached)
            times.append(time.perf_counter_ns() - started)
        return times

    async def _tasks(self, attached: Attached, tasks: int, turns: int) -> list[int]:
        async def one() -> list[int]:
            times = []
            for _ in range(turns):
                started = time.perf_counter_ns()
                await self.asynchronous(attached)
                times.append(time.perf_counter_ns() - started)
            return times

        return list(chain.from_iterable(await asyncio.gather(*(one() for _ in range(tasks)))))


def langchain_application() -> Application:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableLambda, RunnablePassthrough

    pieces = ANSWER.split(" ")
    usage = {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050}

    class Model(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "fake"

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage(ANSWER, usage_metadata=usage))])

        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            return self._generate(messages)

        def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            for piece in pieces:
                chunk = ChatGenerationChunk(message=AIMessageChunk(piece + " "))
                if run_manager is not None:
                    run_manager.on_llm_new_token(piece + " ", chunk=chunk)
                yield chunk
            yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=usage))

    class Retriever(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> Any:
            return [
                Document(page_content=text, id=f"p{number}", metadata={"source": "handbook.md", "page": number})
                for number, text in enumerate(PASSAGES)
            ]

        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            return self._get_relevant_documents(query, run_manager=run_manager)

    def joined(documents: Any) -> str:
        return "\n\n".join(document.page_content for document in documents)

    async def ajoined(documents: Any) -> str:
        return joined(documents)

    prompt = ChatPromptTemplate.from_messages(
        [("system", "Answer from these passages only.\n\n{context}"), ("human", "{question}")]
    )
    rag: Any = (
        {"context": Retriever() | RunnableLambda(joined, ajoined), "question": RunnablePassthrough()}
        | prompt
        | Model()
        | StrOutputParser()
    )

    class LangChain(Application):
        chain = rag

        def sync(self, attached: Attached) -> None:
            rag.invoke(QUESTION, config=attached.config())

        async def asynchronous(self, attached: Attached) -> None:
            await rag.ainvoke(QUESTION, config=attached.config())

        def stream(self, attached: Attached) -> None:
            for _ in rag.stream(QUESTION, config=attached.config()):
                pass

    return LangChain()


def llama_index_application() -> Application:
    from llama_index.core import PromptTemplate
    from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
    from llama_index.core.llms import CustomLLM
    from llama_index.core.llms.callbacks import llm_completion_callback
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.response_synthesizers import SimpleSummarize
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    pieces = ANSWER.split(" ")

    class Model(CustomLLM):
        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(model_name="fake", context_window=100_000)

        @llm_completion_callback()
        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
            return CompletionResponse(text=ANSWER)

        @llm_completion_callback()
        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            def written() -> Any:
                text = ""
                for piece in pieces:
                    text += piece + " "
                    yield CompletionResponse(text=text, delta=piece + " ")

            return written()

    class Retriever(BaseRetriever):
        def _retrieve(self, query_bundle: Any) -> Any:
            return [
                NodeWithScore(
                    node=TextNode(text=text, id_=f"p{number}", metadata={"source": "handbook.md", "page": number}),
                    score=0.9 - number / 10,
                )
                for number, text in enumerate(PASSAGES)
            ]

        async def _aretrieve(self, query_bundle: Any) -> Any:
            return self._retrieve(query_bundle)

    template = PromptTemplate("Answer from these passages only.\n\n{context_str}\n\n{query_str}")

    def engine(streaming: bool) -> RetrieverQueryEngine:
        model = Model()
        writer = SimpleSummarize(llm=model, text_qa_template=template, streaming=streaming)
        return RetrieverQueryEngine(Retriever(), response_synthesizer=writer)

    plain, streaming = engine(False), engine(True)

    class LlamaIndex(Application):
        def sync(self, attached: Attached) -> None:
            plain.query(QUESTION)

        async def asynchronous(self, attached: Attached) -> None:
            await plain.aquery(QUESTION)

        def stream(self, attached: Attached) -> None:
            for _ in streaming.query(QUESTION).response_gen:
                pass

    return LlamaIndex()


APPLICATIONS = {"langchain": langchain_application, "llama_index": llama_index_application}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the tools print
    logging.disable(logging.WARNING)
    name, tool, setup = sys.argv[1:4]
    application = APPLICATIONS[name]()
    attached = ATTACH[tool](name, setup)
    for on in (True, False):
        attached.switch(on)
        for mode in ("sync", "async", "stream"):  # warm up
            warnings.simplefilter("ignore")  # LangChain puts its own in front; to print them all would take time
            application.measure(attached, mode, 1, 20)
    gc.collect()
    gc.freeze()  # what the imports have left: not to be looked through again and again
    print(json.dumps({"versions": attached.versions()}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        attached.switch(order.pop("on"))
        if order.pop("memory", False):
            found: Any = application.memory(attached, order["mode"])
        else:
            found = application.measure(attached, **order)
        found["seen"] = attached.seen()
        print(json.dumps(found), file=answers, flush=True)
    with suppress(Exception):
        attached.switch(False)
    os._exit(0)


if __name__ == "__main__":
    main()
