"""``dispatch="celery"`` with real brokers: jobs of an application are judged by workers, in spite of faults."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.judges.server import Gate, JudgeServer, answer, error, held
from tests.online.test_judge_stage import LABELS

pytest.importorskip("celery", reason='no Celery: pip install "rageval-hooks[celery]"')

APPLICATION = """
import sys
import rageval_hooks

handle = rageval_hooks.instrument()
for number in range(int(sys.argv[1])):
    with rageval_hooks.start_turn(f"{sys.argv[2]} {number}") as turn:
        turn.add_passages(["The pier was opened in 2018."])
        turn.respond("It was opened in 2018.")
print(handle.flush(30))
"""

FAST_RETRIES = 'task_annotations = {"rageval_hooks.evaluate": {"default_retry_delay": 0.1}}\n'


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_until(is_done: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end, f"not done within {seconds} seconds"
        time.sleep(0.05)


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def redis(directory: Path, port: int) -> Iterator[None]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no Redis: apt-get install redis-server")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", str(directory)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port))
        yield
    finally:
        server.terminate()
        server.wait(20)


@contextmanager
def rabbitmq(directory: Path, port: int) -> Iterator[None]:
    program = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one in /usr/sbin changes the user
    if not Path(program).exists():
        pytest.skip("no RabbitMQ: apt-get install rabbitmq-server")
    environment = {
        **os.environ,
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(directory),
        "RABBITMQ_LOG_BASE": str(directory),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }
    server = subprocess.Popen([program], stdout=subprocess.DEVNULL, env=environment, start_new_session=True)
    try:
        wait_until(lambda: answers(port))
        yield
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


BROKERS = {"redis": redis, "amqp": rabbitmq}


class Team:
    """Applications and workers that share a broker and a judge.

    Args:
        directory: for the files of all.
        broker: its URL.
        judge: its server.
    """

    def __init__(self, directory: Path, broker: str, judge: JudgeServer) -> None:
        self.directory = directory
        self.broker = broker
        self.judge = judge
        self.workers: list[subprocess.Popen[bytes]] = []
        (directory / "fast_retries.py").write_text(FAST_RETRIES)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_"))}
        self.environment = {
            **kept,
            "RAGEVAL_CELERY_CONFIG": "fast_retries",
            "NO_PROXY": "*",
            "OPENAI_API_KEY": "sk-test",
            "OPENAI_BASE_URL": judge.url,
            "PYTHONPATH": os.pathsep.join([str(directory), str(Path(__file__).resolve().parents[2])]),
            "PYTHONWARNINGS": "ignore",
            "RAGEVAL_BROKER": broker,
            "RAGEVAL_DISPATCH": "celery",
            "RAGEVAL_EXPORTERS": "jsonl",
            # On a busy machine a local score would be late, and the worker's then.
            "RAGEVAL_INLINE_BUDGET_MS": "30000",
            "RAGEVAL_JUDGE": "openai:judge-model",
            "RAGEVAL_JUDGE_OPTIONS": "max_retries=0",
            "RAGEVAL_METRICS": "latency,trace",
            "RAGEVAL_MODELS": "lexical",
        }

    def ask(self, count: int, question: str = "question", **environment: str) -> None:
        """Run an application that asks some questions."""
        command = [sys.executable, "-c", APPLICATION, str(count), question]
        settings = {"RAGEVAL_JSONL_PATH": str(self.directory / "application.jsonl"), **environment}
        done = subprocess.run(
            command, env={**self.environment, **settings}, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "True\n", done.stderr

    def start_worker(self, **environment: str) -> subprocess.Popen[bytes]:
        number = len(self.workers)
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "rageval_hooks.workers",
            "worker",
            "-c",
            "1",
            "-n",
            f"w{number}@h",
        ]
        settings = {"RAGEVAL_JSONL_PATH": str(self.directory / f"worker{number}.jsonl"), **environment}
        with (self.directory / "worker.log").open("ab") as log:
            worker = subprocess.Popen(
                [*command, "-n", f"w{number}@h", "--without-gossip", "--without-mingle"],
                env={**self.environment, **settings},
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def judged(self) -> list[dict[str, Any]]:
        """Return the evaluations of all workers."""
        files = sorted(self.directory.glob("worker*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines() if line.endswith("}")]

    def questions(self) -> Counter[str]:
        """Return how often each question was judged with success."""
        return Counter(
            evaluation["turn"]["query"]
            for evaluation in self.judged()
            if all(result["status"] == "scored" for result in evaluation["results"])
        )

    def jobs(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run ``rageval-hooks jobs``."""
        return self.command("jobs", *options)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``rageval-hooks``."""
        command = [sys.executable, "-c", "from rageval_hooks.cli import main; main()", *arguments]
        return subprocess.run(
            command, env=self.environment, cwd=self.directory, capture_output=True, text=True, timeout=60, check=False
        )

    def stop(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(worker.pid, signal.SIGKILL)
                raise


@pytest.fixture(params=list(BROKERS))
def team(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Team]:
    port = free_port()
    with BROKERS[request.param](tmp_path, port), JudgeServer() as judge:
        judge.otherwise(answer(LABELS))
        made = Team(tmp_path, f"{request.param}://127.0.0.1:{port}//".removesuffix("/"), judge)
        try:
            yield made
        finally:
            made.stop()


def expected(count: int, question: str = "question") -> Counter[str]:
    return Counter(f"{question} {number}" for number in range(count))


def test_workers_judge_what_an_application_publishes(team: Team) -> None:
    """Each turn is judged once, in the worker, with the ids of the application's trace."""
    team.start_worker()
    team.ask(20)
    wait_until(lambda: len(team.judged()) >= 20)

    assert team.questions() == expected(20)
    assert len(team.judge.requests) == 20
    local = [json.loads(line) for line in (team.directory / "application.jsonl").read_text().splitlines()]
    assert {line["stage"] for line in local} == {"inline"}
    spans = {line["turn"]["query"]: line["turn"]["span"]["trace_id"] for line in local}
    assert {line["turn"]["query"]: line["turn"]["span"]["trace_id"] for line in team.judged()} == spans
    assert team.jobs().stdout == "0 jobs wait for a worker\n0 jobs failed\n"


