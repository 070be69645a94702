"""From turns, steps and results to span attributes: both OpenInference's names and those of GenAI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Union

from pydantic_core import from_json, to_json

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.score import Evaluation, Failed, Result, Score, Skipped
from rageval_hooks.settings import SpanSelection
from rageval_hooks.turn import ErrorInfo, Passage, Step, StepKind, Turn

__all__ = [
    "Attributes",
    "error_event",
    "has_span",
    "metric_attributes",
    "result_event",
    "results_by_metric",
    "step_attributes",
    "step_name",
    "turn_attributes",
]

Value = Union[str, bool, int, float, Sequence[str], Sequence[float]]

_SPAN_KINDS: dict[StepKind, str] = {
    "chain": "CHAIN",
    "agent": "AGENT",
    "retriever": "RETRIEVER",
    "reranker": "RERANKER",
    "embedding": "EMBEDDING",
    "llm": "LLM",
    "tool": "TOOL",
    "prompt": "CHAIN",
    "parser": "CHAIN",
}
_OPERATIONS: dict[StepKind, str] = {
    "retriever": "retrieval",
    "reranker": "rerank",
    "embedding": "embeddings",
    "llm": "chat",
    "tool": "execute_tool",
    "agent": "invoke_agent",
}


_JUDGE_IDS = frozenset({"model", "response_id", "mode", "circuit"})
"""What of a judge's details is text, and quotes nothing; its words when it refused, for one, may."""

_RAG_STEPS = frozenset[StepKind]({"retriever", "reranker", "llm", "tool"})


class Attributes(dict[str, Value]):
    """Span attributes, the most important first: what exceeds the provider's limit is cut from the end and counted."""

    def put(self, name: str, value: Value | None) -> None:
        """Set an attribute, unless its value is None."""
        if value is not None:
            self[name] = value

    def within(self, limit: int | None) -> dict[str, Value]:
        """Return at most ``limit`` attributes; where some do not fit, one of these says how many."""
        if limit is None or len(self) <= limit:
            return self
        kept = dict(list(self.items())[: max(0, limit - 1)])
        kept[semconv.DROPPED_ATTRIBUTES] = len(self) - len(kept)
        return kept


# --------------------------------------------------------------------------- the turn


def turn_attributes(turn: Turn, results: Iterable[Result], policy: ContentPolicy) -> Attributes:
    """Return the attributes of a turn's span, its inline results among them."""
    attributes = Attributes()
    agent = any(step.kind == "agent" for step in turn.steps)
    attributes[semconv.SPAN_KIND] = "AGENT" if agent else "CHAIN"
    attributes[semconv.TURN_ID] = turn.id
    attributes.put(semconv.FRAMEWORK, turn.framework)
    attributes[semconv.TURN_STATUS] = turn.status
    if turn.error is not None:
        attributes[semconv.ERROR_TYPE] = turn.error.type
    attributes[semconv.INPUT_VALUE] = policy.quote(turn.query, policy.inputs) or ""
    attributes[semconv.INPUT_MIME_TYPE] = semconv.TEXT
    attributes[semconv.OUTPUT_VALUE] = policy.quote(turn.response, policy.outputs) or ""
    attributes[semconv.OUTPUT_MIME_TYPE] = semconv.TEXT
    if turn.session_id is not None:
        attributes[semconv.SESSION_ID] = turn.session_id
        attributes[semconv.CONVERSATION_ID] = turn.session_id
    attributes.put(semconv.USER_ID, turn.user_id)
    _add_results(attributes, list(results), len(turn.passages), policy)
    if turn.has_retrieval:
        attributes[semconv.PASSAGES] = len(turn.passages)
        if any(passage.in_prompt is not None for passage in turn.passages):
            attributes[semconv.PASSAGES_IN_PROMPT] = sum(bool(passage.in_prompt) for passage in turn.passages)
    if turn.retrieval_queries and policy.inputs:
        attributes[semconv.RETRIEVAL_QUERIES] = turn.retrieval_queries
    if turn.timing is not None:
        attributes.put(semconv.TIMING.format(name="retrieval"), turn.timing.retrieval)
        attributes.put(semconv.TIMING.format(name="generation"), turn.timing.generation)
        attributes.put(semconv.TIMING.format(name="time_to_first_token"), turn.timing.time_to_first_token)
    if turn.usage is not None:
        # Under our own names: a backend adds up the tokens of the model calls below, and must not count them twice.
        attributes[semconv.TOTAL_TOKENS.format(name="input")] = turn.usage.input_tokens
        attributes[semconv.TOTAL_TOKENS.format(name="output")] = turn.usage.output_tokens
        attributes[semconv.USAGE_SOURCE] = turn.usage.source
    if turn.metadata:
        attributes[semconv.METADATA] = policy.quote(_json(turn.metadata), policy.everything) or ""
    return attributes


