"""The judge in the background: off the request path, sampled apart, in the same trace, never in its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import rageval_hooks
from rageval_hooks import ConfigurationError, Evaluation, Passage, Turn, metric
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.judges.openai import OpenAIJudge
from rageval_hooks.metrics.base import REGISTRY as METRICS
from rageval_hooks.online.job import Job, describe_metric
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.testing import FakeJudge, InMemoryExporter
from tests.integrations.langchain.fakes import lcel
from tests.judges.server import Gate, JudgeServer, answer, error, held
from tests.local import make_turn
from tests.metrics.good_judge import by_schema

QUESTION = "When was the pier opened?"

LABELS = {
    "relevance_explanation": "The first passage says when.",
    "all_relevant_sentence_keys": ["0a"],
    "sentence_support_information": [
        {
            "response_sentence_key": "a",
            "explanation": "as the passage says",
            "supporting_sentence_keys": ["0a"],
            "fully_supported": True,
        }
    ],
    "all_utilized_sentence_keys": ["0a"],
    "overall_supported": True,
}


def judge_of(server: JudgeServer, **options: Any) -> OpenAIJudge:
    return OpenAIJudge("judge-model", base_url=server.url, api_key="sk-test", **options)


def judged(
    judge: Any, turns: int = 1, during: Callable[[], None] | None = None, **settings: Any
) -> tuple[list[Evaluation], dict[str, Any]]:
    """Run a chain in an instrumented process with a judge; return the evaluations and the statistics."""
    exporter = InMemoryExporter()
    settings = {"metrics": ["latency", "trace"], "exporters": [exporter], "judge": judge, **settings}
    with rageval_hooks.instrument(**settings) as handle:
        for number in range(turns):
            assert lcel().invoke(f"{QUESTION} {number}") == "It was opened in 2019."
        if during:
            during()
        assert handle.flush(30)
        stats = handle.stats()
    assert len(shared_recorder()) == 0
    return exporter.evaluations, stats


def late(evaluations: list[Evaluation]) -> list[Evaluation]:
    return [evaluation for evaluation in evaluations if evaluation.stage == "background"]


class TestScores:
    def test_every_turn_is_judged(self) -> None:
        """By one request, over the real client; local scores come first."""
        with JudgeServer() as server:
            server.otherwise(answer(LABELS))
            evaluations, stats = judged(judge_of(server), turns=3)

        assert [evaluation.stage for evaluation in evaluations].count("inline") == 3
        assert [evaluation["trace.adherence"] for evaluation in late(evaluations)] == [1.0] * 3
        assert len(server.requests) == 3
        assert stats["judge"]["calls"] == stats["deferred_metrics"] == 3
        assert stats["failed"] == 0

    def test_they_stand_in_the_turns_trace(self) -> None:
        """One EVALUATOR span for the metric, below the turn's span and linked to it, with a search label for each."""
        memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(memory))
        with JudgeServer() as server:
            server.otherwise(answer(LABELS))
            judged(
                judge_of(server),
                exporters=["otel"],
                tracer_provider=provider,
                thresholds={"trace.adherence": 1, "trace.average": 0.9},
            )
        spans = {span.name: span for span in memory.get_finished_spans()}
        turn, late = spans["rag RunnableSequence"], spans["evaluate trace"]
        attributes = dict(late.attributes or {})

        assert turn.context is not None
        assert late.parent is not None
        assert late.parent.span_id == turn.context.span_id
        assert [link.context.span_id for link in late.links] == [turn.context.span_id]
        assert late.end_time == turn.end_time
        assert late.status.status_code is StatusCode.UNSET
        assert attributes["openinference.span.kind"] == "EVALUATOR"
        assert attributes["rageval.score.trace.adherence"] == 1.0
        assert attributes["rageval.label.trace.adherence"] == "pass"
        assert attributes["rageval.label.trace.average"] == "fail"
        assert attributes["rageval.label.verdict"] == "good"
        assert attributes["rageval.annotator"] == "LLM"
        assert {name for name in attributes if name.startswith("rageval.score.trace.")} == {
            f"rageval.score.trace.{name}"
            for name in (
                "context_relevance",
                "context_utilization",
                "completeness",
                "adherence",
                "supported_share",
                "average",
                "rmse",
                "consistency",
            )
        }

    def test_what_the_judge_took_is_not_the_applications(self) -> None:
        """Its tokens stand under names that no backend adds up."""
        memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(memory))
        with JudgeServer() as server:
            server.otherwise(answer(LABELS))
            judged(judge_of(server), exporters=["otel"], tracer_provider=provider)
        [late] = [span for span in memory.get_finished_spans() if span.name == "evaluate trace"]
        attributes = dict(late.attributes or {})

        assert attributes["rageval.judge.input_tokens"] == 100
        assert attributes["rageval.judge.model"] == "judge-model-2026-01-01"
        assert not [name for name in attributes if name.startswith(("llm.", "gen_ai.usage"))]

    def test_a_failure_is_a_span_with_its_reason(self) -> None:
        """No number, no error status; the application never notices."""
        memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(memory))
        with JudgeServer() as server:
            server.otherwise(error(401))
            _, stats = judged(judge_of(server), exporters=["otel"], tracer_provider=provider)
        [late] = [span for span in memory.get_finished_spans() if span.name == "evaluate trace"]
        attributes = dict(late.attributes or {})

        assert attributes["rageval.failed.trace"].startswith("rejected: ")
        assert attributes["error.type"] == "rejected"
        assert late.status.status_code is StatusCode.UNSET
        assert not [name for name in attributes if name.startswith("rageval.score")]
        assert stats["failed"] == 1

    def test_on_evaluation_is_called_for_each_stage(self) -> None:
        """Once for the inline stage, once more for the judge's."""
        seen: list[tuple[str, list[str]]] = []
        judged(
            FakeJudge(lambda call: LABELS),
            on_evaluation=lambda evaluation: seen.append((evaluation.stage, [s.name for s in evaluation.scores][:1])),
        )

        assert seen == [("inline", ["latency"]), ("background", ["verdict"])]


