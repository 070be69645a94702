"""Settings: keyword, else environment, else default; and messages that name the field and what is valid."""

from __future__ import annotations

import json
import math
import os
import pickle
import traceback
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rageval_hooks import ConfigurationError
from rageval_hooks import settings as module
from rageval_hooks.settings import ModelSettings, Settings, looks_like_path


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings in the environment but those of the test."""
    for name in list(os.environ):
        if name.upper().startswith("RAGEVAL_"):
            monkeypatch.delenv(name)
    module._warn_of_strange_variables.cache_clear()


class Tier(str, Enum):  # noqa: UP042 - applications have such classes; str() of a member is "Tier.LEXICAL"
    LEXICAL = "lexical"


LEXICAL = {"embedder": "lexical", "cross_encoder": "lexical", "nlp": "lexical", "hhem": "lexical"}


@pytest.mark.parametrize(
    ("field", "given_value", "expected"),
    [
        ("metrics", ["groundedness", "cost"], ("groundedness", "cost")),
        ("metrics", "groundedness, cost", ("groundedness", "cost")),
        ("metrics", '["groundedness"]', ("groundedness",)),
        ("metrics", (), ()),
        ("exporters", "otel,console", ("otel", "console")),
        ("models", "default", ModelSettings()),
        ("models", "lexical", ModelSettings(**LEXICAL)),
        ("models", Tier.LEXICAL, ModelSettings(**LEXICAL)),
        ("models", {"nlp": "lexical", "device": "cuda:0"}, ModelSettings(nlp="lexical", device="cuda:0")),
        ("models", ModelSettings(nlp="lexical"), ModelSettings(nlp="lexical")),
        ("models", '{"download": false}', ModelSettings(download=False)),
        ("thresholds", {"groundedness": 0.7}, {"groundedness": 0.7}),
        ("thresholds", "groundedness=0.7, latency = 2", {"groundedness": 0.7, "latency": 2.0}),
        ("thresholds", '{"groundedness": 0.7}', {"groundedness": 0.7}),
        ("sample_rate", 0, 0.0),
        ("sample_rate", "0.25", 0.25),
        ("inline_budget_ms", math.inf, math.inf),
        ("capture_content", False, False),
        ("spans", "all", "all"),
    ],
)
def test_values_and_the_forms_in_which_they_can_be_given(field: str, given_value: Any, expected: Any) -> None:
    """Names with commas, JSON, tiers of models."""
    assert getattr(Settings.build(**{field: given_value}), field) == expected


VARIABLES = {
    "RAGEVAL_ENABLED": ("false", "enabled", False),
    "RAGEVAL_METRICS": ("groundedness, cost", "metrics", ("groundedness", "cost")),
    "RAGEVAL_MODELS": ("lexical", "models", ModelSettings(**LEXICAL)),
    "RAGEVAL_MODELS__NLP": ("lexical", "models", ModelSettings(nlp="lexical")),
    "RAGEVAL_MODELS__DOWNLOAD": ("0", "models", ModelSettings(download=False)),
    "RAGEVAL_EXPORTERS": ('["console"]', "exporters", ("console",)),
    "RAGEVAL_SAMPLE_RATE": ("0.5", "sample_rate", 0.5),
    "RAGEVAL_THRESHOLDS": ("groundedness=0.7,latency=2", "thresholds", {"groundedness": 0.7, "latency": 2.0}),
    "RAGEVAL_INLINE_BUDGET_MS": ("100", "inline_budget_ms", 100.0),
    "RAGEVAL_CAPTURE_CONTENT": ("no", "capture_content", False),
    "RAGEVAL_SPANS": ("scores", "spans", "scores"),
    "RAGEVAL_EVALUATE_UNSAMPLED": ("true", "evaluate_unsampled", True),
    "RAGEVAL_EVALUATE_WITHOUT_RETRIEVAL": ("true", "evaluate_without_retrieval", True),
    "RAGEVAL_SEARCH_TOOLS": ("web_search, wiki", "search_tools", ("web_search", "wiki")),
    "RAGEVAL_QUEUE_SIZE": ("16", "queue_size", 16),
    "RAGEVAL_DRAIN_TIMEOUT": ("1.5", "drain_timeout", 1.5),
    "RAGEVAL_JSONL_PATH": ("/tmp/a.jsonl", "jsonl_path", "/tmp/a.jsonl"),
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_every_setting_can_come_from_the_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``RAGEVAL_<NAME>``."""
    text, field, expected = VARIABLES[variable]
    monkeypatch.setenv(variable, text)

    settings = Settings.build()
    assert settings.options.get(field, getattr(settings, field, None)) == expected