def _add_results(attributes: Attributes, results: Sequence[Result], passages: int, policy: ContentPolicy) -> None:
    scores = [result for result in results if isinstance(result, Score)]
    about_turn = [score for score in scores if score.target.kind == "turn"]
    if any(score.probability < 1 for score in scores):
        attributes[semconv.PROBABILITY] = min(score.probability for score in scores)
    for score in about_turn:
        attributes[semconv.SCORE.format(name=score.name)] = score.value
        attributes.put(semconv.LABEL.format(name=score.name), score.label)
    for result in results:
        _add_missing(attributes, result, policy)
    _add_passage_scores(attributes, scores, passages)
    for fields in (("name", "score", "label", "explanation"), ("annotator_kind", "identifier", "metadata")):
        for index, score in enumerate(about_turn):
            _add_evaluation(attributes, index, score, fields, policy)


def _add_missing(attributes: Attributes, result: Result, policy: ContentPolicy) -> None:
    if isinstance(result, Skipped):
        attributes[semconv.LABEL.format(name=result.name)] = "skipped"
        attributes[semconv.SKIPPED.format(name=result.name)] = result.reason
    elif isinstance(result, Failed):
        attributes[semconv.LABEL.format(name=result.name)] = "failed"
        message = policy.quote(result.message, policy.everything)
        attributes[semconv.FAILED.format(name=result.name)] = f"{result.error_type}: {message}"


def _add_passage_scores(attributes: Attributes, scores: Iterable[Score], passages: int) -> None:
    """Put the scores of passages in the passages' order; and which passages these are, where some have none."""
    by_name: dict[str, dict[int, float]] = {}
    for score in scores:
        if score.target.kind == "passage" and score.target.index is not None:
            by_name.setdefault(score.name, {})[score.target.index] = score.value
    for name, values in by_name.items():
        places = sorted(values)
        attributes[semconv.PASSAGE_SCORES.format(name=name)] = tuple(values[place] for place in places)
        if len(places) < passages:
            attributes[semconv.SCORED_PASSAGES.format(name=name)] = tuple(places)


def _add_evaluation(
    attributes: Attributes, index: int, score: Score, fields: Iterable[str], policy: ContentPolicy
) -> None:
    values: dict[str, Value | None] = {
        "name": score.name,
        "score": score.value,
        "label": score.label,
        "explanation": policy.quote(score.explanation, policy.everything),
        "annotator_kind": score.annotator,
        "identifier": score.model,
        "metadata": _json(score.metadata) if score.metadata and policy.everything else None,
    }
    for field in fields:
        attributes.put(_indexed(semconv.EVALUATION, index, field), values[field])


# --------------------------------------------------------------------------- the steps


def has_span(step: Step, spans: SpanSelection) -> bool:
    """Whether a step becomes a span."""
    return spans == "all" or (spans == "rag" and step.kind in _RAG_STEPS)


def step_name(step: Step) -> str:
    """Return the span's name: the operation, and the model or the component."""
    operation = _OPERATIONS.get(step.kind)
    what = step.model or step.name if step.kind == "llm" else step.name
    return f"{operation} {what}" if operation else step.name


