"""Unusual hosts, each in a fresh interpreter: patched threads, forks during imports, signals, a hanging collector."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.exporters.collector import http_collector, silent_server
from tests.interpreter import run_script
from tests.online.processes import PRELUDE, questions

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and POSIX signals")


class TestPatchedThreads:
    @pytest.mark.skipif(find_spec("gevent") is None, reason="needs gevent")
    def test_a_gevent_application_is_untouched_and_its_turns_arrive(self, tmp_path: Path) -> None:
        """100 calls from greenlets all succeed; no greenlet ever sees our event loop."""
        evaluations = _run_patched(
            """
from gevent import monkey
monkey.patch_all()
import asyncio, sys, gevent
from gevent.pool import Pool
import rageval_hooks
from tests.integrations.langchain.fakes import lcel

handle = rageval_hooks.instrument(metrics=["latency", "groundedness"], models="lexical", exporters=["jsonl"])

def ask(number):
    answer = lcel().invoke(f"question {number}")
    assert asyncio._get_running_loop() is None
    gevent.sleep(0)
    return answer

answers = Pool(20).map(ask, range(100))
assert len(answers) == 100 and set(answers) == {"It was opened in 2019."}, len(answers)
assert handle.shutdown(60)
""",
            tmp_path,
        )

        inline = [evaluation for evaluation in evaluations if evaluation["stage"] == "inline"]
        assert sorted(questions(inline)) == sorted(f"question {number}" for number in range(100))

    def test_greenlets_run_while_one_waits_for_its_scores(self, tmp_path: Path) -> None:
        """The wait is cooperative: it blocks its own greenlet only."""
        pytest.importorskip("gevent")
        run_script(
            """
from gevent import monkey
monkey.patch_all()
import gevent, threading, time
import rageval_hooks
from tests.integrations.langchain.fakes import lcel

ticks = []

@rageval_hooks.metric
def slow(turn):
    "Takes until the application has made progress."
    while len(ticks) < 5:
        time.sleep(0.001)
    return 1.0

def tick():
    while len(ticks) < 5:
        ticks.append(1)
        gevent.sleep(0.001)

handle = rageval_hooks.instrument(metrics=[slow], exporters=[], on_evaluation=lambda evaluation: None)
asking = gevent.spawn(lcel().invoke, "question")
gevent.spawn(tick)
asking.join(timeout=30)
assert asking.successful()
assert handle.stats()["scored"] == 1, handle.stats()
handle.shutdown(10)
""",
            timeout=240,
        )

    @pytest.mark.skipif(find_spec("gevent") is None, reason="needs gevent")
    def test_spans_log_events_and_metrics_reach_a_collector_from_a_gevent_application(self) -> None:
        """Also the metrics that a flush collects on its own short-lived thread."""
        with http_collector() as collector:
            run_script(
                """
from gevent import monkey
monkey.patch_all()
import rageval_hooks
from tests.integrations.langchain.fakes import lcel

handle = rageval_hooks.instrument(metrics=["latency"], exporters=["otel"])
for number in range(2):
    lcel().invoke("question")
    assert handle.flush(20)
assert handle.shutdown(20)
""",
                OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
                OTEL_EXPORTER_OTLP_LOGS_ENDPOINT=f"{collector.url}/v1/logs",
                OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{collector.url}/v1/metrics",
            )

        assert [span.name.split()[0] for span in collector.spans].count("rag") == 2
        assert collector.log_requests
        assert len(collector.metric_requests) >= 2

    # Not imported here: from then on eventlet warns whenever this process forks.
    @pytest.mark.skipif(find_spec("eventlet") is None, reason="needs eventlet")
    def test_eventlet_is_refused_with_a_clear_message(self) -> None:
        """Its locks do not work across threads, so our background thread could block the application."""
        output = run_script(
            """
import eventlet
eventlet.monkey_patch()
import rageval_hooks
try:
    rageval_hooks.instrument(metrics=["latency"], exporters=[])
except rageval_hooks.ConfigurationError as error:
    print(error)
