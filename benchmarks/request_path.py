"""How long does an application wait for the local scores?

    python benchmarks/request_path.py                          # some minutes
    python benchmarks/request_path.py --turns 40

A LangChain RAG chain: a retriever that returns five new passages, and a model that takes 500 ms and
streams. In the same process, rounds alternate between an empty callback handler (the control) and `instrument()` with
all local metrics, so that the machine's speed is the same for both. The embedder is all-MiniLM-L6-v2; the cross-encoder
has the architecture of ms-marco-MiniLM-L-6-v2 with random weights (they cost the same); spaCy has its rule-based
stand-in.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.fakes import ScriptedRetriever
from tests.tiny_models import build_cross_encoder

MODEL_SECONDS = 0.5
CHUNKS = 20
PASSAGES = 5
PASSAGE_WORDS = 130  # about 800 characters
WORDS = """
harbour pier bridge ferry museum council budget engineer concrete steel opened built measured repaired visitors winter
summer storm water depth metres million euros architect company contract north south island lighthouse railway station
""".split()
_numbers = itertools.count()
_random = random.Random(7)


def sentence(words: int) -> str:
    """Return a sentence that no other text contains."""
    chosen = _random.choices(WORDS, k=words)
    return f"{' '.join(chosen).capitalize()} in {1900 + next(_numbers) % 120} number {next(_numbers)}."


def passage() -> Document:
    """Return a passage that has never been seen."""
    return Document(" ".join(sentence(13) for _ in range(PASSAGE_WORDS // 13)), id=str(next(_numbers)))


class StreamingModel(BaseChatModel):
    """Answers with two sentences of the passages, in chunks over some seconds."""

    seconds: float = MODEL_SECONDS

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _answer(self, messages: Sequence[BaseMessage]) -> list[str]:
        text = str(messages[-1].content)
        words = " ".join(text.split(". ")[1:4]).split(" ")
        size = max(1, len(words) // CHUNKS)
        return [" ".join(words[start : start + size]) + " " for start in range(0, len(words), size)]

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("".join(self._answer(messages))))])

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        chunks = self._answer(messages)
        for chunk in chunks:
            time.sleep(self.seconds / len(chunks))
            yield ChatGenerationChunk(message=AIMessageChunk(chunk))

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        chunks = self._answer(messages)
        for chunk in chunks:
            await asyncio.sleep(self.seconds / len(chunks))
            yield ChatGenerationChunk(message=AIMessageChunk(chunk))


def make_chain(seconds: float = MODEL_SECONDS) -> Runnable[str, Any]:
    """Return the application."""
    retriever = ScriptedRetriever(find=lambda _: [passage() for _ in range(PASSAGES)])
    prompt = ChatPromptTemplate.from_template("Context: {context}\nQuestion: {question}")
    joined = retriever | RunnableLambda(lambda found: "\n".join(document.page_content for document in found))
    return {"context": joined, "question": RunnableLambda(str)} | prompt | StreamingModel(seconds=seconds)


@dataclass
class Recorded:
    """The times of one configuration.

    Attributes:
        turns: seconds per turn, from the call to the last chunk.
        cpu: CPU seconds of the process, background work included.
        wall: seconds until all turns had their answers.
        loop_delays: how late an event loop's timers fired, in seconds.
    """

    turns: list[float] = field(default_factory=list)
    cpu: float = 0.0
    wall: float = 0.0
    loop_delays: list[float] = field(default_factory=list)


def question() -> str:
    return f"When was the {_random.choice(WORDS)} number {next(_numbers)} opened?"


def run_threads(
    chain: Runnable[str, Any], turns: int, concurrency: int, config: Any, into: Recorded, together: bool = False
) -> None:
    """Ask on threads; each reads its stream to the end.

    Args:
        chain: the application.
        turns: how many.
        concurrency: the number of threads.
        config: for the chain.
        into: where to record the times.
        together: begin, and so end, the turns of all threads at the same moment; without it they are spread evenly.
    """

    def ask(number: int) -> float:
        if number < concurrency and not together:
            time.sleep(number * MODEL_SECONDS / concurrency)
        started = time.perf_counter()
        for _chunk in chain.stream(question(), config):
            pass
        return time.perf_counter() - started

    started = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        into.turns += pool.map(ask, range(turns))
    into.wall += time.perf_counter() - started


async def run_tasks(chain: Runnable[str, Any], turns: int, concurrency: int, config: Any, into: Recorded) -> None:
    """Ask in an event loop, and measure how late its timers fire."""
    slots, done = asyncio.Semaphore(concurrency), asyncio.Event()

    async def tick() -> None:
        while not done.is_set():
            expected = time.perf_counter() + 0.005
            await asyncio.sleep(0.005)
            into.loop_delays.append(time.perf_counter() - expected)

    async def ask() -> None:
        async with slots:
            async for _chunk in chain.astream(question(), config):
                pass

    ticking = asyncio.create_task(tick())
    await asyncio.gather(*(ask() for _ in range(turns)))
    done.set()
    await ticking


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile, in milliseconds."""
    ordered = sorted(values)
    return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cross_encoder(folder: Path) -> str:
    """Write a cross-encoder of the size of ms-marco-MiniLM-L-6-v2 with random weights; return its path."""
    from transformers import BertConfig, BertForSequenceClassification

    build_cross_encoder(folder)  # for the tokenizer
    size = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    BertForSequenceClassification(BertConfig(num_labels=1, **size)).save_pretrained(folder)
    return str(folder)


