"""The judge sees few turns that look good and many that look bad, and every score says with which probability."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import Context

import rageval_hooks
from rageval_hooks import Evaluation, Score, Skipped, Turn
from rageval_hooks.metrics.base import REGISTRY, Metric
from rageval_hooks.offline.report.corrected import JudgedSample
from rageval_hooks.offline.report.statistics import Resampling
from rageval_hooks.online.job import Job, describe_metric
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.online.turn_context import MetricSampler, trace_fraction
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.settings import Settings
from rageval_hooks.testing import FakeJudge, InMemoryExporter
from tests.local import make_turn
from tests.online.spool.test_spool import Graded, unreachable

SHARES = {"good": 0.1, "doubtful": 0.5, "bad": 0.6}
ANSWERS = {
    "good": "The pier was opened in 2019.",
    "bad": "Kerosene lamps of the lighthouse keeper burned until 1874 in Portugal.",
    "declined": "I do not know.",
}
TURNS = 300


def with_local_verdicts(pipeline: Pipeline, answers: dict[str, str] = ANSWERS) -> None:
    for number in range(TURNS):
        response = list(answers.values())[number % len(answers)]
        turn = make_turn(response, ["The pier was opened in 2019."], f"When was pier {number} opened?")
        context = pipeline.begin(Context())
        pipeline.submit(EndedTurn.of(turn.model_copy(update={"span": context.span_reference()})), context)


def by_verdict(evaluations: list[Evaluation]) -> tuple[Counter[str], dict[str, set[float]]]:
    """Return how many turns with each local verdict were judged, and with which probabilities."""
    labels = {e.turn.query: r.label for e in evaluations for r in e.results if r.name == "verdict"}
    counts, probabilities = Counter[str](), dict[str, set[float]]()
    for evaluation in evaluations:
        if (score := evaluation.score("graded")) is not None:
            label = labels[evaluation.turn.query] or ""
            counts[label] += 1
            probabilities.setdefault(label, set()).add(score.probability)
    return counts, probabilities


@pytest.mark.parametrize("inline_budget_ms", [5000, 0], ids=["inline", "late"])
@pytest.mark.parametrize("dispatch", ["thread", "spool"])
def test_the_local_verdict_decides(tmp_path: Path, inline_budget_ms: int, dispatch: str) -> None:
    """Also one that is late, such as that of a grounding model. A verdict without a share has the highest."""
    exporter = InMemoryExporter()
    pipeline = make_pipeline(exporter, tmp_path, inline_budget_ms=inline_budget_ms, dispatch=dispatch)
    with_local_verdicts(pipeline)
    assert pipeline.flush(60)
    pipeline.shutdown(10)

    counts, probabilities = by_verdict(exporter.evaluations)
    assert probabilities == {"good": {0.1}, "bad": {0.6}, "declined": {0.6}}
    assert 1 <= counts["good"] <= 25
    assert 40 <= counts["bad"] <= 80
    assert 40 <= counts["declined"] <= 80


def test_one_rate_is_for_turns_with_another_verdict(tmp_path: Path) -> None:
    exporter = InMemoryExporter()
    pipeline = make_pipeline(exporter, tmp_path, judge_sample_rate=0.2, sample_rate=0.9)
    with_local_verdicts(pipeline)
    assert pipeline.flush(60)
    pipeline.shutdown(10)

    assert by_verdict(exporter.evaluations)[1] == {"good": {0.1}, "bad": {0.6}, "declined": {0.2}}


def test_a_turn_that_waits_for_the_judge_keeps_its_probability(tmp_path: Path) -> None:
    """The local verdict was late and is delivered; another process asks the judge, who could not be reached before."""
    before, after = InMemoryExporter(), InMemoryExporter()
    options = {"inline_budget_ms": 0, "dispatch": "spool"}
    first = make_pipeline(before, tmp_path, judge=FakeJudge(unreachable), **options)
    with_local_verdicts(first, {"good": ANSWERS["good"]})
    assert wait_until(lambda: len(before.evaluations) == 2 * TURNS, 60)
    first.flush(10)
    first.shutdown(10)
    second = make_pipeline(after, tmp_path, **options)

    def waiting() -> int:
        with closing(sqlite3.connect(tmp_path / "spool.db")) as database:
            return int(database.execute("SELECT COUNT(*) FROM jobs").fetchone()[0])

    assert waiting() > 0
    assert wait_until(lambda: waiting() == 0, 60)
    second.flush(30)
    second.shutdown(10)

    found = by_verdict([*before.evaluations, *after.evaluations])
    assert 10 <= found[0]["good"] <= 55
    assert found[1] == {"good": {0.1}}


@pytest.mark.parametrize("trace_id", [6, 7])
def test_a_worker_that_tries_again_keeps_the_probability(tmp_path: Path, trace_id: int) -> None:
    """As Celery does: what is left of a job knows the verdict that was delivered."""
    pipeline = make_pipeline(InMemoryExporter(), tmp_path, judge=FakeJudge(unreachable))
    turn = make_turn(ANSWERS["good"], ["The pier was opened in 2019."], "When was the pier opened?")
    sampler = MetricSampler(pipeline.metrics, pipeline.settings)
    job = sampler.choose(pipeline.engine.job(turn), trace_id, [])
    assert job is not None
    run = pipeline.run_job(job, timeout=10, gives_up=False)
    pipeline.shutdown(10)

    is_chosen = trace_fraction(trace_id) < SHARES["good"]
    assert [(spec.name, spec.probability, spec.rates) for spec in run.rest.metrics] == [("graded", 0.1, {})] * is_chosen
    assert [result.name for part in run.evaluations for result in part.results] == ["verdict"]


def make_pipeline(exporter: InMemoryExporter, folder: Path, **settings: Any) -> Pipeline:
    return Pipeline.build(
        **{
            "metrics": ["verdict", Graded()],
            "models": "lexical",
            "judge": FakeJudge(lambda _: {"value": 0.5}),
            "exporters": [exporter],
            "judge_sample_by_verdict": SHARES,
            "spool_path": str(folder / "spool.db"),
            **settings,
        }
    )


# --------------------------------------------------------------------------- a least number for each hour


class Traffic:
    """Turns that come at random times, with local verdicts, and a clock.

    Attributes:
        time: seconds.
    """

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.time, self.random = 0.0, random.Random(seed)
        metric: Metric = REGISTRY.create("trace")
        given = Settings.build(**settings)
        self.sampler = MetricSampler([metric, REGISTRY.create("verdict")], given, clock=lambda: self.time)
        self.job = Job(turn=Turn(query=""), metrics=(describe_metric(metric),))

    def turn(self, label: str, per_hour: float) -> float | None:
        """Return the probability with which the next turn is judged; None if it is not."""
        self.time += self.random.expovariate(per_hour / 3600)
        verdict = Score(name="verdict", metric="verdict", value=1.0, label=label)
        chosen = self.sampler.choose(self.job, self.random.getrandbits(128), [verdict])
        return None if chosen is None else chosen.metrics[0].probability


@pytest.mark.parametrize(
    ("per_hour", "least", "most"),
    [(5, 1, 14), (40, 10, 15), (200, 10, 16), (2000, 10, 60)],
    ids=["fewer turns than wanted", "few turns", "some turns", "enough turns"],
)
def test_the_floor_raises_the_share_where_too_few_would_be_judged(per_hour: int, least: int, most: int) -> None:
    traffic = Traffic(judge_sample_by_verdict={"good": 0.01}, judge_sample_floor=10)
    judged, turns = Counter[int](), Counter[int]()
    while traffic.time < 50 * 3600:
        chosen = traffic.turn("good", per_hour)
        turns[int(traffic.time // 3600)] += 1
        judged[int(traffic.time // 3600)] += chosen is not None
    hours = range(1, 49)

    assert all(min(least, turns[hour]) <= judged[hour] <= most for hour in hours)
    assert per_hour > 5 or all(judged[hour] == turns[hour] for hour in hours if turns[hour] <= 10)


def test_the_share_of_bad_answers_stays_right_with_a_floor() -> None:
    """By the probabilities of the scores, in traffic of day and night."""
    held, shares, weeks = 0, [], 60
    for week in range(weeks):
        traffic = Traffic(week, judge_sample_by_verdict={"good": 0.02, "bad": 0.5}, judge_sample_floor=3)
        sample = JudgedSample()
        while traffic.time < 2 * 86_400:
            bad = traffic.random.random() < 0.1
            local = "bad" if traffic.random.random() < (0.6 if bad else 0.05) else "good"
            probability = traffic.turn(local, 80 if traffic.time % 86_400 < 43_200 else 10)
            sample.add(local, None if probability is None else bad, judge=probability or 1.0)
        found = sample.share(Resampling(seed=week))
        assert found is not None
        assert found.share is not None
        assert found.interval is not None
        shares.append(found.share)
        held += found.interval.low <= 0.1 <= found.interval.high

    assert sum(shares) / weeks == pytest.approx(0.1, abs=0.01)
    assert held >= 0.9 * weeks


def test_a_metric_with_its_own_rate_keeps_it() -> None:
    traffic = Traffic(judge_sample_rate={"trace": 0.5}, judge_sample_by_verdict={"good": 1}, judge_sample_floor=1000)

    assert {traffic.turn("good", 100) for _ in range(50)} == {0.5, None}


def test_the_shares_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGEVAL_JUDGE_SAMPLE_BY_VERDICT", "good=.02, bad=.5")
    monkeypatch.setenv("RAGEVAL_JUDGE_SAMPLE_FLOOR", "20")
    settings = Settings.build()

    assert settings.judge_sample_by_verdict == {"good": 0.02, "bad": 0.5}
    assert settings.judge_sample_floor == 20


def test_what_is_evaluated_by_hand_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables are for an application's turns."""
    monkeypatch.setenv("RAGEVAL_JUDGE_SAMPLE_BY_VERDICT", "good=.02, bad=.5")
    turn = make_turn(ANSWERS["good"], ["The pier was opened in 2019."], "When was the pier opened?")
    judge = FakeJudge(lambda _: {"value": 0.5})
    found = rageval_hooks.evaluate(turn, metrics=[Graded()], models="lexical", judge=judge).score("graded")

    assert found is not None
    assert found.probability == 1.0


def test_a_worker_of_another_process_decides_alike() -> None:
    """A job says all that the decision needs, and loses nothing as JSON."""
    metric: Metric = REGISTRY.create("trace")
    sampler = MetricSampler([metric, REGISTRY.create("verdict")], Settings.build(judge_sample_by_verdict=SHARES))
    job = Job(turn=Turn(query=""), metrics=(describe_metric(metric),))
    for trace_id in range(200):
        waiting = sampler.choose(job, trace_id, [])
        assert waiting is not None
        assert waiting.decided([]) == waiting
        again = Job.model_validate_json(waiting.model_dump_json())
        for label in ("good", "bad"):
            known = [Skipped(name="verdict", metric="verdict", reason="", label=label)]
            now = sampler.choose(job, trace_id, known)
            assert again.decided(known).metrics == (now.metrics if now else ())
