"""What a backend receives: spans, their places in the trace, their attributes."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from langchain_core.runnables import RunnableLambda
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

import rageval_hooks
from rageval_hooks import Evaluation, Failed, Metric, Score, Skipped, Target
from rageval_hooks.exporters.otel import OtelExporter
from tests.exporters.delivered import delivery_to
from tests.exporters.scored_turns import evaluation
from tests.integrations.langchain.fakes import FACTS, lcel

QUESTION = "When was the pier opened?"


class SequentialIds(IdGenerator):
    """Trace ids and span ids 1, 2, 3 …"""

    def __init__(self) -> None:
        self._traces, self._spans = itertools.count(1), itertools.count(1)

    def generate_trace_id(self) -> int:
        return next(self._traces)

    def generate_span_id(self) -> int:
        return next(self._spans)


class Backend:
    """A tracer provider of an application, and what it received."""

    def __init__(self, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **settings)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """Spans by name."""
        return {span.name: span for span in self.exporter.get_finished_spans()}

    @property
    def tree(self) -> set[tuple[str, str | None]]:
        """(name, name of the parent) of each span."""
        names = {span.context.span_id: span.name for span in self.exporter.get_finished_spans() if span.context}
        return {
            (span.name, names.get(span.parent.span_id, "?") if span.parent else None)
            for span in self.exporter.get_finished_spans()
        }


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def run(backend: Backend) -> Callable[..., dict[str, ReadableSpan]]:
    """Runs a chain in an instrumented process, and returns the spans by name."""

    def run(
        chain: Any = None, config: Any = None, backend: Backend = backend, **settings: Any
    ) -> dict[str, ReadableSpan]:
        settings = {"metrics": [], "tracer_provider": backend.provider, **settings}
        with rageval_hooks.instrument(**settings) as handle:
            with contextlib.suppress(ZeroDivisionError):
                (chain or lcel()).invoke(QUESTION, config)
            assert handle.flush(20)
            assert handle.stats()["internal_errors"] == handle.stats()["export_errors"] == 0
        return backend.spans

    return run


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


class Fixed(Metric):
    """Returns fixed results."""

    name = "fixed"
    scores = (
        rageval_hooks.ScoreDefinition(name="fixed", description="one"),
        rageval_hooks.ScoreDefinition(name="cost_like", description="two", direction="lower", high=None),
    )

    def __init__(self, *results: Any) -> None:
        self._results = results

    def evaluate(self, analysis: Any) -> Any:
        return self._results


class TestTheTree:
    def test_the_turn_has_its_retriever_and_its_model_call_below_it(self, run: Any, backend: Backend) -> None:
        """Not every prompt and parser."""
        run()

        assert backend.tree == {
            ("rag RunnableSequence", None),
            ("retrieval ScriptedRetriever", "rag RunnableSequence"),
            ("chat scripted-1-2026", "rag RunnableSequence"),
        }

    def test_all_steps_when_asked(self, run: Any, backend: Backend) -> None:
        """``spans="all"`` has prompts, parsers and inner chains too, nested as they ran."""
        run(spans="all")

        assert ("ChatPromptTemplate", "rag RunnableSequence") in backend.tree
        assert ("RunnableParallel<context,question>", "rag RunnableSequence") in backend.tree
        assert ("RunnableSequence", "RunnableParallel<context,question>") in backend.tree
        assert ("retrieval ScriptedRetriever", "RunnableSequence") in backend.tree
        assert ("StrOutputParser", "rag RunnableSequence") in backend.tree

    def test_no_steps_when_asked(self, run: Any, backend: Backend) -> None:
        """``spans="scores"`` has the turn alone."""
        run(spans="scores")

        assert backend.tree == {("rag RunnableSequence", None)}

    def test_below_the_span_that_was_current_when_it_began(self, run: Any, backend: Backend) -> None:
        """The application's request span is the parent, and the trace is the application's."""
        with backend.provider.get_tracer("app").start_as_current_span("GET /ask") as request:
            run()

        assert ("rag RunnableSequence", "GET /ask") in backend.tree
        turn = backend.spans["rag RunnableSequence"]
        assert turn.context is not None
        assert turn.context.trace_id == request.get_span_context().trace_id

    def test_turns_in_one_request_are_siblings(self, backend: Backend) -> None:
        """Two calls in one request stand side by side."""
        with (
            rageval_hooks.instrument(metrics=[], tracer_provider=backend.provider) as handle,
            backend.provider.get_tracer("app").start_as_current_span("GET /ask"),
        ):
            lcel().invoke("first")
            lcel().invoke("second")
            handle.flush(10)

        turns = [span for span in backend.exporter.get_finished_spans() if span.name.startswith("rag ")]
        assert len({span.parent.span_id for span in turns if span.parent}) == 1
        assert len({span.context.span_id for span in turns if span.context}) == 2

    def test_a_turn_of_its_own_has_the_id_that_sampling_went_by(self, backend: Backend) -> None:
        """The ids that a turn is given when it begins are those of its span."""
        seen: list[Evaluation] = []
        with rageval_hooks.instrument(
            metrics=[], tracer_provider=backend.provider, on_evaluation=seen.append
        ) as handle:
            lcel().invoke(QUESTION)
            handle.flush(10)

        span = backend.spans["rag RunnableSequence"]
        reference = seen[0].turn.span
        assert span.context is not None
        assert reference is not None
        assert f"{span.context.trace_id:032x}" == reference.trace_id
        assert f"{span.context.span_id:016x}" == reference.span_id

    def test_ids_come_from_the_providers_generator(self) -> None:
        """Some backends demand ids of a form of their own."""
        backend = Backend(id_generator=SequentialIds())
        with rageval_hooks.instrument(metrics=[], tracer_provider=backend.provider) as handle:
            lcel().invoke(QUESTION)
            handle.flush(10)

        assert {span.context.trace_id for span in backend.exporter.get_finished_spans() if span.context} == {1}

    def test_times_are_those_of_the_run(self, run: Any) -> None:
        """Children lie within the turn, although all spans are written afterwards."""
        spans = run()
        turn, retrieval, chat = (
            spans["rag RunnableSequence"],
            spans["retrieval ScriptedRetriever"],
            spans["chat scripted-1-2026"],
        )
        order = [
            turn.start_time,
            retrieval.start_time,
            retrieval.end_time,
            chat.start_time,
            chat.end_time,
            turn.end_time,
        ]

        assert order == sorted(order)
        assert None not in order

    def test_kinds(self, run: Any) -> None:
        """Retrieval and inference are calls to other services."""
        spans = run()

        assert spans["rag RunnableSequence"].kind is SpanKind.INTERNAL
        assert spans["retrieval ScriptedRetriever"].kind is SpanKind.CLIENT
        assert spans["chat scripted-1-2026"].kind is SpanKind.CLIENT


class TestAttributes:
    def test_the_turn(self, run: Any) -> None:
        """Question, answer, session and user."""
        found = attributes(run(config={"metadata": {"session_id": "s1", "user_id": "u1"}})["rag RunnableSequence"])

        assert found["openinference.span.kind"] == "CHAIN"
        assert found["input.value"] == QUESTION
        assert found["output.value"] == "It was opened in 2019."
        assert found["session.id"] == found["gen_ai.conversation.id"] == "s1"
        assert found["user.id"] == "u1"
        assert found["rageval.turn.status"] == "ok"
        assert found["rageval.passages.count"] == found["rageval.passages.in_prompt"] == 2
        assert json.loads(found["metadata"]) == {"session_id": "s1", "user_id": "u1"}

    def test_the_turn_has_no_token_counts_that_a_backend_would_add_up(self, run: Any) -> None:
        """They stand on the model calls below it; the turn has them under names of our own."""
        found = attributes(run()["rag RunnableSequence"])

        assert not [name for name in found if name.startswith(("llm.token_count", "gen_ai.usage"))]
        assert (found["rageval.tokens.input"], found["rageval.tokens.output"]) == (40, 7)

    def test_the_retriever(self, run: Any) -> None:
        """Documents with id, score, content and metadata, in both vocabularies."""
        found = attributes(run()["retrieval ScriptedRetriever"])

        assert found["openinference.span.kind"] == "RETRIEVER"
        assert found["gen_ai.operation.name"] == "retrieval"
        assert found["gen_ai.retrieval.query.text"] == found["input.value"] == QUESTION
        assert json.loads(found["gen_ai.retrieval.documents"]) == [
            {"id": "d1", "score": 0.9},
            {"id": "d2", "score": 0.4},
        ]
        assert found["retrieval.documents.0.document.id"] == "d1"
        assert found["retrieval.documents.0.document.score"] == 0.9
        assert found["retrieval.documents.0.document.content"] == FACTS[0].page_content
        assert json.loads(found["retrieval.documents.0.document.metadata"])["source"] == "harbour.md"
        assert json.loads(found["retrieval.documents.1.document.metadata"])["rageval.document.in_prompt"] is True

    def test_the_model_call(self, run: Any) -> None:
        """Model, provider, tokens, prompt and answer, in both vocabularies."""
        found = attributes(run()["chat scripted-1-2026"])

        assert found["openinference.span.kind"] == "LLM"
        assert found["gen_ai.operation.name"] == "chat"
        assert found["llm.model_name"] == found["gen_ai.response.model"] == "scripted-1-2026"
        assert found["llm.provider"] == found["gen_ai.provider.name"] == "acme"
        assert found["llm.token_count.prompt"] == found["gen_ai.usage.input_tokens"] == 40
        assert found["llm.token_count.completion"] == found["gen_ai.usage.output_tokens"] == 7
        assert found["llm.token_count.total"] == 47
        assert found["gen_ai.usage.cache_read.input_tokens"] == 12
        assert found["rageval.usage.source"] == "provider"
        assert FACTS[0].page_content in json.loads(found["gen_ai.system_instructions"])[0]["content"]
        [asked] = json.loads(found["gen_ai.input.messages"])
        assert asked == {"role": "user", "parts": [{"type": "text", "content": QUESTION}]}
        [answered] = json.loads(found["gen_ai.output.messages"])
        assert answered["parts"][0]["content"] == "It was opened in 2019."

    def test_estimated_tokens_are_marked(self, run: Any) -> None:
        """A count that no provider made says who made it."""
        spans = run(lcel(usage=None))
        chat = next(span for name, span in spans.items() if name.startswith("chat "))

        assert attributes(chat)["rageval.usage.source"] in ("tiktoken", "characters")
        assert attributes(chat)["gen_ai.usage.input_tokens"] > 10

    def test_context_attributes_of_openinference(self, run: Any, backend: Backend) -> None:
        """``using_attributes`` names session and user for everything inside it."""
        from openinference.instrumentation import using_attributes

        with using_attributes(session_id="s2", user_id="u2", metadata={"tenant": "north"}):
            found = attributes(run()["rag RunnableSequence"])

        assert (found["session.id"], found["user.id"]) == ("s2", "u2")
        assert json.loads(found["metadata"]) == {"tenant": "north"}


class TestScores:
    def test_numbers_labels_and_explanations(self, run: Any) -> None:
        """A score is a double with its name, a label if there is a threshold, and an explanation; each once."""
        metric = Fixed(
            Score(name="fixed", value=0.25, explanation="because", model="m", metadata={"k": 1}),
            Score(name="cost_like", value=3.5, annotator="CODE"),
        )
        thresholds = {"fixed": 0.5, "cost_like": 5.0}
        span = run(metrics=[metric], thresholds=thresholds)["evaluate fixed"]
        found = attributes(span)

        assert not span.events
        assert [name for name, value in found.items() if value == 0.25] == ["rageval.score.fixed"]
        assert found["rageval.score.cost_like"] == 3.5
        assert found["rageval.label.fixed"] == "fail"
        assert found["rageval.label.cost_like"] == "pass"
        assert found["rageval.explanation.fixed"] == "because"

    def test_a_person_who_opens_an_evaluation_reads_the_question_and_the_scores(self, run: Any) -> None:
        """Phoenix draws input and output; main scores come first."""
        scores = (Score(name="tone", value=0.25), Score(name="faithfulness", value=1, label="pass"))
        found = attributes(run(metrics=[Fixed(*scores, Skipped(name="absent", reason="none"))])["evaluate fixed"])

        assert found["input.value"] == "When was the pier opened?"
        assert found["output.value"] == "faithfulness=1 (pass)\ntone=0.25\nabsent skipped"

    def test_the_turns_span_has_the_main_scores(self, run: Any) -> None:
        """Value and label, without the details."""
        metric = Fixed(Score(name="fixed", value=0.25, explanation="because"))
        found = attributes(run(metrics=[metric], thresholds={"fixed": 0.5})["rag RunnableSequence"])

        assert found["rageval.score.fixed"] == 0.25
        assert found["rageval.label.fixed"] == "fail"
        assert "rageval.explanation.fixed" not in found

    def test_the_turns_span_has_at_most_twelve_score_attributes(self, run: Any) -> None:
        """The main scores come first; the rest is on the span of the evaluation."""
        scores = [Score(name=f"score{number}", value=0.5, label="pass") for number in range(20)]
        spans = run(metrics=[Fixed(*scores, Score(name="faithfulness", value=0.1, label="fail"))])
        found = attributes(spans["rag RunnableSequence"])

        kinds = ("rageval.score.", "rageval.label.", "rageval.failed.", "rageval.skipped.")
        assert len([name for name in found if name.startswith(kinds)]) == 12
        assert found["rageval.label.faithfulness"] == "fail"
        assert "rageval.score.score19" not in found
        assert "rageval.score.score19" in attributes(spans["evaluate fixed"])

    @pytest.mark.parametrize(
        "verdict",
        [
            Score(name="verdict", value=0.0, label="bad", cause="unsupported", explanation="as it is"),
            Skipped(name="verdict", label="bad", cause="unsupported", reason="as it is"),
        ],
        ids=["with a number", "without"],
    )
    def test_the_verdict_can_be_searched(self, backend: Backend, verdict: Any) -> None:
        """On the turn's span and on that of the evaluation. GenAI's names come first where attributes are sorted."""
        exporter = OtelExporter(backend.provider, log_events=False, score_metrics=False)
        exporter.export(evaluation(Score(name="groundedness", value=0.9, label="pass"), verdict))

        [root] = [span for span in backend.exporter.get_finished_spans() if span.parent is None]
        for found in map(attributes, (root, backend.spans["evaluate"])):
            assert found["rageval.verdict"] == found["rageval.label.verdict"] == "bad"
            assert found["rageval.cause"] == "unsupported"
            assert found["gen_ai.evaluation.name"] == "verdict"
            assert found["gen_ai.evaluation.score.label"] == "bad"
        # The reason first, then the results.
        assert attributes(backend.spans["evaluate"])["output.value"].startswith("bad: unsupported: as it is\nverdict")

    def test_usage_is_no_main_score(self, run: Any) -> None:
        """Latency and tokens are on the evaluation's span only."""
        spans = run(metrics=["latency", "tokens"])

        assert not [name for name in attributes(spans["rag RunnableSequence"]) if name.startswith("rageval.score.")]
        assert "rageval.score.latency" in attributes(spans["evaluate"])

    def test_several_metrics_are_one_span(self, run: Any) -> None:
        """Named without a metric, so that the names of spans are few."""
        found = attributes(run(metrics=["latency", "tokens", Fixed(Score(name="fixed", value=0.5))])["evaluate"])

        assert {f"rageval.score.{name}" for name in ("latency", "tokens", "fixed")} <= set(found)
        assert found["gen_ai.evaluation.name"] == "fixed"

    def test_a_cost_that_came_late_is_no_span(self, backend: Backend) -> None:
        """It needs a tokenizer, which may be loading; it is in the log events and metrics."""
        exporter = OtelExporter(backend.provider, log_events=False, score_metrics=False)
        cost = Score(name="cost", value=0.01, unit="USD", high=None)
        exporter.export(evaluation(cost).model_copy(update={"stage": "background"}))
        exporter.export(evaluation(Score(name="tone", value=1)).model_copy(update={"stage": "background"}))

        assert list(backend.spans) == ["evaluate tone"]

    def test_a_failed_turn_has_no_evaluation(self, run: Any) -> None:
        """Its span says that it failed; a span of latency and of skipped metrics says nothing more."""
        spans = run(lcel(documents=ZeroDivisionError("index is empty")), metrics=["latency", "groundedness"])

        assert not [name for name in spans if name.startswith("evaluate")]

    def test_no_threshold_no_label(self, run: Any) -> None:
        """Without a threshold there is no label."""
        found = attributes(run(metrics=[Fixed(Score(name="fixed", value=0.25))])["rag RunnableSequence"])

        assert "rageval.label.fixed" not in found

    def test_what_could_not_be_computed_is_no_number(self, run: Any) -> None:
        """Skipped and failed metrics say why, where the score would be looked for."""
        metric = Fixed(
            Skipped(name="fixed", reason="nothing to read"),
            Failed(name="cost_like", error_type="OSError", message="disk"),
        )
        found = attributes(run(metrics=[metric])["evaluate fixed"])

        assert found["rageval.skipped.fixed"] == "nothing to read"
        assert found["rageval.failed.cost_like"] == "OSError: disk"
        assert not [name for name in found if name.startswith("rageval.score")]

    def test_scores_of_passages(self, run: Any) -> None:
        """A JSON list in the order of the passages: some backends refuse arrays."""
        scores = [
            Score(name="fixed", value=value, target=Target(kind="passage", index=index))
            for index, value in enumerate((0.5, 0.75))
        ]
        found = attributes(run(metrics=[Fixed(*scores)])["evaluate fixed"])

        assert found["rageval.passage_scores.fixed"] == "[0.5,0.75]"
        assert "rageval.score.fixed" not in found

    @pytest.mark.parametrize("places", [(0,), (1,)], ids=["the last has none", "the first has none"])
    def test_scores_of_some_passages(self, run: Any, places: tuple[int, ...]) -> None:
        """The span has the numbers, and the passages that they belong to."""
        scores = [Score(name="fixed", value=0.5, target=Target(kind="passage", index=index)) for index in places]
        found = attributes(run(metrics=[Fixed(*scores)])["evaluate fixed"])

        assert found["rageval.passage_scores.fixed"] == "[0.5]"
        assert json.loads(found["rageval.scored_passages.fixed"]) == list(places)

    @pytest.mark.parametrize(
        ("result", "message"),
        [
            (
                Score(name="fixed", value=5.0),
                "ValueError: the value is 5, and fixed is 0 to 1",
            ),
            (
                Score(name="cost_like", value=-1.0),
                "ValueError: the value is -1, and cost_like is 0 and above",
            ),
        ],
    )
    def test_a_number_out_of_its_range_is_a_failure(self, run: Any, result: Any, message: str) -> None:
        """It has failed, with the range."""
        found = attributes(run(metrics=[Fixed(result)])["rag RunnableSequence"])

        advice = ": give its range where it is made, such as high=None"
        assert found[f"rageval.failed.{result.name}"] == message + advice
        assert not [name for name in found if name.startswith("rageval.score.")]

    def test_a_metric_that_returns_nothing_is_skipped(self, run: Any) -> None:
        """An empty list says nothing, and that is said."""
        found = attributes(run(metrics=[Fixed()])["evaluate fixed"])

        assert found["rageval.skipped.fixed"] == "the metric returned no result"

    def test_the_probability_of_selection_is_there_when_turns_are_sampled(self, backend: Backend) -> None:
        """So that a mean over sampled traffic can be weighted."""
        with rageval_hooks.instrument(
            metrics=[Fixed(Score(name="fixed", value=1))], tracer_provider=backend.provider, sample_rate=0.5
        ) as handle:
            for _ in range(64):
                lcel().invoke(QUESTION)
            handle.flush(10)

        turns = [span for span in backend.exporter.get_finished_spans() if span.name.startswith("rag ")]
        assert 0 < len(turns) < 64
        assert {attributes(span)["rageval.sampling.probability"] for span in turns} == {0.5}


