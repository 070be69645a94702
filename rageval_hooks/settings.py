"""All settings as plain data: a keyword argument, else the environment (``RAGEVAL_*``), else the default."""

from __future__ import annotations

import json
import logging
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.plugins import declared_options
from rageval_hooks.runtime.jsonable import Data

_logger = logging.getLogger(__name__)

LEXICAL = "lexical"
"""Given as a model's name: replacements that use tokens and rules, and need no weights."""

ONNX_FILE = "onnx/model.onnx"
"""The usual path of the ONNX file in a model's folder or hub repository."""

MINILM = ("sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2")
"""The names of the default embedder."""

FORMULA = "minilm"
"""Given as the grounding model: the formula over words and the embedder's vectors, without a model for this purpose."""

EVERY = "*"
"""Given as a score's name in ``thresholds``: every score that is not named there."""

UNSAMPLED: Mapping[str, Any] = {"sample_rate": 1.0, "judge_sample_rate": {}, "judge_sample_by_verdict": {}}
"""Settings of pipelines for turns that were chosen already. The environment's rates are for an application's turns."""

_MAY_HOLD_SECRETS = frozenset({"judge_options", "judge_budget_store", "id_salt", "sampling_salt"})

# --------------------------------------------------------------------------- settings that are written as text


def _parsed(value: Any, parse: Callable[[str], Any]) -> Any:
    """Return a setting that may be written as text: ``"a=1, b=2"``, ``"one, two"`` or JSON.

    Args:
        value: the setting; returned unchanged if it is not text.
        parse: reads a text that is not JSON.

    Raises:
        ValueError: the text begins like JSON and is not, or ``parse`` does not accept it.
    """
    if not isinstance(value, str):
        return value
    # Names of metrics and options begin with a letter, so a bracket means JSON.
    if value.lstrip()[:1] not in ("[", "{"):
        return parse(value)
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None


def _names(value: Any) -> Any:
    """Read ``"one, two"``."""
    return _parsed(value, lambda text: list(filter(None, map(str.strip, text.split(",")))))


def _pairs(value: Any) -> Any:
    """Read ``"a=1, b=2"``."""
    return _parsed(value, _parse_pairs)


def _parse_pairs(text: str) -> dict[str, str]:
    pairs = {}
    for place, part in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        name, equals, number = part.partition("=")
        if not equals:  # the part may be a key, so the message gives its position only
            raise ValueError(f"part {place} is not of the form name=value")
        pairs[name.strip()] = number.strip()
    return pairs


def _rates(value: Any) -> Any:
    """Read ``"trace=0.1, umbrela=0.05"`` or JSON; any other text is one rate for all judge metrics."""
    return _pairs(value) if isinstance(value, str) and ("=" in value or value.lstrip().startswith("{")) else value


def _bounds(value: Any) -> Any:
    """Read ``"groundedness=0.7, coherence=none"`` or the name of a TOML file; ``"none"`` alone is for every score."""
    if isinstance(value, str) and value.strip().endswith(".toml"):
        value = _bounds_in(value.strip())

    def parse(text: str) -> dict[str, str]:
        return _parse_pairs(",".join(f"{EVERY}={part}" if _is_none(part) else part for part in text.split(",")))

    bounds = _parsed(value, parse)
    if isinstance(bounds, Mapping) and not _is_none(bounds.get(EVERY)):
        raise ValueError(f"{EVERY!r} stands for every score that is not named: it can only be None")
    return bounds


def _bounds_in(path: str) -> dict[str, Any]:
    """Read a file of thresholds: names with dots are tables in it, as ``rageval-hooks calibrate`` writes it."""
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None

    def flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
        for name, value in table.items():
            yield from flat(value, f"{before}{name}.") if isinstance(value, dict) else [(before + name, value)]

    return dict(flat(found))


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() == "none")


def _none_or(value: Any) -> Any:
    return None if _is_none(value) else value


def _not_a_boolean(value: Any) -> Any:
    # pydantic would read true as 1.
    if isinstance(value, bool):
        raise ValueError("must be a number, not a boolean")
    return value


def _not_zero(share: float) -> float:
    if share == 0:
        raise ValueError("must be more than 0: nobody could tell how many turns with this verdict are bad")
    return share


# --------------------------------------------------------------------------- types