class TestTheRequestPath:
    def test_an_answer_does_not_wait_for_the_judge(self) -> None:
        """The chain returns while the judge's request is open."""
        gate = Gate()
        with JudgeServer() as server:
            server.otherwise(held(answer(LABELS), gate))
            evaluations, _ = judged(judge_of(server), turns=2, during=gate.set)

        assert len(late(evaluations)) == 2

    def test_a_full_queue_drops_the_newest_turns(self) -> None:
        """Their judge scores are skipped with the reason and counted; their turns are exported."""
        gate = Gate()
        with JudgeServer() as server:
            server.otherwise(held(answer(LABELS), gate))

            def fill() -> None:
                server.wait_for_requests(2)
                gate.set()

            evaluations, stats = judged(judge_of(server), turns=5, during=fill, queue_size=2)

        assert stats["queues"]["evaluate"]["dropped"] > 0
        assert stats["queues"]["evaluate"]["dropped"] + stats["queues"]["evaluate"]["accepted"] == 5
        dropped = [e for e in late(evaluations) if e.skipped]
        assert len(dropped) == stats["queues"]["evaluate"]["dropped"]
        assert dropped[0].skipped[0].reason == "the queue is full: 2 turns wait for evaluation"
        assert len([e for e in evaluations if e.stage == "inline"]) == 5

    def test_a_shutdown_has_a_deadline(self) -> None:
        """A judge that never answers does not block the shutdown; the unfinished work is counted."""
        pytest.importorskip("openai")  # its import takes longer than the deadline
        with JudgeServer() as server:
            gate = Gate()
            server.otherwise(held(answer(LABELS), gate))
            handle = rageval_hooks.instrument(metrics=["trace"], exporters=[], judge=judge_of(server))
            lcel().invoke(QUESTION)
            assert not handle.shutdown(0.2)
            assert handle.stats()["undone"] == 1
            gate.set()


TRACE = Job(turn=Turn(query=""), metrics=(describe_metric(METRICS.create("trace")),))


