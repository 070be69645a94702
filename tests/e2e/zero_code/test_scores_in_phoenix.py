"""An application without a line of ours, started in both ways, and a real Phoenix that receives its scores."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.phoenix_server import Phoenix
from tests.zero_code.starting import APPLICATION, WAYS, start


def fetch(phoenix: Phoenix, path: str, **parameters: Any) -> list[dict[str, Any]]:
    """Return the items of a list of the REST API."""
    response = httpx.get(f"{phoenix.url}/v1/projects/{path}", params={"limit": 100, **parameters}, timeout=30)
    items: list[dict[str, Any]] = response.raise_for_status().json()["data"]
    return items


@pytest.mark.parametrize("way", WAYS)
def test_the_scores_are_annotations_in_phoenix(way: str, phoenix: Phoenix) -> None:
    """In one trace, as with ``instrument()``: the verdict of the turn's span, the others of the span ``evaluate``."""
    project = f"no-code-{way}"
    done = start(
        way,
        APPLICATION,
        OTEL_EXPORTER_OTLP_ENDPOINT=phoenix.url,
        OTEL_RESOURCE_ATTRIBUTES=f"openinference.project.name={project}",
        RAGEVAL_EXPORTERS="otel,phoenix-auto",
    )
    assert (done.returncode, done.stderr) == (0, "")

    spans = fetch(phoenix, f"{project}/spans")
    assert len({span["context"]["trace_id"] for span in spans}) == 1
    [turn] = [span for span in spans if span["parent_id"] is None]
    assert turn["name"] == "rag RunnableSequence"
    [verdict] = fetch(phoenix, f"{project}/span_annotations", span_ids=turn["context"]["span_id"])
    assert (verdict["name"], verdict["result"]["label"]) == ("verdict", "bad")
    assert "September 2018" in verdict["result"]["explanation"]
    [evaluated] = [span for span in spans if span["name"] == "evaluate"]
    annotations = fetch(phoenix, f"{project}/span_annotations", span_ids=evaluated["context"]["span_id"])
    found = {annotation["name"]: annotation["result"] for annotation in annotations}
    assert (found["unsupported_facts"]["score"], found["unsupported_facts"]["label"]) == (1, "fail")
    assert "September 2018" in found["unsupported_facts"]["explanation"]
    assert 0 < found["faithfulness"]["score"] < 1