# The descriptions say what is valid: error messages quote them.
_NAMES = "a list of names, or names with commas between them"
YES_OR_NO = "true or false"
Flag = Annotated[bool, Field(description=YES_OR_NO)]
Number = Annotated[float, BeforeValidator(_not_a_boolean)]
Amount = Annotated[Number, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, le=1, description="a share of turns, 0..1")]
TurnVerdict = Literal["good", "doubtful", "bad", "declined", "not_evaluable"]
VerdictShare = Annotated[Share, AfterValidator(_not_zero)]
Seconds = Annotated[Amount, Field(description="seconds, 0 or more")]
Mebibytes = Annotated[Number, Field(ge=1, allow_inf_nan=False, description="MiB, 1 or more")]
NameList = Annotated[tuple[str, ...], BeforeValidator(_names), Field(description=_NAMES)]
Ranks = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_names), Field(min_length=1)]
Salt = Annotated[SecretStr | None, Field(min_length=8, description="a secret of 8 characters or more")]
ModelName = Annotated[str, Field(description=f"a model's name, an existing path, or {LEXICAL!r}")]
Bound = Annotated[Annotated[Number, Field(allow_inf_nan=False)] | None, BeforeValidator(_none_or)]
SpanSelection = Literal["auto", "rag", "all", "scores"]

_ONE, _MANY = "one rate", "rates by name"
# pydantic names the tags in the place of an error. No user knows them.
_RATE_TAGS = (_ONE, _MANY, "[key]")
Rates = Annotated[
    Annotated[Share, Tag(_ONE)] | Annotated[dict[str, Share], Tag(_MANY)],
    Discriminator(lambda value: _MANY if isinstance(value, Mapping) else _ONE),
]

# --------------------------------------------------------------------------- local models


class ModelSettings(Data):
    """The local models. Each is a hub name, a package name, a local path, or ``"lexical"``.

    Attributes:
        embedder: a sentence-transformers model. Its token vectors are used too.
        cross_encoder: a sentence-transformers cross-encoder for (query, response) pairs.
        nlp: a spaCy pipeline with a parser and an entity recogniser.
        hhem: a model with the layout of HHEM-2, for the metric ``hhem``. It has no lexical replacement.
        grounding: computes ``groundedness``: ``"minilm"`` for the formula over the embedder's vectors, or a grounding
            model: see docs/guides/grounding-models.md.
        grounding_template: how the grounding model wants its input. ``"auto"`` recognises it by the model's name and
            its ``config.json``; the others are ``"lettucedetect"``, ``"pair"``, ``"minicheck"`` and ``"factcg"``.
        download: True to download models that are not on this machine, in the background.
        load_timeout: seconds after which a model that is still loading counts as not available.
        backend: computes the models on the CPU: ``"auto"`` for ONNX Runtime where it is installed, ``"onnx"`` to insist
            on it, ``"torch"`` for PyTorch. On other devices PyTorch computes.
        precision: the weights that ONNX Runtime computes with: ``"int8"``, ``"fp32"``, or ``"auto"`` for int8 in the
            embedder and fp32 elsewhere.
        onnx_file: the ONNX file in a model's folder or hub repository; the same for all models. Without this file the
            graph is made from the weights. A file that is named here is used as it is.
        device: torch device for the models, such as ``"cpu"`` or ``"cuda:0"``.
        cache_mb: memory for computed values of passages, in MiB.
    """

    embedder: ModelName = MINILM[0]
    cross_encoder: ModelName = "cross-encoder/ms-marco-MiniLM-L-6-v2"
    nlp: ModelName = "en_core_web_sm"
    hhem: ModelName = "vectara/hallucination_evaluation_model"
    grounding: str = Field(default=FORMULA, description=f"{FORMULA!r}, a model's name, or an existing path")
    grounding_template: Literal["auto", "lettucedetect", "pair", "minicheck", "factcg"] = "auto"
    download: Flag = True
    load_timeout: Number = Field(default=120.0, gt=0, allow_inf_nan=False, description="seconds, more than 0")
    backend: Literal["auto", "onnx", "torch"] = "auto"
    precision: Literal["auto", "int8", "fp32"] = "auto"
    onnx_file: str = Field(default=ONNX_FILE, min_length=1, description="a file, such as 'onnx/model.onnx'")
    device: str = Field(default="cpu", description="a torch device, such as 'cpu' or 'cuda:0'")
    cache_mb: Amount = Field(default=64.0, description="MiB, 0 or more")

    @field_validator("embedder", "cross_encoder", "nlp", "hhem", "grounding")
    @classmethod
    def _existing_path(cls, name: str) -> str:
        if not name.strip():
            raise ValueError("is empty")
        if looks_like_path(name) and not os.path.exists(os.path.expanduser(name)):
            raise ValueError(f"no such path: {name}")
        return name

    @field_validator("grounding")
    @classmethod
    def _not_lexical(cls, name: str) -> str:
        if name == LEXICAL:
            raise ValueError(f"the formula uses words alone where the embedder is lexical: set embedder={LEXICAL!r}")
        return name

    @model_validator(mode="after")
    def _backend_is_here(self) -> ModelSettings:
        if self.backend == "onnx":
            if find_spec("onnxruntime") is None:
                raise ValueError("backend='onnx' needs onnxruntime: pip install \"rageval-hooks[local]\"")
            if self.device != "cpu":
                raise ValueError(f"backend='onnx' computes on the CPU: not on device={self.device!r}")
        return self


