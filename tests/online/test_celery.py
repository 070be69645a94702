"""``dispatch="celery"`` with the broker in this process. Real brokers and workers: tests/e2e/test_workers.py."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks.judges.base import Judge
from rageval_hooks.metrics import LocalMetric, ScoreDefinition
from rageval_hooks.online.celery import FAILED_QUEUE, QUEUE, celery_app, failed_reasons, message_count, resend_failed
from rageval_hooks.online.job import Job, MetricSpec
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.score import Failed, Skipped
from rageval_hooks.settings import Settings
from rageval_hooks.testing import FakeJudge, InMemoryExporter
from rageval_hooks.turn import Passage, SpanReference, Turn
from tests.judges.server import JudgeServer, answer, error
from tests.online.test_judge_stage import LABELS, judge_of

pytest.importorskip("celery", reason='no Celery: pip install "rageval-hooks[celery]"')
from kombu.transport.memory import Transport

BROKER = "memory://"
DOWN = "redis://127.0.0.1:1/0"
SPAN = SpanReference(trace_id="0af7651916cd43dd8448eb211c80319c", span_id="b7ad6b7169203331")


@pytest.fixture(autouse=True)
def empty_broker() -> Iterator[None]:
    yield
    Transport.Channel.queues.clear()
    Transport.global_state.clear()


def turn(number: int = 0, passage: str = "The pier was opened in 2018.") -> Turn:
    passages = (Passage(text=passage),)
    return Turn(id=str(number), query="When?", passages=passages, response="It was opened in 2018.", span=SPAN)


def run(turns: list[Turn], *, broker: str = BROKER, seconds: float = 10, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """Let a pipeline take turns and end; return its exporter and the counters of its dispatcher."""
    exporter = InMemoryExporter()
    given: dict[str, Any] = {"judge": FakeJudge(), "metrics": ["latency", "trace"], **settings}
    pipeline = Pipeline.build(dispatch="celery", broker=broker, exporters=[exporter], **given)
    for one in turns:
        pipeline.submit(EndedTurn.of(one))
        wait_until(
            lambda: pipeline.stats()["in_progress"] == pipeline.stats()["queues"]["export"]["pending"] == 0, seconds
        )
    pipeline.flush(seconds)
    pipeline.shutdown(seconds)
    return exporter, pipeline.stats()["queues"]["evaluate"]


def messages(queue: str = QUEUE) -> list[Any]:
    """Take the messages that wait at the broker."""
    app = celery_app(Settings.build(broker=BROKER))
    count = message_count(app, queue)
    with app.connection_for_read() as connection, connection.SimpleQueue(queue) as waiting:
        taken = [waiting.get(timeout=5) for _ in range(count)]
        for message in taken:
            message.ack()
    return taken


def jobs() -> list[Job]:
    return [Job.model_validate_json(message.payload[1]["job"]) for message in messages()]


def late(exporter: InMemoryExporter) -> list[Any]:
    return [result for item in exporter.evaluations if item.stage == "background" for result in item.results]


def test_a_job_is_json_with_the_context_of_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of another Celery application in the process names another broker."""
    monkeypatch.setenv("CELERY_BROKER_URL", DOWN)
    exporter, stats = run([turn()])

    assert [item.stage for item in exporter.evaluations] == ["inline"]
    assert (stats["published"], stats["pending"], stats["dropped"]) == (1, 0, 0)
    [message] = messages()
    assert message.content_type == "application/json"
    assert message.headers["traceparent"] == f"00-{SPAN.trace_id}-{SPAN.span_id}-01"
    job = Job.model_validate_json(message.payload[1]["job"])
    assert job.names == ("trace",)
    assert message.headers["id"] == job.key


def test_redacted_texts_are_published_and_local_scores_stay() -> None:
    secret = turn(passage="Write to anna.smith@example.org. The pier was opened in 2018.")
    exporter, _ = run([secret], redact=True, inline_budget_ms=0, metrics=["groundedness", "trace"], models="lexical")

    [job] = jobs()
    assert job.names == ("trace",)
    assert "anna.smith" not in job.model_dump_json()
    assert [result.name for result in late(exporter)] == ["groundedness"]


