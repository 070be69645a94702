"""Queues are bounded by count and by bytes, and the counters of turns add up at any moment."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableGenerator
from opentelemetry.context import Context

from rageval_hooks import Evaluation, Turn
from rageval_hooks.integrations.capture import deferred
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.testing import InMemoryExporter
from tests.local import make_turn
from tests.online.spool.test_spool import Graded

_OUTCOMES = ("evaluated", "in_progress", "sampled_out", "unsampled_traces", "without_retrieval", "dropped")


def adds_up(stats: dict[str, Any]) -> bool:
    """Return True if each turn is counted under exactly one outcome, and each drop under one cause."""
    by_cause = sum(stats["dropped_by_cause"].values())
    return stats["turns"] == sum(stats[name] for name in _OUTCOMES) and stats["dropped"] == by_cause


class LongPassages(BaseRetriever):
    """Returns one passage of some length."""

    size: int

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [Document(page_content="word " * (self.size // 5))]


def rag_turn(size: int = 10) -> Turn:
    return make_turn("word " * (size // 5), ["The pier was opened in 2019."], "question")


def broken() -> Turn:
    raise RuntimeError("the records are broken")


def test_the_counters_of_turns_add_up_at_any_moment() -> None:
    """Under load from four threads, with every outcome that a turn can have."""
    makers = [EndedTurn.of(rag_turn()), EndedTurn.of(make_turn("no passages")), EndedTurn(broken)]
    pipeline = Pipeline.build(
        metrics=["latency"], exporters=[InMemoryExporter()], sample_rate=0.5, queue_size=2, inline_budget_ms=1
    )
    finished = threading.Event()
    wrong: list[dict[str, Any]] = []

    def produce(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(150):
            context = pipeline.begin(Context())
            if context.selected:
                pipeline.submit(chosen.choice(makers), context, may_have_scores=chosen.random() < 0.5)

    def watch() -> None:
        while not finished.is_set():
            stats = pipeline.stats()
            if not adds_up(stats):
                wrong.append(stats)

    watcher = threading.Thread(target=watch)
    producers = [threading.Thread(target=produce, args=(seed,)) for seed in range(4)]
    for thread in (watcher, *producers):
        thread.start()
    for thread in producers:
        thread.join()
    assert not pipeline.flush(30)  # some turns could not be built
    assert pipeline.flush(30)
    finished.set()
    watcher.join()
    stats = pipeline.stats()
    pipeline.shutdown(10)

    assert wrong == []
    assert adds_up(stats)
    assert stats["turns"] == 600
    assert stats["in_progress"] == 0
    assert min(stats["evaluated"], stats["without_retrieval"], stats["dropped_by_cause"]["not_built"]) > 0


def streaming_chain(size: int) -> Any:
    """A chain that streams an answer about one long passage."""
    return LongPassages(size=size) | RunnableGenerator(_answer)


def _answer(passages: Iterator[Any]) -> Iterator[str]:
    list(passages)
    yield from ("The ", "answer.")


def test_turns_whose_streams_are_left_open_are_bounded_by_bytes(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest are abandoned, and counted with their cause; a log line says why."""
    handler = CallbackHandler(metrics=[], exporters=[InMemoryExporter()], queue_max_mb=1)
    streams = [streaming_chain(600_000).stream(f"{n}", {"callbacks": [handler]}) for n in range(4)]
    for stream in streams:
        next(stream)
    for stream in streams:
        list(stream)
    handler.flush(30)
    stats = handler.stats()

    assert adds_up(stats)
    assert (stats["turns"], stats["evaluated"], stats["dropped_by_cause"]["not_ended"]) == (4, 1, 3)
    assert "turns wait for their streams, with more than 1 MiB" in caplog.text


def test_deferred_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn whose stream was abandoned while too much waits for the threads is counted as dropped."""
    gate = threading.Event()
    handler = CallbackHandler(metrics=[], exporters=[InMemoryExporter()])
    monkeypatch.setattr(deferred, "_MAX_PENDING", 1)

    def block() -> None:
        gate.wait(30)

    blocking = deferred.hand_over(block)
    stream = streaming_chain(10).stream("question", {"callbacks": [handler]})
    next(stream)
    stream.close()
    stats = handler.stats()
    gate.set()
    blocking.result(30)

    assert adds_up(stats)
    assert (stats["turns"], stats["dropped_by_cause"]["queue_full"]) == (1, 1)


def test_a_queue_is_bounded_by_bytes() -> None:
    """A turn that does not fit is not judged, with the reason on its trace; one turn always fits."""
    gate = threading.Event()
    exporter = InMemoryExporter()

    async def wait(_: Any) -> dict[str, float]:
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, gate.wait, 30)
        return {"value": 1}

    pipeline = Pipeline.build(
        metrics=[Graded()], judge=FakeJudge(wait), exporters=[exporter], queue_max_mb=1, inline_budget_ms=0
    )
    for _ in range(4):
        pipeline.submit(EndedTurn.of(rag_turn(600_000)))
        # The queue of exports has the same bound.
        while pipeline.stats()["queues"]["export"]["pending"]:
            threading.Event().wait(0.01)
    gate.set()
    assert pipeline.flush(30)
    queue = pipeline.stats()["queues"]["evaluate"]
    pipeline.shutdown(10)

    assert (queue["accepted"], queue["dropped"], queue["dropped_by_size"]) == (1, 3, 3)
    assert queue["pending_bytes"] == 0
    results = list(exporter.results("graded"))
    assert [result.status for result in results].count("scored") == 1
    assert [result.status for result in results].count("skipped") == 3


@pytest.mark.parametrize("may_have_scores", [True, False])
def test_one_turn_is_always_exported_whatever_its_size(may_have_scores: bool) -> None:
    """Also a turn that is evaluated on the background thread, such as one that only a judge evaluates."""
    exporter = InMemoryExporter()
    pipeline = Pipeline.build(metrics=["latency"], exporters=[exporter], queue_max_mb=1)
    pipeline.submit(EndedTurn.of(rag_turn(2_000_000)), may_have_scores=may_have_scores)
    assert pipeline.flush(30)
    stats = pipeline.stats()
    pipeline.shutdown(10)

    assert (stats["evaluated"], stats["dropped"]) == (1, 0)
    assert stats["queues"]["export"]["accepted"] == 1
    assert [evaluation.stage for evaluation in exporter.evaluations].count("inline") == 1


def test_turns_that_wait_for_their_export_are_bounded_by_bytes(caplog: pytest.LogCaptureFixture) -> None:
    """The newest are dropped while an exporter hangs, and counted with their cause; a log line says so."""
    begun, go_on = threading.Event(), threading.Event()

    class Hanging(InMemoryExporter):
        def export(self, evaluation: Evaluation) -> None:
            begun.set()
            go_on.wait(30)
            super().export(evaluation)

    exporter = Hanging()
    pipeline = Pipeline.build(metrics=[], exporters=[exporter], queue_max_mb=1)
    pipeline.submit(EndedTurn.of(rag_turn()))
    assert begun.wait(30)
    for _ in range(3):
        pipeline.submit(EndedTurn.of(rag_turn(700_000)))
    go_on.set()
    assert pipeline.flush(30)
    stats = pipeline.stats()
    pipeline.shutdown(10)

    assert adds_up(stats)
    assert (stats["turns"], stats["dropped_by_cause"]["queue_full"], len(exporter.evaluations)) == (4, 2, 2)
    assert "turns wait for their export: newer ones are dropped [RAGEVAL-202]" in caplog.text
