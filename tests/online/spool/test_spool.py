"""The spool as users see it: what waits is judged once, whatever happens to the process, the judge or the file."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from rageval_hooks import Evaluation, Skipped, Turn
from rageval_hooks.errors import JudgeUnavailableError
from rageval_hooks.exporters.console import ConsoleExporter
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.metrics import JudgeMetric, ScoreDefinition
from rageval_hooks.online.job import Job
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.spool_file import SpoolFile
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.settings import Settings
from rageval_hooks.testing import InMemoryExporter
from tests.disk import limited_file_size
from tests.local import make_turn
from tests.online.processes import FORKED_QUESTIONS, FORKED_WORKERS, run


class Grade(BaseModel):
    value: float


class Graded(JudgeMetric):
    """Asks the judge for a number."""

    name = "graded"
    scores = (ScoreDefinition(name="graded", description="a number"),)
    requires = ("response",)

    async def evaluate(self, case: Any) -> Any:
        judgement = await case.judge.complete([("user", case.turn.query)], Grade)
        return self.judged(judgement.value.value, judgement)


def unreachable(_: Any) -> Any:
    raise JudgeUnavailableError("no connection")


def make_pipeline(path: Path, answer: Callable[[Any], Any], exporter: Any, **settings: Any) -> Pipeline:
    return Pipeline.build(
        **{
            "metrics": [Graded(), "latency"],
            "judge": FakeJudge(answer),
            "exporters": [exporter],
            "dispatch": "spool",
            "spool_path": str(path),
            **settings,
        }
    )


def turns(count: int) -> list[Turn]:
    return [
        make_turn("It was opened in 2019.", ["The pier was opened in 2019."], f"question {n}") for n in range(count)
    ]


def late(exporter: InMemoryExporter) -> list[Evaluation]:
    return [evaluation for evaluation in exporter.evaluations if evaluation.stage == "background"]


def test_damaged_jobs_are_set_aside_and_the_others_are_judged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A flipped bit, a missing text, half a text. They are counted and named without their content, once."""
    path = tmp_path / "spool.db"
    first = make_pipeline(path, unreachable, InMemoryExporter())
    for turn in turns(5):
        first.submit(EndedTurn.of(turn))
    first.flush(10)
    first.shutdown(10)
    with sqlite3.connect(path) as database:
        numbers = [number for (number,) in database.execute("SELECT id FROM jobs ORDER BY id")]
        database.execute("UPDATE texts SET job = CAST(X'7b226bff' || job AS TEXT) WHERE id = ?", numbers[:1])
        database.execute("DELETE FROM texts WHERE id = ?", numbers[1:2])
        database.execute("UPDATE texts SET job = substr(job, 1, 40) WHERE id = ?", numbers[2:3])
    database.close()
    caplog.clear()
    counts = []
    judged: list[str] = []
    for damaged, intact in ((3, 2), (0, 0)):
        exporter = InMemoryExporter()
        pipeline = make_pipeline(path, lambda _: {"value": 1}, exporter)
        assert wait_until(lambda p=pipeline, n=damaged: p.stats()["spool"]["unreadable"] == n, 10)  # type: ignore[misc]
        assert wait_until(lambda e=exporter, n=intact: len(late(e)) == n, 10)  # type: ignore[misc]
        pipeline.flush(10)
        counts.append(pipeline.stats()["spool"]["unreadable"])
        pipeline.shutdown(10)
        judged += [evaluation.turn.query for evaluation in late(exporter)]

    assert len(judged) == len(set(judged)) == 2
    assert counts == [3, 0]
    assert "is set aside" in caplog.text
    assert "2019" not in caplog.text


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_a_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its target keeps its permissions; jobs are evaluated from memory."""
    target, path = tmp_path / "target", tmp_path / "spool.db"
    target.touch()
    target.chmod(0o644)  # whatever the umask is
    path.symlink_to(target)
    exporter = InMemoryExporter()
    pipeline = make_pipeline(path, lambda _: {"value": 1}, exporter)
    pipeline.submit(EndedTurn.of(turns(1)[0]))
    assert pipeline.flush(10)
    pipeline.shutdown(10)

    assert [evaluation.turn.query for evaluation in late(exporter)] == ["question 0"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert "it is a symbolic link" in caplog.text


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_turns_are_not_kept_in_memory_while_the_file_cannot_be_used(tmp_path: Path) -> None:
    """They would be until the file works again: for ever in a child that was forked while the file was open."""
    path = tmp_path / "spool.db"
    path.symlink_to(tmp_path / "target")
    pipeline = make_pipeline(path, lambda _: {"value": 1}, ConsoleExporter(io.StringIO()))
    submitted: list[weakref.ref[Turn]] = []
    for _ in range(20):
        [turn] = turns(1)
        submitted.append(weakref.ref(turn))
        pipeline.submit(EndedTurn.of(turn))
        del turn
        assert pipeline.flush(10)
    gc.collect()

    assert sum(reference() is not None for reference in submitted) < 5
    pipeline.shutdown(10)


def test_a_path_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the spool, and for jobs of Celery that wait for the broker."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    with SpoolFile(Settings.build(spool_path="~/spool.db")).transaction():
        pass

    assert (tmp_path / "spool.db").exists()


def test_turns_wait_for_a_judge_that_cannot_be_reached(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next process judges them, once each; local scores do not wait."""
    path = tmp_path / "folder" / "spool.db"
    before, after = InMemoryExporter(), InMemoryExporter()
    first = make_pipeline(path, unreachable, before)
    for turn in turns(3):
        first.submit(EndedTurn.of(turn))

    assert not first.flush(30)  # what is left waits
    assert first.stats()["spool"]["waiting_for_judge"] <= 3
    assert first.shutdown(10)
    assert late(before) == []
    assert len(before.evaluations) == 3
    assert sum("the judge cannot be asked now" in message for message in caplog.messages) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    second = make_pipeline(path, lambda _: {"value": 0.5}, after)
    while len(late(after)) < 3:
        second.flush(0.1)
    assert second.shutdown(10)
    assert sorted(evaluation.turn.query for evaluation in late(after)) == ["question 0", "question 1", "question 2"]
    assert {evaluation["graded"] for evaluation in late(after)} == {0.5}