def test_a_job_that_fails_three_times_is_kept_and_can_be_sent_again(team: Team) -> None:
    team.judge.otherwise(error(503, "overloaded"))
    worker = team.start_worker()
    team.ask(2)
    wait_until(lambda: len(team.judged()) >= 2)

    assert (team.directory / "worker.log").read_text().count("RAGEVAL-412") == 4  # twice for each job
    [reason] = {result["error_type"] for line in team.judged() for result in line["results"]}
    assert reason == "unavailable"
    wait_until(lambda: "2 jobs failed" in team.jobs().stdout)
    shown = team.jobs()
    assert shown.returncode == 1
    assert "x unavailable: " in shown.stdout

    # Another worker, whose circuit breaker is closed.
    worker.terminate()
    assert worker.wait(30) == 0
    team.start_worker()
    team.judge.otherwise(answer(LABELS))
    assert team.jobs("--resend").stdout == "2 failed jobs were given back to the workers\n"
    wait_until(lambda: len(team.judged()) >= 4)
    assert team.questions() == expected(2)


def test_killed_workers_lose_nothing(team: Team) -> None:
    """A job that was being evaluated comes to another worker. Its scores have the same id, so backends replace them."""
    if team.broker.startswith("redis"):
        pytest.skip("Redis gives the jobs of a dead worker back after minutes")
    team.ask(40)
    for _ in range(4):
        before = len(team.judged())
        worker = team.start_worker()
        wait_until(lambda before=before: len(team.judged()) > before)  # type: ignore[misc]
        os.killpg(worker.pid, signal.SIGKILL)
    team.start_worker()
    wait_until(lambda: set(team.questions()) == set(expected(40)), 90)

    assert len({line["id"] for line in team.judged()}) == 40


def test_sigterm_ends_a_worker_after_its_job(team: Team) -> None:
    team.ask(20)
    worker = team.start_worker()
    wait_until(lambda: len(team.judged()) >= 1)
    worker.terminate()
    assert worker.wait(120) == 0  # 3 to 4 seconds on a quiet machine
    team.start_worker()
    # Celery may give a job back that has just ended; its scores then come again, with the same id.
    wait_until(lambda: set(team.questions()) == set(expected(20)))
    assert len({line["id"] for line in team.judged()}) == 20


def test_jobs_wait_for_a_broker_that_is_down(tmp_path: Path) -> None:
    """In the spool they outlast the application; the next one publishes them."""
    port = free_port()
    with JudgeServer() as judge:
        judge.otherwise(answer(LABELS))
        team = Team(tmp_path, f"redis://127.0.0.1:{port}/0", judge)
        fallback = {"RAGEVAL_BROKER_FALLBACK": "spool", "RAGEVAL_SPOOL_PATH": str(tmp_path / "spool.db")}
        team.ask(5, "early", **fallback)
        with redis(tmp_path, port):
            team.ask(5, "late", **fallback)
            team.start_worker()
            try:
                wait_until(lambda: len(team.judged()) >= 10)
            finally:
                team.stop()
        assert team.questions() == expected(5, "early") + expected(5, "late")


