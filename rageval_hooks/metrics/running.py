"""Runs one metric for one turn. Whatever happens comes back as a result; nothing is raised into the application."""

from __future__ import annotations

import logging
from asyncio import CancelledError, current_task
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from rageval_hooks.errors import (
    InputTooLargeError,
    JudgeError,
    ModelNotReadyError,
    ModelUnavailableError,
    OverBudgetError,
)
from rageval_hooks.metrics.base import Field, JudgeMetric, LocalMetric, Metric, Results
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.score import Failed, Result, Score, Skipped
from rageval_hooks.text.limits import MAX_PASSAGES, MAX_RESPONSE_CHARACTERS
from rageval_hooks.turn import Turn

if TYPE_CHECKING:
    from rageval_hooks.metrics.support.judged_turn import JudgedTurn
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis


_limited_log = RateLimitedLogger(logging.getLogger(__name__))

MISSING: Final[Mapping[Field, str]] = {
    "query": "the turn has no query",
    "passages": "the turn has no passages",
    "response": "the turn has no response",
    "reference": "the turn has no reference answer",
    "timing": "the turn was not timed",
}
"""Why a metric is skipped, by the field that the turn lacks."""


def compute(metric: Metric, analysis: TurnAnalysis) -> tuple[Result, ...]:
    """Run a local metric, and keep its results in the analysis.

    Raises:
        ModelNotReadyError: one of its models is still loading, and the analysis does not wait.
        OverBudgetError: the analysis has no time left.
    """
    try:
        reason = _missing_input(metric, analysis.turn) or _too_large(metric, analysis.turn)
        # Whether there is something to judge is decided by reading the response, so its size is checked first.
        reason = reason or _nothing_to_judge(metric, analysis)
        found: tuple[Result, ...] = (metric.skip(reason),) if reason is not None else ()
        found = found or _checked(metric, cast("LocalMetric", metric).evaluate(analysis))
    except (ModelNotReadyError, OverBudgetError):
        raise  # the engine tries again in the background
    except ModelUnavailableError as error:
        found = (metric.skip(str(error)).model_copy(update={"missing_model": error.role}),)
    except InputTooLargeError as error:
        found = (metric.skip(str(error)),)
    # Some libraries exit when a model cannot be loaded, and a timeout inside `asyncio.run` cancels.
    except (Exception, SystemExit, CancelledError) as error:
        found = (_failure(metric, error),)
    analysis.results[metric.name] = found
    return found


async def compute_judged(metric: Metric, case: JudgedTurn) -> tuple[Result, ...]:
    """Run a metric that asks a judge."""
    try:
        reason = _missing_input(metric, case.turn)
        if reason is not None:
            return (metric.skip(reason),)
        return _checked(metric, await cast("JudgeMetric", metric).evaluate(case))
    except JudgeError as error:  # the judge has already logged it
        return (metric.fail(error),)
    except InputTooLargeError as error:
        return (metric.skip(str(error)),)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return (_failure(metric, error),)
    except CancelledError as error:
        if (task := current_task()) is None or task.cancelling():  # by a shutdown
            raise
        return (_failure(metric, error),)


def _missing_input(metric: Metric, turn: Turn) -> str | None:
    """Return which input of a metric the turn lacks, as the reason to skip the metric; None if it lacks none."""
    for field in metric.requires:
        value = getattr(turn, field)
        # Blank text is no text.
        if value.strip() if isinstance(value, str) else value:
            continue
        reason = MISSING[field]
        if field == "response" and turn.status != "ok":
            reason += f": it ended with {turn.error.type if turn.error else turn.status}"
        if field == "passages" and turn.first_half_missing:
            reason += ": the part of it before the interrupt is not known"
        if field in turn.missing:
            reason += f": {turn.missing[field]}"
        return reason
    if "response" in metric.requires and not turn.complete:
        return "answer incomplete: the model was stopped before its end"
    return _missing_text(metric, turn) if "passages" in metric.requires else None