def test_another_process_exports_no_text_that_this_one_hides(tmp_path: Path) -> None:
    """``capture_content=False`` is stored with the job."""
    first = make_pipeline(tmp_path / "spool.db", unreachable, InMemoryExporter(), capture_content=False)
    first.submit(EndedTurn.of(turns(1)[0]))
    first.flush(30)
    first.shutdown(10)
    exporter = InMemoryExporter()
    second = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.5}, exporter)
    assert wait_until(lambda: bool(late(exporter)), 30)
    second.shutdown(10)

    [evaluation] = late(exporter)
    assert evaluation["graded"] == 0.5
    assert "2019" not in evaluation.model_dump_json()


def test_late_local_scores_do_not_wait_for_a_judge_that_cannot_be_reached(tmp_path: Path) -> None:
    """They are delivered by the first process, once; the next one delivers what the judge says."""
    path = tmp_path / "spool.db"
    before, after = InMemoryExporter(), InMemoryExporter()
    first = make_pipeline(path, unreachable, before, inline_budget_ms=0)
    for turn in turns(3):
        first.submit(EndedTurn.of(turn))
    assert wait_until(lambda: len(late(before)) == 3, 30)
    first.flush(30)
    first.shutdown(10)
    second = make_pipeline(path, lambda _: {"value": 0.5}, after)
    assert wait_until(lambda: len(late(after)) == 3, 30)
    second.flush(30)
    second.shutdown(10)

    for exporter, metric in ((before, "latency"), (after, "graded")):
        found = [(evaluation.turn.query, score.name) for evaluation in late(exporter) for score in evaluation.results]
        assert sorted(found) == [(f"question {number}", metric) for number in range(3)]