class TestSampling:
    def test_the_judged_turns_are_a_part_of_the_evaluated_ones(self) -> None:
        """By the same trace id; every score carries the probability with which its turn was selected for it."""
        evaluations, stats = judged(FakeJudge(lambda call: LABELS), turns=300, sample_rate=0.5, judge_sample_rate=0.2)
        inline = {e.turn.id: e for e in evaluations if e.stage == "inline"}
        judged_ids = {e.turn.id for e in late(evaluations)}

        assert stats["evaluated"] == len(inline)
        assert stats["turns"] == stats["evaluated"] + stats["sampled_out"] == 300
        assert 100 < len(inline) < 200
        assert 30 < len(judged_ids) < 90
        assert judged_ids < inline.keys()
        assert {s.probability for e in inline.values() for s in e.scores} == {0.5}
        assert {s.probability for e in late(evaluations) for s in e.scores} == {0.2}

    def test_a_rate_for_each_metric(self) -> None:
        """Any metric can have its own rate."""
        evaluations, _ = judged(
            FakeJudge(lambda call: LABELS), turns=200, judge_sample_rate={"trace": 0.1, "latency": 0.5}
        )
        with_latency = [e for e in evaluations if e.stage == "inline" and e.scores]

        assert len([e for e in evaluations if e.stage == "inline"]) == 200
        assert 60 < len(with_latency) < 140
        assert 5 < len(late(evaluations)) < 45
        assert {e.turn.id for e in late(evaluations)} < {e.turn.id for e in with_latency}

    def test_the_decision_follows_from_the_trace_id(self) -> None:
        """In every process the same."""
        from rageval_hooks.online.turn_context import is_kept, trace_fraction

        evaluations, _ = judged(FakeJudge(lambda call: LABELS), turns=100, judge_sample_rate=0.3)
        expected = {
            e.turn.id for e in evaluations if e.turn.span is not None and is_kept(int(e.turn.span.trace_id, 16), 0.3)
        }

        assert {e.turn.id for e in late(evaluations)} == expected
        assert trace_fraction(0x4BF92F3577B34DA6A3CE929D0E0E4736) == pytest.approx(0.5217857, abs=1e-6)

    def test_a_salt_decides_too(self) -> None:
        """A client that knows the sampling can choose trace ids that are kept; with a secret salt it cannot."""
        from rageval_hooks.online.turn_context import MetricSampler
        from rageval_hooks.settings import Settings

        def kept(**settings: Any) -> list[int]:
            given = Settings.build(judge_sample_rate=0.01, **settings)
            sampler = MetricSampler([METRICS.create("trace")], given)
            assert "a secret of ours" not in repr(given)
            return [number for number in range(20_000) if sampler.choose(TRACE, number, ())]

        plain, salted, again = kept(), kept(sampling_salt="a secret of ours"), kept(sampling_salt="a secret of ours")

        assert salted == again
        assert 120 < len(plain) < 280
        assert 120 < len(salted) < 280
        assert len(set(plain) & set(salted)) < 15

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"sample_rate": 0.1, "judge_sample_rate": 0.2}, r"judge_sample_rate \(trace: 0.2\) is higher"),
            ({"judge_sample_rate": {"nonsense": 0.2}}, "unknown metric in judge_sample_rate 'nonsense'"),
            ({"judge_sample_rate": 2}, "judge_sample_rate"),
            (
                {"judge_sample_by_verdict": {"bad": 0.5}, "sample_rate": 0.1},
                r"by_verdict \(trace: 0.5\) is higher than",
            ),
            ({"judge_sample_by_verdict": {"bad": 0.5}}, "needs the local verdict: add 'verdict' to metrics"),
            ({"judge_sample_by_verdict": {"bad": 0}}, "bad: must be more than 0: nobody could tell how many turns"),
            ({"judge_sample_by_verdict": {"bda": 1}}, "by_verdict.bda: Input should be 'good', 'doubtful', 'bad'"),
            ({"judge_sample_by_verdict": "bad"}, "part 1 is not of the form name=value"),
            ({"judge_sample_floor": -1}, r"judge_sample_floor: .+ Valid: turns per hour, 0 or more"),
            ({"metrics": ["latency"]}, "no metric asks it"),
            ({"judge": None}, "trace needs a judge"),
            ({"judge": "unknown:x"}, "unknown judge provider 'unknown'"),
            ({"judge": "openai"}, "'provider:model'"),
            ({"judge": object()}, "is not a judge"),
            ({"judge": "openai:x", "judge_options": {"api_key": "sk-1"}}, "has a key in it"),
        ],
    )
    def test_what_contradicts_is_said(self, settings: dict[str, Any], message: str) -> None:
        """At construction."""
        settings = {"metrics": ["trace"], "judge": FakeJudge(), "exporters": [], **settings}

        with pytest.raises(ConfigurationError, match=message):
            rageval_hooks.instrument(**settings)

    def test_no_key_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For OpenAI, before the first request."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

        with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
            rageval_hooks.instrument(judge="openai:gpt-5-mini", exporters=[])


