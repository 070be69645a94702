"""Flush and shutdown return in time and tell the truth, whatever the other end does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider

import rageval_hooks
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.otel import OtelExporter, providers
from rageval_hooks.exporters.phoenix import PhoenixExporter
from rageval_hooks.score import Evaluation, Score
from rageval_hooks.turn import SpanReference, Turn
from tests.exporters.collector import Collector, http_collector, silent_server
from tests.exporters.test_providers import clean_environment
from tests.warm import run_warm_script

NOWHERE = "http://127.0.0.1:9"
GRACE = 5.0
"""Seconds that a busy machine may need beyond a timeout."""

TURN = Turn(
    query="When?",
    response="In 2019.",
    span=SpanReference(trace_id="0" * 31 + "1", span_id="1234567890abcdef"),
)
EVALUATION = Evaluation(turn=TURN, results=(Score(name="verdict", value=1.0, label="good"),))


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], OtelExporter]]:
    """Make an exporter that sends through our own provider to a URL."""

    def connect(url: str) -> OtelExporter:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        providers._own.pop("TRACES", None)
        return OtelExporter()

    yield connect
    providers._own.pop("TRACES", None)


@pytest.fixture
def silent() -> Iterator[str]:
    with silent_server() as url:
        yield url


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as collector:
        yield collector


def timed(call: Callable[[float], bool], timeout: float) -> tuple[bool, float]:
    """Return what a call with a timeout returned, and the seconds beyond the timeout that it took."""
    started = time.monotonic()
    return call(timeout), time.monotonic() - started - timeout


class TestOwnProvider:
    def test_a_flush_that_delivers_is_true(self, connect: Any, collector: Collector) -> None:
        """And the spans are counted."""
        exporter = connect(collector.url)
        exporter.export(EVALUATION)

        assert exporter.flush(10)
        assert exporter.stats()["delivered"] == len(collector.spans) > 0
        assert exporter.shutdown(10)

    def test_a_collector_that_never_answers_does_not_hold_up_a_flush(self, connect: Any, silent: str) -> None:
        """The flush is false, and the spans are still queued."""
        exporter = connect(silent)
        exporter.export(EVALUATION)

        done, late = timed(exporter.flush, 0.3)

        assert not done
        assert late < GRACE
        assert exporter.stats()["queued"] > 0

    def test_a_collector_that_never_answers_does_not_hold_up_a_shutdown(
        self, connect: Any, silent: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Everything that waits is counted as lost, and one line says so."""
        exporter = connect(silent)
        exporter.export(EVALUATION)
        queued = exporter.stats()["queued"]

        done, late = timed(exporter.shutdown, 0.3)

        assert not done
        assert late < GRACE
        nothing = dict.fromkeys(("queued", "delivered", "rejected", "dropped", "dropped_by_size"), 0)
        assert exporter.stats() == {**nothing, "lost": queued}
        assert f"{queued} spans could not be delivered to otlp-spans in time and are lost" in caplog.text

    @pytest.mark.parametrize("status", [400, 413, 422])
    def test_spans_that_a_collector_refuses_are_counted(self, connect: Any, collector: Collector, status: int) -> None:
        """A refusal is no delivery, although the collector answered."""
        collector.status = status
        exporter = connect(collector.url)
        exporter.export(EVALUATION)
        queued = exporter.stats()["queued"]

        assert not exporter.flush(10)
        assert exporter.stats()["rejected"] == queued
        assert exporter.stats()["delivered"] == 0

    def test_a_partial_success_counts_what_was_rejected(self, connect: Any, collector: Collector) -> None:
        """The collector accepts the request and says how many spans it dropped."""
        partial = ExportTracePartialSuccess(rejected_spans=1, error_message="too old")
        collector.answer = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
        exporter = connect(collector.url)
        exporter.export(EVALUATION)
        queued = exporter.stats()["queued"]

        assert not exporter.flush(10)
        assert exporter.stats()["rejected"] == 1
        assert exporter.stats()["delivered"] == queued - 1

    def test_a_collector_that_is_down_loses_spans_in_time(self, connect: Any) -> None:
        """The retries of the OTLP exporter take longer than the deadline."""
        exporter = connect(NOWHERE)
        exporter.export(EVALUATION)

        flushed, flush_late = timed(exporter.flush, 0.3)
        closed, close_late = timed(exporter.shutdown, 0.3)

        assert not flushed
        assert not closed
        assert max(flush_late, close_late) < GRACE
        assert exporter.stats()["lost"] > 0

    def test_spans_wait_for_a_collector_that_is_restarted(
        self, connect: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For longer than the SDK's exporter tries again. At the end they are lost, and counted."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1")
        collector.status = 503
        exporter = connect(collector.url)
        exporter.export(EVALUATION)
        queued = exporter.stats()["queued"]

        assert not exporter.flush(3)
        assert (exporter.stats()["lost"], exporter.stats()["queued"]) == (0, queued)
        collector.status = 200
        assert exporter.flush(20)
        assert exporter.stats()["delivered"] == queued
        collector.status = 503
        exporter.export(EVALUATION)
        assert not exporter.shutdown(5)
        assert exporter.stats()["lost"] > 0

    def test_a_later_flush_reports_only_new_losses(self, connect: Any, collector: Collector) -> None:
        """A collector that recovered is trusted again."""
        collector.status = 422
        exporter = connect(collector.url)
        exporter.export(EVALUATION)
        assert not exporter.flush(10)

        collector.status = 200
        exporter.export(EVALUATION)
        assert exporter.flush(10)

    def test_a_full_queue_drops_new_spans_and_counts_them(
        self, connect: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The capacity is the SDK's variable."""
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
        with silent_server() as url:
            exporter = connect(url)
            for _ in range(5):
                exporter.export(EVALUATION)
            stats = exporter.stats()
            exporter.shutdown(0)

        assert stats["queued"] == 2
        assert stats["dropped"] >= 3


class TestProviderOfTheApplication:
    def test_only_the_deadline_is_known(self) -> None:
        """A processor that blocks is left behind; the SDK's own timeout would not stop it."""
        provider = TracerProvider(shutdown_on_exit=False)
        released = threading.Event()
        provider.force_flush = lambda timeout_millis=0: released.wait(30)  # type: ignore[method-assign]
        exporter = OtelExporter(provider)
        exporter.export(EVALUATION)

        done, late = timed(exporter.flush, 0.2)
        released.set()

        assert not done
        assert late < GRACE
        assert exporter.stats() == {}

    def test_it_stays_open(self) -> None:
        """Its owner shuts it down."""
        provider = TracerProvider(shutdown_on_exit=False)
        provider.shutdown = pytest.fail  # type: ignore[method-assign, assignment]
        exporter = OtelExporter(provider)
        exporter.export(EVALUATION)

        assert exporter.shutdown(5)


class TestPhoenix:
    @pytest.mark.parametrize("method", ["flush", "shutdown"])
    def test_a_server_that_never_answers(self, silent: str, method: str) -> None:
        """The call returns in time and is false."""
        exporter = PhoenixExporter(silent)
        exporter.export(EVALUATION)

        done, late = timed(getattr(exporter, method), 0.3)

        assert not done
        assert late < GRACE

    def test_scores_that_a_server_refuses_are_counted(self, collector: Collector) -> None:
        """A refusal is no delivery."""
        with refusing_server() as url:
            exporter = PhoenixExporter(url)
            exporter.export(EVALUATION)

            assert not exporter.flush(10)
            assert exporter.stats()["rejected"] == 2  # of the span and of the trace
            exporter.shutdown(5)


def refusing_server() -> Any:
    """Answer every request with 422."""
    from tests.exporters.phoenix.test_exporter import Server, serving

    server = Server()
    server.post = lambda *_: (422, "invalid")  # type: ignore[method-assign]
    context = serving(server)

    class Url:
        def __enter__(self) -> str:
            return context.__enter__().url

        def __exit__(self, *error: Any) -> None:
            context.__exit__(*error)

    return Url()


class TestHandle:
    """The same through the handle that ``instrument()`` returns."""

    class Stubborn(Exporter):
        name = "stubborn"

        def export(self, evaluation: Evaluation) -> None:
            pass

        # Time is what a hanging exporter takes.
        def flush(self, timeout: float) -> bool:
            time.sleep(timeout)
            return False

        def shutdown(self, timeout: float) -> bool:
            time.sleep(timeout)
            return False

    def test_shutdown_of_a_hanging_exporter_takes_no_longer_than_its_timeout(self) -> None:
        """Flush and shutdown share the time."""
        handle = rageval_hooks.instrument(metrics=[], exporters=[self.Stubborn()])

        done, late = timed(handle.shutdown, 0.5)

        assert not done
        assert late < GRACE

    def test_the_exit_takes_no_longer_than_the_drain_timeout(self) -> None:
        """With a collector that never answers."""
        with silent_server() as url:
            script = (
                "import time, atexit, rageval_hooks\n"
                "from tests.integrations.langchain.fakes import lcel\n"
                "atexit.register(lambda: print(time.monotonic() - started))\n"  # runs last
                "rageval_hooks.instrument(metrics=['latency'], models='lexical', drain_timeout=1)\n"
                "lcel().invoke('When?')\n"
                "started = time.monotonic()\n"
            )
            done = run_warm_script(script, environment={**clean_environment(), "OTEL_EXPORTER_OTLP_ENDPOINT": url})

        assert float(done.stdout) < 1 + GRACE
        assert "spans could not be delivered to otlp-spans in time and are lost" in done.stderr
