"""Labels: thresholds by default and as the user sets them, in every exporter."""

from __future__ import annotations

import importlib.metadata
import json
import types
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks import ConfigurationError, Evaluation, Score, ScoreDefinition, Turn, UnknownNameError, evaluate
from rageval_hooks.metrics.base import REGISTRY, Metric, Threshold
from rageval_hooks.models import Models
from rageval_hooks.models.sources import packaged_minilm
from rageval_hooks.offline.records import Record, write_records
from rageval_hooks.offline.report import build_report
from rageval_hooks.score import Target
from rageval_hooks.settings import LEXICAL, MINILM, Settings
from rageval_hooks.testing import FakeJudge
from tests.integrations.langchain.fakes import lcel
from tests.local import make_turn

QUERY = "When was the new pier opened?"
PIER = "The new pier was opened in September 2019."
COWS = "Cows eat grass and clover."
GOOD = make_turn("The new pier was opened in September 2019.", [PIER, COWS], QUERY)
BAD = make_turn("A hotel with 300 rooms stands behind the lighthouse.", [PIER, COWS], QUERY)
LOCAL = ["groundedness", "unsupported_facts", "context_relevance"]
MEASURED = (Threshold(value=0.74, models=("m", "n"), accuracy=(0.6, 0.7), sets=("mine",)),)
REAL = {"cross_encoder": LEXICAL, "nlp": LEXICAL}


def labels(evaluation: Evaluation) -> dict[str, str]:
    """Labels of scores of the whole turn, by name."""
    return {score.name: score.label for score in evaluation.turn_scores() if score.label is not None}


def passage_labels(evaluation: Evaluation, name: str) -> list[str | None]:
    return [s.label for s in evaluation.scores if s.name == name and s.target.kind == "passage"]


def labels_of(turn: Turn = GOOD, models: Any = LEXICAL, **settings: Any) -> dict[str, str]:
    return labels(evaluate(turn, **{"metrics": LOCAL, "models": models, **settings}))


@pytest.fixture
def loaded(minilm: Models) -> Mapping[str, str]:
    """The settings of the real MiniLM, which is loaded."""
    return REAL


class TestDefaults:
    @pytest.mark.parametrize("models", [REAL, {**REAL, "embedder": MINILM[1]}, LEXICAL], ids=["minilm", "short", "lex"])
    def test_measured_scores_have_labels(self, minilm: Models, models: Any) -> None:
        """Of the turn, and of each passage; in the tier with MiniLM, by either of its names, and in the lexical one."""
        good, bad = (evaluate(turn, metrics=LOCAL, models=models) for turn in (GOOD, BAD))

        assert labels(good) == {"groundedness": "pass", "unsupported_facts": "pass"}
        assert labels(bad) == {"groundedness": "fail", "unsupported_facts": "fail"}
        assert passage_labels(good, "context_relevance") == ["pass", "fail"]

    def test_the_mean_over_passages_has_none(self, loaded: Any) -> None:
        """It was measured for single passages: one right one of two would fail."""
        [mean] = [
            s for s in evaluate(GOOD, metrics=LOCAL, models=loaded).turn_scores() if s.name == "context_relevance"
        ]

        assert mean.label is None

    def test_another_embedder_has_none_for_what_it_computes(self) -> None:
        """Its values are others. What takes no model has its label all the same."""
        evaluation = evaluate(GOOD, metrics=LOCAL, models={**REAL, "embedder": str(packaged_minilm())})

        assert labels(evaluation) == {"unsupported_facts": "pass"}
        assert passage_labels(evaluation, "context_relevance") == [None, None]

    def test_no_other_score_has_one(self) -> None:
        """No threshold was measured for them."""
        assert set(labels(evaluate(GOOD, models=LEXICAL))) == {
            "verdict",
            "faithfulness",
            "groundedness",
            "unsupported_facts",
        }

    def test_a_default_is_within_the_range_of_its_score(self) -> None:
        """And says how good it was, on which sets; two never meet the same score."""
        found = [score for metric in REGISTRY.builtin().values() for score in metric.scores if score.thresholds]

        assert {score.name for score in found} == {"faithfulness", *LOCAL}
        for score in found:
            models = [(model, threshold.target) for threshold in score.thresholds for model in threshold.models]
            assert len(set(models)) == len(models)
            for threshold in score.thresholds:
                assert score.low <= threshold.value
                assert score.high is None or threshold.value <= score.high
                assert 0.5 <= threshold.accuracy[0] <= threshold.accuracy[1] <= 1
                assert threshold.sets

    @pytest.mark.parametrize(
        ("value", "direction", "expected"),
        [
            (0.74, "higher", "pass"),
            (0.7399999, "higher", "fail"),
            (0.74, "lower", "pass"),
            (0.7400001, "lower", "fail"),
        ],
    )
    def test_the_threshold_itself_passes(self, value: float, direction: Any, expected: str) -> None:
        """At least, or at most where lower is better."""

        class Fixed(Metric):
            name = "fixed"
            scores = (ScoreDefinition(name="fixed", description="", direction=direction, thresholds=MEASURED),)

            def evaluate(self, analysis: Any) -> Any:
                return self.score(value, model="m")

        assert labels_of(metrics=[Fixed()]) == {"fixed": expected}


