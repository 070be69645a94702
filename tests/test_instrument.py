"""``instrument()``: one line on, one line off, and clear words where a setting is wrong."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import rageval_hooks
from rageval_hooks import ConfigurationError, Evaluation, UnknownNameError
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.metrics.base import REGISTRY as METRICS
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.settings import ModelSettings
from rageval_hooks.testing import FakeJudge, InMemoryExporter
from tests.integrations.langchain.fakes import lcel

QUESTION = "When was the pier opened?"


class NamedExporter(InMemoryExporter):
    """One that is made from its name."""


def test_the_same_line_twice_is_one_instrumentation() -> None:
    """It is idempotent: the same handle, and a turn counts once."""
    memory = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[memory]) as first:
        second = rageval_hooks.instrument(metrics=[], exporters=[memory])
        assert second is first
        lcel().invoke(QUESTION)
        first.flush(10)

    assert len(memory.evaluations) == 1


def test_an_integration_that_cannot_be_imported_does_not_stop_the_application(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names it, and the other frameworks are captured."""
    monkeypatch.setitem(sys.modules, "rageval_hooks.integrations.llama_index", None)  # its import raises ImportError
    memory = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[memory]) as handle:
        lcel().invoke(QUESTION)
        handle.flush(10)

    assert handle.frameworks == ("langchain",)
    assert len(memory.evaluations) == 1
    assert "llama_index is not instrumented: ModuleNotFoundError" in caplog.text


def test_a_framework_that_is_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is installed, but lacks what the integration needs. One that is not installed is no news."""
    for name in [name for name in sys.modules if name.startswith("rageval_hooks.integrations.llama_index")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "llama_index_instrumentation", None)  # its import raises ImportError
    with rageval_hooks.instrument(metrics=[], exporters=[]) as handle:
        assert handle.frameworks == ("langchain",)

    assert "llama_index is not instrumented" in caplog.text
    caplog.clear()
    monkeypatch.setattr("importlib.metadata.version", not_installed)
    with rageval_hooks.instrument(metrics=[], exporters=[]):
        assert "not instrumented" not in caplog.text


def not_installed(name: str) -> str:
    raise PackageNotFoundError(name)


def test_an_integration_that_cannot_be_attached_does_not_stop_the_application(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names it, and the other frameworks are captured."""
    from rageval_hooks.integrations import llama_index

    def attach(pipeline: object) -> None:
        raise AttributeError("no attribute 'add_span_handler'")

    monkeypatch.setattr(llama_index, "attach", attach)
    memory = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[memory]) as handle:
        lcel().invoke(QUESTION)
        handle.flush(10)

    assert handle.frameworks == ("langchain",)
    assert len(memory.evaluations) == 1
    assert "llama_index is not instrumented: AttributeError" in caplog.text


def test_another_line_replaces_the_first() -> None:
    """The last settings hold; what the first handle had seen is still delivered."""
    old, new = InMemoryExporter(), InMemoryExporter()
    first = rageval_hooks.instrument(metrics=[], exporters=[old])
    lcel().invoke("first")
    with rageval_hooks.instrument(metrics=[], exporters=[new]) as second:
        lcel().invoke("second")
        assert first.flush(10)
        assert second.flush(10)
    first.shutdown()

    assert [evaluation.turn.query for evaluation in old.evaluations] == ["first"]
    assert [evaluation.turn.query for evaluation in new.evaluations] == ["second"]


def test_equal_arguments_are_the_same_instrumentation() -> None:
    """Values are compared, not identities: each call creates new bound methods, settings and lists."""

    class Application:
        def see(self, evaluation: Evaluation) -> None: ...

    application = Application()

    def line() -> rageval_hooks.Instrumentation:
        return rageval_hooks.instrument(
            metrics=["latency"],
            models=ModelSettings(embedder="lexical"),
            exporters=[],
            thresholds={"latency": 2},
            on_evaluation=application.see,
        )

    with line() as first:
        assert line() is first