def test_a_worker_exports_no_text_that_the_application_hides() -> None:
    """``capture_content=False`` in code is not in the environment of the worker: the job says it."""
    run([turn()], capture_content=False)
    [job] = jobs()
    exporter = InMemoryExporter()
    worker = Pipeline.build(exporters=[exporter], judge=FakeJudge(lambda call: LABELS), metrics=["trace"])
    worker.run_job(job, timeout=10, gives_up=True)
    worker.shutdown(10)

    [evaluation] = exporter.evaluations
    assert evaluation["trace.adherence"] == 1
    assert "2018" in job.model_dump_json()  # the judge needs it
    assert "2018" not in evaluation.model_dump_json()


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The module that a worker starts, with the settings of this test."""
    settings = {"BROKER": BROKER, "METRICS": "latency", "EXPORTERS": "jsonl", "JSONL_PATH": str(tmp_path / "out.jsonl")}
    for name, value in settings.items():
        monkeypatch.setenv(f"RAGEVAL_{name}", value)
    monkeypatch.delitem(sys.modules, "rageval_hooks.workers", raising=False)
    module = import_module("rageval_hooks.workers")
    yield module
    module.pipeline.shutdown(10)
    sys.modules.pop("rageval_hooks.workers")


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("latency", None),
        ("tokens", None),  # built in
        ("invented_by_a_job:measure", "the settings of this worker do not name the metric invented_by_a_job:measure"),
        (
            "invented_by_a_job:a\x1b[2J\nb",
            "the settings of this worker do not name the metric invented_by_a_job:a␛[2J b",
        ),
    ],
)
def test_a_job_does_not_choose_what_a_worker_imports(
    workers: Any,
    reference: str,
    reason: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Built-in metrics and those of the worker's settings run. A job with another one is kept with its reason."""
    (tmp_path / "invented_by_a_job.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    job = Job(turn=turn(), metrics=(MetricSpec(name="measure", reference=reference),))

    workers.evaluate(format=1, job=job.model_dump_json())

    failed = [message.payload["reason"] for message in messages(FAILED_QUEUE)]
    assert failed == ([] if reason is None else [reason])
    assert (tmp_path / "out.jsonl").exists() == (reason is None)
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("content", [{}, {"format": 2}, {"format": 1, "job": "{"}, {"format": 1, "job": "[]"}])
def test_a_malformed_job_is_kept_with_its_reason(workers: Any, content: dict[str, Any]) -> None:
    """And stops no worker."""
    workers.evaluate(**content)

    [message] = messages(FAILED_QUEUE)
    assert {name: value for name, value in message.payload.items() if name != "reason"} == content
    assert message.payload["reason"]


def test_a_metric_that_only_this_process_has_is_computed_here() -> None:
    """A worker could not make it, such as a class of a notebook."""

    class Own(LocalMetric):
        name = "own"
        scores = (ScoreDefinition(name="own", description="a number"),)

        def evaluate(self, subject: Any) -> Any:
            return self.score(0.5)

    exporter, stats = run([turn()], metrics=[Own()], judge=None, inline_budget_ms=0)

    assert [(result.name, result.status) for result in late(exporter)] == [("own", "scored")]
    assert (stats["published"], stats["dropped"], jobs()) == (0, 0, [])


def test_a_job_that_no_broker_takes_is_refused() -> None:
    exporter, stats = run([turn(passage="x" * (16 * 2**20))])

    assert (stats["too_large"], stats["published"]) == (1, 0)
    [result] = late(exporter)
    assert isinstance(result, Skipped)
    assert result.reason == "the job has 16 MiB, and brokers take 15"


def test_jobs_that_are_left_at_the_end_are_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    exporter, stats = run([turn(n) for n in range(3)], broker=DOWN, seconds=1, queue_size=2)

    assert stats["dropped"] == 3
    assert {result.reason for result in late(exporter)} == {
        "the queue is full: 2 turns wait for evaluation",
        "the broker could not be reached before the shutdown",
    }
    assert "shut down with 2 jobs that no broker took [RAGEVAL-416]" in caplog.text


def test_large_jobs_wait_only_as_far_as_there_is_memory() -> None:
    large = [turn(n, passage="x" * 700_000) for n in range(3)]
    _, stats = run(large, broker=DOWN, seconds=1, queue_max_mb=1)

    assert stats["dropped"] == 3  # two had no room, one was left


def test_the_spool_keeps_jobs_until_a_broker_is_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that cannot be read stays, and does not hold up the others."""
    spool = {"broker_fallback": "spool", "spool_path": str(tmp_path / "spool.db")}
    _, stats = run([turn(n) for n in range(3)], broker=DOWN, **spool)
    assert (stats["stored"], stats["dropped"], stats["pending"]) == (3, 0, 0)
    with sqlite3.connect(tmp_path / "spool.db") as database:
        database.execute("UPDATE texts SET job = '{}' WHERE id = (SELECT MIN(id) FROM texts)")
    database.close()

    pipeline = Pipeline.build(
        dispatch="celery", broker=BROKER, exporters=[InMemoryExporter()], judge=FakeJudge(), metrics=["trace"], **spool
    )
    pipeline.submit(EndedTurn.of(turn(3)))
    pipeline.flush(10)
    wait_until(lambda: pipeline.stats()["queues"]["evaluate"]["published"] == 3, 10)
    pipeline.shutdown(10)

    assert sorted(job.turn.id for job in jobs()) == ["1", "2", "3"]
    assert "1 jobs of the spool cannot be read, and stay [RAGEVAL-417]" in caplog.text
    with sqlite3.connect(tmp_path / "spool.db") as database:
        assert database.execute("SELECT waiting FROM jobs").fetchall() == [(-1,)]
    database.close()


def test_a_job_that_neither_broker_nor_spool_takes_is_skipped_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A line says why the spool cannot be used."""
    (tmp_path / "spool.db").write_text("no database " * 1000)
    spool = {"broker_fallback": "spool", "spool_path": str(tmp_path / "spool.db")}
    exporter, stats = run([turn()], broker=DOWN, **spool)

    assert (stats["stored"], stats["dropped"]) == (0, 1)
    [result] = late(exporter)
    assert result.reason == "the broker cannot be reached, and the spool is full or cannot be used"
    assert "jobs for the broker cannot be stored: DatabaseError [RAGEVAL-414]" in caplog.text


def test_without_celery_settings_of_its_own_a_module_gives_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "settings_of_a_team.py").write_text("task_time_limit = 7\ntask_serializer = 'pickle'\n")
    monkeypatch.syspath_prepend(tmp_path)
    app = celery_app(Settings.build(broker=BROKER, celery_config="settings_of_a_team"))

    assert (app.conf.task_time_limit, app.conf.task_serializer) == (7, "json")