class TestLateScores:
    """Metrics that did not fit the inline budget come as spans of their own."""

    def late(self, run: Any, *results: Any, **settings: Any) -> dict[str, ReadableSpan]:
        return run(metrics=[Fixed(*results)], inline_budget_ms=0, **settings)

    def test_a_child_of_the_turns_span_and_linked_to_it(self, run: Any) -> None:
        """OpenInference finds what is judged by the link, a reader of the trace by the parent."""
        spans = self.late(run, Score(name="fixed", value=0.25))
        turn, late = spans["rag RunnableSequence"], spans["evaluate fixed"]

        assert turn.context is not None
        assert late.parent is not None
        assert late.parent.span_id == turn.context.span_id
        assert [link.context.span_id for link in late.links] == [turn.context.span_id]

    def test_a_late_score_does_not_extend_the_trace(self, run: Any) -> None:
        """It is the last microsecond of the turn. The true times are attributes."""
        spans = self.late(run, Score(name="fixed", value=0.25))
        turn, late = spans["rag RunnableSequence"], spans["evaluate fixed"]

        assert late.end_time == turn.end_time
        assert late.end_time - late.start_time == 1000
        assert attributes(late)["rageval.duration"] > 0
        assert attributes(late)["rageval.evaluated_at"].endswith("+00:00")

    def test_a_late_score_has_a_label_that_can_be_searched(self, run: Any) -> None:
        """Jaeger searches strings."""
        score = Score(name="fixed", value=0.25, explanation="because")
        found = attributes(self.late(run, score, thresholds={"fixed": 0.5})["evaluate fixed"])

        assert found["openinference.span.kind"] == "EVALUATOR"
        assert found["gen_ai.evaluation.name"] == "fixed"
        assert found["rageval.score.fixed"] == 0.25
        assert found["rageval.label.fixed"] == "fail"
        assert found["rageval.explanation.fixed"] == "because"

    @pytest.mark.parametrize(
        ("result", "name"),
        [
            (Failed(name="fixed", error_type="OSError", message="disk"), "rageval.failed.fixed"),
            (Skipped(name="fixed", reason="nothing to read"), "rageval.skipped.fixed"),
        ],
    )
    def test_what_is_missing_is_a_span_with_its_reason(self, run: Any, result: Any, name: str) -> None:
        """And without an error status, which a backend would pass on to the turn."""
        late = self.late(run, result)["evaluate fixed"]

        assert name in attributes(late)
        assert late.status.status_code is StatusCode.UNSET
        assert "gen_ai.evaluation.score.value" not in attributes(late)

    def test_a_part_that_failed_does_not_make_the_metric_fail(self, run: Any) -> None:
        """There is no ``error.type`` next to a number."""
        failed = Failed(name="cost_like", error_type="OSError", message="disk")
        found = attributes(self.late(run, Score(name="fixed", value=0.6), failed)["evaluate fixed"])

        assert found["rageval.score.fixed"] == 0.6
        assert found["rageval.failed.cost_like"] == "OSError: disk"
        assert "error.type" not in found

    def test_scores_of_passages_are_one_span(self, run: Any) -> None:
        """Not one for each passage."""
        scores = [
            Score(name="fixed", value=value, target=Target(kind="passage", index=index))
            for index, value in enumerate((0.5, 0.75))
        ]
        late = self.late(run, Score(name="fixed", value=0.6), *scores)

        assert attributes(late["evaluate fixed"])["rageval.passage_scores.fixed"] == "[0.5,0.75]"