""",
            timeout=240,
            EVENTLET_NO_GREENDNS="yes",  # which imports trio, which does not work with eventlet
        )

        assert "eventlet" in output
        assert "gevent" in output


class TestChildProcesses:
    def test_a_fork_while_the_background_thread_starts_its_judge_does_not_hang(self, tmp_path: Path) -> None:
        """The judge's client is imported by ``instrument()``, so no import can be interrupted by the fork."""
        output = run_script(
            """
import os, sys, threading, time
from rageval_hooks.testing import InMemoryExporter
import rageval_hooks
from tests.integrations.langchain.fakes import lcel
from tests.judges.server import JudgeServer, answer
from tests.online.test_judge_stage import LABELS

with JudgeServer() as server:
    server.otherwise(answer(LABELS))
    options = {"base_url": server.url, "max_retries": 0}
    os.environ["OPENAI_API_KEY"] = "sk-test"
    memory = InMemoryExporter()
    rageval_hooks.instrument(
        metrics=["trace"], judge="openai:judge-model", judge_options=options, exporters=[memory], drain_timeout=20
    )
    before = set(sys.modules)
    for number in range(3):
        lcel().invoke(f"parent {number}")
        child = os.fork()
        if child == 0:
            import faulthandler
            faulthandler.dump_traceback_later(30, exit=True)
            import openai.resources.chat.completions, httpx
            lcel().invoke("child")
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    packages = {name.split(".")[0] for name in set(sys.modules) - before}
    print(sorted(packages & {"openai", "httpx", "httpcore", "anyio"}))
""",
            timeout=240,
        )

        assert output.strip() == "[]"


class TestSignals:
    def test_sigterm_ends_the_process_as_without_us(self, tmp_path: Path) -> None:
        """The default handler is left alone: the process dies of the signal at once. Exported turns are there."""
        script = """
handle = rageval_hooks.instrument(metrics=["latency"])
lcel().invoke("question")
handle.flush(30)
print("ready", flush=True)
threading.Event().wait()
"""
        assert _signalled(script, signal.SIGTERM, tmp_path) == -signal.SIGTERM
        assert questions(_written(tmp_path)) == ["question"]

    def test_a_keyboard_interrupt_delivers_what_is_pending(self, tmp_path: Path) -> None:
        """Ctrl-C ends the program with its usual exit code, and the exit drain runs."""
        script = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
rageval_hooks.instrument(metrics=["latency"])
for number in range(20):
    lcel().invoke(f"question {number}")
print("ready", flush=True)
threading.Event().wait()
"""
        assert _signalled(script, signal.SIGINT, tmp_path) in (-signal.SIGINT, 130, 1)
        assert sorted(questions(_written(tmp_path))) == sorted(f"question {number}" for number in range(20))


def test_the_lexical_tier_does_not_import_pytorch() -> None:
    """Neither do the threads that prepare passages, where it is installed."""
    run_script(
        """
import sys
import rageval_hooks
from tests.integrations.langchain.fakes import lcel

handle = rageval_hooks.instrument(models="lexical", exporters=[])
lcel().invoke("question")
assert handle.flush(60) and handle.stats()["scored"]
assert "torch" not in sys.modules
"""
    )


class TestACollectorThatHangs:
    def test_flush_shutdown_and_exit_keep_their_time_limits(self, tmp_path: Path) -> None:
        """The collector accepts connections and never answers: everything returns in time and says False."""
        pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
        script = """
import json, time
import rageval_hooks
from tests.integrations.langchain.fakes import lcel
handle = rageval_hooks.instrument(metrics=["latency"], exporters=["otel"], drain_timeout=1.5)
lcel().invoke("question")

def timed(call, timeout):
    started = time.monotonic()
    return call(timeout), time.monotonic() - started

first, second = timed(handle.flush, 1), timed(handle.shutdown, 3)
rageval_hooks.instrument(metrics=["latency"], exporters=["otel"], drain_timeout=1.5)
lcel().invoke("another")
print(json.dumps([*first, *second, time.time()]), flush=True)
"""
        with silent_server() as url:
            output = run_script(script, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_TRACES_EXPORTER=None, timeout=240)
            ended = time.time()
        flushed, flush_time, shut_down, shutdown_time, exit_began = json.loads(output.splitlines()[-1])

        assert (flushed, shut_down) == (False, False)
        assert flush_time < 1.2 + GRACE
        assert shutdown_time < 3.3 + GRACE
        assert ended - exit_began < 1.5 + 2 * GRACE  # the interpreter takes a while to end, too


GRACE = 5.0
"""Seconds that a busy machine may need beyond a time limit."""


def _run_patched(script: str, tmp_path: Path) -> list[dict[str, object]]:
    run_script(script, RAGEVAL_JSONL_PATH=str(tmp_path / "out.jsonl"), timeout=240)
    return _written(tmp_path)


def _signalled(script: str, number: int, tmp_path: Path) -> int:
    """Run a script until it prints "ready", send it a signal, and return its exit code.

    Python drops a KeyboardInterrupt that is raised in a finalizer, so a second signal may be needed, as from a user.
    """
    out = tmp_path / "out.jsonl"
    environment = {**os.environ, "RAGEVAL_JSONL_PATH": str(out), "RAGEVAL_EXPORTERS": "jsonl"}
    command = [sys.executable, "-c", PRELUDE + script, str(out)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            for _ in range(2):
                process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(30)
        finally:
            process.kill()  # or leaving the block would wait forever
        raise AssertionError("the process did not end")


def _written(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