class TestByName:
    def test_the_judge_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """``RAGEVAL_JUDGE``, its options, and the client's own variables."""
        with JudgeServer() as server:
            server.otherwise(answer(LABELS))
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
            monkeypatch.setenv("RAGEVAL_JUDGE", "openai:judge-model")
            monkeypatch.setenv("RAGEVAL_JUDGE_OPTIONS", f'{{"base_url": "{server.url}", "max_retries": 1}}')
            monkeypatch.setenv("RAGEVAL_JUDGE_SAMPLE_RATE", "1.0")
            evaluations, _ = judged(None, metrics=None, models="lexical")

        # On a busy machine a local metric may be late, too.
        [evaluation] = [found for found in late(evaluations) if "trace" in found.durations]
        assert evaluation["trace.adherence"] == 1.0
        assert server.requests[0].body["model"] == "judge-model"

    def test_the_judge_of_the_environment_without_a_metric_that_asks_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is not asked: it may be for other code. Only a judge that is named in the call is an error then."""
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("RAGEVAL_JUDGE", "openai:judge-model")
        with rageval_hooks.instrument(metrics=["latency"], exporters=[]) as handle:
            assert handle.stats()["judge"]["requests"] == 0


class TestItsOwnCalls:
    def test_a_langchain_model_as_judge_is_not_a_turn(self) -> None:
        """Every chain of the process is evaluated, but the judge's own calls create no turns and no spans."""
        langchain_openai = pytest.importorskip("langchain_openai")
        memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(memory))
        with JudgeServer() as server:
            server.otherwise(answer(LABELS))
            model = langchain_openai.ChatOpenAI(model="judge-model", base_url=server.url, api_key="sk-test")
            _, stats = judged(
                model,
                turns=4,
                exporters=["otel"],
                tracer_provider=provider,
                evaluate_without_retrieval=True,
                spans="all",
            )

        assert stats["turns"] == stats["evaluated"] == 4
        names = {span.name for span in memory.get_finished_spans()}
        assert len([span for span in memory.get_finished_spans() if span.name == "evaluate trace"]) == 4
        assert not [name for name in names if "judge" in name or "ChatOpenAI" in name]

    def test_nor_where_openinference_traces(self) -> None:
        """Its spans are the application's alone."""
        langchain_openai = pytest.importorskip("langchain_openai")
        from openinference.instrumentation.langchain import LangChainInstrumentor

        memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(memory))
        LangChainInstrumentor().instrument(tracer_provider=provider)
        try:
            with JudgeServer() as server:
                server.otherwise(answer(LABELS))
                model = langchain_openai.ChatOpenAI(model="judge-model", base_url=server.url, api_key="sk-test")
                judged(model, exporters=["otel"], tracer_provider=provider)
        finally:
            LangChainInstrumentor().uninstrument()

        roots = [span.name for span in memory.get_finished_spans() if span.parent is None]
        assert roots == ["RunnableSequence"]

    def test_from_many_threads(self) -> None:
        """Concurrent turns are judged concurrently, each by its own texts."""

        def by_question(call: Any) -> Any:
            line = next(line for line in call.prompt.split("\n") if line.startswith("> question "))
            return {**LABELS, "relevance_explanation": line.removeprefix("> ")}

        exporter = InMemoryExporter()
        with rageval_hooks.instrument(metrics=["trace"], exporters=[exporter], judge=FakeJudge(by_question)) as handle:
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda number: lcel().invoke(f"question {number}"), range(64)))
            assert handle.flush(30)

        for evaluation in late(exporter.evaluations):
            score = evaluation.score("trace.context_relevance")
            assert score is not None
            assert (score.explanation or "").startswith(f"{evaluation.turn.query} Relevant")
        assert len(late(exporter.evaluations)) == 64


SECRET = "Mrs Ada Quill"


