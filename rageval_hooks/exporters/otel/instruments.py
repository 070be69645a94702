"""The OpenTelemetry metrics that we report, and their names."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.otel.cardinality import OTHER
from rageval_hooks.exporters.otel.signal import SCOPE
from rageval_hooks.runtime.process_totals import PROCESS_TOTALS
from rageval_hooks.version import __version__

__all__ = ["Instruments", "instruments_of"]

# Most scores are shares, and thresholds lie between 0.3 and 0.9; a few count or grade, up to 10.
_SCORE_BUCKETS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 2.0, 3.0, 5.0, 10.0)
_SECONDS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
_TOKENS_BUCKETS = (1.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)
_USD_BUCKETS = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_INLINE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

_KNOWN_UNITS = {
    "": (semconv.METRIC_SCORE, "1", _SCORE_BUCKETS),
    "s": (semconv.METRIC_SCORE_SECONDS, "s", _SECONDS_BUCKETS),
    "tokens": (semconv.METRIC_SCORE_TOKENS, "{token}", _TOKENS_BUCKETS),
    "USD": (semconv.METRIC_SCORE_COST, "USD", _USD_BUCKETS),
}

_MOST_UNITS = 20
"""Each unit is a separate instrument, and a custom metric may give a score any unit."""

# What names of metrics cannot have: "km/h" becomes "km_h".
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_UNIT = 63  # OpenTelemetry refuses longer units, and those that are not ASCII


class Instruments:
    """The metrics of one meter provider.

    Args:
        meter: creates them.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._scores: dict[str, Histogram] = {}
        for unit, (name, its_unit, buckets) in _KNOWN_UNITS.items():
            self._scores[unit] = self._histogram(name, its_unit, "Scores of evaluations", buckets)
        self.turns = meter.create_counter(semconv.METRIC_TURNS, "{turn}", "Captured turns")
        self.skipped = meter.create_counter(semconv.METRIC_SKIPPED, "{score}", "Scores that could not be computed")
        self.failed = meter.create_counter(semconv.METRIC_FAILED, "{score}", "Scores whose metric failed")
        self.inline_duration = self._histogram(
            semconv.METRIC_INLINE_DURATION, "s", "Time that the local metrics of a turn took inline", _INLINE_BUCKETS
        )
        self.judge_calls = meter.create_counter(semconv.METRIC_JUDGE_CALLS, "{call}", "Requests to the judge")
        self.judge_tokens = meter.create_counter(semconv.METRIC_JUDGE_TOKENS, "{token}", "Tokens of the judge")
        self.judge_cost = meter.create_counter(semconv.METRIC_JUDGE_COST, "USD", "Cost of the judge")
        self._observe_process(meter)

    def score(self, unit: str) -> Histogram:
        """Return the histogram of the scores with a unit. Values of different units need different buckets."""
        if unit not in self._scores and len(self._scores) >= _MOST_UNITS:
            unit = OTHER
        if unit not in self._scores:
            # No buckets are known to fit, so those of the provider have to do.
            name = f"{semconv.METRIC_SCORE}.{_name_of_unit(unit)}"
            self._scores[unit] = self._histogram(name, _valid_unit(unit), "Scores of evaluations", None)
        return self._scores[unit]

    def _histogram(self, name: str, unit: str, description: str, buckets: Iterable[float] | None) -> Histogram:
        boundaries = None if buckets is None else list(buckets)
        return self._meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=boundaries)

    def _observe_process(self, meter: Meter) -> None:
        """Create the metrics that are read when the provider collects: they cost the application's calls nothing."""
        meter.create_observable_counter(
            semconv.METRIC_SAMPLED_OUT, [_observer(_sampled_out)], "{turn}", "Turns that were not captured"
        )
        meter.create_observable_counter(
            semconv.METRIC_ERRORS, [_observer(_errors)], "{error}", "Errors of rageval-hooks itself"
        )
        meter.create_observable_counter(
            semconv.METRIC_DROPPED, [_observer(_dropped)], "{item}", "Work that a full queue did not take"
        )
        meter.create_observable_gauge(
            semconv.METRIC_QUEUE_DEPTH, [_observer(_depths)], "{item}", "Items that wait in a queue"
        )
        meter.create_observable_gauge(
            semconv.METRIC_QUEUE_CAPACITY, [_observer(_capacities)], "{item}", "Items that may wait in a queue"
        )


def _name_of_unit(unit: str) -> str:
    return _NOT_IN_NAMES.sub("_", unit.lower()).strip("_")[:_LONGEST_UNIT] or OTHER


def _valid_unit(unit: str) -> str:
    """Return the unit if OpenTelemetry accepts it, else an empty one: "µs" is not ASCII."""
    return unit if unit.isascii() and len(unit) <= _LONGEST_UNIT and unit != OTHER else ""


Rows = Iterable[tuple[int, str, str]]
"""Values, each with the name and the value of its one attribute."""


def _observer(rows: Callable[[], Rows]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, {name: text}) for value, name, text in rows()]

    return observe


def _sampled_out() -> Rows:
    yield PROCESS_TOTALS["sampled_out"], semconv.REASON, "sample_rate"
    yield PROCESS_TOTALS["unsampled_traces"], semconv.REASON, "unsampled_trace"


def _errors() -> Rows:
    yield PROCESS_TOTALS["export_errors"], semconv.ERROR_TYPE, "export"
    yield PROCESS_TOTALS["callback_errors"], semconv.ERROR_TYPE, "callback"
    yield PROCESS_TOTALS["internal_errors"], semconv.ERROR_TYPE, "internal"


def _dropped() -> Rows:
    for queue, amount in PROCESS_TOTALS.dropped().items():
        yield amount, semconv.QUEUE, queue


def _depths() -> Rows:
    for queue, state in PROCESS_TOTALS.queues().items():
        yield state.pending, semconv.QUEUE, queue


def _capacities() -> Rows:
    for queue, state in PROCESS_TOTALS.queues().items():
        yield state.capacity, semconv.QUEUE, queue


_made: list[tuple[weakref.ref[Any], Instruments]] = []


def instruments_of(provider: MeterProvider) -> Instruments:
    """Return the instruments of a provider, always the same.

    A provider calls every callback that was ever registered with it: a second set of instruments would report the
    counts of the process twice.
    """
    # A list and not a weak dictionary: Logfire's providers are not hashable. An application has one or two.
    _made[:] = [(made_for, made) for made_for, made in _made if made_for() is not None]
    for made_for, made in _made:
        if made_for() is provider:
            return made
    made = Instruments(provider.get_meter(SCOPE, __version__, semconv.SCHEMA_URL))
    _made.append((weakref.ref(provider), made))
    return made