def test_a_changed_dict_is_another_line() -> None:
    """It is compared with what was in it at the time."""
    thresholds = {"latency": 2.0}
    with rageval_hooks.instrument(metrics=["latency"], exporters=[], thresholds=thresholds) as first:
        thresholds["latency"] = 3.0
        with rageval_hooks.instrument(metrics=["latency"], exporters=[], thresholds=thresholds) as second:
            assert second is not first
            assert second.pipeline.settings.thresholds == {"latency": 3.0}


def test_a_replaced_handle_can_be_shut_down() -> None:
    """Its exporters are closed; what has replaced it goes on."""
    old, new = InMemoryExporter(), InMemoryExporter()
    first = rageval_hooks.instrument(metrics=[], exporters=[old])
    with rageval_hooks.instrument(metrics=[], exporters=[new]):
        assert first.shutdown()
        assert old.closed
        lcel().invoke(QUESTION)

    assert [evaluation.turn.query for evaluation in new.evaluations] == [QUESTION]


def test_who_shuts_down_first_leaves_the_exporters_to_the_other() -> None:
    """A handler and the line, of the same settings, share what they have named: it is closed by the last one."""

    def exporter(pipeline: Any) -> NamedExporter:
        [found] = pipeline.exporters
        assert isinstance(found, NamedExporter)
        return found

    settings: dict[str, Any] = {"metrics": [], "exporters": [f"{__name__}:NamedExporter"]}
    handler = CallbackHandler(**settings)
    shared = exporter(handler.pipeline)
    with rageval_hooks.instrument(**settings) as handle:
        assert exporter(handle.pipeline) is shared
    assert not shared.closed
    lcel().invoke(QUESTION, {"callbacks": [handler]})
    assert handler.flush(10)
    assert [evaluation.turn.query for evaluation in shared.evaluations] == [QUESTION]

    del handler
    gc.collect()
    with rageval_hooks.instrument(**settings) as handle:
        assert exporter(handle.pipeline) is shared
    assert shared.closed
    with rageval_hooks.instrument(**settings) as handle:
        assert exporter(handle.pipeline) is not shared


def test_a_handler_that_is_dropped_delivers_its_late_scores() -> None:
    """Its exporters stay open until then, though another user of the same ones shuts down."""
    gate = threading.Event()

    async def after_a_while(_: Any) -> dict[str, Any]:
        await asyncio.to_thread(gate.wait, 30)
        return {"explanation": "It answers.", "attempted": True}

    judge = FakeJudge(after_a_while)
    settings: dict[str, Any] = {"metrics": ["no_answer"], "exporters": [f"{__name__}:NamedExporter"], "judge": judge}
    settings |= {"drain_timeout": 0.1}
    handler = CallbackHandler(**settings)
    [shared] = handler.pipeline.exporters
    assert isinstance(shared, NamedExporter)
    lcel().invoke(QUESTION, {"callbacks": [handler]})
    assert wait_until(lambda: judge.calls, 10)
    del handler
    gc.collect()

    rageval_hooks.instrument(**settings).shutdown()
    assert not shared.closed
    gate.set()
    assert wait_until(lambda: [evaluation.stage for evaluation in shared.evaluations] == ["inline", "background"], 10)
    assert shared.evaluations[1].scores


def test_it_can_be_switched_off_by_another_line() -> None:
    """``enabled=False`` replaces what is attached, too: by nothing."""
    memory = InMemoryExporter()
    first = rageval_hooks.instrument(metrics=[], exporters=[memory])
    with rageval_hooks.instrument(enabled=False, metrics=[], exporters=[]):
        lcel().invoke(QUESTION)
        first.flush(10)
    first.shutdown()

    assert memory.evaluations == []


