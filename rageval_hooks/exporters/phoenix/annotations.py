"""From results to Phoenix's annotations: of the turn's span, of its trace, and of a retriever's documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rageval_hooks.exporters.delivery import Item
from rageval_hooks.exporters.main_results import ScoreSelection, select_results
from rageval_hooks.exporters.span_places import passage_place
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import SpanReference, Turn

__all__ = ["annotate"]


def annotate(
    evaluation: Evaluation, span: SpanReference, spans: SpanSelection, scores: ScoreSelection
) -> tuple[list[Item], int]:
    """Return the annotations of a stage, and the number of results that no known span can carry.

    Args:
        evaluation: the stage.
        span: the turn's span.
        spans: which steps of a turn become spans.
        scores: the main results about the turn, or all of them. Scores of passages are always annotated.
    """
    main = select_results(evaluation.results, "main")
    about_passages = [score for score in evaluation.scores if _is_about_passage(score)]
    others = [result for result in evaluation.results if not _is_about_passage(result)]
    chosen = select_results(others, scores)
    items = [_of_turn(result, span) for result in chosen]
    # The trace's header and the chart of trace scores read annotations of the trace.
    items += [_of_trace(result, span) for result in main]
    items += _of_passages(about_passages, evaluation.turn, spans)
    return items, len(chosen) + len(main) + len(about_passages) - len(items)


def _is_about_passage(result: Result) -> bool:
    return isinstance(result, Score) and result.target.kind == "passage"


def _of_turn(result: Result, span: SpanReference) -> Item:
    body = {"span_id": span.span_id, **_body(result)}
    if isinstance(result, Score) and result.target.kind == "sentence":
        # The server keeps one annotation per span, name and identifier.
        body["identifier"] = f"sentence {result.target.index}"
    return Item(route="span_annotations", target=span.span_id, body=body)


def _of_trace(result: Result, span: SpanReference) -> Item:
    body = {"trace_id": span.trace_id, **_body(result)}
    # A trace may have several turns, each with the same scores.
    body["identifier"] = span.span_id
    return Item(route="trace_annotations", target=span.trace_id, body=body)


def _of_passages(scores: Iterable[Score], turn: Turn, spans: SpanSelection) -> Iterator[Item]:
    """Yield the annotations of passages that a known span lists."""
    for score in scores:
        place = passage_place(turn, score.target.index, spans)
        if place is not None:
            body = {"span_id": place.span_id, "document_position": place.position, **_body(score)}
            yield Item(route="document_annotations", target=place.span_id, body=body)


def _body(result: Result) -> dict[str, Any]:
    if isinstance(result, Skipped):
        # Phoenix takes an annotation without a score: it shows the label and does not count it in means.
        return {
            "name": result.name,
            "annotator_kind": "CODE",
            "result": {"label": "skipped", "explanation": result.reason},
        }
    if isinstance(result, Failed):
        return {
            "name": result.name,
            "annotator_kind": result.annotator,
            "result": {"label": "failed", "explanation": result.reason},
            "metadata": result.metadata,
        }
    metadata = {**result.metadata, "version": result.version, "probability": result.probability}
    if result.model is not None:
        metadata["model"] = result.model
    return {
        "name": result.name,
        "annotator_kind": result.annotator,
        "result": {"score": result.value, "label": result.label, "explanation": result.explanation},
        "metadata": metadata,
    }
