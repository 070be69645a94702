"""Exporters: a marked trace with one score is sent, and looked for where the backend can be asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from rageval_hooks.cli.doctor.setup import DoctorFinding, Setup, note, ok, problem, warning
from rageval_hooks.errors import ConfigurationError, MissingDependencyError
from rageval_hooks.exporters.base import AUTOMATIC, REGISTRY, Exporter, automatic_exporters
from rageval_hooks.exporters.delivery import DestinationAbsentError, PostError, ScoreApiExporter
from rageval_hooks.exporters.mlflow import mlflow_fault
from rageval_hooks.exporters.otlp_places import otlp_fault, otlp_places
from rageval_hooks.judges.failures import MessageCleaner
from rageval_hooks.runtime.time_limit import remaining, within
from rageval_hooks.runtime.tracing import RandomIds
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation, Score
from rageval_hooks.turn import Passage, SpanReference, Timing, Turn

__all__ = ["exporters", "seconds_for_all"]

_PAUSE: Final = 0.25
_FAILED: Final = ("rejected", "lost", "dropped", "queued")
"""Counters of exporters that are above 0 when something was not delivered."""


def seconds_for_all(setup: Setup) -> float:
    """Return the time for each exporter to deliver, to be asked, and to end."""
    number = len(setup.settings.exporters)
    if AUTOMATIC in setup.settings.exporters:
        number += len(automatic_exporters([]))
    return 3 * setup.options.seconds * max(1, number) + 10


def exporters(setup: Setup) -> Iterator[DoctorFinding]:
    """Send one evaluation through each exporter, as an application does, and yield what became of it."""
    made: dict[str, Exporter] = {}
    named = [name for name in setup.settings.exporters if name != AUTOMATIC]
    yield from _create(named, made, setup)
    if AUTOMATIC in setup.settings.exporters:
        yield from _create([kind.name for kind in automatic_exporters(made.values())], made, setup)
    evaluation = marked_evaluation()
    # Spans go first: servers take a score only for a span that they have.
    for name in sorted(made, key=lambda name: not made[name].traces):
        if not _is_idle(made[name]):
            yield _examine(name, made[name], evaluation, setup)
    idle = [name for name, exporter in made.items() if _is_idle(exporter)]
    if idle:
        yield note(f"not in use, because spans do not go there: {', '.join(idle)}")


def _create(names: Iterable[str], made: dict[str, Exporter], setup: Setup) -> Iterator[DoctorFinding]:
    """Add exporters to those that were made, and yield why some cannot be made."""
    for name in names:
        try:
            made[name] = REGISTRY.create(
                name, lambda kind: kind.from_settings(setup.settings, None), others=[AUTOMATIC]
            )
        except (ConfigurationError, MissingDependencyError) as error:
            yield problem(f"{name}: {error}", "set or install what the message names")


def _is_idle(exporter: Exporter) -> bool:
    """Return True for an exporter that is on by default, and whose backend gets no spans."""
    return isinstance(exporter, ScoreApiExporter) and not exporter.applies()


class _Reasons(logging.Handler):
    """Keeps the warnings that are logged while something is tried: exporters only count their failures."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: list[str] = []
        self._redact = MessageCleaner(())

    def emit(self, record: logging.LogRecord) -> None:
        # HTTP clients quote URLs, and a URL may have a key in its query.
        self._lines.append(self._redact(record.getMessage().removeprefix("rageval-hooks: ")))

    @property
    def first(self) -> str:
        """The first line, which is nearest to the cause; empty without one."""
        return next(iter(self._lines), "")


@contextmanager
def _recorded_log() -> Iterator[_Reasons]:
    loggers = [logging.getLogger(name) for name in ("rageval_hooks", "opentelemetry")]
    reasons = _Reasons()
    for logger in loggers:
        logger.addHandler(reasons)
    try:
        yield reasons
    finally:
        for logger in loggers:
            logger.removeHandler(reasons)


def _examine(name: str, exporter: Exporter, evaluation: Evaluation, setup: Setup) -> DoctorFinding:
    if name == "console":
        return ok("console: prints to standard error")
    if exporter.traces and not otlp_places():
        return warning(
            f"{name}: the environment names no OTLP endpoint. Without a TracerProvider of the application, evaluations "
            "are printed",
            "set OTEL_EXPORTER_OTLP_ENDPOINT, or set a provider in code before instrument()",
        )
    if not setup.options.sends:
        return note(f"{name}: nothing sent (--no-send)")
    with _recorded_log() as log:
        return _send(name, exporter, evaluation, setup.options.seconds, log)