@pytest.mark.parametrize(
    "reply",
    [
        answer({"explanation": f"It says nothing of {SECRET}.", "attempted": False}),
        answer({"explanation": SECRET, "attempted": SECRET, SECRET: SECRET}),
        answer(f"I will not judge {SECRET}."),
        answer(None, refusal=f"I will not judge {SECRET}."),
        error(400, f"invalid content: 'When did {SECRET} open the pier?'"),
        error(500, f"cannot read When did {SECRET} open the pier? today"),
    ],
    ids=["declined", "wrong values", "words", "refusal", "rejected", "broken"],
)
def test_hidden_texts_are_in_no_reason(reply: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Neither spans nor log lines quote the turn's texts, or the judge's words, if content is not captured."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with JudgeServer() as server:
        server.otherwise(reply)
        with rageval_hooks.instrument(
            metrics=["no_answer", "trace", "citation", "nuggets", "ranking", "umbrela"],
            judge=judge_of(server, max_retries=0, circuit_failures=2),
            exporters=["otel"],
            tracer_provider=provider,
            capture_content=False,
        ) as handle:
            lcel().invoke(f"When did {SECRET} open the pier?")
            assert handle.flush(30)
    written = [str(dict(item.attributes or {})) for span in spans.get_finished_spans() for item in (span, *span.events)]

    assert any("skipped" in text or "failed" in text for text in written)
    assert SECRET not in caplog.text + " ".join(written)


def test_a_judge_that_is_down_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """For an hour of failures; each turn says why it has no score, and the circuit opens."""
    evaluations, stats = judged(
        OpenAIJudge("x", base_url="http://127.0.0.1:9/v1", api_key="sk-test", max_retries=0, circuit_failures=3),
        turns=10,
    )

    assert {failed.error_type for e in late(evaluations) for failed in e.failed} == {"unavailable"}
    assert len(late(evaluations)) == 10
    assert stats["failed"] == 10
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert 1 <= len(warnings) <= 3
    assert stats["judge"]["circuit"]["state"] == "open"


def test_a_judge_that_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    """Does not keep the process from its end. It is counted, and the log names the error."""

    class Stuck(FakeJudge):
        async def aclose(self) -> None:
            raise OSError("the socket is gone")

    handle = rageval_hooks.instrument(metrics=["trace"], judge=Stuck(), exporters=[])
    handle.shutdown()

    assert handle.stats()["internal_errors"] == 1
    assert "the judge's connections could not be closed: OSError" in caplog.text


@pytest.mark.parametrize(
    ("metrics", "verdicts"), [(["trace"], ["trace"]), (["umbrela"], ["verdict"])], ids=["verdict", "other score"]
)
def test_a_local_verdict_does_not_replace_the_judges(metrics: list[str], verdicts: list[str]) -> None:
    """A grounding model is slow: its verdict may come after the judge's. If the judge gives none, it counts."""
    exporter = InMemoryExporter()
    judged = threading.Event()

    @metric(name="slow")
    def slow(turn: Turn) -> float:
        judged.wait(30)
        return 1.0

    def on_evaluation(evaluation: Evaluation) -> None:
        if {result.metric for result in evaluation.results} & set(metrics):
            judged.set()

    pipeline = Pipeline.build(
        metrics=[slow, "verdict", *metrics],
        models="lexical",
        judge=by_schema(),
        exporters=[exporter],
        inline_budget_ms=0,
        on_evaluation=on_evaluation,
    )
    pipeline.submit(EndedTurn.of(make_turn("It was opened in 2019.", ["The pier was opened in 2019."], QUESTION)))
    assert pipeline.flush(60)
    pipeline.shutdown(10)

    results = [result for evaluation in exporter.evaluations for result in evaluation.results]
    assert [result.metric for result in results if result.name == "verdict"] == verdicts
    assert "slow" in {result.name for result in results}


def test_a_judge_that_blocks_its_event_loop_holds_back_no_local_scores() -> None:
    """Its own scores are late; spans and local scores of other turns are exported meanwhile."""
    may_answer, exporter = threading.Event(), InMemoryExporter()

    class Blocking(FakeJudge):
        async def complete(self, *args: Any, **kwargs: Any) -> Any:
            may_answer.wait(60)
            return await super().complete(*args, **kwargs)

    pipeline = Pipeline.build(metrics=["latency", "no_answer"], judge=Blocking(), exporters=[exporter])
    try:
        for number in range(2):
            turn = Turn(query=f"question {number}", response="In 2019.", passages=(Passage(text="It opened in 2019."),))
            pipeline.submit(EndedTurn.of(turn))
        assert wait_until(lambda: [found.stage for found in exporter.evaluations].count("inline") == 2, 30)
        assert all(found.stage == "inline" for found in exporter.evaluations)
    finally:
        may_answer.set()
    assert pipeline.flush(30)
    assert [found.stage for found in exporter.evaluations].count("background") == 2
    pipeline.shutdown(10)
