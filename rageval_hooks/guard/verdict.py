"""From the results of the metrics to a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rageval_hooks.guard.checking import Check
from rageval_hooks.guard.decision import Verdict
from rageval_hooks.guard.options import GuardOptions
from rageval_hooks.runtime.selecting import instances
from rageval_hooks.score import Failed, Result, Score, Skipped, is_about_turn

__all__ = ["verdict_of"]


def verdict_of(check: Check, thresholds: Mapping[str, float | None], options: GuardOptions) -> tuple[Verdict, str]:
    """Return the verdict of a check that has ended or used up its time, and the reason.

    Args:
        check: the check.
        thresholds: the thresholds of the scores that count.
        options: the guard's options.
    """
    failure = _failure_of(check, options)
    if failure is not None:
        return "unchecked", failure
    # With the passages at hand, citations in a refusal are recognized: "… is not mentioned (pier.md)."
    if check.analysis is not None and check.analysis.response.declines:
        return "refusal", ""
    return _by_scores(check.results, thresholds)


def _failure_of(check: Check, options: GuardOptions) -> str | None:
    """Return why a check has no results; None if it has some."""
    if not check.arrival.done:
        check.give_up()
        return f"no result within {options.timeout_ms:g} ms"
    if check.error is not None:
        # The message may quote a text, and reasons are shown where texts are hidden.
        return f"the check failed with {type(check.error).__name__}"
    return None


def _by_scores(results: Sequence[Result], thresholds: Mapping[str, float | None]) -> tuple[Verdict, str]:
    about_turn = filter(is_about_turn, results)
    scores = {score.name: score for score in instances(about_turn, Score)}
    failing, missing = [], []
    for name, threshold in thresholds.items():
        score = scores.get(name)
        # Not every grounding model says from which value on a sentence is supported: then there is no label.
        if score is None or score.label is None:
            missing.append(name)
        elif score.label == "fail":
            failing.append(_why_failing(score, threshold))

    # One score that fails is enough, whatever became of the others.
    if failing:
        return "unsupported", "; ".join(failing)
    if missing:
        return "unchecked", _why_unchecked(missing, results)
    return "supported", ""


def _why_failing(score: Score, threshold: float | None) -> str:
    if threshold is None:
        return f"{score.name} {score.value:.2f} fails by the threshold of {score.model}"
    side = "below" if score.direction == "higher" else "above"
    return f"{score.name} {score.value:.2f} is {side} {threshold:g}"


def _why_unchecked(missing: Sequence[str], results: Sequence[Result]) -> str:
    """Return why scores are missing, for example "groundedness, unsupported_facts: the turn has no passages"."""
    names: dict[str, list[str]] = {}
    for name in missing:
        names.setdefault(_why_missing(name, results), []).append(name)
    return "; ".join(f"{', '.join(concerned)}: {reason}" for reason, concerned in names.items())


def _why_missing(name: str, results: Sequence[Result]) -> str:
    for result in results:
        if isinstance(result, Score) and result.name == name:
            return f"no threshold is known for {result.model}: give threshold={{{name!r}: …}}"
        # A result with the name of a metric is about all its scores: "citation" about "citation.recall".
        is_about = f"{name}.".startswith(f"{result.name}.")
        if is_about and isinstance(result, Skipped):
            return result.reason
        if is_about and isinstance(result, Failed):
            return f"failed with {result.error_type}"
    return "no result"