class TestOfOnesOwn:
    def test_they_come_before_the_defaults(self) -> None:
        """Score by score: what is not named keeps its default."""
        assert labels_of(thresholds={"groundedness": 0}, turn=BAD) == {
            "groundedness": "pass",
            "unsupported_facts": "fail",
        }

    def test_for_any_model(self) -> None:
        """A user knows which one it is for."""
        embedder = {**REAL, "embedder": str(packaged_minilm())}

        assert labels_of(models=embedder, thresholds={"groundedness": 0.7})["groundedness"] == "pass"

    def test_for_the_mean_and_each_passage(self) -> None:
        """All scores of that name."""
        evaluation = evaluate(GOOD, metrics=LOCAL, models=LEXICAL, thresholds={"context_relevance": 0.4})

        assert labels(evaluation)["context_relevance"] == "pass"
        assert passage_labels(evaluation, "context_relevance") == ["pass", "fail"]

    @pytest.mark.parametrize("thresholds", [{"groundedness": None}, "groundedness=none", '{"groundedness": null}'])
    def test_one_label_off(self, thresholds: Any) -> None:
        """The others stay."""
        assert labels_of(thresholds=thresholds) == {"unsupported_facts": "pass"}

    @pytest.mark.parametrize("thresholds", ["none", "None", {"*": None}, "*=none"])
    def test_all_off(self, thresholds: Any) -> None:
        """Of the turn and of the passages."""
        evaluation = evaluate(GOOD, metrics=LOCAL, models=LEXICAL, thresholds=thresholds)

        assert [score.label for score in evaluation.scores] == [None] * 5

    @pytest.mark.parametrize("thresholds", ["none, groundedness=0.9", {"*": None, "groundedness": 0.9}])
    def test_all_off_but_some(self, thresholds: Any) -> None:
        """What is named is meant."""
        assert labels_of(thresholds=thresholds) == {"groundedness": "pass"}

    def test_none_is_not_given(self) -> None:
        """As for every setting: wrappers pass everything on."""
        assert labels_of(thresholds=None) == labels_of() != {}

    def test_any_mapping_will_do(self) -> None:
        """Also one that cannot be changed."""
        given = types.MappingProxyType({"*": None, "groundedness": 0.9})

        assert labels_of(thresholds=given) == {"groundedness": "pass"}
        with rageval_hooks.instrument(metrics=LOCAL, models=LEXICAL, exporters=[], thresholds=given) as handle:
            assert handle.pipeline.settings.thresholds == {"*": None, "groundedness": 0.9}

    def test_settings_with_none_survive_json(self) -> None:
        """They are plain data."""
        settings = Settings.build(thresholds="none, groundedness=0.9, latency=none")

        assert settings.thresholds == {"*": None, "groundedness": 0.9, "latency": None}
        assert Settings.build(**json.loads(settings.model_dump_json())) == settings


GRADES = {"intent": "", "grades": [{"passage": n, "grade": grade} for n, grade in enumerate((3, 1))]}


