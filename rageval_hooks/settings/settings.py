"""All settings: a keyword argument, else the environment (``RAGEVAL_*``), else the default."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.settings.local_models import ModelSettings, tier_of
from rageval_hooks.settings.text_forms import (
    EVERY,
    NAMES,
    RATE_TAGS,
    YES_OR_NO,
    Number,
    Rates,
    is_none,
    not_a_boolean,
    parse_bounds,
    parse_names,
    parse_pairs,
    parsed,
)

_logger = logging.getLogger(__name__)

_MAY_HOLD_SECRETS = ("judge_options", "judge_budget_store", "phoenix_endpoint", "id_salt", "sampling_salt")

SpanSelection = Literal["auto", "rag", "all", "scores"]


class Settings(BaseSettings):
    """All settings that are plain data. Each can also be set as ``RAGEVAL_<NAME>`` in the environment.

    Attributes:
        enabled: False turns everything off: nothing is attached, captured or evaluated.
        metrics: names of the metrics; None for all that need only local models.
        models: ``"default"``, ``"lexical"``, or the fields of :class:`ModelSettings`.
        exporters: where evaluations go: names, or ``"package.module:Class"``. ``otel`` writes spans. ``auto`` makes the
            scores a backend's own if the spans go to Phoenix, MLflow, Langfuse, LangSmith, Datadog or Weave: see
            docs/backends.md.
        sample_rate: share of turns that are evaluated, 0..1. The trace id decides.
        sampling_salt: a secret that the decision depends on, too. Without it, a client that chooses its trace id can
            choose whether its turn is evaluated and judged. All processes of an application need the same one.
        judge: the judge, such as ``"openai:gpt-5-mini"``; None for no judge.
        judge_options: keyword arguments for the judge: ``base_url``, ``timeout`` … The key comes from the environment
            (``OPENAI_API_KEY``), not from here.
        judge_sample_rate: share of turns that are judged, 0..1, at most ``sample_rate``; or a share for each metric, by
            name, judged or local. Judged turns are a part of the evaluated turns. None to judge every evaluated turn.
        judge_budget: what the judge may use, such as ``calls_per_day=1000, usd_per_day=5``: calls, tokens or usd, per
            minute or per day (UTC). All processes with the same ``judge_budget_store`` share it. When it is used up,
            judging stops, with the reason on the trace; local scores go on.
        judge_budget_store: where the use is counted: a file for the processes of a host, by default
            ``rageval-budget.db``, or ``redis://host:6379/0`` for a fleet (``pip install "rageval-hooks[redis]"``).
        thresholds: score name → bound for the label ``pass``: the least value, or the greatest where lower is better.
            None means no label; the name ``"*"`` means every score that is not named. ``"none"`` is short for
            ``{"*": None}``. Other scores have the bound that was measured for their model, if there is one: see
            docs/metrics.md.
        cost_rate: a fixed price of 1,000 input or output tokens, in USD, for the score ``cost``. None for the known
            prices of the models, from the package genai-prices (``pip install "rageval-hooks[prices]"``).
        k_values: the ranks at which ``ranking`` cuts precision@k and ap@k.
        trace_formulas: ``ragbench``, or ``fixed20`` for context relevance and utilization as in the first seeds: the
            relevant sentences over 20.
        inline_budget_ms: the time for local scores, in milliseconds. Scores that are ready by then are on the turn's
            span; the others follow as EVALUATOR spans. A call of the application waits for them, at most that long,
            only if another tracer's span carries the scores or ``on_evaluation`` is set. With 0, every score is late.
        capture_content: False removes questions, passages and answers from spans and from the output of the exporters
            ``console``, ``jsonl`` and those of score APIs. True overrides
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``; None follows that variable.
        redact: True to replace e-mail addresses, phone, card and account numbers, IP addresses, keys and tokens in all
            texts before they reach a span, a judge, a file, a log line or a spool. ``instrument(redact=...)`` also
            takes a function of a text. Local scores are computed on the original texts. See docs/guides/privacy.md.
        metadata_allow: names of the metadata of turns and passages that may leave; None for all. ``*`` stands for any
            characters.
        metadata_deny: names of metadata that must not leave, at any depth.
        id_salt: a secret. With it, user and session ids are replaced by hashes.
        spans: ``rag`` for the turn, its retrievers, rerankers, model calls and tools; ``all`` to add every prompt and
            parser; ``scores`` for the scores only, on the turn's span of another tracer, or else on one of
            our own; ``auto`` for ``scores`` where another tracer makes the spans, and ``rag`` elsewhere.
        log_events: True to write each result as an OpenTelemetry log event ``gen_ai.evaluation.result`` too, if the
            application has a LoggerProvider or ``OTEL_EXPORTER_OTLP_LOGS_ENDPOINT`` is set.
        azure_events: True to mark these log events for Azure Monitor, which shows them as custom events.
        score_metrics: True to record OpenTelemetry metrics of scores, turns, the judge and queues, if the application
            has a MeterProvider or ``OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`` is set.
        evaluate_unsampled: also evaluate turns inside traces that are not recorded.
        evaluate_without_retrieval: also evaluate runs without retrieval.
        search_tools: names of the tools that return search results as text. Tools that are not named then do
            not. ``!name`` is a tool that does not search. Empty: see docs/capture.md, "Search results that are text".
        queue_size: turns that may wait for evaluation in the background. When the queue is full, new turns are not
            evaluated; they are counted, and their traces say so.
        queue_max_mb: size of what may wait, in MiB, for each queue: turns in the background, turns whose answer is
            still streamed, and scores for the API of a backend. See docs/guides/production.md.
        dispatch: where turns wait for late scores: ``thread`` for the memory of this process; ``spool`` for a file, in
            which they stay if the process ends or the judge cannot be reached; ``celery`` for a broker, from which
            workers take them. See docs/guides/production.md and docs/guides/scale.md.
        broker: URL of the broker for ``celery``, such as ``redis://host:6379/0`` or ``amqp://host``.
        broker_fallback: where jobs wait while the broker is down: ``memory``, at most ``queue_size`` of them, or
            ``spool``, the file of ``spool_path``.
        celery_config: name of a module with Celery's own settings for these jobs.
        spool_path: the file of the spool. Processes with the same judge and exporters may share it.
        spool_max_mb: size of that file, in MiB. When it is full, new turns are not judged; they are counted, and their
            traces say so.
        spool_lease: seconds after which another process takes over the jobs of a process that died.
        drain_timeout: the longest that the process exit may take for pending work, in seconds. It also waits up to five
            seconds for a model that is loading or computing.
        stats_file: a file that gets the counters of ``stats()`` every second, for ``rageval-hooks top``; None for no
            file. ``{pid}`` in it stands for the process id, for servers with several workers. Only its owner can read
            it.
        jsonl_path: where the exporter ``jsonl`` writes.
        phoenix_endpoint: base URL of a Phoenix server; by default the server that receives the spans.
    """

    model_config = SettingsConfigDict(
        env_prefix="RAGEVAL_", env_nested_delimiter="__", extra="forbid", frozen=True, env_ignore_empty=True
    )

    enabled: bool = Field(default=True, description=YES_OR_NO)
    metrics: Annotated[tuple[str, ...] | None, NoDecode] = Field(default=None, description=NAMES)
    models: Annotated[ModelSettings, NoDecode] = Field(
        default=ModelSettings(), description="'default', 'lexical', or a mapping with fields of ModelSettings"
    )
    exporters: Annotated[tuple[str, ...], NoDecode] = Field(default=("otel", "auto"), description=NAMES)
    sample_rate: Number = Field(default=1.0, ge=0, le=1, description="a share of turns, 0..1")
    sampling_salt: SecretStr | None = Field(default=None, min_length=8, description="a secret of 8 characters or more")
    judge: str | None = Field(default=None, description="'provider:model', such as 'openai:gpt-5-mini'")
    judge_options: Annotated[dict[str, Any], NoDecode] = Field(
        default_factory=dict, description="a mapping of options, or 'name=value, name=value'", repr=False
    )  # not in a repr: headers and URLs may hold keys
    judge_sample_rate: Annotated[Rates | None, NoDecode] = Field(
        default=None, description="a share of turns, 0..1, or such a share by the name of a metric"
    )
    judge_budget: Annotated[dict[str, Annotated[FiniteFloat, Field(ge=0)]], NoDecode] = Field(
        default_factory=dict, description="a mapping of limits to numbers, or 'calls_per_day=1000, usd_per_day=5'"
    )
    judge_budget_store: SecretStr | None = Field(
        default=None, description="a path, or a Redis URL such as redis://host:6379/0"
    )
    thresholds: Annotated[dict[str, Annotated[FiniteFloat, BeforeValidator(not_a_boolean)] | None], NoDecode] = Field(
        default_factory=dict,
        description="a mapping of score names to numbers, or 'name=number, name=number'; None, or 'none', for no label",
    )
    cost_rate: Number | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="USD for 1,000 tokens, 0 or more"
    )
    k_values: Annotated[tuple[Annotated[int, Field(ge=1)], ...], NoDecode] = Field(
        default=(1, 3, 5), min_length=1, description="ranks from 1, separated by commas: '1,3,5'"
    )
    trace_formulas: Literal["ragbench", "fixed20"] = Field(default="ragbench", description="'ragbench' or 'fixed20'")
    inline_budget_ms: Number = Field(default=100.0, ge=0, description="milliseconds, 0 or more")
    capture_content: bool | None = Field(default=None, description=YES_OR_NO)
    redact: bool = Field(default=False, description=YES_OR_NO)
    metadata_allow: Annotated[tuple[str, ...] | None, NoDecode] = Field(default=None, description=NAMES)
    metadata_deny: Annotated[tuple[str, ...], NoDecode] = Field(default=(), description=NAMES)
    id_salt: SecretStr | None = Field(default=None, min_length=8, description="a secret of 8 characters or more")
    spans: SpanSelection = Field(default="auto", description="'auto', 'rag', 'all' or 'scores'")
    log_events: bool = Field(default=True, description=YES_OR_NO)
    azure_events: bool = Field(default=False, description=YES_OR_NO)
    score_metrics: bool = Field(default=True, description=YES_OR_NO)
    evaluate_unsampled: bool = Field(default=False, description=YES_OR_NO)
    evaluate_without_retrieval: bool = Field(default=False, description=YES_OR_NO)
    search_tools: Annotated[tuple[str, ...], NoDecode] = Field(default=(), description=NAMES)
    queue_size: Annotated[int, BeforeValidator(not_a_boolean)] = Field(
        default=2048, ge=1, description="a whole number, 1 or more"
    )
    queue_max_mb: Number = Field(default=128.0, ge=1, allow_inf_nan=False, description="MiB, 1 or more")
    dispatch: Literal["thread", "spool", "celery"] = Field(
        default="thread", description="'thread', 'spool' or 'celery'"
    )
    broker: SecretStr | None = Field(default=None, description="a broker's URL, such as redis://host:6379/0")
    broker_fallback: Literal["memory", "spool"] = Field(default="memory", description="'memory' or 'spool'")
    celery_config: str | None = Field(default=None, min_length=1, description="a module, such as 'celery_settings'")
    spool_path: str = Field(default="rageval-spool.db", min_length=1, description="a path")
    spool_max_mb: Number = Field(default=512.0, ge=1, allow_inf_nan=False, description="MiB, 1 or more")
    spool_lease: Number = Field(default=30.0, ge=0.5, allow_inf_nan=False, description="seconds, 0.5 or more")
    drain_timeout: Number = Field(default=10.0, ge=0, allow_inf_nan=False, description="seconds, 0 or more")
    stats_file: str | None = Field(
        default=None, min_length=1, description="a path, such as /run/app/rageval-{pid}.json"
    )
    jsonl_path: str = Field(default="rageval.jsonl", description="a path")
    phoenix_endpoint: SecretStr | None = Field(default=None, description="a URL, such as http://localhost:6006")

    @field_validator(
        "metrics", "exporters", "search_tools", "metadata_allow", "metadata_deny", "k_values", mode="before"
    )
    @classmethod
    def _names(cls, value: Any) -> Any:
        return parsed(value, parse_names)

    @field_validator("judge_options", mode="before")
    @classmethod
    def _options(cls, value: Any) -> Any:
        options = parsed(value, parse_pairs)
        # Settings are shown in messages and in the report of the pipeline, where a key must not be.
        if isinstance(options, dict) and any("key" in str(name).lower() for name in options):
            raise ValueError("has a key in it: set OPENAI_API_KEY, or pass a judge that was made with its key")
        return options

    @field_validator("judge_budget", mode="before")
    @classmethod
    def _budget(cls, value: Any) -> Any:
        limits = parsed(value, parse_pairs)
        if isinstance(limits, Mapping):
            return {name: not_a_boolean(amount) for name, amount in limits.items()}
        return limits

    @field_validator("judge_sample_rate", mode="before")
    @classmethod
    def _rates(cls, value: Any) -> Any:
        # "trace=0.1, umbrela=0.05" or JSON; any other text is one rate for all judge metrics.
        if isinstance(value, str) and ("=" in value or value.lstrip().startswith("{")):
            return parsed(value, parse_pairs)
        if isinstance(value, Mapping):
            return {name: not_a_boolean(rate) for name, rate in value.items()}
        return not_a_boolean(value)

    @field_validator("phoenix_endpoint", mode="before")
    @classmethod
    def _url(cls, value: Any) -> Any:
        """Check a URL. It may hold a password, so no message quotes it."""
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if not isinstance(text, str):
            return value
        text = text.strip()
        if not text.lower().startswith(("http://", "https://")):
            raise ValueError("is not an http or https URL")
        return text

    @field_validator("thresholds", mode="before")
    @classmethod
    def _bounds(cls, value: Any) -> Any:
        bounds = parsed(value, parse_bounds)
        if not isinstance(bounds, Mapping):
            return bounds
        bounds = {name: None if is_none(bound) else bound for name, bound in bounds.items()}
        if bounds.get(EVERY) is not None:
            raise ValueError(f"{EVERY!r} stands for every score that is not named: it can only be None")
        return bounds

    @field_validator("models", mode="before")
    @classmethod
    def _tier(cls, value: Any) -> Any:
        return tier_of(value)

    @classmethod
    def build(cls, **given: Any) -> Settings:
        """Make settings from keyword arguments; one that is None counts as not given.

        Raises:
            ConfigurationError: a value is wrong; the message says which one, why, and what is valid.
        """
        _warn_of_strange_variables()
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise ConfigurationError(_explain(error)) from None


def unknown_variables() -> list[str]:
    """Return the environment variables that begin with ``RAGEVAL_`` and are not settings."""
    prefix = "RAGEVAL_"
    ours = [variable for variable in os.environ if variable.upper().startswith(prefix)]
    # The first part of a nested name, for example MODELS in RAGEVAL_MODELS__EMBEDDER.
    names = {variable: variable.upper().removeprefix(prefix).split("__")[0].lower() for variable in ours}
    return [variable for variable, name in names.items() if name not in Settings.model_fields]


@cache
def _warn_of_strange_variables() -> None:
    valid = ", ".join(f"RAGEVAL_{field.upper()}" for field in Settings.model_fields)
    for variable in unknown_variables():
        _logger.warning(
            "environment variable %s is not a setting of rageval-hooks. Valid: %s [RAGEVAL-108]", variable, valid
        )


def _explain(error: ValidationError) -> str:
    """Return what is wrong with some settings, and what would be valid."""
    lines = []
    for item in error.errors():
        name, *inner = item["loc"] or ("settings",)
        # The tags of a union are pydantic's, and no names that a user knows.
        field = ".".join(str(part) for part in (name, *inner) if part not in RATE_TAGS)
        if item["type"] == "extra_forbidden":
            valid = list(ModelSettings.model_fields if name == "models" else Settings.model_fields)
            close = get_close_matches(str(item["loc"][-1]), valid, n=1)
            meant = f"Did you mean {close[0]!r}?" if close else f"Valid: {', '.join(valid)}"
            lines.append(f"{field}: there is no such setting. {meant}")
            continue
        given = ""
        if name not in _MAY_HOLD_SECRETS:
            given = repr(item.get("input"))
            given = f" (given {given if len(given) <= 80 else given[:77] + '...'})"
        message = f"{field}: {item['msg'].removeprefix('Value error, ').rstrip('.')}{given}"
        if not isinstance(item.get("ctx", {}).get("error"), UnknownNameError):  # its message lists what is valid
            of_model = ModelSettings.model_fields[str(inner[0])] if name == "models" and inner else None
            message += f". Valid: {(of_model or Settings.model_fields[str(name)]).description}"
        lines.append(message)
    return "; ".join(lines)