class TestMediaTypes:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [("[1] The pier is old [2]", "text/plain"), ('{"year": 2019}', "application/json"), ("{x}", "text/plain")],
    )
    def test_only_json_is_called_so(self, run: Any, text: str, kind: str) -> None:
        """A text that begins and ends with marks of citations is a text."""
        chain = RunnableLambda(lambda question: text) | RunnableLambda(lambda _: "x", name="reader")
        found = attributes(run(chain, spans="all")["reader"])

        assert found["input.value"] == text
        assert found["input.mime_type"] == kind


class TestErrors:
    def test_the_exception_is_on_the_step_and_on_the_turn(self, run: Any) -> None:
        """With status, type, message and event."""
        spans = run(lcel(documents=ZeroDivisionError("index is empty")))

        for name in ("rag RunnableSequence", "retrieval ScriptedRetriever"):
            span = spans[name]
            assert span.status.status_code is StatusCode.ERROR
            assert attributes(span)["error.type"] == "ZeroDivisionError"
            [event] = span.events
            assert dict(event.attributes or {}) == {
                "exception.type": "ZeroDivisionError",
                "exception.message": "index is empty",
            }

    def test_an_early_end_is_no_error(self, backend: Backend) -> None:
        """A reader that had enough."""
        with rageval_hooks.instrument(metrics=[], tracer_provider=backend.provider) as handle:
            stream = lcel().stream(QUESTION)
            next(stream)
            stream.close()
            handle.flush(10)

        turn = backend.spans["rag RunnableSequence"]
        assert turn.status.status_code is StatusCode.UNSET
        assert attributes(turn)["rageval.turn.status"] == "cancelled"
        assert attributes(backend.spans["chat scripted-1"])["rageval.incomplete"] is True