def test_scores_that_were_not_delivered_come_again_with_the_same_ids(tmp_path: Path) -> None:
    """The judge is not asked a second time."""
    losing, working = Losing(), InMemoryExporter()
    first = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.25}, losing)
    first.submit(EndedTurn.of(turns(1)[0]))
    assert not first.flush(30)
    first.shutdown(10)

    second = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.75}, working)
    while not late(working):
        second.flush(0.1)
    second.shutdown(10)

    [one], [other] = late(losing), late(working)
    assert one.id == other.id
    assert one["graded"] == other["graded"] == 0.25


@pytest.mark.parametrize("buffers", [False, True])
def test_jobs_are_removed_once_their_results_are_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffers: bool
) -> None:
    """At once. Where each flush costs a request, what follows waits for the next flush."""
    monkeypatch.setattr("rageval_hooks.online.delivery._FLUSH_INTERVAL", 3600.0)
    monkeypatch.setattr(InMemoryExporter, "buffers", buffers)
    exporter = InMemoryExporter()
    pipeline = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.5}, exporter)
    finished = []
    for number, turn in enumerate(turns(3), 1):
        pipeline.submit(EndedTurn.of(turn))
        assert wait_until(lambda n=number: len(late(exporter)) == n, 10)  # type: ignore[misc]
        expected = 1 if buffers else number
        assert wait_until(lambda n=expected: pipeline.stats()["spool"]["finished"] >= n, 10)  # type: ignore[misc]
        finished.append(pipeline.stats()["spool"]["finished"])
    assert pipeline.flush(30)
    finished.append(pipeline.stats()["spool"]["finished"])
    pipeline.shutdown(10)

    assert finished == ([1, 1, 1, 3] if buffers else [1, 2, 3, 3])


def test_a_turn_is_exported_once_its_job_is_stored(tmp_path: Path) -> None:
    """So a process that is killed leaves no turn in the traces that the next one does not judge."""
    stored: list[int] = []

    class Looking(InMemoryExporter):
        def export(self, evaluation: Evaluation) -> None:
            with closing(sqlite3.connect(tmp_path / "spool.db")) as database:
                stored.append(database.execute("SELECT COUNT(*) FROM texts").fetchone()[0])

    pipeline = make_pipeline(tmp_path / "spool.db", unreachable, Looking())
    for turn in turns(3):
        pipeline.submit(EndedTurn.of(turn))
    pipeline.flush(30)
    stats = pipeline.stats()
    pipeline.shutdown(10)

    assert stats["export_errors"] == 0
    assert all(count >= number for number, count in enumerate(stored[:3], 1))
    assert len(stored) == 3


class Losing(InMemoryExporter):
    """Says that nothing was delivered."""

    def flush(self, timeout: float) -> bool:
        return False


