"""From the options of a command to the pipeline that it uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.jobs.judging import with_concurrency
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.settings import Settings

__all__ = ["build_pipeline", "required_fields"]

_USUAL_CONCURRENCY = 8


def build_pipeline(
    metrics: str | None,
    models: str | None,
    judge: str | None,
    judge_options: str | None,
    thresholds: Iterable[str],
    concurrency: int,
) -> Pipeline:
    """Return a pipeline that exports nothing, and begin to load its models.

    Args:
        metrics: names with commas between them; None for the defaults.
        models: a tier, or a JSON object.
        judge: ``"provider:model"``.
        judge_options: ``name=value`` with commas between, or a JSON object.
        thresholds: ``name=number``, ``name=none`` or ``none``, each.
        concurrency: turns at a time; so many requests at a time, at least, go to the judge.

    Raises:
        ConfigurationError: something is wrong; the message says what is valid.
    """
    bounds = ", ".join(thresholds)
    plain: dict[str, Any] = {
        "models": models,
        "judge_options": judge_options,
        "thresholds": bounds or None,
        "sample_rate": 1.0,  # whatever the environment says of the application: every row is meant
        "judge_sample_rate": {},
    }
    settings = Settings.build(judge=judge, **plain)
    named = settings.judge or ""
    if named and concurrency > _USUAL_CONCURRENCY:
        plain["judge_options"] = with_concurrency(named, settings.judge_options, concurrency)
    pipeline = Pipeline.build(metrics=metrics, judge=judge, exporters=[], **plain)
    if not pipeline.metrics:
        raise ConfigurationError("no metrics: name some, or leave the option out for the local defaults")
    pipeline.load_models()
    return pipeline


def required_fields(pipeline: Pipeline, *, named: bool) -> tuple[str, ...]:
    """Return the fields that a file must have a column for.

    Args:
        pipeline: its metrics say what they need.
        named: whether the user has named the metrics: then the reference answer that one needs is meant to be there.
    """
    needed = {field for metric in pipeline.metrics for field in metric.requires}
    # Metrics that need passages are skipped, with the reason, for files and turns without any.
    required = ["query", "response"]
    if named and "reference" in needed:
        required.append("reference")
    return tuple(required)