def looks_like_path(name: str) -> bool:
    """Return True if a model's name can only be a path on this machine."""
    return name.startswith((".", "~", "/", os.sep)) or os.path.isabs(name)


_TIERS: dict[str, dict[str, str]] = {
    "default": {},
    LEXICAL: {"embedder": LEXICAL, "cross_encoder": LEXICAL, "nlp": LEXICAL, "hhem": LEXICAL},
}


def _tier_of(value: Any) -> Any:
    """Return the fields of a tier, such as ``"lexical"``, or a mapping of fields that was written as JSON.

    Raises:
        UnknownNameError: there is no such tier.
    """
    value = _parsed(value, lambda text: text)
    if not isinstance(value, str):
        return value
    if value not in _TIERS:
        fields = ", ".join(ModelSettings.model_fields)
        raise UnknownNameError("tier of models", value, _TIERS, f"Or give a mapping with any of the keys {fields}.")
    return _TIERS[value]


# --------------------------------------------------------------------------- all settings


class Settings(BaseSettings):
    """All settings that are plain data. Each can also be set as ``RAGEVAL_<NAME>`` in the environment.

    Those of a single exporter or metric are in :attr:`options`.

    Attributes:
        enabled: False turns everything off: nothing is attached, captured or evaluated.
        metrics: names of the metrics; None for all that need only local models.
        models: ``"default"``, ``"lexical"``, or the fields of :class:`ModelSettings`.
        exporters: where evaluations go: names, or ``"package.module:Class"``. ``otel`` writes spans, ``auto`` posts
            scores to the backend that gets the spans: see docs/backends.md.
        sample_rate: share of turns that are evaluated, 0..1. The trace id decides.
        sampling_salt: a secret that the decision depends on, too, so that a client that chooses its trace id cannot
            choose it. All processes of an application need the same one.
        judge: the judge, such as ``"openai:gpt-5-mini"``; None for no judge.
        judge_options: keyword arguments for the judge: ``base_url``, ``timeout`` … The key comes from the environment
            (``OPENAI_API_KEY``), not from here.
        judge_sample_rate: share of turns that are judged, 0..1, at most ``sample_rate``; or a share for each metric, by
            name, judged or local. None to judge every evaluated turn.
        judge_sample_by_verdict: share of turns that are judged, by the local verdict of the turn, such as
            ``good=0.02, doubtful=0.5, bad=0.5``; more than 0, at most ``sample_rate``. See docs/judge.md.
        judge_sample_floor: how many turns each process judges in an hour at least, if it has as many. See
            docs/judge.md.
        judge_budget: what the judge may use, such as ``calls_per_day=1000, usd_per_day=5``. See
            docs/guides/production.md.
        judge_budget_store: where the use is counted: a file for the processes of a host, by default
            ``rageval-budget.db``, or ``redis://host:6379/0`` for a fleet.
        thresholds: score name → bound for the label ``pass``; None means no label, the name ``"*"`` every score that is
            not named, and ``"none"`` no labels at all. Or the name of a TOML file with thresholds and limits of the
            verdict. See docs/guides/tuning.md.
        inline_budget_ms: the time for local scores, in milliseconds. Scores that are ready by then are on the turn's
            span; the others follow as EVALUATOR spans. With 0, every score is late.
        capture_content: False removes questions, passages, answers and all that may quote them from what exporters get,
            those of the application too. True overrides ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``; None
            follows that variable.
        redact: True to replace e-mail addresses, numbers of phones and cards, keys and the like in all texts that
            leave the process. ``instrument(redact=...)`` also takes a function of a text. See docs/guides/privacy.md.
        metadata_allow: names of the metadata of turns and passages that may leave; None for all. ``*`` stands for any
            characters.
        metadata_deny: names of metadata that must not leave, at any depth.
        id_salt: a secret. With it, user and session ids are replaced by hashes.
        spans: ``rag`` for the turn, its retrievers, rerankers, model calls and tools; ``all`` to add every prompt and
            parser; ``scores`` for the scores only, on the turn's span of another tracer, or else on one of
            our own; ``auto`` for ``scores`` where another tracer makes the spans, and ``rag`` elsewhere.
        evaluate_unsampled: also evaluate turns inside traces that are not recorded.
        evaluate_without_retrieval: also evaluate runs without retrieval.
        search_tools: names of the tools that return search results as text. Tools that are not named then do
            not. ``!name`` is a tool that does not search. Empty: see docs/capture.md, "Search results that are text".
        queue_size: turns that may wait for evaluation in the background. See docs/guides/production.md.
        queue_max_mb: size of what may wait, in MiB, for each queue.
        dispatch: where turns wait for late scores: ``thread`` for the memory of this process; ``spool`` for a file, in
            which they stay if the process ends or the judge cannot be reached (docs/guides/production.md); ``celery``
            for a broker, from which workers take them (docs/guides/scale.md).
        broker: URL of the broker for ``celery``, such as ``redis://host:6379/0`` or ``amqp://host``.
        broker_fallback: where jobs wait while the broker is down: ``memory``, at most ``queue_size`` of them, or
            ``spool``, the file of ``spool_path``.
        celery_config: name of a module with Celery's own settings for these jobs.
        spool_path: the file of the spool. Processes with the same judge and exporters may share it.
        spool_max_mb: size of that file, in MiB. When it is full, new turns are not judged.
        spool_lease: seconds after which another process takes over the jobs of a process that died.
        drain_timeout: the longest that the process exit may take for pending work, in seconds.
        stats_file: a file that gets the counters of ``stats()`` every second, for ``rageval-hooks top``. ``{pid}`` in
            it stands for the process id. Only its owner can read it.
    """

    model_config = SettingsConfigDict(
        env_prefix="RAGEVAL_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        enable_decoding=False,  # texts that are JSON are read here, like those that are not
        extra="forbid",
        frozen=True,
    )

    enabled: Flag = True
    metrics: NameList | None = Field(default=None, description=_NAMES)
    models: Annotated[ModelSettings, BeforeValidator(_tier_of)] = Field(
        default=ModelSettings(), description="'default', 'lexical', or a mapping with fields of ModelSettings"
    )
    exporters: NameList = ("otel", "auto")
    sample_rate: Share = 1.0
    sampling_salt: Salt = None
    judge: str | None = Field(default=None, description="'provider:model', such as 'openai:gpt-5-mini'")
    judge_options: Annotated[dict[str, Any], BeforeValidator(_pairs)] = Field(
        default_factory=dict, description="a mapping of options, or 'name=value, name=value'", repr=False
    )  # not in a repr: headers and URLs may hold keys
    judge_sample_rate: Annotated[Rates | None, BeforeValidator(_rates)] = Field(
        default=None, description="a share of turns, 0..1, or such a share by the name of a metric"
    )
    judge_sample_by_verdict: Annotated[dict[TurnVerdict, VerdictShare], BeforeValidator(_pairs)] = Field(
        default_factory=dict, description="a mapping of verdicts to shares, or 'good=0.02, doubtful=0.5, bad=0.5'"
    )
    judge_sample_floor: Annotated[int, BeforeValidator(_not_a_boolean)] = Field(
        default=0, ge=0, description="turns per hour, 0 or more"
    )
    judge_budget: Annotated[dict[str, Amount], BeforeValidator(_pairs)] = Field(
        default_factory=dict, description="a mapping of limits to numbers, or 'calls_per_day=1000, usd_per_day=5'"
    )
    judge_budget_store: SecretStr | None = Field(
        default=None, description="a path, or a Redis URL such as redis://host:6379/0"
    )
    thresholds: Annotated[dict[str, Bound], BeforeValidator(_bounds)] = Field(
        default_factory=dict,
        description="a mapping of score names to numbers, or 'name=number, name=number'; None, or 'none', for no label",
    )
    inline_budget_ms: Number = Field(default=100.0, ge=0, description="milliseconds, 0 or more")
    capture_content: bool | None = Field(default=None, description=YES_OR_NO)
    redact: Flag = False
    metadata_allow: NameList | None = Field(default=None, description=_NAMES)
    metadata_deny: NameList = ()
    id_salt: Salt = None
    spans: SpanSelection = "auto"
    evaluate_unsampled: Flag = False
    evaluate_without_retrieval: Flag = False
    search_tools: NameList = ()
    queue_size: Annotated[int, BeforeValidator(_not_a_boolean)] = Field(
        default=2048, ge=1, description="a whole number, 1 or more"
    )
    queue_max_mb: Mebibytes = 128.0
    dispatch: Literal["thread", "spool", "celery"] = "thread"
    broker: SecretStr | None = Field(default=None, description="a broker's URL, such as redis://host:6379/0")
    broker_fallback: Literal["memory", "spool"] = "memory"
    celery_config: str | None = Field(default=None, min_length=1, description="a module, such as 'celery_settings'")
    spool_path: str = Field(default="rageval-spool.db", min_length=1, description="a path")
    spool_max_mb: Mebibytes = 512.0
    spool_lease: Number = Field(default=30.0, ge=0.5, allow_inf_nan=False, description="seconds, 0.5 or more")
    drain_timeout: Seconds = 10.0
    stats_file: str | None = Field(
        default=None, min_length=1, description="a path, such as /run/app/rageval-{pid}.json"
    )

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of single exporters and metrics that are set, by the names of the settings."""
        names = [name for name in setting_names() if name not in Settings.model_fields]
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the values: the class with the options has no name of its own."""
        return partial(Settings.build, **{name: getattr(self, name) for name in self.model_fields_set}), ()

    @field_validator("judge_options")
    @classmethod
    def _has_no_key(cls, options: dict[str, Any]) -> dict[str, Any]:
        # Settings are shown in messages and in the report of the pipeline, where a key must not be.
        if any("key" in name.lower() for name in options):
            raise ValueError("has a key in it: set OPENAI_API_KEY, or pass a judge that was made with its key")
        return options

    @classmethod
    def build(cls, **given: Any) -> Settings:
        """Make settings from keyword arguments; one that is None counts as not given.

        Raises:
            ConfigurationError: a value is wrong; the message says which one, why, and what is valid.
        """
        _warn_of_strange_variables()
        try:
            return _with_options()(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            faults = _explain(error)
        # After the block, since pydantic's message quotes the values, and one of them may be a key.
        raise ConfigurationError(faults)


@cache
def _with_options() -> type[Settings]:
    """Return the settings with the options that built-in exporters and metrics declare."""
    fields: dict[str, Any] = {
        name: (option.type, Field(default=option.default, description=option.valid))
        for name, option in declared_options().items()
    }
    return create_model("Settings", __base__=Settings, **fields)


def setting_names() -> list[str]:
    """Return the names of all settings, those of single exporters and metrics last."""
    return list(_with_options().model_fields)


def unknown_variables() -> list[str]:
    """Return the environment variables that begin with ``RAGEVAL_`` and are not settings."""
    prefix = "RAGEVAL_"
    ours = [variable for variable in os.environ if variable.upper().startswith(prefix)]
    # The first part of a nested name, for example MODELS in RAGEVAL_MODELS__EMBEDDER.
    names = {variable: variable.upper().removeprefix(prefix).split("__")[0].lower() for variable in ours}
    known = setting_names() if names else ()
    return [variable for variable, name in names.items() if name not in known]


@cache
def _warn_of_strange_variables() -> None:
    for variable in unknown_variables():
        valid = ", ".join(f"RAGEVAL_{field.upper()}" for field in setting_names())
        _logger.warning(
            "environment variable %s is not a setting of rageval-hooks. Valid: %s [RAGEVAL-108]", variable, valid
        )


def _explain(error: ValidationError) -> str:
    """Return what is wrong with some settings, and what would be valid."""
    lines = []
    for item in error.errors():
        name, *inner = item["loc"] or ("settings",)
        # The tags of a union are pydantic's, and no names that a user knows.
        field = ".".join(str(part) for part in (name, *inner) if part not in _RATE_TAGS)
        if item["type"] == "extra_forbidden":
            valid = list(ModelSettings.model_fields) if name == "models" else setting_names()
            close = get_close_matches(str(item["loc"][-1]), valid, n=1)
            meant = f"Did you mean {close[0]!r}?" if close else f"Valid: {', '.join(valid)}"
            lines.append(f"{field}: there is no such setting. {meant}")
            continue
        given, option = "", declared_options().get(str(name))
        if name not in _MAY_HOLD_SECRETS and not (option and option.is_secret):
            given = repr(item.get("input"))
            given = f" (given {given if len(given) <= 80 else given[:77] + '...'})"
        message = f"{field}: {item['msg'].removeprefix('Value error, ').rstrip('.')}{given}"
        if not isinstance(item.get("ctx", {}).get("error"), UnknownNameError):  # its message lists what is valid
            of_model = ModelSettings.model_fields[str(inner[0])] if name == "models" and inner else None
            description = (of_model or _with_options().model_fields[str(name)]).description
            # pydantic's own message lists the words that may be chosen.
            message += f". Valid: {description}" if description else ""
        lines.append(message)
    return "; ".join(lines)