def test_variables_may_be_in_lower_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some deployments write them so."""
    monkeypatch.setenv("rageval_sample_rate", "0.5")

    assert Settings.build().sample_rate == 0.5


def test_a_keyword_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the environment before the default."""
    monkeypatch.setenv("RAGEVAL_SAMPLE_RATE", "0.5")
    monkeypatch.setenv("RAGEVAL_METRICS", "cost")
    monkeypatch.setenv("RAGEVAL_MODELS", "lexical")

    settings = Settings.build(sample_rate=0.25, metrics="latency", models={"download": False})

    assert (settings.sample_rate, settings.metrics, settings.spans) == (0.25, ("latency",), "auto")
    assert settings.models == ModelSettings(download=False)


def test_a_keyword_that_is_none_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that wrappers can pass everything on."""
    monkeypatch.setenv("RAGEVAL_SAMPLE_RATE", "0.5")

    assert Settings.build(sample_rate=None, models=None) == Settings.build()
    assert Settings.build(sample_rate=None).sample_rate == 0.5


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As shells and compose files leave them."""
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")

    assert not Settings.build().model_fields_set


ERRORS = [
    ({"sample_rate": 1.5}, "sample_rate: ", "0..1"),
    ({"sample_rate": -0.1}, "sample_rate: ", "0..1"),
    ({"sample_rate": math.nan}, "sample_rate: ", "0..1"),
    ({"sample_rate": "often"}, "sample_rate: ", "0..1"),
    ({"models": "fast"}, "models: unknown tier of models 'fast'.", "Valid: default, lexical."),
    ({"models": "lexicall"}, "models: ", "Did you mean 'lexical'?"),
    ({"models": 3}, "models: ", "'default', 'lexical', or a mapping"),
    ({"models": {"embeder": "x"}}, "models.embeder: there is no such setting", "Did you mean 'embedder'?"),
    ({"models": {"nlp": " "}}, "models.nlp: is empty", "a model's name, an existing path, or 'lexical'"),
    ({"models": {"nlp": "/no/where"}}, "models.nlp: no such path: /no/where", "an existing path"),
    ({"models": {"embedder": "./no/where"}}, "models.embedder: no such path", "an existing path"),
    ({"models": {"load_timeout": 0}}, "models.load_timeout: ", "seconds, more than 0"),
    ({"models": {"load_timeout": math.inf}}, "models.load_timeout: ", "seconds, more than 0"),
    ({"models": {"cache_mb": -1}}, "models.cache_mb: ", "MiB, 0 or more"),
    ({"models": {"cache_mb": math.inf}}, "models.cache_mb: ", "MiB, 0 or more"),
    ({"models": {"download": "maybe"}}, "models.download: ", "true or false"),
    ({"models": "{"}, "models: is not valid JSON", "'default', 'lexical'"),
    ({"metrics": 3}, "metrics: ", "names with commas between them"),
    ({"metrics": [3]}, "metrics.0: ", "names with commas between them"),
    ({"exporters": '{"a": 1}'}, "exporters: ", "names with commas between them"),
    ({"thresholds": "grounded"}, "thresholds: part 1 is not of the form name=value (given 'grounded')", "name=number"),
    ({"thresholds": "groundedness=high"}, "thresholds.groundedness: ", "name=number"),
    ({"thresholds": {"groundedness": math.nan}}, "thresholds.groundedness: ", "score names to numbers"),
    ({"thresholds": '{"a": Infinity}'}, "thresholds.a: ", "score names to numbers"),
    ({"thresholds": 0.7}, "thresholds: ", "score names to numbers"),
    (
        {"thresholds": {"*": 0.7}},
        "thresholds: '*' stands for every score that is not named: it can only be None",
        "none",
    ),
    ({"thresholds": ["none"]}, "thresholds: ", "None, or 'none', for no label"),
    ({"inline_budget_ms": -1}, "inline_budget_ms: ", "milliseconds, 0 or more"),
    ({"capture_content": "maybe"}, "capture_content: ", "true or false"),
    ({"spans": "some"}, "spans: ", "'rag', 'all' or 'scores'"),
    ({"queue_size": 0}, "queue_size: ", "a whole number, 1 or more"),
    ({"queue_size": 1.5}, "queue_size: ", "a whole number, 1 or more"),
    ({"drain_timeout": math.inf}, "drain_timeout: ", "seconds, 0 or more"),
    ({"sample_rates": 1}, "sample_rates: there is no such setting", "sample_rate"),
]