class TestSampling:
    @staticmethod
    def unsampled() -> Context:
        parent = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(0))
        return trace.set_span_in_context(NonRecordingSpan(parent))

    @pytest.mark.parametrize("asked", [False, True])
    def test_a_trace_that_is_not_recorded_has_no_spans_and_is_evaluated_only_if_asked(
        self, backend: Backend, asked: bool
    ) -> None:
        """The application has decided not to record it."""
        from opentelemetry.context import attach, detach

        seen: list[Evaluation] = []
        with rageval_hooks.instrument(
            metrics=["latency"], tracer_provider=backend.provider, on_evaluation=seen.append, evaluate_unsampled=asked
        ) as handle:
            token = attach(self.unsampled())
            lcel().invoke(QUESTION)
            detach(token)
            handle.flush(10)
            stats = handle.stats()

        assert backend.spans == {}
        assert len(seen) == int(asked)
        assert stats["unsampled_traces"] == int(not asked)

    def test_random_bits_in_the_flags_do_not_matter(self, backend: Backend) -> None:
        """Sampled is one bit."""
        from opentelemetry.context import attach, detach

        parent = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(0x03))
        with rageval_hooks.instrument(metrics=[], tracer_provider=backend.provider) as handle:
            token = attach(trace.set_span_in_context(NonRecordingSpan(parent)))
            lcel().invoke(QUESTION)
            detach(token)
            handle.flush(10)

        assert "rag RunnableSequence" in backend.spans

    @pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(TraceIdRatioBased(0.0))], ids=["off", "ratio 0"])
    def test_what_the_provider_would_drop_is_not_evaluated(self, sampler: Any) -> None:
        """A root of our own that the application's sampler does not want costs nothing."""
        backend = Backend(sampler=sampler)
        seen: list[Evaluation] = []
        with rageval_hooks.instrument(
            metrics=["latency"], tracer_provider=backend.provider, on_evaluation=seen.append
        ) as handle:
            lcel().invoke(QUESTION)
            handle.flush(10)
            stats = handle.stats()

        assert backend.spans == {}
        assert seen == []
        assert stats["unsampled_traces"] == 1

    def test_sampled_out_turns_leave_no_spans(self, backend: Backend) -> None:
        """And are counted."""
        with rageval_hooks.instrument(metrics=[], tracer_provider=backend.provider, sample_rate=0.0) as handle:
            lcel().invoke(QUESTION)
            handle.flush(10)
            stats = handle.stats()

        assert backend.spans == {}
        assert stats["sampled_out"] == stats["turns"] == 1