def _send(name: str, exporter: Exporter, evaluation: Evaluation, seconds: float, log: _Reasons) -> DoctorFinding:
    try:
        exporter.export(evaluation)
        finished = within(lambda: exporter.flush(seconds), seconds + 1)
        found = _look(exporter, evaluation, seconds)
    except DestinationAbsentError:
        # An automatic exporter that stays off is not a fault.
        return note(f"{name}: not in use, because the server that gets the spans is another one")
    except TimeoutError:
        finished, found = False, None
    except Exception as error:
        return problem(f"{name}: {log.first or f'{type(error).__name__}: {error}'}", _advice(name))
    finally:
        _end(exporter)
    return _outcome(name, exporter, finished, found, log)


def _outcome(name: str, exporter: Exporter, finished: bool, found: bool | None, log: _Reasons) -> DoctorFinding:
    where = _where(exporter)
    if found:
        return ok(f"{name}: a marked trace was sent{where} and found again")
    if isinstance(exporter, ScoreApiExporter) and _server_is_unknown(exporter):
        advice = f"nothing, if no {exporter.backend} gets the spans; else name its address: see docs/backends.md"
        return warning(f"{name}: the server that gets the spans does not say whether it is {exporter.backend}", advice)
    undelivered = _undelivered(exporter)
    if undelivered or not finished:
        # The log has the server's words; the counters have only numbers.
        reason = log.first or undelivered or "no answer in time"
        return problem(f"{name}: the marked trace was not delivered{where}: {reason}", _advice(name))
    if found is False:
        advice = "the backend may take longer: look for 'rageval-hooks doctor' there, or give a longer --timeout"
        return problem(f"{name}: the marked score was sent{where}, but is not shown there", advice)
    return ok(f"{name}: sent{where}; it cannot be asked for what it has")


def _server_is_unknown(exporter: ScoreApiExporter) -> bool:
    """Return True for an automatic exporter that waits for a server to say what it is."""
    return exporter.automatic and not any(exporter.stats().values())


def _undelivered(exporter: Exporter) -> str:
    """Return the counters of what was not delivered, for example "2 lost"; empty without any."""
    counts = exporter.stats().items()
    return ", ".join(f"{amount} {kind}" for kind, amount in counts if amount and kind.endswith(_FAILED))


def _look(exporter: Exporter, evaluation: Evaluation, seconds: float) -> bool | None:
    """Ask the backend again and again, until it has the score or the time is over."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = within(lambda: exporter.stores(evaluation), max(1.0, remaining(end)))
        except PostError:
            # For example a key that may write and not read: whether the score was taken is known without this.
            return None
        if found is not False or time.monotonic() > end:
            return found
        time.sleep(_PAUSE)


def _end(exporter: Exporter) -> None:
    """Close the exporter without waiting: what was not delivered until now is reported as such."""
    try:
        within(lambda: exporter.shutdown(0.5), 2.0)
    except Exception:
        return


def _where(exporter: Exporter) -> str:
    if isinstance(exporter, ScoreApiExporter):
        return f" to {exporter.backend}"
    if not exporter.traces:
        return ""
    # Several exporters of a provider may send to one server.
    urls = dict.fromkeys(safe_url(place.url) for place in otlp_places())
    return f" to {', '.join(urls)}"


def _advice(name: str) -> str:
    # The server's own words seldom name the mistake.
    fault = otlp_fault() or (mlflow_fault() if name.startswith(("otel", "mlflow")) else None)
    if fault is not None:
        return fault
    if name == "otel":
        return "check OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL and OTEL_EXPORTER_OTLP_HEADERS"
    return f"check the server, its address and the key that the exporter {name} uses: see docs/backends.md"


def marked_evaluation() -> Evaluation:
    """Return an evaluation that people recognise in a backend: a turn with one passage and one score."""
    ids = RandomIds()
    span = SpanReference(trace_id=f"{ids.generate_trace_id():032x}", span_id=f"{ids.generate_span_id():016x}")
    now = time.time_ns()
    turn = Turn(
        name="rageval-hooks doctor",
        query="Is this trace stored?",
        passages=(Passage(text="This trace was sent by the command rageval-hooks doctor."),),
        response="Yes.",
        timing=Timing(started_at=now - 1_000_000, ended_at=now),
        span=span,
        metadata={"rageval.doctor": True},
    )
    score = Score(name="rageval_doctor", value=1.0, explanation="a test of the connection")
    return Evaluation(turn=turn, results=(score,))
