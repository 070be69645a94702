"""The request path: calls wait for local scores only where they must, and passages are prepared early."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

import rageval_hooks
from rageval_hooks import Evaluation, LocalMetric, ScoreDefinition, metric
from rageval_hooks.integrations.capture.deferred import hand_over
from rageval_hooks.metrics.support import turn_analysis
from rageval_hooks.models import Models
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.pending import DONE
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.preparation import Preparer
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.runtime.pool import Priority, local_pool
from rageval_hooks.settings import ModelSettings
from rageval_hooks.testing import InMemoryExporter
from rageval_hooks.turn import Passage, Turn
from tests.integrations.langchain.fakes import PROMPT, lcel, model, retriever

QUESTION = "When was the pier opened?"


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def blocking(gate: threading.Event) -> Any:
    @metric
    def waits(turn: Any) -> float:
        """Compute until the test allows it to end."""
        assert gate.wait(30)
        return 1.0

    return waits


def sync_call() -> None:
    lcel().invoke(QUESTION)


def async_call() -> None:
    asyncio.run(lcel().ainvoke(QUESTION))


def streamed_call() -> None:
    assert "".join(lcel().stream(QUESTION))


@pytest.mark.parametrize("call", [sync_call, async_call, streamed_call])
def test_a_call_does_not_wait_for_its_scores(call: Callable[[], None], gate: threading.Event) -> None:
    """They are on the turn's span all the same: that is written once they are there, or the budget is used up."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[blocking(gate)], exporters=[exporter], inline_budget_ms=60_000) as handle:
        call()  # would take 30 seconds
        assert exporter.evaluations == []
        gate.set()
        assert handle.flush(30)

    assert [(evaluation.stage, len(evaluation.scores)) for evaluation in exporter.evaluations] == [("inline", 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
def test_local_metrics_stand_back_behind_the_application() -> None:
    """Where models compute on all cores, each chunk of an answer would wait for one."""
    found: list[int] = []

    @metric
    def notes_its_priority(turn: Any) -> float:
        """Note the priority of the thread."""
        found.append(os.nice(0))
        return 1.0

    own = os.nice(0)
    with rageval_hooks.instrument(metrics=[notes_its_priority], exporters=[]) as handle:
        sync_call()
        assert handle.flush(30)

    assert found == [min(19, own + 10)]
    assert os.nice(0) == own


@pytest.mark.parametrize("call", [sync_call, async_call, streamed_call])
def test_a_metric_that_takes_forever_delays_a_callback_by_the_budget_only(
    call: Callable[[], None], gate: threading.Event
) -> None:
    """With ``on_evaluation`` a call waits for scores, but not while the metric still computes."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(
        metrics=[blocking(gate)], exporters=[exporter], inline_budget_ms=50, on_evaluation=lambda evaluation: None
    ) as handle:
        started = time.monotonic()
        call()
        took = time.monotonic() - started
        assert exporter.evaluations == []
        gate.set()
        assert handle.flush(30)

    assert took < 10, "the metric would have taken 30 seconds"
    assert [score.value for evaluation in exporter.evaluations for score in evaluation.scores] == [1.0]


def test_scores_that_are_ready_in_time_are_on_the_turn() -> None:
    """There is one evaluation, the inline one, and the callback had it when the call returned."""
    seen: list[Evaluation] = []
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=["latency"], exporters=[exporter], on_evaluation=seen.append) as handle:
        sync_call()
        assert [evaluation.stage for evaluation in seen] == ["inline"]
        assert handle.flush(30)

    assert [evaluation.stage for evaluation in exporter.evaluations] == ["inline"]
    assert exporter.evaluations[0]["latency"] > 0


def test_with_a_budget_of_zero_every_score_is_late() -> None:
    """The turn's span has none, and calls never wait."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=["latency"], exporters=[exporter], inline_budget_ms=0) as handle:
        sync_call()
        assert handle.flush(30)

    assert [(e.stage, bool(e.scores)) for e in exporter.evaluations] == [("inline", False), ("background", True)]


def test_a_call_does_not_wait_behind_a_queue(gate: threading.Event) -> None:
    """With many evaluations in progress the budget is not spent on waiting in vain."""
    with rageval_hooks.instrument(
        metrics=[blocking(gate)], exporters=[], inline_budget_ms=200, on_evaluation=lambda evaluation: None
    ) as handle:
        for _ in range(20):
            asyncio.run(asyncio.wait_for(lcel().ainvoke(QUESTION), 30))
        started = time.monotonic()
        for _ in range(20):
            sync_call()
        took = time.monotonic() - started
        gate.set()
        assert handle.flush(30)
        assert handle.stats()["turns"] == 40

    assert took < 20 * 0.2, "20 waits of 200 ms"


def test_callbacks_that_flush_do_not_wait_for_each_other() -> None:
    """Both threads of the pool may run one."""
    flushed: list[bool] = []
    with rageval_hooks.instrument(
        metrics=["latency"], exporters=[], on_evaluation=lambda _: flushed.append(handle.flush(30))
    ) as handle:
        threads = [threading.Thread(target=sync_call) for _ in range(4)]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert handle.flush(30)

    assert len(flushed) == 4
    assert time.monotonic() - started < 20


def test_after_a_shutdown_the_process_has_the_threads_that_it_had_before() -> None:
    """Also after many of them."""
    before = set(threading.enumerate())
    for _ in range(100):
        with rageval_hooks.instrument(metrics=["latency"], exporters=["otel"]):
            sync_call()
    deadline = time.monotonic() + 30
    while (new := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        threading.Event().wait(0.01)

    # What other tests have begun to load may still be loading.
    assert [thread.name for thread in new if "rageval-load" not in thread.name] == []


class Free(LocalMetric):
    name = "free"
    scores = (ScoreDefinition(name="free", description="one", high=1.0),)

    def evaluate(self, analysis: turn_analysis.TurnAnalysis) -> Any:
        computed.append(self.name)
        return self.score(1.0)


class Reading(Free):
    name = "reading"
    scores = (ScoreDefinition(name="reading", description="one", high=1.0),)
    requires = ("passages",)


class NeedsModel(Free):
    name = "needs_model"
    scores = (ScoreDefinition(name="needs_model", description="one", high=1.0),)
    models = ("embedder",)

    def evaluate(self, analysis: turn_analysis.TurnAnalysis) -> Any:
        analysis.embed(analysis.turn.query)
        return super().evaluate(analysis)


computed: list[str] = []


def test_what_costs_least_comes_first() -> None:
    """It is certain to be ready in time. Models come after the rules of other turns that have ended."""
    computed.clear()
    engine = Engine([NeedsModel(), Reading(), Free()], Models(ModelSettings(embedder="not-loaded", nlp="lexical")))
    turn = Turn(query=QUESTION, response="In 1869.", passages=(Passage(text="It opened in 1869."),))
    steps = engine.local_steps(engine.job(turn), engine.analyze(turn, time.perf_counter() + 30))

    assert next(steps) is Priority.MODELS
    assert computed == ["free", "reading"]
    with pytest.raises(StopIteration) as end:
        next(steps)
    evaluation, late = end.value.value
    assert [score.name for score in evaluation.scores] == ["reading", "free"]
    assert late.names == ("needs_model",)


def test_a_model_that_does_not_load_delays_its_own_metrics_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that does not answer: the scores of the other models, and of no model, are there."""
    monkeypatch.setattr("rageval_hooks.models._LOADERS", {"embedder": lambda _: threading.Event().wait(60)})
    seen: list[str] = []
    arrived = threading.Event()

    def note(evaluation: Evaluation) -> None:
        seen.extend(score.name for score in evaluation.scores)
        if {"free", "reading"} <= set(seen):
            arrived.set()

    settings = {"embedder": "/", "nlp": "lexical", "cross_encoder": "lexical", "load_timeout": 5}
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(
        metrics=[NeedsModel(), Reading(), Free()],
        models=settings,
        exporters=[exporter],
        on_evaluation=note,
        inline_budget_ms=0,
    ) as handle:
        sync_call()
        assert arrived.wait(4)
        assert handle.flush(30)

    [missing] = exporter.results("needs_model")
    assert "loading took longer than 5 seconds" in missing.reason  # type: ignore[union-attr]


class TestPreparation:
    def test_passages_are_analysed_before_the_answer_exists(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As soon as the retriever returns them, while the model still writes."""
        analysed = threading.Event()
        original = turn_analysis.cached_index

        def noting(text: str) -> Any:
            found = original(text)
            analysed.set()
            return found

        monkeypatch.setattr(turn_analysis, "cached_index", noting)

        def write(prompt: Any) -> Any:
            assert analysed.wait(30), "the passages wait for the answer"
            return model().invoke(prompt)

        chain = {"context": retriever() | str, "question": RunnableLambda(str)} | PROMPT | RunnableLambda(write)
        with rageval_hooks.instrument(metrics=["groundedness"], models="lexical", exporters=[]) as handle:
            chain.invoke(QUESTION)
            assert handle.flush(30)
            assert handle.stats()["scored"] > 0

    def test_what_was_prepared_gives_the_same_scores(self) -> None:
        """Preparation changes when passages are analysed, not what is found."""
        found = []
        for documents in (None, [*retriever().invoke(QUESTION)]):
            exporter = InMemoryExporter()
            with rageval_hooks.instrument(models="lexical", exporters=[exporter]) as handle:
                lcel(documents=documents).invoke(QUESTION) if documents else sync_call()
                assert handle.flush(30)
            scores = {s.name: s.value for e in exporter.evaluations for s in e.scores}
            found.append({name: value for name, value in scores.items() if not name.startswith("latency")})

        assert found[0] == found[1]

    def test_turns_that_end_before_their_preparation_are_forgotten(self, gate: threading.Event) -> None:
        """Under load the newest turn comes first, so that the preparation of older ones may never begin."""
        for _ in range(2):
            local_pool().submit(gate.wait, 30)
        preparer = Preparer([Reading()], Models(ModelSettings(embedder="lexical", nlp="lexical")))
        ended = []
        for number in range(20):
            preparation = preparer.start(QUESTION, [f"passage {number}"])
            assert preparation is not None
            preparation.cancel()
            ended.append(weakref.ref(preparation.analysis))
            del preparation
        gate.set()
        # Late work comes after all preparation.
        done = threading.Event()

        def late() -> Iterator[Priority]:
            done.set()
            yield from ()

        local_pool().run(late(), Priority.LATE)  # type: ignore[arg-type]
        assert done.wait(30)
        deadline = time.monotonic() + 30
        while any(analysis() is not None for analysis in ended) and time.monotonic() < deadline:
            threading.Event().wait(0.01)

        assert [analysis for analysis in ended if analysis() is not None] == []

    def test_nothing_is_prepared_for_turns_that_are_sampled_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They cost no more than an empty handler."""
        analysed: list[str] = []
        monkeypatch.setattr(turn_analysis, "cached_index", analysed.append)
        with rageval_hooks.instrument(models="lexical", exporters=[], sample_rate=0.0) as handle:
            sync_call()
            assert handle.flush(30)

        assert analysed == []

    def test_a_search_without_results_is_not_prepared(self) -> None:
        """There is nothing to analyse."""
        preparer = Preparer([Reading()], Models(ModelSettings(embedder="lexical", nlp="lexical")))

        assert preparer.start(QUESTION, []) is None

    def test_passages_that_cannot_be_prepared_are_evaluated_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Our exception is counted, and the turn has its scores."""

        def fail(*_: object) -> None:
            raise RuntimeError("our own mistake")

        monkeypatch.setattr(Preparer, "start", fail)
        with rageval_hooks.instrument(metrics=["groundedness"], models="lexical", exporters=[]) as handle:
            sync_call()
            assert handle.flush(30)
            stats = handle.stats()

        assert (stats["internal_errors"], stats["evaluated"]) == (1, 1)
        assert stats["scored"] > 0


def test_a_turn_that_ends_after_the_exit_handlers_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that the interpreter's last garbage collection closes: no thread can be started."""
    exporter = InMemoryExporter()
    pipeline = Pipeline.build(metrics=["latency"], exporters=[exporter])
    with monkeypatch.context() as patch:
        patch.setattr("sys.is_finalizing", lambda: True)
        pipeline.submit(EndedTurn.of(Turn(query=QUESTION)))
        assert hand_over(pytest.fail, "it ran").result(0) is DONE
    assert pipeline.flush(10)
    pipeline.shutdown(10)

    assert exporter.evaluations == []


def test_a_turn_that_ends_while_the_process_exits_is_delivered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit handler may have run already."""
    exporter = InMemoryExporter()
    pipeline = Pipeline.build(metrics=["latency"], exporters=[exporter])
    with monkeypatch.context() as patch:
        patch.setattr("rageval_hooks.online.pipeline.is_exiting", lambda: True)
        pipeline.submit(EndedTurn.of(Turn(query=QUESTION, response="In 2019.", passages=(Passage(text="In 2019."),))))
        assert len(exporter.evaluations) == 1
    pipeline.shutdown(10)