class TestContent:
    SECRETS = ("pier", "opened", "Quern", "ferry")  # no number: an id may have its digits

    def everything(self, backend: Backend) -> str:
        return " ".join(span.to_json() for span in backend.exporter.get_finished_spans())

    @pytest.mark.parametrize(
        ("settings", "environment"),
        [
            ({"capture_content": False}, {}),
            ({}, {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "NO_CONTENT"}),
            ({}, {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "false"}),
            ({}, {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "EVENT_ONLY"}),
            ({}, {"RAGEVAL_CAPTURE_CONTENT": "false"}),
        ],
    )
    @pytest.mark.parametrize("inline_budget_ms", [2000, 0], ids=["inline", "late"])
    def test_hidden_content_is_nowhere(
        self,
        run: Any,
        backend: Backend,
        monkeypatch: pytest.MonkeyPatch,
        settings: Any,
        environment: Any,
        inline_budget_ms: int,
    ) -> None:
        """Not in the texts, and not in what metrics say of them: explanations, details, messages of errors."""
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        metric = Fixed(
            Score(name="fixed", value=1, explanation="says pier", metadata={"sentence": "the pier"}),
            Failed(
                name="cost_like",
                error_type="refused",
                message="cannot read 'pier'",
                metadata={"judge": {"refusal": "I do not speak about the pier", "attempts": 1, "model": "judge-1"}},
            ),
        )
        run(metrics=[metric, "groundedness"], models="lexical", inline_budget_ms=inline_budget_ms, **settings)
        run(lcel(documents=ZeroDivisionError("no pier")), **settings)

        text = self.everything(backend)
        assert [secret for secret in self.SECRETS if secret in text] == []
        assert "__REDACTED__" in text
        assert '"rageval.score.fixed": 1.0' in text
        assert '"rageval.judge.attempts": 1' in text
        assert '"rageval.judge.model": "judge-1"' in text

    def test_a_value_of_the_variable_that_is_not_known_hides_and_is_named(
        self, run: Any, backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A typing error must not publish what the user meant to hide."""
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "no_contents")
        run()

        assert "pier" not in self.everything(backend)
        assert "CAPTURE_MESSAGE_CONTENT='no_contents' is not known; content is kept off spans" in caplog.text

    def test_scores_on_an_open_span_of_another_tracer_quote_nothing(self, backend: Backend) -> None:
        """The same as on spans of our own."""
        span = backend.provider.get_tracer("another").start_span("theirs")
        turn = evaluation().turn
        assert turn.span is not None
        turn.span.within(Context(), span)
        failed = Failed(name="fixed", error_type="OSError", message="no pier")
        exporter = OtelExporter(backend.provider, capture_content=False)
        delivery_to(exporter).annotate(Evaluation(turn=turn, results=(failed,)))
        span.end()

        assert attributes(backend.spans["theirs"])["rageval.failed.fixed"] == "OSError: __REDACTED__"

    def test_a_span_of_another_tracer_that_has_ended_is_left_alone(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        """OpenTelemetry would warn in the application's log."""
        span = backend.provider.get_tracer("another").start_span("theirs")
        found = evaluation()
        assert found.turn.span is not None
        found.turn.span.within(Context(), span)
        span.end()
        OtelExporter(backend.provider).annotate(found)

        assert caplog.messages == []
        assert not attributes(backend.spans["theirs"])

    @pytest.mark.parametrize("kind", ["INPUTS", "OUTPUTS", "INPUT_MESSAGES", "RETRIEVAL_DOCUMENTS"])
    def test_what_passes_through_prompts_and_chains_may_be_any_text(
        self, run: Any, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        """One's output is the other's input: hidden as soon as one kind of text is."""
        monkeypatch.setenv(f"OPENINFERENCE_HIDE_{kind}", "true")
        prompt = attributes(run(spans="all")["ChatPromptTemplate"])

        assert prompt["input.value"] == prompt["output.value"] == "__REDACTED__"

    def test_a_models_words_are_hidden_in_both_places(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are its message and its span's output."""
        monkeypatch.setenv("OPENINFERENCE_HIDE_OUTPUT_MESSAGES", "true")

        assert attributes(run()["chat scripted-1-2026"])["output.value"] == "__REDACTED__"

    def test_our_own_setting_comes_before_the_general_one(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """``capture_content=True`` shows content where others hide it."""
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "NO_CONTENT")

        assert attributes(run(capture_content=True)["rag RunnableSequence"])["input.value"] == QUESTION

    HIDES: ClassVar[dict[str, tuple[str, str, str]]] = {
        "OPENINFERENCE_HIDE_INPUTS": ("rag RunnableSequence", "input.value", "output.value"),
        "OPENINFERENCE_HIDE_OUTPUTS": ("rag RunnableSequence", "output.value", "input.value"),
        "OPENINFERENCE_HIDE_INPUT_MESSAGES": (
            "chat scripted-1-2026",
            "gen_ai.input.messages",
            "gen_ai.output.messages",
        ),
        "OPENINFERENCE_HIDE_OUTPUT_MESSAGES": (
            "chat scripted-1-2026",
            "gen_ai.output.messages",
            "gen_ai.input.messages",
        ),
        "OPENINFERENCE_HIDE_RETRIEVAL_DOCUMENTS": (
            "retrieval ScriptedRetriever",
            "retrieval.documents.0.document.content",
            "input.value",
        ),
    }

    @pytest.mark.parametrize(("variable", "where"), HIDES.items(), ids=HIDES.keys())
    def test_the_switches_of_openinference(
        self, run: Any, monkeypatch: pytest.MonkeyPatch, variable: str, where: tuple[str, str, str]
    ) -> None:
        """Each hides its part, and explanations, which may quote it; the rest stays."""
        monkeypatch.setenv(variable, "true")
        span, hidden, shown = where
        spans = run(metrics=[Fixed(Score(name="fixed", value=1, explanation="says pier"))])

        assert "__REDACTED__" in attributes(spans[span])[hidden]
        assert "__REDACTED__" not in attributes(spans[span])[shown]
        assert attributes(spans["evaluate fixed"])["rageval.explanation.fixed"] == "__REDACTED__"


class TestLimits:
    def test_scores_survive_a_small_attribute_limit(self) -> None:
        """Providers keep 128 attributes by default and silently drop the oldest: what matters most comes first."""
        backend = Backend(span_limits=SpanLimits(max_span_attributes=24))
        metric = Fixed(*(Score(name=f"score{number}", value=number / 100, explanation="x") for number in range(10)))
        with rageval_hooks.instrument(metrics=[metric], tracer_provider=backend.provider) as handle:
            lcel().invoke(QUESTION)
            handle.flush(10)

        turn = backend.spans["rag RunnableSequence"]
        found = attributes(turn)
        assert [found[f"rageval.score.score{number}"] for number in range(10)] == [number / 100 for number in range(10)]
        assert found["input.value"] == QUESTION
        assert found["rageval.dropped_attributes"] > 0
        assert len(found) == 24
        assert turn.dropped_attributes == 0

    def test_a_thousand_passages_fit(self) -> None:
        """The first ones are there, the number says how many there were."""
        from langchain_core.documents import Document

        backend = Backend()
        documents = [Document(id=str(number), page_content=f"passage {number}") for number in range(1000)]
        with rageval_hooks.instrument(metrics=[], tracer_provider=backend.provider) as handle:
            lcel(documents=documents).invoke(QUESTION)
            handle.flush(10)

        found = attributes(backend.spans["retrieval ScriptedRetriever"])
        assert found["retrieval.documents.0.document.content"] == "passage 0"
        assert found["rageval.dropped_attributes"] > 2000
        assert attributes(backend.spans["rag RunnableSequence"])["rageval.passages.count"] == 1000

    def test_junk_can_be_encoded(self, run: Any) -> None:
        """Lone surrogates and null bytes do not lose a batch."""
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        junk = "\ud800 pier \x00 \udfff"
        from langchain_core.documents import Document

        chain = lcel(junk, documents=[Document(id=junk, page_content=junk, metadata={junk: junk})])
        spans = run(chain, {"metadata": {"session_id": junk}})

        assert encode_spans(list(spans.values())).SerializeToString()


class TestContextOfTheApplication:
    def test_span_processors_find_it(self, backend: Backend) -> None:
        """A processor that copies baggage, or values of another library, sees them on our spans too."""
        from opentelemetry import baggage
        from opentelemetry.context import attach, detach, set_value
        from opentelemetry.sdk.trace import Span, SpanProcessor

        class Copying(SpanProcessor):
            def on_start(self, span: Span, parent_context: Context | None = None) -> None:
                context = parent_context or Context()
                span.set_attribute("tenant", str(baggage.get_baggage("tenant", context)))
                span.set_attribute("request", str(context.get("request")))

        backend.provider.add_span_processor(Copying())
        with rageval_hooks.instrument(metrics=["latency"], tracer_provider=backend.provider) as handle:
            token = attach(set_value("request", "r1", baggage.set_baggage("tenant", "north")))
            lcel().invoke(QUESTION)
            detach(token)
            assert handle.flush(10)

        found = {
            (name, attributes(span)["tenant"], attributes(span)["request"]) for name, span in backend.spans.items()
        }
        assert {name for name, _, _ in found} >= {"rag RunnableSequence", "evaluate latency"}
        assert {(tenant, request) for _, tenant, request in found} == {("north", "r1")}