def edit(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()


def test_a_job_that_ten_processes_did_not_survive_is_given_up(tmp_path: Path) -> None:
    """It may be what ends them. The trace says so."""
    path, exporter = tmp_path / "spool.db", InMemoryExporter()
    first = make_pipeline(path, unreachable, InMemoryExporter())
    first.submit(EndedTurn.of(turns(1)[0]))
    first.flush(10)
    first.shutdown(10)
    edit(path, "UPDATE jobs SET owner = 'dead', lease = 0, lease_seconds = 1, takeovers = 9")

    second = make_pipeline(path, lambda _: {"value": 0.5}, exporter)
    while not late(exporter):
        second.flush(0.1)
    assert second.flush(10)
    stats = second.stats()["spool"]
    second.shutdown(10)

    [evaluation] = late(exporter)
    assert [skipped.reason for skipped in evaluation.skipped] == [
        "given up: 10 processes ended while they evaluated this turn"
    ]
    assert (stats["given_up"], stats["taken_over"], stats["finished"]) == (1, 1, 1)


def test_results_that_no_backend_took_for_hours_are_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, exporter = tmp_path / "spool.db", InMemoryExporter()
    first = make_pipeline(path, lambda _: {"value": 0.5}, Losing())
    first.submit(EndedTurn.of(turns(1)[0]))
    assert not first.flush(10)
    first.shutdown(10)
    edit(path, "UPDATE jobs SET owner = NULL, deliveries = 40")

    second = make_pipeline(path, lambda _: {"value": 0.5}, exporter)
    assert wait_until(lambda: second.stats()["spool"]["finished"] == 1, 10)
    stats = second.stats()["spool"]
    second.shutdown(10)

    assert stats["undelivered"] == 1
    assert exporter.evaluations == []
    assert "could not be delivered for hours" in caplog.text


def test_a_spool_that_works_again_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the pause in which the file is left alone."""
    monkeypatch.setattr("rageval_hooks.online.spool._REST_SECONDS", 0.1)
    path, exporter = tmp_path / "folder" / "spool.db", InMemoryExporter()
    _not_writable(path)
    pipeline = make_pipeline(path, lambda _: {"value": 0.5}, exporter)
    first, second = turns(2)
    pipeline.submit(EndedTurn.of(first))
    assert pipeline.flush(10)
    path.parent.unlink()
    assert wait_until(lambda: pipeline.flush(0) or path.exists(), 10)
    pipeline.submit(EndedTurn.of(second))
    assert pipeline.flush(10)
    stats = pipeline.stats()["spool"]
    pipeline.shutdown(10)

    assert len(late(exporter)) == 2
    assert (stats["in_memory"], stats["stored"]) == (1, 1)
    assert any("works again" in message for message in caplog.messages)


def test_a_job_of_another_process_is_evaluated_and_delivered(tmp_path: Path) -> None:
    """As a worker of a task queue does it. It learns whether the exporters have delivered the results."""
    [turn] = turns(1)
    for exporter, is_delivered in ((InMemoryExporter(), True), (Losing(), False)):
        pipeline = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.5}, exporter, dispatch="thread")
        job = Job.model_validate_json(pipeline.engine.job(turn, ["graded"]).model_dump_json())
        outcome = pipeline.run_job(job, timeout=30, gives_up=True)
        pipeline.shutdown(10)

        assert outcome.is_delivered is is_delivered
        assert [found["graded"] for found in late(exporter)] == [0.5]


def test_scores_go_into_the_same_trace_after_a_restart(tmp_path: Path) -> None:
    """As a child of the turn's span, with a span id that a repetition would have too."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    settings = {"tracer_provider": provider}
    first = make_pipeline(tmp_path / "spool.db", unreachable, "otel", **settings)
    context = first.begin(Context())
    captured = turns(1)[0].model_copy(update={"span": context.span_reference()})
    first.submit(EndedTurn.of(captured), context)
    first.flush(30)
    first.shutdown(10)

    second = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.5}, "otel", **settings)
    while "evaluate graded" not in {span.name for span in memory.get_finished_spans()}:
        second.flush(0.1)
    second.shutdown(10)

    [score] = [span for span in memory.get_finished_spans() if span.name == "evaluate graded"]
    assert score.context is not None
    assert score.parent is not None
    assert score.context.trace_id == context.trace_id
    assert score.parent.span_id == context.span_id


def is_open(folder: Path) -> bool:
    """Return True if this process has a file of a folder open. Elsewhere than on Linux it is not known."""
    # A descriptor may be closed before it is read.
    return any(os.path.realpath(entry).startswith(f"{folder}/") for entry in Path("/proc/self/fd").glob("*"))