def test_failed_jobs_are_listed_and_resent() -> None:
    app = celery_app(Settings.build(broker=BROKER))
    with app.connection_for_write() as connection, connection.SimpleQueue(FAILED_QUEUE) as failed:
        for reason in ("unavailable", "unavailable", "rate_limited"):
            failed.put({"format": 1, "job": "{}", "results": [], "reason": reason})

    assert failed_reasons(app) == {"unavailable": 2, "rate_limited": 1}
    assert message_count(app, FAILED_QUEUE) == 3
    assert resend_failed(app) == 3
    assert (message_count(app, FAILED_QUEUE), message_count(app, QUEUE)) == (0, 3)
    assert messages()[0].payload[1] == {"format": 1, "job": "{}", "results": []}


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_worker_tries_again_what_may_pass(gives_up: bool) -> None:
    """The local scores of the first attempt are delivered; the judge's wait for the next one, or are failed."""
    exporter = InMemoryExporter()
    job = Job(
        turn=turn(),
        metrics=(MetricSpec(name="latency", reference="latency"), MetricSpec(name="trace", reference="trace")),
    )
    with JudgeServer() as server:
        server.then(error(503, "overloaded"))
        server.otherwise(answer(LABELS))
        judge: Judge = judge_of(server, max_retries=0)
        pipeline = Pipeline.build(exporters=[exporter], judge=judge, metrics=["latency", "trace"])
        run = pipeline.run_job(job, timeout=10, gives_up=gives_up)
        names = [result.name for result in late(exporter) if isinstance(result, Failed)]
        again = pipeline.run_job(run.rest, timeout=10, gives_up=True)
        pipeline.shutdown(10)

    assert run.is_delivered
    assert run.problem is not None
    assert run.problem.startswith("unavailable: ")
    assert run.rest.names == ("trace",)
    assert names == (["trace"] if gives_up else [])
    assert again.problem is None
    assert "trace.adherence" in {result.name for result in late(exporter)}