def test_a_message_of_a_later_version_is_kept(team: Team) -> None:
    from rageval_hooks.online.celery import TASK, celery_app
    from rageval_hooks.settings import Settings

    app = celery_app(Settings.build(broker=team.broker))
    app.send_task(TASK, kwargs={"format": 99, "job": "{}"})
    app.send_task(TASK, kwargs={"format": 1, "job": '{"turn": {"a secret": 1}}'})
    app.close()
    team.start_worker()
    wait_until(lambda: "2 jobs failed" in team.jobs().stdout)

    shown = team.jobs().stdout
    assert "a message of format '99': this worker reads 1; update it" in shown
    assert "this version of rageval-hooks cannot read the job" in shown
    assert team.judge.requests == []


OLD_JOB = (
    '{"turn":{"query":"old 0","passages":[{"text":"The pier was opened in 2018."}],"response":"It was opened in 2018.",'
    '"span":{"trace_id":"0123456789abcdef0123456789abcdef","span_id":"0123456789abcdef"}},'
    '"metrics":[{"name":"trace","version":"9","reference":"trace","options":{},"probability":1.0}]}'
)
"""A job of format 1, as version 0.1.0 writes it. Later versions still have to read it."""


def test_a_job_that_comes_twice_gives_one_set_of_scores(team: Team) -> None:
    """Two workers evaluate the same job, which an older version wrote, at the same time: with the same ids."""
    from rageval_hooks.online.celery import TASK, celery_app
    from rageval_hooks.settings import Settings

    gate = Gate()
    team.judge.otherwise(held(answer(LABELS), gate))
    app = celery_app(Settings.build(broker=team.broker))
    for _ in range(2):
        team.start_worker()
        app.send_task(TASK, kwargs={"format": 1, "job": OLD_JOB})
    app.close()
    wait_until(lambda: len(team.judge.requests) == 2)
    gate.set()
    wait_until(lambda: len(team.judged()) == 2)

    assert team.questions() == {"old 0": 2}
    one, other = team.judged()
    assert one["id"] == other["id"]
    assert {path.name for path in team.directory.glob("worker?.jsonl")} == {"worker0.jsonl", "worker1.jsonl"}


def test_scores_that_cannot_be_exported_are_kept(team: Team) -> None:
    """The job is kept with its scores, so that the judge is not asked again."""
    worker = team.start_worker(RAGEVAL_JSONL_PATH="/dev/full")
    team.ask(2)
    wait_until(lambda: "2 jobs failed" in team.jobs().stdout)
    assert "could not deliver the scores" in team.jobs().stdout
    assert len(team.judge.requests) == 2

    worker.terminate()
    assert worker.wait(30) == 0
    team.start_worker()
    team.jobs("--resend")
    wait_until(lambda: team.questions() == expected(2))
    assert len(team.judge.requests) == 2


@pytest.mark.parametrize("offset", ["+1h", "-1h"])
def test_the_clock_of_a_worker_may_be_wrong(team: Team, offset: str) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("no libfaketime: apt-get install faketime")
    team.start_worker(LD_PRELOAD=str(library), FAKETIME=offset, FAKETIME_DONT_FAKE_MONOTONIC="1")
    team.ask(5)
    wait_until(lambda: len(team.judged()) >= 5)

    assert team.questions() == expected(5)
    assert len({line["id"] for line in team.judged()}) == 5
    assert team.jobs().stdout == "0 jobs wait for a worker\n0 jobs failed\n"


@pytest.mark.parametrize("name", list(BROKERS))
def test_a_broker_that_restarts_loses_nothing(tmp_path: Path, name: str) -> None:
    """Jobs wait at the broker while it restarts; the worker connects again."""
    port, gate = free_port(), Gate()
    with JudgeServer() as judge:
        judge.otherwise(held(answer(LABELS), gate))
        team = Team(tmp_path, f"{name}://127.0.0.1:{port}//".removesuffix("/"), judge)
        try:
            with BROKERS[name](tmp_path, port):
                team.start_worker()
                team.ask(10, "early")
                wait_until(lambda: len(judge.requests) >= 1)
            with BROKERS[name](tmp_path, port):
                gate.set()
                team.ask(10, "late")
                wait_until(lambda: set(team.questions()) == set(expected(10, "early") + expected(10, "late")), 90)
                team.stop()
        finally:
            team.stop()
        # The job that was being judged may come again, with the same id.
        assert len({line["id"] for line in team.judged()}) == 20


def test_doctor_sends_a_job_through_broker_and_worker(team: Team) -> None:
    without_worker = team.command("doctor", "--no-judge", "--timeout", "1")
    assert without_worker.returncode == 1
    assert "no worker answered within 1 seconds" in without_worker.stdout

    team.start_worker()
    with_worker = team.command("doctor", "--no-judge", "--timeout", "30")
    assert "a worker computed and delivered a score after" in with_worker.stdout, with_worker.stdout


def test_without_a_broker_there_is_a_clear_error() -> None:
    import rageval_hooks

    with pytest.raises(rageval_hooks.ConfigurationError, match="set RAGEVAL_BROKER"):
        rageval_hooks.instrument(dispatch="celery", models="lexical", exporters=["jsonl"])
