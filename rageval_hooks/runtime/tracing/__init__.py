"""OpenTelemetry's SDK: its tracers inside the wrappers of other libraries, and span ids that are known early."""

from rageval_hooks.runtime.tracing.random_ids import RANDOM, RandomIds, ids_like
from rageval_hooks.runtime.tracing.span_ids import preset_ids, start_span
from rageval_hooks.runtime.tracing.tracers import (
    global_logger_provider,
    global_meter_provider,
    global_tracer_provider,
    most_attributes,
    processors_of,
    provider_of_span,
    sdk_provider,
    sdk_tracer,
)

__all__ = [
    "RANDOM",
    "RandomIds",
    "global_logger_provider",
    "global_meter_provider",
    "global_tracer_provider",
    "ids_like",
    "most_attributes",
    "preset_ids",
    "processors_of",
    "provider_of_span",
    "sdk_provider",
    "sdk_tracer",
    "start_span",
]