def step_attributes(step: Step, turn: Turn, policy: ContentPolicy) -> Attributes:
    """Return the attributes of the span of one step."""
    attributes = Attributes()
    attributes[semconv.SPAN_KIND] = _SPAN_KINDS[step.kind]
    attributes.put(semconv.OPERATION_NAME, _OPERATIONS.get(step.kind))
    if step.error is not None:
        attributes[semconv.ERROR_TYPE] = step.error.type
    if not step.complete:
        attributes[semconv.STEP_INCOMPLETE] = True
    if turn.session_id is not None:
        attributes[semconv.SESSION_ID] = turn.session_id
    if step.kind == "llm":
        _add_model_call(attributes, step, policy)
    else:
        input_shown, output_shown = policy.shows(step)
        _add_value(attributes, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE, step.input, policy, input_shown)
        _add_value(attributes, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE, step.output, policy, output_shown)
    if step.kind == "tool":
        attributes[semconv.TOOL_NAME] = step.name
        attributes[semconv.GEN_AI_TOOL_NAME] = step.name
    if step.kind == "retriever":
        if policy.inputs:
            attributes.put(semconv.RETRIEVAL_QUERY_TEXT, step.input)
        attributes[semconv.RETRIEVAL_DOCUMENTS] = _json(
            [{"id": passage.id, "score": passage.score} for passage in step.passages]
        )
    if step.kind == "reranker":
        attributes.put(semconv.RERANKER_QUERY, policy.quote(step.input, policy.inputs))
    if step.passages:
        _add_documents(attributes, step, policy)
    return attributes


def _add_value(
    attributes: Attributes, name: str, mime_name: str, text: str | None, policy: ContentPolicy, shown: bool
) -> None:
    if text is None:
        return
    attributes[name] = policy.quote(text, shown) or ""
    attributes[mime_name] = semconv.JSON if shown and _is_json(text) else semconv.TEXT


