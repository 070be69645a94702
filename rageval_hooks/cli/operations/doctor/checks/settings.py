"""Settings: which are set and from where, unknown variables, and settings that contradict each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, ClassVar, Final

from pydantic import SecretStr

from rageval_hooks.cli.operations.doctor.base import Check, Finding, note, ok, problem, warning
from rageval_hooks.cli.operations.doctor.setup import Setup
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.base import AUTOMATIC
from rageval_hooks.online.build import resolve_thresholds
from rageval_hooks.online.sampling import MetricSampler
from rageval_hooks.settings import ModelSettings, Settings, unknown_variables

__all__ = ["SettingsCheck"]

_PREFIX: Final = "RAGEVAL_"
_HIDDEN: Final = frozenset({"judge_options"})
"""Settings whose values may hold keys in URLs and headers, so that only the names in them are shown."""


class SettingsCheck(Check):
    """Shows the settings that differ from the defaults, and finds mistakes in them."""

    name: ClassVar[str] = "settings"
    order: ClassVar[int] = 20

    def run(self, setup: Setup) -> Iterator[Finding]:
        """Yield what is set, what is unknown, and what contradicts."""
        yield from _what_is_set(setup)
        yield from _unknown()
        yield from _mistakes(setup)
        for contradiction in _CONTRADICTIONS:
            found = contradiction(setup.settings)
            if found is not None:
                yield found


def _what_is_set(setup: Setup) -> Iterator[Finding]:
    changed = sorted(setup.settings.model_fields_set)
    if not changed:
        yield ok("all settings have their defaults")
    for name in changed:
        origin = "option" if name in setup.options.given else "environment"
        yield ok(f"{name} = {_shown(name, getattr(setup.settings, name))} ({origin})")


def _shown(name: str, value: Any) -> str:
    # People paste the output of this command into issues, so no key may be in it.
    if isinstance(value, SecretStr):
        return "***"
    if name in _HIDDEN:
        keys = [f"{key}: ***" for key in value]
        return f"{{{', '.join(keys)}}}"
    if isinstance(value, ModelSettings):
        chosen = [f"{field}={getattr(value, field)}" for field in sorted(value.model_fields_set)]
        return ", ".join(chosen) or "default"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)


def _unknown() -> Iterator[Finding]:
    valid = [field.upper() for field in Settings.model_fields]
    for variable in unknown_variables():
        message = f"the variable {variable} is not a setting and has no effect"
        close = get_close_matches(variable.upper().removeprefix(_PREFIX), valid, n=1)
        # Without a similar name, the variable may be meant for another program.
        if close:
            yield problem(message, f"did you mean {_PREFIX}{close[0]}?")
        else:
            yield warning(message, "docs/settings.md lists all")


def _mistakes(setup: Setup) -> Iterator[Finding]:
    """Yield what `instrument()` would raise for settings that are valid one by one."""
    steps: tuple[Callable[[], object], ...] = (
        lambda: setup.metrics,
        lambda: resolve_thresholds(setup.metrics, setup.settings, own="thresholds" in setup.options.given),
        lambda: MetricSampler(setup.metrics, setup.settings),
    )
    for step in steps:
        try:
            step()
        except ConfigurationError as error:
            yield problem(str(error), "correct the setting: instrument() raises this error")
            # The next steps would fail for the same reason.
            return


# -- contradictions: each function returns a finding if two settings do not go together


def _disabled(settings: Settings) -> Finding | None:
    if settings.enabled:
        return None
    return warning("enabled is false: nothing is captured or evaluated", "set enabled=true to evaluate")


def _no_turns(settings: Settings) -> Finding | None:
    if settings.sample_rate > 0:
        return None
    return warning("sample_rate is 0: no turn is evaluated", "set a sample_rate above 0")


def _judge_settings_without_judge(settings: Settings) -> Finding | None:
    named = [name for name in ("judge_options", "judge_budget") if getattr(settings, name)]
    if settings.judge is not None or not named:
        return None
    return problem(f"{' and '.join(named)}: set without a judge, so without effect", "set judge, or remove them")


def _judge_that_is_never_asked(settings: Settings) -> Finding | None:
    if settings.judge is None or settings.judge_sample_rate != 0:
        return None
    return warning("judge_sample_rate is 0: the judge is never asked", "set a rate above 0, or remove the judge")


def _spool_without_judge(settings: Settings) -> Finding | None:
    if settings.dispatch != "spool":
        return None
    folder = os.path.dirname(os.path.abspath(settings.spool_path))
    if not os.access(folder, os.W_OK):
        return problem(f"the folder of spool_path, {folder}, is not writable", "make it writable, or set another path")
    if settings.judge is None:
        return note("dispatch is spool without a judge: the file holds late local scores only")
    return None


def _jsonl_path_without_exporter(settings: Settings) -> Finding | None:
    if "jsonl_path" not in settings.model_fields_set or "jsonl" in settings.exporters:
        return None
    return problem("jsonl_path is set, but jsonl is not in exporters: no file is written", "add jsonl to exporters")


def _phoenix_endpoint_without_exporter(settings: Settings) -> Finding | None:
    if settings.phoenix_endpoint is None or {AUTOMATIC, "phoenix", "phoenix-auto"} & set(settings.exporters):
        return None
    return problem("phoenix_endpoint is set, but no exporter uses it", "add phoenix to exporters")


def _metadata_both_ways(settings: Settings) -> Finding | None:
    both = sorted(set(settings.metadata_allow or ()) & set(settings.metadata_deny))
    if not both:
        return None
    return warning(f"metadata_allow and metadata_deny both name {', '.join(both)}: it is removed", "remove it from one")


def _sdk_disabled(_: Settings) -> Finding | None:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true":
        return None
    return problem("OTEL_SDK_DISABLED is true: OpenTelemetry writes no spans, so no scores", "remove the variable")


def _traces_not_recorded(settings: Settings) -> Finding | None:
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if not sampler.endswith("always_off") or settings.evaluate_unsampled:
        return None
    message = f"OTEL_TRACES_SAMPLER is {sampler}: traces are not recorded, so turns are not evaluated"
    return problem(message, "set another sampler, or evaluate_unsampled=true")


_CONTRADICTIONS: Final[tuple[Callable[[Settings], Finding | None], ...]] = (
    _disabled,
    _no_turns,
    _judge_settings_without_judge,
    _judge_that_is_never_asked,
    _spool_without_judge,
    _jsonl_path_without_exporter,
    _phoenix_endpoint_without_exporter,
    _metadata_both_ways,
    _sdk_disabled,
    _traces_not_recorded,
)