def test_a_file_that_is_deleted_while_jobs_are_evaluated(tmp_path: Path) -> None:
    """Their results are dropped and counted, and do not mix with those of the jobs in the next file."""
    gate = threading.Event()

    async def wait(call: Any) -> dict[str, float]:
        await asyncio.get_running_loop().run_in_executor(None, gate.wait, 60)
        return {"value": float(str(call.messages[-1].content).split()[1]) / 10}

    exporter = InMemoryExporter()
    pipeline = make_pipeline(tmp_path / "spool.db", wait, exporter)
    first, *others = turns(4)
    pipeline.submit(EndedTurn.of(first))
    while pipeline.stats()["spool"]["evaluating"] == 0:
        pipeline.flush(0.05)
    # What comes while the file is open would be stored in the deleted file.
    assert wait_until(lambda: not is_open(tmp_path), 10)
    for file in tmp_path.iterdir():
        file.unlink()
    for turn in others:
        pipeline.submit(EndedTurn.of(turn))
    pipeline.flush(0.5)
    gate.set()
    assert pipeline.flush(60)
    stats = pipeline.stats()["spool"]
    pipeline.shutdown(10)

    scores = {evaluation.turn.query: evaluation["graded"] for evaluation in late(exporter)}
    assert scores == {f"question {n}": n / 10 for n in range(1, 4)}
    assert stats["lost_leases"] == 1


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_job_that_ends_while_the_file_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    """It is removed once the file is back, and not judged again. A job with its number in another file is judged."""
    monkeypatch.setattr("rageval_hooks.online.spool._REST_SECONDS", 0.0)
    gate = threading.Event()

    async def wait(_: Any) -> dict[str, float]:
        await asyncio.get_running_loop().run_in_executor(None, gate.wait, 60)
        return {"value": 0.5}

    first, other = turns(2)
    folder, own, others = (tmp_path / name for name in ("folder", "own", "others"))
    unable = make_pipeline(others / "spool.db", unreachable, InMemoryExporter())
    unable.submit(EndedTurn.of(other))
    unable.flush(30)
    unable.shutdown(10)
    # A link is replaced in one step: a folder that is missing for a moment would be made again.
    own.mkdir()
    folder.symlink_to(own)
    exporter, later = InMemoryExporter(), InMemoryExporter()
    pipeline = make_pipeline(folder / "spool.db", wait, exporter)
    pipeline.submit(EndedTurn.of(first))
    assert wait_until(lambda: pipeline.stats()["spool"]["evaluating"] == 1 and not is_open(own), 10)
    (tmp_path / "file").write_text("not a directory")
    (tmp_path / "file").replace(folder)
    gate.set()
    assert pipeline.flush(30)  # what is to become of the job has been tried by now
    (tmp_path / "link").symlink_to(others if is_replaced else own)
    (tmp_path / "link").replace(folder)
    assert wait_until(lambda: pipeline.flush(0.1) and pipeline.stats()["spool"]["in_file"] == 0, 10)
    pipeline.shutdown(10)
    last = make_pipeline(folder / "spool.db", wait, later)
    assert last.flush(10)
    last.shutdown(10)

    judged = ["question 0", "question 1"] if is_replaced else ["question 0"]
    assert [evaluation.turn.query for evaluation in late(exporter)] == judged
    assert late(later) == []


def test_processes_with_different_leases(tmp_path: Path) -> None:
    """A process takes no job over that another one holds for longer than its own leases last."""
    gate = threading.Event()

    async def wait(_: Any) -> dict[str, float]:
        await asyncio.get_running_loop().run_in_executor(None, gate.wait, 60)
        return {"value": 0.5}

    slow, other = InMemoryExporter(), InMemoryExporter()
    first = make_pipeline(tmp_path / "spool.db", wait, slow, spool_lease=600)
    first.submit(EndedTurn.of(turns(1)[0]))
    while first.stats()["spool"]["evaluating"] == 0:
        first.flush(0.05)
    second = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.25}, other, spool_lease=1)
    second.submit(EndedTurn.of(turns(1)[0].model_copy(update={"query": "another question"})))
    while not late(other):
        second.flush(0.05)
    gate.set()
    assert first.flush(30)
    for pipeline in (first, second):
        pipeline.shutdown(10)

    assert [evaluation["graded"] for evaluation in late(slow)] == [0.5]
    assert [evaluation["graded"] for evaluation in late(other)] == [0.25]


def _not_writable(path: Path) -> None:
    path.parent.write_text("not a directory")


