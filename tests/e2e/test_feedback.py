"""Somebody clicks a thumb in a browser, and the real Phoenix has the annotation of a person."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from rageval_hooks.runtime.threads import wait_until
from tests.e2e.phoenix_server import Phoenix

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "thumbs"


@contextmanager
def chat(phoenix: Phoenix) -> Iterator[str]:
    """Serve the example while the block runs; it delivers what is pending when it ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_", "PHOENIX_"))
    }
    environment = {
        **clean,
        "OTEL_EXPORTER_OTLP_ENDPOINT": phoenix.url,
        "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={PROJECT}",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "uvicorn", "examples.fastapi_feedback:app", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, cwd=ROOT)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(url).is_success
        except httpx.TransportError:
            return False

    try:
        assert wait_until(answers, 60)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def annotations(phoenix: Phoenix, kind: str, ids: list[str]) -> list[dict[str, Any]]:
    """Return the annotations of spans or traces."""
    path = f"{phoenix.url}/v1/projects/{PROJECT}/{kind}_annotations"
    found: list[dict[str, Any]] = httpx.get(path, params={f"{kind}_ids": ids}).raise_for_status().json()["data"]
    return found


def test_a_thumb_becomes_an_annotation(phoenix: Phoenix, browser: Any) -> None:
    """The last word of the person counts. It is next to the verdict on the same trace."""
    with chat(phoenix) as url:
        page = browser.new_page()
        page.set_default_timeout(60_000)
        page.on("dialog", lambda dialog: dialog.accept("It was 2019."))
        page.goto(url)
        page.get_by_placeholder("Your question").fill("When was the pier opened?")
        page.get_by_role("button", name="Ask").click()
        page.get_by_role("button", name="good answer").click()
        page.get_by_text("Thank you.").wait_for()
        page.get_by_role("button", name="bad answer").click()
        page.get_by_text("Thank you. Thank you.").wait_for()
        text = page.inner_text("body")
        page.close()

    spans = httpx.get(f"{phoenix.url}/v1/projects/{PROJECT}/spans").raise_for_status().json()["data"]
    [trace_id] = {span["context"]["trace_id"] for span in spans}
    found = annotations(phoenix, "trace", [trace_id])
    [thumb] = [item for item in found if item["annotator_kind"] == "HUMAN"]
    [verdict] = [item for item in found if item["name"] == "verdict"]
    assert "The pier was opened in September 2018." in text
    assert thumb["result"] == {"label": "down", "score": 0.0, "explanation": "It was 2019."}
    assert verdict["result"]["label"] == "bad"