def test_it_can_be_undone() -> None:
    """After the shutdown chains run as if it had never been there."""
    memory = InMemoryExporter()
    handle = rageval_hooks.instrument(metrics=[], exporters=[memory])
    lcel().invoke(QUESTION)
    assert handle.shutdown()
    lcel().invoke("unseen")

    assert [evaluation.turn.query for evaluation in memory.evaluations] == [QUESTION]
    assert memory.closed
    assert not handle.active
    assert handle.shutdown(), "a second time is no harm"


def test_it_can_be_done_again() -> None:
    """On, off, on."""
    memory = InMemoryExporter()
    for question in ("first", "second"):
        with rageval_hooks.instrument(metrics=[], exporters=[memory]):
            lcel().invoke(question)

    assert [evaluation.turn.query for evaluation in memory.evaluations] == ["first", "second"]


def test_undone_in_the_middle_of_a_turn() -> None:
    """A turn that was under way when it was switched off leaves nothing behind."""
    memory = InMemoryExporter()
    handle = rageval_hooks.instrument(metrics=[], exporters=[memory])
    stream = lcel().stream(QUESTION)
    next(stream)
    handle.shutdown()
    list(stream)
    with rageval_hooks.instrument(metrics=[], exporters=[memory]):
        lcel().invoke("next")

    assert len(shared_recorder()) == 0


def test_the_switch_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """``RAGEVAL_ENABLED=false`` turns everything off without a change of the code."""
    monkeypatch.setenv("RAGEVAL_ENABLED", "false")
    memory = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[memory]) as handle:
        assert lcel().invoke(QUESTION)
        assert handle.flush(10)

    assert memory.evaluations == []


def test_stats_add_up() -> None:
    """Every turn is in one of the counts."""
    with rageval_hooks.instrument(metrics=["latency"], exporters=[]) as handle:
        for _ in range(3):
            lcel().invoke(QUESTION)
        handle.flush(10)
        stats = handle.stats()

    assert stats["turns"] == stats["evaluated"] == 3
    assert stats["scored"] == 9
    queue = stats["queues"]["export"]
    assert (queue["pending"], queue["accepted"], queue["dropped"], queue["failed"]) == (0, 3, 0, 0)
    assert stats["open_runs"] == 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown metric": ({"metrics": ["groundednes"]}, "Did you mean 'groundedness'"),
    "unknown metric lists what there is": ({"metrics": ["x"]}, "answer_relevance"),
    "metric that cannot be imported": ({"metrics": ["nowhere.at_all:Metric"]}, "No module named 'nowhere'"),
    "not a metric": ({"metrics": [object()]}, "is not a metric"),
    "unknown exporter": ({"exporters": ["ote"]}, "Valid: auto, console, datadog, "),
    "unknown exporter that is like auto": ({"exporters": ["autos"]}, "Did you mean 'auto'?"),
    "unknown models": ({"models": "lexcial"}, "Did you mean 'lexical'"),
    "unknown kind of model": ({"models": {"embeder": "x"}}, "embedder"),
    "no such model folder": ({"models": {"embedder": "/nowhere/at/all"}}, "no such path"),
    "rate above 1": ({"sample_rate": 1.5}, "sample_rate: Input should be less than or equal to 1"),
    "rate below 0": ({"sample_rate": -0.1}, "sample_rate: Input should be greater than or equal to 0"),
    "negative budget": ({"inline_budget_ms": -1}, "inline_budget_ms"),
    "unknown spans": ({"spans": "some"}, "'auto', 'rag', 'all' or 'scores'"),
    "threshold for a score that no metric computes": (
        {"metrics": ["latency"], "thresholds": {"groundedness": 0.7}},
        "unknown score in thresholds 'groundedness'",
    ),
    "threshold that is no number": ({"thresholds": {"groundedness": "high"}}, "thresholds.groundedness"),
    "provider without an exporter for it": ({"exporters": [], "tracer_provider": TracerProvider()}, "add 'otel'"),
    "not a provider": ({"tracer_provider": object()}, "not an OpenTelemetry TracerProvider"),
    "callback that cannot be called": ({"on_evaluation": "print"}, "on_evaluation must be a function"),
    "a metric in place of a list": ({"metrics": METRICS.create("latency")}, "metrics must be a list of names"),
    "exporters that are no list": ({"exporters": 3}, "exporters must be a list of names"),
    "a rate for no judge": ({"judge_sample_rate": 0.1}, "judge_sample_rate needs a judge: pass judge="),
    "options for no judge": (
        {"judge_options": {"timeout": 3}, "judge_sample_floor": 5},
        "judge_options, judge_sample_floor need a judge: pass judge=",
    ),
    "unknown setting": ({"sampling": 0.5}, "there is no such setting. Did you mean"),
}