def _damaged(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is not a database " * 500)


def _of_another_version(path: Path) -> None:
    import sqlite3

    path.parent.mkdir()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()


@pytest.mark.parametrize(
    ("break_file", "problem"),
    [(_not_writable, "File exists"), (_damaged, "not a database"), (_of_another_version, "has version 99")],
)
def test_a_file_that_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, break_file: Callable[[Path], None], problem: str
) -> None:
    """Turns are judged from memory. One log line says what to do."""
    path = tmp_path / "folder" / "spool.db"
    break_file(path)
    exporter = InMemoryExporter()
    pipeline = make_pipeline(path, lambda _: {"value": 0.5}, exporter)
    for turn in turns(5):
        pipeline.submit(EndedTurn.of(turn))

    assert pipeline.flush(30)
    stats = pipeline.stats()
    pipeline.shutdown(10)
    assert [evaluation["graded"] for evaluation in late(exporter)] == [0.5] * 5
    assert stats["spool"]["in_memory"] == 5
    assert stats["spool"]["errors"] >= 1
    [line] = [message for message in caplog.messages if "the spool" in message]
    assert problem in line
    assert "set another spool_path" in line


def test_a_full_spool_refuses_new_turns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the reason on the trace; what is in the file stays."""
    caplog.set_level(logging.WARNING)
    exporter = InMemoryExporter()
    pipeline = make_pipeline(tmp_path / "spool.db", unreachable, exporter, spool_max_mb=1)
    long_turns = [turn.model_copy(update={"response": "word " * 60_000}) for turn in turns(6)]
    for turn in long_turns:
        pipeline.submit(EndedTurn.of(turn))
    pipeline.flush(30)
    stats = pipeline.stats()
    pipeline.shutdown(10)

    assert 1 <= stats["spool"]["stored"] <= 3
    assert stats["spool"]["stored"] + stats["spool"]["refused"] == 6
    skipped = [result for evaluation in late(exporter) for result in evaluation.skipped]
    assert [result.reason for result in skipped] == ["the spool is full: 1 MB"] * stats["spool"]["refused"]
    refused = late(exporter)[0].turn.query
    stages = [evaluation.stage for evaluation in exporter.evaluations if evaluation.turn.query == refused]
    assert stages == ["inline", "background"]
    assert (tmp_path / "spool.db").stat().st_size < 1.2 * 2**20


def test_turns_that_wait_for_a_locked_file_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may hold the file for seconds. The newest turns are not judged, with the reason on the trace."""
    monkeypatch.setattr("rageval_hooks.online.spool_file._BUSY_SECONDS", 60.0)
    path, exporter = tmp_path / "spool.db", InMemoryExporter()
    pipeline = make_pipeline(path, lambda _: {"value": 0.5}, exporter, queue_size=2)
    [first, *others] = turns(4)
    pipeline.submit(EndedTurn.of(first))
    assert pipeline.flush(30)
    with closing(sqlite3.connect(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        for turn in others:
            pipeline.submit(EndedTurn.of(turn))
        assert wait_until(lambda: bool(late(exporter)[1:]), 30)
    assert pipeline.flush(30)
    stats = pipeline.stats()["spool"]
    pipeline.shutdown(10)

    skipped = [result.reason for result in exporter.results("graded") if isinstance(result, Skipped)]
    assert skipped == ["the queue is full: 2 turns wait for evaluation"]
    assert [evaluation["graded"] for evaluation in late(exporter) if evaluation.scores] == [0.5] * 3
    assert (stats["accepted"], stats["dropped_queue_full"]) == (3, 1)


@pytest.mark.parametrize("is_locked", [False, True])
def test_a_shutdown_says_whether_turns_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    """A job in the file is for the next process. One that was not stored in time is lost."""
    monkeypatch.setattr("rageval_hooks.online.spool_file._BUSY_SECONDS", 60.0)
    path = tmp_path / "spool.db"
    pipeline = make_pipeline(path, unreachable, InMemoryExporter())
    [first, second] = turns(2)
    pipeline.submit(EndedTurn.of(first))
    pipeline.flush(30)
    with closing(sqlite3.connect(path)) as database:
        if is_locked:
            database.execute("BEGIN IMMEDIATE")
        pipeline.submit(EndedTurn.of(second))
        assert pipeline.shutdown(1 if is_locked else 30) is not is_locked


def test_a_dispatcher_that_is_dropped_looks_at_the_file_no_more(tmp_path: Path) -> None:
    """At once, and not when garbage is collected: an application may make a handler for each request."""
    pipeline = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.5}, InMemoryExporter())
    pipeline.submit(EndedTurn.of(turns(1)[0]))
    assert pipeline.flush(30)
    dispatcher = weakref.ref(pipeline._spool)
    gc.disable()
    try:
        del pipeline
        assert wait_until(lambda: dispatcher() is None, 30)
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_pre_fork_server(tmp_path: Path) -> None:
    """Parent and children share the file; each turn is judged once."""
    before = """
from rageval_hooks.testing import FakeJudge
from tests.online.test_judge_stage import LABELS
handle = rageval_hooks.instrument(judge=FakeJudge(lambda call: LABELS), metrics="trace")
lcel().invoke("parent before")
"""
    after = """
while handle.stats()["spool"]["in_file"] or not handle.flush(0.5):
    pass
"""
    spool = {"RAGEVAL_DISPATCH": "spool", "RAGEVAL_SPOOL_PATH": str(tmp_path / "spool.db")}
    evaluations, errors = run(before + FORKED_WORKERS + after, tmp_path, **spool)

    # A job that is given back comes again with its id; one has none if its process did not get the lock of the file.
    judged = {(item["turn"]["query"], item["id"]) for item in evaluations if item["stage"] == "background"}
    ids = [id_ for _, id_ in judged if id_]
    assert sorted(question for question, _ in judged) == sorted(FORKED_QUESTIONS)
    assert len(set(ids)) == len(ids)
    assert "Traceback" not in errors