@pytest.mark.parametrize(("fields", "start", "valid"), ERRORS, ids=[str(error[0]) for error in ERRORS])
def test_a_message_names_the_field_and_what_is_valid(fields: dict[str, Any], start: str, valid: str) -> None:
    """And what was given."""
    with pytest.raises(ConfigurationError) as raised:
        Settings.build(**fields)

    assert str(raised.value).startswith(start)
    assert valid in str(raised.value)


def test_all_wrong_settings_are_named_at_once() -> None:
    """One message lists all of them, so one correction is enough."""
    with pytest.raises(ConfigurationError) as raised:
        Settings.build(sample_rate=2, spans="some", models={"nlp": ""})

    for field in ("sample_rate: ", "spans: ", "models.nlp: "):
        assert field in str(raised.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"judge_options": {"api_key": "sk-correct-horse"}},
        {"judge_options": "api_key=sk-correct-horse"},
        {"judge_options": '{"base_url": sk-correct-horse}'},
        {"judge_options": "sk-correct-horse"},
        {"judge_options": ["sk-correct-horse"]},
        {"phoenix_endpoint": "user:sk-correct-horse@phoenix"},
        {"models": "default", "judge_options": {"headers": {"Authorization": "Bearer sk-correct-horse"}}, "spans": "x"},
    ],
    ids=str,
)
def test_a_key_is_not_repeated_in_the_message(fields: dict[str, Any]) -> None:
    """Messages of wrong settings end in logs."""
    with pytest.raises(ConfigurationError) as raised:
        Settings.build(**fields)

    assert "correct-horse" not in "".join(traceback.format_exception(raised.value))


def test_a_key_is_not_in_the_repr() -> None:
    """Headers and URLs of a judge may hold one."""
    options = {"headers": {"Authorization": "Bearer correct-horse"}, "base_url": "http://u:correct-horse@host/v1"}

    assert "correct-horse" not in repr(Settings.build(judge_options=options))


def test_a_long_value_is_not_quoted_in_full() -> None:
    """It may be a whole document."""
    with pytest.raises(ConfigurationError) as raised:
        Settings.build(spans="x" * 10_000)

    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    "given",
    [
        {"sample_rate": True},
        {"judge_sample_rate": True},
        {"judge_sample_rate": {"umbrela": False}},
        {"thresholds": {"groundedness": True}},
        {"queue_size": True},
        {"drain_timeout": False},
        {"models": {"cache_mb": True}},
    ],
)
def test_a_truth_value_is_no_number(given: dict[str, Any]) -> None:
    """``sample_rate=True`` may be meant as anything."""
    with pytest.raises(ConfigurationError, match="must be a number, not a boolean"):
        Settings.build(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (2, r"^judge_sample_rate: Input should be less than or equal to 1 \(given 2\)\. Valid: a share of turns"),
        ({"a": 2}, r"^judge_sample_rate\.a: Input should be less than or equal to 1 \(given 2\)\. Valid: a share"),
        ([1], r"^judge_sample_rate: Input should be a valid number \(given \[1\]\)\. Valid: a share of turns"),
    ],
)
def test_a_wrong_rate_of_the_judge_is_told_once(given: Any, message: str) -> None:
    """Though it may be one number or one for each metric."""
    with pytest.raises(ConfigurationError, match=message) as raised:
        Settings.build(judge_sample_rate=given)

    assert str(raised.value).count("judge_sample_rate") == 1


