"""From results to Phoenix's annotations: on the turn's span, or on a document of the retriever's span."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.span_places import passage_place
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import Turn

__all__ = ["Annotation", "Route", "annotate"]

Route = Literal["span_annotations", "document_annotations"]


@dataclass(frozen=True)
class Annotation:
    """One entry of a request.

    Attributes:
        route: the last part of the path that takes it.
        span_id: the span that it is about, 16 hex digits.
        body: as the API has it, that span's id included.
    """

    route: Route
    span_id: str
    body: dict[str, Any]


def annotate(evaluation: Evaluation, policy: ContentPolicy, spans: SpanSelection) -> tuple[list[Annotation], int]:
    """Return the annotations of a stage, and the number of results that have no span to stand on.

    Args:
        evaluation: the stage.
        policy: what may be shown.
        spans: which steps of a turn become spans.
    """
    turn = evaluation.turn
    found = list(_annotations(turn, evaluation.results, policy, spans))
    return found, len(evaluation.results) - len(found)


def _annotations(
    turn: Turn, results: Iterable[Result], policy: ContentPolicy, spans: SpanSelection
) -> Iterable[Annotation]:
    if turn.span is None or not turn.span.sampled:
        return
    for result in results:
        body = _body(result, policy)
        target = result.target if isinstance(result, Score) else None
        if target is None or target.kind != "passage":
            if target is not None and target.kind == "sentence":
                # The server keeps one annotation per span, name and identifier.
                body["identifier"] = f"sentence {target.index}"
            yield Annotation("span_annotations", turn.span.span_id, {"span_id": turn.span.span_id, **body})
        elif (place := passage_place(turn, target.index, spans)) is not None:
            span_id, position = place
            body = {"span_id": span_id, "document_position": position, **body}
            yield Annotation("document_annotations", span_id, body)


def _body(result: Result, policy: ContentPolicy) -> dict[str, Any]:
    if isinstance(result, Skipped):
        # Phoenix takes an annotation without a score: it shows the label, and leaves it out of means.
        return {
            "name": result.name,
            "annotator_kind": "CODE",
            "result": {"label": "skipped", "explanation": result.reason},
        }
    if isinstance(result, Failed):
        message = policy.quote(result.message, policy.everything)
        return {
            "name": result.name,
            "annotator_kind": result.annotator,
            "result": {"label": "failed", "explanation": f"{result.error_type}: {message}"},
            "metadata": result.metadata if policy.everything else {},
        }
    explanation = policy.quote(result.explanation, policy.everything)
    details = {"model": result.model, "version": result.version, "probability": result.probability}
    return {
        "name": result.name,
        "annotator_kind": result.annotator,
        "result": {"score": result.value, "label": result.label, "explanation": explanation},
        "metadata": {
            **(result.metadata if policy.everything else {}),
            **{name: value for name, value in details.items() if value is not None},
        },
    }