def test_a_disk_that_is_full_for_a_while(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Turns are judged from memory; the reason is logged once."""
    exporter = InMemoryExporter()
    pipeline = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.5}, exporter)
    first, *others = [turn.model_copy(update={"response": "word " * 60_000}) for turn in turns(4)]
    with limited_file_size(200_000):
        pipeline.submit(EndedTurn.of(first))
        assert pipeline.flush(30)
        full = pipeline.stats()["spool"]
    for turn in others:
        pipeline.submit(EndedTurn.of(turn))
    assert pipeline.flush(60)
    pipeline.shutdown(10)

    assert [evaluation["graded"] for evaluation in late(exporter)] == [0.5] * 4
    assert (full["in_memory"], full["stored"]) == (1, 0)
    lines = [message for message in caplog.messages if "the spool" in message]
    assert len(lines) == 1
    assert "cannot be used (disk I/O error)" in lines[0]


@pytest.mark.parametrize("ends", [False, True], ids=["the disk has space again", "the process ends before"])
def test_a_result_is_delivered_once_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    """A full disk delays it. If the process ends before, the next one judges the job: there is one value."""
    monkeypatch.setattr("rageval_hooks.online.spool._REST_SECONDS", 0.01)
    gate = threading.Event()

    async def wait(_: Any) -> dict[str, float]:
        await asyncio.get_running_loop().run_in_executor(None, gate.wait, 60)
        return {"value": 0.5}

    first, second = InMemoryExporter(), InMemoryExporter()
    pipeline = make_pipeline(tmp_path / "spool.db", wait, first)
    pipeline.submit(EndedTurn.of(turns(1)[0]))
    assert wait_until(lambda: pipeline.stats()["spool"]["evaluating"] == 1 and not is_open(tmp_path), 10)
    with limited_file_size(4096):  # less than a page of SQLite's log
        gate.set()
        assert wait_until(lambda: pipeline.stats()["spool"]["errors"] > 1, 10)
        assert not pipeline.flush(0.1)
        assert late(first) == []
        if ends:
            pipeline.shutdown(0.5)
    assert pipeline.flush(30) or ends
    pipeline.shutdown(10)
    other = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.25}, second, spool_lease=1)
    assert wait_until(lambda: other.flush(0.1) and other.stats()["spool"]["in_file"] == 0, 20)
    other.shutdown(10)

    assert len(late(first)) == (0 if ends else 1)
    assert len(late(first) + late(second)) == 1


def test_a_shutdown_leaves_what_is_being_judged_to_the_next_process(tmp_path: Path) -> None:
    """At once, and not after the lease of a minute; nothing is judged twice."""
    begun = threading.Event()

    async def hang(_: Any) -> dict[str, float]:
        begun.set()
        await asyncio.sleep(60)
        return {"value": 0.25}

    before, after = InMemoryExporter(), InMemoryExporter()
    first = make_pipeline(tmp_path / "spool.db", hang, before)
    first.submit(EndedTurn.of(turns(1)[0]))
    assert begun.wait(30)
    first.shutdown(0.5)
    with sqlite3.connect(tmp_path / "spool.db") as database:
        owners = database.execute("SELECT owner FROM jobs").fetchall()
    database.close()
    second = make_pipeline(tmp_path / "spool.db", lambda _: {"value": 0.5}, after)
    assert wait_until(lambda: second.flush(0.1) and late(after) != [], 20)
    second.shutdown(10)

    assert owners == [(None,)]
    assert late(before) == []
    assert [evaluation["graded"] for evaluation in late(after)] == [0.5]


def test_the_same_turn_is_judged_once(tmp_path: Path) -> None:
    """An application may submit it again: its job is in the file already."""
    pipeline = make_pipeline(tmp_path / "spool.db", unreachable, InMemoryExporter())
    [turn] = turns(1)
    for _ in range(2):
        pipeline.submit(EndedTurn.of(turn))
    pipeline.flush(10)
    counts = pipeline.stats()["spool"]
    pipeline.shutdown(10)

    assert (counts["accepted"], counts["stored"], counts["duplicates"]) == (2, 1, 1)


def test_a_process_claims_no_more_than_fits_into_its_memory(tmp_path: Path) -> None:
    """One job is always taken, whatever its size."""
    file = SpoolFile(Settings(spool_path=str(tmp_path / "spool.db")))
    other = SpoolFile(Settings(spool_path=str(tmp_path / "spool.db")))
    with file.transaction():
        for number in range(3):
            assert file.add(str(number), "x" * 100) == "stored"
    with other.transaction():
        claimed = [len(other.claim(10, waiting=False, max_bytes=size)) for size in (1, 150)]

    assert claimed == [1, 2]


def test_too_many_turns_for_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    """Those that wait in memory are bounded; the trace of another one says why it is not judged."""
    gate, path, exporter = threading.Event(), tmp_path / "folder" / "spool.db", InMemoryExporter()
    _damaged(path)

    def answer(_: Any) -> Any:
        assert gate.wait(30)
        return {"value": 0.5}

    pipeline = make_pipeline(path, answer, exporter, queue_size=1)
    for number, turn in enumerate(turns(3)):
        pipeline.submit(EndedTurn.of(turn))
        # Each one was tried before the next one comes.
        assert wait_until(lambda n=number: pipeline.stats()["spool"]["in_memory"] > n, 30)  # type: ignore[misc]
        assert wait_until(lambda: not pipeline.stats()["spool"]["buffered"], 30)
    assert wait_until(lambda: any(isinstance(one, Skipped) for one in exporter.results("graded")), 30)
    gate.set()
    assert pipeline.flush(30)
    counts = pipeline.stats()["spool"]
    pipeline.shutdown(10)

    skipped = [result.reason for result in exporter.results("graded") if isinstance(result, Skipped)]
    assert set(skipped) == {"the spool cannot be used, and too many turns wait in memory"}
    assert counts["dropped_memory_full"] == len(skipped) > 0
