"""The attributes of a turn's span: what was asked and answered, and the few scores that matter most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rageval_hooks.exporters import semconv
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.main_results import quality_results
from rageval_hooks.exporters.otel.attributes.messages import add_input_messages, add_output_message
from rageval_hooks.exporters.otel.attributes.ordering import Attributes, json_string
from rageval_hooks.exporters.otel.attributes.results import score_attributes
from rageval_hooks.runtime.selecting import instances
from rageval_hooks.score import Result, Score
from rageval_hooks.turn import Message, Timing, Turn, Usage

__all__ = ["add_main_scores", "is_agent", "turn_attributes"]

MOST_SCORE_ATTRIBUTES = 12
"""On a turn's span. Backends sort attributes by name and preview the first few: more would hide the question."""


def turn_attributes(turn: Turn, results: Iterable[Result], policy: ContentPolicy) -> Attributes:
    """Return the attributes of a turn's span.

    Args:
        turn: the turn.
        results: its inline results; the span of the evaluation has all of them, this one the main ones.
        policy: what may be shown.
    """
    attributes = Attributes()
    _add_operation(attributes, turn)
    if turn.error is not None:
        attributes[semconv.ERROR_TYPE] = turn.error.type
    _add_content(attributes, turn, policy)
    add_main_scores(attributes, list(results), policy)
    _add_identity(attributes, turn)
    _add_figures(attributes, turn)
    _add_messages(attributes, turn, policy)
    if turn.retrieval_queries and policy.inputs:
        attributes[semconv.RETRIEVAL_QUERIES] = json_string(turn.retrieval_queries)
    if turn.metadata:
        attributes[semconv.METADATA] = policy.quote(json_string(turn.metadata), policy.everything)
    return attributes


# Span kind of OpenInference, operation of OpenTelemetry, and the attribute with the turn's name.
_AGENT = ("AGENT", "invoke_agent", semconv.AGENT_NAME)
_CHAIN = ("CHAIN", "invoke_workflow", semconv.WORKFLOW_NAME)


def is_agent(turn: Turn) -> bool:
    """Return True for an agent's turn: it calls tools. A plain chain calls its retriever and its model itself."""
    return not {"agent", "tool"}.isdisjoint(step.kind for step in turn.steps)


def _add_operation(attributes: Attributes, turn: Turn) -> None:
    kind, operation, name = _AGENT if is_agent(turn) else _CHAIN
    attributes[semconv.SPAN_KIND] = kind
    attributes[semconv.OPERATION_NAME] = operation
    attributes[name] = turn.name
    attributes[semconv.TURN_STATUS] = turn.status


def _add_content(attributes: Attributes, turn: Turn, policy: ContentPolicy) -> None:
    attributes[semconv.INPUT_VALUE] = policy.quote(turn.query, policy.inputs)
    attributes[semconv.INPUT_MIME_TYPE] = semconv.TEXT
    attributes[semconv.OUTPUT_VALUE] = policy.quote(turn.response, policy.outputs)
    attributes[semconv.OUTPUT_MIME_TYPE] = semconv.TEXT


def add_main_scores(attributes: Attributes, results: list[Result], policy: ContentPolicy) -> None:
    """Add the results that matter most: the main scores, and what failed."""
    free = MOST_SCORE_ATTRIBUTES
    for result in quality_results(results):
        new = score_attributes(result, policy)
        # A value without its label would mislead, so a result goes in whole or not at all.
        if len(new) <= free:
            attributes.update(new)
            free -= len(new)
    probabilities = [score.probability for score in instances(results, Score)]
    # Without sampling the probability is 1 and says nothing.
    if probabilities and min(probabilities) < 1:
        attributes[semconv.PROBABILITY] = min(probabilities)


def _add_identity(attributes: Attributes, turn: Turn) -> None:
    attributes[semconv.TURN_ID] = turn.id
    attributes.put(semconv.FRAMEWORK, turn.framework)
    attributes.put(semconv.SESSION_ID, turn.session_id)
    attributes.put(semconv.CONVERSATION_ID, turn.session_id)
    attributes.put(semconv.USER_ID, turn.user_id)


def _add_figures(attributes: Attributes, turn: Turn) -> None:
    if turn.has_retrieval:
        attributes[semconv.PASSAGES] = len(turn.retrieved)
    if len(turn.passages) > len(turn.retrieved):
        attributes[semconv.PASSAGES_OF_EARLIER_TURNS] = len(turn.passages) - len(turn.retrieved)
    seen = Counter(passage.in_prompt for passage in turn.passages)
    # None stands for passages of which no prompt is known. A count of those would say that the model saw none of them.
    if seen.keys() - {None}:
        attributes[semconv.PASSAGES_IN_PROMPT] = seen[True]
    if turn.timing is not None:
        _add_timing(attributes, turn.timing)
    if turn.usage is not None:
        _add_usage(attributes, turn.usage)


def _add_timing(attributes: Attributes, timing: Timing) -> None:
    attributes.put(semconv.TIMING.format(name="retrieval"), timing.retrieval)
    attributes.put(semconv.TIMING.format(name="generation"), timing.generation)
    attributes.put(semconv.TIMING.format(name="time_to_first_token"), timing.time_to_first_token)
    attributes.put(semconv.TIMING.format(name="waiting"), timing.waiting)


def _add_usage(attributes: Attributes, usage: Usage) -> None:
    # Under our own names: a backend adds up the tokens of the model calls below, and must not count them twice.
    attributes[semconv.TOTAL_TOKENS.format(name="input")] = usage.input_tokens
    attributes[semconv.TOTAL_TOKENS.format(name="output")] = usage.output_tokens
    attributes[semconv.USAGE_SOURCE] = usage.source


def _add_messages(attributes: Attributes, turn: Turn, policy: ContentPolicy) -> None:
    """Add the conversation as a reader of the trace sees it: the user's question, not the prompt made of it."""
    if policy.shows_prompts:
        messages = [message for message in turn.prompt if message.role == "system"]
        if turn.query:
            messages.append(Message(role="user", content=turn.query))
        add_input_messages(attributes, messages)
    if policy.shows_completions and turn.response:
        reason = "stop" if turn.status == "ok" else "error"
        add_output_message(attributes, turn.response, (), reason)