@pytest.mark.parametrize("line", [rageval_hooks.instrument, CallbackHandler], ids=["instrument", "CallbackHandler"])
@pytest.mark.parametrize(("settings", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_at_once(line: Any, settings: dict[str, Any], message: str) -> None:
    """At construction, with what would be right; and nothing is attached."""
    with pytest.raises(ConfigurationError) as error:
        line(**settings)

    assert message in str(error.value)
    memory = InMemoryExporter()
    with rageval_hooks.instrument(metrics=[], exporters=[memory]):
        lcel().invoke(QUESTION)
    assert len(memory.evaluations) == 1


def test_two_metrics_for_one_score_are_refused() -> None:
    """Which of them would it be?"""

    @rageval_hooks.metric
    def latency(turn: rageval_hooks.Turn) -> float:
        return 0.5

    with pytest.raises(ConfigurationError, match="two metrics compute a score 'latency'"):
        rageval_hooks.instrument(metrics=["latency", latency])


def test_an_unknown_name_carries_the_valid_ones() -> None:
    """For programs that want to show them."""
    with pytest.raises(UnknownNameError) as error:
        rageval_hooks.instrument(metrics=["nonsense"])

    assert "groundedness" in error.value.valid


LIGHT = """
import sys
import rageval_hooks
names = ("torch", "spacy", "langchain_core", "llama_index", "openai", "numpy", "transformers")
print([name for name in names if name in sys.modules])
rageval_hooks.instrument(metrics=[], exporters=["otel"])
print("numpy" in sys.modules)
"""


def test_the_import_is_light() -> None:
    """``import rageval_hooks`` loads no framework and no model library, and tracing without metrics loads no numpy."""
    output = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)

    assert output.stdout.split() == ["[]", "False"]


def test_the_public_names() -> None:
    """A name that disappears, or appears, is a decision."""
    assert sorted(rageval_hooks.__all__) == [
        "AnswerBlockedError",
        "ConfigurationError",
        "ErrorInfo",
        "Evaluation",
        "Exporter",
        "Failed",
        "GroundingGuard",
        "GuardDecision",
        "Instrumentation",
        "Judge",
        "JudgeError",
        "JudgeMetric",
        "Judgement",
        "LocalMetric",
        "Message",
        "Metric",
        "MissingDependencyError",
        "ModelUnavailableError",
        "Passage",
        "RagevalError",
        "Result",
        "Score",
        "ScoreBatches",
        "ScoreDefinition",
        "Skipped",
        "SpanReference",
        "Step",
        "Target",
        "Timing",
        "Turn",
        "TurnError",
        "UnknownNameError",
        "Usage",
        "__version__",
        "aevaluate",
        "ascore_dataset",
        "evaluate",
        "evaluate_conversation",
        "instrument",
        "metric",
        "rag_turn",
        "score_dataset",
        "start_turn",
    ]


def test_a_threshold_outside_the_range_of_its_score_is_said() -> None:
    """With the range."""
    with pytest.raises(ConfigurationError, match="threshold of groundedness is 2, but its values are 0 to 1"):
        rageval_hooks.instrument(thresholds={"groundedness": 2}, exporters=["jsonl"])