def _missing_text(metric: Metric, turn: Turn) -> str | None:
    """Return why the passages of a turn, although there are some, have no text for a metric; None if they have."""
    if metric.passages == "prompt":
        passages = turn.prompt_passages
        if not passages:
            return "no passage was in the prompt"
        images = sum(passage.is_image for passage in passages)
        if images:  # what the answer says may be in an image
            return f"{images} of {len(passages)} passages are images, which have no text to compare with"
    else:
        passages = turn.retrieved
        if not passages:
            return f"nothing was retrieved in this turn: its passages ({len(turn.passages)}) are of earlier turns"
        if all(passage.is_image for passage in passages):
            return "the passages are images, which have no text to compare with"
    return None if any(passage.text.strip() for passage in passages) else "the passages have no text"


def _too_large(metric: Metric, turn: Turn) -> str | None:
    """Return why a turn is larger than a local metric reads; None if it is not, or if the metric is the user's own."""
    if metric.family == "custom":
        return None
    if "response" in metric.requires and len(turn.response) > MAX_RESPONSE_CHARACTERS:
        return f"response longer than {MAX_RESPONSE_CHARACTERS:,} characters: {len(turn.response):,}"
    if "passages" not in metric.requires:
        return None
    number = len(turn.prompt_passages if metric.passages == "prompt" else turn.retrieved)
    return f"more than {MAX_PASSAGES:,} passages: {number:,}" if number > MAX_PASSAGES else None


def _nothing_to_judge(metric: Metric, analysis: TurnAnalysis) -> str | None:
    """Return why the response, although there is one, cannot be judged by this metric; None if it can."""
    if "response" not in metric.requires or metric.family == "custom":
        return None
    if not analysis.response.has_words:
        return "the response has no words"
    if metric.about_claims and analysis.claims_nothing:
        return "the response claims nothing: it declines to answer, or only speaks to the reader"
    return None


def _checked(metric: Metric, given: Results) -> tuple[Result, ...]:
    """Return what a metric has returned as results, each with the metric's name and a value in its range."""
    results: tuple[object, ...] = (given,) if isinstance(given, (Score, Skipped, Failed)) else tuple(given)
    if not results:
        return (metric.skip("the metric returned no result"),)
    checked: list[Result] = []
    for result in results:
        # A metric of the user's may return anything, whatever its annotations say.
        if not isinstance(result, (Score, Skipped, Failed)):
            message = f"returned {type(result).__name__}, not a number or a result"
            return (Failed(name=metric.name, error_type="TypeError", message=message, metric=metric.name),)
        if isinstance(result, Skipped) and not result.reason.strip():
            # A trace must say why, also for a metric of the user's that does not.
            result = result.model_copy(update={"reason": "the metric gives no reason"})
        if result.metric is None:
            result = result.model_copy(update={"metric": metric.name})
        checked.append(_defined(result, metric) if isinstance(result, Score) else result)
    return tuple(checked)


def _defined(score: Score, metric: Metric) -> Result:
    """Return a score with the unit, direction and range of its definition; failed if its value is outside the range."""
    definition = metric.definitions.get(score.name)
    if definition is None:
        return score
    if definition.contains(score.value):
        is_set = all(getattr(score, field) == value for field, value in definition.scale.items())
        return score if is_set else score.model_copy(update=definition.scale)
    low, high = definition.low, definition.high
    valid = f"{score.name} is {low:g} {'and above' if high is None else f'to {high:g}'}"
    return Failed(
        name=score.name,
        error_type="ValueError",
        message=f"the value is {score.value:g}, and {valid}: give its range where it is made, such as high=None",
        annotator=score.annotator,
        metric=score.metric,
    )


def _failure(metric: Metric, error: BaseException) -> Failed:
    kind = f"{type(metric).__qualname__} {metric.name} {metric.source}"
    _limited_log.warn(kind, "the metric %s failed [RAGEVAL-204]", metric.name, error=error)
    return metric.fail(error)
