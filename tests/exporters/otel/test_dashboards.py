"""The dashboard and the alert rules in examples/dashboards use names that are emitted, and the rules fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import rageval_hooks
from rageval_hooks import GroundingGuard, Skipped, metric
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.testing import FakeJudge
from rageval_hooks.turn import Usage
from tests.integrations.langchain.fakes import lcel
from tests.online.test_judge_stage import LABELS

FOLDER = Path(__file__).parents[3] / "examples" / "dashboards"

# Labels that Prometheus itself adds when it scrapes, or makes of histograms.
ADDED_LABELS = frozenset({"job", "instance", "le"})

# rageval_score_count{job="app", rageval_target_kind="turn"}, with or without the part in braces
SELECTOR = re.compile(r"\b(rageval_\w+)(?:\{([^}]*)\})?(?=[\s\[)]|$)")
# rageval:bad:increase4h
RECORDING = re.compile(r"\brageval:[\w:]+")
# rageval_target_kind in {rageval_target_kind="turn"}
MATCHER = re.compile(r"(\w+)\s*[=!]~?")
# "le, rageval_queue" in sum by (le, rageval_queue)
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
# "job" in label_values(rageval_turns_total, job)
LABEL_VALUES = re.compile(r"label_values\((\w+), (\w+)\)")
# rageval_queue in {{rageval_queue}} and in {{ $labels.rageval_queue }}
TEMPLATE = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


@metric(name="broken")
def broken(turn: Any) -> float:
    raise RuntimeError("no such table")


@metric(name="absent")
def absent(turn: Any) -> Skipped:
    return Skipped(name="absent", reason="there is nothing to measure")


@pytest.fixture(scope="module")
def emitted() -> Mapping[str, set[str]]:
    """The names of the samples that a scrape of an application finds, each with its labels."""
    registry = CollectorRegistry()
    meters = MeterProvider([PrometheusMetricReader(registry=registry)], shutdown_on_exit=False)
    with rageval_hooks.instrument(
        metrics=["groundedness", "verdict", "latency", "tokens", "cost", "trace", broken, absent],
        models="lexical",
        judge=FakeJudge([LABELS], usage=Usage(input_tokens=100, output_tokens=10), cost=0.001),
        thresholds={"groundedness": 0.5},
        cost_rate=0.01,
        exporters=[OtelExporter(TracerProvider(), meter_provider=meters)],
    ) as handle:
        lcel().invoke("When was the pier opened?")
        with rageval_hooks.start_turn("Who built the pier?") as turn:  # a verdict with a cause
            turn.add_passages(["The pier was opened in May 2019."])
            turn.respond("I do not know.")
        GroundingGuard(models="lexical").check("In May 2019.", ["The pier was opened in May 2019."])
        assert handle.flush(30)
        samples = scrape(registry)
    meters.shutdown()
    return samples


def scrape(registry: CollectorRegistry) -> Mapping[str, set[str]]:
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as response:
            text = response.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert len(series) == len(set(series)), "Prometheus refuses two values of one series"
    found: dict[str, set[str]] = {}
    for sample in samples:
        found.setdefault(sample.name, set()).update(sample.labels)
    return found


def dashboard() -> dict[str, Any]:
    return json.loads((FOLDER / "grafana.json").read_text())


def rules() -> list[dict[str, Any]]:
    """Return the alerts, and the recording rules that they use."""
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


RECORDED = {rule["record"] for rule in rules() if "record" in rule}


def queries() -> Iterator[tuple[str, list[str]]]:
    """Yield each PromQL expression, with the texts that name its labels."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], [target["legendFormat"]]
    for rule in rules():
        yield str(rule["expr"]), list(rule.get("annotations", {}).values())


@pytest.mark.parametrize(("expression", "texts"), list(queries()))
def test_every_name_in_a_query_is_emitted(emitted: Mapping[str, set[str]], expression: str, texts: list[str]) -> None:
    recorded = set(RECORDING.findall(expression))
    assert recorded <= RECORDED
    selectors = SELECTOR.findall(GROUPING.sub("", RECORDING.sub("", expression)))
    assert selectors or recorded or float(expression) < 1, expression
    known = set(ADDED_LABELS) | (emitted["rageval_verdicts_total"] if recorded else set())
    for name, matchers in selectors:
        assert name in emitted, f"no metric {name}"
        for label in MATCHER.findall(matchers):
            assert label in emitted[name] | ADDED_LABELS, f"{name} has no label {label}"
        known |= emitted[name]
    for group in GROUPING.findall(expression):
        assert {label.strip() for label in group.split(",")} <= known, expression
    for text in texts:
        assert set(TEMPLATE.findall(text)) <= known, text


def test_every_name_in_a_variable_is_emitted(emitted: Mapping[str, set[str]]) -> None:
    queried = [variable for variable in dashboard()["templating"]["list"] if variable["type"] == "query"]
    assert queried
    for variable in queried:
        [(name, label)] = LABEL_VALUES.findall(variable["definition"])
        assert label in emitted[name] | ADDED_LABELS


def test_every_metric_is_on_the_dashboard(emitted: Mapping[str, set[str]]) -> None:
    """But the histograms of tokens and cost, which other dashboards have."""
    text = " ".join(expression for expression, _ in queries())
    unused = {name for name in emitted if name.startswith("rageval_") and name not in text}
    # A histogram is used if one of its parts is.
    families = {re.sub(r"_(count|sum|bucket|total|created)$", "", name) for name in unused}
    assert {name for name in families if name not in text} == {"rageval_score_tokens", "rageval_score_cost_USD"}


def test_panels_have_their_own_places() -> None:
    """Grafana moves panels that overlap."""
    cells = [
        (panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + line)
        for panel in dashboard()["panels"]
        for column in range(panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))


class TestRules:
    def test_every_rule_has_a_series_that_fires_it(self) -> None:
        tested = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
        firing = {case["alertname"] for test in tested for case in test["alert_rule_test"] if case["exp_alerts"]}
        assert firing == {rule["alert"] for rule in rules() if "alert" in rule}

    @pytest.mark.skipif(
        shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus"
    )
    def test_the_rules_fire_on_made_up_series(self) -> None:
        for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
            done = subprocess.run(["promtool", *command], cwd=FOLDER, capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stdout + done.stderr