class TestScoresOfOtherKinds:
    def test_each_grade_of_umbrela(self) -> None:
        """It has no score of the turn under that name; its mean has its own threshold."""
        judge = FakeJudge([GRADES])
        found = evaluate(GOOD, metrics=["umbrela"], judge=judge, thresholds={"umbrela": 2, "umbrela.mean": 2.5})

        assert passage_labels(found, "umbrela") == ["pass", "fail"]
        assert labels(found) == {"umbrela.mean": "fail"}

    def test_without_a_threshold_grades_have_no_label(self) -> None:
        """As all that was not measured."""
        found = evaluate(GOOD, metrics=["umbrela"], judge=FakeJudge([GRADES]))

        assert [score.label for score in found.scores] == [None] * 3

    @pytest.mark.parametrize("metrics", ["no_answer", None], ids=["it runs", "others run"])
    def test_no_answer_keeps_its_own_labels(self, metrics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """A threshold for it is refused before anything is computed, also from the environment."""
        judge = FakeJudge([{"explanation": "", "attempted": True}])
        with pytest.raises(ConfigurationError, match="no_answer would replace its labels, which are answered and decl"):
            evaluate(GOOD, metrics="no_answer", judge=judge, thresholds={"no_answer": 1})
        monkeypatch.setenv("RAGEVAL_THRESHOLDS", "no_answer=1")
        with pytest.raises(ConfigurationError, match="no_answer would replace its labels"):
            evaluate(GOOD, metrics=metrics, models=LEXICAL, judge=judge if metrics else None)

        assert judge.calls == []

    def test_no_answer_is_labelled_as_ever(self) -> None:
        """By what the judge says."""
        judge = FakeJudge([{"explanation": "", "attempted": True}])

        assert labels_of(metrics="no_answer", judge=judge) == {"no_answer": "answered"}

    def test_an_own_score_of_a_sentence(self) -> None:
        """Whatever a score of that name is about."""

        class Sentences(Metric):
            name = "sentences"
            scores = (ScoreDefinition(name="sentences", description=""),)

            def evaluate(self, analysis: Any) -> Any:
                return [Score(name="sentences", value=v, target=Target(kind="sentence", index=0)) for v in (0.2, 0.9)]

        found = evaluate(GOOD, metrics=[Sentences()], thresholds={"sentences": 0.5})

        assert [score.label for score in found.scores] == ["fail", "pass"]


class TestTheEnvironment:
    @pytest.fixture(autouse=True)
    def variable(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        return lambda text: monkeypatch.setenv("RAGEVAL_THRESHOLDS", text)

    def test_a_score_that_is_not_computed_here(self, variable: Any) -> None:
        """It is meant for the whole process: other calls compute it."""
        variable("groundedness=0, trace.adherence=1, precision@5=0.5")

        assert labels_of(BAD)["groundedness"] == "pass"
        assert labels_of(metrics=["latency"]) == {}
        assert evaluate(GOOD, metrics=[]).results == ()
        with rageval_hooks.instrument(metrics=["latency"], exporters=[]) as handle:
            assert handle.pipeline.settings.thresholds["trace.adherence"] == 1

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("groundednes=0.7", "unknown score in thresholds 'groundednes'. Did you mean 'groundedness'?"),
            ("bogus=none", "unknown score in thresholds 'bogus'. Valid: answer_relevance, answers_question, ap@1"),
            ("trace.adherence=3", "the threshold of trace.adherence is 3, but its values are 0 to 1"),
            ("*=0.5", "thresholds: '*' stands for every score that is not named: it can only be None"),
        ],
    )
    def test_what_is_wrong_is_an_error_all_the_same(self, variable: Any, text: str, message: str) -> None:
        """A name that no metric has, a value outside the range: they would do nothing, silently."""
        variable(text)
        with pytest.raises(ConfigurationError) as raised:
            evaluate(GOOD, metrics=["latency"])

        assert str(raised.value).startswith(message)
        assert "no_answer," not in str(raised.value)  # it takes none

    def test_a_keyword_is_for_the_metrics_that_are_named_with_it(self) -> None:
        """So a score that they do not compute is a mistake."""
        with pytest.raises(
            UnknownNameError, match=r"'groundedness'\. Valid: latency.*The metrics that run compute these"
        ):
            evaluate(GOOD, metrics=["latency"], thresholds={"groundedness": 0.7})

    def test_a_keyword_comes_before_it(self, variable: Any) -> None:
        """As a whole."""
        variable("none")

        assert labels_of() == {}
        assert labels_of(thresholds={}) == {"groundedness": "pass", "unsupported_facts": "pass"}

    @pytest.mark.parametrize(("text", "expected"), [("none", {}), ("groundedness=none", {"unsupported_facts": "pass"})])
    def test_labels_off(self, variable: Any, text: str, expected: dict[str, str]) -> None:
        """All or one."""
        variable(text)

        assert labels_of() == expected

    def test_a_metric_of_ones_own_that_it_names(self, variable: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where ``RAGEVAL_METRICS`` has it, its scores are known in calls that compute others, too."""
        variable("short=1")
        with pytest.raises(UnknownNameError, match="where the metric runs"):
            evaluate(GOOD, metrics=["latency"])
        monkeypatch.setenv("RAGEVAL_METRICS", "latency,tests.online.test_thresholds:short")

        assert labels_of(metrics=["latency"]) == {}
        assert labels(evaluate(GOOD)) == {"short": "pass"}


@rageval_hooks.metric(requires=["response"])
def short(turn: Turn) -> bool:
    """Whether the response is short."""
    return len(turn.response) < 100


@pytest.mark.parametrize("models", [REAL, LEXICAL], ids=["minilm", "lexical"])
@pytest.mark.parametrize(
    ("turn", "thresholds", "expected"),
    [
        (GOOD, None, "pass"),
        (BAD, None, "fail"),
        (BAD, {"groundedness": 0}, "pass"),
        (GOOD, {"groundedness": None}, None),
        (GOOD, "none", None),
    ],
)
def test_labels_stand_on_the_turns_span(
    minilm: Models, models: Any, turn: Turn, thresholds: Any, expected: str | None
) -> None:
    """By default, too: ``rageval.label.<name>``, and on the span of the evaluation."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    settings = {"metrics": LOCAL, "models": models, "thresholds": thresholds, "inline_budget_ms": 60_000}
    with rageval_hooks.instrument(tracer_provider=provider, exporters=["otel"], **settings) as handle:
        handle.pipeline.models.embedder(wait=True)
        lcel(turn.response, [Document(page_content=passage.text) for passage in turn.passages]).invoke(QUERY)
        assert handle.flush(20)
    spans = {span.name: dict(span.attributes or {}) for span in memory.get_finished_spans()}
    found = spans["evaluate"]

    assert 0 <= found["rageval.score.groundedness"] <= 1
    assert spans["rag RunnableSequence"].get("rageval.label.groundedness") == expected
    assert found.get("rageval.label.groundedness") == expected


@pytest.mark.parametrize(
    ("value", "threshold", "direction", "passes"),
    [
        (1 - 4 / 5, 0.2, "higher", True),
        (0.1 + 0.2, 0.3, "lower", True),
        (0.199, 0.2, "higher", False),
        (0.301, 0.3, "lower", False),
    ],
)
def test_a_share_that_is_the_threshold_passes(value: float, threshold: float, direction: Any, passes: bool) -> None:
    """However it was computed: 1 - 4/5 is a little less than 0.2."""
    definition = ScoreDefinition(name="x", description="", direction=direction)
    found = definition.label(Score(name="x", value=value), threshold)

    assert found.label == ("pass" if passes else "fail")


def test_a_metric_of_another_package_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is no obstacle to a report, which asks the metric of each score what it means."""
    broken = EntryPoint("broken", "no_such_package:Metric", "rageval_hooks.metrics")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [broken] if group == "rageval_hooks.metrics" else []
    )
    record = Record(id="q1", turn=GOOD, results=(Score(name="theirs", value=0.5, metric="broken"),))
    write_records(tmp_path / "a.jsonl", [record])
    [file] = build_report([tmp_path / "a.jsonl"]).files

    assert file.score("theirs") is not None
