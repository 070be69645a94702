"""From results to MLflow's assessments of a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rageval_hooks.exporters.delivery import Item
from rageval_hooks.exporters.delivery.placing import evaluated_at, iso_time, score_details
from rageval_hooks.exporters.score_ids import score_id
from rageval_hooks.score import Evaluation, Failed, Score, metric_of
from rageval_hooks.turn import SpanReference

__all__ = ["ID_KEY", "assessments"]

ID_KEY = "rageval.id"
"""In an assessment's metadata: tells whether it is stored already."""

_LABEL = ".label"
_CODE_SOURCE = "rageval-hooks"
_SOURCE_TYPES = {"CODE": "CODE", "LLM": "LLM_JUDGE", "HUMAN": "HUMAN"}

# MLflow's own names.
_SCORER_NAME = "mlflow.assessment.scorerName"
_SCORER_VERSION = "mlflow.assessment.scorerVersion"


def assessments(
    result: Score | Failed, evaluation: Evaluation, span: SpanReference, span_id: str, position: int
) -> Iterator[Item]:
    """Yield the assessments of a result: its value, and its label as one more.

    MLflow filters and charts numbers; it colours labels such as ``fail`` and counts how many passed. An assessment has
    only one of the two.

    Args:
        result: the result. Its texts are shown.
        evaluation: the stage.
        span: the turn's span.
        span_id: the span that the result is about, 16 hex digits.
        position: of the result in the stage, from 0.
    """
    trace_id = f"tr-{span.trace_id}"
    own_id = str(score_id(span, result))
    values = {result.name: (own_id, _feedback(result))}
    if isinstance(result, Score) and result.label is not None:
        values[result.name + _LABEL] = (own_id + _LABEL, {"value": result.label})
    for number, (name, (item_id, feedback)) in enumerate(values.items()):
        # MLflow lists the newest first, by milliseconds: what failed stays first, and a label follows its value.
        earlier = (2 * position + number) * 1_000_000
        time = iso_time(evaluated_at(evaluation.turn) - earlier).replace("+00:00", "Z")
        assessment = {
            "assessment_name": name,
            "trace_id": trace_id,
            "span_id": span_id,
            "source": _source(result),
            "feedback": feedback,
            "rationale": result.explanation if isinstance(result, Score) else None,
            "metadata": _metadata(result, item_id),
            "create_time": time,
            "last_update_time": time,
            "valid": True,
        }
        # Late results may be delivered a second time, by another process, from a spool that survived a crash.
        late = evaluation.stage == "background"
        body = {"name": name, "id": item_id, "trace_id": trace_id, "look_first": late, "assessment": assessment}
        yield Item(route="assessments", target=trace_id, body=body)


def _source(result: Score | Failed) -> dict[str, str]:
    model = result.model if isinstance(result, Score) else None
    return {"source_type": _SOURCE_TYPES[result.annotator], "source_id": model or _CODE_SOURCE}


def _feedback(result: Score | Failed) -> dict[str, Any]:
    if isinstance(result, Score):
        return {"value": result.value}
    return {"error": {"error_code": result.error_type, "error_message": result.message}}


def _metadata(result: Score | Failed, item_id: str) -> dict[str, str]:
    """Return the details, all as text: MLflow takes nothing else."""
    details = score_details(result) if isinstance(result, Score) else dict(result.metadata)
    details[ID_KEY] = item_id
    details[_SCORER_NAME] = metric_of(result)
    if isinstance(result, Score):
        details[_SCORER_VERSION] = result.version
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in details.items()}