def _is_json(text: str) -> bool:
    """Whether it is a JSON object or array, and not a text that begins with a mark of a citation."""
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return False
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def _add_model_call(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    input_shown, output_shown = policy.shows(step)
    if step.model is not None:
        attributes[semconv.LLM_MODEL_NAME] = step.model
        attributes[semconv.REQUEST_MODEL] = step.model
        attributes[semconv.RESPONSE_MODEL] = step.model
    if step.provider is not None:
        attributes[semconv.LLM_PROVIDER] = step.provider
        attributes[semconv.PROVIDER_NAME] = step.provider
    if step.usage is not None:
        attributes[semconv.LLM_TOKENS_PROMPT] = step.usage.input_tokens
        attributes[semconv.LLM_TOKENS_COMPLETION] = step.usage.output_tokens
        attributes[semconv.LLM_TOKENS_TOTAL] = step.usage.total_tokens
        attributes[semconv.USAGE_INPUT_TOKENS] = step.usage.input_tokens
        attributes[semconv.USAGE_OUTPUT_TOKENS] = step.usage.output_tokens
        attributes.put(semconv.LLM_TOKENS_CACHE_READ, step.usage.cache_read_tokens)
        attributes.put(semconv.USAGE_CACHE_READ_TOKENS, step.usage.cache_read_tokens)
        attributes[semconv.USAGE_SOURCE] = step.usage.source
    attributes.put(semconv.RESPONSE_TIME_TO_FIRST_CHUNK, step.time_to_first_token)
    if step.output is not None:
        attributes[semconv.OUTPUT_VALUE] = policy.quote(step.output, output_shown) or ""
        attributes[semconv.OUTPUT_MIME_TYPE] = semconv.TEXT
        attributes[_indexed(semconv.LLM_OUTPUT_MESSAGE, 0, "role")] = "assistant"
        attributes[_indexed(semconv.LLM_OUTPUT_MESSAGE, 0, "content")] = (
            policy.quote(step.output, policy.output_messages) or ""
        )
    if step.messages:
        attributes[semconv.INPUT_VALUE] = policy.quote(step.messages[-1].content, input_shown) or ""
        attributes[semconv.INPUT_MIME_TYPE] = semconv.TEXT
    for index, message in enumerate(step.messages):
        attributes[_indexed(semconv.LLM_INPUT_MESSAGE, index, "role")] = message.role
        attributes[_indexed(semconv.LLM_INPUT_MESSAGE, index, "content")] = (
            policy.quote(message.content, policy.input_messages) or ""
        )


def _add_documents(attributes: Attributes, step: Step, policy: ContentPolicy) -> None:
    template = semconv.RERANKER_OUTPUT_DOCUMENT if step.kind == "reranker" else semconv.RETRIEVAL_DOCUMENT
    for index, passage in enumerate(step.passages):
        attributes[_indexed(template, index, "content")] = policy.quote(passage.text, policy.documents) or ""
        attributes.put(_indexed(template, index, "id"), passage.id)
        attributes.put(_indexed(template, index, "score"), passage.score)
        if policy.documents:
            metadata = _document_metadata(passage)
            if metadata:
                attributes[_indexed(template, index, "metadata")] = metadata


def _document_metadata(passage: Passage) -> str | None:
    metadata = dict(passage.metadata)
    if passage.in_prompt is not None:
        metadata[semconv.DOCUMENT_IN_PROMPT] = passage.in_prompt
        metadata[semconv.DOCUMENT_PROMPT_SHARE] = passage.prompt_share
    return _json(metadata) if metadata else None


# --------------------------------------------------------------------------- late scores


def metric_attributes(evaluation: Evaluation, metric: str, policy: ContentPolicy) -> Attributes:
    """Return the attributes of the span of a metric whose results do not stand on the turn's own span.

    Args:
        evaluation: what was evaluated, and when; with at least one result of the metric.
        metric: the metric's name.
        policy: what may be shown.
    """
    results = results_by_metric(evaluation.results)[metric]
    attributes = Attributes()
    attributes[semconv.SPAN_KIND] = "EVALUATOR"
    attributes[semconv.METRIC] = metric
    attributes[semconv.STAGE] = evaluation.stage
    attributes.put(semconv.DURATION, evaluation.durations.get(metric))
    scores = [result for result in results if isinstance(result, Score)]
    about_turn = [score for score in scores if score.target.kind == "turn"]
    if len(results) == 1 or len(about_turn) == 1:
        attributes.update(result_event((about_turn or results)[0], policy))
    for score in about_turn:
        attributes[semconv.SCORE.format(name=score.name)] = score.value
        attributes.put(semconv.LABEL.format(name=score.name), score.label)
    for result in results:
        _add_missing(attributes, result, policy)
        if isinstance(result, Failed) and not scores:
            attributes[semconv.ERROR_TYPE] = result.error_type
    if scores:
        attributes[semconv.ANNOTATOR] = scores[0].annotator
        attributes[semconv.SCORE_VERSION] = scores[0].version
        attributes[semconv.PROBABILITY] = scores[0].probability
    _add_judge(attributes, results, policy)
    _add_passage_scores(attributes, scores, len(evaluation.turn.passages))
    for fields in (("name", "score", "label", "explanation"), ("annotator_kind", "identifier", "metadata")):
        for index, score in enumerate(scores):
            _add_evaluation(attributes, index, score, fields, policy)
    return attributes


def results_by_metric(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Group results by the metric that made them."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.metric or result.name, []).append(result)
    return groups


def result_event(result: Result, policy: ContentPolicy) -> dict[str, Value]:
    """Return a result in the words of GenAI's evaluation event."""
    attributes = Attributes()
    attributes[semconv.EVALUATION_NAME] = result.name
    if isinstance(result, Score):
        attributes[semconv.EVALUATION_SCORE_VALUE] = result.value
        attributes.put(semconv.EVALUATION_SCORE_LABEL, result.label)
        attributes.put(semconv.EVALUATION_EXPLANATION, policy.quote(result.explanation, policy.everything))
        attributes.put(semconv.RESPONSE_ID, _judge_details(result).get("response_id"))
    elif isinstance(result, Failed):
        attributes[semconv.ERROR_TYPE] = result.error_type
    return attributes


def _add_judge(attributes: Attributes, results: Iterable[Result], policy: ContentPolicy) -> None:
    """Say what the judge took, under names of our own: a backend must not add it to the application's tokens."""
    shown = (str, bool, int, float) if policy.everything else (bool, int, float)
    for result in results:
        details = _judge_details(result)
        if details:
            for name, value in details.items():
                if isinstance(value, shown) or name in _JUDGE_IDS:
                    attributes[semconv.JUDGE.format(name=name)] = value
            return


def _judge_details(result: Result) -> dict[str, Any]:
    details = result.metadata.get("judge") if isinstance(result, (Score, Failed)) else None
    return details if isinstance(details, dict) else {}


def error_event(error: ErrorInfo, policy: ContentPolicy) -> dict[str, Value]:
    """Return the attributes of the event for an exception. Its message may quote texts."""
    return {
        semconv.EXCEPTION_TYPE: error.type,
        semconv.EXCEPTION_MESSAGE: policy.quote(error.message, policy.everything) or "",
    }


@lru_cache(maxsize=4096)
def _indexed(template: str, index: int, field: str) -> str:
    return template.format(index=index, field=field)


def _json(value: object) -> str:
    return to_json(value).decode()
