"""The demo, scraped by a real Prometheus: what the dashboard and the alert of examples/dashboards make of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "examples" / "dashboards"
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "alarms.py"

# Runs the demo as often as lines are read, and serves its metrics.
APPLICATION = """
import sys
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server
from rageval_hooks.demo.run import run_demo

metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
start_http_server(int(sys.argv[1]), "127.0.0.1")
for _ in sys.stdin:
    run_demo(as_json=True, models="lexical")
    print("done", flush=True)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Prometheus:
    """A server that scrapes one application each second.

    Attributes:
        url: its base URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> dict[str, float]:
        """Return the values of a query by the name of their score, or the verdict; under an empty name without one."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=30).raise_for_status()
        rows = answer.json()["data"]["result"]
        found = {
            row["metric"].get("rageval_score_name") or row["metric"].get("rageval_verdict", ""): row for row in rows
        }
        return {name: float(row["value"][1]) for name, row in found.items()}

    def wait(self, expression: str, seconds: float = 60) -> None:
        """Wait until a query has a result."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.query(expression):
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
        raise TimeoutError(f"no result of {expression}")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The real server, after two runs of the demo: an increase needs two values."""
    command = shutil.which("prometheus")
    if command is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    port, target = free_port(), free_port()
    scrape = {"job_name": "demo", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
    intervals = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = {"global": intervals, "scrape_configs": [scrape], "rule_files": ["alerts.yaml"]}
    # Prometheus sees one more bad answer among six more: too few for a budget of one in 20. That chance makes one is
    # unlikely enough if one in 100,000 is usual.
    rules = (FOLDER / "alerts.yaml").read_text()
    (folder / "alerts.yaml").write_text(rules.replace("expr: 0.05", "expr: 0.00001"))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_"))}
    arguments = [f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder / 'data'}"]
    with (
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", APPLICATION, str(target)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, "HF_HUB_OFFLINE": "1"},
        ) as application,
        subprocess.Popen(
            [command, f"--config.file={folder / 'prometheus.yml'}", *arguments], stderr=subprocess.DEVNULL
        ) as server,
    ):
        found = Prometheus(f"http://127.0.0.1:{port}")
        try:
            for turns in (6, 12):
                ask(application)
                found.wait(f'rageval_turns_total{{rageval_turn_kind="rag"}} == {turns}')
            yield found
        finally:
            application.terminate()
            server.terminate()


def ask(application: subprocess.Popen[str]) -> None:
    assert application.stdin is not None
    assert application.stdout is not None
    application.stdin.write("again\n")
    application.stdin.flush()
    while application.stdout.readline().strip() != "done":
        assert application.poll() is None


def panel(title: str) -> str:
    """Return the query of a panel, for all jobs and scores, over the time that the test has taken."""
    panels: list[dict[str, Any]] = json.loads((FOLDER / "grafana.json").read_text())["panels"]
    [expression] = [target["expr"] for found in panels if found["title"] == title for target in found["targets"]]
    return re.sub(r"\$__\w+", "10m", expression.replace("$job", ".*").replace("$score", ".*"))


def test_the_share_below_the_threshold_shows_the_wrong_answer(prometheus: Prometheus) -> None:
    """One of six answers, by each score that finds it. Prometheus extrapolates, so the share is not exact."""
    shares = prometheus.query(panel("Share below the threshold"))

    assert 0.05 < shares["unsupported_facts"] < 0.3
    assert 0.05 < shares["faithfulness"] < 0.3
    assert shares.get("groundedness", 0) == 0


def test_the_verdicts_show_the_wrong_answer(prometheus: Prometheus) -> None:
    """One of six answers, in the panels and by the query of docs/backends.md."""
    page = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
    [query] = re.findall(r"`(sum by \(rageval_annotator\) \(increase\(rageval_verdicts_total.+?)`", page)

    assert prometheus.query('rageval_verdicts_total{rageval_verdict="bad"}') == {"bad": 2}
    assert prometheus.query(query)[""] > 0
    assert 0.05 < prometheus.query(panel("Bad answers"))[""] < 0.3
    rates = prometheus.query(panel("Verdicts"))
    assert rates["good"] > rates["bad"] > 0
    assert prometheus.query(panel("Verdicts by cause"))["bad"] > 0


def test_the_mean_of_each_score_has_counts_too(prometheus: Prometheus) -> None:
    """One unsupported fact in six answers."""
    assert 0.05 < prometheus.query(panel("Mean of each score"))["unsupported_facts"] < 0.3


def test_the_alert_finds_the_wrong_answer(prometheus: Prometheus) -> None:
    """By the real counters, through the recording rules."""
    prometheus.wait('ALERTS{alertname="RagBadAnswers", alertstate="firing"}')
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    [alert] = [rule["expr"] for group in groups for rule in group["rules"] if rule.get("alert") == "RagBadAnswers"]

    assert 0.05 < prometheus.query(alert)[""] < 0.3
    assert prometheus.query(alert.replace("scalar(rageval:budget)", "0.05")) == {}


def test_few_alarms_are_false_and_most_rises_are_found() -> None:
    """On simulated days of 1,000 turns with 5% bad answers, and ones on which that rises to 15%: Prometheus decides."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    command = [sys.executable, BENCHMARK, "--days", "30", "--per-day", "1000", "--traffic", "flat"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    *_, false, found, _ = done.stdout.splitlines()[-1].split("|")

    assert float(false) <= 1
    assert int(found.strip(" %")) >= 85
