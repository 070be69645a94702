"""``examples/scale``: its manifests are valid, and the set-up of compose.yaml works as processes without containers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.test_workers import answers, free_port, wait_until
from tests.exporters.collector import http_collector
from tests.judges.server import JudgeServer, answer
from tests.online.test_judge_stage import LABELS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "scale"


def test_the_compose_file_fits_its_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_the_kubernetes_manifest_fits_its_schema() -> None:
    from kubernetes_validate import latest_version, validate

    manifests = list(yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text()))
    assert [manifest["kind"] for manifest in manifests] == ["ConfigMap", "Deployment", "Deployment"]
    for manifest in manifests:
        validate(manifest, latest_version(), strict=True)


def test_the_compose_setup_judges_answers_in_workers(tmp_path: Path) -> None:
    """The commands and variables are those of the file; only hosts, ports and folders are replaced."""
    pytest.importorskip("celery", reason='no Celery: pip install "rageval-hooks[celery]"')
    if shutil.which("redis-server") is None:
        pytest.skip("no Redis: apt-get install redis-server")
    services: dict[str, Any] = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
    web, broker = free_port(), free_port()
    processes = []
    with http_collector() as collector, JudgeServer() as judge:
        judge.otherwise(answer(LABELS))
        places = {
            "http://collector:4318": collector.url,
            "redis://broker:6379": f"redis://127.0.0.1:{broker}",
            "/var/lib/rageval": str(tmp_path),
            "usd_per_day=5": "calls_per_day=1000",  # the price of the test's judge is not known
            "--host 0.0.0.0 --port 8000": f"--host 127.0.0.1 --port {web}",
            "redis-server": f"redis-server --bind 127.0.0.1 --port {broker} --dir {tmp_path}",
        }

        def local(text: str) -> str:
            for there, here in places.items():
                text = text.replace(there, here)
            return text

        def start(service: str) -> None:
            settings = {name: local(str(value)) for name, value in services[service].get("environment", {}).items()}
            environment = {
                **os.environ,
                **settings,
                "NO_PROXY": "*",
                "OPENAI_API_KEY": "sk-test",
                "OPENAI_BASE_URL": judge.url,
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "RAGEVAL_MODELS": "lexical",  # the image would download the models
            }
            command = shlex.split(local(services[service]["command"]))
            with (tmp_path / f"{service}.log").open("ab") as log:
                processes.append(
                    subprocess.Popen(command, env=environment, cwd=EXAMPLE, stdout=log, stderr=subprocess.STDOUT)
                )

        try:
            start("broker")
            wait_until(lambda: answers(broker))
            for _ in range(services["worker"]["deploy"]["replicas"]):
                start("worker")
            start("web")
            wait_until(lambda: answers(web))
            for number in range(6):
                reply = httpx.get(f"http://127.0.0.1:{web}/ask", params={"question": f"When, {number}?"}, timeout=30)
                assert reply.json() == "The pier was opened in September 2019."

            def judged() -> list[Any]:
                return [span for span in collector.spans if span.name == "evaluate trace"]

            wait_until(lambda: len(judged()) >= 6)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(60)
        roots = [span for span in collector.spans if not span.parent_span_id]
        assert Counter(span.trace_id for span in judged()) == Counter(span.trace_id for span in roots)
        assert len(judge.requests) == 6
