"""Real servers of Phoenix and MLflow, and the scores that they have."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from _common import ROOT

sys.path.insert(0, str(ROOT))

from tests.e2e.mlflow_server import mlflow_command, serve_mlflow
from tests.e2e.phoenix_server import serve_phoenix

__all__ = ["SERVERS", "serve", "stored"]

SERVERS = ("phoenix", "mlflow")


@contextmanager
def serve(backend: str, folder: Path, port: int | None = None) -> Iterator[str]:
    """Run a server with its database in a folder, and yield its URL; at a free port by default."""
    if backend == "phoenix":
        with serve_phoenix(folder, port=port) as server:
            yield server.url
        return
    command = mlflow_command()
    if command is None:
        sys.exit("no MLflow server: make e2e installs it, or set MLFLOW_COMMAND")
    with serve_mlflow(command, folder, port) as url:
        yield url


def stored(backend: str, url: str, place: str, turns: list[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Return how often a server has each score.

    Args:
        backend: the server.
        url: its address.
        place: the project of Phoenix, or the id of the experiment of MLflow.
        turns: the ids of trace and span. MLflow is asked for all of the experiment.

    Returns:
        Counts by the id of what the score is about, and its name.
    """
    found: Counter[tuple[str, str]] = Counter()
    with httpx.Client(base_url=url, timeout=120) as client:
        if backend == "phoenix":
            for kind, ids in (("trace", [turn[0] for turn in turns]), ("span", [turn[1] for turn in turns])):
                for start in range(0, len(ids), 50):
                    params: dict[str, Any] = {f"{kind}_ids": ids[start : start + 50], "limit": 1000}
                    for page in pages(client, f"/v1/projects/{place}/{kind}_annotations", params):
                        found.update((item[f"{kind}_id"], item["name"]) for item in page["data"])
            return found
        location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": place}}
        body: dict[str, Any] = {"locations": [location], "max_results": 500}
        while True:
            page = client.post("/api/3.0/mlflow/traces/search", json=body).raise_for_status().json()
            for trace in page.get("traces", ()):
                for item in trace.get("assessments", ()):
                    found[item.get("span_id", trace["trace_id"]), item["assessment_name"]] += 1
            body["page_token"] = page.get("next_page_token")
            if not body["page_token"]:
                return found


def pages(client: httpx.Client, path: str, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the pages of a list of Phoenix."""
    cursor: str | None = ""
    while cursor is not None:
        more = {"cursor": cursor} if cursor else {}
        page = client.get(path, params=params | more).raise_for_status().json()
        yield page
        cursor = page.get("next_cursor")
