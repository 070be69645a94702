"""The pipeline of a command, built from its options, and an estimate of what the judge would be asked."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.prices import price_usd
from rageval_hooks.offline.jobs.budget import with_concurrency
from rageval_hooks.offline.records.record import Record
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.settings import Settings
from rageval_hooks.text.wording import counted
from rageval_hooks.turn import Usage

# Judges accept this many requests at a time by default; see `CallPolicy`.
_USUAL_CONCURRENCY = 8
_USUALLY_REQUIRED = ("query", "response")

_CHARACTERS_PER_TOKEN = 4
# Instructions and schema of a request.
_PROMPT_TOKENS = 700
# Of one answer of the judge: a few sentences with a verdict each.
_OUTPUT_TOKENS = 250


def build_pipeline(
    metrics: str | None,
    models: str | None,
    judge: str | None,
    judge_options: str | None,
    thresholds: Iterable[str],
    concurrency: int,
    *,
    load: bool = True,
    **options: Any,
) -> Pipeline:
    """Return a pipeline without exporters, and start loading its models.

    Args:
        metrics: names separated by commas; None for the defaults.
        models: a tier such as ``lexical``, or a JSON object.
        judge: ``"provider:model"``.
        judge_options: ``name=value`` separated by commas, or a JSON object.
        thresholds: items of the form ``name=number``, ``name=none`` or ``none``.
        concurrency: turns at a time. The judge gets at least as many requests at a time.
        load: False if others compute the scores.
        options: further fields of :class:`rageval_hooks.settings.Settings`; None for their defaults.

    Raises:
        ConfigurationError: an option is wrong; the message says what is valid.
    """
    bounds = ", ".join(thresholds)
    plain: dict[str, Any] = {
        "models": models,
        "judge_options": judge_options,
        "thresholds": bounds or None,
        **options,
        # RAGEVAL_SAMPLE_RATE is meant for an application; a command scores every row.
        "sample_rate": 1.0,
        "judge_sample_rate": {},
    }
    settings = Settings.build(judge=judge, **plain)
    named = settings.judge or ""
    if named and concurrency > _USUAL_CONCURRENCY:
        plain["judge_options"] = with_concurrency(named, settings.judge_options, concurrency)
    pipeline = Pipeline.build(metrics=metrics, judge=judge, exporters=[], **plain)
    if not pipeline.metrics:
        raise ConfigurationError("no metrics: name some, or omit the option for the local defaults")
    if load:
        pipeline.load_models()
    return pipeline


def required_fields(pipeline: Pipeline, *, named: bool) -> tuple[str, ...]:
    """Return the fields that need a column in the file.

    Args:
        pipeline: the pipeline with its metrics.
        named: True if the user named the metrics. The file then needs what they read: a reference answer, for example,
            and no question for metrics that compare the answer with its passages.
    """
    # Metrics that need passages are skipped, with the reason, for files and turns without any.
    metrics = pipeline.metrics
    if not named:
        return _USUALLY_REQUIRED
    read: set[str] = set(chain.from_iterable(metric.requires for metric in metrics))
    # A metric that requires nothing may still read the texts.
    if not all(metric.requires for metric in metrics):
        read.update(_USUALLY_REQUIRED)
    return tuple(field for field in (*_USUALLY_REQUIRED, "reference") if field in read)


def estimate(records: Iterable[Record], pipeline: Pipeline) -> str:
    """Say about how many requests the judge metrics of a pipeline would make for some records.

    Retries are not counted, and neither is what an interrupted run has answers to.
    """
    # Without a judge, its metrics are skipped.
    judged = [metric for metric in pipeline.metrics if metric.asks_judge and pipeline.judge is not None]
    turns = calls = tokens = 0
    for record in records:
        turns += 1
        asked = [metric for metric in judged if record.answerable or not metric.answerable_only]
        expected: dict[str, int] = {}
        for metric in asked:
            expected.update(metric.expected_calls(len(record.turn.passages)))
        wanted = sum(expected.values())
        characters = sum(map(len, record.turn.texts()))
        calls += wanted
        tokens += wanted * (_PROMPT_TOKENS + characters // _CHARACTERS_PER_TOKEN)
    shown = counted(turns, "turn")
    if not calls:
        return f"{shown}, no requests to a judge"
    judge = str(pipeline.judge)
    provider, _, model = judge.partition(":")
    usage = Usage(input_tokens=tokens, output_tokens=calls * _OUTPUT_TOKENS)
    price = price_usd(usage, model, provider=provider or None)
    cost = "" if price is None else f", about {price:.2f} USD"
    return f"{shown}: about {counted(calls, 'request')} to {judge}, about {tokens:,} input tokens{cost}"
