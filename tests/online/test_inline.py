"""The request path: calls wait for local scores only where they must, and passages are prepared early."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda

import rageval_hooks
from rageval_hooks import Evaluation, LocalMetric, ScoreDefinition, metric
from rageval_hooks.metrics.support import turn_analysis
from rageval_hooks.models import Models
from rageval_hooks.models.lexical import LexicalEmbedding
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.inline import InlineStage
from rageval_hooks.online.prepare import Preparation, _Steps
from rageval_hooks.runtime.executors import inline_threads, low_priority, model_executor, prepare_executor
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


def test_with_a_budget_of_zero_calls_never_wait() -> None:
    """Every score arrives late."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=["latency"], exporters=[exporter], inline_budget_ms=0) as handle:
        sync_call()
        assert handle.flush(30)

    assert [(e.stage, len(e.scores)) for e in exporter.evaluations] == [("inline", 0), ("background", 1)] or [
        (e.stage, bool(e.scores)) for e in exporter.evaluations
    ] == [("inline", False), ("background", True)]


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


def test_cheap_scores_of_all_turns_come_before_the_costly_ones(gate: threading.Event) -> None:
    """Of the costly ones, those of prepared turns come first: they can be ready in time."""
    stage = InlineStage(budget=30, capacity=100, max_bytes=2**20)
    order: list[tuple[str, int]] = []

    def hold(until: threading.Event) -> Any:
        until.wait(30)
        yield from ()

    def evaluate(number: int) -> Any:
        order.append(("cheap", number))
        yield "early" if number % 2 else "late"
        order.append(("costly", number))

    all_queued, costly_done = threading.Event(), gate
    for _ in range(inline_threads() - 1):
        stage.start(lambda _: hold(costly_done), 1, caller_waits=False)
    stage.start(lambda _: hold(all_queued), 1, caller_waits=False)
    arrivals = [stage.start(lambda _, n=n: evaluate(n), 1, caller_waits=False) for n in range(4)]  # type: ignore[misc]
    all_queued.set()
    assert all(arrival is not None and arrival.wait(30) for arrival in arrivals)
    costly_done.set()

    cheap, costly = order[:4], order[4:]
    assert cheap == [("cheap", number) for number in range(4)]
    assert costly == [("costly", number) for number in (1, 3, 0, 2)]


def test_scores_that_read_no_passages_come_first() -> None:
    """They cost next to nothing, so those of all turns are ready before any turn's passages are read."""

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

    computed: list[str] = []
    engine = Engine([Reading(), Free()], Models(ModelSettings(embedder="lexical")))
    turn = Turn(query=QUESTION, response="In 1869.", passages=(Passage(text="It opened in 1869."),))
    steps = engine.local_steps(engine.job(turn), engine.analyze(turn))

    next(steps)
    assert computed == ["free"]
    assert [*steps] == []
    assert computed == ["free", "reading"]


def test_passes_of_other_turns_leave_a_thread_free_during_the_rules_of_a_prepared_turn(gate: threading.Event) -> None:
    """A pass takes as long as the rules. Its model scores would wait for it, and be late."""
    begun = threading.Semaphore(0)

    def pass_of_another_turn() -> None:
        begun.release()
        gate.wait(30)

    class Rules(LocalMetric):
        name = "rules"
        scores = (ScoreDefinition(name="rules", description="one", high=1.0),)
        requires = ("passages",)

        def evaluate(self, analysis: turn_analysis.TurnAnalysis) -> Any:
            with low_priority("early"):
                passes.extend(model_executor().submit(pass_of_another_turn) for _ in range(2))
            assert begun.acquire(timeout=30)
            assert not begun.acquire(timeout=0.2), "no thread is left"
            return self.score(1.0)

    class NeedsModel(Rules):
        name = "needs_model"
        scores = (ScoreDefinition(name="needs_model", description="one", high=1.0),)
        models = ("embedder",)

    passes: list[Any] = []
    # No other test has loaded a model of this name.
    models = Models(ModelSettings(embedder="not-loaded", nlp="lexical"))
    models.cache.put("It opened in 1869.", LexicalEmbedding(Counter(opened=1)), 1)
    engine = Engine([Rules(), NeedsModel()], models)
    turn = Turn(query=QUESTION, response="In 1869.", passages=(Passage(text="It opened in 1869."),))
    found, late = engine.evaluate_local(engine.job(turn), engine.analyze(turn, time.perf_counter() + 30))
    assert begun.acquire(timeout=30), "the second pass begins once the evaluation has ended"
    gate.set()
    for done in passes:
        done.result(30)

    assert found["rules"] == 1.0
    assert late is not None
    assert late.names == ("needs_model",)