def test_a_wrong_variable_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same message."""
    monkeypatch.setenv("RAGEVAL_SAMPLE_RATE", "2")

    with pytest.raises(ConfigurationError, match=r"sample_rate: .* \(given '2'\)\. Valid: a share of turns, 0\.\.1"):
        Settings.build()


def test_a_variable_that_is_no_setting_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt one would do nothing, silently; the line lists the valid ones."""
    monkeypatch.setenv("RAGEVAL_SAMPLERATE", "0.5")
    monkeypatch.setenv("RAGEVAL_MODELS__NLP", "lexical")

    for _ in range(3):
        assert Settings.build().sample_rate == 1.0

    [record] = caplog.records
    assert record.getMessage().startswith("environment variable RAGEVAL_SAMPLERATE is not a setting")
    assert "RAGEVAL_SAMPLE_RATE" in record.getMessage()


def test_every_setting_says_what_is_valid() -> None:
    """For the messages: it is the field's description."""
    for kind in (Settings, ModelSettings):
        for name, field in kind.model_fields.items():
            # pydantic's message lists the words of a choice.
            assert field.description or get_origin(field.annotation) is Literal, name


def test_settings_are_plain_data() -> None:
    """To JSON and back without loss, and to another process."""
    settings = Settings.build(
        k_values="2,10",
        metrics="cost",
        models="lexical",
        thresholds="cost=1",
        sample_rate=0.5,
        inline_budget_ms=0,
        spans="all",
    )

    assert Settings.build(**json.loads(settings.model_dump_json())) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert pickle.loads(pickle.dumps(settings)).options == {"k_values": (2, 10)}


def test_settings_cannot_be_changed() -> None:
    """A pipeline was built from them."""
    with pytest.raises(ValueError, match="frozen"):
        Settings.build().sample_rate = 0.5  # type: ignore[misc]


@given(
    st.dictionaries(st.from_regex(r"[a-z_.@0-9]{1,12}", fullmatch=True), st.none() | st.floats(-1e6, 1e6), max_size=4)
)
def test_thresholds_are_read_as_they_are_written(thresholds: dict[str, float | None]) -> None:
    """Pairs with commas between them say the same as a mapping."""
    written = ", ".join(f"{name}={value!r}" for name, value in thresholds.items())

    assert Settings.build(thresholds=written or {}).thresholds == thresholds


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("./model", True),
        ("../model", True),
        ("~/model", True),
        ("/model", True),
        ("model", False),
        ("sentence-transformers/all-MiniLM-L6-v2", False),
    ],
)
def test_what_can_only_be_a_path(name: str, path: bool) -> None:
    """Anything else may be the name of a model on a hub."""
    assert looks_like_path(name) is path


def test_an_existing_path_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ModelSettings(nlp=str(tmp_path)).nlp == str(tmp_path)
    assert ModelSettings(nlp="~").nlp == "~"


def test_onnx_runtime_computes_on_the_cpu() -> None:
    """Another device is an error at once."""
    assert ModelSettings(backend="onnx").device == "cpu"
    with pytest.raises(ValidationError, match="backend='onnx' computes on the CPU: not on device='cuda'"):
        ModelSettings(backend="onnx", device="cuda")


def test_a_misspelt_setting_is_recognised() -> None:
    """One name in place of a list of all."""
    with pytest.raises(ConfigurationError) as caught:
        Settings.build(model="lexical")

    assert str(caught.value) == "model: there is no such setting. Did you mean 'models'?"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sample_rate": 3}, r"sample_rate: Input should be less than or equal to 1 \(given 3\)\. Valid: a share"),
        (
            {"phoenix_endpoint": "ftp://me:hunter2@host"},
            r"phoenix_endpoint: is not an http or https URL\. Valid:",
        ),
        ({"sample_rat": 1}, r"sample_rat: there is no such setting\. Did you mean 'sample_rate'\?"),
    ],
)
def test_a_message_shows_the_value_unless_it_may_hold_a_secret(wrong: dict[str, Any], message: str) -> None:
    """And what would be valid."""
    with pytest.raises(ConfigurationError, match=message) as raised:
        Settings.build(**wrong)
    assert "hunter2" not in str(raised.value)
