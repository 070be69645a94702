"""Exporters: a marked trace with one score is sent, and looked for where the backend can be asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging.handlers import BufferingHandler
from typing import Final

from rageval_hooks.cli.doctor.checks import DoctorFinding, Setup, marked_evaluation, note, ok, problem, warning
from rageval_hooks.errors import ConfigurationError, MissingDependencyError
from rageval_hooks.exporters.base import AUTOMATIC, REGISTRY, Exporter, automatic_exporters
from rageval_hooks.exporters.delivery_queue import DestinationAbsentError, PostError
from rageval_hooks.exporters.mlflow import mlflow_fault
from rageval_hooks.exporters.otlp_places import otlp_fault, otlp_places
from rageval_hooks.exporters.score_api import ScoreApiExporter
from rageval_hooks.judges.failures import clean_message
from rageval_hooks.runtime.time_limit import remaining, within
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation

_PAUSE: Final = 0.25

_FAILED: Final = ("rejected", "lost", "dropped", "queued")
"""Ends of the counters of exporters that are above 0 when something was not delivered."""


def exporters(setup: Setup) -> Iterator[DoctorFinding]:
    """Send one evaluation through each exporter, as an application does, and yield what became of it."""
    made: list[Exporter] = []

    def make(kind: type[Exporter]) -> Exporter:
        exporter = kind()
        exporter.bind(setup.settings, None)
        return exporter

    for name in setup.settings.exporters:
        try:
            if name != AUTOMATIC:
                made.append(REGISTRY.create(name, make, others=[AUTOMATIC]))
        except (ConfigurationError, MissingDependencyError) as error:
            yield problem(f"{name}: {error}", "set or install what the message names")
    if AUTOMATIC in setup.settings.exporters:
        made += map(make, automatic_exporters(made))
    # Automatic exporters whose backend gets no spans.
    idle = [one for one in made if isinstance(one, ScoreApiExporter) and one.automatic and not one.applies()]
    evaluation = marked_evaluation()
    # Spans go first: servers take a score only for a span that they have. A stable sort keeps the order otherwise.
    for exporter in sorted(made, key=lambda exporter: not exporter.traces):
        if exporter not in idle:
            yield _examine(exporter, evaluation, setup)
    if idle:
        yield note(f"not in use, because spans do not go there: {', '.join(exporter.name for exporter in idle)}")


def _examine(exporter: Exporter, evaluation: Evaluation, setup: Setup) -> DoctorFinding:
    """Send an evaluation, look for it, and return what became of it."""
    name, seconds = exporter.name, setup.seconds
    # Several exporters of a provider may send to one server.
    places = dict.fromkeys(safe_url(place.url) for place in otlp_places())
    if name == "console":
        return ok("console: prints to standard error")
    if exporter.traces and not places:
        return warning(
            f"{name}: the environment names no OTLP endpoint. Without a TracerProvider of the application, evaluations "
            "are printed",
            "set OTEL_EXPORTER_OTLP_ENDPOINT, or set a provider in code before instrument()",
        )
    if not setup.sends:
        return note(f"{name}: nothing sent (--no-send)")
    backend = exporter.backend if isinstance(exporter, ScoreApiExporter) else ""
    target = ", ".join(places) if exporter.traces else backend
    where = f" to {target}" if target else ""
    finished, found, failure = False, None, ""
    with _warnings() as logged:
        try:
            exporter.export(evaluation)
            finished = within(lambda: exporter.flush(seconds), seconds + 1)
            found = _look(exporter, evaluation, seconds)
        except DestinationAbsentError:
            # An automatic exporter that stays off is not a fault.
            return note(f"{name}: not in use, because the server that gets the spans is another one")
        except TimeoutError:
            pass
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        finally:
            # Without waiting: what was not delivered until now is reported as such.
            with suppress(Exception):
                within(lambda: exporter.shutdown(0.5), 2.0)
    if found:
        return ok(f"{name}: a marked trace was sent{where} and found again")
    counts = exporter.stats()
    # An automatic exporter without any count waits for a server to say what it is.
    if backend and exporter.automatic and not failure and not any(counts.values()):
        advice = f"nothing, if no {backend} gets the spans; else name its address: see docs/backends.md"
        return warning(f"{name}: the server that gets the spans does not say whether it is {backend}", advice)
    undelivered = ", ".join(f"{amount} {kind}" for kind, amount in counts.items() if amount and kind.endswith(_FAILED))
    if failure or undelivered or not finished:
        # The log has the server's words; the counters have only numbers. Its first line is nearest to the cause.
        # HTTP clients quote URLs, and a URL may have a key in its query.
        said = [clean_message(record.getMessage().removeprefix("rageval-hooks: ")) for record in logged]
        reason = next(filter(None, (*said, failure, undelivered, "no answer in time")))
        return problem(f"{name}: the marked trace was not delivered{where}: {reason}", _advice(name))
    if found is False:
        advice = "the backend may take longer: look for 'rageval-hooks doctor' there, or give a longer --timeout"
        return problem(f"{name}: the marked score was sent{where}, but is not shown there", advice)
    return ok(f"{name}: sent{where}; it cannot be asked for what it has")


@contextmanager
def _warnings() -> Iterator[list[logging.LogRecord]]:
    """Collect the warnings that are logged in a ``with`` block: exporters only count their failures."""
    handler = BufferingHandler(capacity=1_000)
    handler.setLevel(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("rageval_hooks", "opentelemetry")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _look(exporter: Exporter, evaluation: Evaluation, seconds: float) -> bool | None:
    """Ask the backend again and again, until it has the score or the time is over; None if it cannot be asked."""
    end = time.monotonic() + seconds
    found: bool | None = False
    with suppress(PostError):  # for example a key that may write and not read
        while found is False and time.monotonic() < end:
            found = within(lambda: exporter.stores(evaluation), max(1.0, remaining(end)))
            if found is False:
                time.sleep(_PAUSE)
        return found
    return None


def _advice(name: str) -> str:
    # The server's own words seldom name the mistake.
    fault = otlp_fault() or (mlflow_fault() if name.startswith(("otel", "mlflow")) else None)
    if fault is not None:
        return fault
    if name == "otel":
        return "check OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL and OTEL_EXPORTER_OTLP_HEADERS"
    return f"check the server, its address and the key that the exporter {name} uses: see docs/backends.md"
