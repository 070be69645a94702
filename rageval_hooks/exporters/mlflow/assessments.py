"""From results to MLflow's assessments of a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rageval_hooks.exporters.delivery import Item
from rageval_hooks.exporters.score_ids import score_id
from rageval_hooks.score import Failed, Result, Score, Skipped
from rageval_hooks.turn import SpanReference

__all__ = ["ID_KEY", "assessment_items"]

ID_KEY = "rageval.id"
"""In an assessment's metadata: tells whether a post whose answer was lost took effect."""

_LABEL = ".label"
_CODE_SOURCE = "rageval-hooks"
_SOURCE_TYPES = {"CODE": "CODE", "LLM": "LLM_JUDGE", "HUMAN": "HUMAN"}

# MLflow shows these in its own columns.
_SCORER_NAME = "mlflow.assessment.scorerName"
_SCORER_VERSION = "mlflow.assessment.scorerVersion"


def assessment_items(result: Result, span: SpanReference, span_id: str) -> Iterator[Item]:
    """Yield the assessments of a result: its value, and its label as one more.

    MLflow filters and charts numbers; it colours labels such as ``fail`` and counts how many passed. An assessment has
    only one of the two.

    Args:
        result: the result. Its texts are shown.
        span: the turn's span.
        span_id: the span that the result is about, 16 hex digits.
    """
    own_id = str(score_id(span, result))
    yield _item(result.name, result, _feedback(result), span, span_id, own_id)
    if isinstance(result, Score) and result.label is not None:
        name = f"{result.name}{_LABEL}"
        yield _item(name, result, {"value": result.label}, span, span_id, own_id + _LABEL)


def _item(
    name: str, result: Result, feedback: Mapping[str, Any], span: SpanReference, span_id: str, own_id: str
) -> Item:
    trace_id = f"tr-{span.trace_id}"
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assessment = {
        "assessment_name": name,
        "trace_id": trace_id,
        "span_id": span_id,
        "source": _source(result),
        "feedback": feedback,
        "rationale": result.explanation if isinstance(result, Score) else None,
        "metadata": _metadata(result, own_id),
        "create_time": now,
        "last_update_time": now,
        "valid": True,
    }
    body = {"name": name, "id": own_id, "trace_id": trace_id, "assessment": assessment}
    return Item(route="assessments", target=trace_id, body=body)


def _source(result: Result) -> dict[str, str]:
    annotator = "CODE" if isinstance(result, Skipped) else result.annotator
    model = result.model if isinstance(result, Score) else None
    return {"source_type": _SOURCE_TYPES[annotator], "source_id": model or _CODE_SOURCE}


def _feedback(result: Result) -> dict[str, Any]:
    if isinstance(result, Score):
        return {"value": result.value}
    if isinstance(result, Failed):
        return {"error": {"error_code": result.error_type, "error_message": result.message}}
    return {"error": {"error_code": "SKIPPED", "error_message": result.reason}}


def _metadata(result: Result, own_id: str) -> dict[str, str]:
    """Return the details, all as text: MLflow takes nothing else."""
    details: dict[str, Any] = {ID_KEY: own_id, _SCORER_NAME: result.metric or result.name}
    if isinstance(result, Score):
        details.update(_score_details(result))
    if not isinstance(result, Skipped):
        details.update(result.metadata)
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in details.items()}


def _score_details(score: Score) -> Mapping[str, Any]:
    details: dict[str, Any] = {_SCORER_VERSION: score.version, "direction": score.direction}
    if score.label is not None:
        details["label"] = score.label
    if score.probability < 1:
        details["probability"] = score.probability
    if score.target.kind != "turn":
        details[score.target.kind] = score.target.index
    return details