class Comparison:
    """Alternating rounds of the control, an empty callback handler, and of ours."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self._rounds = rounds
        self._models = {"cross_encoder": cross_encoder(folder / "cross-encoder"), "nlp": "lexical"}

    def measure(self, run: Callable[[Any, Recorded], None], **options: Any) -> tuple[Recorded, Recorded, float]:
        """Return the control's times, ours, and the share of scores inline.

        Args:
            run: runs some turns with a config, and records them.
            options: further arguments of ``instrument()``.
        """
        control, ours, stages = Recorded(), Recorded(), Counter[str]()
        for _ in range(self._rounds):
            before = time.process_time()
            run({"callbacks": [BaseCallbackHandler()]}, control)
            control.cpu += time.process_time() - before
            exporter = InMemoryExporter()
            with rageval_hooks.instrument(exporters=[exporter], models=self._models, **options) as handle:
                deadline = time.monotonic() + 300
                while "loading" in handle.stats()["models"].values() and time.monotonic() < deadline:
                    time.sleep(0.05)
                # What was loaded makes Python run its garbage collector in full once, which takes some 300 ms.
                gc.collect()
                before = time.process_time()
                run({}, ours)
                handle.flush(120)
                ours.cpu += time.process_time() - before
            for evaluation in exporter.evaluations:
                stages[evaluation.stage] += len(evaluation.results)
        return control, ours, stages["inline"] / max(1, stages["inline"] + stages["background"])


def row(name: str, control: Recorded, ours: Recorded, inline: float) -> dict[str, Any]:
    turns = len(ours.turns)
    return {
        "case": name,
        "turns": turns,
        "added_p50_ms": round(percentile(ours.turns, 0.5) - percentile(control.turns, 0.5), 1),
        "added_p99_ms": round(percentile(ours.turns, 0.99) - percentile(control.turns, 0.5), 1),
        "control_p99_ms": round(percentile(control.turns, 0.99) - percentile(control.turns, 0.5), 1),
        "inline_share": round(inline, 3),
        "added_cpu_ms_per_turn": round(1000 * (ours.cpu - control.cpu) / turns, 1),
    }


def main() -> None:
    """Measure and print a line of JSON for each case, at once: all together take minutes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=100, help="turns per case and configuration")
    parser.add_argument("--rounds", type=int, default=4, help="alternations of control and ours per case")
    options = parser.parse_args()
    os.environ.pop("RAGEVAL_INLINE_BUDGET_MS", None)
    turns = max(1, options.turns // options.rounds)
    chain, instant = make_chain(), make_chain(0.0)

    def show(found: dict[str, Any]) -> None:
        print(json.dumps(found), flush=True)

    with tempfile.TemporaryDirectory() as name:
        comparison = Comparison(Path(name), options.rounds)
        comparison.measure(lambda config, into: run_threads(chain, 2, 2, config, into))  # warm up
        for concurrency, together in ((1, False), (8, False), (8, True)):
            run = partial(run_threads, chain, turns, concurrency, together=together)
            moment = ", all at the same moment" if together else ""
            show(row(f"threads, concurrency {concurrency}{moment}", *comparison.measure(run)))

        found = comparison.measure(partial(run_threads, instant, 10 * turns, 1), sample_rate=0)
        show(row("sampled out, one thread, a model that takes no time", *found))
        # Saturation: a model that takes no time, as many threads as keep the machine busy.
        control, ours, _ = comparison.measure(partial(run_threads, instant, 2 * turns, 8))
        show(
            {
                "case": "saturation, 8 threads",
                "control_turns_per_s": round(len(control.turns) / control.wall, 1),
                "turns_per_s": round(len(ours.turns) / ours.wall, 1),
            }
        )
        control, ours, _ = comparison.measure(
            lambda config, into: asyncio.run(run_tasks(chain, 2 * turns, 8, config, into))
        )
        show(
            {
                "case": "event loop, concurrency 8",
                "control_delay_p99_ms": round(percentile(control.loop_delays, 0.99), 2),
                "delay_p99_ms": round(percentile(ours.loop_delays, 0.99), 2),
                "delay_max_ms": round(1000 * max(ours.loop_delays), 1),
            }
        )


if __name__ == "__main__":
    main()