def preparation(query: str, step: Callable[[turn_analysis.TurnAnalysis], Any]) -> Preparation:
    """Return a preparation with one pass, which begins at once."""
    turn = Turn(query=query, passages=(Passage(text="passage"),))
    analysis = turn_analysis.TurnAnalysis(turn, Models(ModelSettings(embedder="lexical")))
    return Preparation(analysis, _Steps(rules=[], short=[step], long=[lambda _: None]))


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

    def test_the_passes_of_the_newest_turn_come_first(self, gate: threading.Event) -> None:
        """Under load there is no time for all turns, and the newest has the most time left."""
        begun, done = threading.Event(), threading.Event()
        order: list[str] = []

        def hold(_: Any) -> None:
            begun.set()
            gate.wait(30)

        def note(analysis: turn_analysis.TurnAnalysis) -> None:
            order.append(analysis.turn.query)
            if len(order) == 3:
                done.set()

        preparation("running", hold).start()
        assert begun.wait(30)
        for query in ("old", "newer", "newest"):
            preparation(query, note).start()
        gate.set()
        assert done.wait(30)

        assert order == ["newest", "newer", "old"]

    @pytest.mark.parametrize("is_released", [True, False])
    def test_turns_that_are_evaluated_come_first(
        self, is_released: bool, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They have little time left; but an evaluation that takes long holds up no preparation."""
        prepared = threading.Event()
        order: list[str] = []

        def evaluate(_: float) -> Any:
            gate.wait(30)
            order.append("evaluated")
            yield from ()

        def prepare(_: Any) -> None:
            order.append("prepared")
            prepared.set()

        if is_released:
            monkeypatch.setattr("rageval_hooks.online.prepare._LONGEST_DELAY", 30.0)
        arrival = InlineStage(budget=30, capacity=100, max_bytes=2**20).start(evaluate, 1, caller_waits=False)
        assert arrival is not None
        preparation(QUESTION, prepare).start()
        if is_released:
            assert not prepared.wait(0.2)
            gate.set()
        assert prepared.wait(30)
        gate.set()
        assert arrival.wait(30)

        assert order == (["evaluated", "prepared"] if is_released else ["prepared", "evaluated"])

    def test_turns_that_end_before_their_passes_begin_are_forgotten(self, gate: threading.Event) -> None:
        """Under load the newest turn comes first, so that the passes of older ones may never begin."""
        begun = threading.Event()

        def hold(_: Any) -> None:
            begun.set()
            gate.wait(30)

        preparation(QUESTION, hold).start()
        assert begun.wait(30)
        ended = []
        for _ in range(20):
            other = preparation(QUESTION, hold)
            other.start()
            other.cancel()
            ended.append(weakref.ref(other.analysis))
            del other
        # Its jobs are done in their order.
        assert prepare_executor().submit(lambda: True).result(30)

        assert [analysis for analysis in ended if analysis() is not None] == []

    def test_nothing_is_prepared_for_turns_that_are_sampled_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They cost no more than an empty handler."""
        submitted: list[Any] = []
        monkeypatch.setattr(prepare_executor(), "submit", submitted.append)
        with rageval_hooks.instrument(models="lexical", exporters=[], sample_rate=0.0):
            sync_call()

        assert submitted == []
