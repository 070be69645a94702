"""Jobs are plain data: JSON, deterministic keys, and the same scores in another process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks import ConfigurationError, Passage, Score, Turn, metric
from rageval_hooks.metrics.base import REGISTRY, Metric
from rageval_hooks.metrics.judged.ranking import Ranking
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import Job, create_metric, describe_metric
from rageval_hooks.turn import SpanReference
from tests.judges.server import JudgeServer, answer
from tests.local import LEXICAL_MODELS
from tests.online.test_judge_stage import LABELS, judge_of
from tests.warm import run_warm_script

TURN = Turn(
    id="turn-1",
    query="When was the pier opened?",
    response="It was opened in 2019.",
    passages=(Passage(text="The new pier was opened in September 2019.", id="a", metadata={"source": "guide.md"}),),
    span=SpanReference(trace_id="0" * 31 + "1", span_id="1234567890abcdef"),
    metadata={"tenant": "blue"},
)


@metric(requires=["response"], high=None)
def response_words(turn: Turn) -> int:
    """Words of the response."""
    return len(turn.response.split())


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        server.otherwise(answer(LABELS))
        yield server


def metrics(*given: Any) -> list[Metric]:
    return [REGISTRY.create(item) for item in given]


def test_a_job_survives_json() -> None:
    """Every field comes back, options and probabilities included."""
    engine = Engine(metrics("groundedness", Ranking(3, ks=[2])), LEXICAL_MODELS, probabilities={"ranking": 0.25})
    job = engine.job(TURN)
    again = Job.model_validate_json(job.model_dump_json())

    assert again == job
    assert again.key == job.key
    assert again.turn.span == TURN.span
    assert [(m.name, m.options, m.probability) for m in again.metrics] == [
        ("groundedness", {}, 1.0),
        ("ranking", {"relevant": 3, "ks": [2]}, 0.25),
    ]


def test_a_job_in_another_process_has_the_same_scores(server: JudgeServer, tmp_path: Path) -> None:
    """A job written to a file is evaluated elsewhere: local metrics, a function and a judge metric."""
    engine = Engine(
        metrics("groundedness", "unsupported_facts", response_words, "trace"), LEXICAL_MODELS, judge_of(server)
    )
    job = engine.job(TURN)
    path = tmp_path / "job.json"
    path.write_text(job.model_dump_json())
    here = asyncio.run(engine.evaluate(job))

    output = run_warm_script(
        """
import asyncio, sys
from pathlib import Path
from rageval_hooks.judges.openai import OpenAIJudge
from rageval_hooks.models import Models
from rageval_hooks.online.engine import Engine
from rageval_hooks.online.job import Job
from rageval_hooks.settings import ModelSettings

models = Models(ModelSettings(embedder="lexical", cross_encoder="lexical", nlp="lexical"))
engine = Engine([], models, OpenAIJudge("judge-model", base_url=sys.argv[2], api_key="sk-test"))
job = Job.model_validate_json(Path(sys.argv[1]).read_text())
print(asyncio.run(engine.evaluate(job)).model_dump_json())
""",
        path,
        server.url,
    ).stdout

    there = json.loads(output)
    assert len(here.results) > 10
    assert {result.status for result in here.results} == {"scored"}
    assert there["results"] == json.loads(here.model_dump_json())["results"]


def test_a_metric_that_has_no_name_elsewhere_says_so() -> None:
    """Its job still runs in this process; in another one the metric is skipped with the reason and the remedy."""

    @metric
    def local_only(turn: Turn) -> float:
        """Exists in this function alone."""
        return 1.0

    engine = Engine([local_only], LEXICAL_MODELS)
    job = engine.job(TURN)
    assert asyncio.run(engine.evaluate(job))["local_only"] == 1.0

    elsewhere = asyncio.run(Engine([], LEXICAL_MODELS).evaluate(job))
    [skipped] = elsewhere.skipped
    assert "'local_only' exists only in the process that created the job" in skipped.reason
    assert "package.module:name" in skipped.reason


def test_the_key_depends_on_turn_metric_version_and_options() -> None:
    """The same work has the same key in every process; different work has another."""
    job = Engine(metrics("ranking"), LEXICAL_MODELS).job(TURN)
    other_turn = job.model_copy(update={"turn": TURN.model_copy(update={"id": "turn-2"})})
    [spec] = job.metrics
    other_version = job.model_copy(update={"metrics": (spec.model_copy(update={"version": "other"}),)})
    other_options = Engine([Ranking(3)], LEXICAL_MODELS).job(TURN)

    keys = [job.key, other_turn.key, other_version.key, other_options.key]
    assert len(set(keys)) == 4
    assert Engine(metrics("ranking"), LEXICAL_MODELS).job(TURN).key == job.key


@pytest.mark.parametrize(
    "change",
    [
        {"query": "Why?"},
        {"response": "In 2020."},
        {"passages": ()},
        {"passages": (TURN.passages[0].model_copy(update={"text": "The new pier was opened in May 2019."}),)},
    ],
)
def test_the_key_of_a_turn_without_an_id_depends_on_its_texts(change: dict[str, Any]) -> None:
    """A turn that was made by hand has neither an id nor a span."""
    engine, turn = Engine(metrics("groundedness"), LEXICAL_MODELS), TURN.model_copy(update={"id": "", "span": None})

    assert engine.job(turn).key == engine.job(turn.model_copy()).key
    assert engine.job(turn).key != engine.job(turn.model_copy(update=change)).key


def test_turns_whose_texts_are_divided_otherwise_have_different_keys() -> None:
    """Texts that were read from PDF files have null characters, which also separate the parts of a key."""
    engine, turn = Engine(metrics("groundedness"), LEXICAL_MODELS), TURN.model_copy(update={"id": "", "span": None})
    one = turn.model_copy(update={"query": "Why?\0It", "response": "opened"})
    other = turn.model_copy(update={"query": "Why?", "response": "It\0opened"})

    assert engine.job(one).key != engine.job(other).key


@pytest.mark.parametrize("name", REGISTRY.names())
def test_every_registered_metric_can_be_created_from_its_description(name: str) -> None:
    """So that jobs of the defaults run anywhere."""
    original = REGISTRY.create(name)
    created = create_metric(describe_metric(original))

    assert type(created) is type(original)
    assert vars(created) == vars(original)


def test_without_a_judge_its_metrics_are_skipped() -> None:
    """A worker that only has local models still computes the local metrics of a job."""
    job = Engine(metrics("unsupported_facts", "trace"), LEXICAL_MODELS).job(TURN)
    evaluation = asyncio.run(Engine([], LEXICAL_MODELS).evaluate(job))

    assert [score.name for score in evaluation.scores] == ["unsupported_facts"]
    assert {skipped.reason for skipped in evaluation.skipped} == {"no judge is configured in this process"}


def test_a_metric_whose_options_are_no_data_says_so() -> None:
    """An object cannot go to another process: there the metric is skipped, with the reason."""

    class Compares(Metric):
        name = "compares"

        def __init__(self, model: object = None) -> None:
            self.model = model

        def evaluate(self, analysis: object) -> Score:
            return self.score(1)

    described = describe_metric(Compares(model=object()))

    assert described.options == {}
    with pytest.raises(ConfigurationError, match="'compares'"):
        create_metric(described)
